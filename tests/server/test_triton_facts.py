"""What the design takes for granted about tritonserver, shown on the real one (and on the fake where it can).

One ensemble of two Python models: `first` doubles `price` and refuses a NaN; `second` sums what it gets. Both
write into a file how many requests each `execute` call held.
"""

from __future__ import annotations

import ast
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from bireme.server.process import TritonServer
from fake_pb_utils import FakeModel, TritonError

pytestmark = pytest.mark.triton

Arrays = dict[str, np.ndarray]
STUB = Path(__file__).parents[2] / "backends" / "python" / "stubs" / "triton_python_backend_utils.pyi"
FIRST = """
import json, time
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        self.notes = Path(args["model_repository"]) / "notes.jsonl"
        if "fake" not in pb.__name__:
            names = [name for name in dir(pb) if not name.startswith("_")]
            members = {n: [m for m in dir(getattr(pb, n)) if not m.startswith("_")] for n in names}
            (Path(args["model_repository"]) / "names.json").write_text(json.dumps(members))

    def execute(self, requests):
        responses, seen = [], []
        for request in requests:
            sku = pb.get_input_tensor_by_name(request, "sku").as_numpy()
            price = pb.get_input_tensor_by_name(request, "price").as_numpy()
            bonus = pb.get_input_tensor_by_name(request, "bonus")
            seen.append([str(sku.dtype), list(sku.shape), list(price.shape), bonus is not None])
            if np.isnan(price).any():
                error = pb.TritonError("feature 'price': is not a number", pb.TritonError.INVALID_ARG)
                responses.append(pb.InferenceResponse(error=error))
                continue
            items = np.stack([price, np.vectorize(len, otypes=[np.float32])(sku)], -1)
            user = np.full((len(price), 1), 0 if bonus is None else bonus.as_numpy()[0, 0], np.float32)
            responses.append(pb.InferenceResponse([pb.Tensor("items", items), pb.Tensor("user", user)]))
        with self.notes.open("a") as notes:
            notes.write(json.dumps(seen) + "\\n")
        return responses
"""
SECOND = """
import json, time
from pathlib import Path
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.notes = Path(args["model_repository"]) / "notes.jsonl"

    def execute(self, requests):
        time.sleep(0.01)  # lets a queue form
        responses, seen = [], []
        for request in requests:
            items = pb.get_input_tensor_by_name(request, "items").as_numpy()
            user = pb.get_input_tensor_by_name(request, "user").as_numpy()
            seen.append(list(items.shape))
            responses.append(pb.InferenceResponse([pb.Tensor("score", items.sum(-1) + user)]))
        with self.notes.open("a") as notes:
            notes.write(json.dumps(seen) + "\\n")
        return responses
"""
RAGGED = "allow_ragged_batch: true"


def _inputs(ragged: str) -> str:
    return (
        f'input [ {{ name: "sku" data_type: TYPE_STRING dims: [ -1 ] {ragged} }},\n'
        f'{{ name: "price" data_type: TYPE_FP32 dims: [ -1 ] {ragged} }},\n'
        '{ name: "bonus" data_type: TYPE_FP32 dims: [ 1 ] optional: true } ]\n'
    )


