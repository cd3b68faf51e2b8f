"""Row-wise ONNX networks for the tests of user_once: by hand, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st

from bireme.compiler.cut.split import Boundary
from bireme.compiler.rows.user_once import user_once

USER_WIDTH, ITEM_WIDTH = 12, 7
#: What crosses the cut in these tests: of either side a vector, a [1, width] block, a number; and a history.
BOUNDARIES = (
    Boundary("u", "", "user", 0, 3, (3,), ""),
    Boundary("v", "", "user", 3, 2, (1, 2), ""),
    Boundary("age", "", "user", 5, 1, (), ""),
    Boundary("h", "", "user", 6, 6, (3, 2), ""),
    Boundary("i", "", "item", 0, 4, (4,), ""),
    Boundary("j", "", "item", 4, 2, (1, 2), ""),
    Boundary("price", "", "item", 6, 1, (), ""),
)
SHAPES = {boundary.name: boundary.shape for boundary in BOUNDARIES}


class Network:
    """A row-wise network in the making."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rests: dict[str, tuple[int, ...]] = dict(SHAPES)

    def weight(self, value: Any) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def normal(self, *shape: int) -> str:
        return self.weight(self.rng.normal(0, 0.5, shape).astype(np.float32))

    def add(self, op: str, inputs: list[str], rest: tuple[int, ...], **attributes: Any) -> str:
        name = f"tensor_{len(self.nodes)}"
        self.nodes.append(
            onnx.helper.make_node(op, inputs, [name], name=f"my_{op}_{len(self.nodes)}", **attributes)
        )
        self.rests[name] = rest
        return name

    def halves(self, x: str, rest: tuple[int, ...]) -> str:
        """Both halves of the last dimension, multiplied."""
        names = [f"half_{len(self.nodes)}_{k}" for k in (0, 1)]
        node = onnx.helper.make_node("Split", [x], names, axis=-1, name=f"my_Split_{len(self.nodes)}")
        self.nodes.append(node)
        return self.add("Mul", names, rest)

    def model(self, **tasks: str) -> onnx.ModelProto:
        nodes = [*self.nodes, *(onnx.helper.make_node("Identity", [ref], [t]) for t, ref in tasks.items())]
        inputs = [value_of(name, rest) for name, rest in SHAPES.items()]
        outputs = [value_of(task, self.rests[ref]) for task, ref in tasks.items()]
        graph = onnx.helper.make_graph(nodes, "rowwise", inputs, outputs, self.weights)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def _fits(other: tuple[int, ...], rest: tuple[int, ...]) -> bool:
    """Whether it broadcasts to a shape without growing it."""
    return all(size in (1, whole) for size, whole in zip(other, rest, strict=True))


