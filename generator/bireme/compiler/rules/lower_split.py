"""Rules about strings that are cut into parts (`tf.strings.split(x, "|").to_tensor(…)`), and about choices.

A split whose number of parts is fixed is a sequence of that length; of any other, single parts can be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bireme.compiler.graph import Node, tf
from bireme.compiler.rules.id_steps import OPERAND
from bireme.compiler.rules.lower_integers import as_integers
from bireme.compiler.rules.values import Raw, Source, Text, Value, as_text
from bireme_runtime.text_steps import to_text

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["SPLIT_RULES"]


@dataclass(frozen=True)
class _Parts:
    """What `RaggedTensorToTensor` makes of a split: [R, count], or as many columns as the longest row has."""

    text: Raw | Text
    separator: str
    most: int
    count: int | None
    default: str


def _parts(low: Lowering, node: Node) -> _Parts | None:
    """The split behind a node, if all that it reads is of one split of single strings."""
    if node.op != "RaggedTensorToTensor" or len(node.inputs) != 5:
        return None
    split = low.graph.producer(node.inputs[1])
    kinds = [kind.decode() for kind in node.attr["row_partition_types"].list.s]
    if split.op != "StringSplitV2" or kinds != ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]:
        return None
    rows = _is_slice(low, node.inputs[3], f"{split.name}:2", [0], [1])
    rowids = _is_slice(low, node.inputs[4], f"{split.name}:0", [0, 0], [0, 1])
    text, separator = as_text(low.lower(split.inputs[0])), low.scalar(split, 1)
    default, shape = low.scalar(node, 2), low.constant(node, 0)
    if not (rows and rowids and node.inputs[1] == f"{split.name}:1") or text is None or text.shape != ("R",):
        return None
    if not isinstance(separator, bytes) or not isinstance(default, bytes) or shape is None:
        return None
    sizes = [int(size) for size in shape.reshape(-1)]
    if sizes not in ([-1], [-1, -1]) and not (len(sizes) == 2 and sizes[0] == -1 and sizes[1] > 0):
        return None
    count = sizes[1] if len(sizes) == 2 and sizes[1] > 0 else None
    most = int(split.attr["maxsplit"].i)
    return _Parts(text, to_text(separator), most, count, to_text(default))


def _is_slice(low: Lowering, ref: str, of: str, begin: Sequence[int], end: Sequence[int]) -> bool:
    """Whether a tensor is `of[0]` (of a vector) or `of[:, 0]` (of a matrix)."""
    node = low.graph.producer(ref)
    if node.op != "StridedSlice" or node.inputs[0] != of:
        return False
    bounds = [low.constant(node, index) for index in (1, 2, 3)]
    if any(bound is None for bound in bounds):
        return False
    found = [[int(x) for x in bound] for bound in bounds if bound is not None]
    rest = 1 << (len(begin) - 1)  # the last dimension is the one that is cut
    masks = [node.attr[name].i for name in ("shrink_axis_mask", "begin_mask", "end_mask")]
    return found == [list(begin), list(end), [1] * len(begin)] and masks == [rest, rest - 1, rest - 1]


def sequence(low: Lowering, node: Node) -> Value | None:
    """A fixed number of parts of every string: a sequence."""
    parts = _parts(low, node)
    if parts is None or parts.count is None:
        return None
    how = (parts.separator, parts.most, parts.count, parts.default)
    return Text(parts.text.feature, "split", how, ("R", "L"), (parts.text,))


def part(low: Lowering, node: Node) -> Value | None:
    """`parts[:, k]`."""
    parts = _parts(low, low.graph.producer(node.inputs[0]))
    bounds = [low.constant(node, index) for index in (1, 2, 3)]
    if parts is None or any(bound is None or bound.size != 2 for bound in bounds):
        return None
    begin, _, step = ([int(x) for x in bound] for bound in bounds if bound is not None)
    masks = [node.attr[name].i for name in ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask")]
    whole = node.attr["begin_mask"].i & node.attr["end_mask"].i & 1 and step[0] == 1
    index = begin[1]
    if masks != [2, 0, 0] or not whole or index < 0 or (parts.count is not None and index >= parts.count):
        return None
    how = ("part", parts.separator, parts.most, index, parts.default, parts.count is None)
    return Text(parts.text.feature, "text", how, ("R",), (parts.text,))


def choose_text(low: Lowering, node: Node) -> Value | None:
    """`where(condition, strings, strings)`, either of which may be a constant."""
    if tf.as_dtype(node.attr["T"].type) != tf.string:
        return None
    condition = as_integers(low.lower(node.inputs[0]))
    if condition is None:
        return None
    sources: list[Source] = [condition]
    constants: list[str | None] = []
    for index in (1, 2):
        constant, text = low.constant(node, index), as_text(low.lower(node.inputs[index]))
        if constant is not None and constant.size == 1 and constant.ndim <= 1:
            constants.append(to_text(constant.reshape(-1)[0]))
        elif text is not None and text.shape == condition.shape:
            constants.append(OPERAND)
            sources.append(text)
        else:
            return None
    return Text(condition.feature, "choose", tuple(constants), condition.shape, tuple(sources))


Rule = Callable[["Lowering", Node], "Value | None"]
SPLIT_RULES: dict[str, tuple[Rule, ...]] = {
    "RaggedTensorToTensor": (sequence,),
    "StridedSlice": (part,),
    "Select": (choose_text,),
    "SelectV2": (choose_text,),
}
