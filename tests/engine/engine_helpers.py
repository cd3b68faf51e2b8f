"""Small GPU repositories, as the emitter writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emitter_helpers import make_artifacts, make_contract
from fake_tensorrt import FakeTensorRT
from onnx import parser

from bireme.emitter import emit
from bireme.engine.build_engine import Outcome, Tool, build_engines
from bireme.errors import EngineError
from bireme_runtime.passport import Gpu

H200 = Gpu("NVIDIA H200", "9.0", 143771)

#: One node stays FP32 ("large"), one is FP16 ("half"), casts lie between.
MIXED = """<ir_version: 8, opset_import: ["" : 17]>
    g (float16[u, 8] user, float16[u, n, 9] items) => (float[u, n] ctr, float[u, n] cvr) {
        [cast_in] whole = Cast<to = 1>(items)
        [large] ctr = ReduceMax<axes = [2], keepdims = 0>(whole)
        [half] small = ReduceMax<axes = [2], keepdims = 0>(items)
        [cast_out] cvr = Cast<to = 1>(small)
    }"""


def onnx_bytes(text: str) -> bytes:
    return bytes(parser.parse_model(text).SerializeToString())


def gpu_repository(folder: Path, target: str = "gpu", text: str = MIXED, **changes: Any) -> Path:
    """A repository with the network `shop_dnn`; its buckets are 4 and 16, users up to 6."""
    contract = make_contract(target, **changes)
    emit(make_artifacts(contract, dense_onnx=onnx_bytes(text)), contract, folder)
    return folder


def run(repository: Path, trt: FakeTensorRT, **options: Any) -> list[Outcome]:
    """`bireme engine` with a stand-in for the package."""
    tool: Any = Tool(trt.__version__, package=trt)  # type: ignore[arg-type]
    return list(build_engines(repository, choose=lambda: tool, **options))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(repository: Path, trt: FakeTensorRT, **options: Any) -> EngineError:
    """The error, after which no file has changed."""
    return refusal_of(repository, lambda: run(repository, trt, **options))


def refusal_of(repository: Path, attempt: Callable[[], object]) -> EngineError:
    """The error that `attempt` raises, after which no file has changed."""
    folder = repository / "shop_dnn" / "1"
    before = files(folder)
    with pytest.raises(EngineError) as caught:
        attempt()
    assert files(folder) == before
    return caught.value