def value_of(name: str, rest: tuple[int, ...]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(
        name, onnx.TensorProto.FLOAT, ["rows", *(size or None for size in rest)]
    )


def lift(model: onnx.ModelProto, handover: str = "float32") -> onnx.ModelProto:
    return user_once(model, BOUNDARIES, USER_WIDTH, ITEM_WIDTH, handover)


def random_halves(users: int, candidates: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "user": rng.normal(size=(users, USER_WIDTH)).astype(np.float32),
        "items": rng.normal(size=(users, candidates, ITEM_WIDTH)).astype(np.float32),
    }


def rowwise_scores(
    run: Callable[[dict[str, Any]], dict[str, Any]], halves: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Task → [users, candidates], one row a user-candidate pair."""
    users, candidates, _ = halves["items"].shape
    repeated = np.repeat(halves["user"][:, None], candidates, axis=1)
    feeds = {}
    for boundary in BOUNDARIES:
        source = repeated if boundary.side == "user" else halves["items"]
        columns = source[..., boundary.offset : boundary.offset + boundary.width].astype(np.float32)
        feeds[boundary.name] = columns.reshape(-1, *boundary.shape)
    return {task: value.reshape(users, candidates) for task, value in run(feeds).items()}


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """A random network of ops that keep rows apart, every tensor used, two tasks."""
    net = Network(draw(st.integers(0, 2**16)))
    unused = set(SHAPES)

    def pick(condition: Callable[[tuple[int, ...]], bool]) -> str | None:
        names = [name for name, rest in net.rests.items() if condition(rest)]
        # New tensors come first, so that nothing is left aside.
        return draw(st.sampled_from(sorted(names, key=lambda n: (n not in unused, n)))) if names else None

    def apply(op: str) -> None:
        x = pick(lambda rest: len(rest) >= 1)
        assert x is not None
        rest = net.rests[x]
        if op == "dense":
            width = draw(st.integers(1, 4))
            made = net.add("MatMul", [x, net.normal(rest[-1], width)], (*rest[:-1], width))
            if draw(st.booleans()):
                shape = draw(st.sampled_from([(width,), (1,) * len(rest) + (width,), ()]))
                made = net.add("Add", [made, net.normal(*shape)], net.rests[made])
        elif op == "gemm" and len(rest) == 1:
            made = net.add(
                "Gemm", [x, net.normal(3, rest[0]), net.normal(3)], (3,), transB=1, alpha=0.5, beta=2.0
            )
        elif op == "concat":
            y = pick(lambda other: len(other) == len(rest) and other[:-1] == rest[:-1])
            assert y is not None
            order = draw(st.permutations([x, y]))
            made = net.add("Concat", list(order), (*rest[:-1], rest[-1] + net.rests[y][-1]), axis=-1)
            unused.discard(y)
        elif op == "tile" and len(rest) == 2 and rest[0] == 1:
            made = net.add("Tile", [x, net.weight(np.array([1, 3, 1]))], (3, rest[1]))
        elif op == "copies" and len(rest) == 2 and rest[0] == 1:
            made = net.add("Concat", [x] * 3, (3, rest[1]), axis=1)
        elif op == "rows" and len(rest) == 2:
            y = pick(lambda other: len(other) == 2 and other[1] == rest[1])
            assert y is not None
            made = net.add("Concat", [y, x], (net.rests[y][0] + rest[0], rest[1]), axis=1)
            unused.discard(y)
        elif op == "constant":
            number = draw(st.sampled_from([-1.0, 0.5, 1.0]))
            kind = draw(st.sampled_from(["Mul", "Add", "Sub", "Div"]))
            order = [x, net.weight(np.full(draw(st.sampled_from([(), rest])), number, np.float32))]
            made = net.add(kind, order if kind == "Div" or draw(st.booleans()) else order[::-1], rest)
        elif op == "columns":
            made = net.add("Mul", [x, net.normal(*rest)], rest)
        elif op == "residual":
            y = pick(lambda other: other == rest)
            assert y is not None
            made = net.add("Add", [net.add("Mul", [x, y], rest), x], rest)
            unused.discard(y)
        elif op == "sum" and len(rest) == 2:
            axis, kind = draw(st.sampled_from([1, 2])), draw(st.sampled_from(["ReduceSum", "ReduceMean"]))
            keep = draw(st.booleans())
            left = tuple(1 if k == axis else size for k, size in enumerate(rest, 1) if keep or k != axis)
            inputs, options = (
                ([x, net.weight(np.array([axis]))], {}) if kind == "ReduceSum" else ([x], {"axes": [axis]})
            )
            made = net.add(kind, inputs, left, keepdims=int(keep), **options)
        elif op == "split" and rest[-1] % 2 == 0:
            half = (*rest[:-1], rest[-1] // 2)
            made = net.halves(x, half)
        elif op == "turn" and len(rest) == 2:
            made = net.add("Transpose", [x], rest[::-1], perm=[0, 2, 1])
        elif op == "meet" and len(rest) == 2:
            y = pick(lambda other: len(other) == 2 and other[0] == rest[1])
            made = net.add("MatMul", [x, y], (rest[0], net.rests[y][1])) if y else net.add("Neg", [x], rest)
            unused.discard(y or x)
        elif op in ("Add", "Mul", "Sub"):
            y = pick(lambda other: len(other) == len(rest) and _fits(other, rest))
            made = net.add(op, [x, y or x], rest)
            unused.discard(y or x)
        elif op == "softmax":
            made = net.add("Softmax", [x], rest, axis=draw(st.sampled_from([-1, len(rest)])))
        elif op == "reduce":
            made = net.add("ReduceMean", [x], (*rest[:-1], 1), axes=[-1], keepdims=1)
        elif op == "fold" and len(rest) == 1 and rest[0] % 2 == 0:
            made = net.add("Reshape", [x, net.weight(np.array([-1, rest[0] // 2, 2]))], (rest[0] // 2, 2))
        elif op == "flatten" and len(rest) == 2:
            made = net.add(
                "Reshape", [x, net.weight(np.array([-1, rest[0] * rest[1]]))], (rest[0] * rest[1],)
            )
        elif op == "pairs" and len(rest) == 2:
            turned = net.add("Transpose", [x], rest[::-1], perm=[0, 2, 1])
            made = net.add("MatMul", [x, turned], (rest[0], rest[0]))
        elif op == "slice":
            bounds = [net.weight(np.array([value])) for value in (0, 1, -1)]
            made = net.add("Slice", [x, *bounds], (*rest[:-1], 1))
        else:
            made = net.add(draw(st.sampled_from(["Relu", "Tanh", "Sigmoid"])), [x], rest)
        unused.discard(x)
        unused.add(made)

    ops = ["dense", "gemm", "concat", "Add", "Mul", "Sub", "softmax", "reduce", "fold", "flatten", "pairs"]
    ops += ["tile", "copies", "rows", "constant", "columns", "residual", "sum", "split", "turn", "meet"]
    for op in draw(
        st.lists(st.sampled_from([*ops, "slice", "unary", "dense", "concat"]), min_size=2, max_size=12)
    ):
        apply(op)
    numbers = []
    for name in sorted(unused):
        rest = net.rests[name]
        axes = net.weight(np.arange(1, 1 + len(rest)))
        numbers.append(net.add("ReduceSum", [name, axes], (), keepdims=0) if rest else name)
    total = numbers[0]
    for name in numbers[1:]:
        total = net.add("Add", [total, name], ())
    return net.model(score=net.add("Tanh", [total], ()), other=numbers[-1])
