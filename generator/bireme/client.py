"""A thin client: plain lists in, scores out, over gRPC or HTTP.

Nothing in the kit needs it; `docs` and the README show the same request with bare `tritonclient`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from bireme.errors import ClientError
from bireme.requests import to_tensors
from bireme.spec import FEATURES_PARAMETER
from bireme_runtime.plan import Feature

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


class RankingClient:
    """Ranks candidates with a served ensemble.

    The features are read from the ensemble's configuration on the server, so the client needs no file.
    A client may be used by one thread at a time.

    Args:
        url: `host:port` of Triton's gRPC (8001) or HTTP (8000) endpoint.
        model: name of the ensemble; may be left out if the server has exactly one.
        protocol: "grpc" or "http".
        timeout: seconds to wait for one request.
    """

    def __init__(
        self, url: str, model: str = "", protocol: Literal["grpc", "http"] = "grpc", timeout: float = 30.0
    ) -> None:
        if protocol == "grpc":
            import tritonclient.grpc as module

            self._client = module.InferenceServerClient(url)
        elif protocol == "http":
            import tritonclient.http as module

            self._client = module.InferenceServerClient(
                url, network_timeout=timeout, connection_timeout=timeout
            )
        else:
            raise ClientError(f"protocol '{protocol}'", "is unknown", "use 'grpc' or 'http'")
        self._module: Any = module
        self._url, self._protocol, self._timeout = url, protocol, timeout
        self._model = model
        self._features: tuple[Feature, ...] = ()
        self._tasks: tuple[str, ...] = ()

    def __enter__(self) -> RankingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

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
        inputs = []
        for feature in self._features:
            if feature.name in tensors:
                array = tensors[feature.name]
                entry = self._module.InferInput(feature.name, list(array.shape), _TRITON_DTYPE[feature.dtype])
                entry.set_data_from_numpy(array)
                inputs.append(entry)
        options: dict[str, Any] = {"client_timeout": self._timeout} if self._protocol == "grpc" else {}
        result = self._call("infer", self._model, inputs, **options)
        return {task: result.as_numpy(task) for task in self._tasks}

    def _connect(self) -> None:
        """Learn the ensemble's features and tasks from its configuration."""
        if self._features:
            return
        model = self._model or self._only_ensemble()
        config = self._config(model)
        if not config.get("ensemble_scheduling"):
            raise ClientError(
                f"model '{model}'", "is not an ensemble", "name the ensemble, not one of its steps"
            )
        described = config.get("parameters", {}).get(FEATURES_PARAMETER)
        if described is None:
            raise ClientError(
                f"model '{model}'", "does not describe its features", "build it with `bireme build`"
            )
        self._features = tuple(Feature(**entry) for entry in json.loads(described["string_value"]))
        self._tasks = tuple(output["name"] for output in config["output"])
        self._model = model

    def _only_ensemble(self) -> str:
        index = self._call("get_model_repository_index")
        if self._protocol == "grpc":
            names = {entry.name for entry in index.models}
        else:
            names = {entry["name"] for entry in index}
        found = [name for name in sorted(names) if f"{name}_preprocess" in names]
        if len(found) != 1:
            raise ClientError(
                self._url,
                f"serves {len(found)} ensembles ({', '.join(found)})",
                "name one: RankingClient(…, model=…)",
            )
        return str(found[0])

    def _config(self, model: str) -> dict[str, Any]:
        if self._protocol == "grpc":
            config: dict[str, Any] = self._call("get_model_config", model, as_json=True)["config"]
            return config
        http: dict[str, Any] = self._call("get_model_config", model)
        return http

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """One call, every failure as one sentence."""
        try:
            return getattr(self._client, method)(*arguments, **options)
        except Exception as error:
            text = getattr(error, "message", None)
            message = " ".join(str(text() if callable(text) else error).split())
            refused = any(word in message.lower() for word in ("connect", "unavailable", "refused"))
            hint = f"is tritonserver running at {self._url} ({self._protocol})?" if refused else ""
            raise ClientError(self._url, message or type(error).__name__, hint) from None
