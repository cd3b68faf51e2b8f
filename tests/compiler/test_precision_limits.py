"""What FP16 cannot carry is found before anything is tried."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from bireme.compiler.fp16.half_limits import CLIPPED, clip, find_limits, find_masks
from bireme.compiler.fp16.layers import group_layers, origin
from bireme.compiler.fp16.ranges import Range, column_ranges, tensor_ranges

HEAD = """<ir_version: 8, opset_import: ["" : 17]>"""


def network(body: str) -> onnx.ModelProto:
    model = parser.parse_model(f"{HEAD} g (float[n, 4] x) => (float[n, 4] y) {body}")
    onnx.checker.check_model(model, full_check=True)
    return model


def limits(model: onnx.ModelProto, x: np.ndarray):
    return find_limits(model, tensor_ranges(model, [{"x": x.astype(np.float32)}]))


NORMAL = np.random.default_rng(0).normal(size=(50, 4))


def test_overflow_forces_the_ops_around_it_and_no_others():
    model = network("<float k = {1000}, float r = {0.001}> {"
                    "[a] s = Relu(x) [b] t = Mul(s, k) [c] u = Mul(t, r) [d] y = Tanh(u) }")  # fmt: skip
    found = limits(model, NORMAL * 100)
    assert set(found.forced) == {"b", "c"}
    assert "FP16 ends at 65504" in found.forced["b"]
    assert limits(model, NORMAL).forced == {}


def test_values_near_the_end_count_as_overflow():
    model = network("{ [a] y = Relu(x) }")
    assert "too close" in limits(model, np.full((1, 4), 40_000.0)).forced["a"]
    assert limits(model, np.full((1, 4), 30_000.0)).forced == {}


def test_a_guard_that_fp16_makes_zero_keeps_the_way_to_what_it_guards():
    model = network(
        """<float e = {1e-12}, float h = {0.5}> {
        [a] q = Mul(x, x) [b] g = Max(q, e) [c] r = Sqrt(g) [d] z = Div(x, r) [f] y = Mul(z, h) }"""
    )
    found = limits(model, NORMAL)
    assert set(found.forced) == {"b", "c", "d"}
    assert "1e-12" in found.forced["d"]
    harmless = network("<float e = {1e-12}> { [a] q = Add(x, e) [b] y = Relu(q) }")
    assert limits(harmless, NORMAL).forced == {}


def test_a_difference_of_close_numbers_is_suspect_up_to_the_next_product():
    model = network(
        """<float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}, float far = {3000}> {
        [m] p = MatMul(x, w) [a] u = Add(p, far) [b] v = Abs(u) [c] y = Sub(v, far) }"""
    )
    assert set(limits(model, NORMAL).suspect) >= {"a", "b", "c"}
    assert "m" not in limits(model, NORMAL).suspect
    near = network("<float far = {1}> { [a] u = Add(x, far) [c] y = Sub(u, far) }")
    assert limits(near, NORMAL).suspect == {}


def test_a_comparison_that_rounding_could_flip_is_suspect():
    model = network("<float edge = {0.1}> { [a] b = Greater(x, edge) [c] y = Cast<to = 1>(b) }")
    assert set(limits(model, NORMAL).suspect) == {"a"}
    assert limits(model, np.round(NORMAL)).suspect == {}


def test_a_large_constant_forces_its_reader():
    model = network("<float k = {1e6}> { [a] y = Min(x, k) }")
    assert "1e+06" in limits(model, NORMAL).forced["a"]


MASKED = """<float none = {-4294967295}> {
    [a] zero = Sub(x, x) [b] seen = Greater(x, zero)
    [c] m = Where(seen, x, none) [d] y = Softmax<axis = -1>(m) }"""


def test_a_mask_is_drawn_into_range_and_then_forces_nothing():
    model = network(MASKED)
    (mask,) = find_masks(model)
    assert mask.value == np.float32(-4294967295)
    drawn = clip(model, [mask])
    assert numpy_helper.to_array(drawn.graph.initializer[0]) == -CLIPPED
    assert numpy_helper.to_array(model.graph.initializer[0]) < -1e9
    assert limits(drawn, NORMAL).forced == {}
    assert {"c", "d"} <= set(limits(model, NORMAL).forced)


@pytest.mark.parametrize(
    "body",
    [
        "<float k = {-1e9}> { [a] y = Add(x, k) }",  # no softmax behind it
        "<float k = {1e9}> { [a] m = Min(x, k) [d] y = Softmax<axis = -1>(m) }",  # a bound, no mask
        # used twice
        "<float k = {-1e9}> { [a] m = Add(x, k) [b] s = Softmax<axis = -1>(m) [c] y = Mul(s, m) }",
    ],
)
def test_what_is_no_mask_is_not_drawn(body):
    assert find_masks(network(body)) == []


def test_ranges_are_those_of_all_requests():
    ranges = column_ranges([np.array([[1.0, -5.0]]), np.array([[3.0, 2049.0], [np.inf, 0.0]])])
    assert [r.largest for r in ranges] == [3.0, 2049.0]
    assert (ranges[0].spread, ranges[0].size) == (1.0, pytest.approx(np.sqrt(5)))
    assert [r.exact for r in ranges] == [True, False]
    assert Range().spread == Range().size == 0


def named(*origins: str) -> onnx.ModelProto:
    body = " ".join(f"[n{k}] t{k + 1} = Relu(t{k})" for k in range(len(origins)))
    model = parser.parse_model(f"{HEAD} g (float[n, 4] t0) => (float[n, 4] t{len(origins)}) {{ {body} }}")
    for node, text in zip(model.graph.node, origins, strict=True):
        node.doc_string = text
    return model


def test_layers_go_by_tensorflow_scopes():
    model = named(
        "StatefulPartitionedCall/model/dense/MatMul/folded/MatMul",
        "StatefulPartitionedCall/model/dense/Relu",
        "StatefulPartitionedCall/model/out/MatMul",
        "StatefulPartitionedCall/model/add",
    )
    assert origin(model.graph.node[0]) == "model/dense/MatMul"
    layers = {layer.name: layer.nodes for layer in group_layers(model, 99)}
    assert layers["model/dense"][:2] == ("n0", "n1")


def test_layers_are_joined_until_they_are_few_enough():
    model = parser.parse_model(
        HEAD + " g (float[n, 1, 4] t0) => (float[n, 1, 4] t6) <float[4, 4] w> {"
        + " ".join(f"[n{k}] t{k + 1} = MatMul(t{k}, w)" for k in range(6)) + "}"
    )  # fmt: skip
    assert len(group_layers(model, 99)) == 6
    few = group_layers(model, 4)
    assert len(few) == 4
    assert [name for layer in few for name in layer.nodes] == [f"n{k}" for k in range(6)]
