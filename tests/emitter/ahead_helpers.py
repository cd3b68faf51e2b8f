"""The models of --user-ahead for the small contracts of `emitter_helpers`."""

from __future__ import annotations

from emitter_helpers import make_dense, make_plan
from onnx import TensorProto, helper

from bireme.ahead import AheadNames, UserAhead
from bireme.compiler.ahead.half_plans import half_plan, needed_files
from bireme.spec import Contract

NAMES = AheadNames("shop")
FILES = ("arena_float32_8.bin", "words.vocab")


def fp16(name: str, *dims: int | str) -> object:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT16, dims)


def make_user_network(contract: Contract) -> bytes:
    """Right names; the content does not matter here."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["user"], ["user_state"])],
        "dense",
        [fp16("user", "users", contract.user_width)],
        [fp16("user_state", "users", contract.user_width)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString(deterministic=True))


def make_ahead(contract: Contract) -> UserAhead:
    plan = make_plan(contract)
    halves = half_plan(plan, "user", NAMES.user), half_plan(plan, "item", NAMES.slice)
    return UserAhead(
        user_plan=halves[0],
        slice_plan=halves[1],
        user_onnx=make_user_network(contract),
        slice_onnx=make_dense(contract),
        state="user_state",
        width=12,
        marks=(1, 2, 3, 4),
        user_files=needed_files(halves[0], FILES),
        slice_files=needed_files(halves[1], FILES),
    )
