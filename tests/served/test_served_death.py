"""Processes that die in the middle of a request: an error within seconds, never a hang or a wrong score."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from served_helpers import PROTOCOLS, TOLERANCE, Original, Protocol, Tensors, url_of

from bireme.client import RankingClient
from bireme.errors import ClientError, ServerError
from bireme.server.process import TritonServer
from bireme.server.stubs import live_stubs

pytestmark = pytest.mark.triton

TIMEOUT = 15.0
Answer = np.ndarray | ClientError


@pytest.fixture
def mortal(two_instances: Path, tmp_path: Path) -> Iterator[TritonServer]:
    """A server of the test's own."""
    with TritonServer(two_instances, log=tmp_path / "server.log", exit_timeout=0) as server:
        yield server


def stubs(server: TritonServer, model: str) -> dict[str, int]:
    """Instance → process id of one model."""
    return {name: pid for pid, name in live_stubs(server._prefix).items() if name.startswith(model)}


class Callers:
    """Clients that have met the server and wait for the word."""

    def __init__(self, server: TritonServer, protocols: Sequence[Protocol] = PROTOCOLS) -> None:
        self._clients = [RankingClient(url_of(server, p), "obd", p, TIMEOUT) for p in protocols]
        for client in self._clients:
            client.features  # noqa: B018 - so that nothing but the request itself will be on its way
        self._answers: list[Answer] = []
        self._threads: list[threading.Thread] = []

    def _ask(self, client: RankingClient, tensors: Tensors) -> None:
        try:
            self._answers.append(client.infer(tensors)["click"])
        except ClientError as error:
            self._answers.append(error)

    def ask(self, tensors: Tensors) -> None:
        """Every client sends the request."""
        self._threads = [threading.Thread(target=self._ask, args=(c, tensors)) for c in self._clients]
        for thread in self._threads:
            thread.start()

    def answers(self, seconds: float = 8.0) -> list[Answer]:
        """One for each client; fails if something is still missing after `seconds`."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in self._threads), "a request hangs"
        assert len(self._answers) == len(self._clients)
        return self._answers


def asked(server: TritonServer, tensors: Tensors) -> list[Answer]:
    callers = Callers(server)
    callers.ask(tensors)
    return callers.answers()


def killed_while_asked(server: TritonServer, pids: Sequence[int], tensors: Tensors) -> list[Answer]:
    """Hold processes still, send requests, kill them: the requests are in their hands for certain."""
    callers = Callers(server, PROTOCOLS * 2)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    callers.ask(tensors)
    time.sleep(0.3)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return callers.answers()


def noticed(server: TritonServer) -> str:
    """What check() says, which `bireme serve` calls once a second."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            server.check()
        except ServerError as error:
            return str(error)
        time.sleep(0.1)
    return "nothing"


def test_the_server_is_killed(mortal: TritonServer, tensors: Tensors) -> None:
    assert mortal.pid is not None
    begin = time.monotonic()
    answers = killed_while_asked(mortal, [mortal.pid], tensors)
    assert time.monotonic() - begin < 3
    for answer in answers:
        assert isinstance(answer, ClientError)
        assert f"is tritonserver running at {answer.where}" in answer.hint
    assert re.search(r"tritonserver: was ended by SIGKILL", noticed(mortal))


def test_all_preprocess_processes_are_killed(mortal: TritonServer, tensors: Tensors) -> None:
    instances = stubs(mortal, "obd_preprocess")
    assert len(instances) == 2
    answers = killed_while_asked(mortal, [*instances.values()], tensors)
    for answer in answers:
        assert isinstance(answer, ClientError)
        assert "Stub process 'obd_preprocess_0_" in answer.message
    assert re.search(
        r"Python process obd_preprocess_0_0, obd_preprocess_0_1: died; .*restart the server", noticed(mortal)
    )
    assert all(isinstance(answer, ClientError) for answer in asked(mortal, tensors))


def test_one_of_two_preprocess_processes_is_killed(
    mortal: TritonServer, tensors: Tensors, original: Original
) -> None:
    """The other one goes on: every answer is an error about the dead one, or right."""
    pid = stubs(mortal, "obd_preprocess")["obd_preprocess_0_1"]
    answers = killed_while_asked(mortal, [pid], tensors)
    for _ in range(4):
        answers += asked(mortal, tensors)
    expected = original.scores(tensors)
    right = 0
    for answer in answers:
        if isinstance(answer, ClientError):
            assert "Stub process 'obd_preprocess_0_1' is not healthy" in answer.message
        else:
            np.testing.assert_allclose(answer, expected, rtol=0, atol=TOLERANCE)
            right += 1
    assert right
    assert re.search(r"Python process obd_preprocess_0_1: died", noticed(mortal))


def test_the_dnn_process_is_killed(mortal: TritonServer, tensors: Tensors) -> None:
    answers = killed_while_asked(mortal, [*stubs(mortal, "obd_dnn").values()], tensors)
    for answer in answers:
        assert isinstance(answer, ClientError)
        assert re.search(r"Stub process 'obd_dnn_0_\d+' is not healthy", answer.message)
    assert re.search(
        r"Python process obd_dnn_0_0(, obd_dnn_0_\d+)*: died; its requests fail, and Triton does not",
        noticed(mortal),
    )


def test_bireme_serve_ends_with_the_reason(repository: Path) -> None:
    command = [str(Path(sys.executable).with_name("bireme")), "serve", "-r", str(repository)]
    ports = ["--http", "0", "--grpc", "0", "--metrics", "0"]
    process = subprocess.Popen(
        [*command, *ports], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "Ctrl-C" in line:
                break
        found = {name: pid for pid, name in live_stubs(f"bireme_{process.pid}_").items()}
        os.kill(found["obd_dnn_0_0"], signal.SIGKILL)
        _, errors = process.communicate(timeout=15)
        assert process.returncode == ServerError.exit_code
        assert "Python process obd_dnn_0_0: died" in " ".join(errors.split())
        assert "Traceback" not in errors
        assert live_stubs(f"bireme_{process.pid}_") == {}
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=20)
