"""Layers of the user over the same columns become one product."""

from __future__ import annotations

import numpy as np
import pytest
from compiler_networks import Network, lift, random_halves, rowwise_scores

from bireme.compiler.dense import runner
from bireme.compiler.rows.costs import flops_per_request


@pytest.mark.parametrize("biased", [(True, True, True), (True, False, True), (False, False, False)])
def test_first_layers_read_the_user_once(biased):
    net = Network()
    mixed = net.add("Concat", ["u", "i"], (7,), axis=-1)
    layers = []
    for width, with_bias in zip((4, 2, 3), biased, strict=True):
        made = net.add("MatMul", [mixed, net.normal(7, width)], (width,))
        if with_bias:
            made = net.add("Add", [made, net.normal(width)], (width,))
        layers.append(net.add("Relu", [made], (width,)))
    joined = net.add("Concat", layers, (9,), axis=-1)
    model = net.model(score=net.add("MatMul", [joined, net.normal(9, 1)], (1,)))
    lifted = lift(model)
    halves = random_halves(3, 5)
    wanted = rowwise_scores(runner(model), halves)["score"]
    np.testing.assert_allclose(runner(lifted)(halves)["score"], wanted, rtol=1e-5, atol=1e-5)
    weights = {weight.name: list(weight.dims) for weight in lifted.graph.initializer}
    products = [weights.get(node.input[1]) for node in lifted.graph.node if node.op_type == "MatMul"]
    assert [shape for shape in products if shape == [3, 9]] == [[3, 9]]
    assert sorted(shape for shape in products if shape and shape[0] == 4 and shape[1] > 1) == [
        [4, 2],
        [4, 3],
        [4, 4],
    ]
    assert flops_per_request(lifted, 5) == 2 * (3 * 9 + 5 * (4 * 9 + 9))
