"""What the config.pbtxt of the models of `--user-ahead` say; configs*.py have the reasons that they share."""

from __future__ import annotations

import json

from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.ahead import AheadNames, UserAhead
from bireme.emitter.config_parts import (
    WIRE,
    DenseTensors,
    add_scores,
    dense_tensors,
    describe_features,
    feature_inputs,
    merge_what_waits,
    on_cpu,
)
from bireme.emitter.configs import connect_scores, network_config
from bireme.emitter.tensors import COUNT, ITEMS, USER, padded_names, unused_all
from bireme.spec import Contract
from bireme_runtime.user_state import STATE_PARAMETER

__all__ = ["ahead_configs"]

# Called once where the slices are called ten times.
_USER_INSTANCES = 1


def ahead_configs(contract: Contract, ahead: UserAhead) -> list[ModelConfig]:
    """The models of the user side and of the slices, each ensemble behind its parts.

    Args:
        contract: of the one-shot ensemble; its `postprocess` serves the slices too.
        ahead: what the compiler made.
    """
    names = AheadNames(contract.model)
    return [
        _user_preprocess(contract, ahead, names),
        _user_dnn(contract, ahead, names),
        _user_ensemble(contract, ahead, names),
        _slice_preprocess(contract, ahead, names),
        _slice_dnn(contract, ahead, names),
        _slice_ensemble(contract, ahead, names),
    ]


def _user_contract(contract: Contract, ahead: UserAhead) -> Contract:
    return contract.model_copy(update={"features": ahead.user_plan.features})


def _slice_contract(contract: Contract, ahead: UserAhead) -> Contract:
    return contract.model_copy(update={"features": ahead.slice_plan.features})


def _preprocess(name: str, contract: Contract, instances: int) -> ModelConfig:
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=contract.max_users,
        input=feature_inputs(contract, ragged=True),
    )
    on_cpu(config, instances)
    merge_what_waits(config)
    return config


def _user_preprocess(contract: Contract, ahead: UserAhead, names: AheadNames) -> ModelConfig:
    config = _preprocess(names.user_preprocess, _user_contract(contract, ahead), _USER_INSTANCES)
    config.output.add(name=USER, data_type=WIRE[contract.handover], dims=[contract.user_width])
    return config


def _slice_preprocess(contract: Contract, ahead: UserAhead, names: AheadNames) -> ModelConfig:
    """Takes a state of any width, so that a wrong one is refused in words, alone, and by this model."""
    config = _preprocess(
        names.slice_preprocess, _slice_contract(contract, ahead), contract.instances.preprocess
    )
    _add_state_input(config, ahead, ragged=True)
    config.output.add(name=ITEMS, data_type=WIRE[contract.handover], dims=[-1, contract.item_width])
    if contract.padded:
        config.output.add(name=COUNT, data_type="TYPE_INT32", dims=[1])
    _describe_state(config, ahead, names)
    return config


def _add_state_input(config: ModelConfig, ahead: UserAhead, ragged: bool) -> None:
    # Optional like every feature: Triton 2.51 says "unexpected deadlock" where a required one lacks.
    config.input.add(
        name=ahead.state, data_type="TYPE_FP32", dims=[-1], optional=True, allow_ragged_batch=ragged
    )


def _describe_state(config: ModelConfig, ahead: UserAhead, names: AheadNames) -> None:
    """For clients, and for the model that checks what they hand back."""
    described = {"name": ahead.state, "width": ahead.width, "marks": ahead.marks, "made_by": names.user}
    config.parameters[STATE_PARAMETER].string_value = json.dumps(described, sort_keys=True)


def _user_dnn(contract: Contract, ahead: UserAhead, names: AheadNames) -> ModelConfig:
    tensors = DenseTensors(
        inputs={USER: (WIRE[contract.handover], [contract.user_width])},
        # FP32 even from a GPU: one row a user costs nothing, and what lies behind the cut sees the same.
        outputs={ahead.state: ("TYPE_FP32", [ahead.width])},
    )
    return network_config(names.user_dnn, tensors, contract)


def _slice_dnn(contract: Contract, ahead: UserAhead, names: AheadNames) -> ModelConfig:
    tensors = DenseTensors(
        inputs={
            ahead.state: ("TYPE_FP32", [ahead.width]),
            ITEMS: (WIRE[contract.handover], [-1, contract.item_width]),
        },
        outputs=dense_tensors(contract).outputs,
    )
    return network_config(names.slice_dnn, tensors, contract)


def _user_ensemble(contract: Contract, ahead: UserAhead, names: AheadNames) -> ModelConfig:
    """User features → state. The same user asked again is answered from the response cache, if there is one.

    Triton ignores `response_cache` without --cache-config; `bireme serve` gives it.
    """
    half = _user_contract(contract, ahead)
    config = _ensemble(names.user, half)
    config.output.add(name=ahead.state, data_type="TYPE_FP32", dims=[ahead.width])
    config.response_cache.enable = True
    _describe_state(config, ahead, names)
    (user,) = unused_all([USER], {ahead.state, *(feature.name for feature in half.features)})
    preprocess = config.ensemble_scheduling.step.add(model_name=names.user_preprocess, model_version=-1)
    preprocess.input_map.update({feature.name: feature.name for feature in half.features})
    preprocess.output_map[USER] = user
    dnn = config.ensemble_scheduling.step.add(model_name=names.user_dnn, model_version=-1)
    dnn.input_map[USER] = user
    dnn.output_map[ahead.state] = ahead.state
    return config


def _slice_ensemble(contract: Contract, ahead: UserAhead, names: AheadNames) -> ModelConfig:
    half = _slice_contract(contract, ahead)
    config = _ensemble(names.slice, half)
    _add_state_input(config, ahead, ragged=False)
    add_scores(config, contract, [-1])
    _describe_state(config, ahead, names)
    taken = {ahead.state, *contract.tasks, *(feature.name for feature in half.features)}
    items, count, *rest = unused_all([ITEMS, COUNT, *padded_names(contract).values()], taken)
    padded = dict(zip(contract.tasks, rest, strict=True))
    preprocess = config.ensemble_scheduling.step.add(model_name=names.slice_preprocess, model_version=-1)
    preprocess.input_map.update({feature.name: feature.name for feature in half.features})
    preprocess.input_map[ahead.state] = ahead.state
    preprocess.output_map[ITEMS] = items
    dnn = config.ensemble_scheduling.step.add(model_name=names.slice_dnn, model_version=-1)
    dnn.input_map.update({ahead.state: ahead.state, ITEMS: items})
    connect_scores(config, contract, padded, count)
    return config


def _ensemble(name: str, half: Contract) -> ModelConfig:
    config = ModelConfig(
        name=name,
        platform="ensemble",
        max_batch_size=half.max_users,
        input=feature_inputs(half, ragged=False),
    )
    describe_features(config, half)
    return config
