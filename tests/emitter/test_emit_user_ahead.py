"""The models of --user-ahead: what their configs say, where files lie, and that nothing else changes."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from ahead_helpers import NAMES, make_ahead
from emitter_helpers import FEATURES, make_artifacts, make_contract, tree
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.emitter import Artifacts, check_repository, emit
from bireme.emitter.ahead_configs import ahead_configs
from bireme.errors import EmitError
from bireme.spec import Contract


def with_ahead(contract: Contract) -> Artifacts:
    return make_artifacts(contract, user_ahead=make_ahead(contract))


def configs(target: str) -> dict[str, ModelConfig]:
    contract = make_contract(target)
    return {config.name: config for config in ahead_configs(contract, make_ahead(contract))}


def tensors(fields: object) -> dict[str, list[int]]:
    return {tensor.name: list(tensor.dims) for tensor in fields}  # type: ignore[attr-defined]


def test_every_model_comes_before_the_ensemble_that_uses_it() -> None:
    for target in ("cpu", "gpu", "gpu-python"):
        assert tuple(configs(target)) == NAMES.all
        known = {"shop_postprocess"} if target == "gpu" else set()
        for name, config in configs(target).items():
            assert {step.model_name for step in config.ensemble_scheduling.step} <= known
            known.add(name)


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_the_user_model_takes_user_features_and_caches_its_answers(target: str) -> None:
    all_of_them = configs(target)
    user = all_of_them[NAMES.user]
    # `clicked` is pooled into a column of the items: a cross, which the user's half does not need.
    assert tensors(user.input) == {"user_id": [1]}
    assert tensors(user.output) == {"user_state": [12]}
    assert user.response_cache.enable
    assert not any(config.response_cache.enable for name, config in all_of_them.items() if name != NAMES.user)
    assert tensors(all_of_them[NAMES.user_preprocess].output) == {"user": [8]}


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_a_slice_takes_the_state_and_item_features(target: str) -> None:
    piece = configs(target)[NAMES.slice]
    assert tensors(piece.input) == {"clicked": [-1], "price": [-1], "user_state": [-1]}
    assert all(tensor.optional for tensor in piece.input)
    assert tensors(piece.output) == {"ctr": [-1], "cvr": [-1]}
    described = json.loads(piece.parameters["bireme_state"].string_value)
    assert described == {"made_by": "shop_user", "marks": [1, 2, 3, 4], "name": "user_state", "width": 12}
    steps = [step.model_name for step in piece.ensemble_scheduling.step]
    assert steps == [NAMES.slice_preprocess, NAMES.slice_dnn, *(["shop_postprocess"] * (target == "gpu"))]


def test_ensembles_map_every_tensor_that_their_steps_have() -> None:
    for target in ("cpu", "gpu", "gpu-python"):
        known = configs(target)
        for name in (NAMES.user, NAMES.slice):
            for step in known[name].ensemble_scheduling.step:
                if step.model_name in known:
                    model = known[step.model_name]
                    assert set(step.input_map) == set(tensors(model.input))
                    assert set(step.output_map) == set(tensors(model.output))


def test_an_engine_for_each_part_with_graphs_of_both_inputs() -> None:
    known = configs("gpu")
    for name in (NAMES.user_dnn, NAMES.slice_dnn):
        assert known[name].platform == "tensorrt_plan"
        assert known[name].optimization.cuda.graphs
    sizes = [
        (spec.graph_lower_bound.batch_size, spec.batch_size)
        for spec in known[NAMES.user_dnn].optimization.cuda.graph_spec
    ]
    assert sizes == [(1, 1), (2, 2), (3, 4), (5, 6)]  # every number of users up to 6
    graphs = known[NAMES.slice_dnn].optimization.cuda.graph_spec
    for spec in graphs:
        for shapes in (spec.input, spec.graph_lower_bound.input):
            assert list(shapes["user_state"].dim) == [12]
            assert list(shapes["items"].dim)[1:] == [9]
    assert len(graphs) == 4 * 2  # those sizes, for each bucket
    # The state is FP32 wherever it is computed; what is handed over inside an ensemble is not.
    types = {tensor.name: tensor.data_type for tensor in known[NAMES.slice_dnn].input}
    assert types == {"user_state": 11, "items": 10}  # TYPE_FP32, TYPE_FP16


def test_processes_on_a_gpu_capture_graphs_of_both_parts(repository: Path) -> None:
    known = configs("gpu-python")
    for name, graphs in (
        (NAMES.user_dnn, "1,2,4,6"),
        (NAMES.slice_dnn, "1x4,1x16,2x4,2x16,4x4,4x16,6x4,6x16"),
    ):
        assert known[name].backend == "python"
        assert known[name].parameters["graphs"].string_value == graphs
    assert [tensor.allow_ragged_batch for tensor in known[NAMES.slice_dnn].input] == [False, True]
    assert "n" not in tensors(known[NAMES.slice_preprocess].output)
    contract = make_contract("gpu-python")
    emit(with_ahead(contract), contract, repository)
    for name in (NAMES.user_dnn, NAMES.slice_dnn):
        assert (repository / name / "1/model.py").read_bytes() == b"# dnn_gpu\n"
        assert (repository / name / "1/BUILD_PLAN.txt").is_file()


def test_tables_are_the_same_files_under_other_names(repository: Path) -> None:
    contract = make_contract()
    folders = emit(with_ahead(contract), contract, repository)
    assert [folder.name for folder in folders] == ["shop_preprocess", "shop_dnn", *NAMES.all, "shop"]
    whole = repository / "shop_preprocess/1"
    for model in (NAMES.user_preprocess, NAMES.slice_preprocess):
        assert (repository / model / "1/arena_float32_8.bin").samefile(whole / "arena_float32_8.bin")
    assert (repository / NAMES.slice_preprocess / "1/words.vocab").samefile(whole / "words.vocab")
    assert not (repository / NAMES.user_preprocess / "1/words.vocab").exists()
    check_repository(repository, "shop", deep=True)


def test_every_build_of_the_user_model_has_a_version_of_its_own(repository: Path) -> None:
    """Or the response cache would answer with the states of the build before."""
    contract = make_contract()
    versions = []
    for marks in ((1, 2, 3, 4), (1, 2, 3, 5), (2047, 2047, 2047, 2047)):
        ahead = dataclasses.replace(make_ahead(contract), marks=marks)
        emit(make_artifacts(contract, user_ahead=ahead), contract, repository)
        (folder,) = (path for path in (repository / NAMES.user).iterdir() if path.is_dir())
        versions.append(int(folder.name))
    assert len(set(versions)) == 3
    assert all(0 < version <= 2**31 for version in versions)


def test_without_hard_links_they_are_copies(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not here")

    monkeypatch.setattr("os.link", refuse)
    contract = make_contract()
    emit(with_ahead(contract), contract, repository)
    whole = (repository / "shop_preprocess/1/words.vocab").read_bytes()
    assert (repository / NAMES.slice_preprocess / "1/words.vocab").read_bytes() == whole


def test_the_gpu_target_says_how_to_build_both_engines(repository: Path) -> None:
    contract = make_contract("gpu")
    emit(with_ahead(contract), contract, repository)
    user = (repository / NAMES.user_dnn / "1/BUILD_PLAN.txt").read_text()
    assert "--minShapes=user:1x8" in user
    assert "--maxShapes=user:6x8" in user
    piece = (repository / NAMES.slice_dnn / "1/BUILD_PLAN.txt").read_text()
    assert "--maxShapes=user_state:6x12,items:6x16x9" in piece


def test_nothing_else_changes_and_a_build_without_it_takes_it_away(repository: Path) -> None:
    contract = make_contract()
    emit(make_artifacts(contract), contract, repository)
    before = tree(repository)
    emit(with_ahead(contract), contract, repository)
    after = tree(repository)
    kept = {name for name in before if not name.endswith("bireme.json")}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    emit(make_artifacts(contract), contract, repository)
    assert tree(repository) == before


def test_an_ensemble_of_that_very_name_is_never_replaced(repository: Path) -> None:
    other = make_contract(model="shop_user")
    emit(make_artifacts(other), other, repository)
    before = tree(repository)
    contract = make_contract()
    with pytest.raises(EmitError, match="shop_user: exists and was not made by bireme"):
        emit(with_ahead(contract), contract, repository)
    emit(make_artifacts(contract), contract, repository)
    after = tree(repository)
    assert {name: after[name] for name in before} == before
    # And the other way round.
    for folder in repository.iterdir():
        shutil.rmtree(folder)
    emit(with_ahead(contract), contract, repository)
    with pytest.raises(EmitError, match="shop_user: exists and was not made by bireme"):
        emit(make_artifacts(other), other, repository)


def test_the_helpers_have_a_cross() -> None:
    """What the tests above rest on."""
    assert [feature.name for feature in FEATURES if feature.side == "user"] == ["user_id", "clicked"]
