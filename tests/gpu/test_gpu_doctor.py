"""`bireme doctor` on a machine with a GPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bireme_runtime.gpu_facts import driver_version, visible_gpus

pytestmark = pytest.mark.gpu


def test_gpu_and_driver_are_well() -> None:
    code = "import sys; sys.argv = ['bireme', 'doctor', '--json']; from bireme.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 10), done.stderr
    found = {finding["code"]: finding for finding in json.loads(done.stdout)}
    assert found["D16"]["severity"] == "ok"
    assert visible_gpus()[0].name in found["D16"]["found"]
    assert driver_version() in found["D16"]["found"]
    assert found["D19"]["severity"] != "error"
