"""ONNX → plan through NVIDIA's command `trtexec`, and the flags that say how: the one source of them."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bireme.engine.builder_log import (
    build_failed,
    parse_failed,
    short_of_workspace,
    told_warnings,
    workspace_error,
)
from bireme.engine.onnx_nodes import Nodes, read_nodes
from bireme.engine.options import Built, Job, Options
from bireme.engine.whole import as_one
from bireme.errors import EngineError
from bireme_runtime.gpu_facts import version_text
from bireme_runtime.passport import Precision, Shapes

__all__ = ["build", "profile_flags", "trtexec_version", "weakly_typed_flags"]

_BANNER = re.compile(r"TensorRT[ .]v?(\d{4,6})\b")
_VERSION = re.compile(r"TensorRT version: (\d+\.\d+\.\d+)")
_LINE = re.compile(r"^(?:\[[^\]]*\] )?\[([EWIV])\] (?:\[TRT\] )?(.*)$")
_SPOILED_NODE = re.compile(r'While parsing node number (\d+) \[(\w+) -> "([^"]*)"')
_HELP_SECONDS = 60


def profile_flags(profile: Mapping[str, Shapes]) -> list[str]:
    """The optimization profile as trtexec takes it."""
    flags = []
    for kind in ("min", "opt", "max"):
        ranges = (f"{name}:{_text(getattr(shapes, kind))}" for name, shapes in profile.items())
        flags.append(f"--{kind}Shapes={','.join(ranges)}")
    return flags


def weakly_typed_flags(fp32: Sequence[str] | None) -> list[str]:
    """What makes a builder of weakly typed networks (before TensorRT 10) obey the types in the ONNX.

    Args:
        fp32: nodes that stay FP32; None: the network has no FP16.
    """
    if fp32 is None:
        return []
    flags = ["--fp16"]
    if fp32:
        constraints = ",".join(f"{name}:fp32" for name in fp32)
        flags += ["--precisionConstraints=obey", f"--layerPrecisions={constraints}"]
    return flags


def trtexec_version(command: Path) -> str:
    """The version of TensorRT that a trtexec belongs to.

    Raises:
        EngineError: it cannot be run or does not say.
    """
    try:
        done = subprocess.run(
            [str(command), "--help"], capture_output=True, text=True, timeout=_HELP_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(str(command), f"cannot be run: {error}", "name another: --trtexec FILE") from None
    found = _version_in(done.stdout + done.stderr)
    if found is None:
        hint = "name another: --trtexec FILE, or install the Python package tensorrt"
        raise EngineError(str(command), "does not say which TensorRT it belongs to", hint)
    return found


def build(job: Job, command: Path, version: str) -> Built:
    """Build one plan with trtexec, which also runs it for a moment.

    Args:
        job: what to build.
        command: trtexec.
        version: of its TensorRT.

    Raises:
        EngineError: as `tensorrt_builder.build`.
    """
    content = job.onnx.read_bytes() if job.onnx.is_file() else b""
    nodes = read_nodes(content) if content else Nodes()
    precision, typed = _typed(job, version, nodes)
    with tempfile.TemporaryDirectory(prefix="bireme-engine-") as scratch:
        plan, network = Path(scratch) / "model.plan", job.onnx
        if _number(version) < 10 and (whole := as_one(content)) != content:
            network = Path(scratch) / "model.onnx"
            network.write_bytes(whole)
        flags = [f"--onnx={network}", f"--saveEngine={plan}", *profile_flags(job.profile), *typed]
        flags += option_flags(job.options)
        flags += ["--warmUp=0", "--duration=0", "--iterations=1", "--noDataTransfers"]
        if job.timing_cache is not None:
            flags.append(f"--timingCacheFile={job.timing_cache}")
        lines, status = _run([str(command), *flags], job)
        if status or not plan.is_file():
            raise _reason(job, lines, version, nodes)
        short = short_of_workspace(text for _, text in lines)
        if short is not None and job.options.workspace_mb is not None:
            raise workspace_error(job.model, short, job.options.workspace_mb)
        return Built(
            plan=plan.read_bytes(),
            tensorrt=_version_in("\n".join(text for _, text in lines)) or version,
            precision=precision,
            built_by="trtexec",
            wanted_fp32=nodes.fp32,
            warnings=told_warnings(text for kind, text in lines if kind == "W"),
        )


def option_flags(options: Options) -> list[str]:
    """A user's options as trtexec takes them."""
    flags = [] if options.tf32 else ["--noTF32"]
    if options.workspace_mb is not None:
        flags.append(f"--memPoolSize=workspace:{options.workspace_mb}")
    if options.level is not None:
        flags.append(f"--builderOptimizationLevel={options.level}")
    return flags


def _number(version: str) -> int:
    return int(version.split(".")[0])


def _typed(job: Job, version: str, nodes: Nodes) -> tuple[Precision, list[str]]:
    number = _number(version)
    if number >= 10:
        return "strongly_typed", ["--stronglyTyped"] if number == 10 else []
    if not nodes.known:
        hint = "pip install onnx, or the Python package tensorrt, which reads the types itself"
        raise EngineError(
            job.model,
            f"trtexec of TensorRT {version} must be told which nodes are FP32, and onnx is not here",
            hint,
        )
    flags = weakly_typed_flags(nodes.fp32 if nodes.half else None)
    return ("obey" if nodes.half else "fp32"), flags


def _run(command: list[str], job: Job) -> tuple[list[tuple[str, str]], int]:
    """Its lines as (severity, text), and its exit status."""
    lines = []
    try:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                match = _LINE.match(line.strip())
                kind, text = (match[1], match[2]) if match else ("I", line.strip())
                if text:
                    lines.append((kind, text))
                    job.progress(text)
        return lines, process.returncode
    except OSError as error:
        hint = "name another: --trtexec FILE"
        raise EngineError(command[0], f"cannot be run: {error.strerror}", hint) from None


def _reason(job: Job, lines: Sequence[tuple[str, str]], version: str, nodes: Nodes) -> EngineError:
    texts = [text for _, text in lines]
    errors = [text for kind, text in lines if kind == "E"]
    importer = next((text for text in texts if "No importer registered for op" in text), "")
    spoiled = next((match for match in map(_SPOILED_NODE.search, texts) if match), None)
    if importer or spoiled:
        index = int(spoiled[1]) if spoiled else -1
        node, op = nodes.at(index)
        node = node or (f"number {index}" if spoiled else "")
        op = op or (spoiled[2] if spoiled else "")
        return parse_failed(job.model, node, op, importer or _last(errors), version)
    return build_failed(job.model, errors, texts, job.options.workspace_mb)


def _last(errors: Sequence[str]) -> str:
    return errors[-1] if errors else "it gave no reason"


def _version_in(text: str) -> str | None:
    exact = _VERSION.search(text)
    if exact:
        return exact[1]
    banner = _BANNER.search(text)
    return version_text(int(banner[1])) if banner else None


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
