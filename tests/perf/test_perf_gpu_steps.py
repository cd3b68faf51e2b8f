"""Steps within a budget: what is skipped, what goes on, what is on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu.bench import Bench, CommandError, run_command
from gpu.check import all_steps, still_there
from gpu.steps import NotHere, Outcome, Step, from_file, run_steps, to_file

ROOT = Path(__file__).parents[2]


class Clock:
    """Time that passes only when a step says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def step(self, name: str, estimate: float, takes: float, **more: Any) -> Step:
        def run(left: float) -> Any:
            self.now += takes
            return {"left": left}

        return Step(name, estimate, run, **more)


def statuses(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.step: outcome.status for outcome in outcomes}


def test_a_step_runs_while_its_estimate_fits_and_a_shorter_one_behind_it_still_may() -> None:
    clock = Clock()
    steps = [clock.step("a", 40, 50), clock.step("b", 60, 60), clock.step("c", 50, 1), clock.step("d", 60, 1)]
    outcomes = run_steps(steps, 100, lambda _: None, clock)
    assert statuses(outcomes) == {"a": "done", "b": "skipped", "c": "done", "d": "skipped"}
    assert outcomes[1].why == "takes 60 s, 50 s are left"
    assert outcomes[2].result == {"left": 50}


def test_what_needs_a_failed_step_is_skipped_and_the_rest_goes_on() -> None:
    clock = Clock()

    def fail(_: float) -> None:
        error = OSError("no GPU")
        error.log = ["E1 out of memory"]  # type: ignore[attr-defined]
        raise error

    def absent(_: float) -> None:
        raise NotHere("no MPS here")

    steps = [
        Step("engine", 1, fail),
        Step("mps", 1, absent),
        clock.step("load", 1, 1, needs=("engine",)),
        clock.step("facts", 1, 1),
        clock.step("more", 1, 1, needs=("facts", "before")),
    ]
    outcomes = run_steps(steps, 100, lambda _: None, clock, before=["before"])
    assert statuses(outcomes) == {
        "engine": "failed",
        "mps": "skipped",
        "load": "skipped",
        "facts": "done",
        "more": "done",
    }
    assert outcomes[0].why.startswith("OSError: no GPU (test_perf_gpu_steps.py:")
    assert outcomes[0].log == ["E1 out of memory"]
    assert outcomes[1].why == "no MPS here"
    assert outcomes[2].why == "needs engine"


def test_a_result_that_is_no_json_fails_its_own_step() -> None:
    outcomes = run_steps([Step("bad", 1, lambda _: {1, 2})], 10, lambda _: None)
    assert statuses(outcomes) == {"bad": "failed"}


def test_each_outcome_is_on_disk_before_the_next_step_begins(tmp_path: Path) -> None:
    path = tmp_path / "new" / "steps.jsonl"
    seen: list[dict[str, Outcome]] = []

    def look(_: float) -> int:
        seen.append(from_file(path))
        return 7

    run_steps([Step("first", 1, look), Step("second", 1, look)], 10, to_file(path))
    assert list(seen[0]) == []
    assert list(seen[1]) == ["first"]
    assert from_file(path)["second"].result == 7


def test_a_later_run_replaces_failures_and_a_skip_replaces_nothing(tmp_path: Path) -> None:
    record = to_file(tmp_path / "steps.jsonl")
    for outcome in (
        Outcome("a", "failed", why="x"),
        Outcome("b", "done", result=1),
        Outcome("a", "done", result=2),
        Outcome("b", "skipped", why="no time"),
    ):
        record(outcome)
    found = from_file(tmp_path / "steps.jsonl")
    assert (found["a"].status, found["a"].result) == ("done", 2)
    assert (found["b"].status, found["b"].result) == ("done", 1)


def test_the_check_needs_nothing_that_a_gpu_machine_lacks() -> None:
    """No TensorFlow, no ONNX Runtime, no PyTorch, no matplotlib: only where the eager model runs."""
    missing = ("tensorflow", "keras", "onnxruntime", "tf2onnx", "torch", "onnx", "matplotlib")
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in missing)
    code = f"import sys; {blocked}sys.path.insert(0, 'perf'); import gpu.check; print(gpu.check.main)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-600:]


def test_an_engine_of_another_machine_is_built_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, tmp_path / "work")
    version = tmp_path / "network" / "gpu-python" / "m_dnn" / "1"
    version.mkdir(parents=True)
    assert not still_there(bench, "engine of network")
    (version / "model.plan").write_bytes(b"plan")
    assert still_there(bench, "engine of network")
    assert still_there(bench, "eager")


def test_every_step_has_a_name_of_its_own_and_needs_an_earlier_one(tmp_path: Path) -> None:
    names: list[str] = []
    for step in all_steps(Bench(tmp_path, tmp_path / "work")):
        assert set(step.needs) <= set(names)
        assert step.name not in names
        names.append(step.name)
    assert {"1 instance, no graphs", "4 instances, graphs, MPS", "user once or not", "timeline"} <= set(names)


def test_a_command_that_fails_hangs_or_is_missing_is_told_with_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run_command(["echo", "all is well"], 10, log) == "all is well\n"
    with pytest.raises(CommandError, match=r"sh -c .*: 3") as failed:
        run_command(["sh", "-c", "echo first; echo last; exit 3"], 10, log)
    assert failed.value.log == ["first", "last"]
    with pytest.raises(CommandError, match="no end after 0 s"):
        run_command(["sleep", "30"], 0.2, log)
    with pytest.raises(CommandError, match="no-such-command: No such file"):
        run_command(["no-such-command"], 10, log)
