"""`bireme engine` where only the command `trtexec` is.

A shell script stands in for trtexec, as it builds nothing without a GPU: it keeps its arguments, says what a
test wants and writes a few bytes. Its lines have the form of the real one's (8.6 and 10).
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest
from engine_helpers import MIXED, gpu_repository, refusal_of

from bireme.engine import trtexec
from bireme.engine.build_engine import Outcome, Tool, build_engines, find_tool
from bireme.engine.onnx_nodes import Nodes
from bireme.engine.options import Options
from bireme.errors import EngineError
from bireme_runtime import passport as passports

pytestmark = pytest.mark.usefixtures("one_gpu")

PLAN = b"a plan"


@dataclasses.dataclass
class Command:
    """The stand-in."""

    path: Path

    def say(self, *lines: str, status: int = 0, plan: bool = True) -> None:
        """From now on it says this."""
        text = "\n".join(lines)
        write = 'for a; do case "$a" in --saveEngine=*) printf "a plan" > "${a#*=}";; esac; done'
        self.path.write_text(
            "#!/bin/sh\n"
            "echo '&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec'\n"
            'test "$1" = --help && exit 0\n'
            f'printf "%s\\n" "$@" > "{self.path}.arguments"\n'
            f"cat <<'END'\n{text}\nEND\n{write if plan else ''}\nexit {status}\n"
        )
        self.path.chmod(0o755)

    @property
    def arguments(self) -> list[str]:
        return Path(f"{self.path}.arguments").read_text().splitlines()


@pytest.fixture
def command(tmp_path: Path) -> Command:
    made = Command(tmp_path / "trtexec")
    made.say("[12/01/2026-00:00:00] [I] TensorRT version: 8.6.1")
    return made


def run(repository: Path, command: Command, **options: object) -> Outcome:
    (outcome,) = build_engines(repository, choose=lambda: find_tool("trtexec", command.path), **options)  # type: ignore[arg-type]
    return outcome


def refused(repository: Path, command: Command, **options: object) -> EngineError:
    """The error, after which no file has changed."""
    return refusal_of(repository, lambda: run(repository, command, **options))


def test_a_plan_with_its_passport(tmp_path: Path, command: Command) -> None:
    command.say(
        "[12/01/2026-00:00:00] [I] TensorRT version: 8.6.1",
        "[12/01/2026-00:00:00] [W] [TRT] Weights [name=x] were 3 times converted",
        "[12/01/2026-00:00:00] [W] [TRT] Weights [name=x] were 4 times converted",
    )
    repository = gpu_repository(tmp_path / "models")
    outcome = run(repository, command)
    folder = repository / "shop_dnn" / "1"
    assert (folder / "model.plan").read_bytes() == PLAN
    passport = passports.read(folder)
    assert (passport.tensorrt, passport.built_by, passport.precision) == ("8.6.1", "trtexec", "obey")
    report = json.loads((folder / "engine_report.json").read_text())
    assert report["layer_count"] is None
    assert report["warnings"] == ["Weights [name=x] were 3 times converted"]
    assert outcome.built
    arguments = command.arguments
    assert f"--onnx={folder / 'model.onnx'}" in arguments
    assert "--minShapes=user:1x8,items:1x4x9" in arguments
    assert "--optShapes=user:1x8,items:1x16x9" in arguments
    assert "--maxShapes=user:6x8,items:6x16x9" in arguments
    assert {"--fp16", "--precisionConstraints=obey", "--layerPrecisions=large:fp32", "--noTF32"} <= {
        *arguments
    }
    assert any(argument.startswith("--timingCacheFile=") for argument in arguments)
    assert not run(repository, command).built


def test_options(tmp_path: Path, command: Command) -> None:
    options = Options(workspace_mb=64, level=2, tf32=True)
    run(gpu_repository(tmp_path / "models"), command, options=options, timing_cache="none")
    arguments = command.arguments
    assert {"--memPoolSize=workspace:64", "--builderOptimizationLevel=2"} <= {*arguments}
    assert "--noTF32" not in arguments
    assert not any("timingCache" in argument for argument in arguments)


@pytest.mark.parametrize(("version", "flag"), [("10.3.0", True), ("11.0.0", False)])
def test_newer_ones_are_strongly_typed(tmp_path: Path, command: Command, version: str, flag: bool) -> None:
    command.say(f"[I] TensorRT version: {version}")
    tool = Tool(version, command=command.path)
    (outcome,) = build_engines(gpu_repository(tmp_path / "models"), choose=lambda: tool)
    assert outcome.passport.precision == "strongly_typed"
    assert ("--stronglyTyped" in command.arguments) == flag
    assert "--fp16" not in command.arguments


def test_an_old_one_needs_onnx_to_know_the_types(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trtexec, "read_nodes", lambda content: Nodes())
    error = refused(gpu_repository(tmp_path / "models"), command)
    assert "must be told which nodes are FP32, and onnx is not here" in error.message
    assert "pip install onnx" in error.hint


def test_an_unsupported_op_is_named_with_its_node(tmp_path: Path, command: Command) -> None:
    text = MIXED.replace("[half] small = ReduceMax<axes = [2], keepdims = 0>", "[odd] small = NoSuchOp")
    command.say(
        "[I] [TRT] No importer registered for op: NoSuchOp. Attempting to import as plugin.",
        '[E] [TRT] ModelImporter.cpp:771: While parsing node number 2 [NoSuchOp -> "small"]:',
        "[E] Failed to parse onnx file",
        status=1,
        plan=False,
    )
    error = refused(gpu_repository(tmp_path / "models", text=text), command)
    assert error.message == "unsupported op NoSuchOp at node odd: TensorRT 8.6.1 has no such layer"
    assert "--target cpu" in error.hint


@pytest.mark.parametrize("fails", [True, False])
def test_too_small_a_workspace(tmp_path: Path, command: Command, fails: bool) -> None:
    lines = ["[W] [TRT] Skipping tactic 0 due to insufficient memory on requested size of 33554432 detected"]
    lines += ["[I] [TRT] Some tactics do not have sufficient workspace memory to run."]
    lines += ["[E] Error[10]: Could not find any implementation for node X."] if fails else []
    command.say(*lines, status=int(fails), plan=not fails)
    error = refused(gpu_repository(tmp_path / "models"), command, options=Options(workspace_mb=1))
    assert "a workspace of 1 MB is too small for TensorRT's kernels: it asks for 32 MB" in error.message


def test_other_failures_are_quoted(tmp_path: Path, command: Command) -> None:
    command.say("[E] Error[2]: why", status=1, plan=False)
    assert "TensorRT could not build the plan: " in refused(gpu_repository(tmp_path / "a"), command).message
    command.say("[E] [TRT] Requested amount of GPU memory (9 bytes) could not be allocated.", status=1)
    error = refused(gpu_repository(tmp_path / "b"), command)
    assert "the GPU has too little free memory to build the plan" in error.message


def test_one_that_is_not_there_or_no_trtexec(tmp_path: Path, command: Command) -> None:
    with pytest.raises(EngineError, match=r"nowhere is not there"):
        find_tool("trtexec", tmp_path / "nowhere")
    command.path.write_text("#!/bin/sh\necho something else\n")
    with pytest.raises(EngineError, match="does not say which TensorRT it belongs to"):
        find_tool("trtexec", command.path)
    command.path.write_text("no script")
    with pytest.raises(EngineError, match="cannot be run"):
        find_tool("trtexec", command.path)


def test_neither_tool_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)  # cannot be imported
    monkeypatch.setattr("bireme.engine.build_engine.shutil.which", lambda name: None)
    with pytest.raises(EngineError, match="neither the Python package tensorrt nor trtexec is here"):
        find_tool()
    with pytest.raises(EngineError, match="the Python package tensorrt: is not installed"):
        find_tool("tensorrt")
