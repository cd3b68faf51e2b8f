"""AUC and rank moves: right values, ties read the worse way, and gates that can fail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.compiler.fp16.ranking import (
    Limits,
    auc,
    max_rank_move,
    measure_change,
    rank_gate,
    rank_moves,
    top_share,
    worst_of,
)

SCORES = st.lists(st.integers(0, 6), min_size=2, max_size=30).map(lambda x: np.array(x, np.float64))


@given(st.data(), SCORES)
def test_auc_is_the_share_of_pairs_in_order(data, scores):
    labels = np.array(data.draw(st.lists(st.booleans(), min_size=scores.size, max_size=scores.size)))
    pairs = [np.sign(a - b) for a in scores[labels] for b in scores[~labels]]
    if pairs:
        assert auc(scores, labels) == pytest.approx(np.mean([(1 + sign) / 2 for sign in pairs]))
    else:
        assert np.isnan(auc(scores, labels))


def test_auc_of_the_usual_example():
    assert auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])) == 0.75


@given(st.data(), SCORES)
def test_a_move_is_the_worst_that_ties_allow(data, reference):
    scores = np.array(
        data.draw(st.lists(st.integers(0, 6), min_size=reference.size, max_size=reference.size))
    )

    def places(values, index):
        better, equal = (values > values[index]).sum(), (values == values[index]).sum()
        return range(better, better + equal)

    for index, move in enumerate(rank_moves(reference, scores)):
        allowed = places(reference, index)
        distances = [min(abs(place - wanted) for wanted in allowed) for place in places(scores, index)]
        assert move == max(distances)


def test_equal_scores_for_all_are_no_perfect_ranking():
    reference = np.arange(10.0)
    assert max_rank_move(reference, np.zeros(10)) == 9
    assert max_rank_move(np.zeros(10), reference) == 0
    change = measure_change([reference], [np.zeros(10)])
    assert change.auc == 0.5
    assert change.rank_share == 0.9


def test_without_labels_the_top_of_the_reference_counts_as_clicked():
    reference = np.arange(100.0)
    assert top_share(reference).sum() == 10
    assert top_share(np.zeros(5)).all()
    swapped = reference.copy()
    swapped[[89, 90]] = swapped[[90, 89]]  # the last of the top with the first of the rest
    change = measure_change([reference], [swapped])
    assert not change.labelled
    assert change.reference_auc == 1
    assert change.auc == pytest.approx(1 / (10 * 90))
    assert change.rank_move == 1
    assert change.rank_share == 0


def test_ranks_are_those_inside_a_request():
    """A request whose scores are all higher than another's keeps its own order."""
    requests = [np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 6.0, 7.0, 8.0])]
    assert measure_change(requests, [requests[0] + 10, requests[1]]).rank_move == 0
    assert measure_change(requests, [requests[0][::-1], requests[1]]).rank_share == 0.75


def test_labels_decide_the_auc():
    reference, scores = [np.array([1.0, 2.0, 3.0])], [np.array([1.0, 3.0, 2.0])]
    change = measure_change(reference, scores, [np.array([0, 0, 1])])
    assert (change.reference_auc, change.auc, change.labelled) == (1.0, 0.5, True)


def test_requests_without_labels_take_no_part_in_the_auc():
    reference = [np.array([3.0, 2.0, 1.0]), np.array([9.0, 8.0])]
    swapped = [np.array([3.0, 2.0, 1.0]), np.array([8.0, 9.0])]
    change = measure_change(reference, swapped, [np.array([1, 0, 0]), None])
    assert (change.reference_auc, change.auc, change.rank_move, change.labelled) == (1.0, 0.0, 1, True)
    change = measure_change(reference, swapped, [None, np.array([1, 0])])
    assert (change.reference_auc, change.auc) == (1.0, 1.0)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_scores_that_are_not_finite_pass_no_gate(broken):
    change = measure_change([np.array([1.0, 2.0])], [np.array([1.0, broken])])
    assert rank_gate(change, Limits()) == ["scores are not finite where the reference's are"]
    with pytest.raises(ValueError, match="not finite"):
        auc(np.array([1.0, broken]), np.array([0, 1]))


def test_gate_names_every_limit_that_is_passed():
    reference = np.linspace(0, 1, 1000)
    change = measure_change([reference], [reference[::-1]])
    found = rank_gate(change, Limits(score=0.1, auc=0.1, rank_share=0.1))
    assert [text.split()[0] for text in found] == ["scores", "AUC", "a"]
    assert rank_gate(change, Limits(score=1, auc=1, rank_share=1)) == []


def test_worst_of_several_tasks():
    reference = np.arange(20.0)
    good = measure_change([reference], [reference])
    bad = measure_change([reference], [reference[::-1]])
    alike = measure_change([np.zeros(20)], [np.zeros(20)])
    assert np.isnan(alike.auc)
    assert worst_of([good, alike, bad]).auc == bad.auc
    assert worst_of([alike, good]).rank_move == 0
    assert rank_gate(alike, Limits(0, 0, 0)) == []
