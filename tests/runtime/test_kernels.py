"""Every step against the same thing done to one value at a time, or by TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from runtime_plans import KEYS, TEXTS, WORDS, hashed, objects

from bireme_runtime.kernels import KERNELS, State, apply_chain
from bireme_runtime.plan import (
    Bucketize,
    Embed,
    Feature,
    HashBucket,
    IdentityId,
    IntVocabulary,
    Mask,
    Numeric,
    Vocabulary,
)
from bireme_runtime.requests import BadRequests, Batch, Request
from bireme_runtime.vocabulary import IntVocabulary as IntVocabularyFile
from bireme_runtime.vocabulary import Vocabulary as VocabularyFile

Array = np.ndarray[Any, Any]
FLOAT = float(np.finfo(np.float32).max)
HALF = float(np.finfo(np.float16).max)
VOCABULARIES = {
    "words": VocabularyFile.build(list(WORDS), np.array(list(WORDS.values()))),
    "keys": IntVocabularyFile.build(list(KEYS), np.array(list(KEYS.values()))),
}
float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)


def run(
    steps: Sequence[Any],
    feature: Feature,
    tensors: Sequence[Array],
    tables: Mapping[str, Array] | None = None,
    width: int = 1,
    limit: float = FLOAT,
) -> State:
    """Run steps on one feature's tensors, one a request; columns that no step writes are NaN."""
    requests = [
        Request({feature.name: array}, len(array), array.shape[1] if feature.side == "item" else 1)
        for array in tensors
    ]
    batch = Batch(requests, [feature])
    outputs: Mapping[Any, Array] = {
        side: np.full((batch.total(side), width), np.nan, np.float32) for side in ("user", "item")
    }
    state = State(batch, {feature.name: feature}, tables or {}, VOCABULARIES, outputs, limit)
    for step in steps:
        KERNELS[step.op](step, state)
    return state


def ids(step: Any, values: Array, dtype: str) -> list[int]:
    """An id step on a column of an item feature."""
    found = run([step], Feature("x", "item", dtype, text="bytes"), [values.reshape(1, -1)]).ids[step.name]
    assert found.dtype == np.int64
    return found.tolist()


texts = st.lists(st.one_of(st.sampled_from(TEXTS), st.binary(max_size=12)), min_size=1, max_size=20)


@given(texts, st.sampled_from([1, 2, 64, 10**6]))
def test_hash_bucket_is_tensorflows(values: list[bytes], buckets: int) -> None:
    found = ids(HashBucket("h", "x", buckets), objects(values, (len(values),)), "string")
    assert found == [hashed(value, buckets) for value in values]


@given(texts, st.sampled_from([0, 1, -1]))
def test_vocabulary_is_a_dict(values: list[bytes], default: int) -> None:
    found = ids(Vocabulary("v", "x", "words", default), objects(values, (len(values),)), "string")
    assert found == [WORDS.get(value, default) for value in values]


@given(
    st.lists(st.one_of(st.sampled_from([*KEYS]), st.integers(-(2**31), 2**31 - 1)), min_size=1),
    st.sampled_from(["int32", "int64"]),
)
def test_int_vocabulary_is_a_dict(values: list[int], dtype: str) -> None:
    found = ids(IntVocabulary("v", "x", "keys", 9), np.array(values, dtype), dtype)
    assert found == [KEYS.get(value, 9) for value in values]


@st.composite
def edges_and_values(draw: st.DrawFn) -> tuple[tuple[float, ...], list[float]]:
    """Values on the edges, just beside them, and zeros of both signs."""
    edges = sorted(set(draw(st.lists(st.one_of(st.just(0.0), float32s), min_size=1, max_size=8))))
    with np.errstate(over="ignore"):
        near = [float(np.nextafter(np.float32(e), np.float32(to))) for e in edges for to in (-np.inf, np.inf)]
    special = [x for x in (*edges, *near, 0.0, -0.0) if math.isfinite(x)]
    values = draw(st.lists(st.one_of(st.sampled_from(special), float32s), min_size=1, max_size=20))
    return tuple(edges), values


@given(edges_and_values())
def test_bucketize_counts_the_edges_not_above_the_value(case: tuple[tuple[float, ...], list[float]]) -> None:
    edges, values = case
    found = ids(Bucketize("b", "x", edges), np.array(values, np.float32), "float32")
    assert found == [sum(seen(edge) <= seen(value) for edge in edges) for value in values]


def seen(number: float) -> float:
    """Denormal numbers are 0 for TensorFlow."""
    return 0.0 if abs(number) < np.finfo(np.float32).tiny else number


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_bucketize_compares_as_tensorflow_does(dtype: str) -> None:
    edges = [-1.0, 0.0, 0.1, 16777216.0, 16777220.0]
    values = np.array([0.1, float(np.float32(0.1)), -0.0, -1, 16777215, 16777217, 16777219, 2**30], dtype)
    expected = tf.raw_ops.Bucketize(input=tf.constant(values), boundaries=edges).numpy().tolist()
    assert ids(Bucketize("b", "x", tuple(edges)), values, dtype) == expected


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_identity_is_the_value(dtype: str) -> None:
    assert ids(IdentityId("i", "x"), np.array([1, 0, 1], dtype), dtype) == [1, 0, 1]


