"""Pass load: what a damaged or strange SavedModel says, and that names and shapes are the file's own."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import make_spec
from compiler_parts import Inputs, Made, column, head, keras_model, made, variable
from keras import layers

from bireme.compiler.load import SavedModel, fill_unused, load
from bireme.compiler.pipeline import compile_model
from bireme.compiler.unroll import unroll
from bireme.errors import CompileError

F, S = tf.float32, tf.string


@pytest.fixture
def saved(zoo, tmp_path):
    """A copy of a good SavedModel, to be damaged."""
    return shutil.copytree(zoo("plain_tensorflow").path, tmp_path / "copy")


def refusal(path, signature="serving_default") -> CompileError:
    with pytest.raises(CompileError) as caught:
        SavedModel(path, signature)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return caught.value


def test_folder_that_does_not_exist(tmp_path):
    error = refusal(tmp_path / "nowhere")
    assert error.where == str(tmp_path / "nowhere")
    assert error.message == "does not exist"


def test_empty_folder(tmp_path):
    assert "no saved_model.pb" in refusal(tmp_path).message


def test_a_file_instead_of_a_folder(tmp_path):
    (tmp_path / "model.keras").write_bytes(b"PK")
    error = refusal(tmp_path / "model.keras")
    assert "model.export" in error.hint


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_truncated_graph(saved, keep):
    file = saved / "saved_model.pb"
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content)) if keep < 1 else keep])
    assert "cannot be loaded" in refusal(saved).message


def test_graph_that_is_noise(saved):
    (saved / "saved_model.pb").write_bytes(bytes(range(256)) * 50)
    assert "cannot be loaded" in refusal(saved).message


@pytest.mark.parametrize("name", ["variables.data-00000-of-00001", "variables.index"])
def test_missing_variables(saved, name):
    (saved / "variables" / name).unlink()
    assert "cannot be loaded" in refusal(saved).message


def test_truncated_variables(saved):
    file = saved / "variables" / "variables.data-00000-of-00001"
    file.write_bytes(file.read_bytes()[:-30])
    assert "cannot be loaded" in refusal(saved).message


def test_unknown_signature_names_the_known_ones(saved):
    error = refusal(saved, "predict")
    assert "'predict'" in error.message
    assert "serving_default" in error.message
    assert "signature" in error.hint


def test_unknown_output_suggests_a_near_one(zoo):
    with pytest.raises(CompileError) as caught:
        load(zoo("plain_tensorflow").original, {"click": "scor"})
    assert "output 'scor' (task 'click')" in caught.value.where
    assert "bounded, column" in caught.value.message
    assert caught.value.hint == "did you mean 'score'?"


def test_output_that_is_no_float_is_refused(tmp_path):
    def call(m, age, price):
        return {"score": age * price, "best": tf.argmax(tf.stack([age, price], 1), 1)}

    made({}, call, ("age",), age=(F, [None]), price=(F, [None])).export(tmp_path / "m")
    with pytest.raises(CompileError) as caught:
        compile_model(make_spec(tmp_path / "m", ["age"]), "cpu")
    assert caught.value.where == "output 'best'"
    assert "int64" in caught.value.message
    compile_model(make_spec(tmp_path / "m", ["age"], outputs={"score": "score"}), "cpu")


def test_names_are_those_of_the_file_not_python_identifiers(zoo):
    names = set(zoo("clashing_names").original.inputs)
    assert {"x.y", "a-b", "Upper", "9th", "w.vocabulary"} <= names


@pytest.mark.parametrize("name", ["a b", "größe", "p:q", "_private"])
def test_names_that_tensorflow_itself_cannot_export(tmp_path, name):
    """Should a later TensorFlow allow these, `load` has to be looked at again."""
    inputs = Inputs()
    x = layers.Concatenate()([column(inputs(name, "float32")), column(inputs("price", "float32"))])
    model = Made(keras_model(inputs, {"score": head(x, "h")}), (name,))
    with pytest.raises(ValueError, match="argument names"):
        model.export(tmp_path / "m")


def test_inputs_are_told_apart_whatever_the_order_of_their_names(tmp_path):
    """TensorFlow sorts by the file's names, but calls its placeholders by others."""
    inputs, factor = Inputs(), 1.0
    total = 0.0
    for name in ("x.y", "x0", "9z", "a-b", "x_z", "X", "Z"):
        total = total + factor * inputs(name, "float32")
        factor *= 3
    Made(keras_model(inputs, {"score": total}), ("X",)).export(tmp_path / "m")
    original = SavedModel(tmp_path / "m")
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=4).astype(np.float32) for name in inputs}
    wanted = sum(3.0**k * values for k, values in enumerate(rows.values()))
    np.testing.assert_allclose(original.predict(rows)["score"], wanted, rtol=1e-4)
    differences = compile_model(make_spec(tmp_path / "m", ["X"]), "cpu").differences
    assert max(differences.values()) < 1e-6


def test_unused_inputs_get_neutral_values_in_the_shape_of_the_signature(zoo):
    original = zoo("plain_tensorflow").original
    rows = {"price": np.ones(3, np.float32), "clicks": np.full((3, 2), b"a", dtype=object)}
    filled = fill_unused(original, rows)
    assert set(filled) == set(original.inputs)
    assert {name: values.shape for name, values in filled.items()} == {
        "word": (3,),
        "code": (3,),
        "clicks": (3, 2),
        "price": (3,),
        "unused": (3,),
        "label": (3,),
    }
    assert filled["word"].tolist() == [b""] * 3
    assert filled["code"].dtype == np.int32


def test_single_values_become_columns_where_the_signature_wants_them(zoo):
    filled = fill_unused(zoo("architectures").original, {"age": np.arange(4, dtype=np.float32)})
    assert filled["age"].shape == filled["price"].shape == (4, 1)
    assert filled["shop"].shape == (4,)


def test_rows_that_the_model_refuses_are_an_error_of_ours(zoo):
    original = zoo("every_word_known").original
    with pytest.raises(CompileError) as caught:
        original.predict({"word": np.array([b"?"], object), "code": np.array([5])})
    assert "fails on a sample request" in caught.value.message
    assert "\n" not in str(caught.value)


def test_control_flow_of_unserved_outputs_and_assertions_is_dropped(tmp_path):
    def call(m, age, price):
        loop = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * age), (0, price))[1]
        with tf.control_dependencies([tf.debugging.assert_greater(price, -1e9)]):
            return {"score": age * price, "loop": loop}

    model = made({}, call, ("age",), {"outputs": {"score": "score"}}, age=(F, [None]), price=(F, [None]))
    model.export(tmp_path / "m")
    graph = unroll(load(SavedModel(tmp_path / "m"), {"score": "score"}))
    assert not {"While", "If", "Switch", "Merge", "Assert"} & {node.op for node in graph.nodes.values()}
    assert compile_model(make_spec(tmp_path / "m", ["age"], outputs={"score": "score"}), "cpu")


def test_variables_are_references_after_loading(tmp_path):
    rows = variable(1000, 16)
    model = made(
        {"rows": rows},
        lambda m, code, price: {"score": tf.reduce_sum(tf.gather(m.rows, code), -1) * price},
        ("code",),
        code=(tf.int64, [None]),
        price=(F, [None]),
    )
    model.export(tmp_path / "m")
    graph = load(SavedModel(tmp_path / "m"), {})
    assert [capture.kind for capture in graph.captures.values()] == ["variable"]
    assert graph.to_graph_def().ByteSize() < rows.shape[0] * rows.shape[1]
