"""The picture of a compiled model: features, CPU steps, tables, columns, dense network, tasks, left to right.

Everything is placed here; the template only draws. Lengths are in SVG units, which are pixels at full size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bireme.compiler.reporting.report_rows import Row, rows_of

__all__ = ["Box", "Picture", "draw"]

_Key = TypeVar("_Key", bound=Hashable)

#: Left edge and width of what stands in a column of the picture.
_COLUMNS = {
    "feature": (16, 190),
    "cpu": (246, 230),
    "table": (516, 200),
    "columns": (756, 150),
    "dense": (976, 240),
    "task": (1256, 128),
}
WIDTH, _HEAD, _LINE, _PAD = 1400, 64, 16, 7
_HEIGHT, _GAP, _LANE_GAP = _LINE + 2 * _PAD, 8, 34
_CUT = 941
_LETTER = 7.0  # width of one, on average
_MOST_PRODUCTS, _MOST_TASKS = 6, 8
_ENGINES = {"native": "", "onnx": "ONNX Runtime: ", "tensorflow": "TensorFlow (slow): "}


@dataclass
class Box:
    """A rectangle with text.

    Args:
        kind: what it is, as CSS class.
        lines: what is written in it, already short enough.
        whole: all of it, shown when pointed at.
        x, y, width, height: where.
    """

    kind: str
    lines: list[str]
    whole: str
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Height of its middle."""
        return self.y + self.height / 2

    @property
    def texts(self) -> list[tuple[float, str]]:
        """(baseline, text) of each line."""
        return [(self.y + _PAD + 12 + _LINE * index, text) for index, text in enumerate(self.lines)]


@dataclass
class Picture:
    """What to draw.

    Args:
        headings: (x, text) above the columns.
        lanes: (y, height, text) of the two sides.
        boxes: rectangles.
        links: (class, SVG path) between them.
    """

    headings: list[tuple[float, str]]
    cut: float = _CUT
    width: int = WIDTH
    height: float = 0.0
    lanes: list[tuple[float, float, str]] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)

    def box(self, column: str, kind: str, lines: Sequence[str], whole: str, y: float) -> Box:
        """Add a box to a column."""
        x, width = _COLUMNS[column]
        shown = [_short(line, width) for line in lines]
        box = Box(kind, shown, whole, x, y, width, _LINE * len(lines) + 2 * _PAD)
        self.boxes.append(box)
        return box

    def link(self, start: Box, end: Box, kind: str = "") -> None:
        """Add a curve from the right edge of a box to the left edge of another, or down to one below it."""
        if start.x == end.x:
            x = start.x + start.width / 2
            self.links.append((kind, f"M{x:.1f} {start.y + start.height:.1f}V{end.y:.1f}"))
            return
        x, y, to, at = start.x + start.width, start.middle, end.x, end.middle
        bend = (x + to) / 2
        self.links.append(
            (kind, f"M{x:.1f} {y:.1f}C{bend:.1f} {y:.1f} {bend:.1f} {at:.1f} {to:.1f} {at:.1f}")
        )


def draw(report: dict[str, Any]) -> Picture:
    """The picture of a report (`report.as_data`)."""
    engine = "ONNX Runtime, CPU" if report["target"] == "cpu" else "TensorRT, GPU"
    texts = (
        "features",
        "steps on the CPU",
        "embedding tables",
        "columns that cross",
        f"dense ({engine})",
        "tasks",
    )
    picture = Picture([(x, text) for (x, _), text in zip(_COLUMNS.values(), texts, strict=True)])
    lanes = {side: rows_of(report["cut"], side) for side in ("user", "item")}
    named = {table["name"]: table for table in report["tables"]}
    tables: dict[str, tuple[list[Box], str]] = {}
    crossing: dict[str, list[Box]] = {}
    tops, top = {}, float(_HEAD + 20)
    for side, rows in lanes.items():
        tops[side] = top
        products = report["dense"]["user_once" if side == "user" else "per_candidate"]["products"]
        dense = 4 + min(len(products), _MOST_PRODUCTS + 1)
        slots = max(1, len(rows), len({names for row in rows for names in row.features}))
        height = max(slots * (_HEIGHT + _GAP), dense * _LINE + 2 * _PAD)
        crossing[side] = _lane(picture, rows, top, height, tables)
        label = "user side: once per request" if side == "user" else "item side: once per candidate"
        picture.lanes.append((top - 22, height + 30, label))
        top += height + _LANE_GAP
    picture.height = top
    _place_tables(picture, tables, named, _HEAD + 20, top - _LANE_GAP)
    _dense(picture, report, crossing, tops)
    return picture


