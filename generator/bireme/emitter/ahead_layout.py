"""Which file of the models of `--user-ahead` lies where.

::

    <model>_user/  <model>_slice/                          config.pbtxt  1/ (<model>_user: another number)
    <model>_preprocess_user/  <model>_preprocess_slice/    as <model>_preprocess, with half of the plan
    <model>_dnn_user/  <model>_dnn_slice/                  as <model>_dnn, with a part of the network

Tables and vocabularies are not written again: `shared_files` says which files of `<model>_preprocess` each
half reads under a name of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from bireme.ahead import AheadNames, UserAhead
from bireme.emitter.artifacts import Writer
from bireme.emitter.engine_note import Network
from bireme.emitter.network_files import network_files
from bireme.emitter.tensors import ITEMS, USER
from bireme.spec import Contract

__all__ = ["ENSEMBLE_NOTE", "ahead_files", "shared_files"]

# git and zip drop empty folders, and Triton refuses a model without a version folder.
ENSEMBLE_NOTE = b"An ensemble has no file of its own, but Triton wants this version folder.\n"


def ahead_files(
    contract: Contract,
    ahead: UserAhead,
    sources: Mapping[str, bytes],
    runtime: Mapping[str, Writer],
    native: Mapping[str, Writer],
) -> dict[str, dict[str, Writer]]:
    """Model → path inside its folder → content, but for the configs and the shared files.

    Args:
        contract: of the one-shot ensemble.
        ahead: what the compiler made.
        sources: "preprocess", and "dnn" unless a C++ backend runs it, → its model.py.
        runtime: the runtime's files, by their paths inside a model's folder.
        native: the same for the kernel's library, which only feature steps use.
    """
    names = AheadNames(contract.model)
    models: dict[str, dict[str, Writer]] = {
        names.user: {f"{_version(ahead)}/README.txt": ENSEMBLE_NOTE},
        names.slice: {"1/README.txt": ENSEMBLE_NOTE},
    }
    for model, plan in ((names.user_preprocess, ahead.user_plan), (names.slice_preprocess, ahead.slice_plan)):
        models[model] = {
            "1/model.py": sources["preprocess"],
            "1/plan.json": plan.to_json().encode(),
            **runtime,
            **native,
        }
    networks = (
        Network(names.user_dnn, ahead.user_onnx, {USER: contract.user_width}),
        Network(
            names.slice_dnn,
            ahead.slice_onnx,
            {ahead.state: ahead.width, ITEMS: contract.item_width},
        ),
    )
    for network in networks:
        models[network.name] = network_files(contract, network, sources.get("dnn"), runtime)
    return models


def _version(ahead: UserAhead) -> int:
    """Another version number for another build, 1 to 2^31.

    Triton's response cache knows a model by name and version, not by content: had every build version 1, a
    server that reloads it would go on answering with the states of the build before.
    """
    number = 0
    for mark in ahead.marks:
        number = number << 11 | mark
    return number % (1 << 31) + 1


def shared_files(contract: Contract, ahead: UserAhead) -> dict[str, tuple[str, ...]]:
    """Model → which of the files of `<model>_preprocess` it reads as well."""
    names = AheadNames(contract.model)
    return {names.user_preprocess: ahead.user_files, names.slice_preprocess: ahead.slice_files}
