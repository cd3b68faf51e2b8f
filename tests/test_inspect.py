"""`bireme inspect` on a SavedModel that cannot be built as it is: what fits, and a spec to go on with."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml

from bireme import cli
from bireme.compiler.load import SavedModel, require_scores
from bireme.errors import CompileError
from bireme.inspect import inspect_model

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(30, 4)).astype(np.float32)


def saved(folder: Path, call: Callable[..., Any], **inputs: tf.TensorSpec) -> Path:
    module = tf.Module()
    module.rows = tf.Variable(ROWS)
    signature = tf.function(lambda **given: call(module, **given), autograph=False).get_concrete_function(
        **{name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in inputs.items()}
    )
    tf.saved_model.save(module, str(folder), signatures=signature)
    return folder


def several_heads(module: Any, item: Any, user: Any) -> dict[str, Any]:
    x = tf.gather(module.rows, item) * tf.gather(module.rows, user)
    return {
        "click": tf.sigmoid(tf.reduce_sum(x, 1)),
        "half": tf.cast(x[:, :1], tf.float16),
        "label": tf.argmax(x, 1),
        "odd name/1": x[:, :1],
        "vector": x,
    }


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    one = tf.TensorSpec([None], tf.int64)
    return saved(tmp_path_factory.mktemp("inspect") / "heads", several_heads, item=one, user=one)


def test_outputs_that_are_no_scores_are_left_out_and_named(heads: Path) -> None:
    report, advice = inspect_model(heads, ["user"], "serving_default")
    assert report["tasks"] == ["click", "odd name/1"]
    text = advice.split("\n\n", 1)[1]
    starter = yaml.safe_load(text)
    assert starter["outputs"] == {"click": "click", "odd name/1": "odd name/1"}
    assert "# outputs: 'half' is left out: it is float16" in text
    assert "# outputs: 'label' is left out: it is int64" in text
    assert "# outputs: 'vector' is left out: it has [4] values a row" in text


@pytest.mark.parametrize(
    ("output", "said"), [("half", "float16"), ("label", "int64"), ("vector", "[4] values a row")]
)
def test_a_build_names_the_outputs_that_can_be_served(heads: Path, output: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        require_scores(SavedModel(heads), {output: output})
    assert caught.value.where == f"output '{output}'"
    assert said in caught.value.message
    assert "`outputs: {click: click, odd name/1: odd name/1}`" in caught.value.hint


def test_a_model_that_needs_a_decision_still_gives_a_spec_to_start_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def attends(module: Any, item: Any, history: Any) -> dict[str, Any]:
        wanted, keys = tf.gather(module.rows, item), tf.gather(module.rows, history)
        dots = tf.where(history > 0, tf.einsum("bd,bld->bl", wanted, keys), -1e9)
        return {"click": tf.reduce_sum(tf.einsum("bl,bld->bd", tf.nn.softmax(dots), keys), 1)}

    one, any_length = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, None], tf.int64)
    folder = saved(tmp_path / "attends", attends, item=one, history=any_length)
    monkeypatch.setattr(sys, "argv", ["bireme", "inspect", str(folder), "--user", " history , "])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == CompileError.exit_code
    assert "`lengths: {history: …}`" in said
    starter = yaml.safe_load(said.split("settled:\n\n", 1)[1])
    assert starter == {"model": "my_ranker", "saved_model": str(folder.resolve()), "user": ["history"]}


def test_the_report_says_what_tensorflow_does_for_a_feature(tmp_path: Path) -> None:
    def words(module: Any, title: Any, user: Any) -> dict[str, Any]:
        ids = tf.strings.to_hash_bucket_fast(tf.strings.lower(title, encoding="utf-8"), 30)
        x = tf.gather(module.rows, ids) * tf.gather(module.rows, user)
        return {"click": tf.reduce_sum(x, 1)}

    folder = saved(
        tmp_path / "words",
        words,
        title=tf.TensorSpec([None], tf.string),
        user=tf.TensorSpec([None], tf.int64),
    )
    report, _ = inspect_model(folder, ["user"], "serving_default")
    (title,) = [feature for feature in report["features"] if feature["name"] == "title"]
    (said,) = title["transforms"]
    assert said.startswith("TensorFlow")
    assert said.endswith("[4]")


def test_names_that_are_no_identifiers_make_no_noise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """TensorFlow 1 names inputs as it likes; TensorFlow 2 warns whenever it meets such a name."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        user, item = (v1.placeholder(tf.float32, [None], name) for name in ("a", "b"))
        inputs = {"user:id": user, "товар № 1/x": item}
        v1.saved_model.simple_save(session, str(tmp_path / "odd"), inputs, {"click": user * item})
    logging.getLogger("absl").setLevel(logging.NOTSET)
    report, _ = inspect_model(tmp_path / "odd", ["user:id"], "serving_default")
    assert [feature["name"] for feature in report["features"]] == ["user:id", "товар № 1/x"]
    assert not [record for record in caplog.records if "user:id" in record.getMessage()]


def test_a_file_where_the_spec_wants_a_folder(heads: Path) -> None:
    with pytest.raises(CompileError, match="is a file, not a SavedModel folder"):
        SavedModel(heads / "saved_model.pb")
