"""A real tritonserver on what we say in config.pbtxt: the ensemble of the gpu target, CPU stand-ins inside.

PyPI has no TensorRT backend, so `dnn` and `postprocess` are Python models here, with the names, shapes and
batching of the emitted configs. What is shown: the server accepts them, the hop from a model that batches to
one that does not keeps the users, and requests with different n never meet in one Slice.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from emitter_helpers import make_contract
from tritonclient import grpc
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from bireme.emitter.configs import model_configs
from bireme.emitter.render import render
from bireme_runtime.plan import Feature

ODD = 'odd "name"\n\\é\u2028'
HEAD = """
import time

import numpy as np
import triton_python_backend_utils as pb


def response(**tensors):
    return pb.InferenceResponse([pb.Tensor(name, np.ascontiguousarray(x)) for name, x in tensors.items()])


class TritonPythonModel:
"""
MODELS = {
    "shop_preprocess": f"""
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "user").as_numpy()
            optional = pb.get_input_tensor_by_name(request, {ODD!r})
            users, n = x.shape
            items = np.zeros((users, 4 if n <= 4 else 16, 9), np.float16)
            items[:, :n, 0] = x + (0 if optional is None else 100)
            user = np.zeros((users, 8), np.float16)
            count = np.full((users, 1), n, np.int32)
            responses.append(response(user=user, items=items, n=count))
        return responses
""",
    "shop_dnn": """
    def execute(self, requests):
        time.sleep(0.1)  # so that requests queue up and are merged
        responses = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "items").as_numpy()[:, :, 0].astype(np.float32)
            responses.append(response(ctr=x * 2, cvr=x * 3 + len(requests) / 64))
        return responses
""",
    "shop_postprocess": """
    def execute(self, requests):
        (request,) = requests  # more than one would be an error, like a Slice with two ends
        n = int(pb.get_input_tensor_by_name(request, "n").as_numpy()[0, 0])
        ctr, cvr = (pb.get_input_tensor_by_name(request, f"padded_{t}").as_numpy() for t in ("ctr", "cvr"))
        return [response(ctr=ctr[:, :n], cvr=cvr[:, :n])]
""",
}


def stand_in(config: ModelConfig) -> None:
    """Let a model of NVIDIA's C++ backends run in the Python backend instead; shapes and batching stay."""
    if config.platform == "tensorrt_plan" or config.backend == "onnxruntime":
        config.ClearField("platform")
        config.ClearField("default_model_filename")
        config.ClearField("optimization")
        config.ClearField("parameters")
        config.backend = "python"
        config.instance_group[0].kind = ModelInstanceGroup.KIND_CPU
        config.instance_group[0].count = 1


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Features called like the tensors between the steps, and one with every character that hurts.
    features = (Feature("user", "item", "float32"), Feature(ODD, "user", "int64", -1, default=[]))
    contract = make_contract("gpu", features=features)
    repository = tmp_path_factory.mktemp("served")
    for config in model_configs(contract):
        (repository / config.name / "1").mkdir(parents=True)
        stand_in(config)
        (repository / config.name / "config.pbtxt").write_text(render(config, ["test"]), encoding="utf-8")
        name = "model.py" if config.name in MODELS else "README.txt"
        text = HEAD + MODELS[config.name] if config.name in MODELS else "an ensemble"
        (repository / config.name / "1" / name).write_text(text, encoding="utf-8")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        http, rpc, metrics = (free.getsockname()[1] for free in sockets)
    log = (repository.parent / "server.log").open("w+")
    server = subprocess.Popen(
        [
            str(Path(sys.executable).parent / "tritonserver"),
            f"--model-repository={repository}",
            f"--http-port={http}",
            f"--grpc-port={rpc}",
            f"--metrics-port={metrics}",
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 60
        while not _ready(http):
            if server.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                pytest.fail("tritonserver did not become ready:\n" + log.read()[-4000:])
            time.sleep(0.2)
        yield f"127.0.0.1:{rpc}"
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()


def _ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(url: str, users: int, n: int, optional: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Send integers that FP16 holds exactly; return them with the scores of both tasks."""
    values = np.arange(users * n, dtype=np.float32).reshape(users, n)
    tensors = [grpc.InferInput("user", [users, n], "FP32")]
    tensors[0].set_data_from_numpy(values)
    if optional:
        tensors.append(grpc.InferInput(ODD, [users, 3], "INT64"))
        tensors[1].set_data_from_numpy(np.zeros((users, 3), np.int64))
    with grpc.InferenceServerClient(url) as client:
        result = client.infer("shop", tensors)
    return values, result.as_numpy("ctr"), result.as_numpy("cvr")


@pytest.mark.triton
@pytest.mark.parametrize(
    ("users", "n", "optional"), [(1, 1, False), (1, 4, True), (3, 5, False), (6, 16, True)]
)
def test_each_request_gets_exactly_its_own_scores(url: str, users: int, n: int, optional: bool) -> None:
    values, ctr, cvr = ask(url, users, n, optional)
    np.testing.assert_array_equal(ctr, (values + 100 * optional) * 2)
    assert cvr.shape == values.shape


@pytest.mark.triton
def test_requests_of_one_bucket_merge_in_the_network_and_part_again_after_it(url: str) -> None:
    answers: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(ask(url, 1, n))) for n in (1, 2, 3, 4, 5, 6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ctr.shape for _, ctr, _ in answers) == [(1, n) for n in (1, 2, 3, 4, 5, 6)]
    for values, ctr, _ in answers:
        np.testing.assert_array_equal(ctr, values * 2)
    merged = [round(64 * float((cvr - values * 3)[0, 0])) for values, _, cvr in answers]
    assert max(merged) > 1, "nothing was merged, so this test has shown nothing"
