"""The checks of the passes: a pass that changes a score is caught, and named."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from bireme.compiler import acceptance, pipeline
from bireme.compiler.check import Checker, as_function
from bireme.compiler.fold import fold
from bireme.compiler.graph import Graph
from bireme.compiler.pipeline import compile_model
from bireme.compiler.rules.lower import RULES
from bireme.compiler.rules.values import Numbers
from bireme.errors import CompileError


def wrong_weights(graph: Graph) -> Graph:
    """Changes a kernel a little."""
    graph = graph.copy()
    for node in graph.nodes.values():
        if node.value is not None and node.value.ndim == 2 and node.value.dtype == np.float32:
            node.value = node.value * np.float32(1.001)
            return graph
    raise AssertionError("no kernel found")


@pytest.mark.parametrize("name", ["trim", "fold", "batchnorm", "merge"])
def test_graph_pass_that_changes_scores_is_named(zoo, monkeypatch, name):
    original = pipeline._GRAPH_PASSES[name]

    def wrong(graph: Graph) -> Graph:
        return wrong_weights(fold(original(graph)))

    monkeypatch.setitem(pipeline._GRAPH_PASSES, name, wrong)
    with pytest.raises(CompileError) as caught:
        compile_model(zoo("plain_tensorflow").spec, "cpu")
    assert caught.value.where.startswith(f"pass {name}, output '")
    assert "sample row" in caught.value.message


def scale_first_weight(model: onnx.ModelProto) -> onnx.ModelProto:
    for weight in model.graph.initializer:
        value = onnx.numpy_helper.to_array(weight)
        if value.dtype == np.float32 and value.size > 2:
            weight.CopyFrom(onnx.numpy_helper.from_array(value * np.float32(1.01), weight.name))
            return model
    raise AssertionError("no weight found")


@pytest.mark.parametrize("name", ["to_onnx", "user_once"])
def test_onnx_pass_that_changes_scores_is_named(zoo, monkeypatch, name):
    original = getattr(pipeline, name)
    monkeypatch.setattr(pipeline, name, lambda *given: scale_first_weight(original(*given)))
    with pytest.raises(CompileError) as caught:
        compile_model(zoo("plain_tensorflow").spec, "cpu")
    assert caught.value.where.startswith(f"pass {'dense' if name == 'to_onnx' else name}, output '")


@pytest.mark.parametrize(("op", "wrong"), [("Log1p", "sqrt"), ("Tanh", "abs"), ("Sqrt", "square")])
def test_a_wrong_rule_about_a_transform_is_caught(zoo, monkeypatch, op, wrong):
    from dataclasses import replace

    def mistaken(rule):
        def run(low, node):
            value = rule(low, node)
            changed = isinstance(value, Numbers)
            return replace(value, chain=(*value.chain[:-1], (wrong, None))) if changed else value

        return run

    monkeypatch.setitem(RULES, op, tuple(mistaken(rule) for rule in RULES[op]))
    with pytest.raises(CompileError) as caught:
        compile_model(zoo("transforms").spec, "cpu")
    assert "pass dense, output" in caught.value.where


def test_columns_in_the_wrong_order_are_caught(zoo, monkeypatch):
    original = acceptance.boundary_feeds

    def shifted(cut, half):
        return original(cut, half.__class__(half.user, np.roll(half.items, 1, axis=2), half.candidates))

    monkeypatch.setattr(acceptance, "boundary_feeds", shifted)
    with pytest.raises(CompileError, match="pass dense"):
        compile_model(zoo("plain_tensorflow").spec, "cpu")


def test_difference_is_absolute_for_small_and_relative_for_large_scores():
    expected = {"small": np.array([0.001, 0.5]), "large": np.array([-3.0, 1000.0])}
    check = Checker(expected, tolerance=1e-3)
    check("fine", {"small": np.array([0.0015, 0.5]), "large": np.array([-3.6, 1000.9])})
    assert check.differences == {"fine": pytest.approx(9e-4)}
    with pytest.raises(CompileError, match=r"'large'.*sample row 1"):
        check("bad", {"small": expected["small"], "large": np.array([-3.0, 1001.1])})
    with pytest.raises(CompileError, match=r"'small'.*sample row 0"):
        check("bad", {"small": np.array([0.0021, 0.5]), "large": expected["large"]})


@pytest.mark.parametrize("values", [[np.nan, 2.0], [np.inf, 2.0], [-np.inf, 2.0]])
def test_scores_that_are_no_numbers_are_no_agreement(values):
    finite, odd = np.array([1.0, 2.0]), np.array(values)
    for wanted, found in ((finite, odd), (odd, finite)):
        with pytest.raises(CompileError, match=r"pass some, output 'score'.*row 0"):
            Checker({"score": wanted}, 1e9)("some", {"score": found})
    Checker({"score": odd}, 1e-9)("same", {"score": odd.astype(np.float32)})


def test_rows_are_compared_whatever_the_shape():
    check = Checker({"score": np.arange(3.0)}, 1e-6)
    check("column", {"score": np.arange(3.0)[:, None]})
    assert check.differences["column"] == 0


def test_a_graph_is_prepared_once_for_any_number_of_rows(zoo):
    example = zoo("sequences")
    run = as_function(example.graphs["load"])
    for rows, length in ((1, 0), (3, 5), (2, 1)):
        feeds = {
            "words": np.full((rows, length), b"red", dtype=object),
            "ids": np.ones((rows, length), np.int64),
            "five": np.full((rows, 5), b"blue", dtype=object),
            "four": np.ones((rows, 4), np.int32),
            "price": np.arange(rows, dtype=np.float32),
        }
        found, wanted = run(feeds), example.original.predict(feeds)
        for task in wanted:
            np.testing.assert_allclose(found[task], wanted[task], rtol=1e-6)
