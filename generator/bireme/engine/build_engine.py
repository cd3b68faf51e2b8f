"""`bireme engine`: a plan for every GPU network of a repository, with its passport and report."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from bireme.engine import tensorrt_builder, trtexec
from bireme.engine.layers import layer_report, layers_of, spoiled_fp32
from bireme.engine.network import GpuNetwork, gpu_networks
from bireme.engine.options import DEFAULT_OPTIONS, Built, Job, Options, Progress
from bireme.engine.profile import all_shapes, profile, shape_of
from bireme.engine.swap_plan import swap_plan
from bireme.engine.timing_cache import default_timing_cache
from bireme.errors import EngineError
from bireme_runtime import passport as passports
from bireme_runtime.gpu_facts import driver_version, visible_gpus
from bireme_runtime.hashes import file_sha256
from bireme_runtime.passport import ONNX, PLAN, Gpu, Here, Needs, Passport

__all__ = ["Outcome", "Tool", "ToolName", "build_engines", "find_tool"]

ToolName = Literal["auto", "tensorrt", "trtexec"]
_NO_GPU = "run it where the model will be served; to serve without a GPU: bireme build SPEC --target cpu"


@dataclass(frozen=True)
class Tool:
    """What builds: the Python package, or else the command.

    Args:
        version: of TensorRT.
        package: the package `tensorrt`, if that is used.
        command: trtexec, if that is used.
    """

    version: str
    package: ModuleType | None = None
    command: Path | None = None

    @property
    def name(self) -> str:
        """As in the passport."""
        return "tensorrt python" if self.package is not None else "trtexec"

    def build(self, job: Job) -> Built:
        """Build one plan."""
        if self.package is not None:
            return tensorrt_builder.build(job, self.package)
        assert self.command is not None
        return trtexec.build(job, self.command, self.version)


@dataclass(frozen=True)
class Outcome:
    """What became of one network.

    Args:
        model: the Triton model.
        folder: where its plan is.
        built: False: the plan there was up to date.
        seconds: how long it took; 0 if it was up to date.
        passport: of the plan.
        report: what engine_report.json says; empty if that is missing.
    """

    model: str
    folder: Path
    built: bool
    seconds: float
    passport: Passport
    report: Mapping[str, Any] = field(default_factory=dict)


def find_tool(wanted: ToolName = "auto", command: Path | None = None) -> Tool:
    """The tool that builds.

    Args:
        wanted: "auto": the Python package, if it is there.
        command: trtexec; None: the one on PATH, or where NVIDIA's container has it.

    Raises:
        EngineError: it is not here.
    """
    if wanted in ("auto", "tensorrt") and command is None:
        try:
            package = importlib.import_module("tensorrt")
            return Tool(str(package.__version__), package=package)
        except ImportError as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == "tensorrt"
            if wanted == "tensorrt" or not absent:
                reason = "is not installed" if absent else f"cannot be imported: {error}"
                hint = "pip install tensorrt, in the version that will serve; or --tool trtexec"
                raise EngineError("the Python package tensorrt", reason, hint) from None
    known = shutil.which("trtexec") or "/usr/src/tensorrt/bin/trtexec"
    path = command or Path(known)
    if not path.is_file():
        what = (
            f"{command} is not there"
            if command
            else "neither the Python package tensorrt nor trtexec is here"
        )
        hint = (
            "pip install tensorrt, in the version that will serve, or run it in NVIDIA's TensorRT container"
        )
        raise EngineError("TensorRT", what, hint)
    return Tool(trtexec.trtexec_version(path), command=path)


def build_engines(
    repository: Path,
    models: Sequence[str] = (),
    choose: Callable[[], Tool] = find_tool,
    options: Options = DEFAULT_OPTIONS,
    timing_cache: Path | Literal["default", "none"] = "default",
    force: bool = False,
    progress: Progress = lambda _: None,
) -> Iterator[Outcome]:
    """Build what is not up to date, one network after another. Each one's files change together, or not.

    Args:
        repository: a model repository, built for a GPU.
        models: only these of its GPU networks; empty: all.
        choose: finds what builds; asked once it is clear that there is something to build, and a GPU.
        options: for the builder.
        timing_cache: where timings are kept between builds.
        force: build what is up to date, too.
        progress: told what is going on.

    Raises:
        EngineError: there is no GPU, no GPU network, or one cannot be built.
    """
    networks = gpu_networks(repository, models)
    gpu = _gpu()
    tool = choose()
    cache = _cache_file(timing_cache, tool, gpu)
    for network in networks:
        needs = network.needs
        if needs is None:
            hint = "build the repository again: bireme build SPEC --target gpu (or gpu-python)"
            raise EngineError(network.name, "its config.pbtxt does not say for which buckets", hint)
        if not network.onnx.is_file():
            hint = "build the repository again: bireme build SPEC --target gpu (or gpu-python)"
            raise EngineError(network.name, f"{network.onnx} is missing", hint)
        current = None if force else _up_to_date(network, needs, tool, options, gpu)
        yield current or _build(network, needs, tool, options, cache, gpu, _named(network.name, progress))


def _gpu() -> Gpu:
    gpus = visible_gpus()
    if not gpus:
        raise EngineError("bireme engine", "needs an NVIDIA GPU, and none is visible here", _NO_GPU)
    other = next((gpu for gpu in gpus if gpu.name != gpus[0].name), None)
    if other is not None:
        names = f"{gpus[0].name} and {other.name}"
        hint = "a plan is for one kind: choose the GPUs with CUDA_VISIBLE_DEVICES, here and for the server"
        raise EngineError("bireme engine", f"finds GPUs of different kinds: {names}", hint)
    return gpus[0]


def _cache_file(wanted: Path | Literal["default", "none"], tool: Tool, gpu: Gpu) -> Path | None:
    if wanted == "none":
        return None
    if wanted == "default":
        return default_timing_cache(tool.version, gpu, os.environ)
    return Path(wanted)


def _named(model: str, progress: Progress) -> Progress:
    return lambda text: progress(f"{model}: {text}")


def _up_to_date(network: GpuNetwork, needs: Needs, tool: Tool, options: Options, gpu: Gpu) -> Outcome | None:
    """The plan that is there, if it is the one that a build would make again."""
    if passports.check(network.folder, Here(tool.version, gpu), needs) is not None:
        return None
    passport = passports.read(network.folder)
    same = (
        passport.profile == profile(needs)
        and passport.flags == options.flags()
        and passport.onnx["sha256"] == file_sha256(network.onnx)
    )
    return Outcome(network.name, network.folder, False, 0.0, passport, _report(network)) if same else None


def _report(network: GpuNetwork) -> dict[str, Any]:
    try:
        found = json.loads((network.folder / "engine_report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _build(
    network: GpuNetwork,
    needs: Needs,
    tool: Tool,
    options: Options,
    cache: Path | None,
    gpu: Gpu,
    progress: Progress,
) -> Outcome:
    begun = time.monotonic()
    ranges = profile(needs)
    shapes = [shape_of(needs.dims, shape) for shape in all_shapes(needs)]
    before = file_sha256(network.onnx)
    built = tool.build(Job(network.name, network.onnx, ranges, shapes, options, cache, progress))
    _check_built(network, built)
    seconds = time.monotonic() - begun
    passport = Passport(
        model=network.name,
        plan=passports.described(built.plan),
        onnx={"sha256": before},
        tensorrt=built.tensorrt,
        gpu=gpu,
        driver=driver_version(),
        profile=ranges,
        users=needs.users,
        buckets=tuple(needs.buckets),
        precision=built.precision,
        built_by=built.built_by,
        flags=options.flags(),
    )
    report = {"model": network.name, "seconds": round(seconds, 1), **layer_report(built)}
    progress(f"writing {PLAN}")
    swap_plan(network.folder, built.plan, passport, report)
    return Outcome(network.name, network.folder, True, seconds, passport, report)


def _check_built(network: GpuNetwork, built: Built) -> None:
    """Refuse a plan whose tensors are not those of the config, or which rounds what must be FP32.

    Raises:
        EngineError: naming the tensor or the layer.
    """
    rebuild = f"build the repository again, so that {ONNX} and config.pbtxt are of one build"
    for tensor, kind in network.types.items():
        found = built.types.get(tensor, "missing") if built.types else kind
        if found != kind:
            message = f"the plan's tensor '{tensor}' is {found}, and config.pbtxt says {kind}"
            raise EngineError(network.name, message, rebuild)
    if built.inspected is None:
        return
    for layer, kernel in spoiled_fp32(layers_of(built.inspected), built.wanted_fp32):
        message = f"layer {layer} must compute in FP32, but TensorRT chose the FP16 kernel {kernel}"
        hint = "use TensorRT 10 or newer, whose networks are strongly typed, and report this"
        raise EngineError(network.name, message, hint)
