"""The user side ahead of time: names and tensors of the models that stand beside the one-shot ensemble.

::

    <name>_user    user features → user_state        while recall still looks for candidates
    <name>_slice   user_state, item features → scores     for any number of slices of the candidates

`user_state` is FP32 [users, width]. Its first columns are marks, whole numbers that tell by which build of
the model it was made; the others are whatever the dense network needs of the user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from bireme_runtime.plan import Plan

__all__ = ["AheadNames", "UserAhead", "make_marks"]

# 44 bits tell builds apart. 11 of them a column, because FP16 holds whole numbers exactly up to 2048: an
# engine that computes in FP16 leaves them as they are.
_MARKS, _BITS = 4, 11


@dataclass(frozen=True)
class AheadNames:
    """Model names, from the ensemble's."""

    model: str

    @property
    def user(self) -> str:
        """Ensemble: user features → state."""
        return f"{self.model}_user"

    @property
    def slice(self) -> str:
        """Ensemble: state and item features → scores."""
        return f"{self.model}_slice"

    @property
    def user_preprocess(self) -> str:
        """User features → `user`."""
        return f"{self.model}_preprocess_user"

    @property
    def user_dnn(self) -> str:
        """`user` → state."""
        return f"{self.model}_dnn_user"

    @property
    def slice_preprocess(self) -> str:
        """Checks the state; item features → `items`."""
        return f"{self.model}_preprocess_slice"

    @property
    def slice_dnn(self) -> str:
        """State and `items` → scores."""
        return f"{self.model}_dnn_slice"

    @property
    def all(self) -> tuple[str, ...]:
        """Every model, parts before the ensembles that use them."""
        return (
            self.user_preprocess,
            self.user_dnn,
            self.user,
            self.slice_preprocess,
            self.slice_dnn,
            self.slice,
        )


@dataclass(frozen=True)
class UserAhead:
    """What the compiler adds for these models.

    Args:
        user_plan: plan with item_width 0.
        slice_plan: plan with user_width 0; its features may include user features that a cross needs.
        user_onnx: `user` [users, user_width] → state.
        slice_onnx: state and `items` [users, candidates, item_width] → tasks.
        state: name of the state tensor.
        width: its columns, marks included.
        marks: its first columns.
        user_files: which of the feature plan's files the user plan reads.
        slice_files: likewise.
    """

    user_plan: Plan
    slice_plan: Plan
    user_onnx: bytes
    slice_onnx: bytes
    state: str
    width: int
    marks: tuple[int, ...]
    user_files: tuple[str, ...]
    slice_files: tuple[str, ...]


def make_marks(parts: Iterable[bytes]) -> tuple[int, ...]:
    """Whole numbers below 2048 that differ whenever one of `parts` differs (but for 1 case in 2^44)."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    number = int.from_bytes(digest.digest(), "little")
    return tuple(number >> (_BITS * index) & (1 << _BITS) - 1 for index in range(_MARKS))
