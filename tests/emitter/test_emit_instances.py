"""Processes and threads: the rule, what the spec overrides, and where the numbers end up."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from emitter_helpers import make_artifacts, make_contract
from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.emitter.instances import choose_instances, explain
from bireme.emitter.layout import emit
from bireme.spec import BuildSpec, Target
from bireme.spec_instances import Instances


def spec(**fields: Any) -> BuildSpec:
    return BuildSpec.model_validate({"model": "shop", "saved_model": "x", "user": [], **fields})


@pytest.mark.parametrize(
    ("cores", "numbers"),
    [
        (1, (1, 1, 1)),
        (2, (1, 1, 1)),
        (3, (1, 2, 1)),
        (4, (1, 3, 1)),
        (8, (2, 3, 2)),
        (16, (4, 3, 4)),
        (32, (8, 6, 4)),
    ],
)
def test_the_rule_for_the_cpu(cores: int, numbers: tuple[int, int, int]) -> None:
    chosen = choose_instances(spec(), "cpu", cores)
    assert (chosen.preprocess, chosen.dnn, chosen.dnn_threads) == numbers
    assert chosen.cores == cores


@pytest.mark.parametrize(("target", "dnn"), [("gpu", 2), ("gpu-python", 4)])
@pytest.mark.parametrize(("cores", "preprocess"), [(1, 1), (4, 1), (8, 2), (16, 4), (64, 16)])
def test_the_rule_for_the_gpu(target: Target, dnn: int, cores: int, preprocess: int) -> None:
    assert choose_instances(spec(), target, cores) == Instances(cores=cores, preprocess=preprocess, dnn=dnn)


def test_more_cores_never_mean_less() -> None:
    chosen = [choose_instances(spec(), "cpu", cores) for cores in range(1, 130)]
    assert all(a.preprocess <= b.preprocess for a, b in itertools.pairwise(chosen))
    for one in chosen:
        assert one.dnn_threads is not None
        assert one.dnn * one.dnn_threads <= max(1, 3 * one.cores // 4)


def test_the_specs_cores_count_not_the_machines() -> None:
    assert choose_instances(spec(cores=32), "cpu", 2) == choose_instances(spec(), "cpu", 32)


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        ({"preprocess_instances": 7}, (7, 3, 4)),
        ({"dnn_threads": 1}, (4, 12, 1)),
        ({"dnn_threads": 12}, (4, 1, 12)),
        ({"dnn_threads": 20}, (4, 1, 20)),
        ({"dnn_instances": 6}, (4, 6, 2)),
        ({"dnn_instances": 1}, (4, 1, 4)),
        ({"dnn_instances": 50}, (4, 50, 1)),
        ({"dnn_instances": 2, "dnn_threads": 3}, (4, 2, 3)),
    ],
)
def test_what_the_spec_says_stands_and_the_rest_follows(
    fields: dict[str, int], numbers: tuple[int, int, int]
) -> None:
    chosen = choose_instances(spec(**fields), "cpu", 16)
    assert (chosen.preprocess, chosen.dnn, chosen.dnn_threads) == numbers


@pytest.mark.parametrize(
    ("cores", "numbers"), [(1, (1, 1)), (2, (2, 1)), (4, (4, 1)), (8, (4, 2)), (16, (4, 4))]
)
def test_the_rule_for_one_fused_model(cores: int, numbers: tuple[int, int]) -> None:
    chosen = choose_instances(spec(layout="fused"), "cpu", cores)
    assert (chosen.preprocess, chosen.dnn, chosen.dnn_threads) == (0, *numbers)


def test_overrides_of_the_fused_layout() -> None:
    given = spec(layout="fused", cores=16, dnn_instances=2, preprocess_instances=3)
    chosen = choose_instances(given, "cpu", 1)
    assert chosen == Instances(cores=16, preprocess=0, dnn=2, dnn_threads=4)
    assert explain(chosen, given, "cpu") == (
        "instances for 16 cores (as the spec says): 2 processes of 4 threads;"
        " `preprocess_instances` has no meaning in the fused layout"
    )


def test_numbers_of_processes_do_not_decide_the_scores() -> None:
    given = spec(cores=3, preprocess_instances=2, dnn_instances=2, dnn_threads=2)
    assert given.served() == spec().served()


def test_overrides_of_the_gpu_target() -> None:
    chosen = choose_instances(spec(dnn_instances=4, preprocess_instances=1, dnn_threads=8), "gpu", 16)
    assert chosen == Instances(cores=16, preprocess=1, dnn=4)


@pytest.mark.parametrize(
    ("fields", "target", "line"),
    [
        (
            {},
            "cpu",
            "instances for 2 cores (usable here; for another machine: `cores` in the spec):"
            " 1 preprocess process, 1 DNN process of 1 thread",
        ),
        (
            {"cores": 16},
            "cpu",
            "instances for 16 cores (as the spec says): 4 preprocess processes, 3 DNN processes of 4 threads",
        ),
        (
            {"cores": 1, "dnn_threads": 2},
            "gpu",
            "instances for 1 core (as the spec says): 1 preprocess process, 2 DNN contexts a GPU;"
            " `dnn_threads` has no meaning on a GPU",
        ),
        (
            {"cores": 8},
            "gpu-python",
            "instances for 8 cores (as the spec says): 2 preprocess processes, 4 DNN processes a GPU",
        ),
    ],
)
def test_the_build_says_what_it_assumes(fields: dict[str, int], target: Target, line: str) -> None:
    given = spec(**fields)
    assert explain(choose_instances(given, target, 2), given, target) == line


def read(repository: Path, model: str) -> Any:
    return text_format.Parse((repository / model / "config.pbtxt").read_text(), ModelConfig())


def test_the_numbers_reach_configs_comment_and_manifest(tmp_path: Path) -> None:
    contract = make_contract("cpu", instances=Instances(cores=24, preprocess=6, dnn=4, dnn_threads=3))
    emit(make_artifacts(contract), contract, tmp_path)
    assert read(tmp_path, "shop_preprocess").instance_group[0].count == 6
    dnn = read(tmp_path, "shop_dnn")
    assert dnn.instance_group[0].count == 4
    assert dnn.parameters["intra_op_threads"].string_value == "3"
    assert "for 24 cores" in (tmp_path / "shop_dnn" / "config.pbtxt").read_text()
    manifest = json.loads((tmp_path / "shop" / "bireme.json").read_text())
    assert manifest["instances"] == {"cores": 24, "preprocess": 6, "dnn": 4, "dnn_threads": 3}


def test_processes_of_the_fused_model(tmp_path: Path) -> None:
    numbers = Instances(cores=8, preprocess=0, dnn=4, dnn_threads=2)
    contract = make_contract("cpu", layout="fused", instances=numbers)
    emit(make_artifacts(contract), contract, tmp_path)
    config = read(tmp_path, "shop")
    assert config.instance_group[0].count == 4
    assert config.parameters["intra_op_threads"].string_value == "2"


def test_contexts_of_the_gpu(tmp_path: Path) -> None:
    contract = make_contract("gpu", instances=Instances(cores=8, preprocess=3, dnn=5))
    emit(make_artifacts(contract), contract, tmp_path)
    assert read(tmp_path, "shop_preprocess").instance_group[0].count == 3
    assert read(tmp_path, "shop_dnn").instance_group[0].count == 5
