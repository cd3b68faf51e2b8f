"""`bireme doctor` as users run it, on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bireme.doctor.checks import CHECKS

NO_TENSORFLOW = """
import sys
for name in ('tensorflow', 'onnx', 'onnxruntime', 'tf2onnx'): sys.modules[name] = None
from bireme.cli import main
main()
"""


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command without TensorFlow; the variables on top of ours."""
    return subprocess.run(
        [sys.executable, "-c", NO_TENSORFLOW, "doctor", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_check_answers_and_the_server_is_well_here() -> None:
    done = doctor("--json")
    findings = json.loads(done.stdout)
    assert {finding["code"] for finding in findings} == {check.code for check in CHECKS}
    assert list(findings[0]) == ["code", "about", "severity", "found", "why", "remedy"]
    well = {finding["code"] for finding in findings if finding["severity"] == "ok"}
    assert well >= {"D01", "D02", "D03", "D18"}
    errors = any(finding["severity"] == "error" for finding in findings)
    assert done.returncode == (10 if errors else 0)
    assert done.stderr == ""


def test_an_error_comes_first_and_ends_in_10(tmp_path: Path) -> None:
    done = doctor(BIREME_TRITONSERVER=str(tmp_path / "none"))
    assert done.returncode == 10
    heading, first, *_ = done.stdout.splitlines()
    assert "what to do" in heading
    assert first.split()[:3] == ["error", "D01", "tritonserver"]
    assert re.fullmatch(r"[1-9]\d* errors, \d+ warnings, \d+ notes, \d+ ok", done.stdout.splitlines()[-1])


@pytest.mark.parametrize("path", ["none", "."])
def test_what_is_no_repository_is_one_line_and_a_hint(tmp_path: Path, path: str) -> None:
    done = doctor("-r", str(tmp_path / path))
    assert (done.returncode, done.stdout) == (10, "")
    message, hint = done.stderr.splitlines()
    assert message.startswith(f"bireme: {tmp_path / path}: ")
    assert "→ build it" in hint
