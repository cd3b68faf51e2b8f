"""The structures of native/bireme.h as numpy dtypes, and the numbers that it gives to names.

Every field takes 8 bytes, so that the order of the fields is all there is to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .plan import Feature
from .requests import Array

__all__ = [
    "BLOCK",
    "BLOCK_OPS",
    "FUNCTIONS",
    "HEAD",
    "ID_OPS",
    "ID_STEP",
    "MAX_WIDTH",
    "OPERATION",
    "OPERATIONS",
    "POOLS",
    "SOURCE",
    "STAGES",
    "STORES",
    "TEST",
    "TESTS",
    "TYPES",
    "Program",
]


def _layout(fields: str, reals: str = "", words: str = "") -> np.dtype[Any]:
    kinds = dict.fromkeys(reals.split(), "<f8") | dict.fromkeys(words.split(), "<u8")
    return np.dtype([(name, kinds.get(name, "<i8")) for name in fields.split()])


def _numbers(names: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split())}


SOURCE = _layout("type side length bytes checks")
ID_STEP = _layout(
    "op source of buckets key0 key1 fallback function narrow constant table more text count extra"
    " coefficients",
    words="buckets key0 key1",
)
TEST = _layout("id source test whole real", reals="real")
OPERATION = _layout("op constant", reals="constant")
BLOCK = _layout(
    "op side offset width id source table rows row_bytes row_width storage pool first_test tests weights fill"
    " refuse_empty floor first_operation operations",
    reals="floor",
)
#: `bireme_program`.
HEAD = _layout(
    "sources ids blocks tests operations source_count id_count user_blocks block_count user_width item_width"
    " half limit longest_text size_count",
    reals="limit",
)

#: A source's type, by the dtype of a feature; ids that numpy made are "ready".
TYPES = {"int64": 0, "int32": 1, "float32": 2, "float64": 3, "bool": 4, "string": 5, "ready": 6}
#: How many kinds of elements are staged.
STAGES = 7
ID_OPS = _numbers("identity hash strong word key bucketize equal compute")
FUNCTIONS = _numbers("cast add sub rsub mul floordiv floormod mod minimum maximum") | {"neg": -1}
STORES = _numbers("float32 float16 int8")
BLOCK_OPS = _numbers("rows pool numbers mask")
POOLS = _numbers("sum mean sqrtn max")
TESTS = _numbers("ne ge gt lt")
OPERATIONS = _numbers("add sub rsub mul div minimum maximum log1p log sqrt square abs neg tanh")
#: Widest row that the kernel pools (MOST_WIDTH in native/rows.c).
MAX_WIDTH = 256


@dataclass
class Program:
    """What the kernel is given once.

    Args:
        features: sources of the kernel that are features, in its order.
        ready: id steps that numpy makes and the kernel reads, in its order.
        arrays: name → structured array, in the layout of native/bireme.h.
        left: steps that numpy does, in the plan's order.
        user_blocks: how many of the blocks write `user`.
        sizes: numbers that the kernel needs of a request: (feature, "length" or "bytes").
        kept: arrays that the program points into.
    """

    features: list[Feature]
    ready: list[str]
    arrays: dict[str, Array]
    left: list[Any]
    user_blocks: int
    sizes: list[tuple[str, str]]
    kept: list[Any] = field(default_factory=list)
