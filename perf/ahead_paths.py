"""Two ways to score a user's candidates in slices: the user with every slice, or once ahead of all of them.

Each `Paths` runs them for one user at a time: `one_shot` sends the user with each slice, `ahead` asks for the
user's state and then scores the slices with it, `cached` asks for the state before every slice, as callers do
that do not share it. `InProcess` is the emitted models' own code on one thread, `Served` a tritonserver.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc  # type: ignore[import-untyped]
import numpy as np
import onnxruntime
from tritonclient.grpc import service_pb2

from bireme.ahead import AheadNames
from bireme.requests import Request, part_for, to_tensors
from bireme_runtime.batching import bucket_for, pad_together
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.user_state import STATE_PARAMETER, StateCheck
from wire import METHOD, decode, encode

__all__ = ["InProcess", "Paths", "Served", "User", "state_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class User:
    """One user's candidates: `slices` requests that differ in their items only."""

    slices: Sequence[Request]


class Paths(Protocol):
    """A way to run both; each returns the scores [N] of the first task, slice by slice."""

    def prepare(self, users: Sequence[User]) -> None:
        """Make what does not count: the tensors or bytes of these users' requests."""

    def one_shot(self, user: User) -> list[Array]:
        """The user with each slice."""

    def ahead(self, user: User) -> list[Array]:
        """The user once, then the slices."""


def state_of(repository: Path, model: str) -> StateCheck:
    """What the emitted slice model says about the state."""
    from google.protobuf import text_format  # type: ignore[import-untyped]
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    text = (repository / AheadNames(model).slice / "config.pbtxt").read_text(encoding="utf-8")
    value = text_format.Parse(text, ModelConfig()).parameters[STATE_PARAMETER].string_value
    found = StateCheck.of({"parameters": {STATE_PARAMETER: {"string_value": value}}})
    assert found is not None
    return found


class InProcess:
    """The emitted plans and networks, one thread, without a server.

    Args:
        repository: built with --user-ahead, cpu target.
        model: name of the ensemble.
    """

    def __init__(self, repository: Path, model: str) -> None:
        names = AheadNames(model)
        pairs = {
            "whole": (f"{model}_preprocess", f"{model}_dnn"),
            "user": (names.user_preprocess, names.user_dnn),
            "slice": (names.slice_preprocess, names.slice_dnn),
        }
        self._banks = {part: Preprocessor.open(repository / pre / "1") for part, (pre, _) in pairs.items()}
        self._nets = {
            part: _session(repository / dnn / "1" / "model.onnx") for part, (_, dnn) in pairs.items()
        }
        self._state = state_of(repository, model).name

    def prepare(self, users: Sequence[User]) -> None:
        """Make every request's tensors."""
        self._ready = {
            user: {
                part: [to_tensors(b.plan.features, part_for(b.plan.features, r)) for r in user.slices]
                for part, b in self._banks.items()
            }
            for user in users
        }

    def one_shot(self, user: User) -> list[Array]:
        """The user with each slice."""
        return [self._scores("whole", tensors, {}) for tensors in self._ready[user]["whole"]]

    def ahead(self, user: User) -> list[Array]:
        """The user once, then the slices."""
        half = self._features("user", self._ready[user]["user"][0])
        given = {self._state: self._nets["user"].run(None, {"user": half.user})[0]}
        return [self._scores("slice", tensors, given) for tensors in self._ready[user]["slice"]]

    def _features(self, part: str, tensors: Any) -> Features:
        result = self._banks[part].run([tensors])[0]
        assert isinstance(result, Features), result
        return result

    def _scores(self, part: str, tensors: Any, given: dict[str, Array]) -> Array:
        half = self._features(part, tensors)
        bucket = bucket_for(half.candidates, self._banks[part].plan.buckets)
        feeds = {**(given or {"user": half.user}), "items": pad_together([half.items], bucket)}
        scores: Array = self._nets[part].run(None, feeds)[0]
        return scores[0, : half.candidates]


@dataclass
class Served:
    """A tritonserver over gRPC, one request at a time; bytes are made ahead of the measurement.

    Args:
        url: `host:port` of its gRPC endpoint.
        repository: what it serves.
        model: name of the ensemble.
        latencies: kind of request → milliseconds of each, filled as it goes.
    """

    url: str
    repository: Path
    model: str
    latencies: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = AheadNames(self.model)
        folders = {
            self.model: f"{self.model}_preprocess",
            names.user: names.user_preprocess,
            names.slice: names.slice_preprocess,
        }
        self._features = {
            model: Plan.read(self.repository / folder / "1" / "plan.json").features
            for model, folder in folders.items()
        }
        self._names, self._state = names, state_of(self.repository, self.model).name
        self._channel = grpc.insecure_channel(self.url)
        self._ask = self._channel.unary_unary(METHOD)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def prepare(self, users: Sequence[User]) -> None:
        """Make every request's bytes."""
        self._ready = {
            user: {
                model: [encode(model, features, part_for(features, request)) for request in user.slices]
                for model, features in self._features.items()
            }
            for user in users
        }

    def one_shot(self, user: User) -> list[Array]:
        """The user with each slice."""
        return [_first(self._call("one_shot", raw)) for raw in self._ready[user][self.model]]

    def ahead(self, user: User) -> list[Array]:
        """The user once, then the slices."""
        state = self._state_bytes(user, "user")
        return [_first(self._call("slice", raw + state)) for raw in self._ready[user][self._names.slice]]

    def cached(self, user: User) -> list[Array]:
        """The user before every slice; all but the first answer come from the server's response cache."""
        return [
            _first(self._call("slice_cached", raw + self._state_bytes(user, "user_cached")))
            for raw in self._ready[user][self._names.slice]
        ]

    def _state_bytes(self, user: User, kind: str) -> bytes:
        """The state as the rest of a message: protobuf appends repeated fields that come later."""
        raw = self._ready[user][self._names.user][0]
        state = decode(self._call(kind, raw))[self._state]
        message = service_pb2.ModelInferRequest(raw_input_contents=[state.tobytes()])
        message.inputs.add(name=self._state, datatype="FP32", shape=state.shape)
        return bytes(message.SerializeToString())

    def _call(self, kind: str, message: bytes) -> bytes:
        begin = time.perf_counter()
        answer: bytes = self._ask(message, timeout=60)
        self.latencies.setdefault(kind, []).append(1e3 * (time.perf_counter() - begin))
        return answer


def _first(answer: bytes) -> Array:
    scores: Array = next(iter(decode(answer).values()))[0]
    return scores


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
