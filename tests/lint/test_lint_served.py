"""The real tritonserver (24.10) takes what rules find, and ignores it, or refuses it without saying where.

One server holds every model that loads; another reads what does not, and is asked why.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc
from lint_repositories import CPU, IO, Files, ensemble, python, write
from tritonclient.utils import InferenceServerException

from bireme.lint.release import read_release
from bireme.lint.repository import lint_repository
from bireme.lint.settings import Settings
from bireme.server.locate import locate
from bireme.server.ports import free_ports
from bireme.server.process import TritonServer

pytestmark = pytest.mark.triton

OPTIONAL = IO.replace("] }", "] optional: true }", 1)
OPTIMIZATION = "optimization { cuda { graphs: true } eager_batching: true priority: PRIORITY_MAX }\n"
IGNORED = "instance_group { kind: KIND_CPU host_policy: 'nowhere' rate_limiter { priority: 2 } }\n"
#: All on two Python models, as each is a process to start.
LOADS: Files = {
    **python(
        "first",
        OPTIMIZATION
        + "response_cache { enable: true }\n"
        + 'cc_model_filenames { key: "sm_90" value: "other.py" }\n'
        + 'parameters { key: "FORCE_CPU_ONLY_INPUT" value { string_value: "no" } }\n'
        + "dynamic_batching { priority_queue_policy { key: 1 value { max_queue_size: 1 } } }\n",
        group=IGNORED,
    ),
    **python("second", io=IO.replace("-1", "4", 1)),
    **ensemble("loose", "first", "second"),
    **ensemble("lacking", "first", io=OPTIONAL),
}
LEVELS = "priority_levels: 2"
BATCHERS = {
    "order": f"preserve_ordering: true {LEVELS} default_priority_level: 1",
    "level": LEVELS,
    "size": "preferred_batch_size: 9",
}
WITHOUT_X = ensemble("unread", "size")["unread/config.pbtxt"].replace('value: "x"', 'value: "z"')
UNCACHED = "response_cache { enable: true }\nmodel_transaction_policy { decoupled: true }\n"
NOWHERE = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "env.tar.gz" } }\n'
#: Written as files; none of these reaches a Python process.
REFUSED_FILES: Files = {
    **{
        file: text
        for name, batcher in BATCHERS.items()
        for file, text in python(name, f"dynamic_batching {{ {batcher} }}\n").items()
    },
    **python("name", 'name: "other"\n'),
    "old/config.pbtxt": python("old")["old/config.pbtxt"],
    "old/01/model.py": "",
    **python("cached", UNCACHED),
    **python("gpus", group="instance_group { kind: KIND_CPU gpus: 0 }\n"),
    **python("env", NOWHERE),
    **ensemble("group", "size", more=CPU),
    "unread/config.pbtxt": WITHOUT_X,
    "unread/1/.keep": "",
    **ensemble("absent", "nothing"),
}
#: Model → the rule, and what Triton says of it.
REFUSED = {
    "order": ("Q06", "Only one priority level"),
    "level": ("Q07", "default priority level must be"),
    "size": ("Q08", "preferred size must be <="),
    "name": ("F02", "directory name must equal model name"),
    "old": ("F01", "at least one version"),
    "cached": ("S14", "Please disable the response cache"),
    "gpus": ("S16", "specifies one or more GPUs"),
    "env": ("K04", "Failed to get the canonical path for env.tar.gz"),
    "group": ("E08", "instance group should not be specified for ensemble"),
    "unread": ("E02", "is not used"),
    "absent": ("E01", "contains models that are not available"),
}


def found(repository: Path, model: str) -> set[str]:
    """Codes of what lint finds in one model of a repository, for the served release."""
    settings = Settings(triton=read_release("24.10"))
    return {f.code for f in lint_repository(repository, settings) if f.where.startswith(f"{model}: ")}


def ask(server: TritonServer, model: str, width: int = 4, with_x: bool = True) -> np.ndarray:
    """y of a model for x = 1."""
    tensor = grpc.InferInput("x", [1, width], "FP32")
    tensor.set_data_from_numpy(np.ones((1, width), np.float32))
    with grpc.InferenceServerClient(server.grpc_url) as client:
        return client.infer(model, [tensor] if with_x else [], client_timeout=30).as_numpy("y")


@pytest.fixture(scope="module")
def loaded(
    tmp_path_factory: pytest.TempPathFactory,
    triton: Callable[..., TritonServer],
    monkeypatch_module: pytest.MonkeyPatch,
) -> tuple[Path, TritonServer]:
    # Nobody gives the server a cache here, as with a plain start of tritonserver.
    monkeypatch_module.setattr("bireme.server.process.cache_flags", lambda _: [])
    repository = write(tmp_path_factory.mktemp("loads"), LOADS)
    return repository, triton(repository)


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.mark.parametrize("code", ["S05", "S08", "S09", "S13", "F04", "K01", "Q07"])
def test_it_loads_and_answers_as_if_nothing_were_wrong(loaded: tuple[Path, TritonServer], code: str) -> None:
    repository, server = loaded
    assert code in found(repository, "first")
    assert (ask(server, "first") == 2).all()


def test_nothing_is_cached_and_nothing_says_so(loaded: tuple[Path, TritonServer]) -> None:
    _, server = loaded
    for _ in range(3):
        ask(server, "first")
    with grpc.InferenceServerClient(server.grpc_url) as client:
        (statistics,) = client.get_inference_statistics("first").model_stats
    assert statistics.inference_stats.cache_hit.count == 0
    assert statistics.inference_stats.cache_miss.count == 0
    assert server.log is not None
    warnings = [line for line in server.log.read_text(errors="replace").splitlines() if line[:1] in "WE"]
    assert [line for line in warnings if "cache" in line] == []


def test_open_dims_between_steps_show_with_a_request(loaded: tuple[Path, TritonServer]) -> None:
    repository, server = loaded
    assert found(repository, "loose") == {"E07"}
    assert (ask(server, "loose") == 4).all()
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'x' for model 'second'"):
        ask(server, "loose", width=5)


def test_an_optional_input_for_a_required_one_shows_with_a_request(loaded: tuple[Path, TritonServer]) -> None:
    repository, server = loaded
    assert found(repository, "lacking") == {"E03"}
    with pytest.raises(InferenceServerException, match="missing required input"):
        ask(server, "lacking", with_x=False)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository of models that do not load, and what tritonserver logs of them."""
    repository = write(tmp_path_factory.mktemp("refused"), REFUSED_FILES)
    return repository, log_of(repository, tmp_path_factory.mktemp("log") / "server.log")


