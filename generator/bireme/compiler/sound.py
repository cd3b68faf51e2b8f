"""Whether a pass has made a sound ONNX graph; a fault here is the compiler's own."""

from __future__ import annotations

import onnx

from bireme.errors import CompileError

__all__ = ["require_sound"]


def require_sound(
    model: onnx.ModelProto, made_by: str, hint: str = "please report it with the model's graph"
) -> None:
    """Check names, order, types and shapes of a graph by ONNX's own rules.

    Args:
        model: what a pass has made.
        made_by: the pass.
        hint: what the user can do, besides knowing that the model is not to blame.

    Raises:
        CompileError: the graph breaks a rule of ONNX.
    """
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise CompileError(
            f"pass {made_by}",
            f"made an invalid graph: {' '.join(str(error).split())}",
            f"a fault of the compiler, not of your model: {hint}",
        ) from error
