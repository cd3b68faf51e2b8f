"""The dense network on a GPU: requests go straight into pinned memory, launches alternate between the lanes.

Requests of one bucket run together, padded to a captured number of users; each gets its own scores. While one
lane computes, the next one is filled and its copy runs. With `Landing` in a thread, this goes on from one
batch to the next; without, only within one.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .batching import group_by_bucket
from .cuda import Cuda
from .gpu_batches import Execution, Sizes, executions
from .gpu_shapes import Network
from .lanes import Lane, Slot
from .timeline import Timeline

__all__ = ["Answer", "DenseGpu"]

Array = np.ndarray[Any, Any]
#: Gets the index of a request and its outputs, or what went wrong with it.
Answer = Callable[[int, "list[Array] | Exception"], None]
_ITEMS = "items"


class _Batch:
    """The requests of one batch, and what of their results is still missing."""

    def __init__(self, requests: Sequence[Mapping[str, Array]], answer: Answer) -> None:
        self.requests, self._answer = requests, answer
        self._outputs: dict[int, list[Array]] = {}
        self._missing: dict[int, int] = {}

    def expect(self, index: int, users: int, outputs: list[Array]) -> None:
        """Make room for a request's outputs; one of no users has them already."""
        self._outputs[index], self._missing[index] = outputs, users
        if users == 0:
            self._finish(index, outputs)

    def land(self, execution: Execution, rows: Sequence[Array]) -> Callable[[], None]:
        """Take a finished execution's outputs over.

        Returns:
            What answers the requests that are complete now, for when the lane has been given back.
        """
        done = []
        for piece in execution.pieces:
            outputs = self._outputs.get(piece.request)
            if outputs is None:
                continue  # another part of it failed
            for output, array in zip(outputs, rows, strict=True):
                part = output[piece.first : piece.first + piece.users]
                source = array[piece.row : piece.row + piece.users]
                part[...] = source[:, : part.shape[1]] if execution.bucket else source
            self._missing[piece.request] -= piece.users
            if not self._missing[piece.request]:
                done.append((piece.request, outputs))

        def answer() -> None:
            for index, outputs in done:
                self._finish(index, outputs)

        return answer

    def fail(self, execution: Execution, error: Exception) -> None:
        """Tell those that had users in an execution; once each."""
        for piece in execution.pieces:
            self._finish(piece.request, error)

    def _finish(self, index: int, result: list[Array] | Exception) -> None:
        # Two threads may fail two parts of one request: whoever takes it out answers.
        if self._outputs.pop(index, None) is not None:
            self._answer(index, result)


class _Flight(NamedTuple):
    """A launch that has not been waited for."""

    lane: Lane
    slot: Slot
    execution: Execution
    batch: _Batch


