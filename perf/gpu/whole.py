"""Beyond the network alone: the user's side once or not, the ensemble end to end, eager execution."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from baseline.repository import config_of
from bireme.server.locate import VARIABLE
from gpu.bench import Bench
from gpu.eager.repository import write_eager
from gpu.serving import Session, named_server, serve
from gpu.steps import NotHere
from gpu.throughput import Configuration, dense_server, sharing
from gpu.variants import set_instances, variant

__all__ = ["bottleneck", "eager", "end_to_end", "user_once"]

PYTHON, BACKENDS, PACKAGES = "BIREME_EAGER_PYTHON", "BIREME_EAGER_BACKENDS", "BIREME_EAGER_PACKAGES"
_BYTES = {"TYPE_FP16": 2, "TYPE_FP32": 4}


def user_once(bench: Bench, timeout: float) -> dict[str, Any]:
    """The network with the user's columns once a request, and with them repeated for every candidate.

    Returns:
        "on" and "off" → candidates → bytes to and from the GPU for a request, and time and throughput.
    """
    found: dict[str, Any] = {}
    for label, what in (("on", "network"), ("off", "flat")):
        chosen = Configuration(bench.sizes.instances)
        rows: dict[str, Any] = {}
        with dense_server(bench, what, f"user_once_{label}", chosen) as session:
            for candidates in bench.sizes.large:
                one, many = (
                    session.measure(bench.dense_load(what, candidates, clients=clients), candidates, timeout)
                    for clients in (1, bench.sizes.clients[0])
                )
                moved = bytes_moved(bench.repository(what), bench.model(what), candidates)
                rows[str(candidates)] = {**moved, "alone": one, "loaded": many}
        found[label] = rows
    return found


def bytes_moved(repository: Path, model: str, candidates: int) -> dict[str, int]:
    """Bytes of a request of one user that cross PCIe: its tensors, padded to their bucket."""
    from bireme_runtime.batching import bucket_for

    config = config_of(repository, f"{model}_dnn")
    buckets = [int(part) for part in config.parameters["buckets"].string_value.split(",")]
    bucket = bucket_for(candidates, buckets)
    values = config.input[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number

    def size(tensor: Any) -> int:
        count = 1
        for dim in tensor.dims:
            count *= bucket if dim == -1 else dim
        return count * _BYTES[values[tensor.data_type].name]

    return {
        "bucket": bucket,
        "bytes_in": sum(size(tensor) for tensor in config.input),
        "bytes_out": sum(size(tensor) for tensor in config.output),
    }


def end_to_end(bench: Bench, what: str, candidates: int, timeout: float, mps: bool = False) -> dict[str, Any]:
    """The emitted ensemble, raw features to scores: as it is, and with twice the feature processes.

    Args:
        bench: the check.
        what: "network" or "example".
        candidates: of a request.
        timeout: seconds for a load.
        mps: whether the network's processes share the GPU through MPS.
    """
    model, repository = bench.model(what), bench.repository(what)
    models = [f"{model}_preprocess", f"{model}_dnn", model]
    emitted = config_of(repository, models[0]).instance_group[0].count
    found: dict[str, Any] = {}
    for processes in (emitted, 2 * emitted):
        folder = bench.work / "repositories" / f"{what}_whole_{processes}"
        variant(repository, models[1:], folder)
        variant(repository, models[:1], folder.with_suffix(".part"), set_instances(processes))
        (folder.with_suffix(".part") / models[0]).rename(folder / models[0])
        log = bench.log(f"{folder.name}{'_mps' * mps}")
        with sharing(bench, mps) as environment, serve(folder, log, environment) as session:
            loads = []
            for clients in dict.fromkeys((1, *bench.sizes.clients)):
                before = {name: session.statistics(name) for name in models[:2]}
                load = bench.raw_load(what, candidates, clients=clients)
                measured = session.measure(load, candidates, timeout)
                after = {name: session.statistics(name) for name in models[:2]}
                measured["steps"] = {name: _per_request(before[name], after[name]) for name in before}
                counts = {name: config_of(folder, name).instance_group[0].count for name in models[:2]}
                measured["bottleneck"] = bottleneck(measured, counts)
                loads.append(measured)
        found[str(processes)] = {
            "preprocess": processes,
            "dnn": counts[models[1]],
            "mps": mps,
            "loads": loads,
        }
    return found


def eager(bench: Bench, whole: bool, timeout: float) -> dict[str, Any]:
    """The same network operator by operator with PyTorch in FP32: one instance, one stream.

    Args:
        bench: the check.
        whole: from raw features, all in one Python process, instead of the network alone.
        timeout: seconds for a load.
    """
    model, source = bench.model("network"), bench.repository("network")
    folder = bench.work / "repositories" / ("eager_whole" if whole else "eager")
    device = "cpu" if bench.rehearsal else "cuda"
    with _eager_server(bench.work) as environment:
        name = write_eager(source, model, folder, device, os.environ.get(PACKAGES, ""), whole)
        with serve(folder, bench.log(folder.name), environment) as session:
            rows = bench.sizes.base
            make = bench.raw_load if whole else bench.dense_load
            loads = []
            for clients in dict.fromkeys((1, *bench.sizes.clients)):
                load = make("network", rows, clients=clients)
                loads.append(_measure_as(session, load, name, rows, timeout))
            return {"loads": loads, "ready_s": session.took}


def bottleneck(measured: Mapping[str, Any], instances: Mapping[str, int]) -> str:
    """Which step holds the others up, and by what it shows.

    The one whose processes are busiest with requests; Triton counts the time in `execute`. A GPU that is
    nearly always busy is the cause behind a network that is.

    Args:
        measured: a measurement with `steps`.
        instances: model → its processes.
    """
    rate = measured["requests_per_s"]
    busy = {
        name: step["compute_us"] / max(1.0, step["merged"]) * rate / 1e6 / instances[name]
        for name, step in measured["steps"].items()
    }
    name = max(busy, key=lambda step: busy[step])
    waits = ", ".join(f"{step} {times['queue_us']:.0f} µs" for step, times in measured["steps"].items())
    gpu = measured.get("gpu_percent")
    text = f"{name}: its {instances[name]} instances are busy {min(1.0, busy[name]):.0%} of the time"
    return f"{text}; waiting for a step: {waits}" + (f"; GPU {gpu:.0f} %" if gpu is not None else "")


def _measure_as(session: Session, load: Any, name: str, rows: int, timeout: float) -> dict[str, Any]:
    import dataclasses

    return session.measure(dataclasses.replace(load, model=name), rows, timeout)


def _per_request(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Mean µs that a request waited for and spent in a step, and how many ran together."""
    first, last = before["inference_stats"], after["inference_stats"]
    count = max(1, int(last["success"]["count"]) - int(first["success"]["count"]))
    runs = max(1, int(after["execution_count"]) - int(before["execution_count"]))

    def mean(keys: Sequence[str]) -> float:
        total = sum(int(last[key]["ns"]) - int(first[key]["ns"]) for key in keys)
        return round(total / count / 1e3, 1)

    done = int(after["inference_count"]) - int(before["inference_count"])
    compute = mean(("compute_input", "compute_infer", "compute_output"))
    return {"queue_us": mean(("queue",)), "compute_us": compute, "merged": round(done / runs, 2)}


@contextlib.contextmanager
def _eager_server(work: Path) -> Iterator[dict[str, str]]:
    """Start servers with the Python that has PyTorch, and the stub that fits it; the environment for them."""
    missing = [name for name in (PYTHON, BACKENDS) if not os.environ.get(name)]
    if missing and os.environ.get(PACKAGES):
        yield {}  # the server's own Python takes PyTorch from there
        return
    if missing:
        raise NotHere(f"{', '.join(missing)} not set: which Python has PyTorch, and which stub fits it")
    python = Path(os.environ[PYTHON])
    environment = {
        "PATH": f"{python}:{os.environ['PATH']}",
        "PYTHONHOME": str(python.parent),
        "LD_LIBRARY_PATH": f"{python.parent / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}",
    }
    command = named_server(work / "eager_server", os.environ[BACKENDS])
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(command)
    try:
        yield environment
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
