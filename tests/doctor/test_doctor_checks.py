"""Every check with facts that are well and facts that are not, and docs/doctor.md against them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bireme.doctor.checks import CHECKS
from bireme.doctor.checks_host import size_text
from bireme.doctor.facts import (
    Allocator,
    Analyzer,
    Cores,
    Facts,
    Graphics,
    Kernel,
    Limits,
    Mps,
    Pages,
    Port,
    Python,
    Region,
    Server,
    SharedMemory,
)
from bireme.doctor.facts_repository import MIB, Model, Refusal, Repository
from bireme.doctor.finding import SEVERITIES, Finding, examine
from bireme_runtime.passport import Gpu

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
H200 = Gpu("NVIDIA H200", "9.0", 143771)
REFUSAL = Refusal("tritonserver", "is not installed", "pip install 'bireme[embedded]'")
GIB = 1 << 30


def with_models(*models: Model, **others: object) -> Facts:
    built = {key: others.pop(key) for key in ("cores_built", "plans", "refused") if key in others}
    repository = Repository(
        "repo",
        models,
        built.get("cores_built", 0),  # type: ignore[arg-type]
        built.get("plans", ()),  # type: ignore[arg-type]
        built.get("refused", ()),  # type: ignore[arg-type]
    )
    return Facts(repository=repository, **others)  # type: ignore[arg-type]


DNN = Model("ctr_dnn", gpu=True, instances=4)
PLAN = Model("ctr_dnn", python=False, gpu=True, instances=2, region=0)
SPLIT = Cores(frozenset(range(8)), 8, {0: frozenset(range(4)), 1: frozenset(range(4, 8))})
GPU = Graphics((H200,), ("/dev/nvidia0",), "580.1", None, None, "8.6.0")

#: (code, facts, severity, part of what is found or of the remedy)
CASES = [
    ("D01", Facts(), "ok", "embedded: 2.51.0"),
    ("D01", Facts(Server(refusal=REFUSAL)), "error", "pip install 'bireme[embedded]'"),
    ("D01", Facts(Server("system", "/opt/t", "2.60.0")), "note", "2.60.0"),
    ("D01", Facts(Server("named", "/opt/t", "")), "note", "version unknown"),
    ("D02", Facts(), "ok", "3.11, as the stub's"),
    ("D02", Facts(Server(stub="")), "ok", "unknown"),
    ("D02", Facts(Server(refusal=REFUSAL)), "ok", "without a server"),
    ("D02", Facts(Server(stub="3.10")), "error", "put a Python 3.10 first on PATH"),
    ("D02", Facts(python=Python("", "", "")), "error", "no python3"),
    ("D02", Facts(python=Python("/x/python3", "", "")), "error", "/x/python3 does not run"),
    ("D03", Facts(), "ok", "1.26.4"),
    ("D03", Facts(python=Python("/x/python3", "", "")), "ok", "not looked at"),
    ("D03", Facts(python=Python(numpy="2.1.0")), "error", "pip install 'numpy<2'"),
    ("D03", Facts(Server("system"), Python(numpy="2.1.0")), "warning", "numpy 2.1.0"),
    ("D03", Facts(python=Python(numpy="")), "error", "has no numpy"),
    ("D04", Facts(), "ok", "without a repository"),
    ("D04", with_models(Model("a")), "ok", "no model needs it"),
    ("D04", with_models(Model("a", onnxruntime=True)), "ok", "for a"),
    (
        "D04",
        with_models(Model("a", onnxruntime=True), python=Python(packages=frozenset())),
        "error",
        "install onnxruntime",
    ),
    ("D05", Facts(), "ok", "avx2"),
    ("D05", Facts(kernel=Kernel(False, "numpy kernels: there is no x.so")), "warning", "bireme kernel"),
    ("D05", with_models(Model("a", kernel="numpy kernels: damaged")), "warning", "a: numpy kernels"),
    ("D06", Facts(), "ok", "preloaded"),
    ("D06", Facts(allocator=Allocator("the system's", True)), "note", "libjemalloc2"),
    ("D06", Facts(allocator=Allocator("", False, REFUSAL)), "error", "is not installed"),
    ("D07", Facts(), "ok", "/usr/local/bin/perf_analyzer"),
    ("D07", Facts(analyzer=Analyzer("")), "note", "not on PATH"),
    ("D07", Facts(analyzer=Analyzer("", True, (), "2.36")), "note", "0.1.0 is installed, which is empty"),
    ("D07", Facts(analyzer=Analyzer("/p", missing=("libb64.so.0d",))), "note", "libb64-0d"),
    ("D07", Facts(analyzer=Analyzer("/p", missing=("libcudart.so.12",))), "note", "nvidia-cuda-runtime-cu12"),
    ("D07", Facts(analyzer=Analyzer("/p", False, ("GLIBC_2.38",), "2.36")), "note", "this glibc is 2.36"),
    ("D07", Facts(analyzer=Analyzer("/p", missing=("libx.so",))), "note", "install libx.so"),
    ("D08", Facts(), "ok", "free"),
    ("D08", Facts(ports=(Port(8001, 17, "tritonserver"),)), "warning", "tritonserver (process 17)"),
    ("D08", Facts(ports=(Port(8002),)), "warning", "cannot be seen"),
    ("D09", Facts(), "ok", "4.0 GiB of 4.0 GiB free"),
    ("D09", with_models(Model("a", region=3 * MIB, instances=2)), "ok", "may need 6 MiB"),
    ("D09", Facts(shared=SharedMemory(0, 0)), "error", "mount a tmpfs"),
    ("D09", Facts(shared=SharedMemory(64 * MIB, 64 * MIB)), "note", "a container's default"),
    ("D09", with_models(Model("a"), shared=SharedMemory(64 * MIB, 64 * MIB)), "ok", "may need 2 MiB"),
    (
        "D09",
        with_models(Model("a", region=30 * MIB, instances=4), shared=SharedMemory(GIB, 100 * MIB)),
        "warning",
        "may need 120 MiB for its largest batches",
    ),
    (
        "D09",
        with_models(Model("a", instances=4), DNN, PLAN, shared=SharedMemory(GIB, 7 * MIB)),
        "error",
        "needs 8 MiB to start",
    ),
    ("D10", Facts(), "ok", "none"),
    ("D10", Facts(shared=SharedMemory(stale=(Region("b", MIB),))), "note", "1 regions"),
    ("D10", Facts(shared=SharedMemory(foreign=(Region("t_1", MIB),))), "note", "rm /dev/shm/t_1"),
    ("D11", Facts(), "ok", "16.0 GiB available"),
    ("D11", with_models(Model("a", tables=(GIB,), instances=8)), "ok", "tables 1.0 GiB"),
    ("D11", with_models(Model("a", tables=(3 * GIB,)), available=2 * GIB), "error", "storage"),
    # Tables are mapped once, weights are each process's own.
    ("D11", with_models(Model("a", private=GIB, instances=4), available=3 * GIB), "error", "weights 4.0 GiB"),
    ("D11", with_models(Model("a", tables=(GIB,)), available=3 * GIB // 2), "note", "largest arena"),
    ("D12", Facts(), "ok", "gets them"),
    ("D12", with_models(Model("a", tables=(1024,)), pages=Pages(copy=False)), "ok", "no arena is large"),
    ("D12", Facts(pages=Pages(0, "", "", False)), "note", "no transparent huge pages"),
    ("D12", Facts(pages=Pages(2 * MIB, "never", "deny", False)), "note", "echo madvise"),
    (
        "D12",
        with_models(Model("a", tables=(GIB,)), pages=Pages(copy=False)),
        "note",
        "echo advise",
    ),
    ("D13", Facts(), "ok", "8 CPUs"),
    ("D13", with_models(Model("a", instances=2, threads=4), cores_built=8), "ok", "8 CPUs"),
    ("D13", with_models(Model("a"), cores_built=32), "warning", "built for 32"),
    ("D13", with_models(Model("a", instances=4, threads=4)), "warning", "16 threads"),
    ("D13", with_models(Model("a", gpu=True, instances=4, threads=4)), "ok", "8 CPUs"),
    ("D13", with_models(Model("a"), cores_built=2), "note", "built for 2"),
    ("D13", Facts(cores=replace(Cores(), usable=3)), "note", "3 of 8 CPUs by quota"),
    ("D14", Facts(), "ok", "one node"),
    ("D14", Facts(cores=SPLIT), "note", "numactl --cpunodebind=0"),
    ("D14", Facts(cores=replace(SPLIT, affinity=frozenset({5}))), "ok", "on node 1 of 2"),
    ("D15", Facts(), "ok", "nofile 65536"),
    ("D15", Facts(limits=Limits(nofile=-1)), "ok", "no core files"),
    ("D15", Facts(limits=Limits(nofile=1024)), "warning", "ulimit -n"),
    ("D15", Facts(limits=Limits(memlock=65536), graphics=GPU), "note", "memlock: 64 KiB"),
    ("D15", Facts(limits=Limits(memlock=65536)), "ok", "nofile"),
    ("D15", Facts(limits=Limits(core=-1)), "note", "core: unlimited"),
    ("D16", Facts(), "ok", "none"),
    ("D16", with_models(Model("a")), "ok", "none is needed"),
    ("D16", Facts(graphics=GPU), "ok", "NVIDIA H200 (9.0, 143771 MiB); driver 580.1"),
    ("D16", with_models(DNN), "error", "--target cpu"),
    ("D16", Facts(graphics=replace(GPU, gpus=())), "warning", "CUDA shows no GPU"),
    ("D16", with_models(DNN, graphics=replace(GPU, gpus=(), driver="")), "error", "container toolkit"),
    ("D16", Facts(graphics=replace(GPU, gpus=(), hidden="")), "warning", "unset CUDA_VISIBLE_DEVICES"),
    ("D17", Facts(), "ok", "none is needed"),
    ("D17", with_models(DNN, graphics=GPU), "ok", "Python package 8.6.0"),
    ("D17", with_models(DNN, graphics=replace(GPU, package=None)), "error", "pip install tensorrt"),
    ("D17", with_models(PLAN, graphics=GPU), "error", "no libnvinfer"),
    ("D17", with_models(PLAN, graphics=replace(GPU, library="10.4.0")), "ok", "library 10.4.0"),
    ("D18", Facts(), "ok", "without a repository"),
    ("D18", with_models(Model("a")), "ok", "has none"),
    ("D18", with_models(DNN, plans=("ctr_dnn",)), "ok", "ctr_dnn: fit"),
    ("D18", with_models(DNN, refused=(Refusal("ctr_dnn", "is truncated", "build"),)), "error", "truncated"),
    ("D19", Facts(), "ok", "none is needed"),
    ("D19", Facts(mps=Mps(True, pipe=True, owner=0, answers=True), graphics=GPU), "ok", "a daemon"),
    ("D19", Facts(mps=Mps(given=True, directory="/m")), "warning", "CUDA_MPS_PIPE_DIRECTORY=/m"),
    ("D19", Facts(mps=Mps(given=True), graphics=GPU), "error", "unset the variable"),
    ("D19", Facts(mps=Mps(True, pipe=True, answers=False)), "error", "does not answer"),
    ("D19", Facts(mps=Mps(pipe=True, owner=7, user=9)), "warning", "user 7's"),
    (
        "D19",
        Facts(mps=Mps(given=True, pipe=True), graphics=replace(GPU, gpus=())),
        "error",
        "mount nothing on /dev/shm",
    ),
    (
        "D19",
        Facts(mps=Mps(given=True, pipe=True, shared=True), graphics=replace(GPU, gpus=())),
        "ok",
        "a daemon",
    ),
    ("D19", Facts(graphics=replace(GPU, exclusive=True)), "warning", "exclusive-process"),
    ("D19", with_models(DNN, graphics=GPU), "note", "nvidia-cuda-mps-control comes"),
    ("D19", with_models(DNN, graphics=GPU, mps=Mps(True)), "note", "serve --mps"),
    ("D19", with_models(PLAN, graphics=GPU), "ok", "none is needed"),
]


def found(code: str, facts: Facts) -> list[Finding]:
    return [one for one in examine(CHECKS, facts) if one.code == code]


@pytest.mark.parametrize(("code", "facts", "severity", "part"), CASES)
def test_check(code: str, facts: Facts, severity: str, part: str) -> None:
    (one,) = found(code, facts)
    assert one.severity == severity
    assert part in f"{one.found} {one.remedy}"
    if severity == "ok":
        assert (one.why, one.remedy) == ("", "")
    else:
        assert one.why
        assert one.remedy


def test_every_check_has_cases_that_are_well_and_that_are_not() -> None:
    codes = [check.code for check in CHECKS]
    assert len(set(codes)) == len(codes)
    for code in codes:
        severities = {severity for case, _, severity, _ in CASES if case == code}
        assert len(severities - {"ok"}) == len(severities) - 1 > 0, code


def test_several_findings_of_one_check_are_all_told() -> None:
    limits = found("D15", Facts(limits=Limits(256, 0, -1), graphics=GPU))
    assert [one.severity for one in limits] == ["warning", "note", "note"]
    both = SharedMemory(stale=(Region("a", 1),), foreign=(Region("b", 1), Region("c", 1)))
    assert [one.found[:9] for one in found("D10", Facts(shared=both))] == ["1 regions", "2 regions"]
    held = found("D08", Facts(ports=(Port(8000), Port(8001))))
    assert ["--http 0" in held[0].remedy, "--grpc 0" in held[1].remedy] == [True, True]


def test_the_worst_comes_first() -> None:
    findings = examine(CHECKS, Facts(Server(refusal=REFUSAL), limits=Limits(256), analyzer=Analyzer("")))
    order = [SEVERITIES.index(one.severity) for one in findings]
    assert order == sorted(order)
    assert [one.code for one in findings[:3]] == ["D01", "D15", "D07"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 MiB"), (2048, "2 KiB"), (64 * MIB, "64 MiB"), (3 * GIB // 2, "1.5 GiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def test_docs_list_every_check_with_its_severities() -> None:
    rows = re.findall(r"^\| (D\d\d) \| ([^|]*) \| ([^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(code, about) for code, about, _ in rows] == [(check.code, check.about) for check in CHECKS]
    for code, _, text in rows:
        told = {word for word in ("error", "warning", "note") if re.search(rf"\b{word}: ", text)}
        shown = {severity for case, _, severity, _ in CASES if case == code} - {"ok"}
        assert told == shown, code
