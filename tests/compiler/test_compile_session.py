"""SavedModels of TensorFlow 1: written by a session, their tables are ops of the graph, with asset files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import Served, make_spec, original_scores

from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import compile_model
from bireme.errors import CompileError

v1 = tf.compat.v1
WORDS = ["red", "green", "blue", "grün"]


def save(folder: Any, words: Any, initialise: bool = True) -> None:
    """A score from two tables of one file, one of them behind OOV buckets, and a float."""
    words.write_text("\n".join(WORDS), encoding="utf-8")
    with tf.Graph().as_default(), v1.Session() as session:
        user = v1.placeholder(tf.string, [None], "user")
        item = v1.placeholder(tf.string, [None], "item")
        price = v1.placeholder(tf.float32, [None], "price")
        index = v1.lookup.TextFileIndex
        source = v1.lookup.TextFileInitializer(
            str(words), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
        )
        known = v1.lookup.StaticHashTable(source, 3)
        first = v1.get_variable("first", [4, 3])
        second = v1.get_variable("second", [4, 3])
        rows = (
            v1.nn.embedding_lookup(first, known.lookup(user)),
            v1.nn.embedding_lookup(second, known.lookup(item)),
        )
        score = tf.sigmoid(tf.reduce_sum(rows[0] * rows[1], axis=1) + price)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        for variable in (first, second):
            variable.load(np.random.default_rng(3).normal(0, 0.6, (4, 3)).astype(np.float32), session)
        if not initialise:
            tf.compat.v1.get_default_graph().clear_collection(v1.GraphKeys.TABLE_INITIALIZERS)
        builder = v1.saved_model.Builder(str(folder))
        signature = v1.saved_model.predict_signature_def(
            {"user": user, "item": item, "price": price}, {"score": score}
        )
        builder.add_meta_graph_and_variables(
            session,
            [v1.saved_model.tag_constants.SERVING],
            {"serving_default": signature},
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=v1.tables_initializer() if initialise else None,
        )
        builder.save()


def test_tables_from_asset_files_score_as_the_original(tmp_path):
    save(tmp_path / "saved", tmp_path / "words.txt")
    (tmp_path / "words.txt").unlink()  # the SavedModel has a copy
    spec = make_spec(tmp_path / "saved", ("user",))
    compiled = compile_model(spec, "cpu")
    (tmp_path / "files").mkdir()
    served, original = Served(compiled, tmp_path / "files"), SavedModel(spec.saved_model)
    requests = served.requests([1, 7, 64, 5], seed=3)
    for request, found in zip(requests, served.scores(requests), strict=True):
        wanted = original_scores(original, compiled, request, {"score": "score"})["score"]
        np.testing.assert_allclose(found["score"], wanted, atol=1e-6)
    known = {"user": {"user": "grün"}, "items": {"item": WORDS, "price": [0.0] * 4}}
    assert np.ptp(served.scores([known])[0]["score"]) > 1e-3


def test_a_table_that_nothing_fills_is_refused(tmp_path):
    save(tmp_path / "saved", tmp_path / "words.txt", initialise=False)
    with pytest.raises(CompileError, match="is empty: loading the SavedModel does not fill it"):
        compile_model(make_spec(tmp_path / "saved", ("user",)), "cpu")
