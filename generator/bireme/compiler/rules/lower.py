"""Recognises feature transforms: which tensors the CPU's feature plan can compute natively.

`Lowering.lower(tensor)` returns a `Value` (see values.py) or None. `RULES` names for each op the rules that
are tried in order; a rule sees the node and returns the value of its first output, or None ("op:i" names
those of output i). Rules about the elements of a sequence are in pooling.py, about sparse and ragged tensors
in lower_sparse.py and its neighbours, about strings in lower_text.py, about ids in lower_ids.py and
lower_integers.py, about floats in lower_numbers.py, all others here. To teach the kit a new transform, add a
rule, a step in `bireme_runtime.plan` and its kernel in `bireme_runtime.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np

from bireme.compiler.cut.lineage import Lineage
from bireme.compiler.cut.reads import GATHERS, table_reads
from bireme.compiler.graph import Graph, Node, node_of, tf
from bireme.compiler.rules import pooling
from bireme.compiler.rules.lower_elements import ELEMENT_RULES
from bireme.compiler.rules.lower_ids import ID_RULES
from bireme.compiler.rules.lower_integers import INTEGER_RULES
from bireme.compiler.rules.lower_numbers import NUMBER_RULES
from bireme.compiler.rules.lower_places import PLACE_RULES
from bireme.compiler.rules.lower_pools import POOL_RULES, OneHotRows
from bireme.compiler.rules.lower_ragged import RAGGED_RULES
from bireme.compiler.rules.lower_sizes import SIZE_RULES
from bireme.compiler.rules.lower_sparse import SPARSE_RULES
from bireme.compiler.rules.lower_split import SPLIT_RULES
from bireme.compiler.rules.lower_text import TEXT_RULES
from bireme.compiler.rules.lower_tiled import TILED_RULES
from bireme.compiler.rules.lower_weights import WEIGHT_RULES
from bireme.compiler.rules.partitioned import PARTITION_RULES, Shards
from bireme.compiler.rules.ragged import structure
from bireme.compiler.rules.sparse import Aside, Splits
from bireme.compiler.rules.value_shapes import drop, insert, reshape, strided
from bireme.compiler.rules.value_specs import agrees
from bireme.compiler.rules.values import (
    Ids,
    Raw,
    Rows,
    Value,
    as_ids,
    raw_feature,
    same_source,
)
from bireme.compiler.shapes import TensorSpec

__all__ = ["RULES", "Lowering"]


class Lowering:
    """Memoised meaning of every tensor of one graph.

    Args:
        graph: the folded graph.
        shapes: feature → symbolic shape of its placeholder; a part of a sparse feature → what it means.
        lineage: where tensors come from.
        specs: dtype and static shape of every tensor.
        apart: gathers that are not to be seen as lookups, as their rows could not cross.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: dict[str, Any],
        lineage: Lineage,
        specs: Mapping[str, TensorSpec],
        apart: Set[str] = frozenset(),
    ) -> None:
        self.graph = graph
        self.lineage = lineage
        self.specs = specs
        self.apart = apart
        #: source of a sequence → its length, where that is fixed
        self.lengths: dict[str, int] = {}
        for feature, name in graph.features.items():
            dims = graph.nodes[name].attr["shape"].shape.dim
            if len(dims) > 1 and dims[1].size > 0:
                self.lengths[feature] = dims[1].size
        self.tables = table_reads(graph)
        self.consumers = graph.consumers()
        #: name in `Rows.variable` → a table that is no variable of its own
        self.joined: dict[str, Shards | OneHotRows] = {}
        self._feature_of = {node: feature for feature, node in graph.features.items()}
        self._shapes = shapes
        self._memo: dict[str, Value | Aside | None] = {}
        for name, shape in shapes.items():
            if isinstance(shape, Splits) and name in graph.features:
                found = structure(graph, name, shape)
                self._memo |= {ref: it for ref, it in found.items() if _possible(it, specs.get(ref))}
        # Inputs before their readers: no chain of ops is then too long for Python's stack.
        for node in graph.nodes.values():
            self.lower(node.output)

    def lower(self, ref: str) -> Value | None:
        """The CPU-side meaning of a tensor, or None if it belongs to the dense side."""
        found = self.meaning(ref)
        return None if isinstance(found, Aside) else found

    def meaning(self, ref: str) -> Value | Aside | None:
        """The same for rules, which may also use what is no value: a part of a sparse tensor."""
        if ref not in self._memo:
            node = self.graph.producer(ref)
            rules = RULES.get(node.op if ref == node.output else f"{node.op}:{ref.rsplit(':', 1)[1]}", ())
            meanings = (found for rule in rules if (found := rule(self, node)) is not None)
            spec = self.specs.get(ref)
            self._memo[ref] = next((found for found in meanings if _possible(found, spec)), None)
        return self._memo[ref]

    def feature(self, node: Node) -> Value | Aside | None:
        """A placeholder: a raw feature, or a part of one."""
        name = self._feature_of.get(node.name)
        if name is None:
            return None
        if not isinstance(self._shapes[name], tuple):
            return self._shapes[name]  # type: ignore[no-any-return]
        dtype = tf.as_dtype(node.attr["dtype"].type).name
        return Raw(name, dtype, self._shapes[name])

    def computed_ids(self, ref: str) -> Ids | None:
        """Integers that no rule knows, for a subgraph to compute: one or a sequence a row; else None."""
        spec = self.specs.get(ref)
        if spec is None or spec.dtype not in ("int32", "int64") or not self.lineage.is_raw(ref):
            return None
        if not spec.shape or len(spec.shape) > 2 or spec.shape[0] is not None:
            return None
        about = ", ".join(self.lineage.features([ref]))
        name = f"{about} (node '{node_of(ref)}')"
        columns = tuple(1 if size == 1 else "L" for size in spec.shape[1:])
        if "L" in columns and spec.shape[1] is not None:
            self.lengths[name] = spec.shape[1]
        return Ids(name, "computed", (ref,), ("R", *columns), non_negative=False)

    def table(self, name: str) -> Any:
        """The variable, or what stands for one, that `Rows.variable` names."""
        joined = self.joined.get(name)
        return joined if joined is not None else self.graph.captures[name].variable

    def constant(self, node: Node, index: int) -> np.ndarray[Any, Any] | None:
        """Value of an input if it is constant."""
        return self.graph.constant(node.inputs[index])

    def scalar(self, node: Node, index: int) -> Any:
        """A constant input with a single element, as a Python value; else None."""
        value = self.constant(node, index)
        return value.reshape(-1)[0] if value is not None and value.size == 1 else None


