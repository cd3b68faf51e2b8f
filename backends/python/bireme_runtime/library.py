"""The C kernel: found beside this file, tried out, and called through ctypes.

ctypes is part of Python, so a serving image needs nothing more for it. There is one library for each
processor architecture, whatever the Python version. Where it is missing or cannot be loaded, numpy does the
same work more slowly, and `load` says why.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ABI", "CHOICE", "Library", "library_file", "load"]

#: Version of what native/bireme.h describes.
ABI = 1
#: Environment variable: "numpy", or the variant of the kernel to run (see native/dispatch.c).
CHOICE = "BIREME_KERNEL"
_NATIVE = Path(__file__).parent / "native"


@dataclass(frozen=True)
class Library:
    """The loaded kernel.

    Args:
        variant: the instruction set that it uses, "avx512", "avx2" or "baseline".
        functions: the library.
    """

    variant: str
    functions: Any


def library_file(machine: str | None = None) -> str:
    """Name of the library of a processor architecture, by default of this machine's."""
    machine = (machine or platform.machine()).lower()
    return f"libbireme-{ {'amd64': 'x86_64', 'arm64': 'aarch64'}.get(machine, machine) }.so"


def load(folder: Path = _NATIVE) -> tuple[Library | None, str]:
    """The kernel of this machine.

    Args:
        folder: where the library lies.

    Returns:
        The kernel, or None where numpy must do; and a sentence about it for the log.
    """
    if os.environ.get(CHOICE) == "numpy":
        return None, f"numpy kernels, as {CHOICE} says"
    path = folder / library_file()
    if not path.is_file():
        return None, f"numpy kernels: there is no {path.name}; `bireme build` makes it where a C compiler is"
    try:
        functions = ctypes.CDLL(str(path))
        functions.bireme_abi.restype = ctypes.c_int64
        found = functions.bireme_abi()
    except (OSError, AttributeError) as error:
        return None, f"numpy kernels: {path.name} cannot be loaded ({error})"
    if found != ABI:
        return None, f"numpy kernels: {path.name} is of version {found}, this runtime of {ABI}"
    functions.bireme_variant.restype = ctypes.c_char_p
    functions.bireme_open.restype = ctypes.c_void_p
    functions.bireme_open.argtypes = [ctypes.c_void_p]
    functions.bireme_close.argtypes = [ctypes.c_void_p]
    functions.bireme_run.restype = ctypes.c_int64
    functions.bireme_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    variant = functions.bireme_variant().decode()
    return Library(variant, functions), f"C kernel, variant {variant}"
