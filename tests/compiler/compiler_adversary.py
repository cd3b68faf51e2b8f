"""Random networks of any op along any axis, the rows' too: most mix rows somewhere on their way, some do not.

Each step is tried for 4 rows (as many as a feature has columns, by chance) and for 7, and kept if it runs for
both: so the networks are valid for any number of rows, whatever they do with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from compiler_networks import BOUNDARIES, SHAPES, random_halves, value_of

Array = np.ndarray[Any, Any]
ROWS = (4, 7)
_MOST = 5_000


def rows_of(halves: dict[str, Array]) -> dict[str, Array]:
    """`user` and `items` as rows, by input, one a user-candidate pair."""
    repeated = np.repeat(halves["user"][:, None], halves["items"].shape[1], axis=1)
    feeds = {}
    for boundary in BOUNDARIES:
        source = repeated if boundary.side == "user" else halves["items"]
        columns = source[..., boundary.offset : boundary.offset + boundary.width]
        feeds[boundary.name] = np.ascontiguousarray(columns.reshape(-1, *boundary.shape))
    return feeds


class Adversary:
    """A network in the making.

    Args:
        seed: same seed, same network.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        feeds = [rows_of(random_halves(1, rows, seed=rows)) for rows in ROWS]
        #: tensor → its value for each number of rows
        self.values: dict[str, list[Array]] = {name: [feed[name] for feed in feeds] for name in SHAPES}

    def model(self, steps: int) -> onnx.ModelProto | None:
        """A network of some ops with one number a row as its output; None if nothing came of it."""
        for _ in range(steps):
            _OPS[int(self.rng.integers(len(_OPS)))](self)
        score = self._score()
        if score is None:
            return None
        inputs = [value_of(name, rest) for name, rest in SHAPES.items()]
        graph = onnx.helper.make_graph(
            self._needed(score), "rowwise", inputs, [value_of("score", ())], list(self.weights.values())
        )
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)

    def weight(self, value: Any) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights[name] = onnx.numpy_helper.from_array(np.asarray(value), name)
        return name

    def ints(self, *values: int) -> str:
        return self.weight(np.array(values, np.int64))

    def normal(self, *shape: int) -> str:
        return self.weight(self.rng.normal(0, 0.5, shape).astype(np.float32))

    def choice(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def pick(self, rank: int | None = None) -> str:
        """A float tensor, rather a new one than an old one; of a rank, if there is one."""
        names = [name for name, value in self.values.items() if value[0].dtype == np.float32]
        names = [name for name in names if rank in (None, self.values[name][0].ndim)] or names
        chances = np.arange(1, len(names) + 1) ** 2.0
        return names[int(self.rng.choice(len(names), p=chances / chances.sum()))]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(size) for size in self.values[name][0].shape)

    def axis(self, name: str) -> int:
        """Any axis, counted from either end."""
        rank = len(self.shape(name))
        return int(self.rng.integers(-rank, rank)) if rank else 0

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str | None:
        """The node's first output; None, and no node, if it does not run."""
        count = {"TopK": 2, "Split": 2}.get(op, 1)
        outputs = [f"tensor_{len(self.nodes)}_{k}" for k in range(count)]
        node = onnx.helper.make_node(op, inputs, outputs, name=f"my_{op}_{len(self.nodes)}", **attributes)
        runs = [self._run(node, place) for place in range(len(ROWS))]
        made = [run for run in runs if run is not None]
        if len(made) < len(ROWS) or not all(_sound(value) for run in made for value in run):
            return None
        self.nodes.append(node)
        self.values.update((output, [run[k] for run in made]) for k, output in enumerate(outputs))
        return outputs[0]

    def _run(self, node: onnx.NodeProto, place: int) -> list[Array] | None:
        feeds = {name: self.values[name][place] for name in node.input if name in self.values}
        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)
            )
            for name, value in feeds.items()
        ]
        weights = [self.weights[name] for name in dict.fromkeys(node.input) if name in self.weights]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = onnx.helper.make_graph([node], "one", inputs, outputs, weights)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            values: list[Array] = session.run(None, feeds)
        except Exception:  # it does not fit: another step will
            return None
        return values

    def _needed(self, score: str) -> list[onnx.NodeProto]:
        """The nodes that the score needs, and one that names it."""
        kept = [onnx.helper.make_node("Identity", [score], ["score"])]
        needed = {score}
        for node in reversed(self.nodes):
            if needed & set(node.output):
                needed |= set(node.input)
                kept.append(node)
        return kept[::-1]

    def _score(self) -> str | None:
        """The last tensor that looks row-wise, weighed and summed up to one number a row."""
        for name in reversed(self.values):
            few, many = (value.shape for value in self.values[name])
            looks = (few[:1], many[:1]) == ((ROWS[0],), (ROWS[1],)) and few[1:] == many[1:]
            if not looks or name in SHAPES or self.values[name][0].dtype != np.float32:
                continue
            if len(few) > 1:
                weighed = self.add("Mul", [name, self.normal(*few[1:])])
                axes = self.ints(*range(1, len(few)))
                return weighed and self.add("ReduceSum", [weighed, axes], keepdims=0)
            return name
        return None