def _possible(found: Value | Aside, spec: TensorSpec | None) -> bool:
    return isinstance(found, Aside) or agrees(found, spec)


def _mask_token(low: Lowering, node: Node) -> Value | None:
    """`where(x == token, number, found)`: a vocabulary's mask token has an id of its own."""
    condition = low.graph.producer(node.inputs[0])
    found, number = low.lower(node.inputs[2]), low.scalar(node, 1)
    if condition.op != "Equal" or not isinstance(found, Ids) or found.table is None or number is None:
        return None
    token = low.scalar(condition, 1)
    keys = found.sources[0] if found.sources else None
    asked = low.lower(condition.inputs[0])
    same = same_source(asked, keys) if keys is not None else raw_feature(asked) == found.feature
    if token is None or not same:
        return None
    key = token if isinstance(token, bytes) else b"%d" % token
    signs = found.non_negative and number >= 0
    return replace(found, overrides=(*found.overrides, (key, int(number))), non_negative=signs)


def _negative_wrap(low: Lowering, node: Node) -> Value | None:
    """`where(ids < 0, ids + rows, ids)`, which Keras puts before a gather; `preprocess` refuses such ids.

    What wraps around something else than the rows of a table is an integer like any other.
    """
    condition, wrapped = low.graph.producer(node.inputs[0]), low.graph.producer(node.inputs[1])
    if condition.op != "Less" or low.scalar(condition, 1) != 0 or wrapped.op != "AddV2":
        return None
    if not wrapped.inputs[0] == node.inputs[2] == condition.inputs[0]:
        return None
    readers = low.consumers.get(node.output, [])
    sizes = {int(low.table(low.tables[n.name]).shape[0]) if n.name in low.tables else None for n in readers}
    return as_ids(low.lower(node.inputs[2])) if sizes == {low.scalar(wrapped, 1)} else None


