"""The report's section `user_ahead` for a terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

__all__ = ["ahead_table"]

_ROWS = {
    "feature_values": ("feature values transformed", 1.0, ",.0f"),
    "request_bytes": ("bytes of a request", 1.0, ",.0f"),
    "flops": ("MFLOP of matrix products", 1e6, ",.3f"),
    "weight_bytes": ("bytes of weights read", 1.0, ",.0f"),
}


def ahead_table(section: dict[str, Any]) -> Table:
    """One line a measure: one-shot request, user, slice, and the share that many slices save."""
    slices, candidates = section["slices"], section["candidates"]
    title = f"User side ahead of time: {slices} slices of {candidates} against as many one-shot requests"
    table = Table(title=title, title_justify="left")
    columns = ("", "one-shot", "user, once", "slice", f"saved with {slices} slices")
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", justify="left" if number == 0 else "right")
    parts = ("one_shot", "user", "slice")
    for key, (label, unit, form) in _ROWS.items():
        values = [f"{section['counts'][part][key] / unit:{form}}" for part in parts]
        table.add_row(label, *values, f"{section['saved'][key]:.1%}")
    if "cpu_milliseconds" in section:  # measured when the report was made, not kept in report.json
        times = [sum(section["cpu_milliseconds"][part].values()) for part in parts]
        saved = f"{section['saved']['cpu_milliseconds']:.1%}"
        table.add_row("CPU ms here, without a server", *(f"{time:.3f}" for time in times), saved)
    sent = ", ".join(section["sent_with_each_slice"])
    table.caption = f"the state: {section['state_bytes']:,} bytes a user" + (
        f"; crosses of user and item, so sent with each slice too: {sent}" if sent else ""
    )
    return table
