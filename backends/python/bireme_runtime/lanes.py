"""A lane: an execution context with a stream and memory of its own, and a CUDA graph for each captured shape.

One launch copies the inputs to the GPU, runs the network and copies the outputs back; a graph holds all of
it, so that launching costs microseconds instead of a call for every kernel. Launches of different lanes
overlap: while one computes, another one copies.

What keeps graphs right: each shape runs plainly right before it is captured (TensorRT sets up what belongs to
a shape in its first run, which cannot be captured), the largest first; and before anything is served, every
graph runs once more and must give what the plain run gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .cuda import Cuda, array_at
from .gpu_shapes import Layout, Network, Place, Shape
from .timeline import MARKS, Timeline

__all__ = ["Lane", "Slot"]

Array = np.ndarray[Any, Any]
#: What two runs of one kernel may differ by, if it adds up in another order: far less than what a graph that
#: reads the wrong memory is off by.
_RELATIVE, _ABSOLUTE = 1e-2, 1e-3


class Context(Protocol):
    """What a lane needs of `tensorrt_engine.Context`."""

    def bind(self, layout: Layout, inputs: int, outputs: int) -> None:
        """Set shapes and addresses."""

    def enqueue(self, stream: int) -> None:
        """Put an execution into a stream."""


@dataclass
class Slot:
    """One shape on one lane.

    Args:
        layout: where its tensors lie.
        inputs: name → array in pinned memory, to be filled before a launch.
        outputs: name → array in pinned memory, to be read after it.
        graph: the captured graph; 0: none.
    """

    layout: Layout
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    graph: int = field(default=0)


class Lane:
    """See above. One thread fills and launches, one waits; they may be different ones.

    Args:
        number: its number, for the log.
        cuda: the GPU.
        context: makes the execution context for a stream.
        network: inputs and outputs.
        largest: the largest shape it will ever run.
        timeline: notes every launch.
        spin: seconds to wait awake before going to sleep.

    Raises:
        CudaError: no memory.
    """

    def __init__(
        self,
        number: int,
        cuda: Cuda,
        context: Callable[[int], Context],
        network: Network,
        largest: Shape,
        timeline: Timeline | None = None,
        spin: float = 0.0,
    ) -> None:
        self.number = number
        self._cuda, self._network, self._timeline, self._spin = cuda, network, timeline, spin
        self._slots: dict[Shape, Slot] = {}
        self._undo: list[Callable[[], None]] = []
        try:
            self._stream = self._own(cuda.stream(), cuda.close_stream)
            self._context: Context | None = context(self._stream)
            self._undo.append(self._drop_context)
            cuda.synchronize(self._stream)
            most = Layout.of(network, largest)
            sizes = (most.input_bytes, most.output_bytes)
            self._device = [self._own(cuda.allocate(size), cuda.free) for size in sizes]
            self._pinned = [self._own(cuda.allocate_pinned(size), cuda.free_pinned) for size in sizes]
            self._done = self._own(cuda.event(), cuda.close_event)
            timed = timeline is not None
            self._marks = [self._own(cuda.event(timed), cuda.close_event) for _ in range(MARKS * timed)]
        except BaseException:
            self.close()
            raise

    def _own(self, handle: int, undo: Callable[[int], None]) -> int:
        self._undo.append(lambda: undo(handle))
        return handle

    def slot(self, shape: Shape) -> Slot:
        """The arrays of a shape; a lane runs one launch at a time, so that all shapes share the memory."""
        slot = self._slots.get(shape)
        if slot is None:
            layout = Layout.of(self._network, shape)
            inputs, outputs = (
                {place.name: _view(base, place) for place in places}
                for base, places in zip(self._pinned, (layout.inputs, layout.outputs), strict=True)
            )
            slot = self._slots[shape] = Slot(layout, inputs, outputs)
        return slot

    def capture(self, shapes: Sequence[Shape], captured: Callable[[Shape], None] = lambda _: None) -> None:
        """Make a graph of every shape, and see that each gives what a plain run gives.

        Args:
            shapes: the shapes.
            captured: told of each.

        Raises:
            CudaError: it cannot be captured, or there is no memory for it.
            ValueError: the plan does not take a shape, or a graph gives other results.
        """
        expected = {}
        slots = sorted(map(self.slot, set(shapes)), key=lambda slot: slot.layout.input_bytes, reverse=True)
        for slot in slots:
            _fill_with_noise(slot)
            self.launch(slot, plain=True)
            self._cuda.synchronize(self._stream)
            expected[slot.layout.shape] = _copies(slot)
            slot.graph = self._cuda.capture(self._stream, lambda slot=slot: self._work(slot, True))  # type: ignore[misc]
            self._undo.append(lambda graph=slot.graph: self._cuda.close_graph(graph))  # type: ignore[misc]
            captured(slot.layout.shape)
        for slot in reversed(slots):
            _fill_with_noise(slot)
            for output in slot.outputs.values():
                output.view(np.uint8)[...] = 0xFF  # NaN: what a graph leaves alone is no result
            self.launch(slot)
            self._cuda.synchronize(self._stream)
            for name, wanted in expected[slot.layout.shape].items():
                if not _same(slot.outputs[name], wanted):
                    raise ValueError(
                        f"the CUDA graph for {slot.layout.shape} gives other values of {name!r} than plain"
                        " execution; serve without graphs (BIREME_GRAPHS=off) and report it"
                    )

    def launch(self, slot: Slot, plain: bool = False) -> None:
        """Start what is in the slot's inputs; nothing of the lane may be touched until `wait` returns.

        Args:
            slot: one of this lane's.
            plain: without its graph.

        Raises:
            CudaError, RuntimeError: the GPU refuses.
        """
        if slot.graph and not plain:
            self._cuda.launch(slot.graph, self._stream)
        else:
            assert self._context is not None
            self._context.bind(slot.layout, *self._device)
            self._work(slot, False)
        self._cuda.record(self._done, self._stream)

    def _work(self, slot: Slot, capturing: bool) -> None:
        cuda, stream, layout = self._cuda, self._stream, slot.layout
        assert self._context is not None

        def mark(which: int) -> None:
            if self._marks:
                cuda.record(self._marks[which], stream, external=capturing)

        mark(0)
        cuda.to_device(self._device[0], self._pinned[0], layout.input_bytes, stream)
        mark(1)
        self._context.enqueue(stream)
        mark(2)
        cuda.to_host(self._pinned[1], self._device[1], layout.output_bytes, stream)
        mark(3)

    def wait(self, slot: Slot) -> None:
        """Wait until the outputs of the last launch are there.

        Raises:
            CudaError: it failed.
        """
        self._cuda.wait(self._done, self._spin)
        if self._timeline is not None:
            self._timeline.add(self.number, slot.layout.shape, self._marks)

    def close(self) -> None:
        """Give everything back; nothing may be running."""
        self._slots.clear()
        while self._undo:
            self._undo.pop()()

    def _drop_context(self) -> None:
        self._context = None


def _view(base: int, place: Place) -> Array:
    return array_at(base + place.offset, place.shape, place.dtype)


def _copies(slot: Slot) -> dict[str, Array]:
    return {name: output.copy() for name, output in slot.outputs.items()}


def _fill_with_noise(slot: Slot) -> None:
    """The same numbers each time, like embeddings; integers stay 0, which any index may be."""
    noise = np.random.default_rng(0).standard_normal(1 << 12)
    for array in slot.inputs.values():
        array[...] = np.resize(noise if array.dtype.kind == "f" else 0, array.shape)


def _same(found: Array, wanted: Array) -> bool:
    if np.array_equal(found.view(np.uint8), wanted.view(np.uint8)):
        return True
    # Not to the bit: a kernel may add up in any order. NaN beside NaN is fine, NaN beside a number is not.
    scale = float(np.nanmax(np.abs(wanted.astype(np.float64)), initial=0.0))
    return bool(np.allclose(found, wanted, _RELATIVE, _ABSOLUTE * scale, equal_nan=True))
