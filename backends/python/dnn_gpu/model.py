"""Triton model `<name>_dnn` of the gpu-python target: refuses to load, as its runtime is not here yet."""

from __future__ import annotations

from pathlib import Path


class TritonPythonModel:
    """Refuses, in words."""

    def initialize(self, _args: dict[str, str]) -> None:
        """Say that there is nothing here that could run a plan."""
        raise ValueError(
            f"{Path(__file__).parent}: this bireme cannot execute a TensorRT plan yet;"
            " build with --target gpu for NVIDIA's container, or with --target cpu"
        )
