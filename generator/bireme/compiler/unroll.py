"""Pass 2, unroll: branches that are decided and loops whose length is known become plain ops.

A recurrent layer over a history of fixed length is a `While` over a `TensorList` in TensorFlow's graph. Run
step by step it becomes the ops of each step, and the lists become plain tensors: neither ONNX nor an engine
with CUDA graphs has to loop. The graph is rebuilt op by op inside TensorFlow, whose shape inference then
knows what each step sees. What depends on the request (a predicate, a number of steps) is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme.compiler.graph import Graph, Node, node_of, read_graph_def, tensor, tf
from bireme.compiler.known_values import KnownValues
from bireme.compiler.tensor_lists import TensorLists
from bireme.errors import CompileError

__all__ = ["BRANCHES", "CONTROL_FLOW", "LOOPS", "MOST_STEPS", "refuse_control_flow", "unroll"]

#: Further steps would make the graph too large to be worth it.
MOST_STEPS = 512

_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
BRANCHES = {"If", "StatelessIf", "Case", "StatelessCase"}
LOOPS = {"While", "StatelessWhile"}
_LOWERED = {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"}
CONTROL_FLOW = _CALLS | BRANCHES | LOOPS | _LOWERED


def unroll(graph: Graph) -> Graph:
    """Resolve the control flow that outputs need; what only others need is dropped.

    Raises:
        CompileError: a loop has more than `MOST_STEPS` steps.
    """
    needed = graph.ancestors(graph.outputs.values())
    if not any(graph.nodes[name].op in CONTROL_FLOW for name in needed):
        return _without_unused_flow(graph)
    kept = graph.keep(needed)
    kept.sort()
    result = _Unroller(kept).run()
    left = result.ancestors(result.outputs.values())
    result = result.keep(left)
    if not any(node.op in CONTROL_FLOW for node in result.nodes.values()):
        result.library = None
    result.sort()
    return result


def refuse_control_flow(graph: Graph) -> None:
    """What is left of branches and loops depends on the request.

    Raises:
        CompileError: an output needs one.
    """
    for name in sorted(graph.ancestors(graph.outputs.values())):
        op = graph.nodes[name].op
        if op in CONTROL_FLOW:
            loop = op in LOOPS or op in _LOWERED
            message = "is control flow that depends on the request" + (
                ": its number of steps is not fixed" if loop else ""
            )
            hint = "give its sequence a fixed length (in the model's signature, or `lengths` in the spec)"
            raise CompileError(
                f"op {op} (node '{name}')",
                message,
                hint
                if loop
                else "compute both sides and choose with tf.where, or leave it out of the served outputs",
            )


def _without_unused_flow(graph: Graph) -> Graph:
    """Drop branches and loops, which only unserved outputs and assertions have here."""
    behind = {name for name, node in graph.nodes.items() if node.op in CONTROL_FLOW}
    grown = bool(behind)
    while grown:
        more = {n.name for n in graph.nodes.values() if any(node_of(ref) in behind for ref in n.inputs)}
        grown = not more <= behind
        behind = behind | more
    result = graph.keep(set(graph.nodes) - behind)
    result.library = None
    return result


class _Unroller:
    """Rebuilds a graph inside a tf.Graph."""

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.target = tf.Graph()
        self.functions = {f.signature.name: f for f in graph.library.function} if graph.library else {}
        self.bodies: dict[str, tuple[dict[str, Node], list[str], list[str]]] = {}
        self.known = KnownValues()
        self.lists = TensorLists(self.known)
        self.handles: dict[str, Any] = {}
        self.constants: dict[str, dict[str, Any]] = {}
        with self.target.as_default():
            if graph.library is not None:
                library = tf.compat.v1.GraphDef(library=graph.library)
                library.versions.producer = tf.version.GRAPH_DEF_VERSION
                tf.graph_util.import_graph_def(library)

    def run(self) -> Graph:
        """The graph with its control flow resolved as far as it can be."""
        with self.target.as_default():
            made = self._evaluate(self.source.nodes, {}, "", list(self.source.outputs.values()))
        outputs = {task: str(t.name) for task, t in zip(self.source.outputs, made, strict=True)}
        nodes = {node.name: node for node in read_graph_def(self.target.as_graph_def())}
        for name, node in self.source.nodes.items():
            if name in nodes and (name in self.source.captures or node.value is not None):
                nodes[name] = node  # stand-ins give way to what they stand for
        return Graph(
            nodes,
            {feature: name for feature, name in self.source.features.items() if name in nodes},
            outputs,
            {name: capture for name, capture in self.source.captures.items() if name in nodes},
            self.source.library,
        )

    def _evaluate(
        self,
        nodes: Mapping[str, Node],
        bound: Mapping[str, Any],
        prefix: str,
        wanted: Sequence[str],
        constants: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Tensors of the target graph for references into `nodes`.

        Args:
            nodes: of the graph, or of a function's body.
            bound: reference → tensor, for a body's arguments.
            prefix: in front of the names of new nodes.
            wanted: references.
            constants: where a body's constants are kept, by reference, for the next call of it.
        """
        made: dict[str, Any] = dict(bound)
        pending = list(reversed(wanted))
        while pending:
            ref = pending[-1]
            if ref in made:
                pending.pop()
                continue
            node = nodes[node_of(ref)]
            missing = [source for source in node.inputs if source not in made]
            if missing:
                pending.extend(reversed(missing))
                continue
            outputs = self._make(node, [made[source] for source in node.inputs], prefix + node.name)
            made.update({f"{node.name}:{index}": output for index, output in enumerate(outputs)})
            if constants is not None and node.op == "Const":
                constants[ref] = outputs[0]
        return [made[ref] for ref in wanted]

    def _make(self, node: Node, inputs: list[Any], name: str) -> list[Any]:
        """The outputs of one op."""
        if node.op in _CALLS:
            return self._call(node.attr["f"].func.name, inputs, name)
        if node.op in BRANCHES:
            chosen = self.known.value(inputs[0])
            if chosen is not None:
                return self._call(_branch(node, chosen), inputs[1:], name)
        if node.op in LOOPS:
            state = self._loop(node, inputs, name)
            if state is not None:
                return state
        resolved = self.lists.resolve(node, inputs, name)
        return self._create(node, inputs, name) if resolved is None else resolved

    def _loop(self, node: Node, state: list[Any], name: str) -> list[Any] | None:
        """The loop's results after its last step; None if how many it takes is not known."""
        for step in range(MOST_STEPS + 1):
            goes_on = self.known.value(
                self._call(node.attr["cond"].func.name, state, f"{name}/goes_on_{step}")[0]
            )
            if goes_on is None:
                return None
            if not goes_on.reshape(-1)[0]:
                return state
            if step < MOST_STEPS:
                state = self._call(node.attr["body"].func.name, state, f"{name}/step_{step}")
        raise CompileError(
            f"op {node.op} (node '{name}')",
            f"is a loop of more than {MOST_STEPS} steps, too many to be written out",
            "shorten its sequence, or leave the loop out of the served outputs",
        )

    def _call(self, function: str, inputs: list[Any], name: str) -> list[Any]:
        """The results of a function, its body written out under `name`."""
        nodes, arguments, results = self._body(function)
        bound = {tensor(argument): value for argument, value in zip(arguments, inputs, strict=True)}
        # Every step has the same constants.
        own = self.constants.setdefault(function, {})
        return self._evaluate(nodes, {**own, **bound}, f"{name}/", results, own)

    def _body(self, function: str) -> tuple[dict[str, Node], list[str], list[str]]:
        """A function's nodes, its arguments among them, and what it returns."""
        if function not in self.bodies:
            from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def

            definition = self.functions[function]
            with self.target.as_default():
                graph_def, flat = function_def_to_graph_def(definition)
            nodes = {node.name: node for node in read_graph_def(graph_def)}
            arguments = [argument.name for argument in definition.signature.input_arg]
            results = [
                tensor(flat[definition.ret[argument.name]]) for argument in definition.signature.output_arg
            ]
            self.bodies[function] = (nodes, arguments, results)
        return self.bodies[function]

    def _create(self, node: Node, inputs: list[Any], name: str) -> list[Any]:
        """The op as it is. A capture gets a stand-in that knows its shape."""
        capture = self.source.captures.get(name)
        attributes: dict[str, Any] = {
            key: node.attr[key] for key in node.attr or {} if not key.startswith("_")
        }
        op = node.op
        if capture is not None and capture.kind == "variable":
            op = "VarHandleOp"
            attributes = {
                "dtype": tf.compat.v1.AttrValue(type=capture.variable.dtype.as_datatype_enum),
                "shape": tf.compat.v1.AttrValue(shape=capture.variable.shape.as_proto()),
                "shared_name": tf.compat.v1.AttrValue(s=name.encode()),
            }
        if node.value is not None and not attributes:
            proto = tf.make_tensor_proto(node.value)
            attributes = {
                "value": tf.compat.v1.AttrValue(tensor=proto),
                "dtype": tf.compat.v1.AttrValue(type=proto.dtype),
            }
        real = [self._real(value) for value in inputs]
        made = self.target.create_op(op, real, name=f"{name}/", attrs=attributes)
        if op == "LookupTableFindV2":  # TensorFlow does not know a table's shape without the table
            made.outputs[0].set_shape(inputs[1].shape)
        return list(made.outputs)

    def _real(self, value: Any) -> Any:
        """A tensor as it is: a list that something unresolved reads is TensorFlow's own after all."""
        if value.name not in self.lists.origins:
            return value
        node, inputs, name = self.lists.origins[value.name]
        if value.name not in self.handles:
            self.handles[value.name] = self._create(node, inputs, name)[0]
        return self.handles[value.name]


def _branch(node: Node, chosen: np.ndarray[Any, Any]) -> str:
    """Which function a decided branch calls."""
    if node.op in ("If", "StatelessIf"):
        taken = "then_branch" if chosen.reshape(-1)[0] else "else_branch"
        return str(node.attr[taken].func.name)
    branches = node.attr["branches"].list.func
    index = int(chosen.reshape(-1)[0])
    return str(branches[index if 0 <= index < len(branches) else -1].name)
