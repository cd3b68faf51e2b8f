"""The ONNX model of `postprocess`: cuts each task's scores from the bucket's length down to `n`."""

from __future__ import annotations

import numpy as np

from bireme import __version__
from bireme.emitter.tensors import COUNT, padded_names, unused_all
from bireme.spec import Contract

__all__ = ["trim_model"]

# Old enough for the ONNX Runtime of every Triton image with which TensorRT 8.6 or newer comes.
_OPSET = 13
_IR_VERSION = 8


def trim_model(contract: Contract) -> bytes:
    """A graph of one Slice per task, equal bytes for equal contracts.

    Inputs: per task its padded scores FP32 [users, bucket], and `n` INT32 [users, 1]. Outputs: per task FP32
    [users, n[0, 0]]: all users of one request have the same candidates count, as a request is rectangular.
    """
    from onnx import TensorProto, helper, numpy_helper

    padded = padded_names(contract)
    taken = {COUNT, *contract.tasks, *padded.values()}
    zero, one, corner, first, row, end = unused_all(["zero", "one", "corner", "first", "row", "end"], taken)
    nodes = [
        helper.make_node("GatherND", [COUNT, corner], [first]),
        helper.make_node("Unsqueeze", [first, zero], [row]),
        helper.make_node("Cast", [row], [end], to=TensorProto.INT64),
    ]
    # Slice(data, start 0, end n, axis 1): the candidates.
    nodes += [helper.make_node("Slice", [padded[task], zero, end, one], [task]) for task in contract.tasks]
    graph = helper.make_graph(
        nodes,
        contract.postprocess,
        inputs=[
            *(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, ["users", "bucket"])
                for name in padded.values()
            ),
            helper.make_tensor_value_info(COUNT, TensorProto.INT32, ["users", 1]),
        ],
        outputs=[
            helper.make_tensor_value_info(task, TensorProto.FLOAT, ["users", "candidates"])
            for task in contract.tasks
        ],
        initializer=[
            numpy_helper.from_array(np.asarray(value, np.int64), name)
            for name, value in ((zero, [0]), (one, [1]), (corner, [0, 0]))
        ],
    )
    model = helper.make_model(
        graph,
        producer_name="bireme",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    encoded: bytes = model.SerializeToString(deterministic=True)
    return encoded
