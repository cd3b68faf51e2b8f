"""`bireme lint` as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from bireme.cli import app

GOOD = 'name: "a"\nbackend: "python"\ninstance_group { kind: KIND_CPU }\n'


def write(repository: Path, **models: str) -> Path:
    for name, text in models.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(text)
    return repository


def test_a_clean_repository_is_zero(tmp_path):
    result = CliRunner().invoke(app, ["lint", "-r", str(write(tmp_path, a=GOOD))])
    assert (result.exit_code, result.output) == (0, f"{tmp_path}: 0 errors, 0 warnings\n")


def test_errors_are_listed_with_a_fix_and_end_in_9(tmp_path):
    write(tmp_path, a=GOOD, b='backend: "python"\n')
    result = CliRunner().invoke(app, ["lint", "-r", str(tmp_path)])
    assert result.exit_code == 9
    assert "S06 error: b: instance_group: is left out" in result.output
    assert "→ write the kind: KIND_CPU or KIND_GPU" in result.output
    listed = json.loads(CliRunner().invoke(app, ["lint", "-r", str(tmp_path), "--json"]).output)
    assert [(entry["code"], entry["where"]) for entry in listed] == [("S06", "b: instance_group")]


def test_warnings_alone_are_zero(tmp_path):
    write(tmp_path, a=GOOD.replace("KIND_CPU", 'KIND_CPU host_policy: "x"'))
    result = CliRunner().invoke(app, ["lint", "-r", str(tmp_path)])
    assert result.exit_code == 0
    assert "0 errors, 1 warnings" in result.output


def test_neither_tensorflow_nor_onnx_is_needed(tmp_path):
    write(tmp_path, a=GOOD)
    code = (
        "import sys\n"
        "for name in ('tensorflow', 'onnx', 'onnxruntime', 'tf2onnx'): sys.modules[name] = None\n"
        f"sys.argv = ['bireme', 'lint', '-r', {str(tmp_path)!r}]\n"
        "from bireme.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
