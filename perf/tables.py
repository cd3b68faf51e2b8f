"""A comparison as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from comparison import METRICS, Case, cpu_per_request
from driver import Window
from ratios import Spread

__all__ = ["context_table", "ratio_table", "ratio_text"]

_HEADINGS = {"throughput": "throughput", "p50": "p50", "p99": "p99", "cpu": "CPU a request"}
_WORDS = ("model", "against", "of which")
_LEAST = 0.02  # CPU ms a request; processes below it were idle


def ratio_table(
    cases: Sequence[Case], title: str = "against the whole SavedModel in one Python model"
) -> Table:
    """The result: ratios, median and range of the rounds."""
    table = _table(
        f"{title}; above 1 the model is better",
        ("N", "load", "model", *(_HEADINGS[metric] for metric in METRICS), "against"),
        "median of the rounds' ratios, and their range; against: the fastest variant, INSTANCESxTHREADS",
    )
    for case in cases:
        for baseline in case.baselines:
            for model in case.ours:
                ratios = [_colored(case.ratio(metric, baseline, model)) for metric in METRICS]
                names = (_short(case, model), *ratios, _short(case, baseline))
                table.add_row(str(case.candidates), case.load, *names)
        table.add_section()
    return table


def context_table(cases: Sequence[Case]) -> Table:
    """Absolute numbers, which another machine, or this one in another minute, does not repeat."""
    table = _table(
        "absolute numbers: this machine, noisy; medians of the rounds",
        ("N", "load", "model", "requests/s", "p50 ms", "p99 ms", "CPU ms", "of which", "others"),
        "CPU: server and its Python processes, a request; others: cores that others kept busy meanwhile",
    )
    for case in cases:
        for model in case.rounds:
            numbers = [case.middle(model, METRICS[metric][0]) for metric in METRICS]
            table.add_row(
                str(case.candidates),
                case.load,
                _short(case, model),
                f"{numbers[0]:.0f}",
                *(f"{number:.2f}" for number in numbers[1:]),
                ", ".join(f"{role} {ms:.2f}" for role, ms in _parts(case, model).items() if ms >= _LEAST),
                f"{case.middle(model, _others):.2f}",
            )
        table.add_section()
    return table


def ratio_text(ratio: Spread) -> str:
    """For example "1.84 (1.71–1.98)"."""
    return f"{ratio.median:.2f} ({ratio.lowest:.2f}–{ratio.highest:.2f})"


def _table(title: str, headings: Sequence[str], caption: str) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in _WORDS else "right", no_wrap=True)
    return table


def _colored(ratio: Spread) -> str:
    """Green or red only where all rounds agree on who is better."""
    color = "green" if ratio.lowest > 1 else "red" if ratio.highest < 1 else "yellow"
    return f"[{color}]{ratio_text(ratio)}[/]"


def _parts(case: Case, model: str) -> Mapping[str, float]:
    """Role → median CPU ms a request."""
    roles = sorted({role for window in case.rounds[model] for role in window.cpu})

    def spent(role: str) -> float:
        return case.middle(model, lambda window: cpu_per_request(window).get(role, 0.0))

    return {_short(case, role): spent(role) for role in roles}


def _short(case: Case, name: str) -> str:
    return name.removeprefix(f"{case.ensemble}_")


def _others(window: Window) -> float:
    return window.others / window.seconds
