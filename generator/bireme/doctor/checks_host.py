"""The host: shared memory, memory, huge pages, cores, NUMA nodes, limits."""

from __future__ import annotations

from collections.abc import Iterator

from bireme.doctor.facts import Facts
from bireme.doctor.facts_repository import MIB
from bireme.doctor.finding import Check, Found, ok

__all__ = ["HOST_CHECKS", "size_text"]

#: What a container gets that does not ask for more.
DOCKER_DEFAULT = 64 * MIB
#: A Python instance's region at first.
FIRST = MIB
#: Descriptors: one a connection, some for each instance.
ENOUGH_FILES = 4096
#: As in `bireme_runtime.local_store`: a copy is made if this many times its size is available.
ROOM = 2
SMALLEST = 16 * MIB
_BIGGER = "docker run --shm-size=1g; Kubernetes: an emptyDir with medium Memory on /dev/shm"


def size_text(size: float) -> str:
    """A size in words, such as "64 MiB"."""
    if size >= 1 << 30:
        return f"{size / (1 << 30):.1f} GiB"
    return f"{size / MIB:.0f} MiB" if size >= MIB or not size else f"{size / 1024:.0f} KiB"


def _shared(facts: Facts) -> Iterator[Found]:
    shared = facts.shared
    first = sum(model.instances * FIRST for model in facts.models if model.python)
    need = sum(model.instances * model.region for model in facts.models)
    have = f"{size_text(shared.free)} of {size_text(shared.size)} free"
    if not shared.size:
        yield Found("error", "/dev/shm is missing", "Python models do not load", "mount a tmpfs there")
    elif first > shared.free:
        found = f"{have}; the repository needs {size_text(first)} to start"
        yield Found("error", found, "each Python instance has a region of it; the server ends", _BIGGER)
    elif need > shared.free:
        found = f"{have}; the repository may need {size_text(need)} for its largest batches"
        yield Found("warning", found, "tensors travel through it; when it is full, requests fail", _BIGGER)
    elif not facts.models and shared.size <= DOCKER_DEFAULT:
        remedy = f"see what it needs: bireme doctor -r REPOSITORY; {_BIGGER}"
        yield Found("note", f"{have}, a container's default", "large batches may need more", remedy)
    else:
        yield ok(have + (f"; the repository may need {size_text(need)}" if need else ""))


def _leftovers(facts: Facts) -> Iterator[Found]:
    stale, foreign = facts.shared.stale, facts.shared.foreign
    why = "they hold memory until they are removed"
    if stale:
        found = f"{len(stale)} regions of servers that are gone, {size_text(sum(r.size for r in stale))}"
        yield Found("note", found, why, "the next `bireme serve` removes them")
    if foreign:
        found = f"{len(foreign)} regions that no process here uses, {size_text(sum(r.size for r in foreign))}"
        remedy = f"unless another container shares /dev/shm: rm /dev/shm/{foreign[0].name}" + (
            " and the others of this kind" if len(foreign) > 1 else ""
        )
        yield Found("note", found, why, remedy)
    if not stale and not foreign:
        yield ok("none in /dev/shm")


def _memory(facts: Facts) -> Iterator[Found]:
    tables = [size for model in facts.models for size in model.tables]
    private = sum(model.instances * model.private for model in facts.models)
    need = sum(tables) + private
    have = f"{size_text(facts.available)} available"
    largest = max(tables, default=0)
    if facts.repository is None:
        yield ok(have)
    elif need > facts.available:
        yield Found(
            "error",
            f"{have}; tables (mapped once) have {size_text(sum(tables))}, weights {size_text(private)}",
            "what does not fit is read from the disk request by request, or the server is killed",
            "more memory, or fewer bytes a row: `storage` in the spec (docs/tables.md)",
        )
    elif largest >= SMALLEST and ROOM * largest > facts.available:
        yield Found(
            "note",
            f"{have}; the largest arena has {size_text(largest)}",
            f"without {ROOM} times that no copy in huge pages is made; the file is mapped instead",
            "more memory, where the gather is to be faster (docs/tables.md)",
        )
    else:
        yield ok(f"{have}; tables {size_text(sum(tables))}, weights {size_text(private)}")


