"""What a TensorRT builder says, and what of it a user needs: errors with a remedy, warnings once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bireme.errors import EngineError

__all__ = ["build_failed", "parse_failed", "short_of_workspace", "told_warnings"]

# "Try increasing the workspace size to 33554432 bytes", "… requested size of 33554432 detected …"
_REQUESTED = re.compile(r"(?:requested size of|workspace size to|[Rr]equested:?) (\d+)")
_WORKSPACE = re.compile(
    r"insufficient workspace|sufficient workspace memory|requires workspace memory"
    r"|increas\w+ (?:the )?workspace",
    re.IGNORECASE,
)
_MEMORY = re.compile(
    r"could not be allocated|out ?of ?memory|cudaErrorMemoryAllocation|Device memory is insufficient"
    r"|CUDA failure 2\b|oom error",
    re.IGNORECASE,
)
_NO_KERNEL = re.compile(r"[Cc]ould not find any implementation for node")
_NO_IMPORTER = re.compile(r"No importer registered for op: (\w+)")
# "[graphOptimizer.cpp::computeCostsAndChooseFormats::3869] Error Code 10: Internal Error (why)"
_PLACE = re.compile(r"^(?:\d+: )?\[[^\]]*::[^\]]*\]\s*")
_MIB = 1 << 20


def short_of_workspace(lines: Iterable[str]) -> int | None:
    """MiB that the builder wanted and was not given, 0 if it did not say how much; None: it was content."""
    short = False
    wanted = 0
    for line in lines:
        if _WORKSPACE.search(line):
            short = True
        for number in _REQUESTED.findall(line):
            wanted = max(wanted, int(number))
    return -(-wanted // _MIB) if short else None


def build_failed(
    model: str, errors: Sequence[str], lines: Sequence[str], workspace_mb: int | None
) -> EngineError:
    """Why there is no plan, from the builder's words.

    Args:
        model: the Triton model.
        errors: the builder's errors, the last one last.
        lines: everything it said.
        workspace_mb: the limit that it was given.
    """
    last = _plain(errors[-1]) if errors else "it gave no reason"
    first = _plain(errors[0]) if errors else ""
    said = last if first in ("", last) else f"{first}; {last}"
    short = short_of_workspace([*errors, *lines])
    if short is None and any(_NO_KERNEL.search(line) for line in errors):
        short = 0  # every kernel there is wants more; which of them how much, 8.6 does not say
    if short is not None and workspace_mb is not None:
        return workspace_error(model, short, workspace_mb, said)
    if any(_MEMORY.search(line) for line in errors):
        hint = "end what else uses the GPU (nvidia-smi shows it), or give a limit: --workspace MB"
        return EngineError(model, f"the GPU has too little free memory to build the plan: {said}", hint)
    hint = "see the messages above; `bireme engine --verbose` shows all that TensorRT says"
    return EngineError(model, f"TensorRT could not build the plan: {said}", hint)


def workspace_error(model: str, wanted: int, workspace_mb: int, said: str = "") -> EngineError:
    """The limit of the workspace keeps TensorRT from the kernels it wants."""
    much = f": it asks for {wanted:,} MB" if wanted > workspace_mb else ""
    reason = f" ({said})" if said else ""
    least = f"; --workspace {wanted} is enough" if wanted > workspace_mb else ""
    hint = f"leave --workspace out: TensorRT then uses what the GPU has free{least}"
    message = f"a workspace of {workspace_mb:,} MB is too small for TensorRT's kernels{much}{reason}"
    return EngineError(model, message, hint)


def parse_failed(model: str, node: str, op: str, reason: str, tensorrt: str) -> EngineError:
    """Why TensorRT cannot read the ONNX.

    Args:
        model: the Triton model.
        node: the ONNX node at fault, or "".
        op: its op, or "".
        reason: the parser's words.
        tensorrt: its version.
    """
    missing = _NO_IMPORTER.search(reason)
    at = f" at node {node}" if node else ""
    if missing:
        message = f"unsupported op {missing[1]}{at}: TensorRT {tensorrt} has no such layer"
        hint = "use a newer TensorRT, or serve it on the CPU: bireme build --target cpu"
        return EngineError(model, message, hint)
    what = f"op {op}{at}" if op else f"the network{at}"
    message = f"TensorRT {tensorrt} cannot read {what}: {_plain(reason)}"
    return EngineError(
        model, message, "use another TensorRT, or serve it on the CPU: bireme build --target cpu"
    )


def told_warnings(lines: Iterable[str]) -> tuple[str, ...]:
    """Each warning once, in order; numbers in them do not make them different."""
    seen: dict[str, str] = {}
    for line in lines:
        plain = _plain(line)
        seen.setdefault(re.sub(r"\d+", "#", plain), plain)
    return tuple(seen.values())


def _plain(line: str) -> str:
    return _PLACE.sub("", " ".join(line.split()))
