"""The probe's calls over HTTP, with the standard library alone."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any

from bireme.probe.fault import Counts, sum_up
from bireme.probe.tensors import Tensor
from bireme.probe.transport import LateError, Output, RefusedError, UnreachableError

__all__ = ["OverHttp"]

_LENGTH = "Inference-Header-Content-Length"


class OverHttp:
    """One connection, opened by the first call and again after a failure."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host.strip("[]"), port)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def server_ready(self, timeout: float) -> bool:
        """What the server says about itself."""
        return self._call("GET", "/v2/health/ready", timeout)[0] == 200

    def model_ready(self, model: str, timeout: float) -> bool:
        """What the server says about a model."""
        return self._call("GET", f"/v2/models/{model}/ready", timeout)[0] == 200

    def config(self, model: str, timeout: float) -> dict[str, Any]:
        """A model's configuration."""
        return self._json("GET", f"/v2/models/{model}/config", timeout)

    def counts(self, timeout: float) -> dict[str, Counts]:
        """Model → requests answered."""
        counts: dict[str, Counts] = {}
        for entry in self._json("GET", "/v2/models/stats", timeout)["model_stats"]:
            stats = entry["inference_stats"]
            sum_up(counts, entry["name"], int(stats["success"]["count"]), int(stats["fail"]["count"]))
        return counts

    def infer(self, model: str, inputs: Sequence[Tensor], timeout: float) -> dict[str, Output]:
        """Every output of a model."""
        described = [
            {
                "name": tensor.name,
                "datatype": tensor.dtype,
                "shape": tensor.shape,
                "parameters": {"binary_data_size": len(tensor.data)},
            }
            for tensor in inputs
        ]
        head = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
        body = b"".join([head, *(tensor.data for tensor in inputs)])
        headers = {_LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
        status, answer, length = self._call("POST", f"/v2/models/{model}/infer", timeout, body, headers)
        if status != 200:
            raise RefusedError(_said(status, answer))
        end = int(length or len(answer))
        outputs = {}
        for entry in _parsed(answer[:end])["outputs"]:
            begin, end = end, end + int(entry["parameters"]["binary_data_size"])
            outputs[entry["name"]] = Output(entry["datatype"], tuple(entry["shape"]), answer[begin:end])
        return outputs

    def _json(self, method: str, path: str, timeout: float) -> dict[str, Any]:
        status, answer, _ = self._call(method, path, timeout)
        if status != 200:
            raise RefusedError(_said(status, answer))
        return _parsed(answer)

    def _call(
        self,
        method: str,
        path: str,
        timeout: float,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes, str | None]:
        """Status, body and the length of its JSON part."""
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            return answer.status, answer.read(), answer.getheader(_LENGTH)
        except TimeoutError:
            self.close()
            raise LateError from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise UnreachableError(getattr(error, "strerror", None) or str(error)) from None


def _parsed(answer: bytes) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(answer)
    except ValueError:
        raise RefusedError("the answer is not what a tritonserver says") from None
    return parsed


def _said(status: int, answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {status}"
