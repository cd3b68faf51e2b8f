"""Ops that repeat numbers, done on [rows, …]: see `row_views`; and how such ops read their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from bireme.compiler.rows.row_bench import Bench, attributes_of
from bireme.compiler.rows.row_dims import Dim, Rows
from bireme.compiler.rows.row_view import NoViewError, View

__all__ = ["expand", "filled", "sizes_in", "static", "tile", "view_of"]


def view_of(bench: Bench, name: str) -> View:
    """The view of an input.

    Raises:
        NoViewError: it has none.
    """
    if name not in bench.views:
        raise NoViewError
    return bench.views[name]


def static(bench: Bench, name: str) -> list[Any]:
    """An input's numbers.

    Raises:
        NoViewError: they depend on the request.
    """
    if name not in bench.constants:
        raise NoViewError
    value: list[Any] = bench.constants[name].reshape(-1).tolist()
    return value


def sizes_in(bench: Bench, name: str) -> list[Dim]:
    """An input's numbers, of which some may be the number of rows."""
    if name in bench.sizes:
        return list(bench.sizes[name].values.reshape(-1))
    return static(bench, name)


def tile(bench: Bench, node: onnx.NodeProto) -> list[View]:
    """Tile."""
    if node.input[0] in bench.constants:
        return [_constant(bench, bench.constants[node.input[0]], sizes_in(bench, node.input[1]), tile=True)]
    view = view_of(bench, node.input[0])
    repeats = static(bench, node.input[1])
    times = repeats[view.axis]
    if times != 1:
        if view.post != 1:
            raise NoViewError
        base = bench.reform(view.base, (*view.before, 1, view.pre, *view.after))
        tiles = bench.numbers(1, *(1 for _ in view.before), times, 1, *(1 for _ in view.after))
        made = View(bench.emit("Tile", [base, tiles]), view.before, view.pre * times, 1, view.after)
        view = made.on(bench.reform(made.base, made.rest))
        repeats = [count if axis != view.axis else 1 for axis, count in enumerate(repeats)]
    if set(repeats) == {1}:
        return [view]
    before, after = repeats[: view.axis], repeats[view.axis + 1 :]
    tiles = bench.numbers(1, *before, *(1 for _ in view.middle), *after)
    sizes = [
        [s * r for s, r in zip(*pair, strict=True)] for pair in ((view.before, before), (view.after, after))
    ]
    return [
        View(bench.emit("Tile", [view.base, tiles]), tuple(sizes[0]), view.pre, view.post, tuple(sizes[1]))
    ]


def expand(bench: Bench, node: onnx.NodeProto) -> list[View]:
    """Expand."""
    wanted = sizes_in(bench, node.input[1])
    if node.input[0] in bench.constants:
        return [_constant(bench, bench.constants[node.input[0]], wanted)]
    view = view_of(bench, node.input[0])
    lead = max(0, len(wanted) - view.rank)
    wanted = [*(1 for _ in range(view.rank - len(wanted))), *wanted]
    axis = view.axis + lead
    if wanted[axis] not in (1, Rows(view.pre * view.post)):
        raise NoViewError
    before = [size for size in wanted[:axis] if isinstance(size, int)]
    after = [size for size in wanted[axis + 1 :] if isinstance(size, int)]
    if len(before) != axis or len(after) != len(view.after):
        raise NoViewError
    base = bench.reform(view.base, (*(1 for _ in range(lead)), *view.rest))
    old = (*(1 for _ in range(lead)), *view.before)
    new_before = tuple(np.broadcast_shapes(old, tuple(before)))
    new_after = tuple(np.broadcast_shapes(view.after, tuple(after)))
    made = View(base, new_before, view.pre, view.post, new_after)
    if bench.rest(base) == made.rest:
        return [made]
    shape = bench.numbers(1, *new_before, *(1 for _ in view.middle), *new_after)
    return [made.on(bench.emit("Expand", [base, shape]))]


def filled(bench: Bench, node: onnx.NodeProto) -> list[View]:
    """ConstantOfShape."""
    attributes = attributes_of(node)
    value = attributes.get("value")
    content = onnx.numpy_helper.to_array(value) if value is not None else np.zeros(1, np.float32)
    return [_constant(bench, content.reshape(()), sizes_in(bench, node.input[0]))]


def _constant(bench: Bench, value: Any, wanted: list[Dim], tile: bool = False) -> View:
    """A constant repeated for all rows."""
    wanted = [*(1 for _ in range(value.ndim - len(wanted))), *wanted]
    value = value.reshape((1,) * (len(wanted) - value.ndim) + value.shape)
    places = [axis for axis, size in enumerate(wanted) if isinstance(size, Rows)]
    if len(places) != 1 or value.shape[places[0]] != 1:
        raise NoViewError
    axis = places[0]
    rows = wanted[axis]
    times = rows.times if isinstance(rows, Rows) else 1
    target = [times if index == axis else size for index, size in enumerate(wanted)]
    sizes = [size for size in target if isinstance(size, int)]
    grown = (
        np.tile(value, sizes)
        if tile
        else np.broadcast_to(value, np.broadcast_shapes(value.shape, tuple(sizes)))
    )
    made = View("", grown.shape[:axis], times, 1, grown.shape[axis + 1 :])
    # The same in all rows, so it does not matter whether they are outside or inside.
    return made.on(bench.constant(np.ascontiguousarray(grown).reshape((1, *made.rest))))