def _huge_pages(facts: Facts) -> Iterator[Found]:
    pages = facts.pages
    why = "gathers out of tables of 1 GB are 1.8 times as fast in huge pages (docs/tables.md)"
    tables = [size for model in facts.models for size in model.tables]
    state = f"enabled: {pages.enabled or 'unknown'}, shmem_enabled: {pages.shmem or 'unknown'}"
    if facts.repository is not None and max(tables, default=0) < SMALLEST:
        yield ok(f"no arena is large enough to gain from them ({state})")
    elif not pages.size:
        yield Found("note", "this kernel has no transparent huge pages", why, "another kernel")
    elif not pages.copy:
        remedy = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled (on the host, as root)"
        if pages.enabled == "never":
            remedy += "; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        yield Found("note", f"a memory file gets none ({state})", why, remedy)
    else:
        yield ok(f"a memory file, as an arena's copy is, gets them ({state})")


def _cores(facts: Facts) -> Iterator[Found]:
    cores, repository = facts.cores, facts.repository
    allowed, usable = len(cores.affinity), cores.usable
    busy = sum(model.instances * model.threads for model in facts.models if not model.gpu)
    text = f"{usable} of {allowed} CPUs by quota" if usable < allowed else f"{usable} CPUs"
    again = f"build it for them: `cores: {usable}` in the spec (docs/instances.md)"
    if repository is not None and repository.cores > usable:
        why = "more busy processes than cores wait for each other, and a quota stops them all: P99 grows"
        yield Found("warning", f"{text}; the repository is built for {repository.cores}", why, again)
    # On one core the build itself makes two: they take turns.
    elif busy > max(2, usable):
        why = "they wait for each other, and a quota stops them all: P99 grows"
        yield Found("warning", f"{text}; CPU instances may keep {busy} threads busy", why, again)
    elif repository is not None and 0 < 2 * repository.cores <= usable:
        yield Found(
            "note", f"{text}; the repository is built for {repository.cores}", "cores lie idle", again
        )
    elif usable < allowed:
        yield Found(
            "note",
            text,
            "a quota lets threads run on all CPUs, then stops them until the period ends",
            "whole cores of one's own instead: docker --cpuset-cpus; Kubernetes: static CPU manager",
        )
    else:
        yield ok(text)


def _numa(facts: Facts) -> Iterator[Found]:
    nodes = facts.cores.nodes
    ours = sorted(node for node, cpus in nodes.items() if cpus & facts.cores.affinity)
    if len(ours) > 1:
        first = ours[0]
        yield Found(
            "note",
            f"this process may run on {len(ours)} of {len(nodes)} nodes",
            "tables lie on one of them, and reads from another take longer",
            f"a server a node: numactl --cpunodebind={first} --membind={first} bireme serve …; in a pod,"
            " which may not bind memory: kubelet's CPU and memory managers",
        )
    elif len(nodes) > 1:
        yield ok(f"on node {ours[0] if ours else '?'} of {len(nodes)}")
    else:
        yield ok("one node")


def _limits(facts: Facts) -> Iterator[Found]:
    limits, quiet = facts.limits, True
    if 0 <= limits.nofile < ENOUGH_FILES:
        quiet = False
        yield Found(
            "warning",
            f"nofile: {limits.nofile} open files",
            "a connection each and some an instance: at the limit, clients are refused",
            "ulimit -n 65536; docker run --ulimit nofile=65536",
        )
    if facts.graphics.gpus and limits.memlock >= 0:
        quiet = False
        yield Found(
            "note",
            f"memlock: {size_text(limits.memlock)}",
            "NVIDIA's containers ask for no limit on pinned memory",
            "ulimit -l unlimited; docker run --ulimit memlock=-1",
        )
    if limits.core != 0:
        quiet = False
        size = "unlimited" if limits.core < 0 else size_text(limits.core)
        yield Found(
            "note",
            f"core: {size}",
            "a crash may write all memory of a process to the disk, copies of tables as well",
            "ulimit -c 0, unless a crash is to be examined",
        )
    if quiet:
        yield ok(f"nofile {limits.nofile}, no core files")


HOST_CHECKS = (
    Check("D09", "/dev/shm", _shared),
    Check("D10", "leftovers", _leftovers),
    Check("D11", "memory", _memory),
    Check("D12", "huge pages", _huge_pages),
    Check("D13", "cores", _cores),
    Check("D14", "NUMA", _numa),
    Check("D15", "limits", _limits),
)
