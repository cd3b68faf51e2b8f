"""`bireme serve` as a user meets it: a process of its own, ended by signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from server_repositories import shop

from bireme.errors import BiremeError, EmitError, ServerError
from bireme.probe.probe import Answer, Question
from bireme.server.ports import Ports
from bireme.server.serve import ranking_table, serve
from bireme.server.stubs import live_stubs

BIREME = Path(sys.executable).with_name("bireme")


def _text(table: object) -> list[str]:
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(table)
    return console.export_text().splitlines()


def test_table_ranks_by_the_first_task_and_keeps_the_order_of_equals() -> None:
    request = {"user": {}, "items": {"price": [1.0] * 4, "item_id": ["a", "b", "c", "d"]}}
    scores = {"click": np.array([0.1, 0.7, 0.7, 0.2], np.float32), "buy": np.array([4, 3, 2, 1], np.float32)}
    lines = _text(ranking_table("shop", request, scores, shown=3))
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert cells == [
        ["1", "b", "0.700000", "3.000000"],
        ["2", "c", "0.700000", "2.000000"],
        ["3", "d", "0.200000", "1.000000"],
    ]
    assert "best 3 of 4" in lines[0]


@pytest.mark.parametrize(
    ("items", "label"),
    [
        ({"history": [["x"], ["y"]], "sku": ["[red]p", "q"]}, "[red]p"),  # no markup in users' data
        ({"item_id": [17, 4]}, "17"),
        ({"price": [1.0, 2.0]}, "0"),
    ],
)
def test_what_candidates_are_called(items: dict[str, list[object]], label: str) -> None:
    lines = _text(ranking_table("shop", {"items": items}, {"s": np.array([1.0, 0.0])}))
    first = next(line for line in lines if line.startswith("│"))
    assert first.split("│")[2].strip() == label


Damage = Callable[[Path], object]
DAMAGES: dict[str, tuple[Damage, type[BiremeError], str]] = {
    "no such folder": (lambda r: r.rename(r.with_name("moved")), ServerError, "does not exist"),
    "not ours": (lambda r: (r / "shop" / "bireme.json").unlink(), ServerError, "no model that bireme built"),
    "file lost": (
        lambda r: (r / "shop" / "bireme.json").write_text(
            json.dumps(
                {
                    "format": 1,
                    "model": "shop",
                    "models": [],
                    "files": {"a/t.bin": "0"},
                    "bytes": {"a/t.bin": 9},
                }
            )
        ),
        EmitError,
        r"a/t\.bin: is missing",
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_repository_is_refused_at_once(case: str, tmp_path: Path) -> None:
    repository = shop(tmp_path / "repository")
    damage, kind, message = DAMAGES[case]
    damage(repository)
    with pytest.raises(kind, match=message):
        serve(repository, 0, 0, 0, "127.0.0.1", once=True)


class Served:
    """`bireme serve` with its output read as it comes."""

    def __init__(self, repository: Path, *flags: str) -> None:
        command = [BIREME, "serve", "-r", repository, "--http=0", "--grpc=0", "--metrics=0", *flags]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": str(repository.parent)},  # where its log goes
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []

    def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"{text!r} not in {''.join(self.lines)}")

    def end(self) -> tuple[int, str]:
        rest, _ = self.process.communicate(timeout=30)
        return self.process.returncode, "".join(self.lines) + rest


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    running = Served(shop(tmp_path / "repository"))
    yield running
    prefix = f"bireme_{running.process.pid}_"
    running.process.kill()
    running.process.wait()
    assert live_stubs(prefix) == {}
    assert list(Path("/dev/shm").glob(f"{prefix}*")) == []


@pytest.mark.triton
def test_shows_a_ranking_and_ends_cleanly_at_ctrl_c(served: Served) -> None:
    served.read_until("Ctrl-C ends it")
    os.kill(served.process.pid, signal.SIGINT)
    status, text = served.end()
    assert status == 0
    assert text.rstrip().endswith("stopped")
    assert "Traceback" not in text
    # The example's dearest item is shoe-5 (price 11); the model doubles prices.
    first = next(line for line in text.splitlines() if "│ shoe-" in line)
    assert "shoe-5" in first
    assert "22.000000" in first


@pytest.mark.triton
@pytest.mark.parametrize("victim", ["server", "stub"])
def test_a_death_while_serving_ends_it_with_the_reason(served: Served, victim: str) -> None:
    served.read_until("Ctrl-C ends it")
    prefix = f"bireme_{served.process.pid}_"
    if victim == "stub":
        (pid,) = live_stubs(prefix)
    else:
        children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
        (pid,) = map(int, children)
    os.kill(pid, signal.SIGKILL)
    status, text = served.end()
    assert status == ServerError.exit_code
    expected = "Python process shop_dnn_0_0: died" if victim == "stub" else "was ended by SIGKILL"
    assert expected in " ".join(text.split())
    assert "Traceback" not in text


@pytest.mark.triton
def test_ended_while_starting(tmp_path: Path) -> None:
    repository = shop(tmp_path / "repository")
    source = (
        "import time\nclass TritonPythonModel:\n    def initialize(self, args):\n        time.sleep(60)\n"
    )
    (repository / "shop_dnn" / "1" / "model.py").write_text(source)
    running = Served(repository)
    running.read_until("starting tritonserver")
    time.sleep(1.0)
    os.kill(running.process.pid, signal.SIGTERM)
    status, text = running.end()
    assert status == 130
    assert "Traceback" not in text
    assert list(Path("/dev/shm").glob(f"bireme_{running.process.pid}_*")) == []


class FakeServer:
    """Records what is asked of it; a stand-in for `TritonServer` where none is needed."""

    http_url = "nowhere:1"

    def __init__(self, repository: Path, **options: object) -> None:
        self.repository, self.options = repository, options
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def check(self) -> None:
        self.calls.append("check")

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[FakeServer]:
    made: list[FakeServer] = []

    def make(repository: Path, **options: object) -> FakeServer:
        made.append(FakeServer(repository, **options))
        return made[-1]

    monkeypatch.setattr("bireme.server.serve.TritonServer", make)
    return made


def test_once_ends_by_itself(
    tmp_path: Path,
    fake: list[FakeServer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ask(url: str, protocol: str, question: Question, timeout: float) -> Answer:
        assert (url, question.model, question.request["user"]) == ("nowhere:1", "shop", {"age": 30.0})
        return Answer({"score": question.request["items"]["price"]}, 0.1)

    monkeypatch.setattr("bireme.server.serve._probe", ask)
    assert serve(shop(tmp_path), 1, 2, 3, "127.0.0.1", once=True) == 0
    assert fake[0].calls == ["start", "stop"]
    assert fake[0].options["ports"] == Ports(1, 2, 3)
    assert "shoe-5" in capsys.readouterr().out


def test_a_dead_server_explains_a_failed_example(
    tmp_path: Path, fake: list[FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object) -> Answer:
        raise ServerError("nowhere:1", "connection refused", "")

    def check(self: FakeServer) -> None:
        raise ServerError("tritonserver", "was ended by SIGKILL")

    monkeypatch.setattr("bireme.server.serve._probe", ask)
    with pytest.raises(ServerError, match="connection refused"):
        serve(shop(tmp_path), 1, 2, 3, "127.0.0.1", once=True)
    monkeypatch.setattr(FakeServer, "check", check)
    with pytest.raises(ServerError, match="SIGKILL"):
        serve(tmp_path, 1, 2, 3, "127.0.0.1", once=True)
    assert [server.calls[-1] for server in fake] == ["stop", "stop"]


@pytest.mark.parametrize("content", ["", "[]", '{"user": {}}'])
def test_a_broken_example_is_named(content: str, tmp_path: Path, fake: list[FakeServer]) -> None:
    (shop(tmp_path) / "shop" / "example_request.json").write_text(content)
    with pytest.raises(ServerError, match=r"shop/example_request\.json: is not a request"):
        serve(tmp_path, 1, 2, 3, "127.0.0.1", once=True)
    assert fake[0].calls[-1] == "stop"
