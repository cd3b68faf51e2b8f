"""Matrix products carried from [rows, …] to [users, candidates, …]: where the user side is computed once.

`MatMul(concat(user, items), W)` is `user·Wu + items·Wi`, and what is added behind it joins one of the two.
"""

from __future__ import annotations

import numpy as np
import onnx

from bireme.compiler.lifted import Array, Attributes, Const, Context, Lifted, Segments, Tensor, TwoSided
from bireme_runtime.plan import Side

__all__ = ["add_to_one_side", "gemm", "matmul"]


def add_to_one_side(lift: Context, inputs: list[Lifted]) -> Lifted | None:
    """`(user + item) + x`: x joins its own side; a weight joins the user's, which is computed once."""
    total = next((value for value in inputs if isinstance(value, TwoSided)), None)
    other = inputs[1] if total is inputs[0] else inputs[0]
    if total is None:
        return None
    if isinstance(other, Const):
        per_column = other.value.size == total.rest[-1] and other.value.shape[-1:] == total.rest[-1:]
        if other.value.size != 1 and not per_column:
            return None
        name = lift.writer.node("Add", [total.user.name, lift.writer.weight(other.value.reshape(-1))])
        return TwoSided(Tensor(name, "user", total.rest), total.item)
    if not isinstance(other, Tensor) or other.rest != total.rest:
        return None
    side = total.user if other.side == "user" else total.item
    added = Tensor(lift.writer.node("Add", [side.name, other.name]), other.side, total.rest)
    return TwoSided(added, total.item) if other.side == "user" else TwoSided(total.user, added)


def matmul(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    """A dense layer, or a product of two tensors for every row."""
    left, right = inputs
    if isinstance(left, Const):
        return None
    if not isinstance(right, Const):
        # Both vary: a batched product per row, fine as long as rows stay a batch dimension.
        if lift.rank(node, 0) != lift.rank(node, 1) or lift.rank(node, 0) < 3:
            return None
        a, b = lift.writer.write(left), lift.writer.write(right)
        side: Side = "item" if "item" in (a.side, b.side) else "user"
        return Tensor(lift.writer.node("MatMul", [a.name, b.name]), side, lift.rest(node))
    if right.value.ndim != 2:
        return None
    return times(lift, left, right.value, lift.rest(node))


def times(lift: Context, left: Lifted, weights: Array, rest: tuple[int, ...]) -> Lifted:
    """`left · weights`, a mixed concat split by rows of the weights."""
    if isinstance(left, Segments) and left.mixed:
        products: dict[Side, Tensor] = {}
        sides: tuple[Side, Side] = ("user", "item")
        for side in sides:
            starts = np.cumsum([0, *(part.rest[-1] for part in left.parts)])
            chosen = [i for i, part in enumerate(left.parts) if part.side == side]
            rows = np.concatenate([weights[starts[i] : starts[i + 1]] for i in chosen])
            columns = lift.writer.write(Segments(tuple(left.parts[i] for i in chosen)))
            name = lift.writer.node("MatMul", [columns.name, lift.writer.weight(rows)])
            products[side] = Tensor(name, side, rest)
        return TwoSided(products["user"], products["item"])
    tensor = lift.writer.write(left)
    return Tensor(lift.writer.node("MatMul", [tensor.name, lift.writer.weight(weights)]), tensor.side, rest)


def gemm(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes) -> Lifted | None:
    """A dense layer with its bias."""
    weights = inputs[1]
    if attributes.get("transA", 0) or not isinstance(weights, Const) or isinstance(inputs[0], Const):
        return None
    matrix = weights.value.T if attributes.get("transB", 0) else weights.value
    product = times(lift, inputs[0], matrix * np.float32(attributes.get("alpha", 1.0)), lift.rest(node))
    if len(inputs) < 3:
        return product
    bias = inputs[2]
    if not isinstance(bias, Const) or bias.value.size not in (1, matrix.shape[1]):
        return None
    scaled = Const(bias.value * np.float32(attributes.get("beta", 1.0)))
    sided = add_to_one_side(lift, [product, scaled])
    if sided is not None:
        return sided
    tensor = lift.writer.write(product)
    name = lift.writer.node("Add", [tensor.name, lift.writer.weight(scaled.value.reshape(-1))])
    return Tensor(name, tensor.side, tensor.rest)
