"""Ops that compute, done on [rows, …] whatever way the row-wise graph has them: see `row_views`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from bireme.compiler.rows.row_bench import Array, Bench, attributes_of
from bireme.compiler.rows.row_view import NoViewError, View
from bireme.compiler.rows.row_view_fills import static, view_of
from bireme.compiler.rows.row_views import MOVES

__all__ = ["VIEWS", "ViewHandler"]

ViewHandler = Callable[[Bench, onnx.NodeProto], list[View]]

# fmt: off
_ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "Cast", "Ceil",
    "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual",
    "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log",
    "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round",
    "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Tan", "Tanh",
    "ThresholdedRelu", "Where", "Xor",
)
_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare",
)
# fmt: on


def _elementwise(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    names = [name for name in node.input if name]
    views = [bench.views[name] for name in names if name in bench.views]
    if not views or any(name not in bench.views and name not in bench.constants for name in names):
        raise NoViewError
    ranks = [bench.views[n].rank if n in bench.views else bench.constants[n].ndim for n in names]
    rank = max(ranks)
    axis = rank - views[0].rank + views[0].axis
    pre, post = views[0].pre, views[0].post
    for view in views:
        # Rows must meet rows, or one tensor's rows would meet another's columns.
        if rank - view.rank + view.axis != axis or (view.pre, view.post) != (pre, post):
            raise NoViewError
    middle = views[0].middle
    inputs, shapes = [], []
    for name in node.input:
        if not name:
            inputs.append("")
            continue
        if name in bench.views:
            view = bench.views[name]
            before = (1,) * (axis - view.axis) + view.before
            inputs.append(bench.reform(view.base, (*before, *middle, *view.after)))
            shapes.append((before, view.after))
        else:
            value = bench.constants[name]
            if value.ndim == 0:
                inputs.append(name)
                continue
            value = value.reshape((1,) * (rank - value.ndim) + value.shape)
            if value.shape[axis] != 1:
                raise NoViewError
            shapes.append((value.shape[:axis], value.shape[axis + 1 :]))
            rest = (*value.shape[:axis], *(1 for _ in middle), *value.shape[axis + 1 :])
            inputs.append(bench.constant(np.ascontiguousarray(value.reshape(_without_ones(rest)))))
    before = np.broadcast_shapes(*(shape[0] for shape in shapes))
    after = np.broadcast_shapes(*(shape[1] for shape in shapes))
    if node.op_type == "PRelu" and (names[0] not in bench.views or shapes[0] != (before, after)):
        raise NoViewError  # a slope must not be wider than what it meets
    base = inputs[0] if node.op_type == "Identity" else bench.emit(node.op_type, inputs, **attributes)
    return [View(base, before, pre, post, after)]


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A constant's shape without what broadcasting puts in front of it."""
    first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:] or (shape[-1:] if shape else ())


