"""A repository with one small GPU network, written by hand in the form that `bireme build` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

__all__ = ["BUCKETS", "ITEM", "NAME", "USER", "USERS", "attention", "reference", "tiny", "write_repository"]

NAME = "tiny_dnn"
USERS, BUCKETS = 4, (64, 128)
USER, ITEM = 32, 16  # columns
# The weights between these two are 4 MB: more than any remainder of memory that a GPU gives in small pieces.
_HIDDEN, _WIDE = 2048, 1024

Array = np.ndarray[Any, Any]


def _weights() -> dict[str, Array]:
    random = np.random.default_rng(7)
    shapes = {
        "w_user": (USER, _HIDDEN),
        "w_item": (ITEM, _HIDDEN),
        "w_deep": (_HIDDEN, _WIDE),
        "w_score": (_WIDE, 1),
    }
    return {
        name: (random.standard_normal(shape) * (2 / shape[0]) ** 0.5).astype(np.float16)
        for name, shape in shapes.items()
    }


def reference(user: Array, items: Array) -> Array:
    """Scores in FP32. `user` [users, USER], `items` [users, candidates, ITEM] -> [users, candidates]."""
    weights = {name: values.astype(np.float32) for name, values in _weights().items()}
    hidden = items.astype(np.float32) @ weights["w_item"]
    hidden += (user.astype(np.float32) @ weights["w_user"])[:, None]
    wide = np.maximum(np.maximum(hidden, 0) @ weights["w_deep"], 0)
    scores: Array = 1 / (1 + np.exp(-(wide @ weights["w_score"])[..., 0]))
    return scores


def tiny(activation: str = "Relu") -> bytes:
    """The ONNX: FP16, but for the last two nodes.

    Args:
        activation: op of the node `active`.
    """
    nodes = [
        helper.make_node("MatMul", ["user", "w_user"], ["user_part"], "user_part"),
        helper.make_node("Unsqueeze", ["user_part", "one"], ["spread"], "spread"),
        helper.make_node("MatMul", ["items", "w_item"], ["item_part"], "item_part"),
        helper.make_node("Add", ["item_part", "spread"], ["joined"], "joined"),
        helper.make_node("Relu", ["joined"], ["first"], "first"),
        helper.make_node("MatMul", ["first", "w_deep"], ["deep"], "deep"),
        helper.make_node(activation, ["deep"], ["active"], "active"),
        helper.make_node("MatMul", ["active", "w_score"], ["logit"], "logit"),
        *_head("logit"),
    ]
    return _model(nodes, _weights())


def attention() -> bytes:
    """Each candidate attends to all others, 1024 columns wide: much scratch memory, if fused."""
    random = np.random.default_rng(8)
    width = 1024
    weights = {
        name: (random.standard_normal((ITEM, width)) * 0.1).astype(np.float16)
        for name in ("w_query", "w_key", "w_value")
    }
    weights["w_user"] = (random.standard_normal((USER, width)) * 0.1).astype(np.float16)
    weights["w_score"] = (random.standard_normal((width, 1)) * 0.01).astype(np.float16)
    nodes = [
        *(
            helper.make_node("MatMul", ["items", f"w_{name}"], [name], name)
            for name in ("query", "key", "value")
        ),
        helper.make_node("Transpose", ["key"], ["turned"], "turned", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["query", "turned"], ["alike"], "alike"),
        helper.make_node("Softmax", ["alike"], ["share"], "share", axis=-1),
        helper.make_node("MatMul", ["share", "value"], ["seen"], "seen"),
        helper.make_node("MatMul", ["user", "w_user"], ["user_part"], "user_part"),
        helper.make_node("Unsqueeze", ["user_part", "one"], ["spread"], "spread"),
        helper.make_node("Add", ["seen", "spread"], ["joined"], "joined"),
        helper.make_node("MatMul", ["joined", "w_score"], ["logit"], "logit"),
        *_head("logit"),
    ]
    return _model(nodes, weights)


def _head(logit: str) -> list[Any]:
    return [
        helper.make_node("Cast", [logit], ["whole"], "whole", to=TensorProto.FLOAT),
        helper.make_node("Squeeze", ["whole", "two"], ["flat"], "flat"),
        helper.make_node("Sigmoid", ["flat"], ["score"], "score"),
    ]


def _model(nodes: Sequence[Any], weights: dict[str, Array]) -> bytes:
    constants = {"one": np.array([1], np.int64), "two": np.array([2], np.int64)}
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [
            helper.make_tensor_value_info("user", TensorProto.FLOAT16, ["u", USER]),
            helper.make_tensor_value_info("items", TensorProto.FLOAT16, ["u", "n", ITEM]),
        ],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["u", "n"])],
        [numpy_helper.from_array(values, name) for name, values in (weights | constants).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8  # what TensorRT 8.6 knows
    return bytes(model.SerializeToString())


def write_repository(folder: Path, onnx: bytes, buckets: Sequence[int] = BUCKETS) -> Path:
    """A gpu-python repository with the network alone; no plan yet. Returns its version folder."""
    graphs = ",".join(f"{users}x{bucket}" for bucket in buckets for users in (1, 2, USERS))
    version = folder / NAME / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(onnx)
    (version / "model.py").write_text("# tests/gpu loads the plan without a server\n", encoding="utf-8")
    (folder / NAME / "config.pbtxt").write_text(
        "# Generated by bireme: no, by tests/gpu, in the same form.\n"
        f'name: "{NAME}"\nbackend: "python"\nmax_batch_size: {USERS}\n'
        f'input {{ name: "user" data_type: TYPE_FP16 dims: [ {USER} ] }}\n'
        f'input {{ name: "items" data_type: TYPE_FP16 dims: [ -1, {ITEM} ] }}\n'
        'output { name: "score" data_type: TYPE_FP32 dims: [ -1 ] }\n'
        "instance_group { kind: KIND_GPU count: 1 }\n"
        f"{_parameter('buckets', ','.join(map(str, buckets)))}"
        f"{_parameter('graphs', graphs)}{_parameter('lanes', '2')}",
        encoding="utf-8",
    )
    return version


def _parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
