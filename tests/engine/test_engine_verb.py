"""The verb `bireme engine`: its output and its exit status. TensorRT and the GPU are stand-ins."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from engine_helpers import gpu_repository
from fake_tensorrt import FakeTensorRT

from bireme.cli import main
from bireme.errors import EngineError

pytestmark = pytest.mark.usefixtures("one_gpu")


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> FakeTensorRT:
    trt = FakeTensorRT("8.6.0")
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    return trt


def bireme(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bireme", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_a_table_then_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = gpu_repository(tmp_path / "models")
    assert bireme(monkeypatch, "engine", "-r", str(repository), "--level", "1") == 0
    text = capsys.readouterr().out
    assert "shop_dnn: built in " in text
    assert "TensorRT 8.6.0 (tensorrt python), types: obey" in text
    assert "1x4x9 to 6x16x9, tuned for 1x16x9" in text
    assert bireme(monkeypatch, "engine", "-r", str(repository), "--level", "1", "--json") == 0
    (network,) = json.loads(capsys.readouterr().out)
    assert (network["model"], network["built"]) == ("shop_dnn", False)
    assert network["passport"]["flags"] == {"workspace_mb": None, "level": 1, "tf32": False}
    assert network["report"]["layer_count"] == 4
    assert bireme(monkeypatch, "engine", "-r", str(repository), "--level", "1") == 0
    assert "shop_dnn: up to date (--force builds it again)" in capsys.readouterr().out


def test_an_error_is_one_line_and_a_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    package: FakeTensorRT,
) -> None:
    package.fail = True
    status = bireme(monkeypatch, "engine", "-r", str(gpu_repository(tmp_path / "models")))
    assert status == EngineError.exit_code
    said = capsys.readouterr()
    lines = said.err.strip().splitlines()
    assert lines[-2:] == [
        "bireme: shop_dnn: TensorRT could not build the plan: it gave no reason",
        "  → see the messages above; `bireme engine --verbose` shows all that TensorRT says",
    ]
    assert said.out == ""
