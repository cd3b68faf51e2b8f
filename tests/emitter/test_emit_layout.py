from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from emitter_helpers import make_artifacts, make_contract, make_dense, make_plan, tree, write_arena
from google.protobuf import text_format
from onnx import parser
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput

from bireme.ahead import UserAhead
from bireme.emitter import emit
from bireme.emitter.configs import model_configs
from bireme.emitter.manifest import check_repository, plan_folder
from bireme.errors import EmitError

CPU_TREE = {
    "shop": {
        "config.pbtxt",
        "bireme.json",
        "example_request.json",
        "report.json",
        "report.html",
        "1/README.txt",
    },
    "shop_preprocess": {
        "config.pbtxt",
        "1/model.py",
        "1/plan.json",
        "1/arena_float32_8.bin",
        "1/words.vocab",
        "1/bireme_runtime/__init__.py",
        "1/bireme_runtime/ops/take.py",
    },
    "shop_dnn": {
        "config.pbtxt",
        "1/model.py",
        "1/model.onnx",
        "1/bireme_runtime/__init__.py",
        "1/bireme_runtime/ops/take.py",
    },
}
GPU_TREE = CPU_TREE | {
    "shop_dnn": {"config.pbtxt", "1/model.onnx", "1/BUILD_PLAN.txt"},
    "shop_postprocess": {"config.pbtxt", "1/model.onnx"},
}
GPU_PYTHON_TREE = CPU_TREE | {"shop_dnn": CPU_TREE["shop_dnn"] | {"1/BUILD_PLAN.txt"}}

FUSED_TREE = {
    "shop": CPU_TREE["shop"] - {"1/README.txt"} | CPU_TREE["shop_preprocess"] | CPU_TREE["shop_dnn"],
}


def files(repository: Path) -> dict[str, set[str]]:
    return {
        model.name: {path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()}
        for model in repository.iterdir()
        if model.is_dir()
    }


@pytest.mark.parametrize(
    ("target", "expected"), [("cpu", CPU_TREE), ("gpu", GPU_TREE), ("gpu-python", GPU_PYTHON_TREE)]
)
def test_every_file_lies_where_triton_looks_for_it(
    repository: Path, target: str, expected: dict[str, set[str]]
) -> None:
    contract = make_contract(target)
    written = emit(make_artifacts(contract), contract, repository)
    assert files(repository) == expected
    assert {path.name for path in written} == set(expected)
    assert written[-1] == repository / "shop"
    for model in written:
        config = text_format.Parse((model / "config.pbtxt").read_text("utf-8"), ModelConfig())
        assert config.name == model.name


def test_contents_are_what_the_compiler_handed_over(repository: Path) -> None:
    contract = make_contract()
    artifacts = make_artifacts(contract)
    emit(artifacts, contract, repository)
    inner = repository / "shop_preprocess" / "1"
    assert type(artifacts.plan).read(inner / "plan.json") == artifacts.plan
    assert (inner / "arena_float32_8.bin").stat().st_size == 16 * 8 * 4
    assert (inner / "words.vocab").read_bytes() == b"shoe\nhat\n"
    assert (inner / "model.py").read_text() == "# preprocess\n"
    assert (repository / "shop_dnn/1/model.onnx").read_bytes() == artifacts.dense_onnx
    assert json.loads((repository / "shop/report.json").read_text()) == artifacts.report
    assert (repository / "shop/report.html").read_bytes() == artifacts.page
    assert json.loads((repository / "shop/example_request.json").read_text()) == artifacts.example_request


def test_network_without_a_user_tensor(repository: Path) -> None:
    contract = make_contract("gpu", user_width=0)
    emit(make_artifacts(contract), contract, repository)
    note = (repository / "shop_dnn/1/BUILD_PLAN.txt").read_text(encoding="utf-8")
    assert "--minShapes=items:1x4x9 " in note
    assert "user:" not in note
    taking_one = make_artifacts(contract, dense_onnx=make_dense(make_contract("gpu")))
    with pytest.raises(EmitError, match="takes user of rank 2, items of rank 3") as caught:
        emit(taking_one, contract, repository)
    assert caught.value.hint == "it must take items of rank 3"


