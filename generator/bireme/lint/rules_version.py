"""Fields that a release of Triton does not have yet, or reads in another way.

In which release a field came was seen in tritonclient's model_config_pb2: 2.62 (25.10) has no
max_inflight_requests, 2.63 (25.11) has; its meaning changed with core#482 (March 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from bireme.lint.ensembles import steps
from bireme.lint.finding import Issue, Model, Rule
from bireme.lint.release import releases

__all__ = ["VERSION_RULES"]

_INFLIGHT = "ensemble_scheduling.max_inflight_requests"


def _unknown(model: Model) -> Iterator[Issue]:
    if model.config.ensemble_scheduling.max_inflight_requests:
        yield Issue(
            _INFLIGHT,
            "is unknown to releases before 25.11: not this model alone, the server does not start",
            "leave it out there",
        )


def _per_request(model: Model) -> Iterator[Issue]:
    if model.config.ensemble_scheduling.max_inflight_requests:
        yield Issue(
            _INFLIGHT,
            "counts within each request up to 26.03: it does not limit how many requests are in the ensemble",
            "limit requests in front of the server, or serve with 26.04 or later",
        )


def _stuck(model: Model) -> Iterator[Issue]:
    if not model.config.ensemble_scheduling.max_inflight_requests:
        return
    for step in steps(model):
        batching = step.model.config.dynamic_batching if step.model is not None else None
        if batching is not None and batching.default_queue_policy.max_queue_size:
            yield Issue(
                _INFLIGHT,
                f"with max_queue_size in {step.settings.model_name}: when that queue is full, requests of the"
                " ensemble may wait for ever",
                "leave one of them out, or serve with 26.02 or later",
            )


VERSION_RULES = (
    Rule(
        "V01",
        "error",
        "`max_inflight_requests` before there was such a field",
        _unknown,
        "the config does not parse, and the server does not start (served)",
        "leave it out, or serve with 25.11 or later",
        releases(last="25.10"),
    ),
    Rule(
        "V02",
        "warning",
        "`max_inflight_requests` while it counts within one request",
        _per_request,
        "only models that answer one request several times are held back (core#482, server#8597)",
        "limit requests in front of the server",
        releases("25.11", "26.03"),
    ),
    Rule(
        "V05",
        "error",
        "`max_inflight_requests` with `max_queue_size` in a step",
        _stuck,
        "what the full queue refuses leaves others waiting (core#466; not on 24.10, served)",
        "leave one of them out",
        releases("25.11", "26.01"),
    ),
)