def log_of(repository: Path, log: Path) -> str:
    """What tritonserver says of a repository that does not load, as it ends by itself."""
    installation, ports = locate(), free_ports()
    flags = [
        f"--model-repository={repository}",
        f"--http-port={ports.http}",
        f"--grpc-port={ports.grpc}",
        f"--metrics-port={ports.metrics}",
        "--exit-timeout-secs=0",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(installation.command), *installation.arguments(flags)],
            env={**os.environ, **installation.environment},
            stdout=output,
            stderr=output,
        )
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    return log.read_text(errors="replace")


@pytest.mark.parametrize("model", sorted(REFUSED))
def test_it_is_refused(refused: tuple[Path, str], model: str) -> None:
    repository, log = refused
    code, words = REFUSED[model]
    assert code in found(repository, model)
    assert any(words in line and model in line for line in log.splitlines()), log[-3000:]


def test_a_field_of_a_later_release_keeps_the_server_from_starting(tmp_path: Path) -> None:
    files = {**python("first"), **ensemble("both", "first")}
    config = files["both/config.pbtxt"].replace("ling {", "ling { max_inflight_requests: 2")
    repository = write(tmp_path / "repository", {**files, "both/config.pbtxt": config})
    assert found(repository, "both") == {"V01"}
    log = log_of(repository, tmp_path / "log")
    assert 'no field named "max_inflight_requests"' in log


def test_a_passive_instance_ends_the_server_with_the_first_request(tmp_path: Path) -> None:
    repository = write(tmp_path, python("first", group="instance_group { kind: KIND_CPU passive: true }\n"))
    assert "S15" in found(repository, "first")
    with TritonServer(repository, exit_timeout=0) as server:
        with pytest.raises(InferenceServerException):
            ask(server, "first")
        deadline = time.monotonic() + 10
        while server.pid is not None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert server.pid is None
