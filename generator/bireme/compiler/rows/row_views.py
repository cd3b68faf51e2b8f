"""Ops that move or choose numbers, done on [rows, …] whatever way the row-wise graph has them.

Each function returns the views of a node's outputs, or raises NoViewError.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx

from bireme.compiler.rows.row_bench import Bench, attributes_of
from bireme.compiler.rows.row_dims import TO_THE_END, Dim, Rows, resolve
from bireme.compiler.rows.row_view import NoViewError, View
from bireme.compiler.rows.row_view_fills import expand, filled, sizes_in, static, tile, view_of

__all__ = ["MOVES"]


def _viewed(bench: Bench, view: View, shape: list[Dim]) -> View:
    """The same numbers in another shape."""
    places = [axis for axis, size in enumerate(shape) if isinstance(size, Rows)]
    if len(places) != 1:
        raise NoViewError
    axis = places[0]
    before = tuple(size for size in shape[:axis] if isinstance(size, int))
    after = tuple(size for size in shape[axis + 1 :] if isinstance(size, int))
    rows = shape[axis]
    times = rows.times if isinstance(rows, Rows) else 1
    outside = prod(view.before) * view.pre
    if not outside or outside % prod(before):
        raise NoViewError
    pre = outside // prod(before)
    if times % pre:
        raise NoViewError
    made = View("", before, pre, times // pre, after)
    return made.on(bench.reform(view.base, made.rest))


def _reshape(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    shape = resolve(sizes_in(bench, node.input[1]), view.shape, bool(attributes.get("allowzero", 0)))
    if shape is None:
        raise NoViewError
    return [_viewed(bench, view, shape)]


def _flatten(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    axis = attributes.get("axis", 1)
    axis += view.rank if axis < 0 else 0
    outer, inner = view.shape[:axis], view.shape[axis:]
    if view.axis < axis:
        outer = [Rows(prod(size.times if isinstance(size, Rows) else size for size in outer))]
        return [_viewed(bench, view, [*outer, prod(size for size in inner if isinstance(size, int))])]
    inner = [Rows(prod(size.times if isinstance(size, Rows) else size for size in inner))]
    return [_viewed(bench, view, [prod(size for size in outer if isinstance(size, int)), *inner])]


def _squeeze(bench: Bench, node: onnx.NodeProto) -> list[View]:
    view = view_of(bench, node.input[0])
    if len(node.input) > 1:
        axes = {axis % view.rank for axis in static(bench, node.input[1])}
    else:  # one row only is not a shape of its own
        raise NoViewError
    if view.axis in axes:
        raise NoViewError
    return [_viewed(bench, view, [size for axis, size in enumerate(view.shape) if axis not in axes])]


def _unsqueeze(bench: Bench, node: onnx.NodeProto) -> list[View]:
    view = view_of(bench, node.input[0])
    axes = static(bench, node.input[1])
    rank = view.rank + len(axes)
    places = {axis % rank for axis in axes}
    rest = iter(view.shape)
    return [_viewed(bench, view, [1 if axis in places else next(rest) for axis in range(rank)])]


def _transpose(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    order = [int(axis) for axis in attributes.get("perm", range(view.rank)[::-1])]
    place = order.index(view.axis)
    middle = [1 + view.axis] if view.middle else []
    moved = [[view.base_axis(axis)] if axis != view.axis else middle for axis in order]
    perm = [0, *(axis for axes in moved for axis in axes)]
    base = view.base if perm == sorted(perm) else bench.emit("Transpose", [view.base], perm=perm)
    sizes = [view.shape[axis] for axis in order]
    before = tuple(size for size in sizes[:place] if isinstance(size, int))
    after = tuple(size for size in sizes[place + 1 :] if isinstance(size, int))
    return [View(base, before, view.pre, view.post, after)]


def _concat(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    views = [view_of(bench, name) for name in node.input]
    first = views[0]
    axis = attributes["axis"] % first.rank
    if axis == first.axis:
        return [_stack(bench, views)]
    if any((v.rank, v.axis, v.pre, v.post) != (first.rank, first.axis, first.pre, first.post) for v in views):
        raise NoViewError
    bases = [view.base for view in views]
    if any(base not in bench.constants for base in bases):
        bases = [bench.row_by_row(base) for base in bases]
    total = sum(size for view in views for size in [view.shape[axis]] if isinstance(size, int))
    return [first.resized(bench.emit("Concat", bases, axis=first.base_axis(axis)), axis, [total])]


def _stack(bench: Bench, views: list[View]) -> View:
    """Tensors one after another along the row axis: heads in front of the rows."""
    first = views[0]
    if any((v.before, v.after, v.post) != (first.before, first.after, 1) for v in views):
        raise NoViewError
    parts = [bench.reform(v.base, (*v.before, v.pre, *v.after)) for v in views]
    if any(part not in bench.constants for part in parts):
        parts = [bench.row_by_row(part) for part in parts]
    base = bench.emit("Concat", parts, axis=1 + first.axis)
    made = View(base, first.before, sum(v.pre for v in views), 1, first.after)
    return made.on(bench.reform(base, made.rest))


def _cut(bench: Bench, view: View, axis: int, start: int, end: int, step: int = 1) -> View:
    """A range of one axis; of the row axis, in units of all rows."""
    if axis == view.axis:
        if view.post != 1 or not 0 <= start < end <= view.pre or step != 1:
            raise NoViewError
        base = bench.reform(view.base, (*view.before, view.pre, *view.after))
        made = View(_slice_of(bench, base, 1 + axis, start, end, 1), view.before, end - start, 1, view.after)
        return made.on(bench.reform(made.base, made.rest))
    base = _slice_of(bench, view.base, view.base_axis(axis), start, end, step)
    return view.resized(base, axis, [bench.rest(base)[view.base_axis(axis) - 1]])


def _slice_of(bench: Bench, base: str, axis: int, start: int, end: int, step: int) -> str:
    return bench.emit("Slice", [base, *(bench.numbers(value) for value in (start, end, axis, step))])


def _slice(bench: Bench, node: onnx.NodeProto) -> list[View]:
    view = view_of(bench, node.input[0])
    bounds = [sizes_in(bench, name) for name in node.input[1:]]
    starts, ends = bounds[0], bounds[1]
    axes = bounds[2] if len(bounds) > 2 else list(range(len(starts)))
    steps = bounds[3] if len(bounds) > 3 else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not isinstance(axis, int) or not isinstance(step, int):
            raise NoViewError
        place = axis % view.rank
        if place != view.axis:
            if not isinstance(start, int) or not isinstance(end, int):
                raise NoViewError
            view = _cut(bench, view, place, start, end, step)
            continue
        first = start.times if isinstance(start, Rows) else start
        last = view.pre * view.post if isinstance(end, int) and end >= TO_THE_END else end
        last = last.times if isinstance(last, Rows) else last
        if isinstance(start, int) and start != 0:
            raise NoViewError
        if isinstance(end, int) and end < TO_THE_END:
            raise NoViewError
        if (first, last, step) != (0, view.pre * view.post, 1):
            view = _cut(bench, view, place, first, last, step)
    return [view]


def _split(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    axis = attributes.get("axis", 0) % view.rank
    whole = view.shape[axis]
    total = whole.times if isinstance(whole, Rows) else whole
    if len(node.input) > 1:
        parts = [size.times if isinstance(size, Rows) else size for size in sizes_in(bench, node.input[1])]
        if isinstance(whole, Rows) and not all(isinstance(p, Rows) for p in sizes_in(bench, node.input[1])):
            raise NoViewError
    else:
        parts = [total // len(node.output)] * len(node.output)
    if sum(parts) != total:
        raise NoViewError
    starts = np.cumsum([0, *parts]).tolist()
    return [_cut(bench, view, axis, starts[i], starts[i + 1]) for i in range(len(parts))]


def _gather(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    if node.input[1] not in bench.constants:
        raise NoViewError
    indices = bench.constants[node.input[1]]
    axis = attributes.get("axis", 0) % view.rank
    base = bench.emit("Gather", [view.base, bench.constant(indices)], axis=view.base_axis(axis))
    return [view.resized(base, axis, indices.shape)]


MOVES = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Tile": tile,
    "Expand": expand,
    "ConstantOfShape": filled,
}
