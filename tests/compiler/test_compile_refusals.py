"""A sequence of any length whose elements reach the DNN is refused with one error and the spec's remedy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf
from compiler_parts import Made, variable
from compiler_refusals import I64, F, refusal, small

FEATURE_SIDE: dict[str, tuple[Callable[[], Made], str, str]] = {
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
}


@pytest.mark.parametrize("case", FEATURE_SIDE)
def test_transform_without_a_rule_is_named(export, case):
    make, op, node = FEATURE_SIDE[case]
    error = refusal(export(make()))
    assert error.where.startswith(f"op {op} (node '")
    assert node in error.where
