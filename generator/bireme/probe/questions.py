"""What to ask: the examples of a repository, or a request of the user's."""

from __future__ import annotations

import json
from pathlib import Path

from bireme.errors import ClientError
from bireme.probe.probe import EXAMPLE, GOLDEN, Question, read_question

__all__ = ["questions"]

_MANIFEST = "bireme.json"


def questions(repository: Path, model: str, request: Path | None) -> list[Question]:
    """One question for each ensemble.

    Args:
        repository: the model repository; not looked at if both others are given.
        model: the ensemble; empty: every one of the repository.
        request: a file to ask instead of the ensemble's example.

    Raises:
        ClientError: no ensemble, several for one request, or a file that is no request.
    """
    names = [model] if model else sorted(path.parent.name for path in repository.glob(f"*/{_MANIFEST}"))
    if not names:
        message = f"holds no ensemble that bireme built (no */{_MANIFEST})"
        raise ClientError(str(repository), message, "give --repository, or --model and --request")
    if request is not None:
        if len(names) > 1:
            raise ClientError(str(request), f"could be for any of {', '.join(names)}", "give --model")
        return [read_question(names[0], request, None, _parts(repository, names[0]))]
    return [
        read_question(n, repository / n / EXAMPLE, repository / n / GOLDEN, _parts(repository, n))
        for n in names
    ]


def _parts(repository: Path, model: str) -> tuple[str, ...]:
    """The ensemble's steps, by its manifest; none where there is none that can be read."""
    try:
        models = json.loads((repository / model / _MANIFEST).read_text(encoding="utf-8"))["models"]
        return tuple(str(name) for name in models if name != model)
    except (OSError, ValueError, KeyError, TypeError):
        return ()
