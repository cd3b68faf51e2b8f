"""Would a strongly typed TensorRT take every family built for it? Writes docs/families_typed.json.

Each subject is exported and compiled in processes of its own, as for the family table; `typed.py` says what
is checked. No TensorRT is run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from catalogue import names

from families import export, run_script, write

_ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run what the command line asks for; exit status 0 if every subject is typed without a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="subjects; nothing is written then")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "families", help="working folder")
    parser.add_argument("--docs", type=Path, default=_ROOT / "docs", help="where the result goes")
    parser.add_argument("--jobs", type=int, default=1, help="subjects at once")
    parser.add_argument("--limit", type=int, default=600, help="seconds for each process")
    options = parser.parse_args()

    def one(name: str) -> dict[str, Any]:
        result = _typed(name, options.out / name, options.out / "packages", options.limit)
        print(f"{name}: {result['status']} {result.get('reason', '')}".strip(), flush=True)
        return result

    wanted = options.only or names()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = dict(zip(wanted, pool.map(one, wanted), strict=True))
    statuses = Counter(result["status"] for result in results.values())
    print(", ".join(f"{count} {status}" for status, count in statuses.most_common()))
    if not options.only:
        write(options.docs / "families_typed.json", as_json(results))
    return 0 if set(statuses) == {"typed"} else 1


def as_json(results: dict[str, dict[str, Any]]) -> str:
    """What is kept: for each subject its status and Casts, and the ops of all with their types."""
    ops: Counter[str] = Counter()
    for result in results.values():
        ops.update(result.get("ops", {}))
    subjects = {
        name: {key: value for key, value in result.items() if key != "ops"}
        for name, result in sorted(results.items())
    }
    return json.dumps({"ops": dict(sorted(ops.items())), "subjects": subjects}, indent=1) + "\n"


def _typed(name: str, folder: Path, packages: Path, limit: int) -> dict[str, Any]:
    failure = export(name, folder, packages, limit)
    if failure:
        return {"status": "not exported", "reason": failure}
    failure = run_script(["typed.py", str(folder)], folder / "typed.log", limit, {})
    if failure:
        return {"status": "failed", "reason": failure}
    return dict(json.loads((folder / "typed.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
