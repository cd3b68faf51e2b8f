from __future__ import annotations

import pytest
from emitter_helpers import make_contract
from hypothesis import example, given
from hypothesis import strategies as st
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInstanceGroup

from bireme.emitter.configs import model_configs
from bireme.errors import EmitError
from bireme_runtime.plan import Feature, Side

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
# Names that the ensemble uses between its steps, or would step aside to.
CLASHING = st.sampled_from(
    ["user", "items", "n", "user_", "n_", "padded_ctr", "padded_ctr_", "padded_a", "a"]
)


def configs(target: str, **changes: object) -> dict[str, ModelConfig]:
    contract = make_contract(target, **changes)
    return {config.name.removeprefix(contract.model): config for config in model_configs(contract)}


def inputs(config: ModelConfig) -> dict[str, tuple[str, list[int], bool, bool]]:
    return {
        tensor.name: (
            DataType.Name(tensor.data_type),
            list(tensor.dims),
            tensor.allow_ragged_batch,
            tensor.optional,
        )
        for tensor in config.input
    }


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_features_become_inputs_without_the_users_dimension(target: str) -> None:
    preprocess = configs(target)["_preprocess"]
    assert inputs(preprocess) == {
        "user_id": ("TYPE_STRING", [1], False, True),
        "clicked": ("TYPE_STRING", [-1], True, True),
        "price": ("TYPE_FP32", [-1], True, True),
        "tags": ("TYPE_INT64", [-1, 3], True, True),
        "seen": ("TYPE_BOOL", [-1, -1], True, True),
    }
    assert preprocess.max_batch_size == 6
    assert preprocess.HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("dtype", "wire"),
    [
        ("string", "STRING"),
        ("int32", "INT32"),
        ("int64", "INT64"),
        ("float32", "FP32"),
        ("float64", "FP64"),
        ("bool", "BOOL"),
    ],
)
def test_every_dtype_of_a_feature_has_its_wire_type(dtype: str, wire: str) -> None:
    made = configs("cpu", features=(Feature("f", "user", dtype, 5),))
    assert inputs(made["_preprocess"])["f"] == (f"TYPE_{wire}", [5], False, True)


@pytest.mark.parametrize(("side", "dims"), [("user", [-1]), ("item", [-1, -1])])
@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_a_length_that_is_filled_up_is_no_length_for_triton(target: str, side: Side, dims: list[int]) -> None:
    """Triton would refuse a shorter sequence before `preprocess` could fill it up."""
    others = make_contract(target).features
    made = configs(target, features=(*others, Feature("f", side, "int64", 5, padding=0)))
    assert inputs(made["_preprocess"])["f"] == ("TYPE_INT64", dims, True, True)
    assert inputs(made[""])["f"][:2] == ("TYPE_INT64", dims)


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_every_input_reaches_preprocess_which_names_a_missing_one(target: str) -> None:
    made = configs(target)
    for name in ("", "_preprocess"):
        assert all(flag for *_, flag in inputs(made[name]).values())


def test_cpu_has_two_python_steps_on_the_cpu() -> None:
    made = configs("cpu")
    assert list(made) == ["_preprocess", "_dnn", ""]
    for part in ("_preprocess", "_dnn"):
        assert made[part].backend == "python"
        assert [group.kind for group in made[part].instance_group] == [ModelInstanceGroup.KIND_CPU]
    assert inputs(made["_dnn"]) == {
        "user": ("TYPE_FP32", [8], False, False),
        "items": ("TYPE_FP32", [-1, 9], True, False),
    }
    assert [(out.name, list(out.dims)) for out in made["_dnn"].output] == [("ctr", [-1]), ("cvr", [-1])]


def test_gpu_pads_in_preprocess_and_trims_in_a_model_that_cannot_batch() -> None:
    made = configs("gpu")
    assert list(made) == ["_preprocess", "_dnn", "_postprocess", ""]
    assert [
        (out.name, DataType.Name(out.data_type), list(out.dims)) for out in made["_preprocess"].output
    ] == [
        ("user", "TYPE_FP16", [8]),
        ("items", "TYPE_FP16", [-1, 9]),
        ("n", "TYPE_INT32", [1]),
    ]
    assert made["_dnn"].platform == "tensorrt_plan"
    assert made["_dnn"].default_model_filename == "model.plan"
    assert not any(ragged for _, _, ragged, _ in inputs(made["_dnn"]).values())
    assert [(group.kind, group.count) for group in made["_dnn"].instance_group] == [
        (ModelInstanceGroup.KIND_GPU, 2)
    ]
    trim = made["_postprocess"]
    assert trim.max_batch_size == 0
    assert not trim.HasField("dynamic_batching")
    # ONNX Runtime's auto-complete leaves a config alone only if it lists inputs and outputs.
    assert inputs(trim)["n"] == ("TYPE_INT32", [-1, 1], False, False)
    assert [(out.name, list(out.dims)) for out in trim.output] == [("ctr", [-1, -1]), ("cvr", [-1, -1])]


