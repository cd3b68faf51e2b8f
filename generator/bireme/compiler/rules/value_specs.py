"""What a rule found against what TensorFlow knows: a value of another rank or dtype is none."""

from __future__ import annotations

from bireme.compiler.rules.values import Count, Ids, Numbers, Raw, Text, Value
from bireme.compiler.shapes import TensorSpec

__all__ = ["agrees"]

#: Kind of value → the dtypes that its tensor may have; a mask may be boolean or 0 and 1, a table of any type.
_DTYPES: dict[type[object], tuple[str, ...]] = {
    Count: ("float32",),
    Ids: ("int32", "int64", "bool"),
    Numbers: ("float32",),
    Text: ("string",),
}


def agrees(value: Value, spec: TensorSpec | None) -> bool:
    """Whether a tensor can have this meaning.

    Constants that broadcast to a higher rank, say, are rare enough that no rule has to think of them.

    Args:
        value: what a rule found.
        spec: what TensorFlow knows of the tensor; None: nothing.
    """
    if spec is None:
        return True
    if isinstance(value, Raw):
        if spec.dtype != value.dtype:
            return False
    elif spec.dtype not in _DTYPES.get(type(value), (spec.dtype,)):
        return False
    if spec.shape is None:
        return True
    known = zip(value.shape, spec.shape, strict=False)
    sizes = all(mine == size for mine, size in known if isinstance(mine, int) and size is not None)
    return sizes and len(value.shape) == len(spec.shape)
