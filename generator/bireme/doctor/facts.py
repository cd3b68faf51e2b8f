"""What is known of a host: gathered at the edge (gather*.py), looked at by the checks (checks_*.py).

Sizes are in bytes. Every default is that of a host on which nothing is wrong, so that a test names what it is
about and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bireme.doctor.facts_repository import Model, Refusal, Repository
from bireme_runtime.passport import Gpu

__all__ = [
    "Allocator",
    "Analyzer",
    "Cores",
    "Facts",
    "Graphics",
    "Kernel",
    "Limits",
    "Mps",
    "Pages",
    "Port",
    "Python",
    "Region",
    "Server",
    "SharedMemory",
]


@dataclass(frozen=True)
class Server:
    """The tritonserver that `bireme serve` would start.

    Args:
        kind: "named" by BIREME_TRITONSERVER, the "system"'s, or the "embedded" one.
        command: the binary.
        version: such as "2.51.0"; "": not known.
        stub: Python of its Python backend, such as "3.11"; "": not known.
        refusal: why there is none; the other fields say nothing then.
    """

    kind: Literal["named", "system", "embedded"] = "embedded"
    command: str = "/server/bin/tritonserver"
    version: str = "2.51.0"
    stub: str = "3.11"
    refusal: Refusal | None = None


@dataclass(frozen=True)
class Python:
    """The Python that the server's Python backend takes: the first `python3` on its PATH.

    Args:
        command: its path; "": there is none.
        minor: such as "3.11"; "": it does not answer.
        numpy: version; "": not installed.
        packages: which of onnxruntime and tensorrt it has.
    """

    command: str = "/venv/bin/python3"
    minor: str = "3.11"
    numpy: str = "1.26.4"
    packages: frozenset[str] = frozenset({"onnxruntime"})


@dataclass(frozen=True)
class Kernel:
    """This installation's copy of the C kernel: whether it loads, and the runtime's sentence about it."""

    loaded: bool = True
    about: str = "C kernel, variant avx2"


@dataclass(frozen=True)
class Region:
    """A file in /dev/shm that no process uses: its name and size."""

    name: str
    size: int


@dataclass(frozen=True)
class SharedMemory:
    """/dev/shm; size 0: there is none.

    Args:
        size: of the file system.
        free: of it.
        stale: regions of servers that bireme started and that are gone.
        foreign: regions of Triton's Python backend that no visible process names.
    """

    size: int = 4 << 30
    free: int = 4 << 30
    stale: tuple[Region, ...] = ()
    foreign: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Pages:
    """Transparent huge pages.

    Args:
        size: of one; 0: this kernel has none.
        enabled: what /sys says: always, madvise or never; "": unknown.
        shmem: the same for memory files: always, within_size, advise, never, deny or force.
        copy: whether a memory file made for the purpose did get huge pages, as an arena's copy would.
    """

    size: int = 2 << 20
    enabled: str = "madvise"
    shmem: str = "advise"
    copy: bool = True


@dataclass(frozen=True)
class Cores:
    """Processors.

    Args:
        affinity: numbers of the CPUs that this process may run on.
        usable: cores after the quota of the control group, rounded down.
        nodes: NUMA node → numbers of its CPUs; nodes without a CPU left out.
    """

    affinity: frozenset[int] = frozenset(range(8))
    usable: int = 8
    nodes: dict[int, frozenset[int]] = field(default_factory=lambda: {0: frozenset(range(8))})


@dataclass(frozen=True)
class Limits:
    """Soft limits of this process, which a server inherits; -1: unlimited."""

    nofile: int = 65536
    memlock: int = -1
    core: int = 0


@dataclass(frozen=True)
class Port:
    """A TCP port that somebody listens on; pid 0: a process that cannot be seen."""

    number: int
    pid: int = 0
    command: str = ""


@dataclass(frozen=True)
class Allocator:
    """What `bireme serve` would do about the allocator: `server.preload`'s line, or its refusal.

    Args:
        line: what is used, and why.
        missing: jemalloc is wanted as far as it is there, and it is not.
        refusal: why `bireme serve` would not start.
    """

    line: str = "allocator: /usr/lib/libjemalloc.so.2, preloaded"
    missing: bool = False
    refusal: Refusal | None = None


@dataclass(frozen=True)
class Analyzer:
    """perf_analyzer.

    Args:
        command: its path; "": none was found.
        placeholder: the package perf_analyzer 0.1.0 of PyPI is installed, which is empty.
        missing: what the loader does not find for it: libraries, versions of glibc.
        glibc: this machine's, such as "2.36".
    """

    command: str = "/usr/local/bin/perf_analyzer"
    placeholder: bool = False
    missing: tuple[str, ...] = ()
    glibc: str = "2.39"


@dataclass(frozen=True)
class Graphics:
    """GPUs and what belongs to them.

    Args:
        gpus: those that CUDA shows to this process.
        devices: names in /dev that NVIDIA's driver makes, for this process to open.
        driver: version of NVIDIA's driver; "": none.
        hidden: the value of CUDA_VISIBLE_DEVICES; None: not set.
        library: version of the libnvinfer that the loader finds; None: none.
        package: version of the server's Python package `tensorrt`; None: none.
        exclusive: some GPU is in exclusive-process mode.
    """

    gpus: tuple[Gpu, ...] = ()
    devices: tuple[str, ...] = ()
    driver: str = ""
    hidden: str | None = None
    library: str | None = None
    package: str | None = None
    exclusive: bool = False


@dataclass(frozen=True)
class Mps:
    """NVIDIA's MPS, as the environment says.

    Args:
        command: nvidia-cuda-mps-control is on PATH.
        directory: CUDA_MPS_PIPE_DIRECTORY, or its default.
        given: whether the environment names it.
        pipe: whether the directory holds the daemon's control pipe.
        owner: user id of that pipe; -1: unknown.
        user: ours.
        answers: whether the daemon answers; None: it could not be asked.
        shared: /dev/shm holds files of CUDA's, as the daemon's does.
    """

    command: bool = False
    directory: str = "/tmp/nvidia-mps"
    given: bool = False
    pipe: bool = False
    owner: int = -1
    user: int = 0
    answers: bool | None = None
    shared: bool = False


@dataclass(frozen=True)
class Facts:
    """Everything that the checks look at; repository None: none was named."""

    server: Server = Server()
    python: Python = Python()
    kernel: Kernel = Kernel()
    shared: SharedMemory = SharedMemory()
    available: int = 16 << 30
    pages: Pages = Pages()
    cores: Cores = field(default_factory=Cores)
    limits: Limits = Limits()
    ports: tuple[Port, ...] = ()
    allocator: Allocator = Allocator()
    analyzer: Analyzer = Analyzer()
    graphics: Graphics = Graphics()
    mps: Mps = Mps()
    repository: Repository | None = None

    @property
    def models(self) -> tuple[Model, ...]:
        """Those of the repository; none without one."""
        return self.repository.models if self.repository is not None else ()
