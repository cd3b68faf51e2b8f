"""What is known of a model repository, as far as it concerns the host; sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MIB", "Model", "Refusal", "Repository"]

MIB = 1 << 20


@dataclass(frozen=True)
class Refusal:
    """An error of another part of bireme, caught: the thing at fault, what is wrong, what to do."""

    where: str
    message: str
    hint: str


@dataclass(frozen=True)
class Model:
    """What one model of a repository needs of the host.

    Args:
        name: of the model.
        python: the Python backend runs it.
        gpu: its instances are for a GPU.
        instances: processes or contexts in all.
        threads: threads of each that work at the same time.
        region: of /dev/shm for one instance, estimated; 0 if it is no Python model.
        tables: sizes of its arenas, which all instances of this host map.
        private: what each instance reads into its own memory: the network's weights.
        kernel: why its copy of the C kernel would not run on this machine; "": it would, or it has none.
        onnxruntime: its Python code needs onnxruntime.
    """

    name: str
    python: bool = True
    gpu: bool = False
    instances: int = 1
    threads: int = 1
    region: int = 2 * MIB
    tables: tuple[int, ...] = ()
    private: int = 0
    kernel: str = ""
    onnxruntime: bool = False


@dataclass(frozen=True)
class Repository:
    """A model repository.

    Args:
        path: where it is.
        models: all that are served.
        cores: what it was built for; 0: not known.
        plans: TensorRT plans that bireme's configs want.
        refused: those of them that must not be loaded here.
    """

    path: str = "model_repository"
    models: tuple[Model, ...] = ()
    cores: int = 0
    plans: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
