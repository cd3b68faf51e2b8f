"""The dense network on ONNX Runtime (CPU): requests of one bucket run together, each gets its own scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .batching import group_by_bucket, pad_together, trim_apart

__all__ = ["Dense"]

Array = np.ndarray[Any, Any]


class Dense:
    """A session and what it needs to know of the model's config.

    Args:
        session: the network's, of ONNX Runtime.
        buckets: ascending candidate counts.
        listwise: whether lists are whole, so that nothing may be filled up.
    """

    def __init__(self, session: Any, buckets: Sequence[int], listwise: bool) -> None:
        self.session = session
        #: names of the outputs
        self.tasks: list[str] = [output.name for output in session.get_outputs()]
        inputs = [value.name for value in session.get_inputs()]
        #: whether it ranks candidates; one that makes a user's state knows none
        self.ranks = "items" in inputs
        #: `user` or a user state; nothing where the scores read no feature of the user
        self.per_user = [name for name in inputs if name != "items"]
        self._buckets, self._listwise = list(buckets), listwise

    @classmethod
    def open(cls, path: Path, model_config: Mapping[str, Any]) -> Dense:
        """Load `model.onnx`.

        Args:
            path: the file.
            model_config: as Triton hands it over; threads, buckets and whether lists are whole are among its
                parameters.

        Raises:
            ValueError: ONNX Runtime is not installed.
        """
        try:
            import onnxruntime
        except ImportError:
            raise ValueError(
                f"{path}: needs the Python package onnxruntime; install it where tritonserver runs"
            ) from None
        parameters = model_config.get("parameters", {})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(parameters["intra_op_threads"]["string_value"])
        # Spinning threads would take cores from the preprocess instances.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # A memory pattern is kept for every shape ever seen, and N is any number here.
        options.enable_mem_pattern = False
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        buckets = [int(bucket) for bucket in parameters["buckets"]["string_value"].split(",")]
        return cls(session, buckets, "listwise" in parameters)

    def run(self, requests: Sequence[Mapping[str, Array]]) -> list[list[Array] | ValueError]:
        """Run a batch.

        Args:
            requests: for each, `items` [users, candidates, width] and what `per_user` names [users, width].

        Returns:
            For each request its outputs in the order of `tasks`, [users, candidates] or [users, width]; or
            what is wrong with it.
        """
        if not self.ranks:
            return [*self._per_user_only(requests)]
        items = [request["items"] for request in requests]
        sizes = [len(array) for array in items]
        counts = [array.shape[1] for array in items]
        groups, errors = group_by_bucket(counts, self._buckets, self._listwise)
        results: dict[int, list[Array] | ValueError] = {
            index: ValueError(message) for index, message in errors.items()
        }
        for group in groups.values():
            lengths = [counts[i] for i in group]
            feeds = {name: _joined([requests[i][name] for i in group]) for name in self.per_user}
            # To the longest and no further: unlike a GPU's, this engine takes any number of candidates.
            feeds["items"] = pad_together([items[i] for i in group], max(lengths))
            outputs = self.session.run(self.tasks, feeds)
            users = [sizes[i] for i in group]
            apart = [trim_apart(output, users, lengths) for output in outputs]
            for index, parts in zip(group, zip(*apart, strict=True), strict=True):
                results[index] = list(parts)
        return [results[index] for index in range(len(requests))]

    def _per_user_only(self, requests: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
        feeds = {name: _joined([request[name] for request in requests]) for name in self.per_user}
        outputs = self.session.run(self.tasks, feeds)
        ends = np.cumsum([len(request[self.per_user[0]]) for request in requests])[:-1]
        apart = [np.split(output, ends) for output in outputs]
        return [list(parts) for parts in zip(*apart, strict=True)]


def _joined(arrays: Sequence[Array]) -> Array:
    """All users of several requests; one request's are not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
