"""The search alone, on damage that is known in advance."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.compiler.fp16.layers import Layer
from bireme.compiler.fp16.precision_search import search

NODES = "abcdefghij"


def layers_of(sizes: list[int]) -> list[Layer]:
    names = iter(f"{letter}{k}" for k, letter in itertools.product(range(5), NODES))
    return [Layer(f"layer{i}", tuple(itertools.islice(names, size))) for i, size in enumerate(sizes)]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(1, 60))
def test_what_is_kept_is_always_good_enough_and_within_budget(data, sizes, budget):
    layers = layers_of(sizes)
    names = [name for layer in layers for name in layer.nodes]
    harm = {name: data.draw(st.sampled_from([0.0, 0.01, 0.4, 2.0])) for name in names}
    forced = frozenset(data.draw(st.sets(st.sampled_from(names))))
    suspect = frozenset(data.draw(st.sets(st.sampled_from(names))))
    costs = {name: data.draw(st.integers(1, 9)) for name in names}
    asked = []

    def damage(kept):
        asked.append(kept)
        return sum(harm[name] for name in names if name not in kept)

    found = search(layers, forced, suspect, damage, costs, budget)
    assert damage(found.kept) <= 1
    assert forced <= found.kept
    assert found.evaluations == len(asked) - 1 <= budget
    assert len(set(asked)) >= len(asked) - 1  # nothing is asked twice


def test_one_bad_layer_of_many_is_found():
    layers = layers_of([2] * 10)
    harm = dict.fromkeys(layers[6].nodes, 5.0)

    def damage(kept):
        return sum(value for name, value in harm.items() if name not in kept)

    found = search(layers, frozenset(), frozenset(), damage, {}, 40)
    assert found.kept == frozenset(layers[6].nodes)
    assert found.complete
    assert found.alone["layer6"] == 10
    assert 11 < found.evaluations <= 1 + 10 + 4  # all FP16, each alone, bisection


def test_an_expensive_product_is_released_from_its_layer():
    layers = [Layer("dense", ("product", "bias"))]

    def damage(kept):
        return 0.0 if "bias" in kept else 2.0

    found = search(layers, frozenset(), frozenset(), damage, {"product": 100, "bias": 1}, 10)
    assert found.kept == {"bias"}


def test_a_suspect_is_released_if_it_does_no_harm():
    layers = layers_of([1, 1])
    found = search(layers, frozenset(), frozenset(layers[1].nodes), lambda kept: 0.1, {}, 10)
    assert found.kept == frozenset()
    found = search(
        layers, frozenset(), frozenset(layers[1].nodes), lambda kept: 2.0 * ("b0" not in kept), {}, 10
    )
    assert found.kept == {"b0"}


def test_too_few_evaluations_keep_everything_and_say_so():
    layers = layers_of([1] * 6)
    found = search(layers, frozenset(), frozenset(), lambda kept: 9.0, {}, 3)
    assert found.kept == frozenset(name for layer in layers for name in layer.nodes)
    assert (found.evaluations, found.complete) == (3, False)
