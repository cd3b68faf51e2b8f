"""Small repositories as texts, file → content: for each rule a clean one, and a change that trips it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bireme.lint.release import read_release
from bireme.lint.settings import Settings

Files = Mapping[str, str]

MODEL_PY = """import time
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            answers.append(pb.InferenceResponse([pb.Tensor("y", x * 2)]))
        return answers
"""
IO = """input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
"""
CPU = "instance_group { kind: KIND_CPU }\n"


def python(name: str, more: str = "", io: str = IO, group: str = CPU) -> Files:
    """A Python model that doubles x, with batches up to 4."""
    config = f'backend: "python"\nmax_batch_size: 4\n{io}{group}{more}'
    return {f"{name}/config.pbtxt": config, f"{name}/1/model.py": MODEL_PY}


def ensemble(name: str, *names: str, more: str = "", io: str = IO) -> Files:
    """A chain of models, each of which makes y of x."""
    tensors = ["x", *(f"between_{index}" for index in range(1, len(names))), "y"]
    steps = "".join(
        f'  step {{ model_name: "{step}" model_version: -1\n'
        f'    input_map {{ key: "x" value: "{tensors[at]}" }}\n'
        f'    output_map {{ key: "y" value: "{tensors[at + 1]}" }} }}\n'
        for at, step in enumerate(names)
    )
    config = f'platform: "ensemble"\nmax_batch_size: 4\n{io}ensemble_scheduling {{\n{steps}}}\n{more}'
    return {f"{name}/config.pbtxt": config, f"{name}/1/.keep": ""}


def plan(
    name: str, more: str = "", io: str = IO, group: str = "instance_group { kind: KIND_GPU }\n"
) -> Files:
    """A TensorRT model without graphs."""
    config = f'platform: "tensorrt_plan"\nmax_batch_size: 4\n{io}{group}{more}'
    return {f"{name}/config.pbtxt": config, f"{name}/1/model.plan": "plan"}


def write(root: Path, files: Files) -> Path:
    """Writes a repository."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@dataclass(frozen=True)
class Case:
    """One rule's two repositories.

    Args:
        code: the rule's.
        good: a repository that it does not trip.
        bad: files that differ in the one that it does; an empty text removes the file.
        settings: of both.
    """

    code: str
    good: Files
    bad: Files
    settings: Settings = field(default_factory=Settings)

    def __str__(self) -> str:
        return self.code


def _batcher(text: str) -> str:
    return f"dynamic_batching {{ {text} }}\n"


def _policy(text: str) -> str:
    return _batcher(f"default_queue_policy {{ {text} }}")


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def _warmup(batch: int = 1, name: str = "x", data: str = "zero_data: true") -> str:
    tensor = f'inputs {{ key: "{name}" value {{ data_type: TYPE_FP32 dims: 4 {data} }} }}'
    return f'model_warmup {{ name: "w" batch_size: {batch} {tensor} }}\n'


def _group(more: str) -> str:
    return f"instance_group {{ kind: KIND_CPU {more} }}\n"


_ENV, _HERE = "EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY"
_PACKED = {"a/env/lib/python3.12/site-packages/numpy-1.26.4.dist-info/METADATA": "x"}
_PACKED_2 = {"a/env/lib/python3.12/site-packages/numpy-2.1.0.dist-info/METADATA": "x"}
_PACKED_OLD = {"a/env/lib/python3.8/site-packages/numpy-1.26.4.dist-info/METADATA": "x"}
_WITH_ENV = python("a", _parameter(_ENV, f"{_HERE}/env"))
_CHAIN = {**python("a"), **python("b"), **ensemble("both", "a", "b")}
_OPTIONAL = IO.replace("] }", "] optional: true }", 1)
_TIMED = "timeout_action: REJECT max_queue_size: 8 default_timeout_microseconds"
_INFLIGHT = {"both/config.pbtxt": ensemble("both", "a")["both/config.pbtxt"].replace(
    "ensemble_scheduling {", "ensemble_scheduling { max_inflight_requests: 4"
)}  # fmt: skip


def _fixed(size: str, where: int = 1) -> str:
    """IO with another size of its input (1) or output (2)."""
    parts = IO.split("-1")
    return parts[0] + (size if where == 1 else "-1") + parts[1] + (size if where == 2 else "-1") + parts[2]


