"""Models that have to be refused, and how they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from compiler_parts import Made, made, variable

from bireme.compiler.pipeline import compile_model
from bireme.errors import CompileError

__all__ = ["I32", "I64", "F", "S", "lookup_of_ids", "refusal", "small"]

S, F, I32, I64 = tf.string, tf.float32, tf.int32, tf.int64


def refusal(spec: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_model(spec, "cpu")
    error = caught.value
    assert error.hint, "an error without a remedy"
    assert "\n" not in str(error)
    return error


def small(function: Callable[..., Any], parts: dict[str, Any] | None = None, **inputs: Any) -> Made:
    """A plain TensorFlow model with a user feature `age` and an item feature `price` besides `inputs`."""

    def call(m: Any, age: Any, price: Any, **rest: Any) -> Any:
        return {"score": function(m, age, price, **rest)}

    return made(parts or {}, call, ("age",), age=(F, [None]), price=(F, [None]), **inputs)


def lookup_of_ids(make_ids: Callable[..., Any], parts: dict[str, Any] | None = None, **inputs: Any) -> Made:
    """A table read at ids that `make_ids` makes."""

    def score(m: Any, age: Any, price: Any, **rest: Any) -> Any:
        rows = tf.nn.embedding_lookup(m.rows, make_ids(m, price, **rest))
        return tf.reduce_sum(rows, -1) + age + price

    return small(score, {"rows": variable(9, 3), **(parts or {})}, **inputs)
