"""GPU, driver, TensorRT, plans, MPS; where nothing needs a GPU, all of it is well."""

from __future__ import annotations

from collections.abc import Iterator

from bireme.doctor.facts import Facts
from bireme.doctor.finding import Check, Found, Severity, ok

__all__ = ["GPU_CHECKS"]

_CPU_ONLY = "to serve without a GPU: bireme build --target cpu"


def _gpu(facts: Facts) -> Iterator[Found]:
    graphics = facts.graphics
    needed = [model.name for model in facts.models if model.gpu]
    if graphics.gpus:
        names = ", ".join(
            f"{gpu.name} ({gpu.compute_capability}, {gpu.memory_mb} MiB)" for gpu in graphics.gpus
        )
        yield ok(f"{names}; driver {graphics.driver or 'unknown'}")
        return
    severity: Severity = "error" if needed else "warning"
    why = f"{', '.join(needed)} would not load" if needed else "nothing can run on a GPU"
    if graphics.hidden is not None and (graphics.driver or graphics.devices):
        found = f"CUDA_VISIBLE_DEVICES={graphics.hidden!r} leaves no GPU"
        yield Found(severity, found, why, "unset CUDA_VISIBLE_DEVICES, or name a GPU that is there")
    elif graphics.driver:
        found = f"driver {graphics.driver}, but CUDA shows no GPU"
        remedy = "docker run --gpus all; Kubernetes: nvidia.com/gpu in limits; a dead MPS daemon: D19"
        yield Found(severity, found, why, remedy)
    elif graphics.devices:
        found = f"{', '.join(graphics.devices)} are there, but no driver library"
        yield Found(severity, found, why, "start the container by NVIDIA's container toolkit (--gpus all)")
    elif needed:
        yield Found("error", "no GPU and no driver", why, _CPU_ONLY)
    else:
        yield ok("none, and none is needed" if facts.repository is not None else "none")


def _tensorrt(facts: Facts) -> Iterator[Found]:
    graphics = facts.graphics
    python = [model.name for model in facts.models if model.gpu and model.python]
    plain = [model.name for model in facts.models if model.gpu and not model.python]
    if python and graphics.package is None:
        yield Found(
            "error",
            "the server's Python has no package tensorrt",
            f"{', '.join(python)} would not load",
            f"{facts.python.command} -m pip install tensorrt, in the version that built the plans",
        )
    if plain and graphics.library is None:
        yield Found(
            "error",
            "the loader finds no libnvinfer",
            f"{', '.join(plain)} would not load: Triton's TensorRT backend needs it",
            "serve in NVIDIA's tritonserver container, or bireme build --target gpu-python",
        )
    if (python and graphics.package is None) or (plain and graphics.library is None):
        return
    found = []
    if graphics.package is not None:
        found.append(f"Python package {graphics.package}")
    if graphics.library is not None:
        found.append(f"library {graphics.library}")
    yield ok(", ".join(found) or "none, and none is needed")


def _plans(facts: Facts) -> Iterator[Found]:
    repository = facts.repository
    if repository is None:
        yield ok("not looked at without a repository")
        return
    for refusal in repository.refused:
        why = f"{refusal.where} would be refused by `bireme serve`"
        yield Found("error", refusal.message, why, refusal.hint)
    if not repository.refused:
        names = ", ".join(repository.plans)
        yield ok(f"{names}: fit what is known of this machine" if names else "the repository has none")


def _mps(facts: Facts) -> Iterator[Found]:
    mps = facts.mps
    sharing = [m.name for m in facts.models if m.gpu and m.python and m.instances > len(facts.graphics.gpus)]
    start = "`bireme serve --mps` runs a daemon of its own"
    if mps.given and not mps.pipe:
        yield Found(
            "error" if facts.graphics.devices else "warning",
            f"CUDA_MPS_PIPE_DIRECTORY={mps.directory} holds no daemon's pipe",
            "with a daemon elsewhere in use, CUDA fails to start; without, each process uses the GPU alone",
            f"mount the daemon's directory there, or unset the variable; {start}",
        )
    elif mps.pipe and mps.answers is False:
        yield Found(
            "error",
            f"the MPS daemon of {mps.directory} does not answer",
            "CUDA programs that find its pipe fail to start, or hang",
            f"echo quit | nvidia-cuda-mps-control, remove {mps.directory}; {start}",
        )
    elif mps.given and mps.pipe and facts.graphics.devices and not facts.graphics.gpus and not mps.shared:
        yield Found(
            "error",
            f"the daemon's pipe is in {mps.directory}, its cuda.shm.* are not in /dev/shm, CUDA shows no GPU",
            "daemon and clients meet in one /dev/shm: a volume that the pod mounts there hides the daemon's",
            "mount nothing on /dev/shm in pods that share a GPU by MPS (k8s-device-plugin#805)",
        )
    elif mps.pipe and mps.owner not in (-1, 0, mps.user):
        yield Found(
            "warning",
            f"the MPS daemon of {mps.directory} is user {mps.owner}'s, this is user {mps.user}",
            "a daemon serves one user at a time; others wait",
            "run server and daemon as one user",
        )
    elif mps.pipe:
        yield ok(f"a daemon, pipe in {mps.directory}")
    elif facts.graphics.exclusive:
        yield Found(
            "warning",
            "the GPU is in exclusive-process mode, and no MPS daemon is here",
            "a second process cannot use it: instances of a gpu-python network fail to load",
            f"{start}; or nvidia-smi -c DEFAULT (as root)",
        )
    elif sharing and facts.graphics.gpus:
        yield Found(
            "note",
            f"no daemon; {', '.join(sharing)} has several processes a GPU",
            "without it they take turns; measured with it: 1.1 to 1.56 times the requests (docs/gpu.md)",
            start if mps.command else "nvidia-cuda-mps-control comes with NVIDIA's driver; then serve --mps",
        )
    else:
        yield ok("no daemon, and none is needed")


GPU_CHECKS = (
    Check("D16", "GPU and driver", _gpu),
    Check("D17", "TensorRT", _tensorrt),
    Check("D18", "TensorRT plans", _plans),
    Check("D19", "MPS", _mps),
)
