"""The user side found in sample requests, and requests that repeat it for every candidate."""

from __future__ import annotations

import json

import pytest

from bireme.errors import SpecError
from bireme.requests import read_requests
from bireme.spec import read_spec
from bireme.user_side import find_user_side, with_user_side


def logged(number: int, candidates: int = 3) -> dict[str, dict[str, list]]:
    """A request as rows: the user's age and history are repeated, `shop` is the same by chance in some."""
    return {
        "user": {},
        "items": {
            "age": [20 + number] * candidates,
            "history": [[number, 1]] * candidates,
            "item": list(range(candidates)),
            "shop": ["a"] * candidates if number % 2 else ["a", "b", "c"][:candidates],
        },
    }


REQUESTS = [logged(number) for number in range(6)]


def write_spec(folder, requests, user="auto"):
    (folder / "samples.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests), encoding="utf-8")
    spec = folder / "spec.yaml"
    spec.write_text(f"model: m\nsaved_model: sm\nuser: {user}\nsamples: samples.jsonl\n", encoding="utf-8")
    return spec


def test_features_that_never_change_within_a_request_are_the_users() -> None:
    assert find_user_side(REQUESTS, "user") == ("age", "history")


def test_features_that_are_under_user_already_stay_the_users() -> None:
    requests = [{"user": {"country": "no"}, "items": request["items"]} for request in REQUESTS]
    assert find_user_side(requests, "user") == ("country", "age", "history")


def test_requests_of_one_candidate_tell_nothing() -> None:
    with pytest.raises(SpecError, match="from 0 sample requests"):
        find_user_side([logged(number, 1) for number in range(20)], "user")


def test_no_constant_feature_is_said() -> None:
    requests = [{"user": {}, "items": {"item": [1, 2, number]}} for number in range(8)]
    with pytest.raises(SpecError, match="no feature is constant within every request"):
        find_user_side(requests, "user")


def test_repeated_user_features_are_put_where_they_belong() -> None:
    moved = with_user_side(logged(4), ["age", "history"])
    assert moved["user"] == {"age": 24, "history": [4, 1]}
    assert set(moved["items"]) == {"item", "shop"}


def test_values_that_differ_stay_for_whoever_reads_them_to_refuse() -> None:
    request = logged(2)
    assert with_user_side(request, ["shop"]) is request


def test_spec_says_auto_and_gets_the_names(tmp_path) -> None:
    spec = read_spec(write_spec(tmp_path, REQUESTS))
    assert spec.user == ("age", "history")
    assert read_requests(spec.samples, spec.user)[0]["user"] == {"age": 20, "history": [0, 1]}


def test_auto_without_samples_is_refused(tmp_path) -> None:
    (tmp_path / "spec.yaml").write_text("model: m\nsaved_model: sm\nuser: auto\n", encoding="utf-8")
    with pytest.raises(SpecError, match="can only be found with `samples`"):
        read_spec(tmp_path / "spec.yaml")


def test_inspect_finds_the_user_side_in_samples(tmp_path) -> None:
    import tensorflow as tf

    from bireme.inspect import inspect_model

    class Model(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.float32, "age"),
                tf.TensorSpec([None, 2], tf.float32, "history"),
                tf.TensorSpec([None], tf.float32, "item"),
                tf.TensorSpec([None], tf.string, "shop"),
            ]
        )
        def call(self, age, history, item, shop):
            bonus = tf.cast(tf.strings.to_hash_bucket_fast(shop, 5), tf.float32)
            return {"score": age * item + tf.reduce_sum(history, 1) + bonus}

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "sm"), signatures=model.call)
    write_spec(tmp_path, REQUESTS)
    report, advice = inspect_model(tmp_path / "sm", [], "serving_default", samples=tmp_path / "samples.jsonl")
    sides = {feature["name"]: feature["side"] for feature in report["features"]}
    assert sides == {"age": "user", "history": "user", "item": "item", "shop": "item"}
    assert "- history" in advice
