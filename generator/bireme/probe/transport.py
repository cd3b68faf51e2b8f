"""What the probe asks of a server, whichever protocol it asks over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bireme.errors import ClientError
from bireme.probe.fault import Counts
from bireme.probe.tensors import Tensor

__all__ = ["Deadline", "LateError", "Output", "RefusedError", "Transport", "UnreachableError", "connect"]


class UnreachableError(Exception):
    """Nobody listens, or the connection broke; the text says why."""


class LateError(Exception):
    """No answer before the deadline."""


class RefusedError(Exception):
    """The server answered with an error; the text is the server's."""


@dataclass(frozen=True)
class Output:
    """One output tensor: Triton's dtype, shape, little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Deadline:
    """A moment by which all calls must have returned."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until then.

        Raises:
            LateError: it has passed.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise LateError
        return left


class Transport(Protocol):
    """Every method raises `UnreachableError`, `LateError` or `RefusedError`."""

    def server_ready(self, timeout: float) -> bool:
        """What the server says about itself."""

    def model_ready(self, model: str, timeout: float) -> bool:
        """What the server says about a model."""

    def config(self, model: str, timeout: float) -> dict[str, Any]:
        """A model's configuration, as JSON has it."""

    def counts(self, timeout: float) -> dict[str, Counts]:
        """Model → requests answered; all versions together."""

    def infer(self, model: str, inputs: Sequence[Tensor], timeout: float) -> dict[str, Output]:
        """Every output of a model."""

    def close(self) -> None:
        """End the connection."""


def connect(url: str, protocol: str) -> Transport:
    """A transport to `host:port`; nothing is sent before its first call.

    Raises:
        ClientError: not host:port.
    """
    host, _, port = url.rpartition(":")
    if not host or "/" in url or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ClientError(f"url '{url}'", "is not host:port", "for example 127.0.0.1:8000")
    if protocol == "grpc":
        from bireme.probe.over_grpc import OverGrpc  # gRPC takes a quarter of a second to import

        return OverGrpc(url)
    from bireme.probe.over_http import OverHttp

    return OverHttp(host, int(port))
