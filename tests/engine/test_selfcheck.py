"""The self check of a fresh plan.

CUDA and TensorRT are the stand-ins of tests/runtime (`gpu_stand_ins`), which run a plan on the CPU;
tests/gpu/test_gpu_engine.py checks a real one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "runtime"))

import gpu_stand_ins

from bireme.engine.options import DEFAULT_OPTIONS, Job
from bireme.engine.profile import all_shapes, profile, shape_of
from bireme.engine.selfcheck import check_engine
from bireme.errors import EngineError
from bireme_runtime.cudart import VARIABLE
from bireme_runtime.passport import Needs

WIDTHS = {"items": 6, "user": 3}
NEEDS = Needs({"items": [-1, 6], "user": [3]}, 4, (4, 16))


@pytest.fixture(scope="module")
def trt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    library = gpu_stand_ins.compile_cudart(tmp_path_factory.mktemp("cudart"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(library))
        patch.syspath_prepend(str(gpu_stand_ins.FOLDER))
        patch.delitem(sys.modules, "tensorrt", raising=False)
        import tensorrt

        yield tensorrt
        sys.modules.pop("tensorrt", None)


class Silent:
    def log(self, severity: object, message: str) -> None:
        pass


def check(trt: Any, change: Any = lambda engine: None, needs: Needs = NEEDS, **plan: Any) -> list[str]:
    made = gpu_stand_ins.make_plan(4, [4, 16], WIDTHS, **plan)
    engine = trt.Runtime(Silent()).deserialize_cuda_engine(json.dumps(made).encode())
    change(engine)
    shapes = [shape_of(needs.dims, shape) for shape in all_shapes(needs)]
    job = Job("shop_dnn", Path(), profile(needs), shapes, DEFAULT_OPTIONS, None, lambda _: None)
    return check_engine(job, engine, engine.create_execution_context())


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_good_plan(trt: Any, dtype: str) -> None:
    ran = []

    def count(engine: Any) -> None:
        compute = engine.compute
        engine.compute = lambda feeds: ran.append(feeds["items"].shape) or compute(feeds)

    assert check(trt, count, dtype=dtype) == []
    assert ran == [(1, 4, 6), (3, 4, 6), (4, 16, 6)]  # the smallest, the middle, the largest


def test_a_shape_outside_of_the_profile(trt: Any) -> None:
    with pytest.raises(EngineError, match="the plan does not take 'items' as 1x32x6"):
        check(trt, needs=Needs(NEEDS.dims, 4, (4, 16, 32)))


def test_what_is_not_finite_is_worth_a_warning(trt: Any) -> None:
    def spoil(engine: Any) -> None:
        compute = engine.compute
        engine.compute = lambda feeds: [compute(feeds)[0] / 0, compute(feeds)[1]]

    with pytest.warns(RuntimeWarning):
        warnings = check(trt, spoil)
    assert len(warnings) == 3
    assert warnings[0] == "click is not finite for small random inputs (items 1x4x6, user 1x3)"


def test_what_cannot_be_executed(trt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trt.ExecutionContext, "execute_async_v3", lambda self, stream: False)
    with pytest.raises(EngineError, match=r"cannot be executed .*: TensorRT did not enqueue it"):
        check(trt)
