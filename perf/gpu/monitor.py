"""How busy the GPU is while something runs, by nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from types import TracebackType

__all__ = ["GpuMonitor", "Sample", "parse_samples"]

_PERIOD_MS = 200
_COMMAND = (
    "nvidia-smi",
    "--query-gpu=utilization.gpu,memory.used",
    "--format=csv,noheader,nounits",
    f"--loop-ms={_PERIOD_MS}",
)


@dataclass(frozen=True)
class Sample:
    """One reading of GPU 0.

    Args:
        busy: per cent of the last moments in which a kernel ran.
        memory_mb: in use.
    """

    busy: float
    memory_mb: float


def parse_samples(text: str) -> list[Sample]:
    """Readings of one GPU, one a line; lines that are none, such as a last half one, are left out."""
    samples = []
    for line in text.splitlines():
        parts = line.split(",")
        try:
            samples.append(Sample(float(parts[0]), float(parts[1])))
        except (ValueError, IndexError):
            continue
    return samples


class GpuMonitor:
    """Reads while its context lasts; without nvidia-smi it reads nothing.

    Args:
        skip: seconds at the beginning whose readings do not count: a load takes its time to start.
    """

    def __init__(self, skip: float = 1.0) -> None:
        self._skip = skip
        self._process: subprocess.Popen[str] | None = None
        self._began = 0.0
        #: what was read
        self.samples: list[Sample] = []

    def __enter__(self) -> GpuMonitor:
        if shutil.which(_COMMAND[0]):
            command = [*_COMMAND, "--id=0"]
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            took = time.monotonic() - self._began
            self._process.terminate()
            text, _ = self._process.communicate(timeout=10)
            samples = parse_samples(text)
            first = round(len(samples) * min(0.5, self._skip / max(took, 1e-3)))
            self.samples = samples[first : len(samples) - 1] or samples

    @property
    def busy(self) -> float | None:
        """Mean per cent, None without readings."""
        return self._mean([sample.busy for sample in self.samples])

    @property
    def memory_mb(self) -> float | None:
        """Largest, None without readings."""
        return max((sample.memory_mb for sample in self.samples), default=None)

    @staticmethod
    def _mean(values: list[float]) -> float | None:
        return round(sum(values) / len(values), 1) if values else None
