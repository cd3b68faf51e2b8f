"""Engines of `subgraph` steps: a file as a function from named arrays to named arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .plan import Subgraph
from .requests import Array

__all__ = ["open_engine"]

Engine = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def open_engine(step: Subgraph, path: Path) -> Engine:
    """Load a subgraph's file; one thread, as the instances are the parallelism.

    Raises:
        ValueError: the file or the engine's package is missing; names the remedy.
    """
    if not path.is_file():
        raise ValueError(f"{path}: is missing; rebuild the repository with `bireme build`")
    return _open_onnx(step, path) if step.engine == "onnx" else _open_tensorflow(step, path)


def _open_onnx(step: Subgraph, path: Path) -> Engine:
    try:
        import onnxruntime
    except ImportError:
        raise ValueError(_package_needed("onnxruntime", step)) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.tensor for output in step.outputs]
    taken = {value.name for value in session.get_inputs()}  # not those of which only the shape was asked

    def run(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        values = session.run(names, {name: value for name, value in feeds.items() if name in taken})
        return dict(zip(names, values, strict=True))

    return run


def _open_tensorflow(step: Subgraph, path: Path) -> Engine:
    # Before TensorFlow is imported: no chatter, and the sums of the build.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    try:
        import tensorflow as tf
    except ImportError:
        raise ValueError(_package_needed("tensorflow-cpu", step)) from None
    graph_def = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    constants = {node.name: node for node in graph_def.node if node.op == "Const"}
    placeholders = {node.name: node for node in graph_def.node if node.op == "Placeholder"}

    def constant(name: str) -> Any:
        return tf.constant(tf.make_ndarray(constants[name].attr["value"].tensor))

    resources: dict[str, Any] = {}
    for handle, keys, values in step.tables:
        if not keys:
            resources[handle] = tf.Variable(constant(values), trainable=False)
            continue
        initializer = tf.lookup.KeyValueTensorInitializer(constant(keys), constant(values))
        default = tf.zeros((), initializer.value_dtype) if initializer.value_dtype != tf.string else ""
        resources[handle] = tf.lookup.StaticHashTable(initializer, default)
    specs = [
        tf.TensorSpec(None, tf.as_dtype(placeholders[source.tensor].attr["dtype"].type))
        for source in step.inputs
    ]
    wanted = [output.tensor for output in step.outputs]

    def imported(*values: Any) -> list[Any]:
        graph = tf.compat.v1.get_default_graph()
        feeds = {f"{source.tensor}:0": value for source, value in zip(step.inputs, values, strict=True)}
        for name, held in resources.items():
            handle = held.handle if isinstance(held, tf.Variable) else held.resource_handle
            feeds[f"{name}:0"] = graph.capture(handle)
        found: list[Any] = tf.graph_util.import_graph_def(graph_def, feeds, wanted)
        return found

    function = tf.compat.v1.wrap_function(imported, specs)

    def run(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        values = [
            tf.constant(feeds[source.tensor], dtype=spec.dtype)
            for source, spec in zip(step.inputs, specs, strict=True)
        ]
        # Keeps them alive as long as the function.
        assert len(resources) == len(step.tables)
        results = function(*values)
        return {name: np.asarray(value.numpy()) for name, value in zip(wanted, results, strict=True)}

    return run


def _package_needed(package: str, step: Subgraph) -> str:
    return (
        f"the model needs {package} where it is served, for {', '.join(o.about for o in step.outputs)};"
        f" install it there: pip install {package}"
    )
