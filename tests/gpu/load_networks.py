"""Loads GPU networks as an instance of Triton's Python backend does: run in a process of its own, as there.

    python load_networks.py JSON

JSON: {"folders": {case: version folder}, "hold": whether to exhaust the GPU's memory, "requests": FILE.npz or
null}. Prints, as its last line, {case: [the error, or "" and then the scores of the requests]}. With `hold`,
the first folder is loaded three times: as it is, then while this process holds all memory of the GPU
("<case> held"), then with the memory given back ("<case> again").
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme_runtime.cuda import Cuda, CudaError, no_memory
from bireme_runtime.gpu_loading import open_dense

__all__ = ["held", "main"]

_SMALLEST = 1 << 20


def held(cuda: Cuda) -> list[int]:
    """All of the GPU's memory that can be had in pieces of 1 MiB and more; their addresses."""
    pieces = []
    size = cuda.memory()[0]
    while size >= _SMALLEST:
        try:
            pieces.append(cuda.allocate(size))
        except CudaError as error:
            if not no_memory(error):
                raise
            size //= 2
    return pieces


def _loaded(folder: Path, requests: Any) -> list[Any]:
    text = (folder.parent / "config.pbtxt").read_text(encoding="utf-8")
    config = json_format.MessageToDict(
        text_format.Parse(text, ModelConfig()), preserving_proto_field_name=True
    )
    try:
        dense = open_dense(folder, config, 0, folder.parent.name, _tell, _tell)
    except ValueError as error:
        return [str(error)]
    try:
        if requests is None:
            return [""]
        answers = dense.run(requests)
        wrong = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if wrong is not None:
            raise wrong
        return ["", *(np.asarray(answer[0]).tolist() for answer in answers)]
    finally:
        dense.close()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(argument: str) -> None:
    """See above."""
    task = json.loads(argument)
    requests = None
    if task["requests"]:
        with np.load(task["requests"]) as stored:
            count = len(stored.files) // 2
            requests = [{"user": stored[f"user{i}"], "items": stored[f"items{i}"]} for i in range(count)]
    folders = {case: Path(folder) for case, folder in task["folders"].items()}
    found = {case: _loaded(folder, requests) for case, folder in folders.items()}
    if task["hold"]:
        case, folder = next(iter(folders.items()))
        cuda = Cuda(0)
        pieces = held(cuda)
        _tell(f"holding {len(pieces)} pieces, {cuda.memory()[0] >> 10} KiB are free")
        found[f"{case} held"] = _loaded(folder, requests)
        for piece in pieces:
            cuda.free(piece)
        found[f"{case} again"] = _loaded(folder, requests)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
