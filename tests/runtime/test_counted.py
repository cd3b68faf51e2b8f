"""Counts of the elements that a mask admits, as columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from runtime_plans import PLAN, make_request, write_plan

from bireme_runtime.plan import Counted, Mask, Plan
from bireme_runtime.preprocessor import Features, Preprocessor

MORE = (
    Counted("tags.count", Mask("tags", ""), "item", 22),
    Counted("tags.root", Mask("tags", ""), "item", 23, 1.25, root=True),
    Counted("single", Mask("price.bucket", 0), "item", 24, 0.5),
)


def test_counts_and_roots_of_each_row_in_a_batch(tmp_path: Path) -> None:
    plan = replace(PLAN, steps=(*PLAN.steps, *MORE), item_width=25)
    assert Plan.from_json(plan.to_json()) == plan
    preprocessor = Preprocessor.open(write_plan(tmp_path, plan))
    requests = [make_request(k, 1 + k % 2, 2 + k, k, 2 * k) for k in range(4)]
    seen = set()
    for request, found in zip(requests, preprocessor.run(requests), strict=True):
        assert isinstance(found, Features)
        tags = request["tags"]
        counts = (tags != b"").sum(-1).astype(np.float32)
        np.testing.assert_array_equal(found.items[: len(tags), : tags.shape[1], 22], counts)
        np.testing.assert_array_equal(
            found.items[: len(tags), : tags.shape[1], 23], np.maximum(np.sqrt(counts), np.float32(1.25))
        )
        assert set(np.unique(found.items[:, : tags.shape[1], 24])) <= {0.5, 1.0}
        seen |= set(counts.reshape(-1).tolist())
    assert len(seen) > 1
