"""What the Python package `tensorrt` says while it builds, kept for errors and shown as progress."""

from __future__ import annotations

from types import ModuleType
from typing import Any

__all__ = ["log_of"]

# TensorRT's severities.
_ERROR, _WARNING, _INFO = 1, 2, 3

_logs: dict[int, Any] = {}


def log_of(trt: ModuleType) -> Any:
    """The one logger of this process: TensorRT keeps the first that it is given for ever."""
    if id(trt) not in _logs:
        _logs[id(trt)] = _make_log(trt)
    return _logs[id(trt)]


def _make_log(trt: ModuleType) -> Any:
    class Log(trt.ILogger):  # type: ignore[misc, name-defined]
        """`lines`, `warnings` and `errors` since `begin`; the latest line goes to its `progress`."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.begin(lambda _: None)

        def begin(self, progress: Any) -> None:
            self.lines: list[str] = []
            self.warnings: list[str] = []
            self.errors: list[str] = []
            self._progress = progress

        def log(self, severity: Any, msg: str) -> None:
            level = int(severity)
            if level <= _INFO or _tells_memory(msg):
                self.lines.append(msg)
            if level <= _ERROR:  # 0 is an internal error
                self.errors.append(msg)
            elif level == _WARNING:
                self.warnings.append(msg)
            if level <= _INFO:
                self._progress(" ".join(msg.split()))

    return Log()


def _tells_memory(msg: str) -> bool:
    """Verbose lines that say how much a kernel wanted."""
    return "requested size" in msg or "workspace" in msg
