"""Which subjects there are: read without importing TensorFlow, in the order of the table."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

__all__ = ["GROUPS", "Group", "group_of", "load_module", "names"]


@dataclass(frozen=True)
class Group:
    """Subjects that one module makes.

    Args:
        module: its name; it holds `MODELS`, name → function.
        by: whose code the models are.
        packages: whether it needs the packages of requirements.txt.
        subjects: the names, in the order of the table.
    """

    module: str
    by: str
    packages: bool
    subjects: tuple[str, ...]


# fmt: off
GROUPS = (
    Group("deepctr_models", "DeepCTR 0.9.4", True, (
        "deepctr_DeepFM", "deepctr_WDL", "deepctr_DCN", "deepctr_DCN_matrix", "deepctr_DCNMix",
        "deepctr_xDeepFM", "deepctr_AutoInt", "deepctr_FiBiNET", "deepctr_NFM", "deepctr_PNN", "deepctr_AFM",
        "deepctr_FNN", "deepctr_CCPM", "deepctr_FGCNN", "deepctr_MLR", "deepctr_IFM", "deepctr_DIFM",
        "deepctr_ONN", "deepctr_FwFM", "deepctr_EDCN", "deepctr_DeepFEFM", "deepctr_FLEN",
        "deepctr_DeepFM_strings",
        "deepctr_DeepFM_bags", "deepctr_DeepFM_weights", "deepctr_DIN", "deepctr_DIN_dice", "deepctr_BST",
        "deepctr_DSIN",
        "deepctr_SharedBottom", "deepctr_ESMM", "deepctr_MMOE", "deepctr_PLE",
    )),
    Group("recommenders", "TensorFlow Recommenders 0.7.7", True, (
        "tfrs_Cross", "tfrs_Cross_low_rank", "tfrs_MultiLayerDCN", "tfrs_DotInteraction", "tfrs_TwoTower",
        "tfrs_DLRM",
    )),
    Group("keras_models", "ours, Keras 3", False, (
        "keras_DeepFM", "keras_DeepFM_ids", "keras_WideDeep", "keras_DCNv2", "keras_DCNMix", "keras_AutoInt",
        "keras_MMoE", "keras_PLE", "keras_ESMM", "keras_TwoTower", "keras_encodings", "keras_text",
        "keras_crosses",
    )),
    Group("keras_sequences", "ours, Keras 3", False, (
        "keras_DIN", "keras_DIN_plain", "keras_DIN_dot", "keras_DIN_any_length", "keras_DIEN", "keras_GRU",
        "keras_BST", "keras_YouTube", "keras_bags",
    )),
    Group("plain_tensorflow", "ours, tf.Module", False, (
        "tf_lookup_tables", "tf_sparse_lookup", "tf_sparse_inputs", "tf_ragged_inputs", "tf_ragged_in_graph",
        "tf_strings", "tf_numbers",
    )),
    Group("tf1_models", "ours, TensorFlow 1 style", True, (
        "tf1_tables", "tf1_feature_columns", "keras2_DenseFeatures",
    )),
)
# fmt: on


def names() -> list[str]:
    """All subjects, in the order of the table."""
    return [name for group in GROUPS for name in group.subjects]


def group_of(name: str) -> Group:
    """The group of a subject.

    Raises:
        KeyError: there is no such subject.
    """
    for group in GROUPS:
        if name in group.subjects:
            return group
    raise KeyError(name)


def load_module(name: str) -> ModuleType:
    """The module that makes a subject; imports TensorFlow."""
    return importlib.import_module(group_of(name).module)
