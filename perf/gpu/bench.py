"""What all steps share: where the prepared files are, how large the loads are, how to run a command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from baseline.repository import config_of
from bireme.requests import Request, read_requests
from bireme_runtime.plan import Plan
from gpu.analyzer import Load
from gpu.payloads import handed_over, raw, write_payload

__all__ = ["Bench", "CommandError", "Sizes", "run_bireme", "run_command"]

_NUMPY = {"TYPE_FP16": "float16", "TYPE_FP32": "float32"}


@dataclass(frozen=True)
class Sizes:
    """How large the loads are.

    Args:
        base: candidates of a request in the table of throughputs.
        large: candidates where the user's side matters.
        example: candidates of a request to the example.
        clients: numbers of parallel clients.
        window_ms: of one measurement.
        instances: of the GPU network where there are several.
    """

    base: int = 256
    large: tuple[int, int] = (500, 1000)
    example: int = 80
    clients: tuple[int, int] = (8, 16)
    window_ms: int = 700
    instances: int = 4


@dataclass
class Bench:
    """One check.

    Args:
        prepared: what `prepare.py` wrote.
        work: folder for repositories, payloads and logs.
        target: which of the prepared repositories: "gpu-python"; "cpu" to rehearse without a GPU.
        sizes: of the loads.
        findings: numbers that a later step reads, by the name of the step that found them.
    """

    prepared: Path
    work: Path
    target: Literal["gpu-python", "cpu"] = "gpu-python"
    sizes: Sizes = Sizes()
    findings: dict[str, Any] = field(default_factory=dict)

    @property
    def rehearsal(self) -> bool:
        """Whether there is no GPU."""
        return self.target == "cpu"

    def repository(self, what: str) -> Path:
        """The repository of `network`, `flat` or `example`."""
        return self.prepared / what / self.target

    def model(self, what: str) -> str:
        """Name of the ensemble in it."""
        (manifest,) = self.repository(what).glob("*/bireme.json")
        return manifest.parent.name

    def requests(self, what: str, candidates: int) -> list[Request]:
        """The prepared requests with so many candidates."""
        return read_requests(self.prepared / "requests" / f"{what}_{candidates}.jsonl")

    def dense_load(self, what: str, candidates: int | Sequence[int], **settings: Any) -> Load:
        """A load on the dense network alone, with what `preprocess` hands over.

        Args:
            what: "network", "flat" or "example".
            candidates: of a request; several: requests of these sizes take turns.
            settings: of the load.
        """
        sizes = [candidates] if isinstance(candidates, int) else list(candidates)
        repository, model = self.repository(what), self.model(what)
        path = self.work / "payloads" / f"{what}_dnn_{'_'.join(map(str, sizes))}.json"
        if not path.exists():
            config = config_of(repository, f"{model}_dnn")
            dtype = _NUMPY[_type_name(config.input[0])]
            folder = repository / f"{model}_preprocess" / "1"
            turns = zip(*(self.requests(what, size) for size in sizes), strict=True)
            write_payload(path, handed_over(folder, [r for turn in turns for r in turn], dtype))
        return Load(f"{model}_dnn", path, window_ms=self.sizes.window_ms, **settings)

    def raw_load(self, what: str, candidates: int, model: str = "", **settings: Any) -> Load:
        """A load on a model that takes raw features: the ensemble, if no other is named.

        They travel in the messages, as clients send them; perf_analyzer puts no empty list in shared memory.
        """
        path = self.work / "payloads" / f"{what}_raw_{candidates}.json"
        if not path.exists():
            folder = self.repository(what) / f"{self.model(what)}_preprocess" / "1"
            write_payload(path, raw(Plan.read(folder / "plan.json"), self.requests(what, candidates)))
        settings = {"window_ms": self.sizes.window_ms, "shared_memory": False, **settings}
        return Load(model or self.model(what), path, **settings)

    def log(self, name: str) -> Path:
        """Where a server's output goes."""
        path = self.work / "logs" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class CommandError(Exception):
    """A command failed.

    Args:
        message: which, and how.
        log: the last lines of its output.
    """

    def __init__(self, message: str, log: Sequence[str]) -> None:
        super().__init__(message)
        self.log = list(log)


def run_command(
    command: Sequence[str], timeout: float, log: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command to its end; its output, which also goes to a file.

    Raises:
        CommandError: it failed or took too long.
    """
    with log.open("w+", encoding="utf-8", errors="replace") as output:
        try:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
            )
        except OSError as error:
            raise CommandError(f"{command[0]}: {error.strerror}", []) from None
        try:
            code: int | str = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            code = f"no end after {timeout:.0f} s"
        output.seek(0)
        text = output.read()
    if code != 0:
        raise CommandError(f"{' '.join(command[:6])} …: {code}", text.splitlines()[-15:])
    return text


def run_bireme(arguments: Sequence[str], timeout: float, log: Path) -> str:
    """Run a verb of bireme's command line, whether the command is installed or not."""
    code = "import sys; from bireme.cli import main; sys.exit(main())"
    return run_command([sys.executable, "-c", code, *arguments], timeout, log)


def _type_name(tensor: Any) -> str:
    return str(
        tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name
    )
