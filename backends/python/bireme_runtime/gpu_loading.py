"""From a version folder and its config to a network that is ready on the GPU, or why that cannot be."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .cuda import Cuda, CudaError, no_memory
from .dense_gpu import DenseGpu
from .gpu_batches import Sizes
from .gpu_shapes import Network, Shape, parse_graphs
from .lanes import Lane
from .passport import PLAN, Needs
from .tensorrt_engine import Engine, version
from .timeline import Timeline

__all__ = ["open_dense"]

_MB = 1 << 20
_TYPES = {
    "TYPE_FP16": "float16",
    "TYPE_FP32": "float32",
    "TYPE_INT32": "int32",
    "TYPE_INT64": "int64",
    "TYPE_INT8": "int8",
    "TYPE_UINT8": "uint8",
    "TYPE_BOOL": "bool",
}
#: Microseconds to wait awake for a result before the thread goes to sleep, unless BIREME_SPIN says it.
_SPIN = 50
_LANES = 2
Say = Callable[[str], None]


def open_dense(
    folder: Path, model_config: Mapping[str, Any], device: int, instance: str, info: Say, verbose: Say
) -> DenseGpu:
    """Load a plan, and capture its graphs.

    The config's parameters: `buckets` "64,128" (not without candidates), `listwise` where lists are whole,
    `graphs` "1x64,2x64" or "1,2" (shapes to capture; none: plain execution), `lanes` "2", `background` "on".
    The environment: BIREME_GRAPHS=off runs without graphs; BIREME_BACKGROUND (on, off) and BIREME_LANES win
    over the parameters; BIREME_SPIN is microseconds; BIREME_TIMELINE see `timeline`.

    Args:
        folder: a version folder with model.plan and its passport.
        model_config: as Triton hands it over.
        device: number of the GPU.
        instance: the instance's name, for the log.
        info: gets what is worth a line in any log.
        verbose: gets what is not.

    Raises:
        ValueError: it cannot be served; with what to do.
    """
    try:
        cuda = Cuda(device)
        free, _ = cuda.memory()
    except CudaError as error:
        raise _no_start(error, folder, device) from error
    engine = None
    try:
        needs = _needs(model_config)
        engine = Engine.open(folder, cuda, needs, lambda text: verbose(f"{instance}: {text}"))
        _check_types(engine.network, model_config, folder)
        return _prepared(cuda, engine, model_config, needs, instance, info, verbose)
    except (MemoryError, RuntimeError) as error:
        raise _refused(error, folder, model_config, cuda, engine, free) from error


def _no_start(error: CudaError, folder: Path, device: int) -> ValueError:
    """What to say when the GPU does not even let a process begin; it may have no memory left for that."""
    if not no_memory(error):
        return ValueError(f"GPU {device} cannot be used: {error}; see what nvidia-smi says")
    return ValueError(
        f"GPU {device} has too little memory for {folder.parent.name}, even to begin ({error}); lower"
        " dnn_instances in the build spec, or end what else is on the GPU: nvidia-smi shows it"
    )


def _refused(
    error: Exception,
    folder: Path,
    model_config: Mapping[str, Any],
    cuda: Cuda,
    engine: Engine | None,
    free: int,
) -> ValueError:
    """What to say when the GPU gave up; `free` bytes of its memory were free before."""
    if not isinstance(error, MemoryError) and not no_memory(error):
        return ValueError(f"{folder / PLAN} does not run on GPU {cuda.device} ({cuda.name}): {error}")
    left, total = cuda.memory()
    parts = f"{(folder / PLAN).stat().st_size / _MB:,.0f} MB for the plan"
    if engine is not None:
        parts += f", {engine.context_bytes / _MB:,.0f} MB for each of {_lanes(model_config)} lanes"
    return ValueError(
        f"GPU {cuda.device} ({cuda.name}) has too little memory for {folder.parent.name}:"
        f" {free / _MB:,.0f} MB of {total / _MB:,.0f} MB were free, {left / _MB:,.0f} MB when it failed"
        f" ({error}); an instance needs {parts}, and its graphs and buffers; lower"
        " dnn_instances, graphs or max_users in the build spec, or end what else is on the GPU"
    )


def _prepared(
    cuda: Cuda,
    engine: Engine,
    model_config: Mapping[str, Any],
    needs: Needs,
    instance: str,
    info: Say,
    verbose: Say,
) -> DenseGpu:
    network, buckets = engine.network, list(needs.buckets)
    graphs = [] if _environment("BIREME_GRAPHS") == "off" else _graphs(model_config, needs)
    count, timeline = _lanes(model_config), Timeline.wanted(cuda, instance)
    spin = float(_environment("BIREME_SPIN") or _SPIN) * 1e-6
    most = min(engine.most_users, needs.users)
    largest = Shape(most, buckets[-1] if buckets else 0)
    began, (before, _) = time.perf_counter(), cuda.memory()
    lanes: list[Lane] = []
    try:
        for number in range(count):
            lane = Lane(number, cuda, engine.context, network, largest, timeline, spin)
            lanes.append(lane)
            lane.capture(graphs, lambda shape: verbose(f"{instance}: captured CUDA graph, {shape}"))
    except BaseException:
        for lane in lanes:
            lane.close()
        raise
    seconds, memory = time.perf_counter() - began, before - cuda.memory()[0]
    held = f"{len(graphs)} CUDA graphs each, captured" if graphs else "no CUDA graphs, ready"
    info(
        f"{instance}: TensorRT {version()} on {cuda.name} (GPU {cuda.device}), {count}"
        f" {'lane' if count == 1 else 'lanes'}, {held} in {seconds:.1f} s, {max(memory, 0) / _MB:.0f} MB"
    )

    def launched(shape: Shape, users: int, graph: bool) -> None:
        if graph:
            verbose(f"{instance}: launching CUDA graph, {shape}, for {users} users")
        else:
            verbose(f"{instance}: plain execution, {shape}")

    return DenseGpu(
        cuda,
        network,
        lanes,
        Sizes.of(graphs, most),
        buckets,
        listwise=_parameter(model_config, "listwise") is not None,
        launched=launched if _told_of_launches() else None,
        background=(_environment("BIREME_BACKGROUND") or _parameter(model_config, "background")) == "on",
        timeline=timeline,
    )


def _told_of_launches() -> bool:
    """Whether the server logs verbosely.

    A line of the log costs a message to the server's process whether it is logged or not, which is much
    beside a launch; the backend does not tell, so that the server's command line is asked.
    """
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name == "--log-verbose":
            return (value or following) not in ("", "0")
    return False


def _environment(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


def _parameter(model_config: Mapping[str, Any], name: str) -> str | None:
    entry = model_config.get("parameters", {}).get(name)
    return None if entry is None else str(entry["string_value"])


def _lanes(model_config: Mapping[str, Any]) -> int:
    text = _environment("BIREME_LANES") or _parameter(model_config, "lanes") or str(_LANES)
    if not text.isdecimal() or not 1 <= int(text) <= 8:
        raise ValueError(f"parameter lanes: {text!r} is not a number from 1 to 8")
    return int(text)


def _needs(model_config: Mapping[str, Any]) -> Needs:
    dims = {entry["name"]: [int(size) for size in entry["dims"]] for entry in model_config["input"]}
    listed = _parameter(model_config, "buckets") if "items" in dims else None
    buckets = sorted(int(bucket) for bucket in listed.split(",")) if listed else []
    if "items" in dims and not buckets:
        raise ValueError(
            "parameter buckets is missing in config.pbtxt; build the repository anew: bireme build"
        )
    return Needs(dims, max(int(model_config.get("max_batch_size", 1)), 1), buckets)


def _graphs(model_config: Mapping[str, Any], needs: Needs) -> list[Shape]:
    shapes = parse_graphs(_parameter(model_config, "graphs") or "")
    buckets = set(needs.buckets) or {0}
    for shape in shapes:
        if shape.users > needs.users or shape.bucket not in buckets:
            raise ValueError(
                f"parameter graphs: {shape} is no shape of this model, which has up to {needs.users} users"
                + (f" and the buckets {', '.join(map(str, needs.buckets))}" if needs.buckets else "")
            )
    return sorted(set(shapes))


def _check_types(network: Network, model_config: Mapping[str, Any], folder: Path) -> None:
    """Whether config and plan agree on the tensors: what is handed over is copied as it is."""
    for kind, tensors in (("input", network.inputs), ("output", network.outputs)):
        said = {entry["name"]: _TYPES.get(entry["data_type"], "?") for entry in model_config[kind]}
        found = {tensor.name: np.dtype(tensor.dtype).name for tensor in tensors}
        if said != found:
            raise ValueError(
                f"{folder / PLAN} has the {kind}s {found}, config.pbtxt {said}; build both anew:"
                " bireme build, then bireme engine"
            )
