"""The whole pass: three kinds of trouble kept FP32, the user's patterns, and what is said about it."""

from __future__ import annotations

import dataclasses
import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import Served, make_spec
from compiler_parts import Inputs, Made, column, keras_model
from keras import layers, ops
from rich.console import Console

from bireme.compiler.dense import runner
from bireme.compiler.fp16.emulate import emulated
from bireme.compiler.fp16.half import tensor_types
from bireme.compiler.pipeline import Compiled, compile_model
from bireme.compiler.reporting.report import as_data, as_text
from bireme.emitter.artifacts import Artifacts, check_artifacts
from bireme.errors import CompileError, SpecError

H, F = 10, 1
USER = ("user", "length")


def network() -> Made:
    """A tower over two embeddings, a number, and attention over the first few of four, masked by −2³² + 1."""
    inputs = Inputs()
    user, item = inputs("user", "int32"), inputs("item", "int32")
    number, length = inputs("price", "float32"), inputs("length", "float32")
    u, i = layers.Embedding(40, 8, name="user_table")(user), layers.Embedding(60, 8, name="item_table")(item)
    q = layers.Reshape((4, 4), name="query")(layers.Dense(16, name="project")(ops.concatenate([u, i], -1)))
    scores = ops.sum(q * q, -1)
    scores = ops.where(
        ops.less(np.arange(4, dtype=np.float32), length[:, None]), scores, np.float32(-(2.0**32) + 1)
    )
    pooled = ops.sum(q * ops.softmax(scores, -1)[..., None], 1)
    x = ops.concatenate([u, i, pooled, column(number)], -1)
    x = layers.Dense(32, activation="relu", name="tower_1")(x)
    x = layers.Dense(16, activation="relu", name="tower_2")(x)
    return Made(keras_model(inputs, {"click": layers.Dense(1, "sigmoid", name="head")(x)[:, 0]}), USER)


def requests(folder: Path, numbers: Any, count: int = 20, labels: bool = False) -> Path:
    """Recorded requests; `numbers(rng, n)` draws the numeric feature."""
    rng = np.random.default_rng(5)
    lines = []
    for _ in range(count):
        items = {"item": rng.permutation(60)[:50].tolist(), "price": numbers(rng, 50).tolist()}
        line: dict[str, Any] = {
            "user": {"user": int(rng.integers(0, 40)), "length": float(rng.integers(0, 5))},
            "items": items,
        }
        if labels:
            line["labels"] = {"click": (rng.random(50) < 0.2).astype(int).tolist()}
        lines.append(json.dumps(line))
    path = folder / "requests.jsonl"
    path.write_text("\n".join(lines))
    return path


def plain(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.normal(size=count)


def exploding(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.random(count) * 1e6


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("precision") / "m"
    made = network()
    # A number of a million has a small weight in a model that was trained on it.
    kernel = made.model.get_layer("tower_1").kernel
    kernel.assign(tf.concat([kernel[:-1], kernel[-1:] * 1e-5], 0))
    made.export(path)
    return path


def compiled(saved: Path, samples: Path | None, **precision: Any) -> Compiled:
    fields = {"buckets": (64,), "samples": samples, "precision": precision}
    return compile_model(make_spec(saved, USER, **fields), "gpu")


def test_a_harmless_model_becomes_fp16_and_the_mask_is_drawn_into_range(saved, tmp_path):
    result = compiled(saved, requests(tmp_path, plain))
    assert (result.contract.handover, result.plan.handover) == ("float16", "float16")
    types = tensor_types(result.dense)
    assert (types["user"], types["items"], types["click"]) == (H, H, F)
    precision = result.precision
    assert [mask.value for mask in precision.clipped] == [np.float32(-(2.0**32) + 1)]
    assert precision.flops_kept == 0
    assert precision.confirmed
    assert (precision.recorded, precision.made_up) == (20, 0)
    assert 0 < result.differences["precision"] < 5e-3
    assert not any(node.doc_string for node in result.dense.graph.node)


def test_an_exploding_feature_keeps_the_hand_over_and_its_layer_in_fp32(saved, tmp_path):
    result = compiled(saved, requests(tmp_path, exploding))
    precision = result.precision
    assert precision.handover_reason.startswith("'price' reaches")
    assert (result.contract.handover, result.plan.handover) == ("float32", "float32")
    types = tensor_types(result.dense)
    assert (types["user"], types["items"]) == (F, F)
    reasons = {kept.layer.rpartition("/")[2]: kept.reason for kept in precision.kept if kept.op == "MatMul"}
    assert "FP16 ends at 65504" in reasons["tower_1_1"]
    assert "head_1" not in reasons
    assert 0 < precision.flops_kept < 1
    assert result.differences["precision"] < 5e-3
    # End to end, by the code that serves: a million is no bad request, and the score is right.
    files = tmp_path / "files"
    files.mkdir()
    served = Served(result, files)
    served.run_dense = runner(emulated(result.dense))
    one = {"user": {"user": 3, "length": 2.0}, "items": {"item": [1, 2], "price": [1e6, 2.0]}}
    (scores,) = served.scores([one])
    model = tf.saved_model.load(str(saved)).signatures["serving_default"]
    rows = {"user": [3, 3], "item": [1, 2]}
    feeds = {k: tf.constant(v, tf.int32) for k, v in rows.items()}
    feeds |= {"price": tf.constant([1e6, 2.0]), "length": tf.constant([2.0, 2.0])}
    np.testing.assert_allclose(scores["click"], next(iter(model(**feeds).values())), atol=5e-3)
    artifacts = Artifacts(result.plan, result.files, result.dense.SerializeToString(), report=as_data(result))
    check_artifacts(artifacts, result.contract)


def test_all_fp16_would_have_been_wrong(saved, tmp_path):
    """What the pass prevents: the exploding feature overflows before the network sees it."""
    result = compiled(saved, requests(tmp_path, plain))
    run = runner(emulated(result.dense))
    items = np.zeros((1, 1, result.plan.item_width), np.float16)
    with np.errstate(over="ignore"):
        items[...] = np.float16(1e6)
    found = run({"user": np.ones((1, result.plan.user_width), np.float16), "items": items})["click"]
    assert not 0 < found[0, 0] < 1


def test_the_users_patterns_rule(saved, tmp_path):
    path = requests(tmp_path, plain)
    result = compiled(saved, path, keep_fp32=["*/tower_2*", "Softmax"], evaluations=0)
    kept = {kept.layer.rpartition("/")[2] for kept in result.precision.kept}
    assert "tower_2_1" in kept
    assert "Softmax" in {kept.op for kept in result.precision.kept}
    assert {kept.reason for kept in result.precision.kept} <= {
        "keep_fp32: '*/tower_2*'",
        "keep_fp32: 'Softmax'",
    }
    assert result.precision.handover == "float16"
    types = tensor_types(result.dense)
    (softmax,) = [node for node in result.dense.graph.node if node.op_type == "Softmax"]
    assert types[softmax.output[0]] == F


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"keep_fp32": ["*/tower_9/*"]}, r"keep_fp32: '\*/tower_9/\*': names no node of the network.*tower"),
        (
            {"keep_fp32": ["MatMul"], "keep_fp16": ["*/tower_2*"]},
            r"keep_fp16: '\*/tower_2\*': names node MatMul_",
        ),
    ],
)
def test_patterns_that_cannot_be_followed_are_refused(saved, tmp_path, fields, message):
    with pytest.raises(SpecError, match=message):
        compiled(saved, requests(tmp_path, plain), **fields)


