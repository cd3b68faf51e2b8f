"""Pass 3, trim: only what the outputs need; pass-through nodes gone."""

from __future__ import annotations

from bireme.compiler.graph import Graph

__all__ = ["trim"]

#: Ops that hand their first input through unchanged when a model serves.
PASS_THROUGH = {
    "Identity",
    "IdentityN",
    "StopGradient",
    "PreventGradient",
    "Snapshot",
    "PlaceholderWithDefault",
    "EnsureShape",
    "CheckNumerics",
}


def trim(graph: Graph) -> Graph:
    """Remove pass-through nodes and everything that no output reads. Features that nothing reads go too."""
    graph = graph.copy()
    forward: dict[str, str] = {}
    for node in graph.nodes.values():
        node.inputs = [forward.get(ref, ref) for ref in node.inputs]
        if node.op in PASS_THROUGH:
            for index, ref in enumerate(node.inputs):
                forward[f"{node.name}:{index}"] = ref
    graph.outputs = {task: forward.get(ref, ref) for task, ref in graph.outputs.items()}
    return graph.keep(graph.ancestors(graph.outputs.values()))
