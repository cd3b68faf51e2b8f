"""Runs batches on a GPU network in a process of its own, as an instance of Triton's Python backend does.

    python run_sequences.py FOLDER REQUESTS.npz BATCHES.json OUT.npz

BATCHES is a list of batches, each a list of numbers of requests in REQUESTS (`user0`, `items0`, …). OUT gets
`<batch>_<place>`, the scores. Each line of the instance's log goes to standard output.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme_runtime.dense_gpu import DenseGpu
from bireme_runtime.gpu_loading import open_dense

__all__ = ["main", "scores"]

Array = np.ndarray[Any, Any]


def scores(dense: DenseGpu, requests: Sequence[Mapping[str, Array]]) -> list[Array]:
    """The scores of a batch; each request is answered exactly once."""
    found: dict[int, list[Array]] = {}
    complete = threading.Event()

    def answer(index: int, result: list[Array] | Exception) -> None:
        if isinstance(result, Exception):
            raise result
        assert index not in found, f"request {index} was answered twice"
        found[index] = result
        if len(found) == len(requests):
            complete.set()

    dense.submit(requests, answer)
    assert complete.wait(20), "an answer is missing"
    return [found[index][0] for index in range(len(requests))]


def main(folder: Path, requests: Path, batches: Path, out: Path) -> None:
    """See above."""
    text = (folder.parent / "config.pbtxt").read_text(encoding="utf-8")
    parsed = text_format.Parse(text, ModelConfig())
    config = json_format.MessageToDict(parsed, preserving_proto_field_name=True)
    with np.load(requests) as stored:
        count = len(stored.files) // 2
        known = [{"user": stored[f"user{i}"], "items": stored[f"items{i}"]} for i in range(count)]
    dense = open_dense(folder, config, 0, folder.parent.name, print, print)
    found = {}
    try:
        for number, batch in enumerate(json.loads(batches.read_text(encoding="utf-8"))):
            for place, answer in enumerate(scores(dense, [known[index] for index in batch])):
                found[f"{number}_{place}"] = answer
    finally:
        dense.close()
    np.savez(out, **found)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