def test_what_fp16_cannot_carry_cannot_be_asked_for(saved, tmp_path):
    with pytest.raises(SpecError, match=r"which FP16 cannot carry: values reach"):
        compiled(saved, requests(tmp_path, exploding), keep_fp16=["*/tower_1*"])


def test_no_choice_and_a_narrow_limit_is_an_error_that_names_it(saved, tmp_path):
    with pytest.raises(CompileError, match=r"output 'click': on the samples, scores change by .*limit 1e-09"):
        compiled(saved, requests(tmp_path, plain), evaluations=0, tolerance=1e-9)


def test_a_narrow_limit_keeps_everything_fp32(saved, tmp_path):
    result = compiled(saved, requests(tmp_path, plain), tolerance=1e-9)
    assert result.precision.flops_kept == 1
    assert result.contract.handover == "float32"
    # A comparison of the history is FP16 still: a loss, though none that shows.
    assert [(loss.allowed, loss.measured) for loss in result.contract.losses] == [(1e-9, 0.0)]
    assert result.differences["precision"] < 1e-6


def test_labels_make_the_auc_that_of_the_clicks(saved, tmp_path):
    path = requests(tmp_path, plain, labels=True)
    change = compiled(saved, path).precision.held_out["click"]
    assert change.labelled
    assert 0.3 < change.reference_auc < 0.7
    path.write_text(path.read_text().replace('"labels": {"click": [', '"labels": {"click": [1, '))
    with pytest.raises(SpecError, match=r"request 1: has 51 labels for 'click' and 50 candidates"):
        compiled(saved, path)


def test_modes(saved, tmp_path):
    spec = make_spec(saved, USER, precision={"mode": "fp32"})
    gpu = compile_model(spec, "gpu")
    assert (gpu.precision.mode, gpu.contract.handover) == ("fp32", "float32")
    cpu = compile_model(make_spec(saved, USER), "cpu")
    assert cpu.precision.mode == "fp32"
    assert gpu.dense == cpu.dense
    asked = compile_model(make_spec(saved, USER, precision={"mode": "fp16"}), "cpu")
    assert asked.contract.handover == "float16"
    assert [(loss.task, loss.source, loss.allowed) for loss in asked.contract.losses] == [
        ("click", "precision", 0.005)
    ]
    assert cpu.contract.losses == ()


def test_the_report_says_what_and_why(saved, tmp_path):
    report = json.loads(json.dumps(as_data(compiled(saved, requests(tmp_path, exploding))), allow_nan=False))
    section = report["precision"]
    assert section["handover"] == "float32"
    assert {"node", "op", "origin", "layer", "reason"} == set(section["kept_fp32"][0])
    assert section["held_out"]["click"]["rank_move"] >= 0
    screen = Console(width=200, file=StringIO())
    screen.print(as_text(report))
    text = screen.file.getvalue()
    for part in ("hand-over", "'price' reaches", "tower_1_1", "20 recorded", "is drawn into FP16's range"):
        assert part in text


def test_compiling_twice_gives_equal_bytes(saved, tmp_path):
    path = requests(tmp_path, exploding)
    first, second = (compiled(saved, path).dense.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_the_layers_are_those_of_the_original(saved, tmp_path):
    result = compiled(saved, requests(tmp_path, exploding))
    assert all("StatefulPartitionedCall" not in kept.origin for kept in result.precision.kept)
    assert dataclasses.asdict(result.precision.kept[0])["origin"].startswith("functional")
