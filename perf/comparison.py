"""Rounds of both sides → what a comparison says: ratios with their spread, and the numbers behind them.

Every ratio is turned so that above 1 the ensemble, or what stands beside it, is better.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from driver import Window
from ratios import Spread, paired, spread

__all__ = ["METRICS", "Case", "as_data", "cpu_per_request", "fastest", "order"]

Key = TypeVar("Key")

#: name → (what a window says, whether more is better)
METRICS: dict[str, tuple[Callable[[Window], float], bool]] = {
    "throughput": (lambda window: window.requests / window.seconds, True),
    "p50": (lambda window: window.p50, False),
    "p99": (lambda window: window.p99, False),
    "cpu": (lambda window: sum(cpu_per_request(window).values()), False),
}


@dataclass(frozen=True)
class Case:
    """One number of candidates and one load.

    Args:
        candidates: N.
        clients: how many sent at the same time; 0: they came at a rate.
        ensemble: name of the ensemble.
        rounds: model → one window a round; the ensemble, what is `beside` it, every variant of the baseline.
        beside: what else is compared with the baseline.
        rate: requests a second that came, whatever the server did; None: each client waited for its answer.
        tuned: variants of the baseline for which the model itself was changed: shown, but not to be beaten.
        note: what else is special about the requests.
    """

    candidates: int
    clients: int
    ensemble: str
    rounds: Mapping[str, Sequence[Window]]
    beside: tuple[str, ...] = ()
    rate: float | None = None
    tuned: tuple[str, ...] = ()
    note: str = ""

    @property
    def ours(self) -> tuple[str, ...]:
        """Everything that is compared with the baseline."""
        return (self.ensemble, *self.beside)

    @property
    def load(self) -> str:
        """The load in words."""
        paced = self.rate is not None
        load = f"{self.rate:.0f}/s" if paced else f"{self.clients} client{'s' if self.clients > 1 else ''}"
        return f"{load}, {self.note}" if self.note else load

    @property
    def baseline(self) -> str:
        """The variant that answered most requests a second: the ensemble has to beat the best."""
        taken = (*self.ours, *self.tuned)
        return fastest({name: w for name, w in self.rounds.items() if name not in taken})

    @property
    def baselines(self) -> tuple[str, ...]:
        """The baseline, and the fastest of the tuned ones if there are any."""
        tuned = {name: self.rounds[name] for name in self.tuned if name in self.rounds}
        return (self.baseline, *([fastest(tuned)] if tuned else []))

    def ratio(self, metric: str, baseline: str = "", model: str = "") -> Spread:
        """Spread of the rounds' ratios; above 1 the model is better.

        Args:
            metric: a key of `METRICS`.
            baseline: a variant; empty: the fastest.
            model: one of `ours`; empty: the ensemble.
        """
        value, more_is_better = METRICS[metric]
        ours = [value(window) for window in self.rounds[model or self.ensemble]]
        theirs = [value(window) for window in self.rounds[baseline or self.baseline]]
        return spread(paired(ours, theirs) if more_is_better else paired(theirs, ours))

    def middle(self, model: str, value: Callable[[Window], float]) -> float:
        """Median over the rounds of a model."""
        return median(value(window) for window in self.rounds[model])


def fastest(rounds: Mapping[str, Sequence[Window]]) -> str:
    """The model with the highest median throughput."""
    throughput = METRICS["throughput"][0]
    return max(rounds, key=lambda name: median(throughput(window) for window in rounds[name]))


def cpu_per_request(window: Window) -> dict[str, float]:
    """Role → CPU milliseconds a request; processes that did nothing are left out."""
    return {
        role: 1e3 * seconds / window.requests for role, seconds in sorted(window.cpu.items()) if seconds > 0
    }


def order(models: Sequence[Key], round_: int) -> list[Key]:
    """Who is driven after whom: forwards and backwards in turn, so that a steady drift cancels out."""
    return list(models) if round_ % 2 == 0 else list(reversed(models))


def as_data(case: Case) -> dict[str, Any]:
    """A case as JSON values."""
    return {
        "candidates": case.candidates,
        "clients": case.clients,
        "rate": case.rate,
        "note": case.note,
        "baseline": case.baseline,
        "ratios": {
            baseline: {
                model: {m: dataclasses.asdict(case.ratio(m, baseline, model)) for m in METRICS}
                for model in case.ours
            }
            for baseline in case.baselines
        },
        "rounds": {
            model: [dataclasses.asdict(window) for window in windows]
            for model, windows in case.rounds.items()
        },
    }