def _sound(value: Array) -> bool:
    small = 0 < value.size <= _MOST and value.ndim <= 5
    return small and (value.dtype.kind != "f" or bool(np.isfinite(value).all()))


def _two(net: Adversary) -> None:
    net.add(net.choice("Add", "Mul", "Sub", "Max", "MatMul"), [net.pick(), net.pick()])


def _constant(net: Adversary) -> None:
    x = net.pick()
    sizes = [net.choice(size, 1) for size in net.shape(x)]
    sizes = net.choice(sizes, [1, *sizes], sizes[1:], [ROWS[0], *sizes[1:]])
    operands = [x, net.normal(*sizes)]
    net.add(net.choice("Add", "Mul", "Sub", "PRelu", "MatMul"), net.choice(operands, operands[::-1]))


def _layer(net: Adversary) -> None:
    x = net.pick()
    if shape := net.shape(x):
        net.add("MatMul", [x, net.normal(*net.choice((), (1,), (3,)), shape[-1], net.choice(1, 2, 3))])


def _reshape(net: Adversary) -> None:
    wanted = ((-1,), (-1, 1), (1, -1), (-1, 2), (2, -1), (-1, 4), (4, -1), (0, -1), (-1, 2, 2), (-1, 3, 2))
    net.add("Reshape", [net.pick(), net.ints(*net.choice(*wanted))])


def _by_shape(net: Adversary) -> None:
    """To a shape that is computed, of this tensor or another one."""
    x = net.pick()
    shape = net.add("Shape", [x])
    if shape is None:
        return  # a single number has none
    if net.choice(True, False):
        first = net.add("Gather", [shape, net.ints(0)])
        rest = net.ints(*net.choice((-1,), (1, -1), (-1, 2)))
        wanted = net.add("Concat", [first or shape, rest], axis=0)
        net.add("Reshape", [x, wanted or shape])
    else:
        net.add(net.choice("Expand", "Reshape"), [net.pick(), shape])


def _turn(net: Adversary) -> None:
    x = net.pick()
    if shape := net.shape(x):
        net.add("Transpose", [x], perm=[int(axis) for axis in net.rng.permutation(len(shape))])


def _axes(net: Adversary) -> None:
    x = net.pick()
    place = net.ints(net.axis(x))
    net.add(net.choice("Squeeze", "Unsqueeze"), [x, place])
    net.add("Flatten", [net.pick()], axis=net.axis(x))


def _reduce(net: Adversary) -> None:
    x, keep = net.pick(), net.choice(0, 1)
    if net.choice(True, False):
        net.add("ReduceSum", [x, net.ints(net.axis(x))], keepdims=keep)
    else:
        net.add(net.choice("ReduceMean", "ReduceMax", "ReduceL1"), [x], axes=[net.axis(x)], keepdims=keep)


