"""CUDA Graphs of the C++ TensorRT backend: what loads, and then does not launch or answers wrongly.

What each does was measured on an H200 with r24.10, or is read in tensorrt_backend's src/instance_state.cc.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from bireme.lint.finding import Issue, Model, Rule
from bireme.lint.release import releases

__all__ = ["GRAPH_RULES", "dims_of", "specs_of"]

_SPEC = "optimization.cuda.graph_spec"


def specs_of(model: Model) -> Iterator[tuple[str, Any]]:
    """(place, graph_spec) of a model whose graphs are captured."""
    if model.graphs:
        for index, spec in enumerate(model.config.optimization.cuda.graph_spec):
            yield f"{_SPEC}[{index}]", spec


def _inputs(model: Model) -> set[str]:
    """The network's inputs: those of the ONNX beside it, else those that the config lists."""
    return set(model.ranks) or {tensor.name for tensor in model.config.input}


def _missing_input(model: Model) -> Iterator[Issue]:
    for place, spec in specs_of(model):
        missing = sorted(_inputs(model) - set(spec.input))
        if missing:
            yield Issue(
                f"{place}.input",
                f"does not name {', '.join(missing)}: the model becomes READY without this graph",
                "name every input of the network with its dims, in the spec and in its lower bound",
            )


def _no_lower_bound(model: Model) -> Iterator[Issue]:
    if model.config.max_batch_size < 2:
        return
    specs = list(specs_of(model))
    sizes = {spec.batch_size for _, spec in specs}
    exact = sizes >= set(range(1, model.config.max_batch_size + 1))
    for place, spec in specs:
        if not exact and not spec.HasField("graph_lower_bound"):
            yield Issue(
                place,
                f"has no graph_lower_bound: only batches of exactly {spec.batch_size} launch this graph",
                "add graph_lower_bound { batch_size: … input { … } }, from the next smaller size plus 1",
            )


def _lower_bound_without_input(model: Model) -> Iterator[Issue]:
    for place, spec in specs_of(model):
        if not spec.HasField("graph_lower_bound"):
            continue
        missing = sorted(_inputs(model) - set(spec.graph_lower_bound.input))
        if missing:
            yield Issue(
                f"{place}.graph_lower_bound.input",
                f"does not name {', '.join(missing)}: the bound has no effect, or the model does not load",
                "give the bound the same inputs and dims as the spec",
            )


def _lower_bound_of_other_dims(model: Model) -> Iterator[Issue]:
    for place, spec in specs_of(model):
        for name, bound in spec.graph_lower_bound.input.items():
            dims, lower = (
                (list(shape.dim) for shape in (spec.input[name], bound)) if name in spec.input else ([], [])
            )
            if dims != lower:
                yield Issue(
                    f"{place}.graph_lower_bound.input[{name}]",
                    f"is {lower} where the spec says {dims}: such a match returns rows of padding",
                    "let only batch_size differ between a spec and its bound",
                )


def _largest_not_captured(model: Model) -> Iterator[Issue]:
    specs = [spec for _, spec in specs_of(model)]
    most = model.config.max_batch_size
    if not specs or not most:
        return
    volumes = [dims_of(spec) for spec in specs]
    for index, spec in enumerate(specs):
        if spec.batch_size != most and not any(
            other.batch_size == most and volumes[at] == volumes[index] for at, other in enumerate(specs)
        ):
            largest = max(s.batch_size for at, s in enumerate(specs) if volumes[at] == volumes[index])
            if largest == spec.batch_size:
                yield Issue(
                    _SPEC,
                    f"captures at most {largest} of max_batch_size {most} for inputs {volumes[index]}: once a"
                    " larger batch has run plainly, launches of these graphs answer wrongly",
                    f"capture batch_size {most} as well, or set max_batch_size: {largest}",
                )


def _profile_not_captured(model: Model) -> Iterator[Issue]:
    """Against the passport beside it: whatever the plan can run must not be larger than every graph."""
    specs = [spec for _, spec in specs_of(model)]
    if not specs or not model.profile_max:
        return
    users = min(model.config.max_batch_size, *(shape[0] for shape in model.profile_max.values()))
    largest = {name: list(shape[1:]) for name, shape in sorted(model.profile_max.items())}
    if not any(spec.batch_size == users and dims_of(spec) == largest for spec in specs):
        yield Issue(
            _SPEC,
            f"does not capture the largest shape of the plan, {users} x {largest}: once it has run plainly,"
            " launches of smaller graphs answer wrongly",
            "capture it as well, or build the plan for the captured shapes: bireme engine",
        )


def dims_of(spec: Any) -> dict[str, list[int]]:
    """Input → dims of a graph_spec, without the batch."""
    return {name: list(shape.dim) for name, shape in sorted(spec.input.items())}


def _no_batching(model: Model) -> Iterator[Issue]:
    if model.graphs and model.config.max_batch_size == 0:
        yield Issue(
            "max_batch_size",
            "is 0: graphs are captured and never launched (server#7150, up to 26.07)",
            "make the first dimension the batch, and set max_batch_size to its largest size",
        )


