"""The dense network as two: what is known before the candidates are, and the rest.

Every tensor that depends on `user` but not on `items` can be computed ahead. Those of them that the rest
reads form the frontier; flattened and laid side by side they are the *user state* [users, width], which the
second network takes in place of `user`. Both networks hold the nodes of the one they were cut from, so the
scores are the same.

The state is kept small: a view of a tensor (Reshape, Unsqueeze, Expand, …) is made again behind the cut if
its source is no larger, and shapes are never part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from bireme.compiler.dense import runner
from bireme.compiler.rows.canonical import canonicalise
from bireme.compiler.sound import require_sound
from bireme.errors import CompileError

__all__ = ["Piece", "TwoNetworks", "cut_at_frontier"]

_VIEWS = {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
#: Dtypes that FP32 holds exactly; anything else is computed again from what can be kept.
_KEPT = {
    "float32": onnx.TensorProto.FLOAT,
    "float16": onnx.TensorProto.FLOAT16,
    "bool": onnx.TensorProto.BOOL,
}
#: Two numbers of users, neither of them likely to be another dimension of the model by chance.
_TRIALS = (2, 3)


@dataclass(frozen=True)
class Piece:
    """A frontier tensor: columns [offset, offset + width) of the state, in the graph [users, *rest]."""

    tensor: str
    offset: int
    rest: tuple[int, ...]
    dtype: str

    @property
    def width(self) -> int:
        """Columns."""
        return int(np.prod(self.rest, dtype=int))


@dataclass(frozen=True)
class TwoNetworks:
    """What `cut_at_frontier` makes.

    Args:
        user: `user` → state [users, width] FP32.
        items: state and `items` → the tasks.
        pieces: what the state holds, behind the marks.
        width: columns of the state, marks included.
        nodes_ahead: how many of the dense network's nodes are not in `items`.
    """

    user: onnx.ModelProto
    items: onnx.ModelProto
    pieces: tuple[Piece, ...]
    width: int
    nodes_ahead: int


def cut_at_frontier(dense: onnx.ModelProto, state: str, marks: Sequence[int]) -> TwoNetworks:
    """Cut a lifted dense network into a user network and an items network.

    Args:
        dense: inputs `user` [users, …] and `items` [users, candidates, …], outputs the tasks.
        state: name of the tensor between the two.
        marks: integers that FP32 holds exactly, the first columns of every state.

    Raises:
        CompileError: the items need nothing of the user.
    """
    cut = _Cut(dense, state, marks)
    late = [node for node in dense.graph.node if any(name in cut.late for name in node.output)]
    for node in late:
        for name in node.input:
            cut.bring(name)
    for output in dense.graph.output:
        cut.bring(output.name)
    if not cut.pieces:
        raise CompileError(
            "pass user_ahead",
            "finds nothing of the user in the scores",
            "build without --user-ahead; see `bireme inspect` for what is computed per user",
        )
    return cut.finish(late)


@dataclass
class _Cut:
    dense: onnx.ModelProto
    state: str
    marks: Sequence[int]
    pieces: dict[str, Piece] = field(default_factory=dict)
    again: dict[str, onnx.NodeProto] = field(default_factory=dict)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        graph = self.dense.graph
        self.maker = {name: node for node in graph.node for name in node.output if name}
        self.early, self.late = {"user"}, {"items"}
        for node in graph.node:
            read = set(node.input)
            side = self.late if read & self.late else self.early if read & self.early else None
            if side is not None:
                side.update(name for name in node.output if name)
        self.trials = self._try_out()

    def _try_out(self) -> list[dict[str, Any]]:
        """Every tensor that is known ahead, for two numbers of users: shapes as they are, not as inferred."""
        model = onnx.ModelProto()
        model.CopyFrom(self.dense)
        graph = model.graph
        nodes = [node for node in graph.node if not any(name in self.late for name in node.output)]
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        user = onnx.ValueInfoProto.FromString(self._user().SerializeToString())
        del graph.node[:], graph.output[:], graph.input[:], graph.value_info[:]
        graph.node.extend(nodes)
        graph.input.append(user)
        names = [name for node in nodes for name in node.output if name in self.early]
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        tensor = user.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        rest = [dim.dim_value for dim in tensor.shape.dim[1:]]
        run = runner(model) if names else lambda _: {}
        trials = []
        for users in _TRIALS:
            given = np.random.default_rng(users).uniform(size=(users, *rest)).astype(dtype)
            trials.append({"user": given, **run({"user": given})})
        return trials

    def _user(self) -> onnx.ValueInfoProto:
        return next(value for value in self.dense.graph.input if value.name == "user")

    def bring(self, name: str) -> None:
        """Make an early tensor known behind the cut: as a piece of the state, or by computing it again."""
        if name not in self.early or name in self.done:
            return
        self.done.add(name)
        node = self.maker.get(name)
        size = self._size(name)
        if node is not None and node.op_type == "Shape" and self._shape(node):
            return
        if node is not None and node.op_type in _VIEWS:
            source = self._size(node.input[0])
            if node.input[0] in self.early and source is not None and (size is None or source <= size):
                size = None
        if size is not None:
            offset = len(self.marks) + sum(piece.width for piece in self.pieces.values())
            value = self.trials[0][name]
            self.pieces[name] = Piece(name, offset, value.shape[1:], value.dtype.name)
            return
        assert node is not None  # `user` itself is a float tensor [users, …]
        self.again[name] = node
        for source_name in node.input:
            self.bring(source_name)

    def _size(self, name: str) -> int | None:
        """Elements a user, if the tensor can be kept: users first, the rest fixed, exact in FP32."""
        if name not in self.early:
            return None
        values = [trial[name] for trial in self.trials]
        kept = all(
            value.ndim >= 1 and value.shape[0] == users and value.dtype.name in _KEPT
            for value, users in zip(values, _TRIALS, strict=True)
        )
        if not kept or values[0].shape[1:] != values[1].shape[1:]:
            return None
        return int(np.prod(values[0].shape[1:], dtype=int))

    def _shape(self, node: onnx.NodeProto) -> bool:
        """A Shape node behind the cut: it counts users in the state, and the rest is known."""
        source = node.input[0]
        shapes = [np.array(trial[source].shape, np.int64) for trial in self.trials]
        varying = np.flatnonzero(shapes[0] != shapes[1])
        if varying.tolist() != [0]:
            return False
        name = node.output[0]
        prefix = f"{self.state}/{name}"
        attributes = {a.name: a.i for a in node.attribute}
        start, end = attributes.get("start", 0), attributes.get("end", len(shapes[0]))
        self._weight(f"{prefix}/rest", shapes[0][1:])
        self._weight(f"{prefix}/start", np.array([start], np.int64))
        self._weight(f"{prefix}/end", np.array([end], np.int64))
        make = onnx.helper.make_node
        users = make("Shape", [self.state], [f"{prefix}/users"], start=0, end=1)
        whole = make("Concat", [f"{prefix}/users", f"{prefix}/rest"], [f"{prefix}/whole"], axis=0)
        part = make("Slice", [f"{prefix}/whole", f"{prefix}/start", f"{prefix}/end"], [name])
        for made in (users, whole, part):
            self.again[made.output[0]] = made
        return True

    def _weight(self, name: str, value: np.ndarray[Any, Any]) -> None:
        self.weights.append(onnx.numpy_helper.from_array(value, name))

    def finish(self, late: Sequence[onnx.NodeProto]) -> TwoNetworks:
        """Both networks, checked."""
        pieces = tuple(self.pieces.values())
        width = len(self.marks) + sum(piece.width for piece in pieces)
        nodes = self.dense.graph.node
        free = [node for node in nodes if not any(n in self.early | self.late for n in node.output)]
        early = [node for node in nodes if any(name in self.early for name in node.output)]
        packing, pack_weights = _pack(self.state, self.marks, pieces)
        unpacking, unpack_weights = _unpack(self.state, pieces)
        fp32 = onnx.TensorProto.FLOAT
        state = onnx.helper.make_tensor_value_info(self.state, fp32, ["users", width])
        items = next(value for value in self.dense.graph.input if value.name == "items")
        again = list({node.output[0]: node for node in self.again.values()}.values())
        user_model = self._model([*free, *early, *packing], [self._user()], [state], pack_weights)
        items_model = self._model(
            [*free, *unpacking, *_sorted(again, self.dense), *late],
            [state, items],
            list(self.dense.graph.output),
            [*self.weights, *unpack_weights],
        )
        ahead = {node.output[0] for node in early} - {node.output[0] for node in again}
        return TwoNetworks(user_model, items_model, pieces, width, len(ahead))

    def _model(
        self,
        nodes: Sequence[onnx.NodeProto],
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
        weights: Sequence[onnx.TensorProto],
    ) -> onnx.ModelProto:
        all_weights = [*self.dense.graph.initializer, *weights]
        graph = onnx.helper.make_graph(nodes, "dense", inputs, outputs, all_weights)
        model = onnx.helper.make_model(
            graph, opset_imports=list(self.dense.opset_import), ir_version=self.dense.ir_version
        )
        canonicalise(model)  # which also drops what the outputs do not need
        require_sound(model, "user_ahead")
        return model


def _pack(
    state: str, marks: Sequence[int], pieces: Sequence[Piece]
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Nodes that lay marks and pieces side by side."""
    make, weight = onnx.helper.make_node, onnx.numpy_helper.from_array
    flat, count, one = f"{state}/flat", f"{state}/count", f"{state}/one"
    weights = [
        weight(np.array([0, -1], np.int64), flat),
        weight(np.array([len(marks)], np.int64), one),
        weight(np.array([marks], np.float32), f"{state}/mark"),
    ]
    nodes = [
        make("Shape", ["user"], [count], start=0, end=1),
        make("Concat", [count, one], [f"{state}/marked"], axis=0),
        make("Expand", [f"{state}/mark", f"{state}/marked"], [f"{state}/marks"]),
    ]
    parts = [f"{state}/marks"]
    for index, piece in enumerate(pieces):
        name = piece.tensor
        if piece.dtype != "float32":
            nodes.append(make("Cast", [name], [f"{state}/wide{index}"], to=onnx.TensorProto.FLOAT))
            name = f"{state}/wide{index}"
        if len(piece.rest) != 1:
            nodes.append(make("Reshape", [name, flat], [f"{state}/flat{index}"]))
            name = f"{state}/flat{index}"
        parts.append(name)
    nodes.append(make("Concat", parts, [state], axis=1))
    return nodes, weights


