"""Variants of an ensemble, and what several load generators saw together."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig

from driver import Window
from instances import base_of, merged, shares, summary
from instances_plot import draw
from instances_variants import Variant, write_variant
from jemalloc import Side
from jemalloc import summary as compare_allocators


@pytest.mark.parametrize(
    ("text", "numbers"), [("2+1x4", (2, 1, 4)), ("4+8n", (4, 8, 0)), ("10+12x1", (10, 12, 1))]
)
def test_a_variant_is_read_and_written(text: str, numbers: tuple[int, int, int]) -> None:
    variant = Variant.parse(text)
    assert (variant.preprocess, variant.dnn, variant.threads) == numbers
    assert str(variant) == text


@pytest.mark.parametrize("text", ["", "2", "2+1", "0+1x1", "1+1x0", "1+1nx", "1x1"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not PREPROCESS"):
        Variant.parse(text)


def repository(folder: Path) -> Path:
    configs = {
        "ads": 'name: "ads" platform: "ensemble" ensemble_scheduling { step { model_name: "ads_preprocess" }'
        ' step { model_name: "ads_dnn" } }',
        "ads_preprocess": 'name: "ads_preprocess" instance_group { count: 1 }',
        "ads_dnn": 'name: "ads_dnn" instance_group { count: 1 }'
        ' parameters { key: "intra_op_threads" value { string_value: "1" } }',
    }
    for name, text in configs.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(f"# a comment\n{text}\n")
        (folder / name / "1" / "model.py").write_text(name)
    (folder / "ads" / "bireme.json").write_text("{}")
    return folder


def read(folder: Path, name: str) -> ModelConfig:
    config = text_format.Parse((folder / name / "config.pbtxt").read_text(), ModelConfig())
    assert config.name == name
    return config


def test_a_variant_stands_beside_the_original(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    name = write_variant(folder, "ads", Variant(3, 2, 5))
    steps = [step.model_name for step in read(folder, name).ensemble_scheduling.step]
    assert steps == [f"{name}_preprocess", f"{name}_dnn"]
    assert read(folder, f"{name}_preprocess").instance_group[0].count == 3
    dnn = read(folder, f"{name}_dnn")
    assert dnn.instance_group[0].count == 2
    assert dnn.parameters["intra_op_threads"].string_value == "5"
    assert not (folder / name / "bireme.json").exists()
    # The original is as it was, and what is large is not there twice.
    assert read(folder, "ads_dnn").instance_group[0].count == 1
    assert (folder / "ads" / "bireme.json").exists()
    assert (folder / f"{name}_dnn/1/model.py").samefile(folder / "ads_dnn/1/model.py")


def test_a_dnn_that_costs_nothing_replaces_only_the_copy(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    name = write_variant(folder, "ads", Variant.parse("1+4n"))
    assert "np.zeros" in (folder / f"{name}_dnn/1/model.py").read_text()
    assert (folder / "ads_dnn/1/model.py").read_text() == "ads_dnn"


def window(requests: int, p99: float = 2.0, cpu: float = 1.0, client: float = 0.5) -> Window:
    return Window(requests, 2.0, 1.0, p99, {"server": cpu, "ads_dnn": cpu}, client, 3.0)


def test_load_generators_count_the_same_processes() -> None:
    both = merged([window(100, p99=2.0, cpu=1.0), window(300, p99=5.0, cpu=1.2)])
    assert (both.requests, both.seconds, both.p99) == (400, 2.0, 5.0)
    assert both.cpu == pytest.approx({"server": 1.1, "ads_dnn": 1.1})
    assert both.client == 1.0
    assert both.others == pytest.approx(2.5)  # 3.0, of which 0.5 was the other generator
    assert merged([window(100)]) == window(100)


def test_clients_are_shared_out() -> None:
    assert shares(8, 3) == [3, 3, 2]
    assert shares(1, 2) == [1, 0]


def test_ratios_are_to_the_first_variant_with_such_a_dnn() -> None:
    variants = [Variant.parse(text) for text in ("1+1x1", "2+1x1", "1+4n", "2+4n")]
    assert [str(base_of(one, variants)) for one in variants] == ["1+1x1", "1+1x1", "1+4n", "1+4n"]
    rounds = {
        one: [window(100 * factor, p99=2.0 * factor)] * 2
        for one, factor in zip(variants, (1, 3, 1, 2), strict=True)
    }
    rows = {row["variant"]: row for row in summary({(500, 4): rounds})}
    assert rows["2+1x1"]["ratios"]["throughput"]["median"] == 3
    assert rows["2+1x1"]["ratios"]["p99"]["median"] == pytest.approx(1 / 3)
    assert rows["2+4n"]["ratios"]["cpu"]["median"] == 2
    assert rows["1+1x1"]["cpu_ms"] == pytest.approx({"server": 10.0, "dnn": 10.0})
    machine = {"processor": "p", "cores": 2}
    figure = draw(list(rows.values()), machine, {"rounds": 2, "seconds": 2.0})
    assert len(figure.axes) == 3


def test_above_one_jemalloc_is_better() -> None:
    system = Side([window(100)] * 2, [{"server": 60, "ads_dnn": 60}] * 2)
    jemalloc = Side([window(200)] * 2, [{"server": 40, "ads_dnn": 40}] * 2)
    result = compare_allocators({"system": system, "jemalloc": jemalloc})
    assert result["ratios"]["throughput"]["median"] == 2
    assert result["ratios"]["cpu"]["median"] == 2
    assert result["ratios"]["rss"]["median"] == 1.5
