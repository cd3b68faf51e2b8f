"""Compile an exported subject for the gpu target: `python typed.py FOLDER` writes FOLDER/typed.json.

The build itself refuses what a strongly typed TensorRT would; what is written is what it let through. Checked
again are two typings that the search for a precision did not choose: all in FP16 that may be, and every other
node in FP32, so that Casts stand at as many places as there are.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
from measure import write_spec

from bireme.compiler.fp16.half import tensor_types, to_half
from bireme.compiler.fp16.half_limits import find_limits
from bireme.compiler.fp16.strong_types import type_faults
from bireme.compiler.pipeline import compile_model
from bireme.errors import BiremeError

__all__ = ["typed"]


def typed(folder: Path) -> dict[str, Any]:
    """Result of one subject as JSON values: faults of each typing that has any, Casts, ops with their types.

    Args:
        folder: holds `saved_model/` and `subject.json`; gets the spec and its sample requests.
    """
    spec = write_spec(folder)
    try:
        full = compile_model(spec, "cpu").precision.dense
        compiled = compile_model(spec, "gpu")
    except BiremeError as error:
        return {"status": "refused", "reason": f"{error.where} {error.message}".replace(f"{folder}/", "")}
    forced = set(find_limits(full, {}).forced)
    others = {node.name for index, node in enumerate(full.graph.node) if index % 2}
    typings = {
        "chosen": compiled.dense,
        "fp32": full,
        "fp16": to_half(full, forced, "float16"),
        "every other node": to_half(full, forced | others, "float16"),
    }
    faults = {
        name: [f"{fault.where} {fault.message}" for fault in found]
        for name, model in typings.items()
        if (found := type_faults(model))
    }
    return {
        "status": "faults" if faults else "typed",
        "faults": faults,
        "casts": {name: _casts(model) for name, model in typings.items()},
        "kept_fp32": len(compiled.precision.kept),
        "computing": compiled.precision.computing,
        "ops": _ops(compiled.dense),
    }


def _casts(model: onnx.ModelProto) -> int:
    return sum(node.op_type == "Cast" for node in model.graph.node)


def _ops(model: onnx.ModelProto) -> dict[str, int]:
    """Op and type of its first operand → how many nodes."""
    types = tensor_types(model)
    names = onnx.TensorProto.DataType.Name
    counts = Counter(f"{node.op_type} {names(types[node.input[0]]).lower()}" for node in model.graph.node)
    return dict(sorted(counts.items()))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "typed.json").write_text(json.dumps(typed(place), indent=1), encoding="utf-8")
