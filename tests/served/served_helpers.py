"""The original model's scores for any tensors, and tritonclient without our client around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype

from bireme.compiler.load import SavedModel, fill_unused
from bireme.server.process import TritonServer
from bireme.spec import read_spec
from bireme_runtime.plan import Feature

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
Protocol = Literal["grpc", "http"]
PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http")
MODULES: dict[Protocol, ModuleType] = {"grpc": tritonclient.grpc, "http": tritonclient.http}

#: What verify promises; a batch of other requests may move a score by a rounding or two.
TOLERANCE = 1e-5


class Original:
    """The SavedModel, asked user by user."""

    def __init__(self, spec: Path, features: Sequence[Feature]) -> None:
        described = read_spec(spec)
        self._model = SavedModel(described.saved_model, described.signature)
        self._output = described.outputs["click"]
        self._features = features

    def scores(self, tensors: Mapping[str, Array]) -> Array:
        """Scores [users, N] for tensors as they are sent; features left out have their default."""
        users, count = tensors["item_id"].shape
        return np.stack([self._of_one(tensors, user, count) for user in range(users)])

    def _of_one(self, tensors: Mapping[str, Array], user: int, count: int) -> Array:
        rows = {}
        for feature in self._features:
            if feature.name not in tensors:
                kind: Any = object if feature.dtype == "string" else feature.dtype
                value = np.array(feature.default, kind)
            elif feature.side == "item":
                rows[feature.name] = tensors[feature.name][user]
                continue
            else:
                value = tensors[feature.name][user]
                value = value if feature.length is not None else value[0]
            rows[feature.name] = np.stack([np.asarray(value)] * count)
        return self._model.predict(fill_unused(self._model, rows))[self._output].reshape(-1)


def url_of(server: TritonServer, protocol: Protocol) -> str:
    return server.grpc_url if protocol == "grpc" else server.http_url


class Bare:
    """tritonclient over one protocol, for one thread."""

    def __init__(self, server: TritonServer, protocol: Protocol) -> None:
        self._module = MODULES[protocol]
        self.client = self._module.InferenceServerClient(url_of(server, protocol))

    def __call__(self, tensors: Mapping[str, Array], model: str = "obd") -> Array:
        """The scores, or whatever tritonclient raises."""
        inputs = []
        for name, array in tensors.items():
            entry = self._module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
            entry.set_data_from_numpy(array)
            inputs.append(entry)
        scores: Array = self.client.infer(model, inputs).as_numpy("click")
        return scores


def in_parallel(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run every job in a thread of its own; their results, or the first job's exception."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(job) for job in jobs]
        return [future.result(timeout=120) for future in futures]


def executions(server: TritonServer) -> dict[str, tuple[int, int]]:
    """Model → (requests, good or bad, and executions) since the start."""
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        models = client.get_inference_statistics().model_stats
    return {
        model.name: (
            model.inference_stats.success.count + model.inference_stats.fail.count,
            model.execution_count,
        )
        for model in models
    }


def texts(values: Sequence[bytes]) -> Array:
    """[1, n] object array."""
    array = np.empty((1, len(values)), object)
    array[0, :] = values
    return array
