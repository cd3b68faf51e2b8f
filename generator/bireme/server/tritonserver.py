"""The command `tritonserver`: the real server with the right environment.

Where the system has a tritonserver of its own (NVIDIA's container) that one is run, otherwise the embedded
one. Only flags that the user did not give are added; everything else is passed through. The process turns
into the server, so signals and the exit status are the server's.
"""

from __future__ import annotations

import os
import sys

from bireme.errors import ServerError
from bireme.server.locate import locate

__all__ = ["main"]


def main() -> int:
    """Become tritonserver with the arguments of this process; returns only if that fails."""
    try:
        found = locate()
        arguments = [str(found.command), *found.arguments(sys.argv[1:])]
        os.execve(found.command, arguments, {**os.environ, **found.environment})
    except ServerError as error:
        print(f"tritonserver: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"tritonserver: {found.command} cannot be run: {error.strerror}", file=sys.stderr)
        return ServerError.exit_code