def embed(
    step: Embed,
    sequences: list[list[int]],
    table: Array,
    id_step: Any = IdentityId("i", "x"),  # noqa: B008 - frozen
) -> Array:
    """A user feature, one request a sequence, so that all lengths may differ."""
    tensors = [np.array([sequence], np.int64) for sequence in sequences]
    state = run([id_step, step], Feature("x", "user", "int64", -1), tensors, {"t": table}, step.width)
    return state.outputs["user"]


ROWS = 6
sequences = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=6), min_size=1, max_size=6)
TABLE = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)


@given(
    sequences,
    st.sampled_from(["sum", "mean"]),
    st.sampled_from([None, 0, 4]),
    st.sampled_from([1.0, 0.25, 2.5]),
    st.sampled_from(["float32", "float16"]),
)
def test_pooling_one_sequence_at_a_time(
    batch: list[list[int]], pool: Any, masked: int | None, floor: float, dtype: str
) -> None:
    table = TABLE.astype(dtype)
    mask = None if masked is None else Mask("i", masked)
    found = embed(Embed("e", "i", "t", "user", 0, 3, pool, mask, floor), batch, table)
    for row, sequence in zip(found, batch, strict=True):
        admitted = [i for i in sequence if i != masked]
        expected = sum((table[i].astype(np.float64) for i in admitted), np.zeros(3))
        if pool == "mean":
            expected /= max(len(admitted), floor)
        np.testing.assert_allclose(row, expected, rtol=1e-6, atol=1e-6)
        if not admitted:
            assert not row.any()


@pytest.mark.parametrize(
    "batch",
    [
        [[], [1], [2]],
        [[1], [], [2]],
        [[1], [2], []],
        [[], [], []],
        [[0, 0], [1], [0]],
        [[], [0], [1, 0], [], [0]],
    ],
)
@pytest.mark.parametrize("mask", [None, Mask("i", 0)])
def test_empty_and_all_masked_sequences_anywhere(batch: list[list[int]], mask: Mask | None) -> None:
    found = embed(Embed("e", "i", "t", "user", 0, 3, "sum", mask), batch, TABLE)
    for row, sequence in zip(found, batch, strict=True):
        admitted = [i for i in sequence if mask is None or i != 0]
        assert np.array_equal(row, TABLE[admitted].sum(axis=0))


def test_a_half_precision_table_is_summed_in_single_precision() -> None:
    """4,000 times 1: a sum in FP16 sticks at 2,048."""
    table = np.ones((ROWS, 3), np.float16)
    found = embed(Embed("e", "i", "t", "user", 0, 3, "sum"), [[1] * 4000], table)
    assert (found == 4000).all()


@pytest.mark.parametrize("texts_", [[b"a", b"", b"shoe"], [b"", b""], []])
def test_the_empty_string_can_be_a_mask(texts_: list[bytes]) -> None:
    steps = [HashBucket("h", "x", ROWS), Embed("e", "h", "t", "user", 0, 3, "sum", Mask("x", ""))]
    tensor = objects(texts_, (1, len(texts_)))
    found = run(steps, Feature("x", "user", "string", -1), [tensor], {"t": TABLE}, 3).outputs["user"]
    expected = sum((TABLE[hashed(text, ROWS)] for text in texts_ if text), np.zeros(3, np.float32))
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)


def test_a_block_is_written_and_its_neighbours_are_not() -> None:
    steps = [IdentityId("i", "x"), Embed("e", "i", "t", "item", 2, 3)]
    values = np.array([[5, 0, 5]])
    found = run(steps, Feature("x", "item", "int64"), [values], {"t": TABLE}, 7).outputs["item"]
    assert np.array_equal(found[:, 2:5], TABLE[[5, 0, 5]])
    assert np.isnan(found[:, [0, 1, 5, 6]]).all()