def test_a_gpu_without_its_cpp_backend_has_two_python_steps() -> None:
    made = configs("gpu-python")
    assert list(made) == ["_preprocess", "_dnn", ""]
    assert [out.name for out in made["_preprocess"].output] == ["user", "items"]  # no count: it does not pad
    dnn = made["_dnn"]
    assert (dnn.backend, dnn.platform) == ("python", "")
    assert [(group.kind, group.count) for group in dnn.instance_group] == [(ModelInstanceGroup.KIND_GPU, 4)]
    assert inputs(dnn) == {
        "user": ("TYPE_FP16", [8], False, False),
        "items": ("TYPE_FP16", [-1, 9], True, False),
    }
    assert dnn.HasField("dynamic_batching")
    assert not dnn.HasField("optimization")  # the Python backend would ignore it
    parameters = {name: value.string_value for name, value in dnn.parameters.items()}
    assert parameters == {
        "buckets": "4,16",
        "graphs": "1x4,1x16,2x4,2x16,4x4,4x16,6x4,6x16",
        "lanes": "2",
    }
    assert configs("gpu-python", listwise=True)["_dnn"].parameters["listwise"].string_value == "true"


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_the_ensemble_is_last_and_has_no_batching_or_instances(target: str) -> None:
    ensemble = list(configs(target).values())[-1]
    assert ensemble.name == "shop"
    assert ensemble.platform == "ensemble"
    assert not ensemble.instance_group
    assert not ensemble.HasField("dynamic_batching")
    assert not ensemble.HasField("optimization")


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
@given(
    features=st.lists(NAMES | CLASHING, min_size=1, max_size=8, unique=True),
    tasks=st.lists(NAMES | CLASHING, min_size=1, max_size=4, unique=True),
)
@example(features=["padded_a", "user", "user_"], tasks=["a", "a_"])
def test_ensemble_tensors_are_written_once_and_read(
    target: str, features: list[str], tasks: list[str]
) -> None:
    tasks = [task for task in tasks if task not in {*features, "user", "items", "n"}] or ["score_of_all"]
    made = configs(
        target, features=tuple(Feature(name, "user", "int64") for name in features), tasks=tuple(tasks)
    )
    by_name = {config.name: config for config in made.values()}
    written = list(features)
    for step in made[""].ensemble_scheduling.step:
        inner = by_name[step.model_name]
        assert set(step.input_map) == {tensor.name for tensor in inner.input}
        assert set(step.output_map) == {tensor.name for tensor in inner.output}
        assert set(step.input_map.values()) <= set(written)
        written += step.output_map.values()
    assert len(written) == len(set(written))
    assert set(tasks) <= set(written)
    assert {tensor.name for tensor in made[""].output} == set(tasks)
    read = {name for step in made[""].ensemble_scheduling.step for name in step.input_map.values()}
    assert set(written) == read | set(tasks)


def test_the_fused_model_takes_and_gives_what_the_ensemble_does() -> None:
    ensemble = configs("cpu")
    made = configs("cpu", layout="fused")
    assert list(made) == [""]
    fused = made[""]
    assert (fused.backend, fused.platform) == ("python", "")
    # Ragged as in the first step: without it Triton merges hardly any requests.
    assert inputs(fused) == inputs(ensemble["_preprocess"])
    assert list(fused.output) == list(ensemble[""].output)
    assert fused.max_batch_size == ensemble[""].max_batch_size
    assert fused.HasField("dynamic_batching")
    assert fused.parameters["bireme_features"] == ensemble[""].parameters["bireme_features"]
    for name in ("buckets", "intra_op_threads"):
        assert fused.parameters[name] == ensemble["_dnn"].parameters[name]
    assert "listwise" not in fused.parameters
    assert configs("cpu", layout="fused", listwise=True)[""].parameters["listwise"].string_value == "true"


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_where_nothing_of_the_user_is_handed_over_there_is_no_such_tensor(target: str) -> None:
    made = configs(target, user_width=0)
    assert [tensor.name for tensor in made["_dnn"].input] == ["items"]
    handed = ["items", "n"] if target == "gpu" else ["items"]
    assert [tensor.name for tensor in made["_preprocess"].output] == handed
    for graph in made["_dnn"].optimization.cuda.graph_spec:
        assert set(graph.input) == set(graph.graph_lower_bound.input) == {"items"}
    preprocess, dnn = made[""].ensemble_scheduling.step[:2]
    assert sorted(preprocess.output_map) == handed
    assert dict(dnn.input_map) == {"items": preprocess.output_map["items"]}


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        ({"model": "../shop"}, "../shop"),
        ({"model": "shop/x"}, "shop/x"),
        ({"model": "shop\n"}, "shop"),
        ({"features": ()}, "feature"),
        ({"tasks": ()}, "task"),
        ({"tasks": ("a", "a")}, "'a'"),
        ({"tasks": ("price",)}, "price"),
        ({"tasks": ("items",)}, "items"),
        ({"tasks": ("n",)}, "'n'"),
        ({"features": (Feature("", "user", "int64"),)}, "''"),
        ({"features": (Feature("\ud800", "user", "int64"),)}, "ud800"),
        ({"item_width": 0}, "items"),
    ],
)
def test_what_triton_could_not_load_is_refused_by_name(changes: dict[str, object], culprit: str) -> None:
    with pytest.raises(EmitError, match=culprit) as caught:
        model_configs(make_contract("gpu", **changes))
    assert caught.value.hint
