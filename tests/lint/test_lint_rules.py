"""Every rule has a config that trips it, and what bireme emits trips none."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

sys.path.insert(0, str(Path(__file__).parents[1] / "emitter"))

from ahead_helpers import make_ahead
from emitter_helpers import make_artifacts, make_contract
from lint_repositories import CASES
from onnx import TensorProto, helper
from typer.testing import CliRunner

from bireme.cli import app
from bireme.emitter import emit
from bireme.errors import LintError
from bireme.lint.repository import READING, lint_model, lint_repository
from bireme.lint.rules import RULES
from bireme.lint.table import rules_table

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A repository of each target."""
    found = {}
    for target in ("cpu", "gpu", "gpu-python"):
        found[target] = tmp_path_factory.mktemp(target)
        contract = make_contract(target)
        emit(make_artifacts(contract), contract, found[target])
    return found


def codes(folder: Path) -> list[str]:
    return sorted({finding.code for finding in lint_model(folder)})


def changed(folder: Path, tmp_path: Path, change: Callable[[Any], object]) -> Path:
    """A copy of a model with another config."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    config = text_format.Parse((copy / "config.pbtxt").read_text(), ModelConfig())
    change(config)
    (copy / "config.pbtxt").write_text(text_format.MessageToString(config))
    return copy


def spec(config: Any, index: int = 0) -> Any:
    return config.optimization.cuda.graph_spec[index]


def drop_largest(config: Any) -> None:
    specs = config.optimization.cuda.graph_spec
    kept = [graph for graph in specs if graph.batch_size < 6]
    del specs[:]
    specs.extend(kept)


def drop_middle(config: Any) -> None:
    specs = config.optimization.cuda.graph_spec
    kept = [graph for graph in specs if graph.batch_size != 2]
    del specs[:]
    specs.extend(kept)


def no_batch(config: Any) -> None:
    config.max_batch_size = 0


def set_(path: str, value: object) -> Callable[[Any], None]:
    *parents, last = path.split(".")

    def change(config: Any) -> None:
        for parent in parents:
            config = getattr(config, parent)
        setattr(config, last, value)

    return change


def all_three(config: Any) -> None:
    config.optimization.eager_batching = True
    config.optimization.cuda.busy_wait_events = True


def tell(key: str, value: str) -> Callable[[Any], None]:
    def change(config: Any) -> None:
        config.parameters[key].string_value = value

    return change


TENSORRT: list[tuple[str, Callable[[Any], object]]] = [
    ("G01", lambda c: (spec(c).input.pop("user"), spec(c).graph_lower_bound.input.pop("user"))),
    ("G02", lambda c: [graph.ClearField("graph_lower_bound") for graph in c.optimization.cuda.graph_spec]),
    ("G03", lambda c: spec(c).graph_lower_bound.ClearField("input")),
    ("G04", lambda c: spec(c).graph_lower_bound.input["items"].dim.__setitem__(0, 1)),
    ("G05", drop_largest),
    ("G06", no_batch),
    ("G07", lambda c: c.optimization.cuda.ClearField("graph_spec")),
    ("G08", set_("optimization.cuda.graphs", False)),
    ("G09", lambda c: spec(c).input["items"].dim.insert(0, 1)),
    ("G09", lambda c: spec(c).input["items"].dim.__setitem__(1, 7)),
    ("G10", lambda c: setattr(spec(c, 2).graph_lower_bound, "batch_size", 2) or drop_middle(c)),
    ("G11", lambda c: c.optimization.cuda.graph_spec.append(spec(c))),
    ("G12", lambda c: setattr(spec(c), "batch_size", 99)),
    ("S01", set_("optimization.cuda.output_copy_stream", True)),
    ("S02", all_three),
    ("S03", set_("optimization.eager_batching", True)),
    ("S04", lambda c: c.dynamic_batching.preferred_batch_size.append(6)),
    ("S05", lambda c: c.optimization.execution_accelerators.SetInParent()),
    ("S05", lambda c: setattr(c.optimization.graph, "level", 1)),
    ("S06", lambda c: c.ClearField("instance_group")),
    ("S06", lambda c: setattr(c.instance_group[0], "kind", ModelInstanceGroup.KIND_AUTO)),
    ("S06", lambda c: setattr(c.instance_group[0], "kind", ModelInstanceGroup.KIND_CPU)),
    ("S08", lambda c: setattr(c.instance_group[0], "host_policy", "numa0")),
    ("S09", lambda c: c.instance_group[0].rate_limiter.SetInParent()),
    ("S10", no_batch),
    ("S11", lambda c: c.input[0].dims.insert(0, -1)),
    ("S12", lambda c: c.input.pop()),
]
PYTHON: list[tuple[str, Callable[[Any], object]]] = [
    ("P01", tell("graphs", "64")),
    ("P01", tell("graphs", "1*64")),
    ("P01", tell("lanes", "0")),
    ("P01", tell("lanes", "9")),
    ("P01", tell("buckets", "4;16")),
    ("P02", tell("graphs", "1x4,6x4,1x16,4x16")),
    ("P02", tell("graphs", "1x4,6x4")),
    ("P03", tell("graphs", "1x4,6x4,6x16,1x7")),
    ("P03", tell("graphs", "1x4,6x4,6x16,7x16")),
    ("P04", lambda c: setattr(c.input[1], "allow_ragged_batch", False)),
    ("S04", lambda c: c.dynamic_batching.preferred_batch_size.append(6)),
    ("S05", set_("optimization.eager_batching", True)),
    ("S05", lambda c: c.optimization.cuda.SetInParent()),
    ("S05", set_("optimization.gather_kernel_buffer_threshold", 4)),
    ("S05", set_("optimization.priority", 1)),
    ("S06", lambda c: setattr(c.instance_group[0], "kind", ModelInstanceGroup.KIND_CPU)),
    ("S07", lambda c: c.instance_group[0].profile.append("0")),
]


@pytest.mark.parametrize(("code", "change"), TENSORRT)
def test_a_plan_of_the_cpp_backend_trips(
    emitted: dict[str, Path], tmp_path: Path, code: str, change: Callable[[Any], object]
) -> None:
    folder = emitted["gpu"] / "shop_dnn"
    assert codes(folder) == []
    assert code in codes(changed(folder, tmp_path, change))


@pytest.mark.parametrize(("code", "change"), PYTHON)
def test_a_plan_in_a_python_model_trips(
    emitted: dict[str, Path], tmp_path: Path, code: str, change: Callable[[Any], object]
) -> None:
    folder = emitted["gpu-python"] / "shop_dnn"
    assert codes(folder) == []
    assert code in codes(changed(folder, tmp_path, change))


def passport(folder: Path, users: int, candidates: int) -> None:
    largest = {"user": [users, 8], "items": [users, candidates, 9]}
    profile = {name: {"min": shape, "opt": shape, "max": shape} for name, shape in largest.items()}
    (folder / "1/passport.json").write_text(json.dumps({"profile": profile}))


def test_the_largest_shape_of_the_plan_must_be_captured(emitted: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "shop_dnn"
    shutil.copytree(emitted["gpu"] / "shop_dnn", folder)
    passport(folder, 6, 16)
    assert codes(folder) == []
    passport(folder, 32, 16)  # more users than the batcher can form
    assert codes(folder) == []
    passport(folder, 6, 64)
    assert codes(folder) == ["G13"]
    (folder / "1/passport.json").write_text("{")
    assert codes(folder) == []


def test_what_does_not_parse_is_a_finding(emitted: dict[str, Path], tmp_path: Path) -> None:
    """`dims` for `dim`: one of the traps."""
    folder = tmp_path / "shop_dnn"
    shutil.copytree(emitted["gpu"] / "shop_dnn", folder)
    text = (folder / "config.pbtxt").read_text()
    (folder / "config.pbtxt").write_text(text.replace("value { dim:", "value { dims:"))
    (finding,) = lint_model(folder)
    assert (finding.code, finding.severity) == ("C01", "error")
    assert '"dims"' in finding.message


def test_max_batch_size_left_out_is_not_zero(emitted: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "shop_postprocess"
    shutil.copytree(emitted["gpu"] / "shop_postprocess", folder)
    assert codes(folder) == []  # it says 0
    text = (folder / "config.pbtxt").read_text()
    (folder / "config.pbtxt").write_text("# max_batch_size: 0\n" + text.replace("max_batch_size: 0", ""))
    assert codes(folder) == ["S10"]


def test_every_rule_is_tripped_by_a_test() -> None:
    known = [rule.code for rule in RULES]
    assert len(known) == len(set(known))
    tripped = {code for code, _ in (*TENSORRT, *PYTHON)} | {case.code for case in CASES}
    assert tripped | {"G13", "N01", "N02", "N03"} == set(known)


def test_every_rule_says_what_it_finds_why_and_what_to_do() -> None:
    assert [rule.code for rule in RULES if not (rule.about and rule.why and rule.fix)] == []


def test_the_docs_hold_the_rules_as_the_code_does() -> None:
    """`bireme lint --rules` prints what belongs there."""
    text = (ROOT / "docs/lint.md").read_text(encoding="utf-8")
    assert re.findall(r"^\|.*$", text, re.MULTILINE) == rules_table((READING, *RULES)).splitlines()
    result = CliRunner().invoke(app, ["lint", "--rules"])
    assert (result.exit_code, result.output) == (0, rules_table((READING, *RULES)) + "\n")


def network(folder: Path, batch: int | None, width: int = 9, element: int = TensorProto.FLOAT) -> list[str]:
    """Codes of an ONNX Runtime model of dims [9] and batches up to 4, beside such a network."""
    value = helper.make_tensor_value_info("x", element, [batch or "users", width])
    result = helper.make_tensor_value_info("y", element, [batch or "users", width])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [result])
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1/model.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    tensors = "".join(
        f'{way} {{ name: "{n}" data_type: TYPE_FP32 dims: 9 }}\n'
        for way, n in (("input", "x"), ("output", "y"))
    )
    (folder / "config.pbtxt").write_text(
        f'backend: "onnxruntime"\nmax_batch_size: 4\n{tensors}instance_group {{ kind: KIND_CPU }}\n'
    )
    return codes(folder)


def test_a_config_is_compared_with_the_network_beside_it(tmp_path: Path) -> None:
    assert network(tmp_path / "m", None) == []
    assert network(tmp_path / "m", 1) == ["N01"]
    assert network(tmp_path / "m", None, width=8) == ["N02"]
    assert network(tmp_path / "m", None, element=TensorProto.INT64) == ["N03"]


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"user_width": 0},
        {"tasks": ("ctr",), "max_users": 1, "buckets": (64,)},
        {"max_users": 1024, "buckets": (1, 64, 500, 4096)},
        {"graph_users": (1, 5, 6)},
        {"listwise": True},
        {"handover": "float32"},
    ],
)
def test_what_bireme_emits_is_clean(tmp_path: Path, target: str, changes: dict[str, Any]) -> None:
    contract = make_contract(target, **changes)
    artifacts = make_artifacts(contract)
    if not artifacts.plan.listwise and contract.listwise:
        artifacts = make_artifacts(
            contract, plan=artifacts.plan.__class__(**{**vars(artifacts.plan), "listwise": True})
        )
    emit(artifacts, contract, tmp_path)
    assert lint_repository(tmp_path) == []


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_the_models_of_user_ahead_are_clean(tmp_path: Path, target: str) -> None:
    contract = make_contract(target)
    emit(make_artifacts(contract, user_ahead=make_ahead(contract)), contract, tmp_path)
    # The stand-ins for their networks (ahead_helpers) have the inputs of the whole one.
    assert [finding for finding in lint_repository(tmp_path) if "_dnn_slice: " not in finding.where] == []


def test_the_fused_layout_is_clean(tmp_path: Path) -> None:
    contract = make_contract(layout="fused")
    emit(make_artifacts(contract), contract, tmp_path)
    assert lint_repository(tmp_path) == []


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LintError, match="holds no model"):
        lint_repository(tmp_path)
    with pytest.raises(LintError, match="cannot be read: No such file"):
        lint_repository(tmp_path / "nothing")