@pytest.mark.parametrize("bad", [ROWS, -1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("pool", [None, "sum"])
def test_an_id_without_a_row_is_refused_for_its_request_only(bad: int, pool: Any) -> None:
    feature = Feature("x", "user", "int64", None if pool is None else -1)
    steps = [IdentityId("i", "x"), Embed("e", "i", "t", "user", 0, 3, pool)]
    tensors = [np.array([[0]]), np.array([[bad]]), np.array([[1]]), np.array([[bad]])]
    with pytest.raises(BadRequests) as caught:
        run(steps, feature, tensors, {"t": TABLE}, 3)
    message = f"feature 'x': the value gives id {bad}; table 't' has rows 0 to {ROWS - 1}"
    assert {i: str(error) for i, error in caught.value.errors.items()} == {1: message, 3: message}


EXACT: dict[str, Callable[[float, float], float]] = {
    "add": lambda x, c: x + c,
    "sub": lambda x, c: x - c,
    "rsub": lambda x, c: c - x,
    "mul": lambda x, c: x * c,
    "div": lambda x, c: x / c,
    "minimum": min,
    "maximum": max,
    "square": lambda x, _: x * x,
    "abs": lambda x, _: abs(x),
    "neg": lambda x, _: -x,
    "sqrt": lambda x, _: math.sqrt(x),
}
ROUNDED: dict[str, Callable[[float], float]] = {"log1p": math.log1p, "log": math.log, "tanh": math.tanh}
UNARY = {"square", "abs", "neg", "sqrt", *ROUNDED}
small = st.floats(-1000, 1000, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)


@given(
    st.lists(st.tuples(st.sampled_from([*EXACT]), small.filter(bool)), max_size=5),
    st.lists(small, min_size=1, max_size=8),
)
def test_chains_round_to_single_precision_after_every_operation(
    operations: list[tuple[str, float]], values: list[float]
) -> None:
    """These operations are exact up to rounding; a double carries one of them before it is rounded."""
    chain = [(name, None if name in UNARY else constant) for name, constant in operations]
    found = apply_chain(chain, np.array(values, np.float32))
    assert found.dtype == np.float32
    for result, value in zip(found.tolist(), values, strict=True):
        expected = float(np.float32(value))
        for name, constant in operations:
            if (name == "sqrt" and expected < 0) or not math.isfinite(expected):
                expected = math.nan
                break
            with np.errstate(over="ignore"):
                expected = float(np.float32(EXACT[name](expected, constant)))
        if math.isfinite(expected):
            assert result == expected


@pytest.mark.parametrize("name", [*ROUNDED])
@given(values=st.lists(st.floats(2.0**-10, 1e6, width=32), min_size=1, max_size=50))
def test_functions_are_within_two_roundings(name: str, values: list[float]) -> None:
    found = apply_chain([(name, None)], np.array(values, np.float32))
    expected = np.array([ROUNDED[name](value) for value in values])
    np.testing.assert_array_less(
        np.abs(found - expected), 4 * np.spacing(np.abs(expected).astype(np.float32))
    )


def test_every_operation_is_covered() -> None:
    from bireme_runtime.kernels import _OPERATIONS

    assert {*EXACT, *ROUNDED} == set(_OPERATIONS)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
def test_numbers_of_any_type_become_single_precision(dtype: str) -> None:
    values = np.array([[0, 1, 1]], dtype)
    found = run([Numeric("n", "x", (), "item", 0)], Feature("x", "item", dtype), [values])
    assert found.outputs["item"].tolist() == [[0], [1], [1]]


@pytest.mark.parametrize(
    ("value", "chain", "limit", "message"),
    [
        (-2.0, (("log1p", None), ("div", 2.0)), FLOAT, "is -2.0, which becomes nan after log1p, div"),
        (0.0, (("log", None),), FLOAT, "is 0.0, which becomes -inf after log"),
        (1e30, (("square", None),), FLOAT, r"is 1e\+30, which becomes inf after square"),
        (1e300, (), FLOAT, r"is 1e\+300, which becomes inf after conversion"),
        (70000.0, (), HALF, "is 70000.0, which becomes 70000.0 after conversion"),
        (-70000.0, (("add", 1.0),), HALF, "is -70000.0, which becomes -69999.0 after add"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_number_that_leaves_the_range_is_refused(
    value: float, chain: Any, limit: float, message: str
) -> None:
    feature, step = Feature("x", "item", "float64"), Numeric("n", "x", chain, "item", 0)
    tensors = [np.array([[1.0, 2.0]]), np.array([[3.0, value, value]])]
    with pytest.raises(BadRequests, match=rf"^feature 'x', candidate 1: the value {message}$") as caught:
        run([step], feature, tensors, limit=limit)
    assert [*caught.value.errors] == [1]


def test_a_pooled_sum_beyond_half_precision_is_refused_for_its_request_only() -> None:
    table = np.array([[40_000.0, 1.0]], np.float32)
    feature = Feature("x", "user", "int64", -1)
    steps = [IdentityId("i", "x"), Embed("e", "i", "t", "user", 0, 2, "sum")]
    tensors = [np.zeros((1, 1), np.int64), np.zeros((1, 2), np.int64)]
    with pytest.raises(BadRequests) as refused:
        run(steps, feature, tensors, {"t": table}, 2, HALF)
    assert list(refused.value.errors) == [1]
    assert "feature 'x': the value pooled by sum is beyond the 65504" in str(refused.value)
    assert run(steps, feature, tensors, {"t": table}, 2).outputs["user"].tolist() == [[4e4, 1], [8e4, 2]]


def test_denormal_numbers_are_zero_for_tensorflow() -> None:
    tiny = float(np.finfo(np.float32).tiny)
    values = np.array([-tiny, -1e-45, -0.0, 0.0, 1e-45, 1e-40, tiny], np.float32)
    for edges in ((0.0,), (1e-41,), (-1e-45, tiny), (-tiny, 0.0, tiny)):
        expected = tf.raw_ops.Bucketize(input=values, boundaries=edges).numpy().tolist()
        assert ids(Bucketize("b", "x", edges), values, "float32") == expected
