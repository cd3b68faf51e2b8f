"""Attention of a target over a user's history: taken apart however the graph writes it, equal scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from compiler_networks import Network, lift, random_halves, rowwise_scores

from bireme.compiler.dense import runner
from bireme.compiler.rows.costs import flops_per_request

LENGTH, DEPTH, WIDTH = 3, 2, 5
CANDIDATES = 9


def repeated(net: Network, how: str) -> str:
    """The target `j` [1, DEPTH] of an item for every entry of the history."""
    whole = (LENGTH, DEPTH)
    if how == "tile":
        return net.add("Tile", ["j", net.weight(np.array([1, LENGTH, 1]))], whole)
    if how == "copies":
        return net.add("Concat", ["j"] * LENGTH, whole, axis=1)
    if how == "expand":
        return net.add("Expand", ["j", net.weight(np.array([1, LENGTH, 1]))], whole)
    if how == "ones":
        return net.add("Mul", ["j", net.weight(np.ones((1, *whole), np.float32))], whole)
    flat = net.add("Squeeze", ["j", net.weight(np.array([1]))], (DEPTH,))
    longer = net.add("Unsqueeze", [flat, net.weight(np.array([1, 3]))], (1, DEPTH, 1))
    turned = net.add("Transpose", [longer], (1, 1, DEPTH), perm=[0, 1, 3, 2])
    tiled = net.add("Tile", [turned, net.weight(np.array([1, LENGTH, 1, 1]))], (LENGTH, 1, DEPTH))
    return net.add("Squeeze", [tiled, net.weight(np.array([2]))], whole)


def compared(net: Network, target: str, order: str) -> str:
    """The attention's input: a letter for each part of the concat."""
    whole = (LENGTH, DEPTH)
    parts = {
        "h": lambda: "h",
        "t": lambda: target,
        "-": lambda: net.add("Sub", ["h", target], whole),
        "~": lambda: net.add("Sub", [target, "h"], whole),
        "*": lambda: net.add("Mul", ["h", target], whole),
        "x": lambda: net.add("Mul", [target, "h"], whole),
    }
    names = [parts[letter]() for letter in order]
    return net.add("Concat", names, (LENGTH, DEPTH * len(order)), axis=-1)


def dense(net: Network, x: str, width: int) -> str:
    rest = net.rests[x]
    product = net.add("MatMul", [x, net.normal(rest[-1], width)], (*rest[:-1], width))
    return net.add("Add", [product, net.normal(width)], (*rest[:-1], width))


def activated(net: Network, x: str, how: str) -> str:
    rest = net.rests[x]
    if how == "dice":
        gate = net.add("Sigmoid", [net.add("Mul", [x, net.normal(rest[-1])], rest)], rest)
        kept = net.add("Mul", [gate, x], rest)
        rest_of_it = net.add("Sub", [net.weight(np.float32(1.0)), gate], rest)
        damped = net.add("Mul", [net.normal(rest[-1]), net.add("Mul", [rest_of_it, x], rest)], rest)
        return net.add("Add", [kept, damped], rest)
    if how == "PRelu":
        return net.add("PRelu", [x, net.normal(1, rest[-1])], rest)
    return net.add(how, [x], rest)


def pooled(net: Network, scores: str, how: str) -> str:
    """The history weighed by scores [LENGTH, 1]; entries whose first column is negative are masked."""
    bounds = [net.weight(np.array([value])) for value in (0, 1, 2)]
    mask = net.add(
        "Greater", [net.add("Slice", ["h", *bounds], (LENGTH, 1)), net.weight(np.float32(0.0))], (LENGTH, 1)
    )
    whole, column, row = (LENGTH, DEPTH), (LENGTH, 1), (1, LENGTH)
    if how == "sum":
        weights = net.add("Mul", [scores, net.add("Cast", [mask], column, to=1)], column)
        weighed = net.add("Mul", [weights, "h"], whole)
        return net.add("ReduceSum", [weighed, net.weight(np.array([1]))], (DEPTH,), keepdims=0)
    chosen = net.add("Where", [mask, scores, net.weight(np.float32(-1e9))], column)
    weights = net.add("Transpose", [chosen], row, perm=[0, 2, 1])
    weights = net.add("Softmax", [weights], row, axis=-1)
    return net.add(
        "Squeeze", [net.add("MatMul", [weights, "h"], (1, DEPTH)), net.weight(np.array([1]))], (DEPTH,)
    )