def test_without_an_example_there_is_no_example_file(repository: Path) -> None:
    contract = make_contract()
    emit(make_artifacts(contract, example_request=None), contract, repository)
    assert not (repository / "shop/example_request.json").exists()


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_building_twice_gives_identical_trees_without_machine_paths(tmp_path: Path, target: str) -> None:
    contract = make_contract(target)
    first, second = tmp_path / "a" / "models", tmp_path / "other" / "repository"
    emit(make_artifacts(contract), contract, first)
    umask = os.umask(0o077)
    try:
        for _ in range(2):
            emit(make_artifacts(contract), contract, second)
    finally:
        os.umask(umask)
    assert tree(first) == tree(second)
    for path in first.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644)
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes()


def test_the_manifest_says_what_is_served_and_what_it_was_made_of(repository: Path) -> None:
    contract = make_contract("gpu")
    artifacts = make_artifacts(contract)
    emit(artifacts, contract, repository)
    manifest = json.loads((repository / "shop/bireme.json").read_text())
    assert manifest["models"] == ["shop_preprocess", "shop_dnn", "shop_postprocess", "shop"]
    assert manifest["source"] == artifacts.provenance
    assert (manifest["format"], manifest["model"], manifest["target"]) == (1, "shop", "gpu")
    assert [feature["name"] for feature in manifest["features"]] == [f.name for f in contract.features]
    listed = {tuple(name.split("/", 1)) for name in manifest["files"]}
    assert listed == {(m, f) for m, names in GPU_TREE.items() for f in names} - {("shop", "bireme.json")}
    for name, (_, digest) in tree(repository).items():
        assert manifest["files"].get(name, digest) == digest


def test_other_models_and_files_of_the_repository_are_not_touched(repository: Path) -> None:
    (repository / "shopping_dnn" / "1").mkdir(parents=True)
    (repository / "shopping_dnn" / "1" / "model.py").write_text("theirs")
    (repository / "README.md").write_text("hello")
    before = tree(repository)
    contract = make_contract()
    emit(make_artifacts(contract), contract, repository)
    after = tree(repository)
    assert {name: after[name] for name in before} == before
    assert sorted(path.name for path in repository.parent.iterdir()) == ["models"]


def test_two_ensembles_share_a_repository(repository: Path) -> None:
    for name in ("shop", "shop2"):
        contract = make_contract(model=name)
        emit(make_artifacts(contract), contract, repository)
    assert {"shop", "shop2", "shop_dnn", "shop2_dnn"} <= set(files(repository))


def test_a_rebuild_for_the_other_target_leaves_no_part_behind(repository: Path) -> None:
    trees = {"cpu": CPU_TREE, "gpu": GPU_TREE, "gpu-python": GPU_PYTHON_TREE}
    for target in ("gpu", "cpu", "gpu", "gpu-python", "gpu", "cpu", "gpu-python"):
        contract = make_contract(target)
        emit(make_artifacts(contract), contract, repository)
        assert files(repository) == trees[target]


def test_the_dense_network_has_the_model_py_of_its_target(repository: Path) -> None:
    for target, source in (("cpu", b"# dnn\n"), ("gpu-python", b"# dnn_gpu\n")):
        contract = make_contract(target)
        emit(make_artifacts(contract), contract, repository)
        assert (repository / "shop_dnn/1/model.py").read_bytes() == source


def test_the_fused_layout_is_one_model(repository: Path) -> None:
    contract = make_contract(layout="fused")
    artifacts = make_artifacts(contract)
    assert emit(artifacts, contract, repository) == [repository / "shop"]
    assert files(repository) == FUSED_TREE
    assert (repository / "shop/1/model.onnx").read_bytes() == artifacts.dense_onnx
    assert (repository / "shop/1/model.py").read_bytes() == b"# fused\n"
    assert plan_folder(repository, "shop") == repository / "shop/1"
    check_repository(repository, "shop", deep=True)


def test_a_rebuild_in_the_other_layout_leaves_no_part_behind(repository: Path) -> None:
    for layout, expected in (("ensemble", CPU_TREE), ("fused", FUSED_TREE), ("ensemble", CPU_TREE)):
        contract = make_contract(layout=layout)
        emit(make_artifacts(contract), contract, repository)
        assert files(repository) == expected
        assert (plan_folder(repository, "shop") / "plan.json").is_file()


