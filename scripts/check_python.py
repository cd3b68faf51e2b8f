"""Can this Python carry the project? Prints nothing and exits 0 if so, else says what is missing.

Run by the Makefile before there is a virtual environment: standard library only, and no syntax newer than
3.6, so that an old Python says so itself.
"""

import ctypes.util
import sys
import sysconfig
from pathlib import Path


def complaint():
    """What is missing, or None."""
    version = "{}.{}".format(*sys.version_info[:2])
    if not (3, 10) <= sys.version_info[:2] < (3, 13):
        return f"is Python {version}; 3.10, 3.11 or 3.12 is needed (numpy 1.26 has no build for others)"
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return f"has no venv module; Debian and Ubuntu: apt install python{version}-venv"
    library = f"libpython{version}.so.1.0"
    places = [Path(sysconfig.get_config_var("LIBDIR") or "."), Path(sys.base_prefix, "lib")]
    found = any((place / library).is_file() for place in places)
    if not found and ctypes.util.find_library("python" + version) != library:
        return (
            f"has no shared library ({library}), which tritonserver's Python backend loads; "
            f"Debian and Ubuntu: apt install libpython{version}; else a Python built with --enable-shared"
        )
    return None


if __name__ == "__main__":
    missing = complaint()
    if missing:
        print(f"make: {sys.executable} {missing}")
        sys.exit(2)
