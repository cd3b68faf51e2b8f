"""The files of one dense network's model, but for its config."""

from __future__ import annotations

from collections.abc import Mapping

from bireme.emitter.artifacts import Writer
from bireme.emitter.engine_note import Network, engine_note
from bireme.spec import Contract

__all__ = ["network_files"]


def network_files(
    contract: Contract, network: Network, source: bytes | None, runtime: Mapping[str, Writer]
) -> dict[str, Writer]:
    """Path inside the model's folder → content.

    A GPU's network carries its ONNX too: the plan is built from it, on the GPU that serves.

    Args:
        contract: target, users, buckets.
        network: the network.
        source: its model.py; None: a C++ backend runs it.
        runtime: the runtime's files, by their paths inside a model's folder.
    """
    files: dict[str, Writer] = {"1/model.onnx": network.onnx}
    if source is not None:
        files |= {"1/model.py": source, **runtime}
    if contract.on_gpu:
        files["1/BUILD_PLAN.txt"] = engine_note(contract, network).encode()
    return files
