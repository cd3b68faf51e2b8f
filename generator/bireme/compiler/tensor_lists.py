"""TensorFlow's TensorLists (a TensorArray in a graph) as plain tensors, where their places are known."""

from __future__ import annotations

from typing import Any

from bireme.compiler.graph import Node, tf
from bireme.compiler.known_values import KnownValues

__all__ = ["TensorLists"]

#: Ops that hand a list on.
_SAME = {"Identity", "StopGradient"}
_MOST = 4096


class TensorLists:
    """Lists that ops of a tf.Graph hold: handle → its items, None for one that nothing was written to.

    Args:
        known: values of places and lengths.
    """

    def __init__(self, known: KnownValues) -> None:
        self._known = known
        self._items: dict[str, list[Any | None]] = {}
        #: stand-in of a list → the op that makes it, its inputs and its name
        self.origins: dict[str, tuple[Node, list[Any], str]] = {}

    def resolve(self, node: Node, inputs: list[Any], name: str) -> list[Any] | None:
        """Outputs of an op on a list whose items are known; None if it is none, or must stay as it is.

        Args:
            node: the op, not part of the graph yet.
            inputs: its inputs.
            name: a name for what is made.
        """
        if node.op in _SAME and inputs[0].name in self._items:
            return [inputs[0]]
        if not node.op.startswith("TensorList") and node.op != "EmptyTensorList":
            return None
        try:
            return self._resolve(node, inputs, name)
        except _UnknownError:
            return None

    def _resolve(self, node: Node, inputs: list[Any], name: str) -> list[Any] | None:
        op = node.op.removesuffix("V2")
        if op == "EmptyTensorList":
            return [self._handle([], node, inputs, name)]
        if op == "TensorListReserve":
            return [self._handle([None] * self._number(inputs[1]), node, inputs, name)]
        if op == "TensorListFromTensor":
            count = inputs[0].shape[0] if inputs[0].shape.rank else None
            if count is None or count > _MOST:
                raise _UnknownError
            items = tf.raw_ops.Unpack(value=inputs[0], num=count, axis=0, name=f"{name}/items")
            return [self._handle(list(items), node, inputs, name)]
        items = self._of(inputs[0])
        if op == "TensorListGetItem":
            return [self._item(items, self._number(inputs[1]))]
        if op == "TensorListSetItem":
            place = self._number(inputs[1])
            if not 0 <= place < _MOST:
                raise _UnknownError
            grown = [*items, *[None] * (place + 1 - len(items))]
            grown[place] = inputs[2]
            return [self._handle(grown, node, inputs, name)]
        if op == "TensorListPushBack":
            return [self._handle([*items, inputs[1]], node, inputs, name)]
        if op == "TensorListPopBack":
            return [self._handle(items[:-1], node, inputs, name), self._item(items, len(items) - 1)]
        if op == "TensorListLength":
            return [tf.constant(len(items), tf.int32, name=f"{name}/length")]
        whole = [self._item(items, place) for place in range(len(items))]
        if op == "TensorListStack" and whole:
            return [tf.raw_ops.Pack(values=whole, axis=0, name=f"{name}/stacked")]
        if op == "TensorListGather" and whole:
            places = self._known.value(inputs[1])
            if places is None or not places.size:
                raise _UnknownError
            return [tf.raw_ops.Pack(values=[whole[i] for i in places], axis=0, name=f"{name}/gathered")]
        if op == "TensorListConcat" and len(whole) > 1:
            lengths = tf.stack(
                [tf.shape(item, out_type=tf.int64)[0] for item in whole], name=f"{name}/lengths"
            )
            return [tf.concat(whole, 0, name=f"{name}/joined"), lengths]
        raise _UnknownError

    def _of(self, handle: Any) -> list[Any | None]:
        if handle.name not in self._items:
            raise _UnknownError
        return self._items[handle.name]

    def _number(self, tensor: Any) -> int:
        value = self._known.value(tensor)
        if value is None or value.size != 1:
            raise _UnknownError
        return int(value.reshape(-1)[0])

    def _item(self, items: list[Any | None], place: int) -> Any:
        """An item; a place that was never written reads as zeros of a shape that only TensorFlow knows."""
        item = items[place] if 0 <= place < len(items) else None
        if item is None:
            raise _UnknownError
        return item

    def _handle(self, items: list[Any | None], node: Node, inputs: list[Any], name: str) -> Any:
        """A stand-in for a list."""
        handle = tf.compat.v1.placeholder(tf.variant, [], name=f"{name}/list")
        self._items[handle.name] = items
        self.origins[handle.name] = (node, inputs, name)
        return handle


class _UnknownError(Exception):
    """The list's items or a place are not known."""
