"""Can this Python carry the project? Prints nothing and exits 0 if so, else says what is missing and the remedy.

Run by the Makefile before there is a virtual environment, so it uses the standard library only and old syntax.
"""

import ctypes.util
import os
import sys
import sysconfig


def complaint():
    """What is missing, or None."""
    version = "%d.%d" % sys.version_info[:2]
    if not (3, 10) <= sys.version_info[:2] < (3, 13):
        return "is Python %s; 3.10, 3.11 or 3.12 is needed (numpy 1.26 has no build for others)" % version
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return "has no venv module; Debian and Ubuntu: apt install python%s-venv" % version
    library = "libpython%s.so.1.0" % version
    places = [sysconfig.get_config_var("LIBDIR") or "", os.path.join(sys.base_prefix, "lib")]
    found = any(os.path.isfile(os.path.join(place, library)) for place in places)
    if not found and ctypes.util.find_library("python" + version) != library:
        return (
            "has no shared library (%s), which tritonserver's Python backend loads; Debian and Ubuntu: "
            "apt install libpython%s; else a Python built with --enable-shared" % (library, version)
        )
    return None


if __name__ == "__main__":
    missing = complaint()
    if missing:
        print("make: %s %s" % (sys.executable, missing))
        sys.exit(2)
