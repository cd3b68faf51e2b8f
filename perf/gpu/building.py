"""Steps before any load: what machine this is, engines, tests, proof of scores and graphs."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from gpu.bench import Bench, CommandError, run_bireme, run_command
from gpu.steps import NotHere
from machine import describe

__all__ = ["build_engine", "check_scores", "facts", "run_tests"]

_FIELDS = "name,compute_cap,memory.total,driver_version,clocks.max.sm"
#: Seconds after which something hangs.
_ENGINE, _TESTS, _SCORES = 180, 150, 150
_ROOT = Path(__file__).parents[2]


def facts(bench: Bench, timeout: float) -> dict[str, Any]:
    """GPU, driver, TensorRT, processor, and what was prepared."""
    found: dict[str, Any] = {"machine": describe(), "target": bench.target}
    found["prepared"] = json.loads((bench.prepared / "prepared.json").read_text(encoding="utf-8"))
    try:
        import tensorrt  # type: ignore[import-not-found,unused-ignore]

        found["tensorrt"] = tensorrt.__version__
    except ImportError:
        if not bench.rehearsal:
            raise
        found["tensorrt"] = None
    if bench.rehearsal and not shutil.which("nvidia-smi"):
        return {**found, "gpu": None}
    command = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        line = run_command(command, min(30, timeout), bench.log("nvidia_smi")).splitlines()[0]
    except CommandError as error:  # the rest is worth knowing all the same
        return {**found, "gpu": None, "nvidia_smi": [str(error), *error.log]}
    names = ("name", "compute_capability", "memory_mb", "driver", "max_sm_mhz")
    return {**found, "gpu": dict(zip(names, (part.strip() for part in line.split(",")), strict=True))}


def build_engine(bench: Bench, what: str, timeout: float) -> dict[str, Any]:
    """`bireme engine` on one repository."""
    if bench.rehearsal:
        raise NotHere("a rehearsal serves the cpu target, which has no engine")
    repository, began = bench.repository(what), time.monotonic()
    run_bireme(["engine", "-r", str(repository)], min(timeout, _ENGINE), bench.log(f"engine_{what}"))
    folder = repository / f"{bench.model(what)}_dnn" / "1"
    found: dict[str, Any] = {"seconds": round(time.monotonic() - began, 1)}
    found["plan_bytes"] = (folder / "model.plan").stat().st_size
    for name in ("passport", "engine_report"):
        path = folder / f"{name}.json"
        if path.exists() and path.stat().st_size < 200_000:
            found[name] = json.loads(path.read_text(encoding="utf-8"))
    return found


def run_tests(bench: Bench, timeout: float) -> dict[str, Any]:
    """The tests that need a GPU."""
    folder = _ROOT / "tests" / "gpu"
    if not folder.is_dir():
        raise NotHere("tests/gpu does not exist")
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-rs", "--tb=short", str(folder)]
    command += ["--collect-only"] if bench.rehearsal else []
    environment = {} if bench.rehearsal else _prepared_for_tests(bench)
    text = run_command(command, min(timeout, _TESTS), bench.log("pytest"), environment)
    lines = text.splitlines()
    return {"summary": lines[-1] if lines else "", "skipped": [line for line in lines if "SKIP" in line][:20]}


def check_scores(bench: Bench, what: str, timeout: float) -> dict[str, Any]:
    """`bireme verify --golden`: scores against TensorFlow's, sequences, and proof that graphs launched."""
    golden = bench.prepared / "golden" / f"{what}.npz"
    if not golden.exists():
        raise NotHere(f"{golden.name} was not prepared")
    arguments = ["verify", "--golden", str(golden), "-r", str(bench.repository(what)), "--json"]
    text = run_bireme(arguments, min(timeout, _SCORES), bench.log(f"verify_{what}"))
    return {"verify": _last_json(text)}


def _prepared_for_tests(bench: Bench) -> dict[str, str]:
    return {
        "BIREME_GPU_REPOSITORY": str(bench.repository("example")),
        "BIREME_GPU_GOLDEN": str(bench.prepared / "golden" / "example.npz"),
    }


def _last_json(text: str) -> Any:
    """The JSON document in a command's output, which may have lines of progress before it."""
    for found in re.finditer(r"^[\[{]", text, re.MULTILINE):
        try:
            return json.loads(text[found.start() :])
        except ValueError:
            continue
    return text.splitlines()[-30:]