def _gather(low: Lowering, node: Node) -> Value | None:
    if node.name not in low.tables or node.name in low.apart or node.attr["batch_dims"].i:
        return None
    ref = node.inputs[GATHERS[node.op][1]]
    ids = as_ids(low.lower(ref)) or low.computed_ids(ref)
    if ids is None or (node.op == "GatherV2" and low.scalar(node, 2) != 0):
        return None
    variable = low.tables[node.name]
    shape = low.graph.captures[variable].variable.shape
    if shape.rank not in (1, 2):
        return None
    columns = tuple(int(d) for d in shape[1:])  # () where a table holds one number an id
    return Rows(ids, variable, (*columns, 1)[0], (*ids.shape, *columns))


def _strided(low: Lowering, node: Node) -> Value | None:
    value = low.lower(node.inputs[0])
    bounds = [low.constant(node, i) for i in (1, 2, 3)]
    if value is None or any(bound is None for bound in bounds):
        return None
    begin, end, step = ([int(x) for x in bound] for bound in bounds if bound is not None)
    return strided(value, node.attr, begin, end, step)


def _expand(low: Lowering, node: Node) -> Value | None:
    value, axis = low.lower(node.inputs[0]), low.scalar(node, 1)
    return insert(value, int(axis)) if value is not None and axis is not None else None


def _squeeze(low: Lowering, node: Node) -> Value | None:
    value = low.lower(node.inputs[0])
    return drop(value, list(node.attr["squeeze_dims"].list.i)) if value is not None else None


def _reshape(low: Lowering, node: Node) -> Value | None:
    value, target = low.lower(node.inputs[0]), low.constant(node, 1)
    return reshape(value, [int(d) for d in target]) if value is not None and target is not None else None


Rule = Callable[[Lowering, Node], "Value | Aside | None"]
RULES: dict[str, tuple[Rule, ...]] = {
    "Placeholder": (Lowering.feature,),
    "SelectV2": (_mask_token, _negative_wrap, pooling.admitted_or_zero),
    "Cast": (pooling.cast_mask,),
    **dict.fromkeys(GATHERS, (_gather,)),
    "NotEqual": (pooling.mask,),
    "Greater": (pooling.positive,),
    "Mul": (pooling.times_mask,),
    "Sum": (pooling.total,),
    "Mean": (pooling.mean_of_all,),
    "RealDiv": (pooling.mean,),
    "DivNoNan": (pooling.mean,),
    "Maximum": (pooling.at_least,),
    "StridedSlice": (_strided,),
    "ExpandDims": (_expand,),
    "Squeeze": (_squeeze,),
    "Reshape": (_reshape,),
}
_OF_ELEMENTS = (
    PARTITION_RULES,
    PLACE_RULES,
    POOL_RULES,
    SPARSE_RULES,
    WEIGHT_RULES,
    RAGGED_RULES,
    SIZE_RULES,
)
for _more in (
    NUMBER_RULES,
    *_OF_ELEMENTS,
    ELEMENT_RULES,
    TILED_RULES,
    TEXT_RULES,
    ID_RULES,
    INTEGER_RULES,
    SPLIT_RULES,
):
    for _op, _rules in _more.items():
        RULES[_op] = (*RULES.get(_op, ()), *_rules)
