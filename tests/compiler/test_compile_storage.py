"""Tables in fewer bytes: error bounds of the encoding, who gets which type, the gate on ranking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import Served, make_spec
from compiler_parts import Made
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bireme.compiler.pipeline import compile_model
from bireme.compiler.reporting.report import as_data
from bireme.compiler.tables.storage import assign_storage, encode
from bireme.compiler.tables.storage_report import storage_rows
from bireme.errors import CompileError, SpecError
from bireme.spec import BuildSpec
from bireme_runtime.plan import Table
from bireme_runtime.tables import int8_row, open_tables, row_bytes, take_rows

Array = np.ndarray[Any, Any]


def table(name: str, dtype: str, width: int, first: int = 0, rows: int = 4) -> Table:
    return Table(name, f"arena_{dtype}_w{width}.bin", dtype, width, first, rows)


floats = st.floats(-1e6, 1e6, width=32)
shapes = st.tuples(st.integers(1, 6), st.integers(1, 9))


@given(arrays(np.float32, shapes, elements=floats))
def test_an_int8_row_is_within_half_a_step_of_itself(rows: Array) -> None:
    coded = encode(rows, table("t", "int8", rows.shape[1]))
    found = take_rows(coded, np.arange(len(rows)))
    assert found.dtype == np.float32
    largest = np.abs(rows).max(axis=1, keepdims=True)
    step = np.where(largest / 127 < np.finfo(np.float32).tiny, 2 * largest, largest / 127)
    assert (np.abs(found - rows) <= step * np.float32(0.50001)).all()
    # The largest value of a row is a whole number of steps.
    top = np.abs(found).max(axis=1, keepdims=True)
    assert np.allclose(top[largest > 1e-30], largest[largest > 1e-30], rtol=1e-6)


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 9)),
        elements=st.floats(-65000, 65000, width=32),
    )
)
def test_a_float16_row_is_the_nearest_float16(rows: Array) -> None:
    assert np.array_equal(
        take_rows(encode(rows, table("t", "float16", rows.shape[1])), np.arange(len(rows))),
        rows.astype(np.float16),
    )


def test_a_row_of_zeros_and_a_row_of_denormals_stay_what_they_are_worth() -> None:
    rows = np.array([[0, 0, 0], [1e-40, -1e-40, 0]], dtype=np.float32)
    assert np.abs(take_rows(encode(rows, table("t", "int8", 3)), np.array([0, 1])) - rows).max() <= 1e-40


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [("float16", 7e4, "beyond the 65504"), ("int8", np.inf, "not finite"), ("int8", np.nan, "not finite")],
)
def test_what_a_type_cannot_hold_is_refused(dtype: str, value: float, said: str) -> None:
    with pytest.raises(CompileError, match=said) as caught:
        encode(np.array([[1.0, value]], dtype=np.float32), table("prices", dtype, 2))
    assert "prices" in caught.value.where
    assert "float32" in caught.value.hint


def test_float16_keeps_infinities() -> None:
    rows = np.array([[np.inf, -np.inf]], dtype=np.float32)
    assert np.array_equal(encode(rows, table("t", "float16", 2)), rows.astype(np.float16))


def test_the_row_format_is_scale_then_values_then_zeros(tmp_path: Path) -> None:
    """Byte by byte, because other programs (a C kernel, a store) read it."""
    rows = np.array([[127.0, -254.0, 1.0, 0.0, 3.0]], dtype=np.float32)
    stored = table("t", "int8", 5, rows=1)
    coded = encode(rows, stored)
    assert row_bytes(stored) == coded.nbytes == 12
    scale, values = coded.tobytes()[:4], coded.tobytes()[4:]
    assert np.frombuffer(scale, "<f4")[0] == 2.0
    # 127 / 2 = 63.5 is rounded to the even 64, 1 / 2 to 0, 3 / 2 to 2.
    assert np.frombuffer(values, np.int8).tolist() == [64, -127, 0, 0, 2, 0, 0, 0]
    (tmp_path / stored.arena).write_bytes(coded.tobytes())
    assert open_tables(tmp_path, [stored])["t"].dtype == int8_row(5)


def test_the_first_pattern_that_fits_counts_and_arenas_are_laid_out_anew() -> None:
    tables = [
        table(name, "float32", 4, first, 10) for name, first in (("user", 0), ("item", 10), ("shop", 20))
    ]
    stored = assign_storage(tables, {"item": "float16", "*e*": "int8"})
    assert [(t.dtype, t.arena, t.row_offset) for t in stored] == [
        ("int8", "arena_int8_w4.bin", 0),
        ("float16", "arena_float16_w4.bin", 0),
        ("float32", "arena_float32_w4.bin", 0),
    ]
    assert [t.row_offset for t in assign_storage(tables, "int8")] == [0, 10, 20]
    assert assign_storage(tables, "float32") == tuple(tables)
    with pytest.raises(SpecError, match="fits no embedding table") as caught:
        assign_storage(tables, {"usr*": "int8"})
    assert "user, item, shop" in caught.value.hint


class Ranker(tf.Module):
    """A pooled history, a word of the user, one of the item, a price."""

    def __init__(self, size: float) -> None:
        rng = np.random.default_rng(5)

        def weights(*shape: int) -> Any:
            return rng.normal(0.0, size, shape).astype(np.float32)

        self.words = tf.Variable(weights(50, 6), name="words")
        self.shops = tf.Variable(weights(20, 3), name="shops")
        self.dense = tf.Variable(weights(16, 1) / max(size, 1), name="dense")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 5], tf.string, name="seen"),
            tf.TensorSpec([None], tf.string, name="word"),
            tf.TensorSpec([None], tf.string, name="shop"),
            tf.TensorSpec([None], tf.float32, name="price"),
        ]
    )
    def serve(self, seen: Any, word: Any, shop: Any, price: Any) -> dict[str, Any]:
        history = tf.reduce_sum(tf.gather(self.words, tf.strings.to_hash_bucket_fast(seen, 50)), 1)
        mine = tf.gather(self.words, tf.strings.to_hash_bucket_fast(word, 50))
        place = tf.gather(self.shops, tf.strings.to_hash_bucket_fast(shop, 20))
        x = tf.concat([history, mine, place, price[:, None]], 1)
        return {"y": tf.sigmoid(x @ self.dense)[:, 0]}


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranker") / "saved_model"
    module = Ranker(0.3)
    Made(module, ("seen",), signature=module.serve).export(folder)
    return folder


def spec_of(path: Path, **fields: Any) -> BuildSpec:
    return make_spec(path, ("seen",), **fields)


@pytest.mark.parametrize(("storage", "largest"), [("float16", 1e-3), ("int8", 1e-2)])
def test_served_scores_are_those_of_the_stored_rows(
    ranker: Path, tmp_path: Path, storage: str, largest: float
) -> None:
    exact = compile_model(spec_of(ranker), "cpu")
    lossy = compile_model(spec_of(ranker, storage=storage), "cpu")
    assert exact.storage == {}
    assert lossy.differences == pytest.approx(exact.differences)  # the passes are checked with FP32 tables
    assert 0 < lossy.storage["y"].score < largest
    assert exact.contract.losses == ()
    (loss,) = lossy.contract.losses
    assert (loss.task, loss.source, loss.allowed) == ("y", "storage", 0.01)
    assert loss.measured == lossy.storage["y"].score
    (tmp_path / "exact").mkdir()
    (tmp_path / "lossy").mkdir()
    plain, served = Served(exact, tmp_path / "exact"), Served(lossy, tmp_path / "lossy")
    assert sorted(path.name for path in (tmp_path / "lossy").glob("arena*")) == [
        f"arena_{storage}_w3.bin",
        f"arena_{storage}_w6.bin",
    ]
    requests = plain.requests([1, 7, 60])
    pairs = zip(plain.scores(requests), served.scores(requests), strict=True)
    difference = max(np.abs(one["y"] - other["y"]).max() for one, other in pairs)
    assert 0 < difference < largest
    # The history is the FP32 sum of the very rows that are stored.
    tables = open_tables(tmp_path / "lossy", lossy.plan.tables)
    ids = np.array([3, 3, 49, 0, 7])
    rows = take_rows(tables["words"], ids).astype(np.float32)
    assert np.abs(rows - Ranker(0.3).words.numpy()[ids]).max() < 0.01


def test_the_report_has_the_bytes_and_the_change(ranker: Path) -> None:
    report = as_data(compile_model(spec_of(ranker, storage={"words": "int8"}), "cpu"))
    assert {t["name"]: (t["storage"], t["bytes"]) for t in report["tables"]} == {
        "words": ("int8", 50 * (4 + 8)),
        "shops": ("float32", 20 * 3 * 4),
    }
    assert report["storage"]["y"]["score"] > 0
    assert as_data(compile_model(spec_of(ranker), "cpu"))["storage"] == {}


def test_a_storage_that_changes_too_much_is_refused(ranker: Path) -> None:
    limits = {"score": 1e-6}
    with pytest.raises(CompileError, match=r"scores change by .*limit 1e-06") as caught:
        compile_model(spec_of(ranker, storage="int8", storage_limits=limits), "cpu")
    assert caught.value.where == "storage, output 'y'"
    assert "storage_limits" in caught.value.hint
    compile_model(spec_of(ranker, storage={"shops": "float32"}, storage_limits=limits), "cpu")


def sampled(folder: Path, requests: int, labelled: int, click: Any) -> Path:
    """A file of sample requests of 50 candidates; the first `labelled` have labels."""
    rng = np.random.default_rng(6)
    lines = []
    for number in range(requests):
        items = {
            "word": [f"w{k}" for k in rng.integers(0, 200, 50)],
            "shop": [f"s{k}" for k in rng.integers(0, 90, 50)],
            "price": rng.normal(size=50).astype(np.float32).tolist(),
        }
        line: dict[str, Any] = {"user": {"seen": [f"w{k}" for k in range(5)]}, "items": items}
        if number < labelled:
            line["labels"] = {"y": [int(click(rng)) for _ in range(50)]}
        lines.append(json.dumps(line))
    (folder / "samples.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder / "samples.jsonl"


@pytest.mark.parametrize(
    ("requests", "labelled", "share", "said"),
    [
        (20, 20, 0.3, "the samples' labels (1,000 of 1,000 rows)"),
        (20, 12, 0.3, "the samples' labels (600 of 1,000 rows)"),
        (
            20,
            4,
            0.3,
            "the FP32 ranking's top tenth (only 200 rows of the samples have labels; 400 are needed)",
        ),
        (20, 20, 0.0, "the FP32 ranking's top tenth (in one half of the samples all labels are alike)"),
        (20, 0, 0.3, "the FP32 ranking's top tenth (no sample has labels)"),
    ],
)
def test_the_gate_uses_recorded_clicks_and_says_whose_auc_it_is(
    ranker: Path, tmp_path: Path, requests: int, labelled: int, share: float, said: str
) -> None:
    samples = sampled(tmp_path, requests, labelled, lambda rng: rng.random() < share)
    compiled = compile_model(spec_of(ranker, storage="int8", samples=samples), "cpu")
    report = as_data(compiled)
    assert report["storage"]["y"]["auc_of"] == said
    assert said in " ".join(storage_rows(report["storage"])[0])
    change = compiled.storage["y"]
    assert change.labelled == said.startswith("the samples' labels")
    if change.labelled:
        assert 0.3 < change.reference_auc < 0.7  # clicks at random
    else:
        assert change.reference_auc == 1.0  # the reference's own top


def test_labels_of_another_length_are_refused(ranker: Path, tmp_path: Path) -> None:
    samples = sampled(tmp_path, 3, 3, lambda rng: True)
    samples.write_text(samples.read_text().replace('"labels": {"y": [', '"labels": {"y": [1, '))
    with pytest.raises(SpecError, match="request 1: has 51 labels for 'y' and 50 candidates"):
        compile_model(spec_of(ranker, storage="float16", samples=samples), "cpu")


def test_a_pattern_without_a_table_is_an_error_of_the_spec(ranker: Path) -> None:
    with pytest.raises(SpecError, match="fits no embedding table"):
        compile_model(spec_of(ranker, storage={"brands": "int8"}), "cpu")