def _no_specs(model: Model) -> Iterator[Issue]:
    if model.graphs and not model.config.optimization.cuda.graph_spec:
        yield Issue(
            "optimization.cuda.graphs",
            "has no graph_spec: after auto-complete only batches of 1 and of max_batch_size have graphs",
            "list a graph_spec for every shape that the batcher can form",
        )


def _specs_without_graphs(model: Model) -> Iterator[Issue]:
    cuda = model.config.optimization.cuda
    if model.tensorrt and cuda.graph_spec and not cuda.graphs:
        yield Issue(_SPEC, "is ignored, as optimization.cuda.graphs is not true", "set graphs: true")


def _wrong_rank(model: Model) -> Iterator[Issue]:
    dims = {tensor.name: list(tensor.dims) for tensor in model.config.input}
    for place, spec in specs_of(model):
        for name, shape in spec.input.items():
            if name not in dims:
                yield Issue(f"{place}.input[{name}]", "is no input of the model", "name the model's inputs")
                continue
            wrong = len(shape.dim) != len(dims[name]) or any(
                given < 1 or wanted not in (-1, given)
                for given, wanted in zip(shape.dim, dims[name], strict=True)
            )
            if wrong:
                yield Issue(
                    f"{place}.input[{name}]",
                    f"is {list(shape.dim)} where the input's dims are {dims[name]}: no graph is captured",
                    "write the dims without the batch, and a size for every -1",
                )


def _uncovered(model: Model) -> Iterator[Issue]:
    """Batches between two graphs; those above the largest are `_largest_not_captured`."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for _, spec in specs_of(model):
        bound = spec.graph_lower_bound.batch_size if spec.HasField("graph_lower_bound") else spec.batch_size
        ranges[str(dims_of(spec))].append((bound, spec.batch_size))
    for shapes, found in ranges.items():
        covered = {users for fewest, most in found for users in range(fewest, most + 1)}
        gaps = sorted(set(range(1, max(most for _, most in found))) - covered)
        if gaps:
            listed = ", ".join(map(str, gaps[:8])) + (", …" if len(gaps) > 8 else "")
            yield Issue(
                _SPEC,
                f"has no graph for batches of {listed} with inputs {shapes}: they run plainly",
                "let every range begin one above the next smaller batch_size",
            )


GRAPH_RULES = (
    Rule(
        "G01",
        "error",
        "a `graph_spec` that lacks an input of the network",
        _missing_input,
        "the model is READY and has no graph (measured)",
        "name every input of the network, in the spec and in its bound",
    ),
    Rule(
        "G02",
        "warning",
        "a `graph_spec` without `graph_lower_bound`",
        _no_lower_bound,
        "only exact batch sizes launch (measured)",
        "add `graph_lower_bound`, from the next smaller size plus 1",
    ),
    Rule(
        "G03",
        "error",
        "a `graph_lower_bound` that lacks an input",
        _lower_bound_without_input,
        "the bound has no effect (measured), or the model does not load",
        "give the bound the inputs and dims of the spec",
    ),
    Rule(
        "G04",
        "error",
        "a `graph_lower_bound` that differs from its spec in another dim than the batch",
        _lower_bound_of_other_dims,
        "inexact matches return rows of padding",
        "let only `batch_size` differ",
    ),
    Rule(
        "G05",
        "error",
        "`max_batch_size` not captured for inputs that have graphs",
        _largest_not_captured,
        "after a larger batch has run plainly, launches answer wrongly (measured, error 0.2)",
        "capture `max_batch_size` as well",
    ),
    Rule(
        "G06",
        "error",
        "graphs with `max_batch_size: 0`",
        _no_batching,
        "captured, never launched (measured; server#7150)",
        "make the first dimension the batch",
        releases(last="26.07"),
    ),
    Rule(
        "G07",
        "error",
        "`graphs: true` without a `graph_spec`",
        _no_specs,
        "graphs for 1 and `max_batch_size` only (measured)",
        "list a `graph_spec` for every shape that the batcher can form",
    ),
    Rule(
        "G08",
        "error",
        "`graph_spec` without `graphs: true`",
        _specs_without_graphs,
        "ignored",
        "set `graphs: true`",
    ),
    Rule(
        "G09",
        "error",
        "dims of a `graph_spec` that are not those of the input",
        _wrong_rank,
        "no graph is captured",
        "write the dims without the batch, and a size for every -1",
    ),
    Rule(
        "G10",
        "warning",
        "batch sizes between two graphs that none of them takes",
        _uncovered,
        "they run plainly",
        "let every range begin one above the next smaller size",
    ),
    Rule(
        "G13",
        "error",
        "the largest shape of the plan's passport not captured",
        _profile_not_captured,
        "as G05",
        "capture it as well, or build the plan for the captured shapes",
    ),
)