FIRST_CONFIG = _inputs(RAGGED) + (
    'output [ { name: "items" data_type: TYPE_FP32 dims: [ -1, 2 ] },\n'
    '{ name: "user" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
)
SECOND_CONFIG = (
    f'input [ {{ name: "items" data_type: TYPE_FP32 dims: [ -1, 2 ] {RAGGED} }},\n'
    '{ name: "user" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    'output [ { name: "score" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
)
ENSEMBLE_CONFIG = (
    'name: "both"\nplatform: "ensemble"\nmax_batch_size: 16\n'
    + _inputs("")
    + """output [ { name: "score" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [ { model_name: "first" model_version: -1
  input_map { key: "sku" value: "sku" } input_map { key: "price" value: "price" }
  input_map { key: "bonus" value: "bonus" }
  output_map { key: "items" value: "items" } output_map { key: "user" value: "user" } },
{ model_name: "second" model_version: -1
  input_map { key: "items" value: "items" } input_map { key: "user" value: "user" }
  output_map { key: "score" value: "score" } } ] }
"""
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    for name, source, config in (("first", FIRST, FIRST_CONFIG), ("second", SECOND, SECOND_CONFIG)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.py").write_text(source)
        head = f'name: "{name}"\nbackend: "python"\nmax_batch_size: 16\ndynamic_batching {{ }}\n'
        (root / name / "config.pbtxt").write_text(head + "instance_group [ { kind: KIND_CPU } ]\n" + config)
    (root / "both" / "1").mkdir(parents=True)
    (root / "both" / "config.pbtxt").write_text(ENSEMBLE_CONFIG)
    # Files that are none of Triton's business are ignored, at the top and in a model's folder.
    (root / "README.md").write_text("text")
    (root / "both" / "bireme.json").write_text("{}")
    return root


@pytest.fixture(scope="module")
def server(repository: Path, triton: Callable[..., TritonServer]) -> TritonServer:
    return triton(repository)


def _arrays(users: int, count: int, price: float = 2.0, bonus: float | None = None) -> Arrays:
    arrays = {
        "sku": np.full((users, count), b"abc", np.object_),
        "price": np.full((users, count), price, np.float32),
    }
    if bonus is not None:
        arrays["bonus"] = np.full((users, 1), bonus, np.float32)
    return arrays


def _infer(server: TritonServer, protocol: str, model: str, arrays: Arrays, output: str) -> np.ndarray:
    return _ask(server, protocol, model, arrays).as_numpy(output)


def _ask(server: TritonServer, protocol: str, model: str, arrays: Arrays) -> Any:
    module = tritonclient.grpc if protocol == "grpc" else tritonclient.http
    inputs = []
    for name, array in arrays.items():
        tensor = module.InferInput(name, list(array.shape), "BYTES" if array.dtype == object else "FP32")
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    with module.InferenceServerClient(server.grpc_url if protocol == "grpc" else server.http_url) as client:
        return client.infer(model, inputs)


BOTH_WAYS = pytest.mark.parametrize("protocol", ["grpc", "http"])


@BOTH_WAYS
@pytest.mark.parametrize(
    ("model", "output", "shape"), [("both", "score", (1, 0)), ("first", "items", (1, 0, 2))]
)
def test_zero_candidates_reach_the_model(
    server: TritonServer, protocol: str, model: str, output: str, shape: tuple[int, ...]
) -> None:
    assert _infer(server, protocol, model, _arrays(1, 0), output).shape == shape


@BOTH_WAYS
def test_an_optional_input_may_be_left_out_of_an_ensemble(server: TritonServer, protocol: str) -> None:
    assert _infer(server, protocol, "both", _arrays(1, 2), "score").tolist() == [[5.0, 5.0]]
    assert _infer(server, protocol, "both", _arrays(1, 2, bonus=10.0), "score").tolist() == [[15.0, 15.0]]


@BOTH_WAYS
def test_an_error_keeps_its_code_and_words_through_an_ensemble(server: TritonServer, protocol: str) -> None:
    with pytest.raises(Exception, match=r"in ensemble 'both', feature 'price': is not a number") as caught:
        _infer(server, protocol, "both", _arrays(1, 2, price=np.nan), "score")
    assert caught.value.status() == {"grpc": "StatusCode.INVALID_ARGUMENT", "http": "400"}[protocol]


@BOTH_WAYS
def test_mixed_requests_share_an_execute_call_and_fail_alone(
    server: TritonServer, repository: Path, protocol: str
) -> None:
    wrong: list[str] = []

    def ask(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(25):
            users, count, bad = int(random.integers(1, 4)), int(random.integers(1, 60)), random.random() < 0.2
            try:
                scores = _infer(
                    server, protocol, "both", _arrays(users, count, np.nan if bad else 2.0), "score"
                )
                if bad or scores.tolist() != [[5.0] * count] * users:
                    wrong.append(f"{users}×{count}: {scores}")
            except Exception as error:
                if not bad or "is not a number" not in str(error):
                    wrong.append(f"{users}×{count}: {error}")

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    batches = [json.loads(line) for line in (repository / "second" / "notes.jsonl").read_text().splitlines()]
    assert any(len({count for _, count, _ in batch}) > 1 for batch in batches)  # different N
    assert any(len({users for users, _, _ in batch}) > 1 for batch in batches)  # different numbers of users
    assert max(sum(users for users, _, _ in batch) for batch in batches) <= 16


def test_the_fake_backend_does_what_the_real_one_does(
    server: TritonServer, repository: Path, tmp_path: Path
) -> None:
    notes = repository / "first" / "notes.jsonl"
    copy = Path(shutil.copytree(repository / "first", tmp_path / "first"))  # late requests write notes, too
    batch = [_arrays(1, 3), _arrays(2, 5, bonus=1.0), _arrays(1, 0), _arrays(1, 2, price=np.nan)]
    fake = FakeModel(copy)
    *results, error = fake.execute(batch)
    faked = json.loads((copy / "notes.jsonl").read_text().splitlines()[-1])
    assert len(faked) == len(batch)
    for arrays, result, seen in zip(batch, results, faked, strict=False):
        assert not isinstance(result, TritonError), result.message()
        before = len(notes.read_text().splitlines())
        real = _ask(server, "grpc", "first", arrays)
        noted = [json.loads(line) for line in notes.read_text().splitlines()[before:]]
        assert any(seen in batch for batch in noted), (seen, noted)  # what the model sees
        for name, array in result.items():
            np.testing.assert_array_equal(real.as_numpy(name), array, strict=True)
    assert isinstance(error, TritonError)
    assert (error.message(), error.code()) == ("feature 'price': is not a number", TritonError.INVALID_ARG)
    assert fake.instance.config["max_batch_size"] == 16
    assert fake.instance.config["input"][0]["dims"] == [-1]


def test_the_typed_stub_names_what_the_real_module_has(server: TritonServer, repository: Path) -> None:
    real = json.loads((repository / "first" / "names.json").read_text())
    tree = ast.parse(STUB.read_text())
    stated: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            stated[node.name] = {
                entry.name if isinstance(entry, ast.FunctionDef) else entry.target.id
                for entry in node.body
                if isinstance(entry, ast.FunctionDef)
                or (isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name))
            }
        elif isinstance(node, ast.FunctionDef):
            stated[node.name] = set()
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stated[node.target.id] = set()
    public = {name: members for name, members in stated.items() if not name.startswith("_")}
    assert public.keys() <= real.keys()
    assert real.keys() - public.keys() <= {"json", "np", "struct"}
    for name, members in public.items():
        stated_members = {member for member in members if not member.startswith("_")}
        assert stated_members <= set(real[name]), name
