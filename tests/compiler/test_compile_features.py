"""The spec against the model: sides, defaults, kinds of text, samples."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import make_spec
from compiler_parts import made, variable

from bireme.compiler.features import check_task_names, read_features
from bireme.compiler.pipeline import compile_model
from bireme.compiler.samples import choose_samples
from bireme.errors import BiremeError, CompileError, SpecError

S, F, I64, I32 = tf.string, tf.float32, tf.int64, tf.int32


def features_with(zoo, name="sequences", **fields):
    example = zoo(name)
    spec = make_spec(example.path, fields.pop("user", example.made.user), **fields)
    return {f.name: f for f in read_features(example.original, spec, example.graphs["batchnorm"].features)}


def refusal(zoo, **fields) -> SpecError:
    with pytest.raises(SpecError) as caught:
        features_with(zoo, **fields)
    assert caught.value.hint
    return caught.value


def test_lengths_dtypes_and_sides_come_from_the_signature_and_the_spec(zoo):
    found = features_with(zoo, defaults={"ids": [3, 4]}, text={"five": "bytes"})
    assert [(f.name, f.side, f.dtype, f.length) for f in found.values()] == [
        ("four", "user", "int32", 4),
        ("ids", "user", "int64", -1),
        ("words", "user", "string", -1),
        ("five", "item", "string", 5),
        ("price", "item", "float32", None),
    ]
    assert found["ids"].default == [3, 4]
    assert [f.text for f in found.values()] == ["utf8", "utf8", "utf8", "bytes", "utf8"]
    assert features_with(zoo, "transforms")["tag"].length is None  # [None, 1]


@pytest.mark.parametrize(
    ("field", "value"), [("user", ["word"]), ("defaults", {"word": []}), ("text", {"word": "bytes"})]
)
def test_unknown_input_is_named_with_a_near_one(zoo, field, value):
    error = refusal(zoo, **{field: value})
    assert error.where == f"{field}: 'word'"
    assert error.hint == "did you mean 'words'?"


def test_unknown_input_without_a_near_one_lists_all(zoo):
    assert refusal(zoo, user=["zzz"]).hint == "its inputs are: five, four, ids, price, words"


@pytest.mark.parametrize(
    ("name", "default", "said"),
    [
        ("words", "red", "must be a list"),
        ("words", {"a": 1}, "must be a list"),
        ("price", [1.0], "must be a single value"),
        ("price", "cheap", "float32"),
        ("price", float("nan"), "finite"),
        ("price", float("inf"), "finite"),
        ("price", 1e300, "does not fit"),
        ("price", {"a": 1}, "float32"),
        ("words", [1, 2], "strings"),
        ("words", [["red"]], "plain list"),
        ("words", ["\ud800"], "strings"),
        ("ids", [1.5], "int64"),
        ("ids", ["1"], "int64"),
        ("ids", [2**63], "does not fit"),
        ("four", [1, 2, 3], "must hold 4 values, not 3"),
        ("four", [], "must hold 4 values, not 0"),
        ("four", [1, 2, 3, 2**31], "does not fit"),
        ("five", [["a"], ["b"], [], [], []], "unequal"),
    ],
)
def test_default_that_does_not_fit_is_refused(zoo, name, default, said):
    error = refusal(zoo, defaults={name: default})
    assert error.where == f"defaults: '{name}'"
    assert said in error.message


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("words", []),
        ("words", ["red"]),
        ("ids", [1]),
        ("four", [1, 2, 3, 4]),
        ("price", 0),
        ("five", [""] * 5),
    ],
)
def test_default_that_fits_is_taken(zoo, name, default):
    assert features_with(zoo, defaults={name: default})[name].default == default


def test_kind_of_text_is_for_strings_only(zoo):
    error = refusal(zoo, text={"price": "bytes"})
    assert error.where == "text: 'price'"
    assert "float32" in error.message


@pytest.mark.parametrize("task", ["user", "items", ""])
def test_tasks_cannot_be_called_like_the_inputs_of_the_dnn(zoo, task):
    with pytest.raises(SpecError) as caught:
        check_task_names([task])
    assert f"'{task}'" in caught.value.where
    spec = make_spec(zoo("transforms").path, ["word"], outputs={task: "lookup"})
    with pytest.raises(SpecError):
        compile_model(spec, "cpu")


def test_a_model_without_item_features_is_refused(zoo):
    example = zoo("sequences")
    with pytest.raises(SpecError) as caught:
        compile_model(make_spec(example.path, list(example.original.inputs)), "cpu")
    assert "nothing to rank" in caught.value.message


def test_default_that_no_row_answers_to_stops_the_build(tmp_path):
    """It would make every request fail that relies on it."""
    model = made(
        {"rows": variable(9, 3)},
        lambda m, code, price: {"score": tf.reduce_sum(tf.gather(m.rows, code), -1) + price},
        ("code",),
        code=(I64, [None]),
        price=(F, [None]),
    )
    model.export(tmp_path / "m")
    with pytest.raises(BiremeError) as caught:
        compile_model(make_spec(tmp_path / "m", ["code"], defaults={"code": 9}), "cpu")
    assert "feature 'code'" in str(caught.value)
    assert "`defaults`" in caught.value.hint
    compile_model(make_spec(tmp_path / "m", ["code"], defaults={"code": 8}), "cpu")


GOOD = {
    "user": {"words": ["red"], "ids": [1], "four": [1, 2, 3, 4]},
    "items": {"five": [["a"] * 5] * 2, "price": [1.0, 2.0]},
}


def lines(*requests) -> str:
    return "".join(json.dumps(request) + "\n" for request in requests)


def with_item(**values):
    return {"user": GOOD["user"], "items": {**GOOD["items"], **values}}


def with_user(**values):
    return {"user": {**GOOD["user"], **values}, "items": GOOD["items"]}


def samples_of(zoo, tmp_path, text, name="sequences"):
    from bireme.compiler.tables.export import read_words

    path = tmp_path / "requests.jsonl"
    path.write_text(text, encoding="utf-8")
    compiled = zoo(name).compiled
    samples = choose_samples(path, compiled.plan, read_words(compiled.split))
    return [*samples.given, *samples.made, samples.sparse], samples.example


def test_samples_are_the_users_then_made_up_ones(zoo, tmp_path):
    requests, example = samples_of(zoo, tmp_path, lines(*[GOOD] * 30))
    assert example == GOOD
    assert requests[:12] == [GOOD] * 12
    assert len(requests) > 12
    assert requests[12] != GOOD


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (with_item(price=[1.0]), "candidates"),
        (with_item(price=[], five=[]), "dimensions"),
        ({"user": GOOD["user"], "items": {}}, "missing"),
        (with_item(price=[1.0] * 65, five=[["a"] * 5] * 65), "1 to 64"),
        (with_item(five=[["a"] * 4] * 2), "exactly 5"),
        (with_item(colour=["red"]), "'colour'"),
        (with_user(price=1.0), "belongs under 'items'"),
        (with_user(word=["a"]), "did you mean 'words'?"),
        (with_user(words="red"), "'words'"),
        (with_user(ids=[0.5]), "'ids'"),
        ({"user": {"words": []}, "items": GOOD["items"]}, "missing"),
    ],
)
def test_sample_that_does_not_fit_is_named_by_its_number(zoo, tmp_path, bad, said):
    with pytest.raises(SpecError) as caught:
        samples_of(zoo, tmp_path, lines(GOOD, bad))
    assert caught.value.where.endswith("requests.jsonl: request 2")
    assert said in str(caught.value)


def test_sample_whose_values_are_refused_in_serving_stops_the_build(zoo, tmp_path):
    example = zoo("sequences")
    path = tmp_path / "requests.jsonl"
    for bad, said in ((with_user(ids=[50]), "table"), (with_item(price=[float("nan"), 1.0]), "finite")):
        path.write_text(lines(GOOD, bad), encoding="utf-8")
        with pytest.raises(CompileError) as caught:
            compile_model(make_spec(example.path, example.made.user, samples=path), "cpu")
        assert "refuses a sample request" in caught.value.message
        assert said in caught.value.message
        assert "`samples`" in caught.value.hint


def test_an_example_without_samples_is_plain_json(zoo):
    for name in ("transforms", "sequences", "clashing_names"):
        compiled = zoo(name).compiled
        text = json.dumps(compiled.example, allow_nan=False)
        assert json.loads(text) == compiled.example
        assert len(zoo(name).served.scores([compiled.example])) == 1


def test_optional_features_are_left_out_once(tmp_path, zoo):
    """So that the defaults, too, are compared with the original."""
    example = zoo("sequences")
    defaults = {
        "words": ["red", "", "blue"],
        "ids": [],
        "four": [4, 3, 2, 1],
        "price": 1.5,
        "five": ["x"] * 5,
    }
    spec = make_spec(example.path, example.made.user, defaults=defaults)
    compiled = compile_model(spec, "cpu")
    words = {file: [b"red"] for file in compiled.split.vocabularies}
    sparse = choose_samples(None, compiled.plan, words).sparse
    assert sparse["user"] == {}
    assert len(sparse["items"]) == 1
    assert max(compiled.differences.values()) < 1e-6


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_target_decides_dtype_and_padding(zoo, target):
    example = zoo("sequences")
    compiled = compile_model(example.spec, target)
    assert compiled.plan.handover == ("float32" if target == "cpu" else "float16")
    assert compiled.plan.pad == (target == "gpu")
    kinds = {value.type.tensor_type.elem_type for value in compiled.dense.graph.input}
    assert kinds == {1 if target == "cpu" else 10}
    outputs = {value.type.tensor_type.elem_type for value in compiled.dense.graph.output}
    assert outputs == {1}
    assert max(compiled.differences.values()) < (1e-5 if target == "cpu" else 5e-3)


def test_numbers_too_large_for_fp16_keep_the_hand_over_in_fp32(tmp_path):
    """price · 1e5 leaves FP16's range beyond 0.65."""
    model = made(
        {"kernel": variable(2, 1)},
        lambda m, age, price: {
            "score": tf.sigmoid(tf.matmul(tf.stack([age, price * 1e5], 1), m.kernel))[:, 0]
        },
        ("age",),
        age=(F, [None]),
        price=(F, [None]),
    )
    model.export(tmp_path / "m")
    compiled = compile_model(make_spec(tmp_path / "m", ["age"]), "gpu")
    assert np.isfinite(list(compiled.differences.values())).all()
    assert compiled.contract.handover == compiled.plan.handover == "float32"
    assert "'price → mul' reaches" in compiled.precision.handover_reason
    with pytest.raises(SpecError, match=r"precision.handover: float16: cannot be: 'price → mul' reaches"):
        compile_model(make_spec(tmp_path / "m", ["age"], precision={"handover": "float16"}), "gpu")
