"""What was asked for, what was found: each claim passes, fails, or could not be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpu.throughput import ALONE

__all__ = ["Verdict", "judge"]

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One claim.

    Args:
        claim: in words.
        wanted: the threshold in words.
        found: the number that counts; None: nothing to judge it by.
        verdict: pass, fail, or "not measured".
    """

    claim: str
    wanted: str
    found: float | None
    verdict: Literal["pass", "fail", "not measured"]


def judge(results: Results, instances: int = 4) -> list[dict[str, Any]]:
    """All claims.

    Args:
        results: step → its result, of the steps that were done.
        instances: of the network, where there are several.
    """
    one, many = "1 instance, no graphs", f"{instances} instances, graphs"
    shared = f"{many}, MPS"
    best = max((_rate(results, many, k) or 0.0 for k in (0, 1)), default=0.0) or None
    best_shared = max((_rate(results, shared, k) or 0.0 for k in (0, 1)), default=0.0) or None
    verdicts = [
        _least(
            f"throughput of {many} over {one}, 8 clients",
            2.1,
            _ratio(_rate(results, many), _rate(results, one)),
        ),
        _least(
            f"throughput of {many} over {one}, 8 clients, every request by itself",
            2.1,
            _ratio(_rate(results, many + ALONE), _rate(results, one + ALONE)),
        ),
        _least(
            f"throughput of {shared} over {one}, 8 clients",
            2.1,
            _ratio(_rate(results, shared), _rate(results, one)),
        ),
        _most(
            f"P99 of {many} over {one}, equal offered load",
            1 / 3,
            _ratio(_offered(results, many), _offered(results, one)),
        ),
        _most(
            f"P99 of {many} over {one}, equal offered load, every request by itself",
            1 / 3,
            _ratio(_offered(results, many + ALONE), _offered(results, one + ALONE)),
        ),
        _most(
            f"P99 of {shared} over {one}, equal offered load",
            1 / 3,
            _ratio(_offered(results, shared), _offered(results, one)),
        ),
        _least(
            f"throughput of {many} over eager FP32, best load of each",
            12.0,
            _ratio(best, _eager(results, "eager")),
        ),
        _least("throughput with MPS over without, best of 8 and 16 clients", 1.3, _ratio(best_shared, best)),
        _least(
            "throughput with MPS over without, 8 clients, every request by itself",
            1.3,
            _ratio(_rate(results, shared + ALONE), _rate(results, many + ALONE)),
        ),
        _least(f"requests/s of {many}, b256, 8 clients, no MPS", 3887.0, _rate(results, many)),
        _least(f"requests/s of {shared}, b256, best of 8 and 16 clients", 5605.0, best_shared),
        _least(
            "throughput of the ensemble over the whole model executed eagerly, best load of each",
            1.0,
            _ratio(_ensemble(results), _eager(results, "whole model, eager")),
        ),
    ]
    return [asdict(verdict) for verdict in verdicts]


def _least(claim: str, limit: float, found: float | None) -> Verdict:
    return Verdict(claim, f"≥ {limit:g}", found, "not measured" if found is None else _word(found >= limit))


def _most(claim: str, limit: float, found: float | None) -> Verdict:
    return Verdict(claim, f"≤ {limit:.2g}", found, "not measured" if found is None else _word(found <= limit))


def _word(good: bool) -> Literal["pass", "fail"]:
    return "pass" if good else "fail"


def _ratio(above: float | None, below: float | None) -> float | None:
    return round(above / below, 3) if above and below else None


def _rate(results: Results, name: str, place: int = 0) -> float | None:
    closed = (results.get(name) or {}).get("closed", [])
    return float(closed[place]["requests_per_s"]) if len(closed) > place else None


def _offered(results: Results, name: str) -> float | None:
    offered = (results.get(name) or {}).get("offered")
    return float(offered["p99_us"]) if offered else None


def _eager(results: Results, name: str) -> float | None:
    """Its best: several clients do not help it."""
    loads = (results.get(name) or {}).get("loads", [])
    return max((float(load["requests_per_s"]) for load in loads), default=None)


def _ensemble(results: Results) -> float | None:
    variants = (results.get("ensemble end to end") or {}).values()
    rates = [float(load["requests_per_s"]) for variant in variants for load in variant["loads"]]
    return max(rates, default=None)
