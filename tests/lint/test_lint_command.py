"""`bireme lint` as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bireme.cli import app

GOOD = 'name: "a"\nbackend: "python"\ninstance_group { kind: KIND_CPU }\n'


def write(repository: Path, **models: str) -> Path:
    for name, text in models.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.py").touch()
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


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["lint", *arguments])
    return result.exit_code, result.output


def test_sarif_names_rule_file_and_line(tmp_path):
    write(tmp_path, a=GOOD, b='backend: "python"\n\n# nothing\ninstance_group { }\n', c="what: 1\n")
    code, output = run("-r", str(tmp_path), "--format", "sarif")
    log = json.loads(output)
    assert (code, log["version"]) == (9, "2.1.0")
    (run_,) = log["runs"]
    rules = run_["tool"]["driver"]["rules"]
    assert {rule["id"] for rule in rules} >= {"C01", "G01", "S06"}
    seen = []
    for result in run_["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        uri = physical["artifactLocation"]["uri"]
        seen.append((result["ruleId"], result["level"], uri, physical["region"]["startLine"]))
    assert seen == [("S06", "error", "b/config.pbtxt", 4), ("C01", "error", "c/config.pbtxt", 1)]


def test_json_is_the_same_as_format_json(tmp_path):
    write(tmp_path, b='backend: "python"\n')
    assert run("-r", str(tmp_path), "--json") == run("-r", str(tmp_path), "--format", "json")


def test_what_is_left_out_has_no_line(tmp_path):
    write(tmp_path, b='backend: "python"\n')
    (entry,) = json.loads(run("-r", str(tmp_path), "--json")[1])
    assert (entry["file"], entry["line"]) == ("b/config.pbtxt", None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--triton", "2.51"], "--triton 2.51: is no release of Triton"),
        (["--shm", "much"], "--shm much: is no size"),
        (["--server-flags", "--a '"], "--server-flags: has a quote that is not closed"),
    ],
)
def test_options_that_cannot_be_read_are_one_line(tmp_path, arguments, message):
    write(tmp_path, a=GOOD)
    command = [sys.executable, "-c", "from bireme.cli import main; main()", "lint", "-r", str(tmp_path)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 9
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_rules_of_another_release_do_not_apply(tmp_path):
    plan = 'platform: "tensorrt_plan"\nmax_batch_size: 0\ninstance_group { kind: KIND_GPU }\n'
    specs = 'optimization { cuda { graphs: true graph_spec { input { key: "x" value { dim: 1 } } } } }\n'
    tensors = 'input { name: "x" data_type: TYPE_FP32 dims: 1 }\n'
    write(tmp_path, a=plan + specs + tensors)
    for release, found in (("24.10", True), ("26.07", True), ("26.08", False)):
        listed = json.loads(run("-r", str(tmp_path), "--json", "--triton", release)[1])
        assert ("G06" in {entry["code"] for entry in listed}) is found
