"""Models as TensorFlow 1 wrote them: graphs, sessions, placeholders, a SavedModel of the old builder."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class Tf1:
    """A model ready to export, like `compiler_parts.Made`.

    Args:
        build: makes the graph; returns (inputs, outputs), each name → tensor.
        user: user side inputs.
        signature: key of the signature.
        spec: more of the build spec.
    """

    def __init__(
        self,
        build: Callable[[], tuple[dict[str, Any], dict[str, Any]]],
        user: Sequence[str],
        signature: str = "serving_default",
        **spec: Any,
    ) -> None:
        self.build = build
        self.user = tuple(user)
        self.signature = signature
        self.spec = spec

    def export(self, folder: Path) -> None:
        graph = tf.Graph()
        with graph.as_default():
            v1.set_random_seed(7)
            inputs, outputs = self.build()
            with v1.Session(graph=graph) as session:
                session.run([v1.global_variables_initializer(), v1.tables_initializer()])
                info = v1.saved_model.utils.build_tensor_info
                signature = v1.saved_model.signature_def_utils.build_signature_def(
                    {name: info(tensor) for name, tensor in inputs.items()},
                    {name: info(tensor) for name, tensor in outputs.items()},
                    "tensorflow/serving/predict",
                )
                builder = v1.saved_model.builder.SavedModelBuilder(str(folder))
                builder.add_meta_graph_and_variables(
                    session,
                    ["serve"],
                    {self.signature: signature},
                    main_op=v1.tables_initializer(),
                    assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
                )
                builder.save()


def inputs(**specs: tuple[Any, list[int | None]]) -> dict[str, Any]:
    """Placeholders by name."""
    return {name: v1.placeholder(dtype, shape, name) for name, (dtype, shape) in specs.items()}


def weights(name: str, *shape: int, shards: int = 0, resource: bool = True) -> Any:
    """A random variable, in shards if asked for."""
    return v1.get_variable(
        name,
        shape,
        initializer=v1.random_normal_initializer(stddev=0.5, seed=len(name)),
        partitioner=v1.fixed_size_partitioner(shards) if shards else None,
        use_resource=resource,
    )
