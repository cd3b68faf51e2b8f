"""Models written by others: DeepCTR 0.9.4, on Keras 2 (tf_keras), each as its authors' function builds it."""

from __future__ import annotations

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf
from deepctr import models
from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat
from subject_parts import Draw, Made, ids, numbers, randomise, words

_DIM = 8
_UNITS = (32, 16)
_LENGTH = 4
_CITIES = [f"city {i}" for i in range(30)]
#: field → rows of its table
_USER = {"user_id": 200, "gender": 3, "hour": 24}
_ITEM = {"item_id": 300, "cate_id": 20, "brand": 40}


def _sparse(fields: dict[str, int], **more: Any) -> list[Any]:
    return [SparseFeat(name, rows, embedding_dim=_DIM, **more) for name, rows in fields.items()]


def _fields(dense: bool = True) -> list[Any]:
    columns = [*_sparse(_USER), *_sparse(_ITEM)]
    return [*columns, DenseFeat("age", 1), DenseFeat("price", 1)] if dense else columns


def _tags() -> Any:
    return VarLenSparseFeat(SparseFeat("tags", 50, embedding_dim=_DIM), maxlen=_LENGTH, combiner="mean")


def _draws(columns: list[Any]) -> dict[str, Draw]:
    """How requests for a list of DeepCTR columns are made up."""
    draws: dict[str, Draw] = {}
    for column in columns:
        if isinstance(column, DenseFeat):
            draws[column.name] = numbers(0, 2, column.dimension if column.dimension > 1 else None)
            continue
        length = column.maxlen if isinstance(column, VarLenSparseFeat) else None
        text = column.dtype == "string"
        rows = column.vocabulary_size
        low = 0 if length is None else 1
        pad: Any = None if length is None or column.length_name else ("0" if text else 0)
        known = _CITIES
        draws[column.name] = words(known, length, pad=pad) if text else ids(low, rows, length, pad)
        if length is not None and column.length_name:
            draws[column.length_name] = ids(1, length + 1)
        if length is not None and column.weight_name:
            draws[column.weight_name] = numbers(0.1, 2, length)
    return draws


def _made(model: Any, columns: list[Any], user: tuple[str, ...] = (), **more: Draw) -> Made:
    randomise(model.variables)
    draws = _draws(columns) | more
    mine = tuple(name for name in (*_USER, "age", *user) if name in draws)
    return Made(lambda folder: tf.saved_model.save(model, folder), mine, draws)


def _plain(name: str, dense: bool = True, tags: bool = False, **options: Any) -> Callable[[], Made]:
    """A model of `linear columns, dnn columns`."""

    def make() -> Made:
        columns = [*_fields(dense), *([_tags()] if tags else [])]
        return _made(getattr(models, name)(columns, columns, **options), columns)

    return make


def _pnn() -> Made:
    columns = _fields()
    model = models.PNN(columns, dnn_hidden_units=_UNITS, use_inner=True, use_outter=True)
    return _made(model, columns)


def _mlr() -> Made:
    columns = _fields()
    return _made(models.MLR(columns, columns, bias_feature_columns=_sparse(_ITEM)), columns)


def _flen() -> Made:
    groups = [
        *_sparse(_USER, group_name="user"),
        *_sparse({"item_id": 300, "cate_id": 20}, group_name="item"),
    ]
    columns = [
        *groups,
        *_sparse({"brand": 40}, group_name="shop"),
        DenseFeat("age", 1),
        DenseFeat("price", 1),
    ]
    return _made(models.FLEN(columns, columns, dnn_hidden_units=_UNITS), columns)


def _hashed() -> Made:
    """Strings straight in, hashed in the graph; a bag of them too."""
    text = {"use_hash": True, "dtype": "string", "embedding_dim": _DIM}
    bag = VarLenSparseFeat(SparseFeat("places", 30, **text), maxlen=_LENGTH, combiner="mean")
    columns = [SparseFeat("home", 40, **text), SparseFeat("place", 25, **text), bag, *_fields()]
    return _made(
        models.DeepFM(columns, columns, dnn_hidden_units=_UNITS, dnn_use_bn=True), columns, ("home",)
    )


def _bag(name: str, combiner: str, **more: Any) -> Any:
    return VarLenSparseFeat(SparseFeat(name, 60, embedding_dim=_DIM), _LENGTH, combiner, **more)


def _varlen() -> Made:
    """Bags of every kind: by mask, by length, summed, the maximum; and a dense vector."""
    bags = [
        _bag("mean_bag", "mean"),
        _bag("sum_bag", "sum"),
        _bag("max_bag", "max"),
        _bag("long_bag", "mean", length_name="long_bag_length"),
    ]
    columns = [*_fields(), *bags, DenseFeat("picture", 6)]
    mine = ("sum_bag", "long_bag", "long_bag_length")
    return _made(models.DeepFM(columns, columns, dnn_hidden_units=_UNITS), columns, mine)


def _weighted() -> Made:
    """Bags with a weight for each element, normalised by a softmax and as they are."""
    columns = [
        *_fields(),
        _bag("soft_bag", "sum", weight_name="soft_weight"),
        _bag("plain_bag", "mean", weight_name="plain_weight", weight_norm=False),
    ]
    model = models.DeepFM(columns, columns, dnn_hidden_units=_UNITS)
    return _made(model, columns, ("soft_bag", "soft_weight"))


