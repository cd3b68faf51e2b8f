"""The least that arrays of this size cost: copy what comes in, gather rows, lay blocks side by side.

Nothing is hashed, looked up, checked or computed. No implementation on whole arrays can be cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bireme_runtime.plan import Embed, Plan
from bireme_runtime.tables import open_tables

__all__ = ["BareArrays"]

Array = np.ndarray[Any, Any]


class BareArrays:
    """Moves as many bytes as a plan does.

    Args:
        folder: where `plan.json` and the tables lie.
    """

    def __init__(self, folder: Path) -> None:
        self.plan = Plan.read(folder / "plan.json")
        self._tables = open_tables(folder, self.plan.tables)

    def prepare(self, tensors: Mapping[str, Array], seed: int = 0) -> tuple[list[Array], dict[str, Array]]:
        """What `run` takes for one request, made beforehand: its payload, and random ids.

        Args:
            tensors: feature → tensor of one user, strings as object arrays of bytes.
            seed: of the ids.

        Returns:
            One flat array a feature (strings: uint8, their bytes end to end), and block step → ids.
        """
        rng = np.random.default_rng(seed)
        payload = [_flat(array) for array in tensors.values()]
        features = {step.name: step.feature for step in self.plan.steps if hasattr(step, "feature")}
        ids = {}
        for step in self.plan.steps:
            if isinstance(step, Embed):
                array = tensors.get(features[step.ids])
                ids[step.name] = rng.integers(
                    0, len(self._tables[step.table]), 0 if array is None else array.size
                )
        return payload, ids

    def run(self, payload: list[Array], ids: Mapping[str, Array]) -> list[Array]:
        """Copy the payload, gather, and write the blocks of both sides."""
        moved = [array.copy() for array in payload]
        for side in ("user", "item"):
            blocks = [
                self._tables[step.table].take(ids[step.name], axis=0, mode="clip")
                for step in self.plan.steps
                if isinstance(step, Embed) and step.side == side
            ]
            moved += [np.concatenate(blocks, axis=1)] if side == "item" else blocks
        return moved


def _flat(array: Array) -> Array:
    if array.dtype != np.object_:
        return array.reshape(-1)
    return np.frombuffer(b"".join(array.reshape(-1).tolist()), np.uint8)