def _reduce(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    given = attributes.pop("axes", None)
    if len(node.input) > 1 and node.input[1]:
        given = static(bench, node.input[1])
    if not given:
        raise NoViewError
    keep = attributes.pop("keepdims", 1)
    attributes.pop("noop_with_empty_axes", None)
    axes = sorted({axis % view.rank for axis in given}, reverse=True)
    places = sorted(view.base_axis(axis) for axis in axes)
    if node.op_type == "ReduceSum":
        base = bench.emit("ReduceSum", [view.base, bench.numbers(*places)], keepdims=keep)
    else:
        base = bench.emit(node.op_type, [view.base], axes=places, keepdims=keep)
    for axis in axes:
        view = view.resized(base, axis, [1] if keep else [])
    return [view]


def _average(bench: Bench, node: onnx.NodeProto) -> list[View]:
    """tf2onnx's way of writing a mean over the last axes."""
    view = view_of(bench, node.input[0])
    axes = range(2, view.rank)
    op = "ReduceMean" if node.op_type == "GlobalAveragePool" else "ReduceMax"
    base = bench.emit(op, [view.base], axes=[view.base_axis(axis) for axis in axes], keepdims=1)
    for axis in axes:
        view = view.resized(base, axis, [1])
    return [view]


def _along(bench: Bench, node: onnx.NodeProto) -> list[View]:
    """An op along one axis that keeps the shape."""
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    if node.op_type == "CumSum":
        place = view.base_axis(static(bench, node.input[1])[0])
        axis = bench.constant(np.array(place, dtype=np.int64))
        return [view.on(bench.emit("CumSum", [view.base, axis], **attributes))]
    place = view.base_axis(attributes.get("axis", -1))
    return [view.on(bench.emit(node.op_type, [view.base], **{**attributes, "axis": place}))]


def _arg(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    axis = attributes.get("axis", 0)
    base = bench.emit(node.op_type, [view.base], **{**attributes, "axis": view.base_axis(axis)})
    return [view.resized(base, axis, [1] if attributes.get("keepdims", 1) else [])]


def _top(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    axis, count = attributes.get("axis", -1), static(bench, node.input[1])[0]
    place = view.base_axis(axis)
    made = bench.emit_all(
        "TopK", [view.base, bench.numbers(count)], len(node.output), **{**attributes, "axis": place}
    )
    return [view.resized(base, axis, [count]) for base in made]


def _pad(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    view = view_of(bench, node.input[0])
    pads = static(bench, node.input[1])
    fronts, backs = pads[: view.rank], pads[view.rank :]
    if fronts[view.axis] or backs[view.axis]:
        raise NoViewError
    places = [0] * 2 * (1 + len(view.rest))
    result = view
    for axis in range(view.rank):
        if axis != view.axis:
            places[view.base_axis(axis)] = fronts[axis]
            places[view.base_axis(axis) + len(places) // 2] = backs[axis]
            size = view.shape[axis]
            if isinstance(size, int):
                result = result.resized("", axis, [size + fronts[axis] + backs[axis]])
    others = list(node.input[2:])
    if any(name and name not in bench.constants for name in others):
        raise NoViewError
    return [result.on(bench.emit("Pad", [view.base, bench.numbers(*places), *others], **attributes))]


def _matmul(bench: Bench, node: onnx.NodeProto) -> list[View]:
    left, right = node.input
    if left in bench.views and right in bench.views:
        return [_product(bench, bench.views[left], bench.views[right])]
    if left in bench.views and right in bench.constants:
        return [_times(bench, bench.views[left], bench.constants[right])]
    if left in bench.constants and right in bench.views:
        return [_times_from_left(bench, bench.constants[left], bench.views[right])]
    raise NoViewError


def _times(bench: Bench, view: View, weights: Array) -> View:
    """`view · weights`: the last axis must not be the rows'."""
    if not view.after or weights.ndim < 2 or view.rank < 2:
        raise NoViewError
    wide = weights.reshape((1,) * (view.rank - weights.ndim) + weights.shape)
    rank = max(view.rank, weights.ndim)
    lead = rank - view.rank
    before = (*(1 for _ in range(lead)), *view.before)
    columns = weights.shape[-1]
    axis = lead + view.axis
    if axis == rank - 2:  # rows are the rows of the matrix
        batch = wide.shape[:-2]
        new_before = np.broadcast_shapes(before, batch)
        inner = (view.pre * view.post,) if view.middle or new_before else ()
        base = bench.reform(view.base, (*before, *inner, view.after[-1]))
        made = View("", new_before, view.pre, view.post, (columns,))
        if not any(size != 1 for size in batch):
            wide = weights.reshape(weights.shape[-2:])
        product = bench.emit("MatMul", [base, bench.constant(np.ascontiguousarray(wide))])
        return made.on(bench.reform(product, made.rest))
    if wide.shape[axis] != 1:
        raise NoViewError
    batch = (*wide.shape[:axis], *(1 for _ in view.middle), *wide.shape[axis + 1 : -2])
    sizes = np.broadcast_shapes((*before, *view.middle, *view.after[:-2]), batch)
    shape = (*_without_ones_in_front(batch), *weights.shape[-2:])
    base = bench.reform(view.base, (*before, *view.middle, *view.after))
    product = bench.emit("MatMul", [base, bench.constant(np.ascontiguousarray(weights.reshape(shape)))])
    behind = sizes[len(before) + len(view.middle) :]
    return View(product, sizes[: len(before)], view.pre, view.post, (*behind, view.after[-2], columns))


def _without_ones_in_front(shape: tuple[int, ...]) -> tuple[int, ...]:
    first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def _times_from_left(bench: Bench, weights: Array, view: View) -> View:
    """`weights · view` as `(viewᵀ · weightsᵀ)ᵀ`, so that weights are always on the right."""
    if weights.ndim < 2:
        raise NoViewError
    turned = np.ascontiguousarray(np.swapaxes(weights, -1, -2))
    product = _times(bench, _turned(bench, view), turned)
    return _turned(bench, product)


def _turned(bench: Bench, view: View) -> View:
    """The last two axes swapped."""
    if view.axis >= view.rank - 2 and not view.middle:  # [R, …, K] is both […, R, K] and [… K, R]
        if view.rank < 2:
            raise NoViewError
        rest = (*view.before, *view.after)
        place = len(rest) if view.after else len(rest) - 1
        return View(view.base, rest[:place], 1, 1, rest[place:])
    if len(view.after) < 2:
        raise NoViewError
    made = View("", view.before, view.pre, view.post, (*view.after[:-2], view.after[-1], view.after[-2]))
    if 1 in view.after[-2:]:
        return made.on(bench.reform(view.base, made.rest))
    rank = 1 + len(view.rest)
    order = [*range(rank - 2), rank - 1, rank - 2]
    return made.on(bench.emit("Transpose", [view.base], perm=order))


def _product(bench: Bench, left: View, right: View) -> View:
    """A product of two tensors for every row: rows must be a batch axis of both."""
    rank = max(left.rank, right.rank)
    axis = rank - left.rank + left.axis
    same = rank - right.rank + right.axis == axis and (left.pre, left.post) == (right.pre, right.post)
    if not same or axis > rank - 3:
        raise NoViewError
    bases, befores, behinds = [], [], []
    for view in (left, right):
        before = (1,) * (axis - view.axis) + view.before
        bases.append(bench.reform(view.base, (*before, *view.middle, *view.after)))
        befores.append(before)
        behinds.append(view.after[:-2])
    before = np.broadcast_shapes(*befores)
    behind = np.broadcast_shapes(*behinds)
    if bases[1] in bench.constants and bench.constants[bases[1]].shape[0] == 1:
        bases[1] = bench.constant(bench.constants[bases[1]][0])
    elif bases[0] in bench.constants:
        bases[0] = bench.row_by_row(bases[0])
    after = (*behind, left.after[-2], right.after[-1])
    return View(bench.emit("MatMul", bases), before, left.pre, left.post, after)


def _gemm(bench: Bench, node: onnx.NodeProto) -> list[View]:
    attributes = attributes_of(node)
    if node.input[0] in bench.constants:
        return [_gemm_from_left(bench, node)]
    view = view_of(bench, node.input[0])
    if view.plain or attributes.get("transA", 0) or any(x not in bench.constants for x in node.input[1:]):
        raise NoViewError  # a plain one is carried over as it is
    weights = bench.constants[node.input[1]]
    weights = weights.T if attributes.get("transB", 0) else weights
    product = _times(bench, view, weights * weights.dtype.type(attributes.get("alpha", 1.0)))
    if len(node.input) < 3:
        return [product]
    bias = bench.constants[node.input[2]]
    if bias.size not in (1, weights.shape[1]):
        raise NoViewError
    scaled = bias.reshape(-1) * bias.dtype.type(attributes.get("beta", 1.0))
    return [product.on(bench.emit("Add", [product.base, bench.constant(scaled)]))]


def _gemm_from_left(bench: Bench, node: onnx.NodeProto) -> View:
    """Weights times rows, as `W · x` comes out of an einsum; without a bias."""
    attributes = attributes_of(node)
    weights, view = bench.constants[node.input[0]], view_of(bench, node.input[1])
    if len(node.input) > 2 and attributes.get("beta", 1.0):
        raise NoViewError
    weights = weights.T if attributes.get("transA", 0) else weights
    view = _turned(bench, view) if attributes.get("transB", 0) else view
    return _times_from_left(bench, weights * weights.dtype.type(attributes.get("alpha", 1.0)), view)


VIEWS: dict[str, ViewHandler] = {
    **MOVES,
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "CumSum"), _along),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _average),
    "TopK": _top,
    "Pad": _pad,
    "MatMul": _matmul,
    "Gemm": _gemm,
}
