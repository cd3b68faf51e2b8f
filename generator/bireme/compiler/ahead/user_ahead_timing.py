"""What a one-shot request, a user and a slice cost here: CPU time of the code that serves, without a server.

One thread, all parts in turn, so that a slow moment hits all of them; the median of the rounds. What comes on
top when served (the wire, Triton, the hop between two models) is about the same for each of the three.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

from bireme.compiler.ahead.user_ahead import Ahead, open_banks
from bireme.compiler.ahead.user_ahead_costs import resized, saved_share
from bireme.compiler.pipeline import Compiled
from bireme.requests import part_for, to_tensors
from bireme_runtime.batching import bucket_for, pad_together
from bireme_runtime.preprocessor import Features

__all__ = ["PARTS", "Timing", "add_timing", "time_parts"]

PARTS = ("one_shot", "user", "slice")
Timing = Mapping[str, Mapping[str, float]]
_ROUNDS = 24


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
    requests = [resized(plan.features, sample, candidates) for sample in ahead.samples]
    bucket = bucket_for(candidates, plan.buckets)
    models = (compiled.dense.SerializeToString(), parts.user_onnx, parts.slice_onnx)
    spent: dict[str, dict[str, list[float]]] = {name: {"transforms": [], "dense": []} for name in PARTS}
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        banks = open_banks(compiled, parts, Path(folder))
        trio = dict(zip(PARTS, (banks.whole, banks.user, banks.slice), strict=True))
        sessions = dict(zip(PARTS, map(_session, models), strict=True))
        tensors = [
            {name: to_tensors(b.plan.features, part_for(b.plan.features, r)) for name, b in trio.items()}
            for r in requests
        ]
        for round_ in range(rounds + 1):
            given, state = tensors[round_ % len(tensors)], np.empty(0, np.float32)
            for name in PARTS:
                begin = time.process_time_ns()
                half = trio[name].run([given[name]])[0]
                between = time.process_time_ns()
                assert isinstance(half, Features)  # the pass has run the samples
                feeds = {parts.state: state} if name == "slice" else {"user": half.user}
                if name != "user":
                    feeds["items"] = pad_together([half.items], bucket)
                outputs = sessions[name].run(None, feeds)
                end = time.process_time_ns()
                state = outputs[0] if name == "user" else state
                if round_:  # the first warms up
                    spent[name]["transforms"].append((between - begin) / 1e6)
                    spent[name]["dense"].append((end - between) / 1e6)
    return {name: {kind: median(times) for kind, times in kinds.items()} for name, kinds in spent.items()}


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
