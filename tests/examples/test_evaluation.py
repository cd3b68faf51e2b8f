import evaluation
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=40)


@given(ROWS)
def test_auc_counts_ordered_pairs_and_half_of_ties(rows):
    click = np.array([c for c, _ in rows], np.int8)
    score = np.array([s for _, s in rows], np.float32)
    assume(0 < click.sum() < len(click))
    pairs = [np.sign(a - b) for a in score[click == 1] for b in score[click == 0]]
    assert evaluation.auc(click, score) == pytest.approx(np.mean([(s + 1) / 2 for s in pairs]))


def test_auc_without_clicks_is_undefined():
    assert np.isnan(evaluation.auc(np.zeros(3, np.int8), np.arange(3.0)))


def test_bootstrap_brackets_the_estimate_and_pairs_the_rows():
    rng = np.random.default_rng(3)
    click = (rng.random(2000) < 0.05).astype(np.int8)
    score = rng.normal(size=2000) + click
    got = evaluation.bootstrap(click, {"a": score, "b": 2 * score + 1, "c": -score}, replicates=200)
    assert got["a"].low < got["a"].value < got["a"].high
    assert got["a"].value == evaluation.auc(click, score)
    # The same order of rows: without pairing, the difference would not vanish in every replicate.
    assert (got["a - b"].low, got["a - b"].high) == (0, 0)
    assert got["a - c"].low > 0


def test_bootstrap_width_is_that_of_the_sampling_error():
    """Against the spread of AUC over fresh draws of the same population."""
    rng = np.random.default_rng(5)

    def draw():
        click = (rng.random(1000) < 0.1).astype(np.int8)
        return click, rng.normal(size=1000) + 0.5 * click

    spread = np.std([evaluation.auc(*draw()) for _ in range(300)])
    click, score = draw()
    interval = evaluation.bootstrap(click, {"a": score}, replicates=300)["a"]
    assert (interval.high - interval.low) / (2 * 1.96) == pytest.approx(spread, rel=0.3)


def test_popularity_shrinks_rare_items_towards_the_overall_rate():
    items = np.array(["often"] * 1000 + ["once"] + ["other"] * 1000, object)
    click = np.array([1] * 100 + [0] * 900 + [1] + [0] * 1000, np.int8)
    often, once, never = evaluation.popularity(items, click, np.array(["often", "once", "never"], object))
    assert never == pytest.approx(click.mean())
    assert never < once < often < 0.1
