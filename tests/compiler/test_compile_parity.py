"""Compiled models give the original's scores."""

from __future__ import annotations

import numpy as np
import pytest
from compiler_helpers import original_scores
from compiler_models import MODELS

TOLERANCE = 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_every_output_equals_the_original_for_mixed_users_and_counts(zoo, name):
    example = zoo(name)
    requests = example.served.requests([1, 7, 64, 7, 1, 2, 64])
    worst = {}
    for request, served in zip(requests, example.served.scores(requests), strict=True):
        wanted = original_scores(example.original, example.compiled, request, example.outputs)
        assert set(served) == set(wanted)
        for task, scores in wanted.items():
            assert served[task].shape == scores.shape
            assert np.isfinite(scores).all()
            difference = np.abs(served[task] - scores) / np.maximum(1.0, np.abs(scores))
            worst[task] = max(worst.get(task, 0.0), difference.max())
    assert {task: value for task, value in worst.items() if not value <= TOLERANCE} == {}


@pytest.mark.parametrize("name", MODELS)
def test_scores_depend_on_the_request(zoo, name):
    """A score that is the same for all candidates would make the comparison above worthless."""
    example = zoo(name)
    (scores,) = example.served.scores(example.served.requests([64], seed=11))
    users = example.served.scores(example.served.requests([1] * 24, seed=12))
    for task, values in scores.items():
        varies = np.ptp(values) > 1e-4 or np.ptp([user[task][0] for user in users]) > 1e-4
        assert varies, task


def test_every_pass_is_reported_with_its_difference(zoo):
    differences = zoo("architectures").compiled.differences
    assert list(differences) == ["load", "unroll", "trim", "fold", "batchnorm", "merge", "dense", "user_once"]
    assert max(differences.values()) <= TOLERANCE


def test_known_words_only_where_the_original_refuses_others(zoo):
    example = zoo("every_word_known")
    (request,) = example.served.requests([3])
    request["user"]["word"] = "a word that no one taught"
    with pytest.raises(Exception, match=r"feature 'word': the value gives id -1"):
        example.served.scores([request])
