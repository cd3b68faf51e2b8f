"""A damaged repository: the start fails within seconds and names the file."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bireme.errors import EmitError, ServerError
from bireme.server.process import TritonServer
from bireme.server.serve import serve
from bireme.server.stubs import live_stubs

pytestmark = pytest.mark.triton


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


PREPROCESS, DNN = "obd_preprocess/1", "obd_dnn/1"
#: What happened → (where, how, what the start says of the path).
FATAL: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "missing arena": (f"{PREPROCESS}/arena_float32_w8.bin", Path.unlink, "PATH: is missing; rebuild the"),
    "truncated arena": (
        f"{PREPROCESS}/arena_float32_w16.bin",
        _truncate,
        r"PATH: has \d+ bytes instead of \d+; rebuild the repository",
    ),
    "truncated vocabulary": (
        f"{PREPROCESS}/vocabulary_2.bin",
        _truncate,
        r"PATH: has \d+ bytes instead of \d+; rebuild the repository",
    ),
    "missing plan": (f"{PREPROCESS}/plan.json", Path.unlink, "PATH: cannot be read: No such file.*rebuild"),
    "truncated dense network": (f"{DNN}/model.onnx", _truncate, "Load model from PATH failed"),
    "empty version folder": (PREPROCESS, _empty, "PATH: has no model.py .*build the repository again"),
}
#: What only the manifest knows.
SUBTLE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a changed weight": (f"{PREPROCESS}/arena_float32_w16.bin", _flip),
    "a changed vocabulary": (f"{PREPROCESS}/vocabulary_0.bin", _flip),
    "a changed dense network": (f"{DNN}/model.onnx", _flip),
    "a missing module": (f"{PREPROCESS}/bireme_runtime/kernels.py", Path.unlink),
    "a changed config": ("obd_dnn/config.pbtxt", _flip),
}


@pytest.fixture
def damaged(repository: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return shutil.copytree(repository, tmp_path / "repository")


@pytest.mark.parametrize("case", FATAL)
def test_the_start_fails_and_names_the_file(case: str, damaged: Path, tmp_path: Path) -> None:
    where, damage, message = FATAL[case]
    damage(damaged / where)
    server = TritonServer(damaged, log=tmp_path / "server.log", exit_timeout=0)
    begin = time.monotonic()
    with pytest.raises(ServerError) as caught:
        server.start()
    assert time.monotonic() - begin < 30
    assert re.search(message.replace("PATH", re.escape(str(damaged / where))), str(caught.value))
    assert "Traceback" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert server.pid is None
    assert live_stubs(server._prefix) == {}


@pytest.mark.parametrize("case", [*FATAL, *SUBTLE])
def test_bireme_serve_does_not_even_start(case: str, damaged: Path) -> None:
    """It compares the repository with the manifest first: any changed byte is found in an instant."""
    where, damage = (FATAL | SUBTLE)[case][:2]  # type: ignore[operator]
    damage(damaged / where)
    begin = time.monotonic()
    with pytest.raises(EmitError, match=r"(is missing|has \d+ bytes|was changed)") as caught:
        serve(damaged, 0, 0, 0, "127.0.0.1", once=True)
    assert time.monotonic() - begin < 2
    assert caught.value.where.startswith(str(damaged / where))
    assert "run `bireme build` again" in caught.value.hint
