"""Which rows the picture of the report has: one a block of columns, or one for many that are made alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "rows_of"]

#: Rows of one side; with more blocks than that, those that are made alike share a row.
MOST_ROWS = 14
_MOST_FEATURES = 3
_NUMBERS = re.compile(r"\b\d+(\.\d+)?\b")
#: Slow ones first, so that a row for "the rest" never hides one.
_ENGINES = ("tensorflow", "onnx", "native")


@dataclass(frozen=True)
class Row:
    """One line of the picture, from features to columns.

    Args:
        features: names of the features, and the text of their box (one for several, if they are many).
        how: what is done on the CPU.
        engine: "native", "onnx" or "tensorflow".
        table: text of the table's box, or None.
        columns: text of the columns' box.
        whole: everything that stands behind these texts.
    """

    features: dict[tuple[str, ...], str]
    how: str
    engine: str
    table: str | None
    columns: str
    whole: str


def rows_of(cut: Sequence[dict[str, Any]], side: str) -> list[Row]:
    """The rows of one side ("user" or "item"), in the order of the columns.

    Args:
        cut: the report's section `cut`.
        side: whose columns.
    """
    # What is equal shares its columns; then there are several tensors, but one block.
    blocks = list({tuple(entry["columns"]): entry for entry in cut if entry["side"] == side}.values())
    groups: dict[Any, list[dict[str, Any]]] = {}
    for number, block in enumerate(blocks):
        groups.setdefault(_kind(block) if len(blocks) > MOST_ROWS else number, []).append(block)
    joined = sorted(groups.values(), key=len, reverse=True)
    shown = joined if len(joined) <= MOST_ROWS else joined[: MOST_ROWS - len(_ENGINES)]
    rest = [block for group in joined[len(shown) :] for block in group]
    rows = [_row(group, side) for group in groups.values() if group in shown]
    for engine in _ENGINES:
        others = [block for block in rest if block["engine"] == engine]
        if others:
            rows.append(_row(others, side))
    return rows


def _kind(block: dict[str, Any]) -> tuple[Any, ...]:
    """Equal for blocks that are made alike: the same steps, whatever their sizes."""
    return (block["engine"], _NUMBERS.sub("n", block["how"]), block["table"] is None)


def _row(blocks: Sequence[dict[str, Any]], side: str) -> Row:
    names = list(dict.fromkeys(name for block in blocks for name in block["features"]))
    tables = list(dict.fromkeys(block["table"] for block in blocks if block["table"] is not None))
    hows = list(dict.fromkeys(block["how"] for block in blocks))
    kinds = {_kind(block) for block in blocks}
    how = hows[0] if len(hows) == 1 else _NUMBERS.sub("…", hows[0]) if len(kinds) == 1 else "other steps"
    first, last = blocks[0]["columns"]
    width = sum(block["columns"][1] - block["columns"][0] for block in blocks)
    what = "user" if side == "user" else "items"
    return Row(
        features=(
            {(name,): name for name in names}
            if len(names) <= _MOST_FEATURES
            else {tuple(names): f"{len(names)} features"}
        ),
        how=how,
        engine=blocks[0]["engine"],
        table=None if not tables else tables[0] if len(tables) == 1 else f"{len(tables)} tables",
        columns=f"{what}[{first}:{last}]" if len(blocks) == 1 else f"{width} in {len(blocks)} blocks",
        whole="\n".join(
            f"{what}[{block['columns'][0]}:{block['columns'][1]}] = {block['made_of']}, {block['how']}"
            for block in blocks
        ),
    )
