from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from emitter_helpers import make_contract
from tritonclient.grpc.model_config_pb2 import DataType

from bireme.emitter.configs import model_configs
from bireme.emitter.trim import trim_model

# The second set of names is what the graph would like to call its own inner values.
TASKS = [("ctr", "cvr"), ("end", "first", "zero", "padded_end", 'weird "name"/é')]


@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize(("users", "bucket", "n"), [(1, 4, 1), (1, 4, 4), (3, 16, 5), (6, 16, 16)])
def test_each_task_keeps_its_first_n_scores(tasks: tuple[str, ...], users: int, bucket: int, n: int) -> None:
    contract = make_contract("gpu", tasks=tasks)
    config = next(c for c in model_configs(contract) if c.name == contract.postprocess)
    session = onnxruntime.InferenceSession(trim_model(contract), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(users * 100 + n)
    scores = [random.random((users, bucket), np.float32) for _ in tasks]
    padded = [tensor.name for tensor in config.input][: len(tasks)]
    feeds = dict(zip(padded, scores, strict=True)) | {"n": np.full((users, 1), n, np.int32)}
    for task, score in zip(tasks, scores, strict=True):
        (trimmed,) = session.run([task], feeds)
        np.testing.assert_array_equal(trimmed, score[:, :n])


def test_the_graph_has_the_inputs_and_outputs_that_its_config_lists() -> None:
    contract = make_contract("gpu")
    config = next(c for c in model_configs(contract) if c.name == contract.postprocess)
    graph = onnx.load_model_from_string(trim_model(contract)).graph
    for listed, real in ((config.input, graph.input), (config.output, graph.output)):
        assert [tensor.name for tensor in listed] == [value.name for value in real]
        for tensor, value in zip(listed, real, strict=True):
            dims = [dim.dim_value or -1 for dim in value.type.tensor_type.shape.dim]
            assert list(tensor.dims) == dims
            element = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
            assert {"FLOAT": "TYPE_FP32", "INT32": "TYPE_INT32"}[element] == DataType.Name(tensor.data_type)


def test_it_is_a_valid_model_and_the_same_bytes_each_time() -> None:
    first = trim_model(make_contract("gpu"))
    onnx.checker.check_model(onnx.load_model_from_string(first), full_check=True)
    assert first == trim_model(make_contract("gpu"))
