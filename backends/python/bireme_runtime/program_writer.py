"""The arrays of a kernel program; see native/bireme.h for what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .plan import (
    Admitted,
    Bucketize,
    Embed,
    Feature,
    HashBucket,
    IntVocabulary,
    Mask,
    Numeric,
    Plan,
    Vocabulary,
)
from .program_layout import (
    BLOCK,
    BLOCK_OPS,
    FUNCTIONS,
    ID_OPS,
    ID_STEP,
    OPERATION,
    OPERATIONS,
    POOLS,
    SOURCE,
    STORES,
    TEST,
    TESTS,
    TYPES,
    Program,
)
from .requests import Array
from .tables import row_bytes
from .text_steps import Compute, HashStrong
from .trace import Trace

__all__ = ["Writer"]

_NO = -1


class Writer:
    """Fills the arrays.

    Args:
        plan: the feature plan.
        arenas: arena file → [rows, width].
        vocabularies: file → opened vocabulary.
        trace: of that plan.
        foreign: the steps that numpy does.
    """

    def __init__(
        self,
        plan: Plan,
        arenas: Mapping[str, Array],
        vocabularies: Mapping[str, Any],
        trace: Trace,
        foreign: set[Any],
    ) -> None:
        self._plan = plan
        self._arenas = arenas
        self._vocabularies = vocabularies
        self._trace = trace
        self._foreign = foreign
        self._tables = {table.name: table for table in plan.tables}
        self._sources: list[dict[str, Any]] = []
        self._source_of: dict[str, int] = {}
        self._ids: list[dict[str, Any]] = []
        self._id_of: dict[str, int] = {}
        self._tests: list[dict[str, Any]] = []
        self._operations: list[dict[str, Any]] = []
        self._sizes: list[tuple[str, str]] = []
        self._ready: list[str] = []
        self._kept: list[Any] = []

    def program(self) -> Program:
        """The program."""
        for feature in self._plan.features:
            self._add_feature(feature)
        mine = [step for step in self._plan.steps if step not in self._foreign]
        for step in mine:
            if not hasattr(step, "offset"):
                self._add_id(step)
        blocks = [self._block(step) for step in mine if hasattr(step, "offset")]
        users = [block for block in blocks if block["side"] == 0]
        items = [block for block in blocks if block["side"] == 1]
        arrays = {
            "sources": _rows(SOURCE, self._sources),
            "ids": _rows(ID_STEP, self._ids),
            "blocks": _rows(BLOCK, [*_together(users), *_together(items)]),
            "tests": _rows(TEST, self._tests),
            "operations": _rows(OPERATION, self._operations),
        }
        left = [step for step in self._plan.steps if step in self._foreign]
        features = list(self._plan.features)
        return Program(
            features, self._ready, arrays, left, len(users), self._sizes, [*self._kept, self._arenas]
        )

    def _add_feature(self, feature: Feature) -> None:
        text = feature.dtype == "string"
        self._source_of[feature.name] = len(self._sources)
        self._sources.append(
            {
                "type": TYPES[feature.dtype],
                "side": int(feature.side == "item"),
                "length": self._size(feature.name, "length") if feature.length is not None else _NO,
                "bytes": self._size(feature.name, "bytes") if text else _NO,
                "checks": int(text and feature.text == "utf8"),
            }
        )

    def _size(self, feature: str, what: str) -> int:
        if (feature, what) not in self._sizes:
            self._sizes.append((feature, what))
        return self._sizes.index((feature, what))

    def _elements(self, source: str) -> int:
        """The kernel's source that a source's elements are of."""
        origin = self._trace.origin(source)
        assert origin is not None
        return self._source_of[origin.name]

    def _id(self, name: str) -> int:
        """The kernel's id step of a plan's id step, which numpy may make."""
        if name not in self._id_of:
            assert self._trace.steps[name] in self._foreign
            origin = self._sources[self._elements(name)]
            source = origin | {"type": TYPES["ready"], "bytes": len(self._ready), "checks": 0}
            self._ready.append(name)
            self._sources.append(source)
            self._put_id(name, op=ID_OPS["identity"], source=len(self._sources) - 1)
        return self._id_of[name]

    def _put_id(self, name: str, **values: Any) -> None:
        self._id_of[name] = len(self._ids)
        self._ids.append({"of": _NO} | values)

    def _add_id(self, step: Any) -> None:
        name = next(n for n in step.of if isinstance(n, str)) if isinstance(step, Compute) else step.feature
        of = self._id(name) if name in self._trace.steps else _NO
        values: dict[str, Any] = {
            "source": self._ids[of]["source"] if of != _NO else self._source_of[name],
            "of": of,
        }
        if isinstance(step, (HashBucket, HashStrong)):
            values |= {"op": ID_OPS["hash"], "buckets": step.buckets}
            if isinstance(step, HashStrong):
                values |= {"op": ID_OPS["strong"], "key0": step.key[0] % 2**64, "key1": step.key[1] % 2**64}
        elif isinstance(step, Vocabulary):
            values |= self._word(step)
        elif isinstance(step, IntVocabulary):
            vocabulary = self._vocabularies[step.file]
            values |= {"op": ID_OPS["key"], "fallback": step.default, "count": len(vocabulary)}
            values |= {"table": self._address(vocabulary.keys), "more": self._address(vocabulary.ids)}
        elif isinstance(step, Bucketize):
            edges = np.array(step.edges, dtype=np.float32)
            edges[np.abs(edges) < np.finfo(np.float32).tiny] = 0  # see kernels.py
            values |= {"op": ID_OPS["bucketize"], "table": self._address(edges), "count": edges.size}
        elif isinstance(step, Compute):
            values |= _computation(step)
        else:
            values |= {"op": ID_OPS["identity"]}
        self._put_id(step.name, **values)

    def _word(self, step: Vocabulary) -> dict[str, Any]:
        vocabulary = self._vocabularies[step.file]
        return {
            "op": ID_OPS["word"],
            "fallback": step.default,
            "table": self._address(vocabulary.entries),
            "more": self._address(vocabulary.directory),
            "text": self._address(vocabulary.data),
            "count": vocabulary.directory.size.bit_length() - 1,
            "extra": vocabulary.longest,
            "coefficients": self._address(vocabulary.coefficients),
        }

    def _address(self, array: Array) -> int:
        kept = np.ascontiguousarray(array)
        self._kept.append(kept)
        return int(kept.ctypes.data)

    def _block(self, step: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "side": int(step.side == "item"),
            "offset": step.offset,
            "width": step.width,
            "id": _NO,
            "weights": _NO,
            "fill": _NO,
        }
        if isinstance(step, Numeric):
            ids = self._id(step.feature) if step.feature in self._trace.steps else _NO
            first = len(self._operations)
            self._operations += [
                {"op": OPERATIONS[name], "constant": 0.0 if constant is None else np.float32(constant)}
                for name, constant in step.chain
            ]
            values |= {"op": BLOCK_OPS["numbers"], "id": ids, "source": self._elements(step.feature)}
            return values | {"first_operation": first, "operations": len(step.chain)}
        mask = step.mask
        if mask is not None:
            values |= {"first_test": len(self._tests), "tests": self._add_tests(mask)}
        if isinstance(step, Admitted):
            return values | {"op": BLOCK_OPS["mask"], "source": self._elements(step.mask.of)}
        return values | self._embedding(step)

    def _embedding(self, step: Embed) -> dict[str, Any]:
        table = self._tables[step.table]
        size = row_bytes(table)
        return {
            "op": BLOCK_OPS["rows" if step.pool is None else "pool"],
            "id": self._id(step.ids) if step.ids in self._trace.steps else _NO,
            "source": self._elements(step.ids),
            "table": self._arenas[table.arena].ctypes.data + table.row_offset * size,
            "rows": table.rows,
            "row_bytes": size,
            "row_width": table.width,
            "storage": STORES[table.dtype],
            "pool": POOLS[step.pool] if step.pool is not None else 0,
            "weights": self._source_of[step.weights] if step.weights is not None else _NO,
            "fill": step.fill if step.fill is not None else _NO,
            "refuse_empty": int(step.present == "all"),
            "floor": step.floor,
        }

    def _add_tests(self, mask: Mask) -> int:
        """A mask's conditions, one behind the other; how many they are."""
        found = []
        part: Mask | None = mask
        while part is not None:
            found.append(self._test(part))
            part = part.also
        self._tests += found
        return len(found)

    def _test(self, mask: Mask) -> dict[str, Any]:
        values: dict[str, Any] = {"id": _NO, "source": self._elements(mask.of), "test": TESTS[mask.test]}
        feature = None if mask.of in self._trace.steps else self._trace.features[mask.of]
        if feature is None:
            return values | {"id": self._id(mask.of), "whole": int(mask.value)}
        if feature.dtype == "string":
            word = np.frombuffer(str(mask.value).encode() + b"\0", dtype=np.uint8)
            name = f"{mask.of} is {mask.value!r}"
            if name not in self._id_of:
                source = self._source_of[mask.of]
                self._put_id(
                    name, op=ID_OPS["equal"], source=source, text=self._address(word), extra=word.size - 1
                )
            return values | {"id": self._id_of[name], "whole": 1}
        if feature.dtype in ("float32", "float64"):
            return values | {"real": float(np.dtype(feature.dtype).type(mask.value))}
        return values | {"whole": int(np.dtype(feature.dtype).type(mask.value))}


def _computation(step: Compute) -> dict[str, Any]:
    first, *rest = step.of
    function = step.function
    constant = rest[0] if rest else 0
    if not isinstance(first, str):
        function, constant = {"sub": "rsub"}.get(function, function), first
    if function == "neg":
        function, constant = "rsub", 0
    assert isinstance(constant, int)
    narrow = step.dtype == "int32"
    return {
        "op": ID_OPS["compute"],
        "function": FUNCTIONS[function],
        "narrow": int(narrow),
        "constant": int(np.array(constant, step.dtype)),
    }


def _rows(layout: np.dtype[Any], values: list[dict[str, Any]]) -> Array:
    """Structured rows; what is not named is 0."""
    rows = np.zeros(len(values), dtype=layout)
    for row, given in zip(rows, values, strict=True):
        for name, value in given.items():
            row[name] = value
    return rows


def _together(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks that are alike side by side: the kernel gathers them together."""
    return sorted(
        blocks, key=lambda b: (b["op"], b.get("storage", 0), b.get("row_width", 0), b["width"], b["offset"])
    )
