"""A virtual concat worked on side by side: the user's part once a user, the items' part once a candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from bireme.compiler.rows.lifted import Context
from bireme.compiler.rows.row_values import Part, Rest, Segments, Slice, Stretched, Sum, Tensor, Term, merge

__all__ = [
    "cut",
    "cut_part",
    "join",
    "map_blocks",
    "part_of_terms",
    "place",
    "reshape_concat",
    "reshape_part",
]

#: A concat along an inner dimension is worked on part by part; from this many parts on, whole.
_FEW = 8


def join(parts: Sequence[Part], axis: int) -> Part | Segments:
    """A virtual concat; a single part if its elements are neighbours of one tensor."""
    concat = Segments(tuple(parts), axis)
    merged = merge(parts, axis) if concat.contiguous else list(parts)
    return merged[0] if len(merged) == 1 else Segments(tuple(merged), axis)


def place(part: Part) -> tuple[str, int]:
    """Where a part lies: sorted by this, slices of one tensor become neighbours. Others keep their order."""
    return (part.source.name, part.start) if isinstance(part, Slice) else ("", 0)


def map_blocks(
    lift: Context,
    concats: Sequence[Segments],
    run: Callable[[list[int], list[Tensor]], Tensor],
    part_rest: Callable[[Rest], Rest] = lambda rest: rest,
    axis: int | None = None,
) -> Segments | None:
    """Apply an op that keeps parts apart.

    Args:
        lift: where nodes go.
        concats: operands with the same parts, in shape and side.
        run: called with the numbers of some parts and, for each concat, the tensor that holds them, put
            together in this order; returns the op's result, with the same parts along `axis`.
        part_rest: a part's shape before → after.
        axis: axis of the resulting concat; that of the operands if left out.

    Returns:
        The results as a virtual concat; None where there are too many parts to take one by one.
    """
    first = concats[0]
    axis = first.axis if axis is None else axis
    after = [part_rest(part.rest) for part in first.parts]
    contiguous = first.contiguous and prod(after[0][:axis]) == 1
    if not contiguous and len(first.parts) > _FEW:
        return None
    if contiguous:
        sides = [part.side for part in first.parts]
        groups = [[i for i, side in enumerate(sides) if side == chosen] for chosen in dict.fromkeys(sides)]
        groups = [sorted(group, key=lambda i: place(first.parts[i])) for group in groups]
    else:
        groups = [[i] for i in range(len(first.parts))]
    parts: dict[int, Part] = {}
    for members in groups:
        tensors = [
            lift.writer.write(Segments(tuple(concat.parts[i] for i in members), concat.axis))
            for concat in concats
        ]
        block = run(members, tensors)
        start = 0
        for i in members:
            parts[i] = Slice(block, start, after[i]) if len(members) > 1 else block
            start += prod(after[i])
    return Segments(tuple(parts[i] for i in range(len(first.parts))), axis)


def reshape_concat(lift: Context, concat: Segments, rest: Rest) -> Part | Segments | None:
    """The same elements in another shape, still a virtual concat; None if parts would be torn."""
    outer = prod(concat.rest[: concat.axis])
    for axis in range(len(rest)):
        inner = prod(rest[axis + 1 :])
        if prod(rest[:axis]) != outer or any(prod(p.rest) % (outer * inner) for p in concat.parts):
            continue
        shapes = [
            (*rest[:axis], prod(part.rest) // (outer * inner), *rest[axis + 1 :]) for part in concat.parts
        ]
        return join(
            [reshape_part(lift, p, shape) for p, shape in zip(concat.parts, shapes, strict=True)], axis
        )
    return None


def reshape_part(lift: Context, part: Part, rest: Rest) -> Part:
    """A part's elements in another shape, written only where they have to be."""
    if part.rest == rest:
        return part
    if isinstance(part, Slice):
        return Slice(part.source, part.start, rest)
    if isinstance(part, (Stretched, Sum)) and _without_ones(part.rest) == _without_ones(rest):
        if isinstance(part, Stretched):
            held = _held(part.tensor.rest, part.rest, rest)
            return Stretched(lift.writer.reshape(part.tensor, held), rest)
        return part_of_terms(
            part, rest, lambda factor: lift.writer.reshape(factor, _held(factor.rest, part.rest, rest))
        )
    return lift.writer.reshape(lift.writer.write(part), rest)


def part_of_terms(value: Sum, rest: Rest, change: Callable[[Tensor], Tensor]) -> Sum:
    """A sum with all factors changed in the same way."""
    terms = tuple(
        Term(
            term.scale,
            user=None if term.user is None else change(term.user),
            item=None if term.item is None else change(term.item),
        )
        for term in value.terms
    )
    return Sum(terms, rest)


def _without_ones(rest: Rest) -> Rest:
    return tuple(size for size in rest if size != 1)


def _held(held: Rest, before: Rest, after: Rest) -> Rest:
    """A factor's own lengths, when dimensions of length 1 come or go."""
    queue = [own for own, size in zip(held, before, strict=True) if size != 1]
    return tuple(queue.pop(0) if size != 1 else 1 for size in after)


def cut(lift: Context, concat: Segments, start: int, stop: int) -> Part | Segments:
    """Elements [start, stop) along the axis of a virtual concat."""
    parts: list[Part] = []
    for part, begin, end in zip(concat.parts, concat.starts, concat.starts[1:], strict=False):
        low, high = max(start, begin) - begin, min(stop, end) - begin
        if low >= high:
            continue
        parts.append(
            part if (low, high) == (0, end - begin) else cut_part(lift, part, concat.axis, low, high)
        )
    return join(parts, concat.axis)


def cut_part(lift: Context, part: Part, axis: int, start: int, stop: int) -> Part:
    """Elements [start, stop) of a part along an axis."""
    rest = (*part.rest[:axis], stop - start, *part.rest[axis + 1 :])
    if isinstance(part, Sum) and any(len(term.factors) == 2 for term in part.terms):

        def cut_factor(factor: Tensor) -> Tensor:
            whole = factor.rest[axis] == 1
            return factor if whole else lift.writer.write(cut_part(lift, factor, axis, start, stop))

        return part_of_terms(part, rest, cut_factor)
    source = part if isinstance(part, Slice) else lift.writer.write(part)
    if prod(rest[:axis]) == 1:
        inner = prod(rest[axis + 1 :])
        if isinstance(source, Slice):
            return Slice(source.source, source.start + start * inner, rest)
        return Slice(source, start * inner, rest)
    tensor = lift.writer.write(source)
    bounds = [lift.writer.axes(number) for number in (start, stop, axis + 2)]
    return Tensor(lift.writer.node("Slice", [tensor.name, *bounds]), tensor.side, rest)