class DenseGpu:
    """A network on one GPU.

    Args:
        cuda: the GPU.
        network: inputs and outputs.
        lanes: at least one.
        sizes: what was captured.
        buckets: ascending candidate counts; empty for a network without candidates.
        listwise: whether lists are whole, so that nothing may be filled up.
        launched: told of every launch: the shape, the real users, and whether by a graph.
        background: wait for results in a thread of its own, so that `submit` returns when the last launch of
            its batch is under way.
        timeline: written at the end.
    """

    def __init__(
        self,
        cuda: Cuda,
        network: Network,
        lanes: Sequence[Lane],
        sizes: Sizes,
        buckets: Sequence[int],
        listwise: bool = False,
        launched: Callable[[Any, int, bool], None] | None = None,
        background: bool = False,
        timeline: Timeline | None = None,
    ) -> None:
        #: names of the outputs
        self.tasks = [tensor.name for tensor in network.outputs]
        self._cuda, self._network, self._lanes, self._sizes = cuda, network, list(lanes), sizes
        self._timeline = timeline
        self._buckets, self._listwise, self._launched = list(buckets), listwise, launched
        self._inputs = [tensor.name for tensor in network.inputs]
        # First in, first out: lanes take turns.
        self._free: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for lane in lanes:
            self._free.put(lane)
        self._flights: deque[_Flight] = deque()
        self._landing: queue.SimpleQueue[_Flight | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(target=self._land_all, name="landing", daemon=True)
            self._thread.start()

    @property
    def background(self) -> bool:
        """Whether `submit` returns before the answers are there."""
        return self._thread is not None

    def run(self, requests: Sequence[Mapping[str, Array]]) -> list[list[Array] | Exception]:
        """Run a batch and wait for it; not in the background.

        Args:
            requests: for each, `items` [users, candidates, width] if the network has it, and the others
                [users, width].

        Returns:
            For each request its outputs in the order of `tasks`, [users, candidates] or [users, width]; or
            what is wrong with it.
        """
        results: dict[int, list[Array] | Exception] = {}
        self.submit(requests, results.__setitem__)
        return [results[index] for index in range(len(requests))]

    def submit(self, requests: Sequence[Mapping[str, Array]], answer: Answer) -> None:
        """Run a batch; every request is answered exactly once.

        Not in the background, all have been answered at the return. In the background, the requests' arrays
        are not needed any more at the return, and `answer` is called from another thread. Blocks while all
        lanes are busy: at most as many launches as lanes are under way.

        Args:
            requests: as in `run`.
            answer: gets the results.
        """
        batch = _Batch(requests, answer)
        users = [len(request[self._inputs[0]]) for request in requests]
        groups = self._groups(requests, batch, users, answer)
        for execution in executions(groups, users, self._sizes):
            lane = self._take()
            try:
                slot = self._start(lane, execution, batch)
            except Exception as error:
                self._free.put(lane)
                batch.fail(execution, error)
                continue
            flight = _Flight(lane, slot, execution, batch)
            if self._thread is None:
                self._flights.append(flight)
            else:
                self._landing.put(flight)
        while self._flights:
            self._land(self._flights.popleft())

    def _groups(
        self, requests: Sequence[Mapping[str, Array]], batch: _Batch, users: list[int], answer: Answer
    ) -> dict[int, list[int]]:
        """Bucket → its requests; those that fit into none are answered."""
        if self._network.ranks:
            counts = [request[_ITEMS].shape[1] for request in requests]
            groups, errors = group_by_bucket(counts, self._buckets, self._listwise)
        else:
            counts, groups, errors = [0] * len(requests), {0: list(range(len(requests)))}, {}
        for index, message in errors.items():
            answer(index, ValueError(message))
        for index in sorted(index for group in groups.values() for index in group):
            outputs = [
                np.empty(
                    (users[index], *((counts[index],) if tensor.per_candidate else tensor.tail)), tensor.dtype
                )
                for tensor in self._network.outputs
            ]
            batch.expect(index, users[index], outputs)
        return groups

    def _take(self) -> Lane:
        """The lane that has been free for longest; waits for one."""
        if self._thread is None and self._free.empty():
            self._land(self._flights.popleft())
        return self._free.get()

    def _start(self, lane: Lane, execution: Execution, batch: _Batch) -> Slot:
        shape, graph = self._sizes.shape(execution)
        slot = lane.slot(shape)
        for name, rows in slot.inputs.items():
            for piece in execution.pieces:
                source = batch.requests[piece.request][name][piece.first : piece.first + piece.users]
                target = rows[piece.row : piece.row + piece.users]
                if name == _ITEMS:
                    target[:, source.shape[1] :] = 0
                    target = target[:, : source.shape[1]]
                target[...] = source
            rows[execution.users :] = 0
        if self._launched is not None:
            self._launched(shape, execution.users, graph)
        lane.launch(slot)
        return slot

    def _land(self, flight: _Flight) -> None:
        """Wait for a launch, hand the lane back, answer."""
        lane, slot, execution, batch = flight
        try:
            lane.wait(slot)
            answer = batch.land(execution, list(slot.outputs.values()))
        except Exception as error:
            self._free.put(lane)
            batch.fail(execution, error)
        else:
            self._free.put(lane)
            answer()

    def _land_all(self) -> None:
        self._cuda.use()
        while (flight := self._landing.get()) is not None:
            try:
                self._land(flight)
            except Exception:
                # An answer that cannot be delivered: the thread must go on, or all later requests would hang.
                traceback.print_exc()

    def close(self) -> None:
        """Wait for what is under way, and give the lanes' memory back."""
        if self._thread is not None:
            self._landing.put(None)
            self._thread.join()
            self._thread = None
        if self._timeline is not None:
            self._timeline.close()
            self._timeline = None
        for lane in self._lanes:
            lane.close()
        self._lanes = []
