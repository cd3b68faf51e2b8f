"""The optimization profile of a plan: pure functions of what a network's config asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bireme_runtime.passport import Needs, Shapes

__all__ = ["Captured", "all_shapes", "profile", "shape_of"]

Captured = tuple[int, int | None]
"""Users and bucket of a shape for which a CUDA Graph is captured; no bucket: a network without candidates."""


def profile(needs: Needs) -> dict[str, Shapes]:
    """One range a network's input, from (1 user, smallest bucket) to (all users, largest bucket).

    Args:
        needs: the inputs, users and buckets of the config.
    """
    smallest: Captured = (1, needs.buckets[0] if needs.buckets else None)
    largest: Captured = (needs.users, needs.buckets[-1] if needs.buckets else None)
    ranges = [shape_of(needs.dims, shape) for shape in (smallest, _tuned_for(needs), largest)]
    return {name: Shapes(*(shapes[name] for shapes in ranges)) for name in needs.dims}


def _tuned_for(needs: Needs) -> Captured:
    """The shape at which TensorRT times kernels; it uses the fastest ones there for every shape.

    A request has one user, and unless others wait at that moment it runs alone: one user with the middle one
    of the buckets, where the next larger and smaller are near. Where several run together there are more rows
    of the same kind, and the time is spent on all of them. A network without candidates has one row a user,
    and the kernels for a single row are others than those for many: half of the users.
    """
    if needs.buckets:
        return 1, needs.buckets[len(needs.buckets) // 2]
    return (needs.users + 1) // 2, None


def shape_of(dims: Mapping[str, Sequence[int]], shape: Captured) -> dict[str, tuple[int, ...]]:
    """Input → its shape, users first.

    Args:
        dims: input → dims as in config.pbtxt: users left out, -1 for the candidates.
        shape: users and bucket.

    Raises:
        ValueError: an input has candidates, but the shape has no bucket.
    """
    users, bucket = shape
    if bucket is None and any(-1 in sizes for sizes in dims.values()):
        raise ValueError("a network with candidates needs a bucket")
    return {
        name: (users, *(size if size != -1 or bucket is None else bucket for size in sizes))
        for name, sizes in dims.items()
    }


def all_shapes(needs: Needs) -> list[Captured]:
    """Every (users, bucket) that the batcher can form, ascending."""
    buckets: Sequence[int | None] = needs.buckets or (None,)
    return [(users, bucket) for users in range(1, needs.users + 1) for bucket in buckets]
