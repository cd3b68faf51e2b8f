"""What the compiler tests share: a compiled model as it would be served, and the original beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bireme.compiler.dense import runner
from bireme.compiler.load import SavedModel, fill_unused
from bireme.compiler.pipeline import Compiled
from bireme.requests import Request, to_rows, to_tensors
from bireme.spec import BuildSpec
from bireme.synthetic import make_requests
from bireme_runtime.batching import bucket_for, pad_together, trim_apart
from bireme_runtime.preprocessor import Features, Preprocessor

Array = np.ndarray[Any, Any]
Scores = dict[str, Array]


def make_spec(saved_model: Path, user: Sequence[str], **fields: Any) -> BuildSpec:
    """A spec as `read_spec` would return it."""
    values = {"model": "m", "saved_model": saved_model, "user": tuple(user), "buckets": (8, 64), **fields}
    return BuildSpec.model_validate(values)


class Served:
    """A compiled model with its files on disk, run by the code that serves, without a server.

    Args:
        compiled: the compiled model.
        folder: an empty folder for the plan, tables and vocabularies.
    """

    def __init__(self, compiled: Compiled, folder: Path) -> None:
        self.compiled = compiled
        (folder / "plan.json").write_text(compiled.plan.to_json(), encoding="utf-8")
        for name, write in compiled.files.items():
            write(folder / name)
        self.preprocessor = Preprocessor.open(folder)
        self.run_dense: Callable[[dict[str, Any]], dict[str, Any]] = runner(compiled.dense)

    def features(self, requests: Sequence[Request]) -> list[Features]:
        """The CPU bank for a batch of requests; raises the first request's error."""
        results = self.preprocessor.run([to_tensors(self.compiled.plan.features, r) for r in requests])
        for result in results:
            if isinstance(result, Exception):
                raise result
        return [result for result in results if isinstance(result, Features)]

    def scores(self, requests: Sequence[Request]) -> list[Scores]:
        """Scores [N] a task, requests of one bucket in one execution, as the DNN model does it."""
        halves = self.features(requests)
        counts = [half.candidates for half in halves]
        results: list[Scores] = [{} for _ in requests]
        buckets = [bucket_for(count, self.compiled.plan.buckets) for count in counts]
        for bucket in sorted(set(buckets)):
            members = [i for i, chosen in enumerate(buckets) if chosen == bucket]
            users = [halves[i].user.shape[0] for i in members]
            feeds = {
                "user": np.concatenate([halves[i].user for i in members]),
                "items": pad_together([halves[i].items for i in members], bucket),
            }
            for task, padded in self.run_dense(feeds).items():
                trimmed = trim_apart(padded, users, [counts[i] for i in members])
                for i, scores in zip(members, trimmed, strict=True):
                    results[i][task] = scores[0]
        return results

    def requests(self, counts: Sequence[int], seed: int = 7) -> list[Request]:
        """Made-up requests that fit the model's vocabularies."""
        from bireme.compiler.tables.export import read_words

        return make_requests(self.compiled.plan, read_words(self.compiled.split), counts, seed)


def original_scores(
    model: SavedModel, compiled: Compiled, request: Request, outputs: Mapping[str, str]
) -> Scores:
    """Task → [N], from the SavedModel."""
    rows = fill_unused(model, to_rows(compiled.plan.features, request))
    predicted = model.predict(rows)
    return {task: predicted[name].reshape(-1) for task, name in outputs.items()}


def weights_of(model: onnx.ModelProto) -> list[Array]:
    """Every constant in an ONNX model, initializers and Constant nodes alike."""
    tensors = [onnx.numpy_helper.to_array(weight) for weight in model.graph.initializer]
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    return tensors + [onnx.numpy_helper.to_array(a.t) for a in attributes if a.HasField("t")]
