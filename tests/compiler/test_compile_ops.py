"""Dense ops of real ranking models: lifted scores are the original's, and mixing rows is refused by name."""

from __future__ import annotations

import pytest
import tensorflow as tf
from compiler_dense import DenseChain
from compiler_families import FAMILIES
from compiler_ops import OPS, of_sequence, total

from bireme.errors import CompileError


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, tmp_path):
    chain = DenseChain(FAMILIES[family](), tmp_path / "saved_model")
    chain.check()
    # No shape is computed per request except where a convolution folds the candidates into its batch.
    shapes = {node.op_type for node in chain.rowwise.graph.node}
    assert not shapes & {"Shape", "Size", "ConstantOfShape", "Loop", "If"}


@pytest.mark.parametrize("case", OPS)
def test_op(case, tmp_path):
    chain = DenseChain(of_sequence(OPS[case]), tmp_path / "saved_model")
    chain.check()
    assert not {node.op_type for node in chain.rowwise.graph.node} & {"Shape", "Size", "ConstantOfShape"}


#: The same habits along the rows, and the op that says no.
ALONG_ROWS = {
    "cumsum": (lambda x, u, w: total(tf.cumsum(x * u, axis=0)), "CumSum"),
    "top": (lambda x, u, w: total(tf.transpose(tf.math.top_k(tf.transpose(x * u), 1)[0])), "Transpose"),
    "argmax": (lambda x, u, w: total(w + tf.cast(tf.argmax(w, 0), tf.float32)), "ArgMax"),
    "gathered rows": (lambda x, u, w: total(tf.gather(x, tf.argmax(w, 1)) + u), "Gather"),
    "rows backwards": (lambda x, u, w: total(x + tf.reverse(u, [0])), "Slice"),
    "padded rows": (lambda x, u, w: total(x + tf.pad(u, [[1, 0], [0, 0], [0, 0]])[:-1]), "Pad"),
    "rows from the other end": (lambda x, u, w: total(x) + total(tf.roll(u, 1, 0)), "Shape"),
    "log of a sum": (lambda x, u, w: total(w - tf.reduce_logsumexp(w, 0)), "ReduceMax"),
    "in-batch negatives": (lambda x, u, w: total(tf.matmul(w, w, transpose_b=True)[:, :1] + w), "Transpose"),
    "einsum of rows": (
        lambda x, u, w: total(tf.einsum("bd,cd->bc", w, u[:, 0])[:, :2] * w[:, :2]),
        "Transpose",
    ),
    "kept rows": (lambda x, u, w: tf.boolean_mask(total(x), w[:, 0] > 0), "NonZero"),
    "scattered rows": (
        lambda x, u, w: total(tf.tensor_scatter_nd_add(w, tf.cast(w[:, :1] > 0, tf.int32), w) + w),
        "ScatterND",
    ),
    "how many rows": (lambda x, u, w: total(w) / tf.cast(tf.shape(w)[0], tf.float32), "Shape"),
    "rows as columns": (lambda x, u, w: total(tf.reshape(tf.transpose(w), [-1, 3])), "Transpose"),
    "rows joined": (
        lambda x, u, w: total(tf.nn.softmax(tf.concat([w, w * 2], 0), 1)[: tf.shape(w)[0] - 1]),
        "Concat",
    ),
    "rows without their place": (
        lambda x, u, w: total(tf.reshape(tf.reshape(x, [-1, 3]), [4, -1, 3])[0]),
        "Reshape",
    ),
    "normalised over rows": (
        lambda x, u, w: total((w - tf.reduce_mean(w, 0)) / tf.math.reduce_std(w, 0)),
        "ReduceMean",
    ),
}


@pytest.mark.parametrize("case", ALONG_ROWS)
def test_along_the_rows_is_refused_by_name(case, tmp_path):
    function, op = ALONG_ROWS[case]
    chain = DenseChain(of_sequence(function), tmp_path / "saved_model")
    with pytest.raises(CompileError) as caught:
        _ = chain.lifted
    assert caught.value.where.startswith(f"op {op} (node '"), caught.value
    assert caught.value.hint
