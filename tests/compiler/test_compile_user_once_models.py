"""Models over a user's history, from ids and words to scores: what is the user's is computed once a user."""

from __future__ import annotations

import numpy as np
import pytest
from compiler_helpers import Served, original_scores
from compiler_sequences import MODELS

from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import compile_model
from bireme.compiler.rows.costs import flops_per_request
from bireme_runtime.plan import Subgraph

COUNTS = (1, 7, 64, 500)


@pytest.mark.parametrize("name", MODELS)
def test_sequences_are_served_with_the_users_part_done_once(name, export, tmp_path):
    case = MODELS[name]
    spec = export(case.make()).model_copy(update={"buckets": (8, 64, 512)})
    compiled = compile_model(spec, "cpu")
    assert not [step for step in compiled.plan.steps if isinstance(step, Subgraph)]
    folder = tmp_path / "files"
    folder.mkdir()
    served = Served(compiled, folder)
    original = SavedModel(spec.saved_model)
    requests = served.requests(COUNTS)
    found = served.scores(requests)
    wanted = [original_scores(original, compiled, request, {"score": "score"}) for request in requests]
    for actual, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(actual["score"], expected["score"], rtol=0, atol=1e-5)
    assert np.ptp(wanted[-1]["score"]) > 1e-2  # scores that are all alike would fit anything
    each = flops_per_request(compiled.dense, 501) - flops_per_request(compiled.dense, 500)
    once = flops_per_request(compiled.dense, 500) - 500 * each
    assert (each, once) == (2 * case.each, 2 * case.once)
    assert flops_per_request(compiled.rowwise, 500) > 1.25 * flops_per_request(compiled.dense, 500)
