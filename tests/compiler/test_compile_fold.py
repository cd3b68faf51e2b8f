"""Pass fold: dense weights become constants; embedding tables never do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tensorflow as tf
from compiler_helpers import make_spec, weights_of
from compiler_parts import made, table, variable

from bireme.compiler.cut.reads import table_reads
from bireme.compiler.fold import fold
from bireme.compiler.load import SavedModel, load
from bireme.compiler.pipeline import compile_model
from bireme.compiler.trim import trim

KERAS = ["transforms", "sequences", "architectures"]
ROWS = 40_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model with a large table, a vocabulary as large, and a dense variable."""
    words = [f"word {k}" for k in range(ROWS - 1)]
    parts = {
        "words": table(words, list(range(1, ROWS)), 0),
        "rows": variable(ROWS, 4, seed=1, name="large_table"),
        "kernel": variable(5, 3, seed=2, name="kernel"),
        "scale": tf.Variable(2.0),
    }

    def call(m, word, price):
        looked = tf.nn.embedding_lookup(m.rows, m.words.lookup(word))
        x = tf.concat([looked, price[:, tf.newaxis] / tf.sqrt(m.scale * 8.0)], 1)
        return {"score": tf.reduce_sum(tf.matmul(x, m.kernel), -1) + tf.reduce_sum(m.kernel)}

    folder = tmp_path_factory.mktemp("large")
    made(parts, call, ("word",), word=(tf.string, [None]), price=(tf.float32, [None])).export(folder / "m")
    return make_spec(folder / "m", ["word"])


@pytest.fixture(scope="module")
def folded(large):
    return fold(trim(load(SavedModel(large.saved_model), {})))


def test_tables_stay_references(folded):
    (variable_node,) = set(table_reads(folded).values())
    assert folded.captures[variable_node].variable.shape == [ROWS, 4]
    kinds = sorted(capture.kind for capture in folded.captures.values())
    assert kinds == ["lookup", "variable"]


def test_dense_variables_and_what_follows_from_them_are_constants(folded):
    values = [node.value for node in folded.nodes.values() if node.value is not None]
    assert any(value.shape == (5, 3) for value in values)
    assert any(value.size == 1 and np.isclose(value.reshape(-1)[0], 4.0) for value in values)  # sqrt(2 · 8)
    assert not {"Sqrt", "VarHandleOp"} & {node.op for node in folded.nodes.values()}
    sums = [node for node in folded.nodes.values() if node.op == "Sum"]
    assert len(sums) == 1, "the sum of the kernel does not depend on the request"


def test_nothing_of_the_table_or_the_vocabulary_is_in_a_graph(large, folded):
    compiled = compile_model(large, "cpu")
    for value in [n.value for n in folded.nodes.values() if n.value is not None]:
        assert value.size < ROWS
    for model in (compiled.rowwise, compiled.dense):
        assert max(weight.size for weight in weights_of(model)) < ROWS
        assert model.ByteSize() < 4 * ROWS
    assert compiled.split.dense.to_graph_def().ByteSize() < 4 * ROWS


@pytest.mark.parametrize("name", KERAS)
def test_only_tables_and_vocabularies_are_captured_after_folding(zoo, name):
    graph = zoo(name).graphs["fold"]
    tables = set(table_reads(graph).values())
    assert tables
    for node, capture in graph.captures.items():
        assert (capture.kind == "lookup") != (node in tables)
    for node in graph.nodes.values():
        if node.op == "ReadVariableOp":
            assert node.inputs[0].split(":")[0] in tables


@pytest.mark.parametrize("name", KERAS)
def test_what_depends_on_constants_alone_is_gone(zoo, name):
    graph = zoo(name).graphs["fold"]
    for node in graph.nodes.values():
        if node.op == "Const" or not node.inputs or node.op == "ReadVariableOp":
            continue
        assert any(graph.constant(ref) is None for ref in node.inputs), node


def test_tables_do_not_reach_the_dense_network(zoo):
    """No weight of the served ONNX has the size of a table, nor its values."""
    compiled = zoo("transforms").compiled
    tables = {tuple(v.shape): v.numpy() for v in compiled.split.variables.values()}
    for model in (compiled.rowwise, compiled.dense):
        for weight in weights_of(model):
            assert tuple(weight.shape) not in tables or not np.array_equal(weight, tables[weight.shape])
    assert isinstance(compiled.dense, onnx.ModelProto)
