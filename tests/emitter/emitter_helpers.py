"""Small contracts and artifacts, and a stand-in for the model.py sources."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from bireme.emitter import Artifacts
from bireme.spec import Contract
from bireme.spec_instances import Instances
from bireme_runtime.plan import Embed, Feature, HashBucket, Numeric, Plan, Table, Vocabulary

FEATURES = (
    Feature("user_id", "user", "string"),
    Feature("clicked", "user", "string", -1, default=[]),
    Feature("price", "item", "float32", default=0.0),
    Feature("tags", "item", "int64", 3),
    Feature("seen", "item", "bool", -1),
)
INSTANCES = {
    "cpu": Instances(cores=2, preprocess=1, dnn=1, dnn_threads=1),
    "gpu": Instances(cores=16, preprocess=4, dnn=2),
    "gpu-python": Instances(cores=16, preprocess=4, dnn=4),
}


def make_contract(target: str = "cpu", **changes: Any) -> Contract:
    values: dict[str, Any] = {
        "model": "shop",
        "features": FEATURES,
        "tasks": ("ctr", "cvr"),
        "user_width": 8,
        "item_width": 9,
        "buckets": (4, 16),
        "max_users": 6,
        "target": target,
        "handover": "float32" if target == "cpu" else "float16",
        "instances": INSTANCES[target],
    }
    return Contract(**(values | changes))


def make_plan(contract: Contract) -> Plan:
    return Plan(
        model=contract.model,
        features=contract.features,
        tables=(
            Table("users", "arena_float32_8.bin", "float32", 8, 0, 10),
            Table("words", "arena_float32_8.bin", "float32", 8, 10, 6),
        ),
        steps=(
            HashBucket("user_row", "user_id", 10),
            Vocabulary("word_row", "clicked", "words.vocab", 0),
            Embed("user", "user_row", "users", "user", 0, 8),
            Embed("word", "word_row", "words", "item", 0, 8, pool="mean"),
            Numeric("price", "price", (), "item", 8),
        ),
        user_width=contract.user_width,
        item_width=contract.item_width,
        handover=contract.handover,
        buckets=contract.buckets,
        pad=contract.padded,
    )


def make_dense(contract: Contract) -> bytes:
    """score[u, n] = sum over items: right names and ranks, nothing else."""
    element = TensorProto.FLOAT16 if contract.handover == "float16" else TensorProto.FLOAT
    shapes = {"user": ["users", contract.user_width], "items": ["users", "candidates", contract.item_width]}
    if not contract.user_width:
        del shapes["user"]
    graph = helper.make_graph(
        [helper.make_node("ReduceMax", ["items"], [task], axes=[2], keepdims=0) for task in contract.tasks],
        "dense",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(task, element, ["users", "candidates"]) for task in contract.tasks],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString(deterministic=True))


def write_arena(path: Path) -> None:
    """A writer that streams, as the compiler's does."""
    with path.open("wb") as stream:
        for row in range(16):
            stream.write(np.full(8, row, np.float32).tobytes())


def make_artifacts(contract: Contract, **changes: Any) -> Artifacts:
    values: dict[str, Any] = {
        "plan": make_plan(contract),
        "files": {"arena_float32_8.bin": write_arena, "words.vocab": b"shoe\nhat\n"},
        "dense_onnx": make_dense(contract),
        "example_request": {"user": {"user_id": "é"}, "items": {"price": [1.5, 2.0]}},
        "provenance": {"saved_model_sha256": "00" * 32},
        "page": b"<!doctype html>",
        "report": {"tables": 2, "bytes_per_request": 128},
    }
    return Artifacts(**(values | changes))


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Relative path → (mode, sha256) of everything below; folders have an empty hash."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }
