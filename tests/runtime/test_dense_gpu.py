"""Batches on a GPU: whatever arrives together, each request gets what the network gives it alone.

The GPU, its CUDA runtime and TensorRT are stand-ins (`gpu_stand_ins`): there is no GPU here. `tests/gpu` runs
the same sequences on a real one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_stand_ins import make_plan, model_config, write_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bireme_runtime.dense_gpu import DenseGpu
from bireme_runtime.gpu_loading import open_dense

Array = np.ndarray[Any, Any]
USERS, BUCKETS = 8, [4, 16]
GRAPHS = "1x4,2x4,8x4,1x16,4x16,8x16"
INPUTS = {"items": 6, "user": 3}


class Served:
    """A network on the stand-in, and what was logged."""

    def __init__(self, dense: DenseGpu, lines: list[str], alone: Callable[[Any], list[Array]]) -> None:
        self.dense, self.lines, self._alone = dense, lines, alone

    def check(self, requests: Sequence[Mapping[str, Array]]) -> None:
        """Run a batch and compare with the network run plainly on each request."""
        results = answers(self.dense, requests)
        for request, result in zip(requests, results, strict=True):
            assert not isinstance(result, Exception), result
            for found, wanted in zip(result, self._alone(request), strict=True):
                np.testing.assert_array_equal(found, wanted.astype(np.float32), strict=True)


def answers(dense: DenseGpu, requests: Sequence[Mapping[str, Array]]) -> list[list[Array] | Exception]:
    """The answers of a batch; in the background, waits for them. None is given twice."""
    results: dict[int, list[Array] | Exception] = {}
    complete = threading.Event()

    def answer(index: int, result: list[Array] | Exception) -> None:
        assert index not in results
        results[index] = result
        if len(results) == len(requests):
            complete.set()

    dense.submit(requests, answer)
    assert complete.wait(20)
    return [results[index] for index in range(len(requests))]


@contextmanager
def served(
    folder: Path, plan: dict[str, Any] | None = None, buckets: Sequence[int] = BUCKETS, **parameters: str
) -> Iterator[Served]:
    import tensorrt

    plan = plan or make_plan(USERS, buckets, INPUTS)
    version = folder / "shop_dnn" / "1"
    version.mkdir(parents=True, exist_ok=True)
    write_plan(version, plan, USERS, buckets)
    lines: list[str] = []
    parameters = {"graphs": GRAPHS} | parameters
    config = model_config(plan, USERS, buckets, **parameters)
    dense = open_dense(version, config, 0, "shop_dnn_0_0", lines.append, lines.append)
    try:
        yield Served(dense, lines, tensorrt.network_of(plan))
    finally:
        dense.close()


def request(users: int, candidates: int, seed: int = 0, dtype: str = "float16") -> dict[str, Array]:
    rng = np.random.default_rng((users, candidates, seed))
    items, user = rng.standard_normal((users, candidates, 6)), rng.standard_normal((users, 3))
    return {"items": items.astype(dtype), "user": user.astype(dtype)}


@pytest.fixture(params=["off", "on"])
def background(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# More users than any graph as well: such a request runs in several executions.
SIZES = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 16)), min_size=1, max_size=8)


@given(batches=st.lists(SIZES, min_size=1, max_size=4))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batches_give_what_the_network_gives_alone(
    gpu: ctypes.CDLL, background: str, tmp_path: Path, batches: list[list[tuple[int, int]]]
) -> None:
    gpu.fakeLimits(1 << 40, 20)
    with served(tmp_path, background=background) as model:
        for number, batch in enumerate(batches):
            model.check([request(users, count, number * 100 + i) for i, (users, count) in enumerate(batch)])
