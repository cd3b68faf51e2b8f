"""What a one-shot request, a user and a slice cost here: CPU time of the code that serves, without a server.

One thread, all parts in turn, so that a slow moment hits all of them; the median of the rounds. What comes on
top when served (the wire, Triton, the hop between two models) is about the same for each of the three.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

from bireme.ahead import UserAhead
from bireme.compiler.pipeline import Compiled
from bireme.compiler.user_ahead import Ahead, open_banks
from bireme.compiler.user_ahead_costs import resized, saved_share
from bireme.requests import part_for, to_tensors
from bireme_runtime.batching import bucket_for, pad_together
from bireme_runtime.preprocessor import Features, Preprocessor

__all__ = ["PARTS", "Timing", "add_timing", "time_parts"]

PARTS = ("one_shot", "user", "slice")
Timing = Mapping[str, Mapping[str, float]]
_ROUNDS = 15


def add_timing(
    section: dict[str, Any], compiled: Compiled, ahead: Ahead, scratch: Path | None = None
) -> None:
    """Add `cpu_milliseconds`, measured now and here, and the share they predict, to the report's section."""
    timing = time_parts(compiled, ahead, section["candidates"], _ROUNDS, scratch)
    section["cpu_milliseconds"] = timing
    totals = {part: sum(timing[part].values()) for part in PARTS}
    section["saved"]["cpu_milliseconds"] = saved_share(totals, section["slices"])


def time_parts(
    compiled: Compiled, ahead: Ahead, candidates: int, rounds: int, scratch: Path | None = None
) -> Timing:
    """Part → "transforms", "dense" → milliseconds of CPU time of one request.

    Args:
        compiled: the one-shot model.
        ahead: its halves.
        candidates: N of the one-shot request and of the slice.
        rounds: how often each is run.
        scratch: a folder for temporary files, best where the compiled tables lie; None: the system's.
    """
    plan, parts = compiled.plan, ahead.parts
    request = resized(plan.features, ahead.sample, candidates)
    bucket = bucket_for(candidates, plan.buckets)
    networks = (
        compiled.dense.SerializeToString(),
        parts.user_onnx,
        parts.slice_onnx,
    )
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        banks = open_banks(compiled, parts, Path(folder))
        trio = (banks.whole, banks.user, banks.slice)
        transforms = {name: _transform(bank, request) for name, bank in zip(PARTS, trio, strict=True)}
        halves = {name: run() for name, run in transforms.items()}
        dense = _networks(networks, parts, halves, bucket)
        spent: dict[str, dict[str, list[float]]] = {n: {"transforms": [], "dense": []} for n in PARTS}
        for round_ in range(rounds + 1):
            for name in PARTS:
                for kind, run in (("transforms", transforms[name]), ("dense", dense[name])):
                    begin = time.process_time_ns()
                    run()
                    if round_:  # the first warms up
                        spent[name][kind].append((time.process_time_ns() - begin) / 1e6)
    return {name: {kind: median(times) for kind, times in kinds.items()} for name, kinds in spent.items()}


def _transform(bank: Preprocessor, request: Any) -> Callable[[], Features]:
    tensors = to_tensors(bank.plan.features, part_for(bank.plan.features, request))

    def run() -> Features:
        result = bank.run([tensors])[0]
        assert isinstance(result, Features)  # the pass has run the samples
        return result

    return run


def _networks(
    models: tuple[bytes, bytes, bytes], parts: UserAhead, halves: Mapping[str, Features], bucket: int
) -> dict[str, Callable[[], Any]]:
    sessions = dict(zip(PARTS, map(_session, models), strict=True))
    state: np.ndarray[Any, Any] = sessions["user"].run(None, {"user": halves["user"].user})[0]
    feeds = {
        "one_shot": {
            "user": halves["one_shot"].user,
            "items": pad_together([halves["one_shot"].items], bucket),
        },
        "user": {"user": halves["user"].user},
        "slice": {parts.state: state, "items": pad_together([halves["slice"].items], bucket)},
    }

    def bind(name: str) -> Callable[[], Any]:
        return lambda: sessions[name].run(None, feeds[name])

    return {name: bind(name) for name in PARTS}


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
