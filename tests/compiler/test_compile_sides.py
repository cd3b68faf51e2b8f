"""Models of one side only, and sides of one kind of column only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from compiler_parts import Made, made, table, variable
from compiler_refusals import I64, F, S

from bireme.compiler.ahead.user_ahead import compile_user_ahead
from bireme.compiler.pipeline import compile_model
from bireme.errors import CompileError, SpecError

ROWS: list[int | None] = [None]


def _ids_only(m: Any, item: Any) -> Any:
    return {"score": tf.gather(m.rows, item)[:, 0]}


def _text_only(m: Any, item: Any) -> Any:
    x = tf.gather(m.rows, tf.strings.to_hash_bucket_fast(item, 9))
    return {"score": tf.tanh(tf.matmul(x, m.dense))[:, 0]}


def _truth_only(m: Any, item: Any) -> Any:
    return {"score": tf.where(item, m.dense[0, 0], m.dense[1, 0])}


def _float_only(m: Any, item: Any) -> Any:
    return {"score": item * 2.0 + 1.0}


def _history_only(m: Any, item: Any) -> Any:
    rows = tf.gather(m.rows, item)
    weights = tf.nn.softmax(tf.matmul(rows, m.dense)[..., 0], axis=-1)
    return {"score": tf.reduce_sum(rows * weights[..., None], [1, 2])}


ITEM_ONLY: dict[str, tuple[Callable[[Any, Any], Any], Any, list[int | None]]] = {
    "ids": (_ids_only, I64, [None]),
    "text": (_text_only, S, [None]),
    "truth": (_truth_only, tf.bool, [None]),
    "float": (_float_only, F, [None, 1]),
    "history": (_history_only, I64, [None, 5]),
}


def item_only(case: str) -> Made:
    function, kind, shape = ITEM_ONLY[case]
    parts = {"rows": variable(9, 3), "dense": variable(3, 1, seed=1)}
    return made(parts, function, (), item=(kind, shape))


@pytest.mark.parametrize("case", ITEM_ONLY)
def test_model_without_user_features(parity, case):
    compiled = parity(item_only(case))
    assert compiled.contract.user_width == 0
    assert [value.name for value in compiled.dense.graph.input] == ["items"]


def test_user_features_that_only_crosses_read(parity):
    """A user feature that meets the candidate on the CPU side: nothing of the user is handed over."""

    def score(m: Any, city: Any, item: Any) -> Any:
        crossed = tf.strings.join([city, item], "_")
        return {"score": tf.gather(m.rows, tf.strings.to_hash_bucket_fast(crossed, 9))[:, 1]}

    model = made({"rows": variable(9, 3)}, score, ("city",), city=(S, [None]), item=(S, [None]))
    assert parity(model).contract.user_width == 0


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_fp16_without_user_features(export, target):
    spec = export(item_only("text")).model_copy(update={"buckets": (8, 64)})
    compiled = compile_model(spec, target)
    assert compiled.contract.handover == ("float32" if target == "cpu" else "float16")


@pytest.mark.parametrize("kind", [S, I64, tf.bool])
def test_user_side_without_numbers(parity, kind):
    """Ids, text and truths of the user beside one truth of the candidate."""

    def score(m: Any, who: Any, item: Any) -> Any:
        if kind == tf.bool:
            user = tf.where(who, 0.25, 0.5)
        else:
            ids = m.known.lookup(who) if kind == S else who
            user = tf.gather(m.rows, ids)[:, 0]
        return {"score": user * tf.cast(item, F)}

    parts = {"rows": variable(9, 3), "known": table(["a", "b"], [1, 2], 0)}
    parity(made(parts, score, ("who",), who=(kind, [None]), item=(tf.bool, [None])))


def test_task_that_only_the_user_decides(parity):
    """Beside one that ranks it is served: the same number for every candidate."""

    def score(m: Any, age: Any, price: Any) -> Any:
        return {"mood": tf.tanh(age), "click": tf.sigmoid(age * price)}

    parity(made({}, score, ("age",), age=(F, [None]), price=(F, [None])))


def test_model_of_the_user_alone_is_refused(export):
    def score(m: Any, age: Any, city: Any) -> Any:
        return {"score": age * tf.cast(city, F)}

    spec = export(made({}, score, ("age", "city"), age=(F, [None]), city=(I64, [None])))
    with pytest.raises(SpecError) as caught:
        compile_model(spec, "cpu")
    assert caught.value.where == "user"
    assert "every input that the scores read is listed: age, city" in caught.value.message
    assert "leave out of `user`" in caught.value.hint


def test_candidate_that_changes_no_score_is_refused(export):
    def score(m: Any, age: Any, price: Any) -> Any:
        return {"score": age * tf.fill(tf.shape(price), 2.0)}

    spec = export(made({}, score, ("age",), age=(F, [None]), price=(F, [None])))
    with pytest.raises(SpecError, match="no feature of a candidate changes a score") as caught:
        compile_model(spec, "cpu")
    assert "leave out of `user`" in caught.value.hint


def test_user_ahead_without_user_side_is_refused(export):
    spec = export(item_only("text"))
    with pytest.raises(CompileError) as caught:
        compile_user_ahead(compile_model(spec, "cpu"), spec)
    assert "nothing to do ahead of time" in caught.value.message
    assert "without --user-ahead" in caught.value.hint
