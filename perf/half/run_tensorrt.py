"""Build the typed networks with TensorRT on this GPU and compare their scores with TensorFlow's.

    python run_tensorrt.py CASES OUT.npz

For a machine with a GPU, numpy and TensorRT only. CASES is what `precision.py --cases` wrote; OUT.npz gets
`<name>/<task>` [requests, candidates]. Prints one line a model.
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorrt as trt

_USERS = 16
_KINDS = {trt.float32: np.float32, trt.float16: np.float16}


def build(path: Path, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, str]:
    """An engine that obeys the types in the ONNX.

    Args:
        path: the ONNX.
        shapes: input → its largest shape, users first.

    Returns:
        The engine, and how the types were imposed.
    """
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    explicit = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    strong = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(explicit if strong is None else 1 << int(strong))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(path.read_bytes()):
        raise ValueError("; ".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    config = builder.create_builder_config()
    if strong is None:  # before TensorRT 10: the types become constraints
        config.set_flag(trt.BuilderFlag.FP16)
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
        for index in range(network.num_layers):
            layer = network.get_layer(index)
            kinds = {layer.get_output(i).dtype for i in range(layer.num_outputs)}
            if kinds == {trt.float32} and layer.type not in (trt.LayerType.CONSTANT, trt.LayerType.SHAPE):
                layer.precision = trt.float32
    profile = builder.create_optimization_profile()
    for name, largest in shapes.items():
        profile.set_shape(name, (1, *largest[1:]), largest, largest)
    config.add_optimization_profile(profile)
    engine = trt.Runtime(logger).deserialize_cuda_engine(builder.build_serialized_network(network, config))
    return engine, "strongly typed" if strong is not None else "FP16 flag, precision constraints obeyed"


class Runner:
    """Runs an engine on host arrays: copies in, enqueues, copies out."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._context = engine.create_execution_context()
        self._cuda = ctypes.CDLL("libcudart.so.12")
        self._stream = ctypes.c_void_p()
        self._call("cudaStreamCreate", ctypes.byref(self._stream))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise SystemExit(f"{name} failed with {code}")

    def __call__(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """Named arrays in, named arrays out."""
        buffers, results = [], {}
        for name, value in feeds.items():
            self._context.set_input_shape(name, value.shape)
        for index in range(self._engine.num_io_tensors):
            name = self._engine.get_tensor_name(index)
            incoming = name in feeds
            kind = _KINDS[self._engine.get_tensor_dtype(name)]
            shape = tuple(self._context.get_tensor_shape(name))
            array = np.ascontiguousarray(feeds[name], kind) if incoming else np.empty(shape, kind)
            place = ctypes.c_void_p()
            self._call("cudaMalloc", ctypes.byref(place), ctypes.c_size_t(max(array.nbytes, 1)))
            buffers.append(place)
            pointer = array.ctypes.data_as(ctypes.c_void_p)
            if incoming:
                self._call("cudaMemcpy", place, pointer, ctypes.c_size_t(array.nbytes), 1)
            else:
                results[name] = (array, pointer, place)
            self._context.set_tensor_address(name, place.value)
        if not self._context.execute_async_v3(self._stream.value):
            raise SystemExit("the engine did not run")
        self._call("cudaStreamSynchronize", self._stream)
        for array, pointer, place in results.values():
            self._call("cudaMemcpy", pointer, place, ctypes.c_size_t(array.nbytes), 2)
        for place in buffers:
            self._call("cudaFree", place)
        return {name: array for name, (array, _, _) in results.items()}


def check(path: Path) -> dict[str, Any]:
    """Build one network, score all its requests, print how far they are from TensorFlow's.

    Returns:
        `<name>/<task>` → scores [requests, candidates].
    """
    case = np.load(path.with_suffix(".npz"))
    largest = {name: (_USERS, *case[name].shape[1:]) for name in ("user", "items")}
    begun = time.monotonic()
    engine, how = build(path, largest)
    took = time.monotonic() - begun
    run = Runner(engine)
    parts: dict[str, list[Any]] = {}
    for first in range(0, len(case["user"]), _USERS):
        feeds = {name: case[name][first : first + _USERS] for name in largest}
        for task, values in run(feeds).items():
            parts.setdefault(task, []).append(values)
    found = {}
    worst = 0.0
    for task, values in parts.items():
        wanted = case[f"expected_{task}"]
        scores = np.concatenate(values)[:, : wanted.shape[1]]
        found[f"{path.stem}/{task}"] = scores
        worst = max(worst, float(np.abs(scores - wanted).max()))
    print(f"{path.stem}: TensorRT {trt.__version__}, {how}, built in {took:.0f} s, off by {worst:.1e}")
    return found


def main() -> int:
    """Entry point; 1 if a network could not be built."""
    cases, out = Path(sys.argv[1]), Path(sys.argv[2])
    found: dict[str, Any] = {}
    failed = 0
    for path in sorted(cases.glob("*.onnx")):
        try:
            found |= check(path)
        except ValueError as error:
            print(f"{path.stem}: {error}")
            failed = 1
    np.savez(out, **found)
    return failed


if __name__ == "__main__":
    sys.exit(main())
