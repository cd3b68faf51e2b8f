"""Steps in order of importance within a budget of seconds: each one's outcome is on disk when it ends."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bireme.errors import BiremeError

__all__ = ["NotHere", "Outcome", "Step", "from_file", "run_steps", "say", "to_file"]

_BEGAN = time.monotonic()


class NotHere(Exception):  # noqa: N818 - it is no error
    """A step cannot run on this machine, and says why."""


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Args:
        name: unique.
        estimate: seconds that it takes on the machine of record; it is skipped when less is left.
        run: does it within the seconds given, and returns JSON values.
        needs: steps that must have been done before.
    """

    name: str
    estimate: float
    run: Callable[[float], Any]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a step.

    Args:
        step: its name.
        status: done, failed or skipped.
        seconds: how long it took.
        result: what it returned.
        why: what failed, or why it was skipped.
        log: the last lines of what it logged, where it failed.
    """

    step: str
    status: Literal["done", "failed", "skipped"]
    seconds: float = 0.0
    result: Any = None
    why: str = ""
    log: list[str] = field(default_factory=list)


def say(text: str) -> None:
    """A line of progress with the seconds since the start."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


def run_steps(
    steps: Sequence[Step],
    budget: float,
    record: Callable[[Outcome], None],
    clock: Callable[[], float] = time.monotonic,
    before: Collection[str] = (),
) -> list[Outcome]:
    """Run steps in order; one that fails does not stop the others, unless they need it.

    Args:
        steps: what to do.
        budget: seconds for all of them.
        record: called with each outcome at once.
        clock: the time in seconds.
        before: steps that an earlier run has done.
    """
    started, outcomes = clock(), list[Outcome]()
    done = set(before)
    for number, step in enumerate(steps, start=1):
        left = budget - (clock() - started)
        missing = [name for name in step.needs if name not in done]
        if missing:
            outcome = Outcome(step.name, "skipped", why=f"needs {', '.join(missing)}")
        elif left < step.estimate:
            outcome = Outcome(step.name, "skipped", why=f"takes {step.estimate:.0f} s, {left:.0f} s are left")
        else:
            say(f"{number}/{len(steps)} {step.name} (about {step.estimate:.0f} s, {left:.0f} s left)")
            outcome = _run(step, left, clock)
        if outcome.status == "done":
            done.add(step.name)
        say(_line(outcome))
        outcomes.append(outcome)
        record(outcome)
    return outcomes


def to_file(path: Path) -> Callable[[Outcome], None]:
    """A recorder that appends one JSON line an outcome."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def record(outcome: Outcome) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")

    return record


def from_file(path: Path) -> dict[str, Outcome]:
    """Step → its last outcome that was not skipped, of what `to_file` wrote."""
    found: dict[str, Outcome] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            outcome = Outcome(**json.loads(line))
            if outcome.status != "skipped" or outcome.step not in found:
                found[outcome.step] = outcome
    return found


def _run(step: Step, left: float, clock: Callable[[], float]) -> Outcome:
    began = clock()
    try:
        result = step.run(left)
        json.dumps(result)  # a result that cannot be written is found here, not when all is done
        return Outcome(step.name, "done", round(clock() - began, 1), result)
    except NotHere as reason:
        return Outcome(step.name, "skipped", round(clock() - began, 1), why=str(reason))
    except Exception as error:  # whatever it is, the other steps go on
        where = "" if isinstance(error, BiremeError) else _place(error)
        log = list(getattr(error, "log", []))
        text = f"{type(error).__name__}: {error}{where}"
        return Outcome(step.name, "failed", round(clock() - began, 1), why=text, log=log)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _line(outcome: Outcome) -> str:
    if outcome.status == "done":
        return f"    done in {outcome.seconds:.1f} s: {_short(outcome.result)}"
    log = "".join(f"\n        | {line}" for line in outcome.log)
    return f"    {outcome.step} {outcome.status.upper()}: {outcome.why}{log}"


def _short(result: Any) -> str:
    if isinstance(result, Mapping):
        result = {key: value for key, value in result.items() if not isinstance(value, list)}
    text = json.dumps(result)
    return text if len(text) < 600 else text[:600] + " …"
