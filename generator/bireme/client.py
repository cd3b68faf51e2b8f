"""A thin client: plain lists in, scores out, over gRPC or HTTP.

Nothing in the kit needs it; `docs` and the README show the same request with bare `tritonclient`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from bireme.ahead import AheadNames
from bireme.errors import ClientError
from bireme.requests import part_for, to_tensors
from bireme.spec import FEATURES_PARAMETER
from bireme_runtime.plan import Feature
from bireme_runtime.user_state import STATE_PARAMETER

__all__ = ["RankingClient"]

Array = np.ndarray[Any, Any]
_TRITON_DTYPE = {
    "string": "BYTES",
    "int32": "INT32",
    "int64": "INT64",
    "float32": "FP32",
    "float64": "FP64",
    "bool": "BOOL",
}
#: What gRPC's own errors say, in whichever case, when there is no server to talk to.
_UNREACHABLE = ("connect", "unavailable", "refused", "socket", "resolving")


@dataclass(frozen=True)
class _Half:
    """One of the ensembles of --user-ahead."""

    model: str
    features: tuple[Feature, ...]
    state: str


class RankingClient:
    """Ranks candidates with a served ensemble.

    The features are read from the ensemble's configuration on the server, so the client needs no file.
    Threads may share a client. Over HTTP each of them then has a connection of its own.

    Args:
        url: `host:port` of Triton's gRPC (8001) or HTTP (8000) endpoint.
        model: name of the ensemble; may be left out if the server has exactly one.
        protocol: "grpc" or "http".
        timeout: seconds to wait for one answer.
    """

    def __init__(
        self, url: str, model: str = "", protocol: Literal["grpc", "http"] = "grpc", timeout: float = 30.0
    ) -> None:
        _check_url(url)
        if protocol == "grpc":
            import tritonclient.grpc as module

            self._open: dict[str, Any] = {}
            self._per_call = {"client_timeout": timeout}
        elif protocol == "http":
            import tritonclient.http as module

            self._open = {"network_timeout": timeout, "connection_timeout": timeout}
            self._per_call = {}
        else:
            raise ClientError(f"protocol '{protocol}'", "is unknown", "use 'grpc' or 'http'")
        self._module: Any = module
        self._url, self._protocol, self._timeout = url, protocol, timeout
        # gRPC: one connection for all threads. tritonclient's HTTP works only in the thread that opened it.
        self._connection: Any = SimpleNamespace() if protocol == "grpc" else threading.local()
        self._model = model
        self._features: tuple[Feature, ...] = ()
        self._tasks: tuple[str, ...] = ()
        self._halves: dict[str, _Half] = {}

    def __enter__(self) -> RankingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; over HTTP, this thread's one: others are closed when their threads end."""
        client = getattr(self._connection, "client", None)
        if client is not None:
            del self._connection.client
            client.close()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the scores."""
        self._connect()
        return self._tasks

    @property
    def features(self) -> tuple[Feature, ...]:
        """What the ensemble takes."""
        self._connect()
        return self._features

    def rank(self, user: Mapping[str, Any], items: Mapping[str, Any]) -> dict[str, Array]:
        """Score all candidates of one user.

        Args:
            user: feature → value, or list for a sequence.
            items: feature → list with one value (or list) a candidate.

        Returns:
            Task → FP32 scores [N], in the order of the candidates.

        Raises:
            ClientError: a malformed request, or whatever the server answers, in one sentence.
        """
        self._connect()
        tensors = to_tensors(self._features, {"user": user, "items": items})
        return {task: scores[0] for task, scores in self.infer(tensors).items()}

    def infer(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Send tensors as they are: feature → user [users, …], item [users, N, …].

        Returns:
            Task → FP32 scores [users, N].

        Raises:
            ClientError: whatever the server answers, in one sentence.
        """
        self._connect()
        return self._infer(self._model, self._features, tensors, (), self._tasks)

    def user(self, user: Mapping[str, Any]) -> Array:
        """The user's side, computed ahead: for a repository built with --user-ahead.

        Args:
            user: feature → value, or list for a sequence.

        Returns:
            The user state, FP32 [1, width], for `rank_slice`. Plain numbers: keep it, send it on.

        Raises:
            ClientError: a malformed request, or whatever the server answers, in one sentence.
        """
        half = self._half("user")
        tensors = self._half_tensors(half, user, {})
        return self._infer(half.model, half.features, tensors, (), (half.state,))[half.state]

    def rank_slice(
        self, state: Array, items: Mapping[str, Any], user: Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """Score some of a user's candidates; any number of slices share one state.

        Args:
            state: what `user` returned.
            items: feature → list with one value (or list) a candidate.
            user: the user's features; only those are sent that a cross of user and item needs, mostly none.

        Returns:
            Task → FP32 scores [N], in the order of the candidates; the same as `rank` gives.

        Raises:
            ClientError: the state is of another build of the model, a malformed request, or whatever else the
                server answers, in one sentence.
        """
        half = self._half("slice")
        tensors = self._half_tensors(half, user or {}, items)
        entry = self._input(Feature(half.state, "user", "float32"), state)
        scores = self._infer(half.model, half.features, tensors, (entry,), self._tasks)
        return {task: values[0] for task, values in scores.items()}

    def _half_tensors(
        self, half: _Half, user: Mapping[str, Any], items: Mapping[str, Any]
    ) -> dict[str, Array]:
        request = {"user": user, "items": items}
        to_tensors(self._features, request)  # refuses what the whole model does not know
        return to_tensors(half.features, part_for(half.features, request))

    def _half(self, name: Literal["user", "slice"]) -> _Half:
        """What `<model>_user` or `<model>_slice` takes."""
        self._connect()
        if name not in self._halves:
            model = f"{self._model}_{name}"
            try:
                parameters = self._config(model).get("parameters", {})
                features = json.loads(parameters[FEATURES_PARAMETER]["string_value"])
                state = json.loads(parameters[STATE_PARAMETER]["string_value"])["name"]
            except (ClientError, KeyError) as error:
                detail = error.message if isinstance(error, ClientError) else "is not what bireme builds"
                hint = "build the repository with `bireme build --user-ahead`"
                raise ClientError(f"model '{model}'", detail, hint) from None
            self._halves[name] = _Half(model, tuple(Feature(**entry) for entry in features), state)
        return self._halves[name]

    def _infer(
        self,
        model: str,
        features: tuple[Feature, ...],
        tensors: Mapping[str, Array],
        more: Sequence[Any],
        outputs: Sequence[str],
    ) -> dict[str, Array]:
        known = {feature.name: feature for feature in features}
        for name in tensors:
            if name not in known:
                raise ClientError(f"feature '{name}'", "is not one of the model's", f"it takes {[*known]}")
        inputs = [*more]
        for name, feature in known.items():
            if name in tensors:
                inputs.append(self._input(feature, tensors[name]))
            elif feature.default is None:
                part = "user" if feature.side == "user" else "items"
                raise ClientError(
                    f"feature '{name}'", "is missing and has no default", f"give it under '{part}'"
                )
        result = self._call("infer", model, inputs)
        return {output: result.as_numpy(output) for output in outputs}

    def _input(self, feature: Feature, array: Array) -> Any:
        try:
            entry = self._module.InferInput(feature.name, list(array.shape), _TRITON_DTYPE[feature.dtype])
            return entry.set_data_from_numpy(array)
        except Exception as error:  # tritonclient has several kinds
            message = f"cannot be sent: {_text(error)}"
            raise ClientError(
                f"feature '{feature.name}'", message, f"give a numpy array of {feature.dtype}"
            ) from None

    def _connect(self) -> None:
        """Learn the ensemble's features and tasks from its configuration."""
        if self._features:
            return
        model = self._model or self._only_ensemble()
        config = self._config(model)
        described = config.get("parameters", {}).get(FEATURES_PARAMETER)
        if described is None and not config.get("ensemble_scheduling"):
            raise ClientError(
                f"model '{model}'", "is not an ensemble", "name the ensemble, not one of its steps"
            )
        if described is None:
            raise ClientError(
                f"model '{model}'", "does not describe its features", "build it with `bireme build`"
            )
        self._model = model
        self._tasks = tuple(output["name"] for output in config["output"])
        # Last: it tells other threads that the rest is there.
        self._features = tuple(Feature(**entry) for entry in json.loads(described["string_value"]))

    def _only_ensemble(self) -> str:
        # The repository's index would tell as well, but `bireme serve` closes it.
        stats = self._call("get_inference_statistics")
        if self._protocol == "grpc":
            loaded = {entry.name for entry in stats.model_stats}
        else:
            loaded = {entry["name"] for entry in stats["model_stats"]}
        found = [name for name in sorted(loaded) if f"{name}_preprocess" in loaded]
        # One of the fused layout has no steps by which to tell it, so that its configuration has to.
        rest = loaded - {part for name in found for part in _parts(name)}
        found += [n for n in sorted(rest) if self._describes_features(n)]
        if not found:
            raise ClientError(self._url, "serves no ensemble", "build one with `bireme build`")
        if len(found) > 1:
            message = f"serves {len(found)} ensembles ({', '.join(found)})"
            raise ClientError(self._url, message, "name one: RankingClient(…, model=…)")
        return str(found[0])

    def _describes_features(self, model: str) -> bool:
        return FEATURES_PARAMETER in self._config(model).get("parameters", {})

    def _config(self, model: str) -> dict[str, Any]:
        if self._protocol == "grpc":
            config: dict[str, Any] = self._call("get_model_config", model, as_json=True)["config"]
            return config
        http: dict[str, Any] = self._call("get_model_config", model)
        return http

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """One call, every failure as one sentence."""
        try:
            if not hasattr(self._connection, "client"):
                self._connection.client = self._module.InferenceServerClient(self._url, **self._open)
            return getattr(self._connection.client, method)(*arguments, **options, **self._per_call)
        except Exception as error:
            message, hint = _text(error), ""
            if isinstance(error, TimeoutError) or message == "Deadline Exceeded":
                message = f"gave no answer within {self._timeout:g} s"
                hint = "is it overloaded, or the request very large? `timeout` sets how long to wait"
            elif _unreachable(error, message):
                hint = f"is tritonserver running at {self._url} ({self._protocol})?"
            raise ClientError(self._url, message, hint) from None


def _parts(ensemble: str) -> tuple[str, ...]:
    """Every model that may belong to an ensemble with steps."""
    steps = (f"{ensemble}_{step}" for step in ("preprocess", "dnn", "postprocess"))
    return (ensemble, *steps, *AheadNames(ensemble).all)


def _unreachable(error: Exception, message: str) -> bool:
    """Whether no server answered; one that did may well say "connect": a feature may be called so."""
    if isinstance(error, OSError):
        return True
    status = getattr(error, "status", None)  # tritonclient's own; it is not imported before it is needed
    answered = callable(status) and status() not in (None, "StatusCode.UNAVAILABLE")
    return not answered and any(word in message.lower() for word in _UNREACHABLE)


def _check_url(url: str) -> None:
    """Here, because gRPC takes port 99999 for another one, and HTTP drops a scheme's error on the floor."""
    host, _, port = url.partition("/")[0].rpartition(":")
    if "://" in url or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ClientError(f"url '{url}'", "is not host:port", "for example 127.0.0.1:8001")


def _text(error: Exception) -> str:
    """What an error of tritonclient says, without Triton's own asides."""
    said = getattr(error, "message", None)
    text = str(said() if callable(said) else error)
    text = text.replace("[request id: <id_unknown>] ", "").split(" NOTE: Setting a non-zero")[0]
    return " ".join(text.split()) or type(error).__name__
