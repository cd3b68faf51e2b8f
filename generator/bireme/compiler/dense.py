"""Pass 8, dense: the dense graph as ONNX, still row-wise (one row a user–candidate pair).

tf2onnx returns success and a broken file when it meets an op it does not know; its error log, ONNX's checker
and a numeric comparison are therefore all consulted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime

from bireme.compiler.diagonals import DIAGONALS
from bireme.compiler.graph import Graph, Node
from bireme.compiler.rows.canonical import canonicalise
from bireme.errors import CompileError

__all__ = ["OPSET", "UnconvertibleError", "runner", "to_onnx"]

#: Newest opset that every supported TensorRT (8.6 on) parses.
OPSET = 17


class UnconvertibleError(CompileError):
    """A graph that cannot become ONNX; `nodes` are those of its nodes that are known to stand in the way."""

    def __init__(self, reasons: list[str]) -> None:
        found = [name for reason in reasons for pattern in _AT_FAULT for name in pattern.findall(reason)]
        self.nodes = tuple(dict.fromkeys(found))
        super().__init__(
            "dense network",
            f"cannot become ONNX: {' '.join(reasons[0].split())}",
            "replace that op in the model",
        )


#: What tf2onnx logs about a node.
_AT_FAULT = (
    re.compile(r"^Tensorflow op \[(.+): \w+\] is not supported"),
    re.compile(r"^Failed to convert node '(.+?)' \(fct="),
)


def to_onnx(dense: Graph) -> onnx.ModelProto:
    """Convert the dense graph; inputs are its placeholders, outputs its tasks.

    Raises:
        UnconvertibleError: an op that tf2onnx cannot convert, by name.
        CompileError: control flow.
    """
    graph = _spell_out(dense)
    errors: list[str] = []
    handler = _Collect(errors)
    logger = logging.getLogger("tf2onnx")
    logger.addHandler(handler)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        try:
            with _without_copies():
                model = _convert(graph)
        except Exception:  # by one of its optimizers, perhaps: then with copies to fall back to
            del errors[:]
            model = _convert(graph)
    except Exception as error:  # whatever tf2onnx trips over is a fact about the model
        raise UnconvertibleError([*errors, f"{type(error).__name__}: {error}"]) from error
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    if errors:
        raise UnconvertibleError(errors)
    for node in model.graph.node:
        if any(attribute.HasField("g") for attribute in node.attribute):
            raise CompileError(
                f"op {node.op_type} (node '{node.name}')",
                "is control flow in ONNX, which may mix candidates or rows",
                "replace it by an op that treats every row on its own",
            )
    _name_ends(model, graph.outputs)
    canonicalise(model, keep_origin=True)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise UnconvertibleError([str(error)]) from error
    return model


def _convert(graph: Graph) -> onnx.ModelProto:
    from tf2onnx import convert  # here: importing it loads all of its handlers

    model, _ = convert.from_graph_def(
        graph.to_graph_def(),
        input_names=[f"{name}:0" for name in graph.features],
        output_names=list(dict.fromkeys(graph.outputs.values())),
        opset=OPSET,
        custom_op_handlers=_OWN,
    )
    return model


@contextlib.contextmanager
def _without_copies() -> Iterator[None]:
    """Keeps tf2onnx from copying the graph, weights and all, before each of its dozens of steps."""
    name = "TF2ONNX_CATCH_ERRORS"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def runner(model: onnx.ModelProto) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An ONNX Runtime session as a function from named arrays to named arrays.

    Raises:
        CompileError: ONNX Runtime refuses the model.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # ONNX Runtime's kinds have no common base but this
        raise UnconvertibleError([str(error)]) from error
    names = [output.name for output in session.get_outputs()]
    wanted = {value.name for value in session.get_inputs()}

    def run(feeds: dict[str, Any]) -> dict[str, Any]:
        values = session.run(names, {name: value for name, value in feeds.items() if name in wanted})
        return dict(zip(names, values, strict=True))

    return run


class _Collect(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())


#: Ops that tf2onnx does not know → the two that they are: log(x + 1), 1 - erf(x), exp(x) - 1.
_SPELLED_OUT = {"Log1p": ("AddV2", "Log"), "Erfc": ("Erf", "Sub"), "Expm1": ("Exp", "Sub")}


def _spell_out(dense: Graph) -> Graph:
    graph = dense.copy()
    for node in list(graph.nodes.values()):
        if node.op not in _SPELLED_OUT:
            continue
        inner_op, outer_op = _SPELLED_OUT[node.op]
        one = Node(f"{node.name}/one", "Const", value=np.ones((), np.float32))
        inner = Node(f"{node.name}/inner", inner_op, list(node.inputs), node.attr)
        outer = Node(node.name, outer_op, [inner.output], node.attr)
        if node.op == "Log1p":
            inner.inputs.append(one.output)
        else:
            outer.inputs.insert(0 if node.op == "Erfc" else 1, one.output)
        graph.nodes |= {one.name: one, inner.name: inner, outer.name: outer}
    graph.sort()
    return graph


def _where(context: Any, node: Any, *_: Any) -> None:
    """A choice stays a choice: tf2onnx makes it `cond·x + (1 - cond)·y`, where 0·inf is not a number."""
    from tf2onnx.onnx_opset.controlflow import Select

    node.set_attr("handles_nan", True)
    Select.version_9(context, node)
    del node.attr["handles_nan"]


def _reverse(context: Any, node: Any, *_: Any) -> None:
    """A slice backwards; tf2onnx makes a dozen ops that compute lengths of sequences."""
    axes = [int(axis) for axis in node.inputs[1].get_tensor_value(as_list=False).reshape(-1)]
    dtypes, shapes = node.output_dtypes, node.output_shapes
    context.remove_node(node.name)
    bounds = [[-1] * len(axes), [-(2**63) + 1] * len(axes), axes, [-1] * len(axes)]
    names = [
        context.make_const(f"{node.name}/{part}", np.array(values, np.int64)).output[0]
        for part, values in zip(("starts", "ends", "axes", "steps"), bounds, strict=True)
    ]
    context.make_node(
        "Slice", [node.input[0], *names], outputs=node.output, name=node.name, dtypes=dtypes, shapes=shapes
    )


#: TensorFlow ops that tf2onnx is not asked about.
_OWN: dict[str, tuple[Callable[..., None], list[Any]]] = {
    "Select": (_where, []),
    "SelectV2": (_where, []),
    "ReverseV2": (_reverse, []),
    **{op: (handler, []) for op, handler in DIAGONALS.items()},
}


def _name_ends(model: onnx.ModelProto, outputs: dict[str, str]) -> None:
    """Inputs lose TensorFlow's `:0`; outputs get their task's name (two tasks may share a tensor)."""
    plain = {value.name: value.name.removesuffix(":0") for value in model.graph.input}
    for value in model.graph.input:
        value.name = plain[value.name]
    for node in model.graph.node:
        renamed = [plain.get(name, name) for name in node.input]
        del node.input[:]
        node.input.extend(renamed)
    shared = {value.name: value for value in model.graph.output}
    del model.graph.output[:]
    for task, ref in outputs.items():
        model.graph.output.append(shared[ref])
        model.graph.output[-1].name = task
        model.graph.node.append(onnx.helper.make_node("Identity", [plain.get(ref, ref)], [task]))