def _unpack(state: str, pieces: Sequence[Piece]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Nodes that take the pieces out again, under the names they had."""
    make, weights = onnx.helper.make_node, []
    nodes: list[onnx.NodeProto] = []

    def constant(name: str, *values: int) -> str:
        weights.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    axis = constant(f"{state}/axis", 1)
    for index, piece in enumerate(pieces):
        bounds = [
            constant(f"{state}/from{index}", piece.offset),
            constant(f"{state}/to{index}", piece.offset + piece.width),
        ]
        steps: list[tuple[str, list[str], dict[str, Any]]] = [("Slice", [*bounds, axis], {})]
        if len(piece.rest) != 1:
            steps.append(("Reshape", [constant(f"{state}/rest{index}", 0, *piece.rest)], {}))
        if piece.dtype != "float32":
            steps.append(("Cast", [], {"to": _KEPT[piece.dtype]}))
        source = state
        for number, (op, more, attributes) in enumerate(steps):
            target = piece.tensor if number == len(steps) - 1 else f"{state}/piece{index}_{number}"
            nodes.append(make(op, [source, *more], [target], **attributes))
            source = target
    return nodes, weights


def _sorted(nodes: Sequence[onnx.NodeProto], dense: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Nodes in the order of the graph; before all others those made here, which read only the state."""
    place = {name: index for index, node in enumerate(dense.graph.node) for name in node.output}
    return sorted(nodes, key=lambda node: place.get(node.output[0], -1))
