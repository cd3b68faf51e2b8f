"""The user state that a client hands back with a slice of candidates: is it one of this build?

The state's first columns are marks (see `bireme build --user-ahead`); another build of the model, trained or
compiled differently, has other marks, and its state means nothing here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["STATE_PARAMETER", "StateCheck"]

Array = np.ndarray[Any, Any]

#: Parameter of the model's config that describes the state, as JSON.
STATE_PARAMETER = "bireme_state"


@dataclass(frozen=True)
class StateCheck:
    """What a state must look like.

    Args:
        name: name of the tensor.
        width: columns, marks included.
        marks: FP32 values of the first columns.
        made_by: the model that makes it, for the message.
    """

    name: str
    width: int
    marks: Array
    made_by: str

    @classmethod
    def of(cls, model_config: Mapping[str, Any]) -> StateCheck | None:
        """From a model's config; None for a model that takes no state."""
        parameter = model_config.get("parameters", {}).get(STATE_PARAMETER)
        if parameter is None:
            return None
        raw = json.loads(parameter["string_value"])
        return cls(raw["name"], raw["width"], np.array(raw["marks"], np.float32), raw["made_by"])

    def refusal(self, tensors: Mapping[str, Array]) -> ValueError | None:
        """What is wrong with the state among a request's tensors, or None.

        Args:
            tensors: with the state, FP32 [users, any width].
        """
        state = tensors.get(self.name)
        if state is None:
            return ValueError(f"'{self.name}' is missing; '{self.made_by}' makes it of the user features")
        if state.ndim == 2 and state.shape[1] == self.width:
            if (state[:, : len(self.marks)] == self.marks).all():
                return None
            what = "was made by another build of the model"
        else:
            what = f"has shape {list(state.shape)} where [users, {self.width}] is expected"
        return ValueError(f"'{self.name}' {what}; ask '{self.made_by}' for a new one")
