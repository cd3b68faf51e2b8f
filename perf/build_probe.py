"""One build in this process, with the time of every pass; what perf/build_bench.py starts.

    python perf/build_probe.py SPEC REPOSITORY

Prints JSON: when each pass began (seconds of the system-wide monotonic clock), the memory before the first
one (TensorFlow and the compiler are imported by then), and the process's own high-water mark.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path

from bireme.build import build


def status(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    """Build what the arguments name."""
    started = time.monotonic()
    # What a build imports on its way, and in its order: the compiler decides how TensorFlow starts.
    for module in ("bireme.compiler.pipeline", "tf2onnx.convert"):
        import_module(module)
    passes = [("import", started)]
    base = {key: status(key) for key in ("RssAnon", "VmHWM")}
    built = build(
        Path(sys.argv[1]), Path(sys.argv[2]), progress=lambda name: passes.append((name, time.monotonic()))
    )
    passes.append(("end", time.monotonic()))
    tables = [table["bytes"] for table in built.report["tables"]]
    found = {
        "passes": passes,
        "base": base,
        "high_water": status("VmHWM"),
        "features": len(built.report["features"]),
        "tables": len(tables),
        "table_bytes": sum(tables),
        "largest_table_bytes": max(tables, default=0),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
