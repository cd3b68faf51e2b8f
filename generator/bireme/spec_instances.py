"""Processes and threads of the served ensemble, as numbers; the rule is in emitter/instances.py."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Instances"]


class Instances(BaseModel):
    """How many of each, and for how many cores: written into the configs and the manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cores: int = 1
    """Processor cores of the serving machine that the numbers are made for."""
    preprocess: int = 1
    """Processes of `<model>_preprocess`; 0: the layout has none."""
    dnn: int = 1
    """Processes of `<model>_dnn`, or of the fused model; on each GPU for the gpu-python target, and contexts
    on each GPU for the gpu target."""
    dnn_threads: int | None = None
    """cpu target: threads of ONNX Runtime in each DNN process. On a GPU: None."""
