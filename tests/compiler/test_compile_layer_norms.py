"""Layer normalization, however it is spelled out, becomes the one op; what only looks like it does not."""

from __future__ import annotations

import numpy as np
import pytest
from compiler_networks import Network, lift, random_halves, rowwise_scores

from bireme.compiler.dense import runner
from bireme.compiler.fp16.half import tensor_types, to_half

WIDTH = 6


def _inverse(net, x, width, epsilon=1e-3, mean=None):
    """Mean, difference to it, and 1 / deviation, as tf2onnx writes them."""
    mean = mean or net.add("ReduceMean", [x], (1,), axes=[-1], keepdims=1)
    apart = net.add("Sub", [x, mean], (width,))
    squares = net.add("Mul", [apart, apart], (width,))
    variance = net.add("ReduceMean", [squares], (1,), axes=[-1], keepdims=1)
    padded = net.add("Add", [variance, net.weight(np.float32(epsilon))], (1,))
    return mean, apart, net.add("Sqrt", [padded], (1,))


def keras(net, x, width):
    """tf.nn.batch_normalization: x * (inverse * scale) + (shift - mean * inverse * scale)."""
    mean, _, deviation = _inverse(net, x, width)
    inverse = net.add("Reciprocal", [deviation], (1,))
    scaled = net.add("Mul", [inverse, net.normal(width)], (width,))
    product = net.add("Mul", [x, scaled], (width,))
    moved = net.add("Mul", [mean, scaled], (width,))
    return net.add("Add", [product, net.add("Sub", [net.normal(width), moved], (width,))], (width,))


def keras_negated(net, x, width):
    """The same with -mean, and no scale."""
    mean, _, deviation = _inverse(net, x, width)
    inverse = net.add("Reciprocal", [deviation], (1,))
    product = net.add("Mul", [x, inverse], (width,))
    moved = net.add("Mul", [net.add("Neg", [mean], (1,)), inverse], (1,))
    return net.add("Add", [product, net.add("Add", [moved, net.normal(width)], (width,))], (width,))


def plain(net, x, width):
    """(x - mean) / deviation * scale + shift."""
    _, apart, deviation = _inverse(net, x, width)
    y = net.add("Mul", [net.add("Div", [apart, deviation], (width,)), net.normal(width)], (width,))
    return net.add("Add", [y, net.normal(width)], (width,))


def without_weights(net, x, width):
    _, apart, deviation = _inverse(net, x, width)
    return net.add("Mul", [apart, net.add("Reciprocal", [deviation], (1,))], (width,))


def by_power(exponent, op):
    """(x - mean) / (variance + epsilon) ** 0.5, or * (…) ** -0.5, as code by hand has it."""

    def spelled(net, x, width):
        mean = net.add("ReduceMean", [x], (1,), axes=[-1], keepdims=1)
        apart = net.add("Sub", [x, mean], (width,))
        squares = net.add("Pow", [apart, net.weight(np.float32(2))], (width,))
        variance = net.add("ReduceMean", [squares], (1,), axes=[-1], keepdims=1)
        padded = net.add("Add", [variance, net.weight(np.float32(1e-3))], (1,))
        root = net.add("Pow", [padded, net.weight(np.float32(exponent))], (1,))
        return net.add("Mul", [net.add(op, [apart, root], (width,)), net.normal(width)], (width,))

    return spelled


def one_divided(net, x, width):
    _, apart, deviation = _inverse(net, x, width)
    inverse = net.add("Div", [net.weight(np.float32(1)), deviation], (1,))
    return net.add("Mul", [apart, inverse], (width,))


SPELLINGS = [
    keras,
    keras_negated,
    plain,
    without_weights,
    by_power(0.5, "Div"),
    by_power(-0.5, "Mul"),
    one_divided,
]


def _finished(net, y, width):
    return net.model(score=net.add("MatMul", [y, net.normal(width, 1)], (1,)))


def _same(model, lifted):
    halves = random_halves(3, 5)
    wanted = rowwise_scores(runner(model), halves)["score"]
    np.testing.assert_allclose(runner(lifted)(halves)["score"], wanted, rtol=1e-4, atol=1e-5)