def test_fused_is_for_the_cpu_target_and_without_user_ahead(repository: Path) -> None:
    for target in ("gpu", "gpu-python"):
        contract = make_contract(target, layout="fused")
        with pytest.raises(EmitError, match=f"shop: is fused for the {target} target"):
            emit(make_artifacts(contract), contract, repository)
    contract = make_contract(layout="fused")
    plan = make_plan(contract)
    ahead = UserAhead(plan, plan, b"", b"", "user_state", 4, (1,), (), ())
    with pytest.raises(EmitError, match="shop: is fused, which has no user side ahead of time"):
        emit(make_artifacts(contract, user_ahead=ahead), contract, repository)
    assert not repository.exists()


def test_a_folder_that_bireme_did_not_make_is_never_replaced(repository: Path) -> None:
    (repository / "shop_dnn").mkdir(parents=True)
    (repository / "shop_dnn" / "config.pbtxt").write_text('name: "shop_dnn"')
    contract = make_contract()
    before = tree(repository)
    with pytest.raises(EmitError, match="shop_dnn: exists and was not made by bireme"):
        emit(make_artifacts(contract), contract, repository)
    assert tree(repository) == before


def test_a_theirs_postprocess_survives_a_cpu_build(repository: Path) -> None:
    contract = make_contract()
    emit(make_artifacts(contract), contract, repository)
    (repository / "shop_postprocess").mkdir()
    (repository / "shop_postprocess" / "config.pbtxt").write_text('name: "shop_postprocess"')
    emit(make_artifacts(contract), contract, repository)
    assert (repository / "shop_postprocess" / "config.pbtxt").exists()


@pytest.mark.parametrize("damage", ["{", "[]", '{"models": 3}', ""])
def test_building_again_repairs_a_damaged_repository(repository: Path, damage: str) -> None:
    contract = make_contract()
    emit(make_artifacts(contract), contract, repository)
    whole = tree(repository)
    (repository / "shop/bireme.json").write_text(damage)
    (repository / "shop/config.pbtxt").unlink()
    emit(make_artifacts(contract), contract, repository)
    assert tree(repository) == whole


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/b",
        "/etc/x",
        "..",
        ".",
        "",
        ".hidden",
        "a\\b",
        "a\0",
        "\ud800",
        "model.py",
        "model.onnx",
        "plan.json",
        "bireme_runtime",
    ],
)
def test_a_file_name_that_could_escape_or_clash_is_refused(repository: Path, name: str) -> None:
    contract = make_contract()
    artifacts = make_artifacts(contract)
    with pytest.raises(EmitError):
        emit(make_artifacts(contract, files={**artifacts.files, name: b""}), contract, repository)
    assert not repository.exists()


def test_a_model_name_that_could_escape_is_refused(repository: Path) -> None:
    contract = make_contract(model="../shop")
    with pytest.raises(EmitError):
        emit(make_artifacts(contract), contract, repository)
    assert not repository.parent.joinpath("shop").exists()


@pytest.mark.parametrize("missing", ["arena_float32_8.bin", "words.vocab"])
def test_a_file_the_plan_names_must_be_there(repository: Path, missing: str) -> None:
    contract = make_contract()
    rest = {name: content for name, content in make_artifacts(contract).files.items() if name != missing}
    with pytest.raises(EmitError, match=missing):
        emit(make_artifacts(contract, files=rest), contract, repository)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": "shop2"}, "model"),
        ({"user_width": 7}, "user_width"),
        ({"item_width": 7}, "item_width"),
        ({"buckets": (4,)}, "buckets"),
        ({"target": "gpu"}, "handover"),
        ({"features": ()}, "features"),
    ],
)
def test_a_plan_of_another_contract_is_refused(
    repository: Path, change: dict[str, object], field: str
) -> None:
    contract = make_contract()
    other = make_plan(make_contract(**{"target": "cpu", **change}))
    with pytest.raises(EmitError, match=f"feature plan: {field}"):
        emit(make_artifacts(contract, plan=other), contract, repository)