def _along(net: Adversary) -> None:
    x = net.pick()
    net.add(net.choice("Softmax", "LogSoftmax", "Hardmax"), [x], axis=net.axis(x))
    net.add("CumSum", [x, net.weight(np.array(net.axis(x)))], reverse=net.choice(0, 1))


def _sort(net: Adversary) -> None:
    x = net.pick()
    net.add("TopK", [x, net.ints(net.choice(1, 2))], axis=net.axis(x))
    places = net.add("ArgMax", [x], axis=net.axis(x), keepdims=net.choice(0, 1))
    if places:
        net.add("Cast", [places], to=onnx.TensorProto.FLOAT)
        net.add("GatherElements", [x, places], axis=net.axis(x))
        net.add("OneHot", [places, net.ints(3), net.normal(2)], axis=net.choice(-1, 0, 1, -2))


def _join(net: Adversary) -> None:
    x = net.pick()
    y = net.choice(x, net.pick(len(net.shape(x))))
    net.add("Concat", net.choice([x, y], [y, x], [x, y, x]), axis=net.axis(x))


def _part(net: Adversary) -> None:
    x = net.pick()
    axis = net.axis(x)
    start, end, step = net.choice((0, 1, 1), (1, 2**31 - 1, 1), (0, -1, 1), (-1, -(2**31), -1), (0, 9, 2))
    net.add("Slice", [x, *(net.ints(value) for value in (start, end, axis, step))])
    net.add("Gather", [x, net.weight(np.array(net.choice(0, -1, [0, 0], [1, 0], [[0, 1]])))], axis=axis)
    if shape := net.shape(x):
        net.add("Split", [x, net.ints(1, max(1, shape[axis] - 1))], axis=axis)


def _repeat(net: Adversary) -> None:
    x = net.pick()
    shape = net.shape(x)
    net.add("Tile", [x, net.ints(*(net.choice(1, 1, 2) for _ in shape))])
    net.add("Expand", [x, net.ints(*net.choice((), (1,), (2,)), *(net.choice(1, size, 3) for size in shape))])
    pads = [net.choice(0, 0, 0, 1) for _ in range(2 * len(shape))]
    net.add("Pad", [x, net.ints(*pads), net.weight(np.float32(0.5))])


def _einsum(net: Adversary) -> None:
    x, y = net.pick(), net.pick()
    left, right = (
        "".join(net.rng.permutation(list("abcd"))[: len(net.shape(name))].tolist()) for name in (x, y)
    )
    letters = list(dict.fromkeys(net.choice(left + right, right + left)))
    if left and right:
        net.add("Einsum", [x, y], equation=f"{left},{right}->{''.join(letters[: net.choice(1, 2, 3)])}")


def _gemm(net: Adversary) -> None:
    x, across, turned = net.pick(2), net.choice(0, 0, 0, 1), net.choice(0, 1)
    shape = net.shape(x)
    if len(shape) == 2:
        sizes = (2, shape[1 - across]) if turned else (shape[1 - across], 2)
        net.add("Gemm", [x, net.normal(*sizes), net.normal(2)], transA=across, transB=turned, alpha=0.5)


def _norm(net: Adversary) -> None:
    x = net.pick()
    if shape := net.shape(x):
        axis = net.axis(x)
        net.add("LayerNormalization", [x, net.normal(*shape[axis:])], axis=axis)


def _where(net: Adversary) -> None:
    x, y = net.pick(), net.pick()
    if larger := net.add("Greater", [x, y]):
        net.add("Where", [larger, net.pick(), x])


_OPS: tuple[Callable[[Adversary], None], ...] = (
    _two, _two, _constant, _layer, _reshape, _reshape, _by_shape, _turn, _turn, _axes, _reduce, _along, _sort,
    _join, _part, _repeat, _einsum, _gemm, _norm, _where,
)  # fmt: skip
