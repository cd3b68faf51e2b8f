"""Everything in the README is executed here, as written; only the ports differ."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from bireme.server.ports import free_ports
from bireme.spec import read_spec

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
LINES = [line for block in COMMANDS for line in block.strip().splitlines()]

#: Lines with a test of their own below; `make test` is what runs this file.
SPECIAL = {"make serve", "make test"}


def run(line: str, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_two_commands_are_there_and_ci_runs_the_second():
    assert {"make serve", "make test"} <= set(LINES)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("line", [line for line in LINES if line not in SPECIAL])
@pytest.mark.triton
def test_command(line):
    out = run(line)
    expected = {"inspect": "recent_items", "repo": "tritonserver --model-repository=", "verify": "1e-05"}
    word = next(word for word in expected if word in line)
    assert expected[word] in out


@pytest.mark.triton
def test_make_serve_and_the_clients(tmp_path):
    ports = free_ports()
    flags = f"--http {ports.http} --grpc {ports.grpc} --metrics {ports.metrics}"
    log = tmp_path / "serve.log"
    with log.open("w") as file:
        serving = subprocess.Popen(
            ["make", "serve"],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"SERVE_FLAGS": flags},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 180
        while "Ctrl-C" not in log.read_text():
            assert serving.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        table = log.read_text()
        assert len(re.findall(r"│\s+\d+\s+│\s+all-\d+", table)) == 10, table
        assert len(SNIPPETS) == 2
        for snippet in SNIPPETS:
            assert "localhost:8001" in snippet
            code = snippet.replace("localhost:8001", f"localhost:{ports.grpc}")
            (tmp_path / "snippet.py").write_text(code)
            out = run(f".venv/bin/python {tmp_path / 'snippet.py'}")
            top = re.search(r"│\s+1\s+│\s+(all-\d+)\s+│\s+(\S+)", table)
            assert top is not None
            best = float(top.group(2))  # both print the best score, the one on top of the table
            printed = [float(number) for number in re.findall(r"\d+\.\d+", out)]
            assert any(abs(number - best) < 1e-6 for number in printed), (out, table)
    finally:
        os.killpg(serving.pid, signal.SIGINT)  # what Ctrl-C does
        code = serving.wait(60)
    assert code in (0, 2, 130, -signal.SIGINT), log.read_text()  # make itself is interrupted, too
    assert "stopped" in log.read_text()


@pytest.mark.triton
def test_the_bare_server_and_the_gpu_repository(tmp_path):
    assert ".venv/bin/tritonserver --model-repository=model_repository" in README
    assert "bireme build --target gpu" in README
    run(f".venv/bin/bireme build examples/obd/bireme.yaml --target gpu -r {tmp_path / 'gpu'} -q")
    assert (tmp_path / "gpu/obd_dnn/1/model.onnx").is_file()
    run(f".venv/bin/bireme build examples/obd/bireme.yaml -r {tmp_path / 'cpu'} -q")
    ports = free_ports()
    flags = f"--http-port={ports.http} --grpc-port={ports.grpc} --metrics-port={ports.metrics}"
    command = (
        f"exec .venv/bin/tritonserver --model-repository={tmp_path / 'cpu'} {flags} --http-address=127.0.0.1"
    )
    server = subprocess.Popen(["bash", "-c", command], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not ready(f"http://127.0.0.1:{ports.http}/v2/models/obd/ready"):
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        server.terminate()
        server.wait(40)


def test_the_shortest_spec_is_one(tmp_path):
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "spec.yaml").write_text(block, encoding="utf-8")
    spec = read_spec(tmp_path / "spec.yaml")
    assert spec.saved_model == tmp_path / "export/saved_model"  # relative to the file, as it says
    assert spec.user == ("country", "age", "history")


@pytest.mark.parametrize(
    "record", ["compare", "compare_apart", "compare_reference", "compare_reference_apart"]
)
def test_measured_ratios_are_the_ones_of_record(record):
    for case in json.loads((ROOT / f"perf/results/{record}.json").read_text())["cases"]:
        load = f"{case['rate']:.0f}/s" if case["rate"] is not None else f"{case['clients']} clients"
        load = "1 client" if case["clients"] == 1 else load
        for model, ratios in case["ratios"][case["baseline"]].items():
            shown = [
                "{median:.2f} ({lowest:.2f}–{highest:.2f})".format(**ratios[key])
                for key in ("throughput", "p99", "cpu")
            ]
            assert f"| {model} | {case['candidates']} | {load} | {' | '.join(shown)} |" in README
