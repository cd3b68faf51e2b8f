"""Runs `train.py` as a user does; one epoch is enough for all that is promised here."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from obd_training import start_training
from sample_requests import request_rows


@dataclass
class Run:
    out: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs side by side, the second one quiet and over an older export."""
    base = tmp_path_factory.mktemp("obd")
    outs = [base / "first", base / "second"]
    (outs[1] / "saved_model").mkdir(parents=True)
    (outs[1] / "saved_model" / "stale").touch()
    started = [start_training(outs[0], "--epochs", "1"), start_training(outs[1], "--epochs", "1", "--quiet")]
    finished = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], finished
    return [Run(out, *texts) for out, texts in zip(outs, finished, strict=True)]


@pytest.fixture(scope="module")
def serve(runs):
    """The exported signature: request → click probabilities."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(runs[0].out / "saved_model"))
    signature = loaded.signatures["serving_default"]

    def call(rows):
        tensors = {k: tf.constant(v, tf.string if v.dtype == object else None) for k, v in rows.items()}
        (output,) = signature(**tensors).values()
        return output.numpy()

    call.loaded = loaded
    call.signature = signature
    return call


@pytest.fixture(scope="module")
def requests(runs):
    return [json.loads(line) for line in (runs[0].out / "requests.jsonl").read_text("utf-8").splitlines()]


def weights(out):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(out / "saved_model" / "variables" / "variables"))
    # The other entries list the same variables once more, in an order that Keras leaves to chance.
    return {
        key: reader.get_tensor(key)
        for key in reader.get_variable_to_shape_map()
        if key.startswith("variables/")
    }


def test_two_runs_agree_in_every_weight_and_file(runs):
    first, second = (weights(run.out) for run in runs)
    assert len(first) > 20
    assert first.keys() == second.keys()
    for key in first:
        np.testing.assert_array_equal(first[key], second[key], err_msg=key)
    for name in ("requests.jsonl", "metrics.json"):
        assert (runs[0].out / name).read_bytes() == (runs[1].out / name).read_bytes()


def test_older_export_is_replaced_and_nothing_left_beside_it(runs):
    assert not (runs[1].out / "saved_model" / "stale").exists()
    assert {path.name for path in runs[0].out.parent.iterdir()} == {"first", "second"}


def test_output_tells_loss_and_auc_or_nothing(runs):
    assert "epoch 1/1  loss" in runs[0].stdout
    assert "95 % interval" in runs[0].stdout
    assert (runs[0].stderr, runs[1].stdout, runs[1].stderr) == ("", "", "")


def test_metrics_say_how_little_data_there_is(runs, log):
    metrics = json.loads((runs[0].out / "metrics.json").read_text())
    held_out = log.on_days(metrics["held_out"]["days"])
    assert not set(metrics["train"]["days"]) & set(metrics["held_out"]["days"])
    assert metrics["held_out"]["clicks"] == held_out.click.sum()
    for name in ("model", "popularity"):
        auc = metrics["auc"][name]
        assert auc["low"] < auc["value"] < auc["high"]


def test_signature_is_row_wise(serve):
    _, inputs = serve.signature.structured_input_signature
    assert {name: (spec.shape.as_list(), spec.dtype.name) for name, spec in inputs.items()} == {
        **{f"user_feature_{k}": ([None], "string") for k in range(4)},
        "hour": ([None], "int64"),
        "recent_items": ([None, None], "string"),
        "item_id": ([None], "string"),
        "item_feature_0": ([None], "float32"),
        **{f"item_feature_{k}": ([None], "string") for k in (1, 2, 3)},
        "affinity": ([None], "float32"),
    }
    assert list(serve.signature.structured_outputs) == ["click"]


def test_every_sample_request_gets_probabilities(serve, requests):
    for request in requests[:60]:
        scores = serve(request_rows(request))
        assert scores.shape == (len(request["items"]["item_id"]),)
        assert ((scores > 0) & (scores < 1)).all()


def test_score_of_a_row_ignores_other_rows_and_history_padding(serve, requests):
    rows = request_rows(requests[0])
    scores = serve(rows)
    assert len(np.unique(scores)) > 20
    last = {name: values[-1:] for name, values in rows.items()}
    last["recent_items"] = np.append(last["recent_items"], [["", ""]], axis=1)
    np.testing.assert_allclose(serve(last), scores[-1:], rtol=1e-5)


def test_every_feature_matters_far_beyond_the_tolerance_of_served_scores(serve, requests):
    """Served scores are compared within 1e-5: a feature that moves them less could be looked up wrongly."""
    rows = request_rows(requests[0])
    before = serve(rows)
    other = request_rows(next(r for r in requests[1:] if r["user"]["recent_items"]))
    for name, values in rows.items():
        if name == "affinity":
            changed = values + np.float32(1)
        elif name in requests[0]["items"]:
            changed = np.roll(values, 1)
        else:
            changed = np.repeat(other[name][:1], len(values), axis=0)
        if np.array_equal(changed, values):
            changed = (values + 7) % 24 if name == "hour" else np.full(values.shape, "something else", object)
        assert np.abs(serve({**rows, name: changed}) - before).max() > 1e-4, name


def test_foreign_output_is_left_alone(tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine")
    (folder / "thesis").mkdir(parents=True)
    for out, process in [(out, start_training(out)) for out in (file, folder)]:
        _, stderr = process.communicate()
        assert process.returncode != 0
        assert stderr.startswith(f"{out}: holds")
        assert "name another --out" in stderr
        assert "Traceback" not in stderr
    assert file.read_text() == "mine"
    assert (folder / "thesis").is_dir()
