"""A stand-in for the Python package `tensorrt`, with the API of 8.6, 10 or 11 as far as bireme uses it.

It stands in because TensorRT builds nothing without a GPU: it checks what it is told (flags, constraints,
shapes), keeps a record of it, and makes a "plan" of that. tests/gpu/test_gpu_engine.py uses the real one.
"""

from __future__ import annotations

import enum
import json
from types import SimpleNamespace
from typing import Any

import onnx

_UNSUPPORTED = "NoSuchOp"


class DataType(enum.Enum):
    FLOAT = 0
    HALF = 1
    INT32 = 3
    BOOL = 4


class LayerType(enum.Enum):
    MATRIX_MULTIPLY = 1
    CAST = 2
    CONSTANT = 3
    SHAPE = 4
    IDENTITY = 5
    SHUFFLE = 6


class Severity(enum.IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


_ONNX_TYPES = {1: DataType.FLOAT, 10: DataType.HALF, 6: DataType.INT32, 7: DataType.INT32, 9: DataType.BOOL}


class FakeTensorRT:
    """Looks like the module. `say` is what a build logs, `fail` makes it return None.

    Args:
        version: decides the API.
    """

    def __init__(self, version: str) -> None:
        self.__version__ = version
        self.number = int(version.split(".")[0])
        self.say: list[tuple[Severity, str]] = []
        self.fail = False
        self.no_gpu = False
        self.refuse_cache = False
        self.broken_shape: int | None = None
        self.half_kernel_for = ""
        self.configs: list[Any] = []
        self.networks: list[Any] = []
        self.float32, self.float16 = DataType.FLOAT, DataType.HALF
        self.DataType = DataType
        self.LayerType = LayerType
        self.LayerInformationFormat = SimpleNamespace(JSON=1)
        self.MemoryPoolType = SimpleNamespace(WORKSPACE="workspace")
        self.ProfilingVerbosity = SimpleNamespace(DETAILED="detailed")
        flags = {"TF32": "tf32"}
        creation: dict[str, int] = {}
        if self.number < 11:
            creation["EXPLICIT_BATCH"] = 0
            flags |= {"FP16": "fp16", "OBEY_PRECISION_CONSTRAINTS": "obey"}
        if self.number == 10:
            creation["STRONGLY_TYPED"] = 1
        if self.number >= 10:
            self.IProgressMonitor = type("IProgressMonitor", (), {"__init__": lambda self: None})
        else:
            self.PreviewFeature = SimpleNamespace(PROFILE_SHARING_0806="sharing")
        self.BuilderFlag = SimpleNamespace(**flags)
        self.NetworkDefinitionCreationFlag = SimpleNamespace(**creation)
        self.ILogger = type("ILogger", (), {"__init__": lambda self: None})
        self.OnnxParser = lambda network, log: Parser(self, network, log)
        self.Runtime = lambda log: Runtime(self)

    def Builder(self, log: Any) -> Any:  # noqa: N802
        if self.no_gpu:
            log.log(Severity.WARNING, "CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")
        return Builder(self, log)


class Tensor:
    def __init__(self, name: str, dtype: DataType) -> None:
        self.name, self.dtype = name, dtype


class Layer:
    def __init__(self, node: onnx.NodeProto, outputs: list[Tensor]) -> None:
        self.name = node.name
        self.type = LayerType.CAST if node.op_type == "Cast" else LayerType.MATRIX_MULTIPLY
        self._outputs = outputs
        self.num_outputs = len(outputs)
        self.precision: Any = None
        self.output_types: dict[int, Any] = {}

    def get_output(self, index: int) -> Tensor:
        return self._outputs[index]

    def set_output_type(self, index: int, kind: Any) -> None:
        self.output_types[index] = kind


class Network:
    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.layers: list[Layer] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []

    num_layers = property(lambda self: len(self.layers))
    num_inputs = property(lambda self: len(self.inputs))

    def get_layer(self, index: int) -> Layer:
        return self.layers[index]

    def get_input(self, index: int) -> Tensor:
        return self.inputs[index]


class Parser:
    def __init__(self, trt: FakeTensorRT, network: Network, log: Any) -> None:
        self._trt, self._network, self._log = trt, network, log
        self._errors: list[Any] = []

    num_errors = property(lambda self: len(self._errors))

    def get_error(self, index: int) -> Any:
        return self._errors[index]

    def parse(self, content: bytes) -> bool:
        graph = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(content)).graph
        values = (*graph.value_info, *graph.input, *graph.output)
        types = {value.name: value.type.tensor_type.elem_type for value in values}
        for index, node in enumerate(graph.node):
            if node.op_type == _UNSUPPORTED:
                self._refuse(index, node)
                return False
            outputs = [Tensor(name, _ONNX_TYPES[types[name]]) for name in node.output]
            self._network.layers.append(Layer(node, outputs))
        # As the real parser does for the bias of a dense layer (seen on 8.6.0): no node has its name.
        shuffle = Layer(onnx.NodeProto(name="(Unnamed Layer* 7) [Shuffle]"), [Tensor("", DataType.FLOAT)])
        shuffle.type = LayerType.SHUFFLE
        self._network.layers.append(shuffle)
        self._network.inputs = [Tensor(v.name, _ONNX_TYPES[types[v.name]]) for v in graph.input]
        self._network.outputs = [Tensor(v.name, _ONNX_TYPES[types[v.name]]) for v in graph.output]
        return True

    def _refuse(self, index: int, node: Any) -> None:
        importer = f"No importer registered for op: {node.op_type}. Attempting to import as plugin."
        self._log.log(Severity.INFO, importer)
        error = SimpleNamespace(
            node=lambda: index,
            desc=lambda: 'Assertion failed: creator && "Plugin not found, are the plugin name right?"',
            func=lambda: "importFallbackPluginImporter",
        )
        if self._trt.number >= 10:
            error.node_name, error.node_operator = lambda: node.name, lambda: node.op_type
        self._errors.append(error)