def _history(prefix: str = "hist_") -> list[Any]:
    return [
        VarLenSparseFeat(
            SparseFeat(f"{prefix}{name}", rows, embedding_dim=_DIM, embedding_name=name),
            maxlen=_LENGTH,
            length_name="seq_length",
        )
        for name, rows in (("item_id", 300), ("cate_id", 20))
    ]


def _attention(name: str, unused: tuple[str, ...] = (), **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        columns = [*_fields(), *_history()]
        model = getattr(models, name)(columns, ["item_id", "cate_id"], dnn_hidden_units=_UNITS, **options)
        made = _made(model, columns, ("hist_item_id", "hist_cate_id", "seq_length"))
        draws = {name: draw for name, draw in made.draws.items() if name not in unused}
        return replace(made, draws=draws, user=tuple(name for name in made.user if name not in unused))

    return make


def _dsin() -> Made:
    sessions = [
        VarLenSparseFeat(
            SparseFeat(f"sess_{number}_{name}", rows, embedding_dim=_DIM, embedding_name=name), maxlen=_LENGTH
        )
        for number in range(2)
        for name, rows in (("item_id", 300), ("cate_id", 20))
    ]
    columns = [*_fields(), *sessions]
    model = models.DSIN(
        columns,
        ["item_id", "cate_id"],
        sess_max_count=2,
        dnn_hidden_units=_UNITS,
        att_embedding_size=8,
        att_head_num=2,
    )
    mine = (*(column.name for column in sessions), "sess_length")
    return _made(model, columns, mine, sess_length=ids(1, 3))


def _tasks(name: str, tasks: tuple[str, str] = ("ctr", "cvr"), **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        columns = _fields()
        model = getattr(models, name)(
            columns, task_types=("binary", "binary"), task_names=tasks, tower_dnn_hidden_units=(8,), **options
        )
        return _made(model, columns)

    return make


_DNN = {"dnn_hidden_units": _UNITS}
MODELS: dict[str, Callable[[], Made]] = {
    "deepctr_DeepFM": _plain("DeepFM", dnn_use_bn=True, **_DNN),
    "deepctr_WDL": _plain("WDL", **_DNN),
    "deepctr_DCN": _plain("DCN", dnn_use_bn=True, **_DNN),
    "deepctr_DCN_matrix": _plain("DCN", cross_parameterization="matrix", **_DNN),
    "deepctr_DCNMix": _plain("DCNMix", low_rank=8, **_DNN),
    "deepctr_xDeepFM": _plain("xDeepFM", cin_layer_size=(16, 16), **_DNN),
    "deepctr_AutoInt": _plain("AutoInt", att_layer_num=2, **_DNN),
    "deepctr_FiBiNET": _plain("FiBiNET", **_DNN),
    "deepctr_NFM": _plain("NFM", **_DNN),
    "deepctr_PNN": _pnn,
    "deepctr_AFM": _plain("AFM", dense=False),
    "deepctr_FNN": _plain("FNN", **_DNN),
    "deepctr_CCPM": _plain("CCPM", dense=False, conv_kernel_width=(3, 2), **_DNN),
    "deepctr_FGCNN": _plain(
        "FGCNN", conv_kernel_width=(3, 2), conv_filters=(4, 3), new_maps=(2, 2), pooling_width=(2, 2), **_DNN
    ),
    "deepctr_MLR": _mlr,
    "deepctr_IFM": _plain("IFM", **_DNN),
    "deepctr_DIFM": _plain("DIFM", att_head_num=2, **_DNN),
    "deepctr_ONN": _plain("ONN", **_DNN),
    "deepctr_FwFM": _plain("FwFM", **_DNN),
    "deepctr_EDCN": _plain("EDCN", dense=False),
    "deepctr_DeepFEFM": _plain("DeepFEFM", **_DNN),
    "deepctr_FLEN": _flen,
    "deepctr_DeepFM_strings": _hashed,
    "deepctr_DeepFM_bags": _varlen,
    "deepctr_DeepFM_weights": _weighted,
    "deepctr_DIN": _attention("DIN", ("seq_length",), att_hidden_size=(16, 8), dnn_use_bn=True),
    "deepctr_DIN_dice": _attention("DIN", ("seq_length",), att_hidden_size=(16, 8), att_activation="dice"),
    "deepctr_BST": _attention("BST", att_head_num=4),
    "deepctr_DSIN": _dsin,
    "deepctr_SharedBottom": _tasks("SharedBottom", bottom_dnn_hidden_units=_UNITS),
    "deepctr_ESMM": _tasks("ESMM", ("ctr", "ctcvr")),
    "deepctr_MMOE": _tasks("MMOE", num_experts=3, expert_dnn_hidden_units=_UNITS, gate_dnn_hidden_units=(8,)),
    "deepctr_PLE": _tasks(
        "PLE", shared_expert_num=2, specific_expert_num=2, num_levels=2, expert_dnn_hidden_units=_UNITS
    ),
}