def attention(how: str, order: str, activation: str, pool: str) -> onnx.ModelProto:
    net = Network(3)
    hidden = activated(net, dense(net, compared(net, repeated(net, how), order), WIDTH), activation)
    interest = pooled(net, dense(net, hidden, 1), pool)
    mixed = net.add("Concat", ["u", interest, "i"], (3 + DEPTH + 4,), axis=-1)
    return net.model(score=net.add("MatMul", [mixed, net.normal(3 + DEPTH + 4, 1)], (1,)))


def flops_by_hand(order: str) -> int:
    """What is left: h·(W1+W3) of the user, then products for every candidate."""
    once = LENGTH * DEPTH * WIDTH * bool(set("h-~") & set(order)) + 3
    product = bool(set("*x") & set(order))
    single = bool(set("t-~") & set(order))
    first = LENGTH * DEPTH * WIDTH if product else DEPTH * WIDTH * single
    each = first + LENGTH * WIDTH + LENGTH * DEPTH + (DEPTH + 4)
    return 2 * (once + CANDIDATES * each)


@pytest.mark.parametrize(
    ("how", "order", "activation", "pool"),
    [
        ("tile", "ht-*", "Relu", "sum"),
        ("copies", "th~x", "Sigmoid", "softmax"),
        ("expand", "*-th", "PRelu", "softmax"),
        ("ones", "ht*", "dice", "sum"),
        ("turned", "-ht", "Tanh", "softmax"),
        ("tile", "ht", "Relu", "softmax"),
        ("tile", "*", "Relu", "sum"),
    ],
)
def test_attention_is_taken_apart(how, order, activation, pool):
    model = attention(how, order, activation, pool)
    lifted = lift(model)
    halves = random_halves(4, CANDIDATES)
    wanted = rowwise_scores(runner(model), halves)["score"]
    np.testing.assert_allclose(runner(lifted)(halves)["score"], wanted, rtol=1e-5, atol=1e-5)
    assert flops_per_request(lifted, CANDIDATES) == flops_by_hand(order)
    # Nothing of the concat is ever written for each candidate; the hidden layer is the first that needs it.
    written = [shape[2:] for shape in shapes(lifted) if len(shape) == 4 and shape[1] != 1]
    assert (LENGTH, WIDTH) in written
    assert not [shape for shape in written if shape[0] == LENGTH and shape[1] not in (1, WIDTH)]


def shapes(model: onnx.ModelProto) -> list[tuple[Any, ...]]:
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return [
        tuple(d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim)
        for value in inferred.graph.value_info
    ]


def test_a_target_that_is_compared_column_by_column_is_left_whole():
    """A factor that repeats along the summed dimension, [LENGTH, 1], cannot become a matrix."""
    net = Network()
    column = net.add(
        "Transpose", [net.add("Tile", ["j", net.weight(np.array([1, 1, 1]))], (1, 2))], (2, 1), perm=[0, 2, 1]
    )
    three = net.add(
        "Concat",
        [column, net.add("Slice", [column, *(net.weight(np.array([k])) for k in (0, 1, 1))], (1, 1))],
        (3, 1),
        axis=1,
    )
    product = net.add("Mul", ["h", three], (3, 2))
    score = net.add("ReduceSum", [dense(net, product, 4), net.weight(np.array([1, 2]))], (), keepdims=0)
    model = net.model(score=score)
    halves = random_halves(2, 5)
    wanted = rowwise_scores(runner(model), halves)["score"]
    np.testing.assert_allclose(runner(lift(model))(halves)["score"], wanted, rtol=1e-5, atol=1e-5)


def test_dot_products_with_the_history_are_one_product_a_user():
    net = Network()
    products = net.add("Mul", ["h", repeated(net, "tile")], (LENGTH, DEPTH))
    scores = net.add("ReduceSum", [products, net.weight(np.array([2]))], (LENGTH, 1), keepdims=1)
    turned = net.add("Transpose", [scores], (1, LENGTH), perm=[0, 2, 1])
    interest = net.add("MatMul", [turned, "h"], (1, DEPTH))
    model = net.model(score=net.add("ReduceSum", [interest, net.weight(np.array([1, 2]))], (), keepdims=0))
    lifted = lift(model)
    halves = random_halves(3, CANDIDATES)
    wanted = rowwise_scores(runner(model), halves)["score"]
    np.testing.assert_allclose(runner(lifted)(halves)["score"], wanted, rtol=1e-5, atol=1e-5)
    assert flops_per_request(lifted, CANDIDATES) == 2 * CANDIDATES * 2 * LENGTH * DEPTH
    products = [node for node in lifted.graph.node if node.op_type == "MatMul"]
    assert len(products) == 2