class Builder:
    def __init__(self, trt: FakeTensorRT, log: Any) -> None:
        self._trt, self._log = trt, log

    def create_network(self, flags: int) -> Network:
        self._trt.networks.append(Network(flags))
        return self._trt.networks[-1]

    def create_builder_config(self) -> Any:
        self._trt.configs.append(Config(self._trt))
        return self._trt.configs[-1]

    def create_optimization_profile(self) -> Any:
        shapes: dict[str, Any] = {}
        return SimpleNamespace(
            shapes=shapes, set_shape=lambda name, *ranges: shapes.__setitem__(name, ranges)
        )

    def build_serialized_network(self, network: Network, config: Any) -> bytes | None:
        for severity, text in self._trt.say:
            self._log.log(severity, text)
        monitor = getattr(config, "progress_monitor", None)
        if monitor is not None:
            monitor.phase_start("Building Engine", None, 2)
            assert monitor.step_complete("Building Engine", 1)
            monitor.phase_finish("Building Engine")
        if self._trt.fail:
            return None
        layers = [
            {
                "Name": layer.name,
                "LayerType": "gemm",
                "TacticName": "sm90_gemm_f16f16_f16f16_f16"
                if layer.name == self._trt.half_kernel_for
                else "sm90_gemm_f32f32_f32f32_f32",
                "Inputs": [],
                "Outputs": [
                    {
                        "Name": layer.get_output(0).name,
                        "Dimensions": [2, 3],
                        "Format/Datatype": "Row major linear FP16 format"
                        if layer.get_output(0).dtype is DataType.HALF
                        else "Row major linear FP32",
                    }
                ],
            }
            for layer in network.layers
            if layer.type is not LayerType.SHUFFLE  # folded into the kernels
        ]
        tensors = {
            "inputs": {t.name: t.dtype.name for t in network.inputs},
            "outputs": {t.name: t.dtype.name for t in network.outputs},
        }
        return json.dumps({**tensors, "profile": config.profiles[0].shapes, "Layers": layers}).encode()


class Config:
    def __init__(self, trt: FakeTensorRT) -> None:
        self._trt = trt
        self.flags = {"tf32"}
        self.limits: dict[str, int] = {}
        self.profiles: list[Any] = []
        self.features: set[str] = set()
        self.cache: Any = None

    def set_flag(self, flag: str) -> None:
        assert flag in vars(self._trt.BuilderFlag).values()
        self.flags.add(flag)

    def clear_flag(self, flag: str) -> None:
        self.flags.discard(flag)

    def set_preview_feature(self, feature: str, on: bool) -> None:
        assert on
        self.features.add(feature)

    def set_memory_pool_limit(self, pool: str, size: int) -> None:
        self.limits[pool] = size

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, content: bytes) -> Any:
        return SimpleNamespace(content=content, serialize=lambda: content + b"timed")

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        if self._trt.refuse_cache and cache.content:
            return False
        self.cache = cache
        return True


class Runtime:
    def __init__(self, trt: FakeTensorRT) -> None:
        self._trt = trt

    def deserialize_cuda_engine(self, plan: bytes) -> Any:
        return Engine(self._trt, json.loads(plan))


class Engine:
    def __init__(self, trt: FakeTensorRT, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._types = plan["inputs"] | plan["outputs"]
        self.num_io_tensors = len(self._types)
        self._trt = trt
        setattr(self, "device_memory_size" if trt.number < 10 else "device_memory_size_v2", 3 << 20)

    def create_execution_context(self) -> Any:
        return SimpleNamespace(set_input_shape=self._set)

    def _set(self, name: str, shape: Any) -> bool:
        low, _, high = self._plan["profile"][name]
        inside = all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
        return inside and self._trt.broken_shape not in shape

    def create_engine_inspector(self) -> Any:
        text = json.dumps({"Layers": self._plan["Layers"]})
        return SimpleNamespace(get_engine_information=lambda form: text)

    def get_tensor_name(self, index: int) -> str:
        return list(self._types)[index]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self._types[name]]
