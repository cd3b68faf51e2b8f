"""A transform of a feature that no rule knows is refused with one error that names the op and its node."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf
from compiler_parts import Made, variable
from compiler_refusals import I32, I64, F, lookup_of_ids, refusal, small

FEATURE_SIDE: dict[str, tuple[Callable[[], Made], str, str]] = {
    "buckets of a transformed number": (
        lambda: lookup_of_ids(
            lambda m, price: tf.raw_ops.Bucketize(
                input=tf.math.log1p(price), boundaries=[0.0, 1.0], name="cutting"
            )
        ),
        "Bucketize",
        "cutting",
    ),
    "ids narrowed to a byte": (
        lambda: lookup_of_ids(
            lambda m, price, code: tf.cast(tf.cast(code, tf.uint8, name="narrow"), I32), code=(I64, [None])
        ),
        "Cast",
        "narrow",
    ),
    "unpooled sequence": (
        lambda: small(
            lambda m, age, price, clicks: (
                age + price + tf.reduce_max(tf.gather(m.rows, clicks), [1, 2], name="peak")
            ),
            {"rows": variable(9, 3)},
            clicks=(I64, [None, None]),
        ),
        "Max",
        "peak",
    ),
    "mask of another feature": (
        lambda: small(
            lambda m, age, price, clicks, carts: (
                age
                + price
                + tf.reduce_sum(
                    tf.multiply(
                        tf.gather(m.rows, clicks), tf.cast(carts != 0, F)[:, :, tf.newaxis], name="foreign"
                    ),
                    [1, 2],
                )
            ),
            {"rows": variable(9, 3)},
            clicks=(I64, [None, None]),
            carts=(I64, [None, None]),
        ),
        "Mul",
        "foreign",
    ),
    "a table that is computed": (
        lambda: small(
            lambda m, age, price, code: (
                age
                + price
                + tf.reduce_sum(tf.gather(tf.nn.l2_normalize(m.rows, -1), code, name="computed"), -1)
            ),
            {"rows": variable(9, 3)},
            code=(I64, [None]),
        ),
        "GatherV2",
        "computed",
    ),
    "columns of a table": (
        lambda: small(
            lambda m, age, price, code: (
                age + price + tf.reduce_sum(tf.gather(m.rows, code, axis=1, name="sideways"), 0)
            ),
            {"rows": variable(9, 3)},
            code=(I64, [None]),
        ),
        "GatherV2",
        "sideways",
    ),
    "a vector of numbers": (
        lambda: small(
            lambda m, age, price, vector: age + price + tf.reduce_sum(vector, 1, name="added"),
            vector=(F, [None, 4]),
        ),
        "Sum",
        "added",
    ),
    "half precision": (
        lambda: small(
            lambda m, age, price: tf.cast(tf.cast(age, tf.float16, name="halved") * 2, F) + price,
        ),
        "Cast",
        "halved",
    ),
    "a table that is a weight, too": (
        lambda: small(
            lambda m, age, price, code: (
                age + price + tf.reduce_sum(tf.matmul(tf.gather(m.rows, code), m.rows, transpose_b=True), -1)
            ),
            {"rows": variable(9, 3)},
            code=(I64, [None]),
        ),
        "ReadVariableOp",
        "",
    ),
}


@pytest.mark.parametrize("case", FEATURE_SIDE)
def test_transform_without_a_rule_is_named(export, case):
    make, op, node = FEATURE_SIDE[case]
    error = refusal(export(make()))
    assert error.where.startswith(f"op {op} (node '")
    assert node in error.where