def test_a_dense_network_of_another_contract_is_refused(repository: Path) -> None:
    contract = make_contract()
    other = make_dense(make_contract(tasks=("ctr", "other")))
    with pytest.raises(EmitError, match=r"dense ONNX: gives ctr, other"):
        emit(make_artifacts(contract, dense_onnx=other), contract, repository)
    with pytest.raises(EmitError, match="dense ONNX: is not an ONNX model"):
        emit(make_artifacts(contract, dense_onnx=b"\xff\xff"), contract, repository)
    with pytest.raises(EmitError, match="dense ONNX: takes"):
        emit(make_artifacts(contract, dense_onnx=b""), contract, repository)


@pytest.mark.parametrize("what", ["report", "provenance", "example_request"])
@pytest.mark.parametrize("value", [float("nan"), b"bytes", object()])
def test_what_json_cannot_hold_is_refused_by_name(repository: Path, what: str, value: object) -> None:
    contract = make_contract()
    with pytest.raises(EmitError, match=what):
        emit(make_artifacts(contract, **{what: {"x": value}}), contract, repository)


@pytest.mark.parametrize(("handover", "flags"), [("float32", "nothing: all is FP32"), ("float16", "--fp16")])
def test_the_note_on_the_plan_covers_every_captured_shape(
    repository: Path, handover: str, flags: str
) -> None:
    contract = make_contract("gpu", handover=handover)
    emit(make_artifacts(contract), contract, repository)
    note = (repository / "shop_dnn/1/BUILD_PLAN.txt").read_text()
    assert "--minShapes=user:1x8,items:1x4x9" in note
    assert "--maxShapes=user:6x8,items:6x16x9" in note
    assert "--stronglyTyped" in note
    assert "--model-load-thread-count=1" in note
    assert f"replace it by {flags}" in note


def test_the_note_names_the_nodes_that_stay_fp32(repository: Path) -> None:
    contract = make_contract("gpu", tasks=("ctr",))
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float16[u, 8] user, float16[u, n, 9] items) => (float[u, n] ctr) {
            [a] whole = Cast<to = 1>(items)
            [b] large = ReduceMax<axes = [2], keepdims = 0>(whole)
            [c] half = ReduceMax<axes = [2], keepdims = 0>(items)
            [d] back = Cast<to = 1>(half)
            [e] ctr = Add(large, back)
        }"""
    dense = parser.parse_model(text).SerializeToString()
    emit(make_artifacts(contract, dense_onnx=dense), contract, repository)
    note = (repository / "shop_dnn/1/BUILD_PLAN.txt").read_text()
    assert "--layerPrecisions=b:fp32,e:fp32\n" in note


def test_a_network_that_takes_another_type_than_preprocess_gives_is_refused(repository: Path) -> None:
    contract = make_contract("gpu")
    other = make_dense(make_contract("gpu", handover="float32"))
    with pytest.raises(EmitError, match=r"dense ONNX: takes user as FLOAT.*hands it over as FLOAT16"):
        emit(make_artifacts(contract, dense_onnx=other), contract, repository)


@pytest.mark.parametrize("handover", ["float16", "float32"])
def test_both_ends_of_the_hand_over_follow_the_contract(handover: str) -> None:
    preprocess, dnn, *_ = model_configs(make_contract("gpu", handover=handover))
    wanted = {"float16": "TYPE_FP16", "float32": "TYPE_FP32"}[handover]
    tensors = [*[o for o in preprocess.output if o.name != "n"], *dnn.input]
    assert {t.name: ModelInput(data_type=t.data_type) for t in tensors} == {
        "user": ModelInput(data_type=wanted),
        "items": ModelInput(data_type=wanted),
    }
    assert len(tensors) == 4


def test_a_writer_streams_straight_to_its_path(repository: Path) -> None:
    contract = make_contract()
    seen: list[Path] = []

    def writer(path: Path) -> None:
        seen.append(path)
        write_arena(path)

    files_ = {**make_artifacts(contract).files, "arena_float32_8.bin": writer}
    emit(make_artifacts(contract, files=files_), contract, repository)
    assert [path.name for path in seen] == ["arena_float32_8.bin"]
    assert not seen[0].exists()
    assert repository.resolve() not in seen[0].parents
