"""Pass batchnorm: multiply-adds melt into the dense layers around them, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import make_spec
from compiler_parts import Inputs, Made, keras_model, made, variable
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import layers

from bireme.compiler.batchnorm import fold_batchnorm
from bireme.compiler.check import as_function
from bireme.compiler.fold import fold
from bireme.compiler.graph import Graph
from bireme.compiler.load import SavedModel, load
from bireme.compiler.trim import trim

F = tf.float32
AFFINE = {"Mul", "Sub", "RealDiv", "Add", "AddV2", "BiasAdd"}


def folded_before(folder: Any, model: Made) -> Graph:
    model.export(folder / "saved_model")
    return fold(trim(load(SavedModel(make_spec(folder / "saved_model", ["x"]).saved_model), {})))


def affine_ops(graph: Graph) -> list[str]:
    """Multiply-adds by a constant."""
    return [
        node.op
        for node in graph.nodes.values()
        if node.op in AFFINE and any(graph.constant(ref) is not None for ref in node.inputs)
    ]


def difference(first: Graph, second: Graph, width: int = 5) -> float:
    rows = {"x": np.random.default_rng(3).normal(0, 2, (50, width)).astype(np.float32)}
    wanted, found = as_function(first)(rows), as_function(second)(rows)
    return max(float(np.abs(wanted[task] - found[task]).max()) for task in wanted)


def network(*stack: Any, width: int = 5) -> Made:
    inputs = Inputs()
    x = inputs("x", "float32", (width,))
    for layer in stack:
        x = layer(x)
    return Made(keras_model(inputs, {"y": x}), ("x",))


def bn(**options: Any) -> Any:
    return layers.BatchNormalization(**options)


STACKS = {
    "before the activation": lambda: (layers.Dense(8), bn(), layers.ReLU(), layers.Dense(3)),
    "after the activation": lambda: (layers.Dense(8, activation="relu"), bn(), layers.Dense(3)),
    "between two dense layers": lambda: (layers.Dense(8), bn(), layers.Dense(3)),
    "in front of everything": lambda: (bn(), layers.Dense(8, activation="relu"), layers.Dense(3)),
    "without bias, scale and centre": lambda: (
        layers.Dense(8, use_bias=False),
        bn(scale=False, center=False),
        layers.ReLU(),
        layers.Dense(3, use_bias=False),
    ),
    "two of them": lambda: (layers.Dense(8), bn(), bn(center=False), layers.ReLU(), bn(), layers.Dense(3)),
    "rescaled": lambda: (layers.Rescaling(0.1, offset=-2.0), layers.Dense(8), layers.Rescaling(3.0)),
}


@pytest.mark.parametrize("name", STACKS)
def test_only_one_bias_per_dense_layer_is_left(tmp_path, name):
    before = folded_before(tmp_path, network(*STACKS[name]()))
    after = fold_batchnorm(before)
    dense = sum(node.op == "MatMul" for node in after.nodes.values())
    assert dense == sum(node.op == "MatMul" for node in before.nodes.values())
    assert len(affine_ops(after)) <= dense < len(affine_ops(before)) + 1
    assert set(affine_ops(after)) <= {"AddV2", "BiasAdd"}
    assert difference(before, after) < 1e-6 * 20  # activations reach about 20


@pytest.mark.parametrize("name", STACKS)
def test_folding_again_changes_nothing(tmp_path, name):
    after = fold_batchnorm(folded_before(tmp_path, network(*STACKS[name]())))
    again = fold_batchnorm(after)
    assert sorted(n.op for n in again.nodes.values()) == sorted(n.op for n in after.nodes.values())
    assert difference(after, again) == 0


def test_what_others_read_too_stays(tmp_path):
    """The normalised activation has a second reader, the raw one is an output."""
    inputs = Inputs()
    x = inputs("x", "float32", (5,))
    raw = layers.Dense(4, name="raw")(x)
    normal = bn()(raw)
    outputs = {"y": layers.Dense(2)(normal), "z": layers.Dense(3)(normal), "raw": raw}
    before = folded_before(tmp_path, Made(keras_model(inputs, outputs), ("x",)))
    assert difference(before, fold_batchnorm(before)) < 1e-5


def test_a_number_that_a_constant_widens_is_left_alone(tmp_path):
    """[rows, 1] times [width] is a matrix; as a factor of the weights it would lose its columns."""
    parts = {"vector": variable(6, seed=1), "kernel": variable(6, 3, seed=2)}
    model = made(parts, lambda m, x: {"y": tf.matmul(x * m.vector + 1.0, m.kernel)}, ("x",), x=(F, [None, 1]))
    before = folded_before(tmp_path, model)
    assert difference(before, fold_batchnorm(before), width=1) < 1e-6


def test_a_single_number_is_normalised_where_it_arrives(tmp_path):
    """Folded into the layer behind it, it would cross to the DNN raw, too large or too coarse for FP16."""
    model = network(layers.Normalization(mean=[1e6], variance=[1e10]), layers.Dense(3), width=1)
    after = fold_batchnorm(folded_before(tmp_path, model))
    assert {"Sub", "RealDiv"} <= set(affine_ops(after)) or {"Sub", "Mul"} <= set(affine_ops(after))


def test_products_of_two_inputs_are_left_alone(tmp_path):
    model = made(
        {},
        lambda m, x: {"y": tf.matmul(x * 2.0, tf.matmul(x, x, transpose_a=True)) * 3.0},
        ("x",),
        x=(F, [None, 5]),
    )
    before = folded_before(tmp_path, model)
    after = fold_batchnorm(before)
    assert difference(before, after) == 0
    assert sorted(n.op for n in before.nodes.values()) == sorted(n.op for n in after.nodes.values())


def test_transposed_weights_and_divisions(tmp_path):
    parts = {"kernel": variable(3, 5, seed=2), "divisor": tf.Variable([2.0, 4.0, -8.0])}

    def call(m, x):
        return {
            "y": 1.5 - tf.nn.bias_add(tf.matmul(x - 3.0, m.kernel, transpose_b=True) / m.divisor, m.divisor)
        }

    before = folded_before(tmp_path, made(parts, call, ("x",), x=(F, [None, 5])))
    after = fold_batchnorm(before)
    assert difference(before, after) < 1e-5
    assert len(affine_ops(after)) < len(affine_ops(before))


@pytest.mark.parametrize("name", ["transforms", "architectures", "plain_tensorflow"])
def test_zoo_models_keep_their_scores(zoo, name):
    assert zoo(name).compiled.differences["batchnorm"] < 1e-6 * 3


OPS = {
    "mul": lambda x, c: x * c,
    "rmul": lambda x, c: c * x,
    "add": lambda x, c: x + c,
    "radd": lambda x, c: c + x,
    "sub": lambda x, c: x - c,
    "rsub": lambda x, c: c - x,
    "div": lambda x, c: x / c,
    "rdiv": lambda x, c: c / (tf.abs(x) + 1.0),
}
SHAPES = st.sampled_from([(), (1,), (5,), (1, 5), (1, 1)])
CHAINS = st.lists(st.tuples(st.sampled_from(sorted(OPS)), SHAPES), max_size=4)


@settings(max_examples=15, deadline=None)
@given(before=CHAINS, behind=CHAINS, seed=st.integers(0, 1000))
def test_any_chain_around_a_dense_layer_keeps_its_values(tmp_path_factory, before, behind, seed):
    rng = np.random.default_rng(seed)

    def constant(shape: tuple[int, ...]) -> Any:
        return tf.constant(rng.uniform(0.5, 2.0, shape).astype(np.float32))

    def call(m, x):
        for op, shape in before:
            x = OPS[op](x, constant(shape))
        x = tf.matmul(x, constant((5, 5)))
        for op, shape in behind:
            x = OPS[op](x, constant(shape))
        return {"y": x}

    graph = folded_before(tmp_path_factory.mktemp("chain"), made({}, call, ("x",), x=(F, [None, 5])))
    after = fold_batchnorm(graph)
    rows = {"x": rng.normal(size=(9, 5)).astype(np.float32)}
    wanted, found = as_function(graph)(rows)["y"], as_function(after)(rows)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
