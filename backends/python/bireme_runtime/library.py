"""The C kernel: found beside this file, tried out, and called through ctypes.

ctypes is part of Python, so a serving image needs nothing more for it. There is one library for each
processor architecture, whatever the Python version. Where it is missing or cannot be loaded, numpy does the
same work more slowly, and `load` says why.
"""

from __future__ import annotations

import ctypes
import hashlib
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
# What a library ends with, before the SHA-256 of all that is in front (`sealed` in bireme/native/flags.py).
_SEAL = b"bireme-sha256:"


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
    choice = os.environ.get(CHOICE)
    if choice == "numpy":
        return None, f"numpy kernels, as {CHOICE} says"
    path = folder / library_file()
    try:
        # The dynamic linker believes what it maps: a file that ends early kills the process.
        whole = is_whole(path.read_bytes())
    except FileNotFoundError:
        return None, f"numpy kernels: there is no {path.name}; `bireme build` makes it where a C compiler is"
    except OSError as error:
        return None, f"numpy kernels: {path.name} cannot be read ({error.strerror})"
    if not whole:
        return None, f"numpy kernels: {path.name} is damaged or not ours; `bireme build` makes it anew"
    try:
        functions = ctypes.CDLL(str(path))
        functions.bireme_abi.restype = ctypes.c_int64
        found = functions.bireme_abi()
        if found != ABI:
            return None, f"numpy kernels: {path.name} is of version {found}, this runtime of {ABI}"
        variant = _declare(functions)
    except (OSError, AttributeError) as error:
        return None, f"numpy kernels: {path.name} cannot be loaded ({error})"
    about = f"C kernel, variant {variant}"
    if choice and choice != variant:
        about += f"; {CHOICE}={choice!r} names nothing that this processor runs"
    return Library(variant, functions), about


def is_whole(content: bytes) -> bool:
    """Whether a library's bytes are those that `bireme build` wrote."""
    body, _, digest = content.rpartition(_SEAL)
    return digest == hashlib.sha256(body).hexdigest().encode()


def _declare(functions: Any) -> str:
    """Tell ctypes the functions' types; the variant that was chosen."""
    functions.bireme_variant.restype = ctypes.c_char_p
    functions.bireme_open.restype = ctypes.c_void_p
    functions.bireme_open.argtypes = [ctypes.c_void_p]
    functions.bireme_close.argtypes = [ctypes.c_void_p]
    functions.bireme_run.restype = ctypes.c_int64
    functions.bireme_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return str(functions.bireme_variant().decode())
