"""Where the sources lie that an emitted repository carries: each `model.py` and the runtime they share.

In a checkout (and an editable install) they are in `backends/python/`; a wheel has them inside the package,
as `bireme/backends/`.
"""

from __future__ import annotations

from pathlib import Path

import bireme
import bireme_runtime
from bireme.errors import EmitError

__all__ = ["model_source", "runtime_files"]

_PACKAGE = Path(bireme.__file__).parent
_PLACES = (_PACKAGE.parent.parent / "backends" / "python", _PACKAGE / "backends")
_RUNTIME = Path(bireme_runtime.__file__).parent


def model_source(part: str) -> bytes:
    """The `model.py` of one Python-backend model: "preprocess", "dnn", "dnn_gpu" or "fused".

    Raises:
        EmitError: it is neither in a checkout nor in the installed package.
    """
    for place in _PLACES:
        path = place / part / "model.py"
        if path.is_file():
            return path.read_bytes()
    looked = " and ".join(str(place / part) for place in _PLACES)
    raise EmitError(
        f"backends/python/{part}/model.py",
        f"is missing: looked in {looked}",
        "reinstall bireme, from a complete checkout or a released wheel",
    )


def runtime_files() -> dict[str, bytes]:
    """Every file of `bireme_runtime`: path inside the package → content. Caches and hidden files stay out.

    So does the kernel in C: a serving image has no compiler, and of the libraries only that of the image's
    architecture travels (`Artifacts.native`).

    Raises:
        EmitError: the package is not there as files.
    """
    found = {
        path.relative_to(_RUNTIME).as_posix(): path.read_bytes()
        for path in sorted(_RUNTIME.rglob("*"))
        if path.is_file() and not _is_litter(path.relative_to(_RUNTIME))
    }
    if "__init__.py" not in found:
        raise EmitError("bireme_runtime", "is not installed as plain files", "reinstall bireme unzipped")
    return found


def _is_litter(path: Path) -> bool:
    hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
    compiled = path.parts[0] == "native" and path.suffix in {".c", ".h", ".so"}
    return hidden or compiled or path.suffix in {".pyc", ".pyo"}
