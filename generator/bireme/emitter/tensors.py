"""Names of the tensors that pass between the parts of the ensemble, and what is refused.

`preprocess`, `dnn` and `postprocess` know their tensors by fixed names. Inside the ensemble all names share
one space with the model's own features and tasks, so there an intermediate tensor steps aside when a feature
happens to be called `user`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from bireme.errors import EmitError
from bireme.spec import Contract

__all__ = [
    "COUNT",
    "ITEMS",
    "USER",
    "check_contract",
    "check_file_name",
    "handed_over",
    "padded_names",
    "unused_all",
]

USER = "user"
"""Columns of the user, once per user: [users, user_width]."""
ITEMS = "items"
"""Columns of the candidates: [users, candidates, item_width]."""
COUNT = "n"
"""How many candidates are real, where they were padded to a bucket: INT32 [users, 1]."""

_MODEL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def unused_all(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Each of `names`, with underscores behind it until it differs from `taken` and from the others."""
    used = set(taken)
    found = []
    for wanted in names:
        name = wanted
        while name in used:
            name += "_"
        used.add(name)
        found.append(name)
    return found


def handed_over(contract: Contract) -> dict[str, list[int]]:
    """What `preprocess` hands to `dnn`: tensor → dims, users left out.

    Where no user feature reaches the DNN by itself, there is no `user`. A column of zeros in its place would
    be an input that no node reads, and what becomes of such a one is each engine's own affair: an optimizer
    may drop it, while config.pbtxt and graph_spec still name it.
    """
    user = {USER: [contract.user_width]} if contract.user_width else {}
    return {**user, ITEMS: [-1, contract.item_width]}


def padded_names(contract: Contract) -> dict[str, str]:
    """Task → name of its scores before the padding is cut off, as `postprocess` knows them."""
    wanted = [f"padded_{task}" for task in contract.tasks]
    return dict(zip(contract.tasks, unused_all(wanted, {*contract.tasks, COUNT}), strict=True))


def check_contract(contract: Contract) -> None:
    """Refuse a contract that Triton could not load: names that clash, or a step that hands nothing over.

    Raises:
        EmitError: naming the model, feature or task at fault.
    """
    if not _MODEL.fullmatch(contract.model):
        raise EmitError(
            f"model {contract.model!r}",
            "is no name for a folder of the repository",
            "start with a letter and use letters, digits and underscores only",
        )
    features = [feature.name for feature in contract.features]
    for kind, names in (("feature", features), ("task", list(contract.tasks))):
        if not names:
            raise EmitError(contract.model, f"has no {kind}", "see `bireme inspect`")
        for name, count in Counter(names).items():
            where = f"{kind} {name!r}"
            if not name or not _encodable(name):
                raise EmitError(where, "is no name that UTF-8 text can hold", "rename it in the model")
            if count > 1:
                raise EmitError(where, f"occurs {count} times", f"give every {kind} a name of its own")
    if contract.layout == "fused" and contract.on_gpu:
        hint = "leave out `layout: fused`: TensorRT runs in a model of its own"
        raise EmitError(contract.model, f"is fused for the {contract.target} target", hint)
    if contract.user_width < 0 or contract.item_width < 1:
        raise EmitError(
            contract.model, f"hands no columns over as {ITEMS!r}", "see `bireme inspect` for the cut"
        )
    for task in contract.tasks:
        if task in features:
            raise EmitError(f"task {task!r}", "is also the name of a feature", "rename it under `outputs`")
        if task in (USER, ITEMS, COUNT):
            raise EmitError(
                f"task {task!r}", "has the name of a tensor between the steps", "rename it under `outputs`"
            )


def check_file_name(name: str) -> None:
    """Refuse a file name that could leave its folder, or hide in it.

    Raises:
        EmitError: naming the file.
    """
    plain = bool(name) and not name.startswith(".") and not set(name) & set("/\\\0")
    if not plain or not _encodable(name):
        raise EmitError(
            f"file {name!r}",
            "is no plain file name",
            "use a name without slashes that does not begin with a dot",
        )


def _encodable(name: str) -> bool:
    try:
        return "\0" not in name and bool(name.encode())
    except UnicodeEncodeError:
        return False
