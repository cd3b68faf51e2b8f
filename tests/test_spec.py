"""Reading a build spec: what is right, and what every wrong field says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bireme.errors import SpecError
from bireme.spec import BuildSpec, Contract, read_spec
from bireme_runtime.plan import Feature

GOOD: dict[str, Any] = {"model": "shop", "saved_model": "models/shop", "user": ["age", "city"]}


def write(folder: Path, content: Any) -> Path:
    path = folder / "bireme.yaml"
    text = content if isinstance(content, str) else yaml.safe_dump(content, allow_unicode=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    assert caught.value.hint
    assert str(path) in caught.value.where
    assert "\n" not in str(caught.value)
    return caught.value


def test_paths_are_relative_to_the_file(tmp_path):
    spec = read_spec(write(tmp_path, {**GOOD, "samples": "../requests.jsonl"}))
    assert spec.saved_model == tmp_path / "models/shop"
    assert spec.samples == tmp_path / "../requests.jsonl"
    absolute = read_spec(write(tmp_path, {**GOOD, "saved_model": "/elsewhere/shop"}))
    assert absolute.saved_model == Path("/elsewhere/shop")
    assert absolute.samples is None


def test_what_may_be_left_out_has_a_value(tmp_path):
    spec = read_spec(write(tmp_path, GOOD))
    assert spec.user == ("age", "city")
    assert (spec.signature, spec.outputs, spec.defaults, spec.text) == ("serving_default", {}, {}, {})
    assert list(spec.buckets) == sorted(spec.buckets)
    assert 1 <= spec.max_users <= 1024


def test_a_model_without_user_features_says_so(tmp_path):
    assert read_spec(write(tmp_path, {**GOOD, "user": []})).user == ()
    for forgotten in ({k: v for k, v in GOOD.items() if k != "user"}, {**GOOD, "user": None}):
        assert "`user: []` if there are none" in refusal(write(tmp_path, forgotten)).hint


def test_the_example_of_the_repository_can_be_read():
    spec = read_spec(Path(__file__).parent.parent / "examples/obd/bireme.yaml")
    assert spec.model == "obd"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("model", "9shop", "letters, digits and _"),
        ("model", "my shop", "letters, digits and _"),
        ("model", "shop\n", "letters, digits and _"),
        ("model", "", "letters, digits and _"),
        ("model", "a" * 101, "at most 100"),
        ("model", 7, "must be text"),
        ("model", None, "must be text"),
        ("saved_model", 5, "path"),
        ("saved_model", None, "path"),
        ("user", "age", "must be a list"),
        ("user", None, "must be a list"),
        ("user", {"age": 1}, "must be a list"),
        ("signature", ["a"], "must be text"),
        ("outputs", ["score"], "must be a mapping"),
        ("defaults", [], "must be a mapping"),
        ("text", ["age"], "must be a mapping"),
        ("buckets", [], "strictly ascending"),
        ("buckets", [0, 64], "strictly ascending"),
        ("buckets", [64, 64], "strictly ascending"),
        ("buckets", [128, 64], "strictly ascending"),
        ("buckets", [1, 2_000_000_000_000], "above 1,000,000"),
        ("buckets", 64, "must be a list"),
        ("max_users", 0, "greater than or equal to 1"),
        ("max_users", 1025, "less than or equal to 1024"),
        ("max_users", 2.5, "a whole number"),
        ("max_users", True, "a whole number"),
        ("samples", 5, "path"),
    ],
)
def test_wrong_value_names_the_field(tmp_path, field, value, said):
    error = refusal(write(tmp_path, {**GOOD, field: value}))
    assert error.where.endswith(f": {field}")
    assert said in error.message
    assert any(way in error.hint for way in ("examples/obd/bireme.yaml", "another name", "`user: []`"))


@pytest.mark.parametrize(
    ("content", "place", "said"),
    [
        ({**GOOD, "user": ["age", False]}, "user.1", "must be text"),  # YAML's `no`
        ({**GOOD, "buckets": [64, "128"]}, "buckets.1", "a whole number"),
        ({**GOOD, "buckets": [64, 99.5]}, "buckets.1", "a whole number"),
        ({**GOOD, "buckets": [True, 64]}, "buckets.0", "a whole number"),
        ({**GOOD, "text": {"age": "latin1"}}, "text.age", "'utf8' or 'bytes'"),
        ({**GOOD, "outputs": {"click": 5}}, "outputs.click", "must be text"),
        ({**GOOD, "saved_modell": "x"}, "saved_modell", "not a field"),
        ({"model": "shop", "user": ["age"]}, "saved_model", "missing"),
        ({"saved_model": "x", "user": ["age"]}, "model", "missing"),
        ({"model": "shop", "saved_model": "x"}, "user", "missing"),
    ],
)
def test_wrong_part_of_a_field_and_missing_fields_are_named(tmp_path, content, place, said):
    error = refusal(write(tmp_path, content))
    assert error.where.endswith(f": {place}")
    assert said in error.message


def test_a_misspelt_field_is_told_its_right_name(tmp_path):
    assert refusal(write(tmp_path, {**GOOD, "bucket": [64]})).hint == "did you mean 'buckets'?"


def test_an_input_listed_twice(tmp_path):
    assert "lists 'age' twice" in refusal(write(tmp_path, {**GOOD, "user": ["age", "age"]})).message


@pytest.mark.parametrize("content", ["", "just text", "[1, 2]", "5", "null"])
def test_something_else_than_a_mapping(tmp_path, content):
    assert "mapping" in refusal(write(tmp_path, content)).message


@pytest.mark.parametrize(
    "content",
    [
        "model: 2024-99-99",
        "a: " + "[" * 3000,
        "model: [",
        "a: b: c",
        "\tmodel: x",
        "model: &a *b",
        "!!python/name:os.x",
    ],
)
def test_text_that_is_no_yaml(tmp_path, content):
    assert "not valid YAML" in refusal(write(tmp_path, content)).message


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "bireme.yaml"
    path.write_bytes(b"\xff\xfe\x00m")
    assert "not valid YAML" in refusal(path).message


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path):
    assert "No such file" in refusal(tmp_path / "nothing.yaml").message
    assert "cannot be read" in refusal(tmp_path).message


def test_a_spec_cannot_be_changed():
    spec = BuildSpec.model_validate(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        spec.model = "other"  # type: ignore[misc]


def test_names_that_follow_from_a_contract():
    contract = Contract(
        model="shop",
        features=(Feature("age", "user", "float32"),),
        tasks=("click",),
        user_width=1,
        item_width=2,
        buckets=(8, 32),
        max_users=4,
        target="gpu",
    )
    assert (contract.preprocess, contract.dnn) == ("shop_preprocess", "shop_dnn")
    assert contract.postprocess == "shop_postprocess"
    assert contract.max_candidates == 32
    assert contract.handover == "float32"
    targets = {"cpu": (False, False), "gpu": (True, True), "gpu-python": (True, False)}
    for target, (on_gpu, padded) in targets.items():
        made = contract.model_copy(update={"target": target})
        assert (made.on_gpu, made.padded) == (on_gpu, padded)


def test_precision_has_fields_of_its_own(tmp_path):
    path = tmp_path / "bireme.yaml"
    path.write_text(yaml.safe_dump({**GOOD, "precision": {"mode": "fp16", "keep_fp32": ["Softmax"]}}))
    assert read_spec(path).precision.keep_fp32 == ("Softmax",)
    path.write_text(yaml.safe_dump({**GOOD, "precision": {"keep_fp33": []}}))
    with pytest.raises(SpecError, match=r"precision.keep_fp33: is not a field.*did you mean 'keep_fp32'"):
        read_spec(path)