def _ops(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_of_candidates(spelled):
    net = Network()
    x = net.add("Relu", [net.add("MatMul", ["i", net.normal(4, WIDTH)], (WIDTH,))], (WIDTH,))
    model = _finished(net, spelled(net, x, WIDTH), WIDTH)
    lifted = lift(model)
    _same(model, lifted)
    ops = _ops(lifted)
    assert ops.count("LayerNormalization") == 1
    assert not {"Sqrt", "Pow", "ReduceMean", "Reciprocal", "Div"} & set(ops)


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_of_both_sides_where_the_mean_has_been_divided(spelled):
    net = Network()
    mixed = net.add("Concat", ["u", "i"], (7,), axis=-1)
    model = _finished(net, spelled(net, mixed, 7), 7)
    lifted = lift(model)
    _same(model, lifted)
    assert _ops(lifted).count("LayerNormalization") == 1
    assert "ReduceSum" not in _ops(lifted)


def test_the_epsilon_is_that_of_the_model():
    net = Network()
    x = net.add("Relu", [net.add("MatMul", ["i", net.normal(4, WIDTH)], (WIDTH,))], (WIDTH,))
    lifted = lift(_finished(net, plain(net, x, WIDTH), WIDTH))
    (node,) = [node for node in lifted.graph.node if node.op_type == "LayerNormalization"]
    values = {a.name: a for a in node.attribute}
    assert values["epsilon"].f == pytest.approx(1e-3)
    assert values["axis"].i == -1


def _of_another_mean(net, x, width):
    other = net.add("ReduceMean", [net.add("Mul", [x, x], (width,))], (1,), axes=[-1], keepdims=1)
    _, apart, deviation = _inverse(net, x, width, mean=other)
    return net.add("Div", [apart, deviation], (width,))


def _of_half_the_mean(net, x, width):
    total = net.add("ReduceSum", [x, net.weight(np.array([1], np.int64))], (1,), keepdims=1)
    half = net.add("Mul", [total, net.weight(np.float32(0.5 / width))], (1,))
    _, apart, deviation = _inverse(net, x, width, mean=half)
    return net.add("Div", [apart, deviation], (width,))


def _with_the_mean_added(net, x, width):
    mean, _, deviation = _inverse(net, x, width)
    inverse = net.add("Reciprocal", [deviation], (1,))
    product, moved = net.add("Mul", [x, inverse], (width,)), net.add("Mul", [mean, inverse], (1,))
    return net.add("Add", [product, moved], (width,))


def _of_the_root_alone(net, x, width):
    _, _, deviation = _inverse(net, x, width)
    return net.add("Div", [x, deviation], (width,))


def _with_two_divided(net, x, width):
    _, apart, deviation = _inverse(net, x, width)
    inverse = net.add("Div", [net.weight(np.float32(2)), deviation], (1,))
    return net.add("Mul", [apart, inverse], (width,))


@pytest.mark.parametrize(
    "spelled",
    [
        _of_another_mean,
        _of_half_the_mean,
        _with_the_mean_added,
        _of_the_root_alone,
        _with_two_divided,
        by_power(-0.5, "Div"),
        by_power(0.5, "Mul"),
        by_power(0.25, "Div"),
    ],
)
def test_what_only_looks_like_it_stays(spelled):
    net = Network()
    x = net.add("Relu", [net.add("MatMul", ["i", net.normal(4, WIDTH)], (WIDTH,))], (WIDTH,))
    model = _finished(net, spelled(net, x, WIDTH), WIDTH)
    lifted = lift(model)
    _same(model, lifted)
    assert "LayerNormalization" not in _ops(lifted)


def test_what_others_read_stays_beside_it():
    net = Network()
    x = net.add("Relu", [net.add("MatMul", ["i", net.normal(4, WIDTH)], (WIDTH,))], (WIDTH,))
    mean, apart, deviation = _inverse(net, x, WIDTH)
    y = net.add("Div", [apart, deviation], (WIDTH,))
    model = _finished(net, net.add("Add", [y, mean], (WIDTH,)), WIDTH)
    lifted = lift(model)
    _same(model, lifted)
    assert {"LayerNormalization", "ReduceMean"} <= set(_ops(lifted))


def test_it_can_be_fp16():
    """Its second and third results never are, but nobody asks for them."""
    net = Network()
    x = net.add("Relu", [net.add("MatMul", ["i", net.normal(4, WIDTH)], (WIDTH,))], (WIDTH,))
    half = to_half(lift(_finished(net, plain(net, x, WIDTH), WIDTH)), (), "float16")
    (node,) = [node for node in half.graph.node if node.op_type == "LayerNormalization"]
    types = tensor_types(half)
    assert {types[name] for name in (*node.input, *node.output)} == {10}


def _grown_after(net, x):
    _, apart, deviation = _inverse(net, x, 1)
    y = net.add("Mul", [net.add("Div", [apart, deviation], (1,)), net.normal(5)], (5,))
    return net.add("Add", [y, net.normal(5)], (5,))


def _grown_by_its_scale(net, x):
    mean, _, deviation = _inverse(net, x, 1)
    scaled = net.add("Mul", [net.add("Reciprocal", [deviation], (1,)), net.normal(5)], (5,))
    product, moved = net.add("Mul", [x, scaled], (5,)), net.add("Mul", [mean, scaled], (5,))
    return net.add("Add", [product, net.add("Sub", [net.normal(5), moved], (5,))], (5,))


def _grown_by_its_shift(net, x):
    mean, _, deviation = _inverse(net, x, 1)
    inverse = net.add("Reciprocal", [deviation], (1,))
    product, moved = net.add("Mul", [x, inverse], (1,)), net.add("Mul", [mean, inverse], (1,))
    return net.add("Add", [product, net.add("Sub", [net.normal(5), moved], (5,))], (5,))


@pytest.mark.parametrize("spelled", [_grown_after, _grown_by_its_scale, _grown_by_its_shift])
def test_of_one_number_that_a_weight_makes_several(spelled):
    """A weight that broadcasts the normalized number is no scale and no shift of its one element."""
    net = Network()
    x = net.add("Relu", [net.add("MatMul", ["i", net.normal(4, 1)], (1,))], (1,))
    model = _finished(net, spelled(net, x), 5)
    _same(model, lift(model))


def test_a_long_chain_of_sums_is_taken_apart_once():
    """By every way back it would be 2 to the 200 terms: h + h / 10, over and over."""
    net = Network()
    x = net.add("Relu", [net.add("MatMul", ["i", net.normal(4, WIDTH)], (WIDTH,))], (WIDTH,))
    mean = net.add("MatMul", ["i", net.normal(4, 1)], (1,))
    for _ in range(200):
        mean = net.add("Add", [mean, net.add("Mul", [mean, net.weight(np.float32(0.01))], (1,))], (1,))
    _, apart, deviation = _inverse(net, x, WIDTH, mean=mean)
    model = _finished(net, net.add("Div", [apart, deviation], (WIDTH,)), WIDTH)
    lifted = lift(model)
    _same(model, lifted)
    assert "LayerNormalization" not in _ops(lifted)
