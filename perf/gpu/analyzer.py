"""perf_analyzer: the command for a load, and what its CSV says."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bireme.errors import ServerError

__all__ = ["VARIABLE", "Load", "Measured", "find_analyzer", "parse_csv", "run_load"]

VARIABLE = "BIREME_PERF_ANALYZER"
"""Environment variable that names the perf_analyzer to use; without it, the one on PATH."""

#: Allowed spread of three windows, per cent, and windows at most: first try, second, last.
_TRIES = ((25, 5), (80, 6), (1000, 3))
_AGAIN = ("Failed to obtain stable measurement", "No valid requests recorded")
_COLUMNS = {
    "p50_us": "p50 latency",
    "p99_us": "p99 latency",
    "queue_us": "Server Queue",
    "compute_input_us": "Server Compute Input",
    "compute_infer_us": "Server Compute Infer",
    "compute_output_us": "Server Compute Output",
}


@dataclass(frozen=True)
class Load:
    """One load on one model.

    Args:
        model: the Triton model.
        data: JSON of requests, as `payloads.write_payload` makes it.
        clients: how many requests are under way at any time; 0: `rate` says when they come.
        rate: requests a second, at random times as from many clients.
        window_ms: how long one measurement lasts.
        shared_memory: whether tensors travel in system shared memory instead of in the messages.
        output_bytes: of shared memory for each output.
    """

    model: str
    data: Path
    clients: int = 8
    rate: float = 0.0
    window_ms: int = 700
    shared_memory: bool = True
    output_bytes: int = 8192

    def arguments(self, url: str, report: Path, spread: int, trials: int) -> list[str]:
        """What follows the command `perf_analyzer`.

        Args:
            url: `host:port` of the server's gRPC endpoint.
            report: CSV to write.
            spread: how far three windows may be apart, per cent.
            trials: how many windows at most.
        """
        arguments = ["-m", self.model, "-u", url, "-i", "grpc", "--input-data", str(self.data)]
        arguments += ["-p", str(self.window_ms), "-s", str(spread), "-r", str(trials), "-f", str(report)]
        if self.shared_memory:
            arguments += ["--shared-memory", "system", "--output-shared-memory-size", str(self.output_bytes)]
        if self.rate:
            arguments += ["--request-rate-range", f"{self.rate:.1f}", "--request-distribution", "poisson"]
            return [*arguments, "--async", "--max-threads", "16"]
        return [*arguments, "--concurrency-range", str(self.clients), "--sync"]


@dataclass(frozen=True)
class Measured:
    """What perf_analyzer found; times in µs, means but for the percentiles, as the server counts them.

    Args:
        requests_per_s: answered requests a second.
        p50_us: median latency, as the client sees it.
        p99_us: 99th percentile of it.
        queue_us: in the queue of the model; of an ensemble, of all its steps.
        compute_input_us: to hand tensors over to the model.
        compute_infer_us: in the model.
        compute_output_us: to take tensors from the model.
        spread: within how many per cent three windows agreed.
    """

    requests_per_s: float
    p50_us: float
    p99_us: float
    queue_us: float
    compute_input_us: float
    compute_infer_us: float
    compute_output_us: float
    spread: int


def find_analyzer() -> str:
    """The perf_analyzer to use.

    Raises:
        ServerError: there is none.
    """
    found = os.environ.get(VARIABLE) or shutil.which("perf_analyzer")
    if not found:
        hint = (
            f"it is in NVIDIA's SDK image and in tritonclient's wheels up to 2.50; or name it in {VARIABLE}"
        )
        raise ServerError("perf_analyzer", "is not on PATH", hint)
    return found


def parse_csv(text: str, spread: int) -> Measured:
    """The one load in a CSV.

    Raises:
        ValueError: it holds none.
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    if len(rows) != 1:
        raise ValueError(f"perf_analyzer's CSV holds {len(rows)} loads, not one")
    row = rows[0]
    numbers = {field: float(row[column] or 0) for field, column in _COLUMNS.items()}
    return Measured(requests_per_s=float(row["Inferences/Second"]), spread=spread, **numbers)


def run_load(load: Load, url: str, timeout: float) -> Measured:
    """Put a load on a server; where windows differ too much, once more with a wider limit, which is told.

    Args:
        load: the load.
        url: `host:port` of gRPC.
        timeout: seconds for each try.

    Raises:
        ServerError: perf_analyzer fails, by its last line.
    """
    command, output = find_analyzer(), ""
    for spread, trials in _TRIES:
        with tempfile.TemporaryDirectory(prefix="bireme-load-") as folder:
            report = Path(folder) / "load.csv"
            done, output = _run([command, *load.arguments(url, report, spread, trials)], timeout)
            again = any(message in output for message in _AGAIN)
            if report.exists() and done == 0 and not again:
                return parse_csv(report.read_text(encoding="utf-8"), spread)
            if not again:
                break
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    raise ServerError("perf_analyzer", f"failed: {' / '.join(lines[-3:])}", "see the server's log")


def _run(command: Sequence[str], timeout: float) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        return 1, f"{text}\nstopped after {timeout:.0f} s"
    return done.returncode, done.stdout
