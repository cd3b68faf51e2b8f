"""The server and what is around it: its Python, the kernel, jemalloc, perf_analyzer, ports."""

from __future__ import annotations

from collections.abc import Iterator

from bireme.doctor.facts import Facts
from bireme.doctor.finding import Check, Found, ok
from bireme.server.preload import INSTALL

__all__ = ["SERVER_CHECKS"]

#: The release that bireme's tests and measurements ran on.
MEASURED = "2.51.0"
_OPTIONS = {8000: "--http", 8001: "--grpc", 8002: "--metrics"}


def _server(facts: Facts) -> Iterator[Found]:
    server = facts.server
    if server.refusal is not None:
        refusal = server.refusal
        why = "`bireme serve` cannot start a server"
        yield Found("error", f"{refusal.where} {refusal.message}", why, refusal.hint)
    elif not server.version:
        why = f"what bireme knows of Triton was found with {MEASURED}"
        remedy = "ask it: its log names server_version; then run `bireme verify` on it"
        yield Found("note", f"{server.kind}: {server.command}, version unknown", why, remedy)
    elif server.version != MEASURED:
        why = f"what bireme knows of Triton was found with {MEASURED}"
        found = f"{server.kind}: {server.command}, {server.version}"
        yield Found("note", found, why, "run `bireme verify` on it before it gets traffic")
    else:
        yield ok(f"{server.kind}: {server.version}")


def _python(facts: Facts) -> Iterator[Found]:
    python, stub = facts.python, facts.server.stub
    if facts.server.refusal is not None:
        yield ok("not looked at without a server")
    elif not python.command:
        yield Found(
            "error", "no python3 on the server's PATH", "Python models do not load", "put one on PATH"
        )
    elif not python.minor:
        why = "the stub would start it, and Python models would not load"
        yield Found("error", f"{python.command} does not run", why, "put another python3 first on PATH")
    elif stub and stub != python.minor:
        yield Found(
            "error",
            f"{python.command} is {python.minor}; the server's stub is for {stub}",
            "a stub loads compiled packages of its own Python minor only",
            f"put a Python {stub} first on PATH, with numpy in it",
        )
    else:
        yield ok(f"Python {python.minor}" + (", as the stub's" if stub else ", stub's unknown"))


def _numpy(facts: Facts) -> Iterator[Found]:
    python = facts.python
    major = python.numpy.split(".")[0]
    if not python.minor or facts.server.refusal is not None:
        yield ok("not looked at without the server's Python")
    elif not python.numpy:
        yield Found(
            "error",
            f"{python.command} has no numpy",
            "the Python backend needs it",
            f"{python.command} -m pip install 'numpy<2'",
        )
    elif major.isdecimal() and int(major) >= 2:
        embedded = facts.server.kind == "embedded"
        yield Found(
            "error" if embedded else "warning",
            f"numpy {python.numpy} in {python.command}",
            "a stub built against numpy 1 answers with empty outputs, without an error",
            f"{python.command} -m pip install 'numpy<2'",
        )
    else:
        yield ok(f"numpy {python.numpy}")


def _onnxruntime(facts: Facts) -> Iterator[Found]:
    users = [model.name for model in facts.models if model.onnxruntime]
    if users and facts.python.minor and "onnxruntime" not in facts.python.packages:
        yield Found(
            "error",
            f"{facts.python.command} has no onnxruntime",
            f"{', '.join(users)} would not load",
            f"{facts.python.command} -m pip install onnxruntime",
        )
    elif users:
        yield ok(f"there, for {', '.join(users)}")
    else:
        yield ok(
            "no model needs it" if facts.repository is not None else "not looked at without a repository"
        )


def _kernel(facts: Facts) -> Iterator[Found]:
    cost = "equal scores, more CPU time a request (docs/kernel.md)"
    broken = [model for model in facts.models if model.kernel]
    for model in broken:
        remedy = "build the repository again on this machine, or with --arch for it"
        yield Found("warning", f"{model.name}: {model.kernel}", cost, remedy)
    if not facts.kernel.loaded:
        remedy = "`bireme kernel`, where a C compiler is (apt-get install gcc libc6-dev)"
        yield Found("warning", facts.kernel.about, cost, remedy)
    elif not broken:
        yield ok(facts.kernel.about)


def _jemalloc(facts: Facts) -> Iterator[Found]:
    allocator = facts.allocator
    if allocator.refusal is not None:
        refusal = allocator.refusal
        yield Found(
            "error", f"{refusal.where} {refusal.message}", "`bireme serve` refuses to start", refusal.hint
        )
    elif allocator.missing:
        why = "a request costs some per cent more CPU (docs/instances.md)"
        yield Found("note", allocator.line, why, INSTALL)
    else:
        yield ok(allocator.line)


def _analyzer(facts: Facts) -> Iterator[Found]:
    analyzer = facts.analyzer
    where = "it is in NVIDIA's SDK image and in tritonclient's wheel 2.50; name it in BIREME_PERF_ANALYZER"
    why = "only measurements with perf_analyzer need it (docs/gpu.md)"
    if analyzer.command and analyzer.missing:
        found = f"{analyzer.command} does not run here: {', '.join(analyzer.missing)} missing"
        libraries = [name for name in analyzer.missing if not name.startswith("GLIBC")]
        remedy = "; ".join(_provider(name) for name in libraries)
        if len(libraries) < len(analyzer.missing):
            older = f"this glibc is {analyzer.glibc}: take an older one, from tritonclient's wheel 2.50"
            remedy = f"{older}; {remedy}" if remedy else older
        yield Found("note", found, why, remedy)
    elif analyzer.command:
        yield ok(analyzer.command)
    elif analyzer.placeholder:
        found = "the package perf_analyzer 0.1.0 is installed, which is empty"
        because = f"pip takes it where glibc ({analyzer.glibc}) is too old for the others; {why}"
        yield Found("note", found, because, f"pip uninstall perf_analyzer; {where}")
    else:
        yield Found("note", "not on PATH", why, where)


def _provider(library: str) -> str:
    if library.startswith("libb64"):
        return "apt-get install libb64-0d"
    if library.startswith("libcudart"):
        return "pip install nvidia-cuda-runtime-cu12, its lib folder in LD_LIBRARY_PATH"
    return f"install {library}"


def _ports(facts: Facts) -> Iterator[Found]:
    for port in facts.ports:
        holder = (
            f"{port.command} (process {port.pid})" if port.pid else "a process that cannot be seen from here"
        )
        option = _OPTIONS.get(port.number, "--http")
        yield Found(
            "warning",
            f"{port.number} is held by {holder}",
            "a server with default ports does not start",
            f"end it if it is a forgotten server, or choose another: bireme serve {option} 0",
        )
    if not facts.ports:
        yield ok("8000, 8001 and 8002 are free")


SERVER_CHECKS = (
    Check("D01", "tritonserver", _server),
    Check("D02", "Python and stub", _python),
    Check("D03", "numpy", _numpy),
    Check("D04", "onnxruntime", _onnxruntime),
    Check("D05", "C kernel", _kernel),
    Check("D06", "jemalloc", _jemalloc),
    Check("D07", "perf_analyzer", _analyzer),
    Check("D08", "ports", _ports),
)
