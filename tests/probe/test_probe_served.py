"""`bireme probe` against a real tritonserver whose parts are stopped, killed and unloaded."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from probe_repositories import chain, request

from bireme.errors import BiremeError, ClientError, ServerError, VerifyError
from bireme.probe.probe import Question, probe
from bireme.probe.scores import Golden
from bireme.server.ports import free_ports
from bireme.server.process import TritonServer
from bireme.server.stubs import live_stubs

pytestmark = pytest.mark.triton

BIREME = Path(sys.executable).with_name("bireme")
PROTOCOLS = ("http", "grpc")
RIGHT = Golden({"score": [0.0, 2.0, 4.0, 6.0, 8.0]}, {"score": 1e-5})
WRONG = Golden({"score": [0.0, 2.0, 4.0, 6.5, 8.0]}, {"score": 1e-5})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Leave it as it was."""
    with TritonServer(chain(tmp_path_factory.mktemp("chain")), exit_timeout=0) as server:
        yield server


def url_of(server: TritonServer, protocol: str) -> str:
    return server.http_url if protocol == "http" else server.grpc_url


def refusal(
    server: TritonServer,
    protocol: str = "http",
    age: float = 30.0,
    golden: Golden | None = None,
    timeout: float = 1.0,
) -> str:
    begin = time.monotonic()
    with pytest.raises(BiremeError) as caught:
        probe(
            url_of(server, protocol),
            protocol,
            Question("shop", request(age), golden, ("shop_pre", "shop_dnn")),
            timeout,
        )
    assert time.monotonic() - begin < 2.0
    assert "\n" not in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


def stub(server: TritonServer, instance: str) -> int:
    return next(pid for pid, name in live_stubs(server._prefix).items() if name == instance)


def says_ready(server: TritonServer, model: str) -> bool:
    connection = http.client.HTTPConnection(server.http_url, timeout=2)
    connection.request("GET", f"/v2/models/{model}/ready")
    return connection.getresponse().status == 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("golden", [None, RIGHT])
def test_good_scores_are_ready(server: TritonServer, protocol: str, golden: Golden | None) -> None:
    answer = probe(url_of(server, protocol), protocol, Question("shop", request(), golden), 1.0)
    assert answer.scores == {"score": [0.0, 2.0, 4.0, 6.0, 8.0]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scores_that_are_wrong_or_not_finite(server: TritonServer, protocol: str) -> None:
    assert (
        "VerifyError: model shop_dnn: gives other scores of 'score' than are recorded: 6 instead of 6.5 for"
        " candidate 3" in refusal(server, protocol, golden=WRONG)
    )
    assert (
        "model shop_dnn: gives scores of 'score' that are not finite (nan for candidate 0 and 4 more)"
        in refusal(server, protocol, age=77.0)
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_step_that_fails_is_named(server: TritonServer, protocol: str) -> None:
    said = refusal(server, protocol, age=66.0)
    assert said.startswith("ServerError: model shop_dnn: answers with an error:")
    assert "shelf 3 is empty" in said


@pytest.mark.parametrize(
    ("protocol", "age", "step"), [("http", 86.0, "shop_pre"), ("grpc", 87.0, "shop_dnn")]
)
def test_a_step_that_hangs_is_named(server: TritonServer, protocol: str, age: float, step: str) -> None:
    time.sleep(0.1)  # until the last test's request is counted
    said = refusal(server, protocol, age, timeout=0.5)
    assert says_ready(server, "shop")
    assert said == f"ServerError: model {step}: hangs: 'shop' gives no answer within 0.5 s because of it"
    probe(url_of(server, protocol), protocol, Question("shop", request()), 5.0)


def test_a_request_of_another_model(server: TritonServer) -> None:
    with pytest.raises(ClientError, match="feature 'colour': is not one of the item features"):
        probe(server.http_url, "http", Question("shop", {"user": {}, "items": {"colour": ["red"]}}), 1.0)
    with pytest.raises(ServerError, match="model store: is not ready"):
        probe(server.http_url, "http", Question("store", request()), 1.0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_there(protocol: str) -> None:
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:\d+: no server there"):
        probe(f"127.0.0.1:{free_ports().http}", protocol, Question("shop", request()), 1.0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_that_says_nothing(protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerError, match="says nothing"):
            probe(url, protocol, Question("shop", request()), 0.5)


def test_a_dead_stub_while_triton_says_ready(tmp_path: Path) -> None:
    with TritonServer(chain(tmp_path / "repository"), exit_timeout=0) as server:
        os.kill(stub(server, "shop_dnn_0_0"), signal.SIGKILL)
        for protocol in PROTOCOLS:
            assert says_ready(server, "shop")
            assert says_ready(server, "shop_dnn")
            said = refusal(server, protocol)
            assert said.startswith("ServerError: model shop_dnn: a Python process of it has died")
        # And as Kubernetes runs it.
        done = run("-r", str(tmp_path / "repository"), "--url", server.http_url)
        assert done.returncode == ServerError.exit_code
        assert done.stdout == ""
        assert done.stderr.startswith("not ready: model shop_dnn: a Python process of it has died")
        assert done.stderr.count("\n") == 1


def test_one_of_two_processes_dead_although_the_other_answers(tmp_path: Path) -> None:
    with TritonServer(chain(tmp_path / "repository", count=2), exit_timeout=0) as server:
        os.kill(stub(server, "shop_pre_0_1"), signal.SIGKILL)
        said = [refusal(server, protocol) for protocol in PROTOCOLS * 4]
        assert all(
            line.startswith("ServerError: model shop_pre: a Python process of it has died") for line in said
        )
        assert any(line.endswith("some requests fail") for line in said)  # the living one had answered


def test_a_model_that_is_not_loaded_is_named(tmp_path: Path) -> None:
    flags = ["--model-control-mode=explicit", "--load-model=*"]
    with TritonServer(chain(tmp_path / "repository"), flags=flags, exit_timeout=0) as server:
        connection = http.client.HTTPConnection(server.http_url, timeout=5)
        connection.request("POST", "/v2/repository/models/shop_dnn/unload", "{}")
        assert connection.getresponse().status == 200
        end = time.monotonic() + 5
        while says_ready(server, "shop_dnn") and time.monotonic() < end:
            time.sleep(0.05)
        for protocol in PROTOCOLS:
            assert "model shop_dnn: is not ready at " in refusal(server, protocol)


def test_waits_for_a_server_that_starts(tmp_path: Path) -> None:
    repository = chain(tmp_path / "repository")
    ports = free_ports()
    command = [BIREME, "probe", "-r", repository, "--url", f"127.0.0.1:{ports.http}", "--wait", "60"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1.0)
    assert process.poll() is None
    with TritonServer(repository, ports=ports, exit_timeout=0):
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert out.startswith("ready: shop scored 5 candidates in ")


def test_recorded_scores_beside_the_example_are_compared(server: TritonServer, tmp_path: Path) -> None:
    repository = chain(tmp_path / "repository")
    recorded = {"scores": dict(WRONG.scores), "tolerance": dict(WRONG.tolerance)}
    (repository / "shop" / "example_scores.json").write_text(json.dumps(recorded))
    done = run("-r", str(repository), "--url", server.http_url)
    assert done.returncode == VerifyError.exit_code
    assert "6 instead of 6.5" in done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIREME, "probe", *arguments], capture_output=True, text=True, timeout=60)
