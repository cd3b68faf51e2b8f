"""A dense network asked directly: fixed random inputs of any shape, its plain answers as the reference."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import text_format  # type: ignore[import-untyped]

from bireme.errors import BiremeError, VerifyError
from bireme.server.process import TritonServer
from bireme.verify.gpu_network import GpuNetwork, Shape, read_config

__all__ = ["GRAPHS_OFF", "Direct", "Sent", "make_inputs", "number", "plain_answers", "plain_repository"]

Array = np.ndarray[Any, Any]

GRAPHS_OFF = {"BIREME_GRAPHS": "off"}
"""Environment in which our Python model executes everything plainly."""

_TYPES = {"float16": "FP16", "float32": "FP32", "int32": "INT32", "int64": "INT64"}
#: Different inputs of one shape: an answer that a graph kept from the last request would be right otherwise.
_VARIANTS = 2
_POOL = 65_537  # prime: repeated, no row of a usual width begins as another one
_START_SECONDS = 300.0


class Sent(NamedTuple):
    """One request to a network; equal ones have equal inputs."""

    shape: Shape
    variant: int

    def __str__(self) -> str:
        return f"{self.shape} ({'AB'[self.variant]})"


def number(orders: Mapping[str, Sequence[Shape]]) -> dict[str, list[Sent]]:
    """Shapes with variants of inputs that take turns, so that a shape's next request is never its last."""
    seen: Counter[Shape] = Counter()
    numbered: dict[str, list[Sent]] = {}
    for name, shapes in orders.items():
        numbered[name] = []
        for shape in shapes:
            numbered[name].append(Sent(shape, seen[shape] % _VARIANTS))
            seen[shape] += 1
    return numbered


def make_inputs(network: GpuNetwork, sent: Sent) -> dict[str, Array]:
    """Numbers about as large as embeddings are; no two shapes or variants begin with the same ones."""
    inputs = {}
    for position, tensor in enumerate(network.inputs):
        dims = (sent.shape.users, *(sent.shape.bucket if size == -1 else size for size in tensor.dims))
        rng = np.random.default_rng([position, *sent.shape, sent.variant])
        pool = (rng.standard_normal(_POOL) * 0.5).astype(tensor.dtype)
        inputs[tensor.name] = np.resize(pool, dims)
    return inputs


class Direct:
    """A gRPC client of one network.

    Args:
        url: `host:port` of the server.
        network: what it takes.
    """

    def __init__(self, url: str, network: GpuNetwork) -> None:
        import tritonclient.grpc as module

        self._module: Any = module
        self._client = module.InferenceServerClient(url)
        self._network = network

    def __enter__(self) -> Direct:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def __call__(self, sent: Sent) -> dict[str, Array]:
        """Output → [users, bucket] or [users, width].

        Raises:
            VerifyError: the server's refusal.
        """
        entries = []
        for name, array in make_inputs(self._network, sent).items():
            entry = self._module.InferInput(name, list(array.shape), _TYPES[array.dtype.name])
            entries.append(entry.set_data_from_numpy(array))
        try:
            result = self._client.infer(self._network.name, entries, client_timeout=60)
        except self._module.InferenceServerException as error:
            raise VerifyError(self._network.name, str(error.message()), "see the server's log") from None
        return {name: np.array(result.as_numpy(name)) for name in self._network.outputs}


def plain_answers(
    repository: Path,
    networks: Sequence[GpuNetwork],
    sent: Mapping[str, Sequence[Sent]],
    environment: Mapping[str, str],
    progress: Callable[[str, int, int], None],
) -> dict[str, dict[Sent, dict[str, Array]]]:
    """Every network's answers without CUDA Graphs, from a server of their own.

    Args:
        repository: the model repository.
        networks: whom to ask.
        sent: network → what.
        environment: further variables of the server.
        progress: called with (what, done, total).

    Raises:
        BiremeError: the server cannot be started, or refuses.
    """
    # Errors shall name the repository: the copy is gone when they are read, and bears no mark of the kit.
    TritonServer(repository, environment=environment).inspect()
    answers: dict[str, dict[Sent, dict[str, Array]]] = {}
    with plain_repository(repository, networks) as copy:
        server = TritonServer(copy, environment={**environment, **GRAPHS_OFF})
        server.start(_START_SECONDS)
        try:
            for network in networks:
                answers[network.name] = {}
                with Direct(server.grpc_url, network) as ask:
                    distinct = sorted(set(sent[network.name]))
                    for done, key in enumerate(distinct, start=1):
                        answers[network.name][key] = ask(key)
                        progress(f"{network.name} without graphs", done, len(distinct))
        except BiremeError:
            server.check()  # a server that has died is the better explanation
            raise
        finally:
            server.stop()
    return answers


@contextmanager
def plain_repository(repository: Path, networks: Sequence[GpuNetwork]) -> Iterator[Path]:
    """A repository of the networks alone, one instance each, without graphs; files are shared if possible."""
    with tempfile.TemporaryDirectory(prefix="bireme-plain-") as folder:
        for network in networks:
            source, target = repository / network.name, Path(folder) / network.name
            shutil.copytree(source, target, copy_function=_link)
            config = read_config(source / "config.pbtxt")
            config.optimization.ClearField("cuda")
            for group in config.instance_group:
                group.count = 1
            # Not written into: it may be another name of the repository's own file.
            (target / "config.pbtxt").unlink()
            (target / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
        yield Path(folder)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
    return target
