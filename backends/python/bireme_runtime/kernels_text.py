"""Kernels of the steps that make strings, and of those that make integers or floats from each string."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .aligned import align
from .hash64 import hash64
from .siphash import siphash64
from .state import State
from .strings import FlatStrings
from .text_bytes import each, join
from .text_functions import MEASURES, TEXTS, Unfit
from .text_numbers import parse_float
from .text_steps import (
    Choose,
    Element,
    HashLegacy,
    HashStrong,
    Join,
    Measure,
    Parse,
    Pick,
    Same,
    Split,
    Text,
    sources_of,
    to_bytes,
)

__all__ = ["TEXT_KERNELS"]


def text_step(step: Text, state: State) -> None:
    """One function of every value."""
    given = state.numbers(step.feature) if step.function == "as_string" else state.strings(step.feature)
    try:
        texts = TEXTS[step.function](given, *step.parameters)
    except Unfit as error:
        raise _refuse(state, step.feature, error) from None
    state.put_texts(step.name, step.feature, texts)


def split_step(step: Split, state: State) -> None:
    """A sequence of a fixed number of parts of every string."""
    *how, count, default = step.parameters
    strings = state.strings(step.feature)
    parts = [TEXTS["part"](strings, *how, index, default) for index in range(count)]
    flat = FlatStrings.concat(parts)
    order = np.arange(len(flat)).reshape(count, -1).T.reshape(-1)
    state.put_texts(step.name, step.feature, flat.take(order))
    state.lengths[step.name] = np.full(len(strings), count, np.int64)


def measure_step(step: Measure, state: State) -> None:
    """One integer of every string."""
    try:
        ids = MEASURES[step.function](state.strings(step.feature), *step.parameters)
    except Unfit as error:
        raise _refuse(state, step.feature, error) from None
    state.put_ids(step.name, step.feature, ids)


def join_step(step: Join, state: State) -> None:
    """Strings of several sources and constants, one after the other."""
    sources = [text for kind, text in step.parts if kind == "source"]
    lead, rows = align(state, sources)
    columns = {name: state.strings(name).take(rows[name]) for name in dict.fromkeys(sources)}
    zeros = np.zeros(len(columns[lead]), np.int64)
    separator = FlatStrings.from_list([to_bytes(step.separator)]).take(zeros)
    pieces: list[FlatStrings] = []
    for kind, text in step.parts:
        if pieces and step.separator:
            pieces.append(separator)
        constant = kind == "constant"
        pieces.append(FlatStrings.from_list([to_bytes(text)]).take(zeros) if constant else columns[text])
    state.put_texts(step.name, lead, join(pieces))


def choose_step(step: Choose, state: State) -> None:
    """One of two strings, row by row."""
    lead, rows = align(state, sources_of(step))
    condition = state.numbers(step.condition)[rows[step.condition]] != 0
    zeros = np.zeros(condition.size, np.int64)
    parts = [
        FlatStrings.from_list([to_bytes(text)]).take(zeros)
        if kind == "constant"
        else state.strings(text).take(rows[text])
        for kind, text in step.parts
    ]
    places = np.arange(condition.size) + np.where(condition, 0, condition.size)
    state.put_texts(step.name, lead, FlatStrings.concat(parts).take(places))


def pick_step(step: Pick, state: State) -> None:
    """Strings at ids, which are all in range: the vocabulary before has no others."""
    values: FlatStrings = state.vocabularies[step.file]
    state.put_texts(step.name, step.feature, values.take(state.ids[step.feature]))


def element_step(step: Element, state: State) -> None:
    """One element of each sequence."""
    given = state.values(step.feature)
    places = np.arange(step.index, len(given), step.length)
    if isinstance(given, FlatStrings):
        state.put_texts(step.name, step.feature, given.take(places))
    else:
        state.put_ids(step.name, step.feature, given[places].astype(np.int64))
    state.lengths[step.name] = None


def hash_strong_step(step: HashStrong, state: State) -> None:
    """SipHash modulo buckets."""
    hashes = siphash64(state.strings(step.feature), step.key)
    state.put_ids(step.name, step.feature, (hashes % np.uint64(step.buckets)).view(np.int64))


def hash_legacy_step(step: HashLegacy, state: State) -> None:
    """Hash64 modulo buckets."""
    hashes = hash64(state.strings(step.feature))
    state.put_ids(step.name, step.feature, (hashes % np.uint64(step.buckets)).view(np.int64))


def same_step(step: Same, state: State) -> None:
    """Whether two strings are equal."""
    lead, rows = align(state, step.of)
    left, right = (state.strings(name).take(rows[name]) for name in step.of)
    state.put_ids(step.name, lead, left.equal(right).astype(np.int64))


def parse_step(step: Parse, state: State) -> None:
    """Strings as FP32 numbers."""
    numbers, inverse = each(state.strings(step.feature), parse_float)
    bad = np.flatnonzero(np.array([number is None for number in numbers], bool)[inverse])
    if bad.size:
        raise _refuse(state, step.feature, Unfit(bad, "is no finite number"))
    state.put_numbers(step.name, step.feature, np.array(numbers, np.float32)[inverse])


def _refuse(state: State, source: str, error: Unfit) -> Exception:
    return state.batch.refuse(
        state.origin(source), state.lengths_of(source), error.rows, lambda _: error.what
    )


TEXT_KERNELS: dict[str, Callable[[Any, State], None]] = {
    "text": text_step,
    "split": split_step,
    "measure": measure_step,
    "join": join_step,
    "choose": choose_step,
    "pick": pick_step,
    "element": element_step,
    "hash_strong": hash_strong_step,
    "hash_legacy": hash_legacy_step,
    "same": same_step,
    "parse": parse_step,
}