def _lane(
    picture: Picture, rows: Sequence[Row], top: float, height: float, tables: dict[str, tuple[list[Box], str]]
) -> list[Box]:
    """One side up to its columns, whose boxes are returned; tables are noted with what reads them."""
    readers: dict[tuple[str, ...], list[Box]] = {}
    texts = {names: text for row in rows for names, text in row.features.items()}
    crossing = []
    first = top + (height - len(rows) * (_HEIGHT + _GAP)) / 2
    for index, row in enumerate(rows):
        y = first + index * (_HEIGHT + _GAP)
        step = picture.box("cpu", row.engine, [_ENGINES[row.engine] + row.how], row.whole, y)
        columns = picture.box("columns", "columns", [row.columns], row.whole, y)
        crossing.append(columns)
        for names in row.features:
            readers.setdefault(names, []).append(step)
        if row.table is None:
            picture.link(step, columns, row.engine)
        else:
            # A box for many tables is that row's own; a table may have readers on both sides.
            key = row.table if not row.table.endswith(" tables") else f"{row.table}\n{len(tables)}"
            tables.setdefault(key, ([], row.whole))[0].extend((step, columns))
    wanted = {names: _mean(step.middle for step in steps) - _HEIGHT / 2 for names, steps in readers.items()}
    for names, y in _spread(wanted, top, top + height).items():
        feature = picture.box("feature", "feature", [texts[names]], "\n".join(names), y)
        for step in readers[names]:
            picture.link(feature, step)
    return crossing


def _place_tables(
    picture: Picture,
    tables: dict[str, tuple[list[Box], str]],
    named: dict[str, dict[str, Any]],
    top: float,
    bottom: float,
) -> None:
    wanted = {name: _mean(box.middle for box in boxes) - _HEIGHT / 2 for name, (boxes, _) in tables.items()}
    for name, y in _spread(wanted, top, bottom).items():
        ends, whole = tables[name]
        if name in named:
            entry = named[name]
            whole = (
                f"{name}: {entry['rows']:,} × {entry['width']} {entry['storage']}, {entry['bytes']:,} bytes"
            )
        table = picture.box("table", "table", [name.partition("\n")[0]], whole, y)
        for box in ends:
            if box.x < table.x:
                picture.link(box, table, box.kind)
            else:
                picture.link(table, box)


def _dense(
    picture: Picture, report: dict[str, Any], crossing: dict[str, list[Box]], tops: dict[str, float]
) -> None:
    dense = report["dense"]
    boxes = {}
    for side, part, title in (
        ("user", "user_once", "once per user"),
        ("item", "per_candidate", "per candidate"),
    ):
        if not dense[part]["nodes"]:
            continue
        products = dense[part]["products"]
        lines = [title, f"{dense[part]['nodes']} nodes, {dense[part]['flops'] / 1e6:,.2f} MFLOP"]
        lines += [f"· {_tail(product['name'])}" for product in products[:_MOST_PRODUCTS]]
        if len(products) > _MOST_PRODUCTS:
            lines.append(f"· {len(products) - _MOST_PRODUCTS} more products")
        whole = (
            "\n".join(f"{p['name']} ({p['op']}): {p['flops'] / 1e6:,.3f} MFLOP" for p in products) or title
        )
        box = picture.box("dense", part, lines, f"for {dense['candidates']} candidates:\n{whole}", 0)
        middle = _mean(b.middle for b in crossing[side]) if crossing[side] else tops[side]
        box.y = max(tops[side], middle - box.height / 2)
        boxes[part] = box
    last = boxes["per_candidate"]
    for side, part in (("user", "user_once"), ("item", "per_candidate")):
        for columns in crossing[side]:
            picture.link(columns, boxes.get(part, last))
    if "user_once" in boxes:
        picture.link(boxes["user_once"], last, "broadcast")
    tasks = report["tasks"]
    shown = tasks if len(tasks) <= _MOST_TASKS else [*tasks[: _MOST_TASKS - 1], f"{len(tasks)} tasks in all"]
    wanted = dict.fromkeys(shown, last.middle - _HEIGHT / 2)
    for task, y in _spread(wanted, _HEAD, picture.height).items():
        picture.link(last, picture.box("task", "task", [task], "\n".join(tasks), y))


def _spread(wanted: Mapping[_Key, float], top: float, bottom: float) -> dict[_Key, float]:
    """Boxes of one column near where they should be, without overlap, between `top` and `bottom`."""
    pitch = _HEIGHT + _GAP
    order = sorted(wanted, key=lambda name: wanted[name])
    # Boxes that want the same place are centred around it.
    places: list[list[float]] = []  # [wanted top of the stack, its size]
    for name in order:
        places.append([wanted[name], 1])
        while len(places) > 1 and places[-2][0] + pitch * places[-2][1] > places[-1][0]:
            (above, many), (below, few) = places[-2:]
            joined = (above * many + (below - pitch * many) * few) / (many + few)
            places[-2:] = [[joined, many + few]]
    flat: list[float] = []
    for start, size in places:
        flat += [start + pitch * index for index in range(int(size))]
    limit = bottom - _HEIGHT
    for index in reversed(range(len(flat))):
        flat[index] = min(flat[index], limit)
        limit = flat[index] - pitch
    limit = top
    for index, y in enumerate(flat):
        flat[index] = max(y, limit)
        limit = flat[index] + pitch
    return dict(zip(order, flat, strict=True))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _tail(name: str) -> str:
    """The last parts of a node's name, which say most."""
    return "/".join(name.split("/")[-3:])


def _short(text: str, width: float) -> str:
    """As much of a text as fits."""
    most = int((width - 14) / _LETTER)
    return text if len(text) <= most else text[: most - 1] + "…"