CASES = (
    Case("S08", python("a"), python("a", group=_group('host_policy: "numa0"'))),
    Case(
        "S08",
        python("a", group=_group('host_policy: "numa0"')),
        python("a", group=_group('host_policy: "numa1"')),
        Settings(flags=("--host-policy=numa0,cpu-cores=0-1",)),
    ),
    Case("S09", python("a"), python("a", group=_group("rate_limiter { priority: 1 }"))),
    Case("S13", python("a"), python("a", "response_cache { enable: true }\n")),
    Case(
        "S14",
        python("a", "response_cache { enable: true }\n"),
        python("a", "response_cache { enable: true }\nmodel_transaction_policy { decoupled: true }\n"),
    ),
    Case(
        "S14",
        python("a", "sequence_batching { }\n"),
        python("a", "sequence_batching { }\nresponse_cache { enable: true }\n"),
    ),
    Case("S15", python("a", group=CPU + _group("passive: true")), python("a", group=_group("passive: true"))),
    Case("S16", python("a"), python("a", group=_group("gpus: [ 0 ]"))),
    Case(
        "S17",
        plan("a", group='instance_group { kind: KIND_GPU profile: [ "0", "1" ] }\n'),
        plan("a", group='instance_group { kind: KIND_GPU profile: [ "1", "1" ] }\n'),
    ),
    Case(
        "S17",
        plan("a"),
        plan("a", group='instance_group [ { kind: KIND_GPU profile: "1" }, { kind: KIND_GPU } ]\n'),
    ),
    Case("S18", python("a"), python("a", "model_transaction_policy { decoupled: true }\n")),
    Case("N04", plan("a"), plan("a", io=IO.replace("] }", "] allow_ragged_batch: true }", 1))),
    Case("F01", python("a"), {"a/1/model.py": "", "a/v1/model.py": MODEL_PY}),
    Case("F01", python("a"), {"a/01/model.py": MODEL_PY}),
    Case("F01", python("a"), python("a", "version_policy { specific { versions: [ 1, 7 ] } }\n")),
    Case("F02", python("a", 'name: "a"\n'), python("a", 'name: "b"\n')),
    Case("F03", python("a"), python("a", 'default_model_filename: "other.py"\n')),
    Case("F04", plan("a"), plan("a", 'cc_model_filenames { key: "sm_90" value: "model.plan" }\n')),
    Case(
        "F04",
        plan("a", 'cc_model_filenames { key: "9.0" value: "model.plan" }\n'),
        plan("a", 'cc_model_filenames { key: "9.0" value: "h200.plan" }\n'),
    ),
    Case("F04", python("a"), python("a", 'cc_model_filenames { key: "9.0" value: "model.py" }\n')),
    Case("F05", plan("a"), {"a/1/h200.plan": "plan"}),
    Case("F06", python("a"), {"a/1/.model.py.swp": "x"}),
    Case("F07", python("a", _warmup()), python("a", _warmup(9))),
    Case("F07", python("a", _warmup()), python("a", _warmup(name="z"))),
    Case("F07", python("a", _warmup()), python("a", _warmup(data='input_data_file: "raw"'))),
    Case(
        "K01", python("a", _parameter("my_own", "1")), python("a", _parameter("FORCE_CPU_ONLY_INPUT", "no"))
    ),
    Case("K01", plan("a"), plan("a", _parameter(_ENV, f"{_HERE}/env.tar.gz"))),
    Case(
        "K02",
        python("a", _parameter("FORCE_CPU_ONLY_INPUT_TENSORS", "yes")),
        python("a", _parameter("FORCE_CPU_ONLY_INPUT_TENSORS", "true")),
    ),
    Case(
        "K03",
        {**python("a", _parameter("FORCE_CPU_ONLY_INPUT_TENSORS", "no")), "a/1/model.py": "x.to_dlpack()\n"},
        {"a/1/model.py": MODEL_PY},
    ),
    Case("K04", {**_WITH_ENV, **_PACKED}, python("a", _parameter(_ENV, "env"))),
    Case("K04", {**_WITH_ENV, **_PACKED}, python("a", _parameter(_ENV, f"{_HERE}/../env"))),
    Case("K04", {**_WITH_ENV, **_PACKED}, python("a", _parameter(_ENV, "/opt/env.tar.gz"))),
    Case("K04", {**_WITH_ENV, **_PACKED}, dict.fromkeys(_PACKED, "")),
    Case("V03", {**_WITH_ENV, **_PACKED}, {**dict.fromkeys(_PACKED, ""), **_PACKED_OLD}),
    Case("V04", {**_WITH_ENV, **_PACKED}, {**dict.fromkeys(_PACKED, ""), **_PACKED_2}),
    Case("E01", _CHAIN, ensemble("both", "a", "bb")),
    Case("E01", _CHAIN, {"both/config.pbtxt": _CHAIN["both/config.pbtxt"].replace("-1\n", "3\n")}),
    Case(
        "E02", _CHAIN, {"both/config.pbtxt": _CHAIN["both/config.pbtxt"].replace('value: "x"', 'value: "xx"')}
    ),
    Case("E02", _CHAIN, {"both/config.pbtxt": _CHAIN["both/config.pbtxt"].replace('key: "y"', 'key: "yy"')}),
    Case("E02", _CHAIN, python("b", io=IO + 'input { name: "z" data_type: TYPE_FP32 dims: 1 }\n')),
    Case(
        "E03",
        {**_CHAIN, **python("a", io=_OPTIONAL)},
        {**python("a"), **ensemble("both", "a", "b", io=_OPTIONAL)},
    ),
    Case("E04", _CHAIN, {"both/config.pbtxt": _CHAIN["both/config.pbtxt"].replace("size: 4", "size: 8")}),
    Case("E05", _CHAIN, python("b", io=IO.replace("FP32", "INT32", 1))),
    Case(
        "E06",
        {**_CHAIN, **python("a", io=_fixed("3", 2)), **python("b", io=_fixed("3"))},
        python("b", io=_fixed("4")),
    ),
    Case("E06", _CHAIN, python("b", io=_fixed("-1, -1"))),
    Case("E07", _CHAIN, python("b", io=_fixed("4"))),
    Case("E07", _CHAIN, {**python("a", io=_fixed("-1, -1", 2)), **python("b", io=_fixed("-1, -1"))}),
    Case("E08", _CHAIN, ensemble("both", "a", "b", more=CPU)),
    Case("E08", _CHAIN, ensemble("both", "a", "b", more="optimization { eager_batching: true }\n")),
    Case("E08", _CHAIN, ensemble("both", "a", "b", more=_warmup())),
    Case(
        "Q01",
        python("a", _policy(f"{_TIMED}: 500")),
        python("a", _policy("default_timeout_microseconds: 500")),
    ),
    Case("Q01", python("a", _policy("max_queue_size: 9")), python("a", _batcher("")), Settings(slo_ms=20)),
    Case(
        "Q02",
        python("a", _batcher("")),
        {"a/config.pbtxt": python("a", _batcher(""))["a/config.pbtxt"].replace("e: 4", "e: 0")},
    ),
    Case(
        "Q03",
        {**_CHAIN, **python("a", _policy(f"{_TIMED}: 9000")), **python("b", _policy(f"{_TIMED}: 11000"))},
        python("b", _policy(f"{_TIMED}: 11001")),
        Settings(slo_ms=20),
    ),
    Case(
        "Q03",
        {**_CHAIN, **python("a", _policy(f"{_TIMED}: 9000")), **python("b", _policy(f"{_TIMED}: 9000"))},
        {**python("b", _batcher("")), **ensemble("both", "a", "b", more=_parameter("slo_ms", "20"))},
    ),
    Case(
        "Q04",
        _CHAIN,
        {
            name: _policy("allow_timeout_override: true").join([text, ""])
            if name.endswith("a/config.pbtxt")
            else text
            for name, text in _CHAIN.items()
        },
    ),
    Case("Q05", _CHAIN, python("a", _batcher("priority_levels: 2 default_priority_level: 1"))),
    Case(
        "Q06",
        python("a", _batcher("preserve_ordering: true")),
        python("a", _batcher("preserve_ordering: true priority_levels: 2 default_priority_level: 1")),
    ),
    Case(
        "Q06",
        python("a", _batcher("preserve_ordering: true")),
        python("a", _batcher("preserve_ordering: true default_queue_policy { timeout_action: DELAY }")),
    ),
    Case(
        "Q07",
        python("a", _batcher("priority_levels: 2 default_priority_level: 1")),
        python("a", _batcher("priority_levels: 2")),
    ),
    Case(
        "Q07",
        python("a", _batcher("")),
        python("a", _batcher("priority_queue_policy { key: 1 value { max_queue_size: 1 } }")),
    ),
    Case(
        "Q08",
        python("a", _batcher("preferred_batch_size: 4")),
        python("a", _batcher("preferred_batch_size: 9")),
    ),
    Case(
        "Q09",
        python("a", _policy(f"{_TIMED}: 5")),
        python("a", _policy("timeout_action: DELAY default_timeout_microseconds: 5")),
    ),
    Case("M03", python("a"), python("a", group=_group("count: 65"))),
    Case("M01", python("a"), python("a", io=IO.replace("-1", "2000000")), Settings(shm_bytes=32 << 20)),
    Case(
        "M02",
        {**python("a"), "a/1/table.npy": "x" * 60},
        {"a/1/table.npy": "x" * 101},
        Settings(memory_bytes=100),
    ),
    Case("V01", {**python("a"), **ensemble("both", "a")}, _INFLIGHT, Settings(triton=read_release("25.10"))),
    Case("V02", {**python("a"), **ensemble("both", "a")}, _INFLIGHT, Settings(triton=read_release("25.12"))),
    Case("V05", {**python("a", _policy("max_queue_size: 1")), **ensemble("both", "a")}, _INFLIGHT),
)
