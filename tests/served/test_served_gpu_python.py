"""The gpu-python target's network on a real tritonserver 2.51; the GPU and TensorRT below it are stand-ins.

There is no GPU here, so that KIND_GPU becomes KIND_CPU and a `tensorrt` that executes the ONNX file with ONNX
Runtime lies beside model.py (`tests/runtime/gpu_stand_ins.py`). What is shown is everything above: batches
formed by Triton, ragged candidates, errors, answers from another thread, the end of the server.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from served_helpers import in_parallel
from tritonclient import grpc
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup
from tritonclient.utils import InferenceServerException

from bireme.emitter.render import render
from bireme.emitter.resources import model_source, runtime_files
from bireme.errors import ServerError
from bireme.server.process import TritonServer
from bireme.spec import Contract
from bireme_runtime.cudart import VARIABLE
from bireme_runtime.plan import Feature

sys.path.append(str(Path(__file__).parents[1] / "runtime"))

import gpu_stand_ins

Array = np.ndarray[Any, Any]
USERS, BUCKETS, ITEM, USER = 8, [4, 16], 6, 3
CLIENTS, ASKED = 8, 25
CAPTURED = 2 * 4 * len(BUCKETS)


def network() -> bytes:
    """click = Σ items + Σ user; buy = Σ items · first of user. FP16 in, FP32 out."""
    nodes = [
        helper.make_node("Cast", ["items"], ["i"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["user"], ["u"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["i", "two"], ["sums"], keepdims=0),
        helper.make_node("ReduceSum", ["u", "one"], ["mine"], keepdims=1),
        helper.make_node("Add", ["sums", "mine"], ["click"]),
        helper.make_node("Mul", ["sums", "mine"], ["buy"]),
    ]
    constants = [helper.make_tensor(n, TensorProto.INT64, [1], [v]) for n, v in (("one", 1), ("two", 2))]
    half, wide = TensorProto.FLOAT16, TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info("user", half, ["users", USER]),
        helper.make_tensor_value_info("items", half, ["users", "candidates", ITEM]),
    ]
    outputs = [helper.make_tensor_value_info(n, wide, ["users", "candidates"]) for n in ("click", "buy")]
    graph = helper.make_graph(nodes, "dense", inputs, outputs, constants)
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
        ).SerializeToString()
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`shop_dnn` as it is emitted for gpu-python, with the stand-ins in the places of what a GPU host has."""
    repository = tmp_path_factory.mktemp("gpu_python")
    contract = Contract(
        model="shop",
        features=[Feature("price", "item", "float32"), Feature("age", "user", "float32")],
        tasks=("click", "buy"),
        user_width=USER,
        item_width=ITEM,
        buckets=BUCKETS,
        max_users=USERS,
        target="gpu-python",
        handover="float16",
    )
    config = network_config(contract)
    config.instance_group[0].kind = ModelInstanceGroup.KIND_CPU
    config.instance_group[0].count = 1
    folder = repository / "shop_dnn" / "1"
    for name, content in runtime_files().items():
        path = folder / "bireme_runtime" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "model.py").write_bytes(model_source("dnn_gpu"))
    (folder / "model.onnx").write_bytes(network())
    (repository / "shop_dnn" / "config.pbtxt").write_text(render(config, ["test"]), encoding="utf-8")
    shutil.copytree(gpu_stand_ins.FOLDER / "tensorrt", folder / "tensorrt")
    onnx = gpu_stand_ins.onnx_text(folder / "model.onnx")
    plan = gpu_stand_ins.make_plan(USERS, BUCKETS, {"user": USER, "items": ITEM}, onnx=onnx)
    gpu_stand_ins.write_plan(folder, plan, USERS, BUCKETS)
    return repository


def network_config(contract: Contract) -> ModelConfig:
    """The emitted config of the network."""
    from bireme.emitter.configs import model_configs

    return next(config for config in model_configs(contract) if config.name == contract.dnn)


@pytest.fixture(scope="module")
def cudart(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(gpu_stand_ins.compile_cudart(tmp_path_factory.mktemp("cudart")))


@pytest.fixture(scope="module", params=["off", "on"])
def server(
    request: pytest.FixtureRequest, model: Path, cudart: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """Answers at the return of `execute`, and answers from another thread."""
    folder = tmp_path_factory.mktemp(f"background_{request.param}")
    environment = {
        VARIABLE: cudart,
        "BIREME_BACKGROUND": request.param,
        "BIREME_TIMELINE": str(folder / "gpu.json"),
    }
    server = TritonServer(
        model, log=folder / "server.log", exit_timeout=10, environment=environment, flags=["--log-verbose=1"]
    )
    with server:
        yield server
    launches = json.loads((folder / "gpu_shop_dnn_0_0.json").read_text())
    assert launches, "finalize has not written the timeline"
    for launch in launches:
        assert launch["h2d"][0] <= launch["h2d"][1] <= launch["compute"][1] <= launch["d2h"][1]
    assert {launch["lane"] for launch in launches} == {0, 1}


def ask(client: Any, items: Array, user: Array) -> tuple[Array, Array]:
    inputs = []
    for name, array in (("items", items), ("user", user)):
        inputs.append(grpc.InferInput(name, list(array.shape), "FP16"))
        inputs[-1].set_data_from_numpy(array)
    answer = client.infer("shop_dnn", inputs, client_timeout=30)
    return answer.as_numpy("click"), answer.as_numpy("buy")


@pytest.mark.triton
def test_eight_clients_get_the_networks_scores_and_their_own_errors(server: TritonServer) -> None:
    session = onnxruntime.InferenceSession(network(), providers=["CPUExecutionProvider"])

    def client(seed: int) -> int:
        rng, refused = np.random.default_rng(seed), 0
        with grpc.InferenceServerClient(server.grpc_url) as connection:
            for _ in range(ASKED):
                users, count = int(rng.integers(1, 4)), int(rng.integers(1, 19))
                items = rng.standard_normal((users, count, ITEM)).astype(np.float16)
                user = rng.standard_normal((users, USER)).astype(np.float16)
                if count > BUCKETS[-1]:
                    with pytest.raises(InferenceServerException, match=f"{count} candidates; .* 1 to 16"):
                        ask(connection, items, user)
                    refused += 1
                    continue
                found = ask(connection, items, user)
                wanted = session.run(["click", "buy"], {"items": items, "user": user})
                for one, other in zip(found, wanted, strict=True):
                    assert one.shape == (users, count)
                    np.testing.assert_array_equal(one, other)
        return refused

    assert sum(in_parallel([lambda seed=seed: client(seed) for seed in range(CLIENTS)])) > 0
    log = server.log.read_text() if server.log else ""
    assert log.count("captured CUDA graph, users") == CAPTURED
    assert "shop_dnn_0_0: TensorRT 8.6.0 on Stand-in GPU (GPU 0), 2 lanes, 8 CUDA graphs each" in log
    assert "shop_dnn_0_0: launching CUDA graph, users " in log
    assert "plain execution" not in log


@pytest.mark.triton
def test_a_plan_for_another_gpu_is_refused_in_one_sentence(model: Path, cudart: str, tmp_path: Path) -> None:
    repository = shutil.copytree(model, tmp_path / "repository")
    path = repository / "shop_dnn" / "1" / "passport.json"
    path.write_text(path.read_text().replace("Stand-in GPU", "NVIDIA A10G"))
    log = tmp_path / "server.log"

    server = TritonServer(repository, log=log, exit_timeout=0, environment={VARIABLE: cudart})
    with pytest.raises(ServerError, match=r"was built for NVIDIA A10G .*here is Stand-in GPU"):
        server.start()
