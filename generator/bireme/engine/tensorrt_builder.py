"""ONNX → plan through the Python package `tensorrt`, 8.6 to 11.

How types are imposed differs by version: 8.6 builds weakly typed networks, where FP16 is a permission and a
type is obeyed only as a constraint of a layer; 10 has strongly typed networks beside them; 11 nothing else,
and no flags for it. Checked on 8.6.0; the branches for 10 and 11 are written from NVIDIA's documentation.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from bireme.engine.builder_log import (
    build_failed,
    parse_failed,
    short_of_workspace,
    told_warnings,
    workspace_error,
)
from bireme.engine.onnx_nodes import read_nodes
from bireme.engine.options import Built, Job
from bireme.engine.selfcheck import check_engine
from bireme.engine.tensorrt_log import log_of
from bireme.engine.timing_cache import read_timing_cache, write_timing_cache
from bireme.engine.whole import as_one
from bireme.errors import EngineError
from bireme_runtime.passport import Precision

__all__ = ["build", "major"]

_MIB = 1 << 20
_TYPES = {"FLOAT": "FP32", "HALF": "FP16"}  # to Triton's names; the others are called the same


def major(trt: ModuleType) -> int:
    """The first number of its version: 8, 10, 11."""
    return int(trt.__version__.split(".")[0])


def build(job: Job, trt: ModuleType) -> Built:
    """Build one plan on the GPU that is current, and check that it runs.

    Args:
        job: what to build.
        trt: the package `tensorrt`.

    Raises:
        EngineError: the ONNX holds something TensorRT lacks, there is no plan for it within the limits, the
            GPU's memory is exhausted, or the plan does what it must not.
    """
    log = log_of(trt)
    log.begin(job.progress)
    try:
        builder = trt.Builder(log)
    except TypeError as error:  # what the bindings make of "CUDA initialization failure"
        raise EngineError(
            job.model, f"TensorRT finds no GPU: {_last(log.errors, error)}", "see what nvidia-smi says"
        ) from None
    network = builder.create_network(_network_flags(trt))
    _parse(job, trt, network, log)
    config = builder.create_builder_config()
    precision, wanted = _set_precision(job, trt, network, config)
    _set_options(job, trt, config)
    _set_profile(job, builder, config)
    _watch(job, trt, config)
    cache = _open_timing_cache(job, config, log)
    job.progress("building")
    serialized = builder.build_serialized_network(network, config)
    workspace = job.options.workspace_mb
    if serialized is None:
        raise build_failed(job.model, log.errors, log.lines, workspace)
    short = short_of_workspace(log.lines) if workspace is not None else None
    if short is not None and workspace is not None:
        raise workspace_error(job.model, short, workspace)
    plan = bytes(serialized)
    if cache is not None and job.timing_cache is not None:
        write_timing_cache(job.timing_cache, bytes(cache.serialize()), job.progress)
    return _examine(job, trt, log, plan, precision, wanted)


def _network_flags(trt: ModuleType) -> int:
    flags = trt.NetworkDefinitionCreationFlag
    if major(trt) >= 11:
        return 0
    if major(trt) >= 10:
        return 1 << int(flags.STRONGLY_TYPED)
    return 1 << int(flags.EXPLICIT_BATCH)


def _parse(job: Job, trt: ModuleType, network: Any, log: Any) -> None:
    job.progress("reading the ONNX")
    parser = trt.OnnxParser(network, log)
    try:
        content = job.onnx.read_bytes()
    except OSError as error:
        hint = "build the repository again: bireme build"
        raise EngineError(str(job.onnx), f"cannot be read: {error.strerror}", hint) from None
    if parser.parse(as_one(content) if major(trt) < 10 else content):
        return
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    # A missing importer is tried as a plugin first: then only the log names the op.
    importer = next((line for line in reversed(log.lines) if "No importer registered for op" in line), "")
    if not errors:
        raise parse_failed(job.model, "", "", importer or _last(log.errors, ""), trt.__version__)
    first = errors[0]
    nodes = read_nodes(content)
    index = first.node()
    node, op = nodes.at(index)
    if hasattr(first, "node_name"):  # 10
        node, op = first.node_name() or node, first.node_operator() or op
    plugin = "lugin" in f"{first.desc()}{first.func()}"
    reason = importer if plugin and importer else first.desc()
    raise parse_failed(
        job.model, node or (f"number {index}" if index >= 0 else ""), op, reason, trt.__version__
    )


def _set_precision(job: Job, trt: ModuleType, network: Any, config: Any) -> tuple[Precision, tuple[str, ...]]:
    """Impose the types in the ONNX; how, and what must be FP32."""
    if hasattr(trt.BuilderFlag, "TF32") and not job.options.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    nodes = read_nodes(job.onnx.read_bytes())
    if major(trt) >= 10:
        return "strongly_typed", nodes.fp32
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    kinds = {layer.get_output(i).dtype for layer in layers for i in range(layer.num_outputs)}
    kinds |= {network.get_input(i).dtype for i in range(network.num_inputs)}
    if trt.float16 not in kinds:
        return "fp32", ()
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    # Casts have their type in themselves; the others are no arithmetic.
    free = {getattr(trt.LayerType, name, None) for name in ("CONSTANT", "SHAPE", "CAST", "IDENTITY")}
    wanted = []
    for layer in layers:
        outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
        if layer.type in free or {output.dtype for output in outputs} - {trt.float32, trt.float16}:
            continue
        full = nodes.is_full(layer.name, [output.name for output in outputs])
        if full is None and layer.type == trt.LayerType.SHUFFLE:
            # The parser's own: it shapes a weight or a bias. Held to FP32, the weight is none to the kernels
            # of a matrix product any more, and the builder looks for others (minutes, on an H200).
            continue
        if full is None:  # no node of the ONNX: TensorRT's own inference of types
            full = {output.dtype for output in outputs} == {trt.float32}
        if not full:
            continue
        layer.precision = trt.float32
        for index in range(len(outputs)):  # else what lies between two layers of FP32 may be stored as FP16
            layer.set_output_type(index, trt.float32)
        wanted.append(layer.name)
    return "obey", tuple(dict.fromkeys([*wanted, *nodes.fp32]))


def _set_options(job: Job, trt: ModuleType, config: Any) -> None:
    options = job.options
    if options.workspace_mb is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_mb * _MIB)
    if options.level is not None:
        config.builder_optimization_level = options.level
    feature = getattr(getattr(trt, "PreviewFeature", None), "PROFILE_SHARING_0806", None)
    if feature is not None and major(trt) < 10:  # later the rule: several contexts share the one profile
        config.set_preview_feature(feature, True)
    # The report needs it; it changes names in the plan, not kernels.
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED


def _set_profile(job: Job, builder: Any, config: Any) -> None:
    profile = builder.create_optimization_profile()
    for name, shapes in job.profile.items():
        profile.set_shape(name, shapes.min, shapes.opt, shapes.max)
    if config.add_optimization_profile(profile) < 0:
        raise EngineError(job.model, "TensorRT refuses the optimization profile", "this is a fault of bireme")


def _watch(job: Job, trt: ModuleType, config: Any) -> None:
    """Progress of the builder, where TensorRT tells it (10)."""
    if not hasattr(trt, "IProgressMonitor"):
        return

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:  # noqa: ARG002
            self._steps[phase_name] = num_steps
            job.progress(phase_name)

        def phase_finish(self, phase_name: str) -> None:
            self._steps.pop(phase_name, None)

        def step_complete(self, phase_name: str, step: int) -> bool:
            job.progress(f"{phase_name}: {step + 1} of {self._steps.get(phase_name, 0)}")
            return True

    config.progress_monitor = Monitor()


def _open_timing_cache(job: Job, config: Any, log: Any) -> Any:
    """The timings of earlier builds, or none of them if they do not fit here; None: not wanted."""
    if job.timing_cache is None:
        return None
    cache = config.create_timing_cache(read_timing_cache(job.timing_cache))
    if cache is None or not config.set_timing_cache(cache, False):
        job.progress("the timing cache does not fit here: starting another")
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, False)
    log.errors.clear()  # a cache of another GPU is an error to TensorRT, not to us
    return cache


def _examine(
    job: Job, trt: ModuleType, log: Any, plan: bytes, precision: Precision, wanted: tuple[str, ...]
) -> Built:
    """Load the plan as a server would, look at it, run it."""
    job.progress("loading the plan")
    log.errors.clear()
    engine = trt.Runtime(log).deserialize_cuda_engine(plan)
    if engine is None:
        raise build_failed(job.model, log.errors, log.lines, job.options.workspace_mb)
    context = engine.create_execution_context()
    if context is None:
        raise build_failed(job.model, log.errors, log.lines, job.options.workspace_mb)
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    types = {name: engine.get_tensor_dtype(name).name for name in names}
    largest = {name: shapes.max for name, shapes in job.profile.items()}
    inspected = _inspect(trt, engine, context, largest)
    warnings = list(told_warnings(log.warnings))
    warnings += check_engine(job, engine, context)
    return Built(
        plan=plan,
        tensorrt=trt.__version__,
        precision=precision,
        built_by="tensorrt python",
        wanted_fp32=wanted,
        warnings=tuple(warnings),
        types={name: _TYPES.get(kind, kind) for name, kind in types.items()},
        inspected=inspected,
        device_memory=_device_memory(engine),
    )


def _device_memory(engine: Any) -> int | None:
    for name in ("device_memory_size_v2", "device_memory_size"):
        if hasattr(engine, name):
            return int(getattr(engine, name))
    return None


def _inspect(
    trt: ModuleType, engine: Any, context: Any, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any] | None:
    """The layers as TensorRT describes them; None where it gives no JSON: a report is no reason to fail."""
    for name, shape in shapes.items():
        context.set_input_shape(name, shape)
    inspector = engine.create_engine_inspector()
    with contextlib.suppress(AttributeError, TypeError):
        inspector.execution_context = context
    try:
        # Names of fused layers may hold line ends.
        found = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON), strict=False)
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _last(errors: list[str], otherwise: object) -> str:
    return errors[-1] if errors else str(otherwise)
