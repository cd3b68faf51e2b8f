"""The family table: export, compile and compare every subject, each in processes of its own.

`python families.py` runs all and writes docs/families.md and docs/families.json; `--only NAME …` runs some
and prints them. What was measured with the same code is not measured again, so an interrupted run goes on
where it ended.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from catalogue import group_of, names
from family_table import as_json, as_markdown, one_line

__all__ = ["export", "run_script", "write"]

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]


def main() -> int:
    """Run what the command line asks for; exit status 0 if every subject that ran builds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="subjects, or the beginnings of their names"
    )
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "families", help="working folder")
    parser.add_argument("--docs", type=Path, default=_ROOT / "docs", help="where the table goes")
    parser.add_argument("--jobs", type=int, default=1, help="subjects at once")
    parser.add_argument("--limit", type=int, default=600, help="seconds for each process")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured with this code")
    options = parser.parse_args()
    wanted = names()
    if options.only:
        starts = tuple(start for start in options.only if start not in wanted)
        wanted = [name for name in wanted if name in options.only or name.startswith(starts)]
        if not wanted:
            parser.error(f"no such subject; there are: {', '.join(names())}")
    results: dict[str, dict[str, Any]] = {}

    def one(name: str) -> None:
        results[name] = _result(
            name, options.out / name, options.out / "packages", options.limit, options.fresh
        )
        print(f"[{len(results)}/{len(wanted)}] {name}: {one_line(results[name])}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, wanted))
    good = sum(result["status"] == "builds" for result in results.values())
    print(f"{good} of {len(results)} build within 1e-5")
    if not options.only:
        write(options.docs / "families.md", as_markdown(results))
        write(options.docs / "families.json", as_json(results))
    return 0 if good == len(results) else 1


def _result(name: str, folder: Path, packages: Path, limit: int, fresh: bool) -> dict[str, Any]:
    """A subject's result, measured if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    kept, key = folder / "kept.json", _fingerprint(_HERE, _ROOT / "generator", _ROOT / "backends")
    if kept.is_file() and not fresh:
        known = json.loads(kept.read_text(encoding="utf-8"))
        if known["key"] == key:
            return dict(known["result"])
    result = _measured(name, folder, packages, limit)
    write(kept, json.dumps({"key": key, "result": result}))
    return result


def export(name: str, folder: Path, packages: Path, limit: int) -> str:
    """Export a subject, unless these very scripts have done so; what went wrong in one line, or ""."""
    folder.mkdir(parents=True, exist_ok=True)
    source, exported = _fingerprint(_HERE), folder / "exported"
    if not exported.is_file() or exported.read_text() != source:
        extra = {"PYTHONPATH": str(packages)} if group_of(name).packages else {}
        failure = run_script(["export.py", name, str(folder)], folder / "export.log", limit, extra)
        if failure:
            return failure
        exported.write_text(source)
    return ""


def _measured(name: str, folder: Path, packages: Path, limit: int) -> dict[str, Any]:
    failure = export(name, folder, packages, limit)
    if failure:
        return {"status": "not exported", "reason": failure}
    (folder / "result.json").unlink(missing_ok=True)
    tells = json.loads((folder / "subject.json").read_text(encoding="utf-8"))["tells"]
    failure = run_script(["measure.py", str(folder)], folder / "measure.log", limit, {})
    if failure:
        return {"status": "failed", "reason": failure, "tells": tells}
    return {"tells": tells, **json.loads((folder / "result.json").read_text(encoding="utf-8"))}


def run_script(command: list[str], log: Path, limit: int, extra: dict[str, str]) -> str:
    """Run one of the scripts beside this one; what went wrong in one line, or nothing."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", **extra}
    with log.open("w", encoding="utf-8") as file:
        try:
            done = subprocess.run(
                [sys.executable, str(_HERE / command[0]), *command[1:]],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {limit} seconds"
    if done.returncode == 0:
        return ""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {done.returncode}"


def _fingerprint(*folders: Path) -> str:
    """SHA-256 over the Python files of some folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    temporary = path.with_suffix(".partial")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
