"""What the models of the Python backend have in common: the way from Triton's requests to arrays and back.

`backend` is the module `triton_python_backend_utils`, which exists only inside tritonserver.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .dense import Dense
from .library import load
from .local_store import VARIABLE
from .preprocessor import Preprocessor
from .wire import install

if TYPE_CHECKING:
    from triton_python_backend_utils import InferenceRequest, InferenceResponse

__all__ = ["inputs_of", "open_features", "rank", "response_of"]

Array = np.ndarray[Any, Any]


def open_features(folder: Path, backend: Any, instance: str) -> Preprocessor:
    """Open the feature plan in `folder`, and say in Triton's log what was got.

    Args:
        folder: a version folder.
        backend: see above; its decoder of strings is replaced.
        instance: name of the instance, for the log.
    """
    library, about = load()
    # Huge pages are the host's matter, so that its environment says what to do. Triton copies a response
    # before it asks for the next batch, so that results may lie in the same memory.
    preprocessor = Preprocessor.open(folder, os.environ.get(VARIABLE, "auto"), library, reuse=True)
    for note in (about, *preprocessor.notes):
        backend.Logger.log_info(f"{instance}: {note}")
    install(backend)
    return preprocessor


def inputs_of(request: InferenceRequest) -> dict[str, Array]:
    """Name → array of what a request holds."""
    # Not `get_input_tensor_by_name`: it goes through all inputs at every call.
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


def response_of(backend: Any, names: Sequence[str], result: Sequence[Array] | Exception) -> InferenceResponse:
    """A request's response: its outputs, or what is wrong with it (a ValueError) or with the server."""
    response: InferenceResponse
    if isinstance(result, Exception):
        codes = backend.TritonError
        code = codes.INVALID_ARG if isinstance(result, ValueError) else codes.INTERNAL
        error = backend.TritonError(str(result), code)
        response = backend.InferenceResponse(error=error)
    else:
        pairs = zip(names, result, strict=True)
        response = backend.InferenceResponse([backend.Tensor(name, array) for name, array in pairs])
    return response


def rank(
    features: Preprocessor, dense: Dense, requests: Sequence[Mapping[str, Array]]
) -> list[list[Array] | ValueError]:
    """Raw features to scores.

    Args:
        features: the feature plan.
        dense: the network.
        requests: for each request, feature → tensor.

    Returns:
        For each request its scores [users, candidates] in the order of the network's tasks, or what is wrong.
    """
    results: list[Any] = list(features.run(requests))
    good = [index for index, result in enumerate(results) if not isinstance(result, ValueError)]
    if good:
        # A network that reads nothing of the user has no input `user`; then it is not asked for.
        handed = [{"user": results[index].user, "items": results[index].items} for index in good]
        for index, scores in zip(good, dense.run(handed), strict=True):
            results[index] = scores
    return results
