"""Batches of requests through the C kernel.

Tensors of one type are laid end to end by one call of numpy, into memory that is used again for every batch:
to ask numpy for the address of each tensor would take longer than to copy it. Whatever is unusual about a
batch (a bad value, a missing feature, an id out of range) ends the attempt, and the caller goes through
numpy, which knows the words for it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .batching import bucket_for
from .fusion import Stage, fuse
from .library import Library
from .plan import Plan
from .program import translate
from .program_layout import HEAD, STAGES, TYPES, Program
from .requests import MAX_TEXT, Array, Batch, Request, complete
from .state import State
from .trace import Trace
from .wire import PADDING, WireStrings, payload_of

__all__ = ["Accelerated", "Call", "Prepared", "Unusual"]

_DTYPES = {number: np.dtype(name) for name, number in TYPES.items() if name not in ("string", "ready")}
_DTYPES[TYPES["string"]] = np.dtype(np.uint8)
_TEXT = TYPES["string"]
_LINE = 64  # bytes of a cache line; a row that lies across two takes twice as long
#: Fields of `bireme_batch`.
_BATCH_FIELDS = 10


class Unusual(Exception):  # noqa: N818 - not an error: numpy takes over
    """The kernel does not do this batch."""


@dataclass(frozen=True)
class Prepared:
    """One request's tensors, by type.

    Args:
        users: number of users.
        candidates: N.
        sizes: what the kernel asks to know of the request: lengths of sequences, bytes of texts.
        parts: type → flat tensors in the order of the plan's features; payloads for strings.
    """

    users: int
    candidates: int
    sizes: list[int]
    parts: dict[int, list[Array]]


@dataclass(frozen=True)
class Call:
    """One batch in its place.

    Args:
        user: [users of all requests, width], to be written.
        items: [rows of all requests, width], to be written.
        padded: the candidates that each request's rows are laid out for.
        ready: ids that numpy made, which the kernel reads.
    """

    user: Array
    items: Array
    padded: list[int]
    ready: list[Array]


class Accelerated:
    """The kernel with a plan's program; threads that `run` it take turns.

    Args:
        library: the loaded kernel.
        plan: the feature plan.
        arenas: arena file → [rows, width].
        vocabularies: file → opened vocabulary.
        engines: file of a subgraph → its function.
        tables: table → its rows, for steps that numpy does.
        reuse: whether results may be overwritten by the next batch.
    """

    def __init__(
        self,
        library: Library,
        plan: Plan,
        arenas: Mapping[str, Array],
        vocabularies: Mapping[str, Any],
        engines: Mapping[str, Any],
        tables: Mapping[str, Array],
        reuse: bool = False,
    ) -> None:
        self._functions = library.functions
        self._plan = plan
        self._vocabularies = vocabularies
        self._engines = engines
        self._tables = tables
        self._reuse = reuse
        self.program: Program = translate(plan, arenas, vocabularies)
        self._stages: list[Stage] = (
            fuse(replace(plan, steps=tuple(self.program.left)), arenas, vocabularies)
            if self.program.left
            else []
        )
        self._features = {feature.name: feature for feature in plan.features}
        # Only what numpy's steps read becomes columns; all the rest the kernel takes as it came.
        trace = Trace(plan)
        read = {name for step in self.program.left for name in trace.reads(step)}
        self._read = [feature for feature in plan.features if feature.name in read]
        self._limit = float(np.finfo(plan.handover).max)
        self._slots = [
            (
                feature.name,
                TYPES[feature.dtype],
                feature.side == "item",
                -2 if feature.length is None else feature.length,
            )
            for feature in plan.features
        ]
        lead = [feature for feature in plan.features if feature.side == "item"] or list(plan.features)
        self._lead, self._ranks = lead[0].name, lead[0].side == "item"
        # Memory that is used again, each with its address: asking for one takes a microsecond.
        self._room = {number: (np.empty(0, dtype), 0) for number, dtype in _DTYPES.items()}
        self._outputs = [(np.empty(0, np.uint8), 0)] * 2
        self._numbers, self._numbers_at = np.empty(0, np.int64), 0
        self._batch = np.zeros(_BATCH_FIELDS, np.int64)
        self._batch_at = self._batch.ctypes.data
        self._handle = self._open()
        self._closer = weakref.finalize(self, self._functions.bireme_close, self._handle)
        # At the process's end the system does it, and later than the last thread that may still run.
        self._closer.atexit = False
        self._turn = threading.Lock()

    def _open(self) -> int:
        program, head = self.program, np.zeros(1, HEAD)
        for name, array in program.arrays.items():
            head[name] = array.ctypes.data
        head["source_count"] = len(program.arrays["sources"])
        head["id_count"] = len(program.arrays["ids"])
        head["block_count"] = len(program.arrays["blocks"])
        head["user_blocks"], head["size_count"] = program.user_blocks, len(program.sizes)
        head["user_width"], head["item_width"] = self._plan.user_width, self._plan.item_width
        head["half"], head["limit"] = self._plan.handover == "float16", self._limit
        head["longest_text"] = MAX_TEXT
        handle: int | None = self._functions.bireme_open(head.ctypes.data)
        if handle is None:
            raise MemoryError("the kernel finds no memory")
        return handle

    def prepare(self, tensors: Mapping[str, Array]) -> Prepared:
        """One request's tensors, if they are all there and of the right shapes.

        Raises:
            Unusual: they are not, or a feature's default has to be filled in.
        """
        try:
            lead = tensors[self._lead].shape
            users, candidates = (lead[0], lead[1]) if self._ranks else (lead[0], 0)
            single, pairs = (users, 1), (users, candidates)
            sizes: list[int] = []
            parts: dict[int, list[Array]] = {number: [] for number in _DTYPES}
            for name, kind, item, length in self._slots:
                array = tensors[name]
                shape = array.shape
                if length == -2:
                    if shape != (pairs if item else single):
                        raise Unusual
                else:
                    if shape[:-1] != (pairs if item else (users,)) or length not in (-1, shape[-1]):
                        raise Unusual
                    sizes.append(shape[-1])
                if kind == _TEXT:
                    array = array.payload if type(array) is WireStrings else payload_of(array)
                    sizes.append(array.size)
                    parts[kind].append(array)
                else:
                    parts[kind].append(array.ravel())
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unusual from None
        most = self._plan.buckets[-1]
        if users < 1 or (self._ranks and not 1 <= candidates <= most):
            raise Unusual
        if self._plan.listwise and candidates not in self._plan.buckets:
            raise Unusual
        return Prepared(users, candidates, sizes, parts)

    def measured(self, request: Request) -> Prepared:
        """The same for a request that `measure` has passed: defaults and padding are filled in."""
        return self.prepare(complete(self._plan.features, request))

    def run(
        self, requests: Sequence[Prepared], measured: Sequence[Request]
    ) -> tuple[Array, Array, list[int]]:
        """Both outputs of a whole batch.

        Args:
            requests: the requests.
            measured: the same requests, where numpy has a share in the work (`program.left`); else anything.

        Returns:
            `user` [users of all requests, width], `items` [rows of all requests, width], and the candidates
            that each request's rows are laid out for.

        Raises:
            Unusual: a value is not what the plan allows.
            BadRequests: numpy's share found malformed requests.
        """
        with self._turn:  # the memory is everybody's, and ctypes lets other threads run meanwhile
            call = self.lay_out(requests, measured)
            self.call()
        return call.user, call.items, call.padded

    def lay_out(self, requests: Sequence[Prepared], measured: Sequence[Request]) -> Call:
        """Everything that the kernel reads, in its place; the next `lay_out` may overwrite it."""
        plan, mixed = self._plan, bool(self._stages)
        users = [request.users for request in requests]
        candidates = padded = [request.candidates for request in requests]
        if plan.pad and not mixed:
            padded = [bucket_for(n, plan.buckets) for n in candidates]
        sizes = [size for request in requests for size in request.sizes]
        dtype = np.dtype(np.float32 if mixed else plan.handover)
        rows = sum(u * n for u, n in zip(users, padded, strict=True))
        user, user_at = self._output(0, sum(users), plan.user_width, dtype)
        items, items_at = self._output(1, rows, plan.item_width, dtype)
        ready = self._left(measured, user, items) if mixed else []
        count = len(requests)
        numbers = [*users, *candidates, *padded, *sizes, *self.stage(requests)]
        numbers += [array.ctypes.data for array in ready]
        if self._numbers.size < len(numbers):
            self._numbers = np.empty(2 * len(numbers), np.int64)
            self._numbers_at = self._numbers.ctypes.data
        self._numbers[: len(numbers)] = numbers
        # In units of the 8 bytes that each number takes: users, candidates, padded, sizes, stages, ready.
        places = (0, count, 2 * count, 3 * count, 3 * count + len(sizes), 3 * count + len(sizes) + STAGES)
        addresses = [self._numbers_at + 8 * place for place in places]
        self._batch[:] = [count, *addresses, user_at, items_at, mixed]
        return Call(user, items, padded, ready)

    def call(self) -> None:
        """Let the kernel write what `lay_out` has prepared last.

        Raises:
            Unusual: a value is not what the plan allows; the outputs mean nothing then.
        """
        if self._functions.bireme_run(self._handle, self._batch_at):
            raise Unusual

    def stage(self, requests: Sequence[Prepared]) -> list[int]:
        """Lay all tensors end to end, by type; the addresses, by type."""
        addresses = [0] * STAGES
        for number, dtype in _DTYPES.items():
            if len(requests) == 1:
                parts = requests[0].parts[number]
            else:
                parts = [part for request in requests for part in request.parts[number]]
            if not parts:
                continue
            total = sum([part.size for part in parts])
            room, addresses[number] = self._room[number]
            if room.size < total + PADDING:
                room = np.empty(total + total // 2 + PADDING, dtype)
                addresses[number] = room.ctypes.data
                self._room[number] = room, addresses[number]
            try:
                np.concatenate(parts, out=room[:total], casting="no")
            except TypeError:  # a tensor of another dtype than the plan says
                raise Unusual from None
        return addresses

    def _output(self, index: int, rows: int, width: int, dtype: np.dtype[Any]) -> tuple[Array, int]:
        """[rows, width] and its address; of memory that is used again if `reuse` says so."""
        if not self._reuse:
            fresh = np.empty((rows, width), dtype)
            return fresh, fresh.ctypes.data
        size = rows * width * dtype.itemsize
        room, address = self._outputs[index]
        if room.size < size:
            room = np.empty(size + size // 2 + _LINE, np.uint8)
            room = room[-room.ctypes.data % _LINE :]
            address = room.ctypes.data
            self._outputs[index] = room, address
        return np.ndarray((rows, width), dtype, room), address

    def _left(self, measured: Sequence[Request], user: Array, items: Array) -> list[Array]:
        """Run the steps that stay with numpy; the ids that the kernel wants of them."""
        batch = Batch(measured, self._read)
        outputs: Mapping[Any, Array] = {"user": user, "item": items}
        state = State(
            batch, self._features, self._tables, self._vocabularies, outputs, self._limit, self._engines
        )
        for stage in self._stages:
            stage(state)
        return [np.ascontiguousarray(state.ids[name], dtype=np.int64) for name in self.program.ready]
