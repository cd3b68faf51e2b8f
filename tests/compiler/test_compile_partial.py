"""Only what the signature needs is loaded, of every kind of archive that carries more; nothing is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.core.protobuf import saved_model_pb2

from bireme.compiler.load import SavedModel
from bireme.compiler.partial import load_signature, prune


class Loaded:
    """Counts the bytes of the variables that a load makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tensorflow.python.saved_model.load import Loader

        self.bytes = 0
        recreate = Loader._recreate_variable

        def counted(loader: Any, proto: Any) -> Any:
            self.bytes += 4 * int(np.prod([d.size for d in proto.shape.dim], dtype=int))
            return recreate(loader, proto)

        monkeypatch.setattr(Loader, "_recreate_variable", counted)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    return Loaded(monkeypatch)


def ranker(rows: int, width: int) -> keras.Model:
    word = keras.Input((), dtype="string", name="word")
    x = layers.StringLookup(vocabulary=["a", "b"])(word)
    x = layers.Embedding(rows, width)(x)
    return keras.Model(word, {"y": layers.Dense(1)(x)})


def test_keras_3_stores_every_variable_twice_and_one_is_loaded(tmp_path: Path, loaded: Loaded) -> None:
    model = ranker(1000, 4)
    model.export(str(tmp_path), verbose=False)
    stored = tf.train.list_variables(str(tmp_path / "variables" / "variables"))
    assert sum(shape == [1000, 4] for _, shape in stored) == 2  # else the test says nothing
    function = load_signature(tmp_path, "serving_default").signatures["serving_default"]
    assert loaded.bytes == 4 * (1000 * 4 + 4 + 1)
    words = tf.constant(["b", "?"])
    assert np.allclose(function(word=words)["y"], model(words)["y"], atol=1e-7)


class Trained(tf.Module):
    """A model with its optimizer's moments, another signature's table, vocabularies and an asset file."""

    def __init__(self, words: Path) -> None:
        self.table = tf.Variable(tf.random.stateless_normal([4, 3], [1, 2]))
        self.moments = {"table": [tf.Variable(tf.zeros([4, 3])) for _ in range(2)]}
        self.other = tf.Variable(tf.ones([100, 3]))
        source = tf.lookup.TextFileInitializer(
            str(words),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.lookup = tf.lookup.StaticHashTable(source, 3)
        self.unused = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["x"], [1]), 0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def serve(self, word: Any) -> dict[str, Any]:
        return {"y": tf.reduce_sum(tf.gather(self.table, self.lookup[word]), 1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="row")])
    def look(self, row: Any) -> dict[str, Any]:
        return {"z": tf.reduce_sum(tf.gather(self.other, row), 1)}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "words.txt").write_text("red\ngreen\nblue\n")
    model = Trained(tmp_path / "words.txt")
    model.word_vectors = model.table  # type: ignore[attr-defined]  # a second name of the same variable
    tf.saved_model.save(
        model, str(tmp_path / "saved"), signatures={"serving_default": model.serve, "look": model.look}
    )
    (tmp_path / "words.txt").unlink()
    return tmp_path / "saved"


def test_moments_and_other_signatures_stay_on_disk(archive: Path, loaded: Loaded) -> None:
    part = load_signature(archive, "serving_default")
    function = part.signatures["serving_default"]
    assert loaded.bytes == 4 * 4 * 3
    root = tf.saved_model.load(str(archive))
    words = tf.constant(["blue", "red", "mauve"])
    assert np.array_equal(function(word=words)["y"], root.signatures["serving_default"](word=words)["y"])
    other = load_signature(archive, "look").signatures["look"]
    assert np.array_equal(other(row=tf.constant([0, 99], tf.int64))["z"], [3.0, 3.0])


def test_the_function_outlives_what_the_caller_drops(archive: Path) -> None:
    assert SavedModel(archive).predict({"word": np.array([b"red"], dtype=object)})["y"].shape == (1,)


def test_other_functions_are_not_even_built(archive: Path) -> None:
    part = load_signature(archive, "serving_default")
    assert sorted(part.signatures) == ["serving_default"]
    assert not hasattr(part, "look")
    assert not hasattr(part, "moments")


def test_an_unknown_signature_gets_the_whole_model(archive: Path) -> None:
    assert sorted(load_signature(archive, "predict").signatures) == ["look", "serving_default"]


def read(folder: Path) -> Any:
    model = saved_model_pb2.SavedModel()
    model.ParseFromString((folder / "saved_model.pb").read_bytes())
    return model.meta_graphs[0]


def test_a_variable_that_the_checkpoint_cannot_find_means_no_pruning(
    archive: Path,
) -> None:
    meta = read(archive)
    for node in meta.object_graph_def.nodes:
        kept = [child for child in node.children if child.local_name not in ("table", "word_vectors")]
        del node.children[:]
        node.children.extend(kept)
    before = meta.SerializeToString(deterministic=True)
    assert not prune(meta.object_graph_def, meta.graph_def.library, "serving_default")
    assert meta.SerializeToString(deterministic=True) == before


def test_a_tensorflow_1_model_is_loaded_as_a_whole(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        word = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        weight = tf.compat.v1.get_variable("w", initializer=3.0, use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(
            session, str(tmp_path / "saved"), {"x": word}, {"y": word * weight}
        )
    function = load_signature(tmp_path / "saved", "serving_default").signatures["serving_default"]
    assert function(x=tf.constant([2.0]))["y"].numpy().tolist() == [6.0]
