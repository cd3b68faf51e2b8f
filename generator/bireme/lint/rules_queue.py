"""Queues, timeouts and priorities: of a model, and over the steps of an ensemble.

Read in core's src/model_config_utils.cc, src/scheduler_utils.cc and src/ensemble_scheduler; "served" was seen
on tritonserver 24.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelQueuePolicy

from bireme.lint.ensembles import Step, slo_ms, steps, used_in
from bireme.lint.finding import Issue, Model, Rule

__all__ = ["QUEUE_RULES"]

_POLICY = "dynamic_batching.default_queue_policy"


def _policies(model: Model) -> Iterator[tuple[str, Any]]:
    """(place, queue policy), of all levels."""
    batching = model.config.dynamic_batching
    if model.config.HasField("dynamic_batching"):
        yield _POLICY, batching.default_queue_policy
        for level, policy in sorted(batching.priority_queue_policy.items()):
            yield f"dynamic_batching.priority_queue_policy[{level}]", policy


def _unbounded(model: Model) -> Iterator[Issue]:
    """Where a target is stated: a time for requests, timeouts, priorities."""
    ensembles = [model.others[name] for name in used_in(model)]
    first = not ensembles or any(
        steps(ensemble)[0].settings.model_name == model.name for ensemble in ensembles
    )
    targets = [target for target in map(slo_ms, (model, *ensembles)) if target is not None]
    for place, policy in _policies(model):
        stated = policy.default_timeout_microseconds or model.config.dynamic_batching.priority_levels > 1
        if not policy.max_queue_size and (stated or (targets and first)):
            yield Issue(
                f"{place}.max_queue_size",
                "is 0, which is no limit: under overload requests wait ever longer, whatever the target"
                + (f" of {targets[0]:g} ms" if targets else ""),
                "bound it by what the instances finish within the target",
            )


def _timeouts(model: Model) -> Iterator[Issue]:
    """The sum over the steps, for an ensemble with a target."""
    target = slo_ms(model)
    if target is None or not model.config.HasField("ensemble_scheduling"):
        return
    known = [step for step in steps(model) if step.model is not None]
    waits = [(step, _timeout(step.model)) for step in known if step.model is not None]
    total = sum(wait for _, wait in waits) / 1000
    listed = ", ".join(f"{step.settings.model_name} {wait / 1000:g} ms" for step, wait in waits if wait)
    if total > target:
        yield Issue(
            "ensemble_scheduling.step",
            f"may wait {total:g} ms in queues ({listed}), and a request may take {target:g} ms",
            "divide the target among the steps: each gets its timeout anew",
        )
    elif total and (endless := [step for step, wait in waits if not wait]):
        for step in endless:
            yield Issue(
                f"{step.place}.model_name",
                f"runs {step.settings.model_name}, whose queue has no timeout: {target:g} ms are not kept",
                "give it default_timeout_microseconds and timeout_action REJECT",
            )


def _timeout(model: Model) -> int:
    """The longest wait that a model's queue allows, in µs; 0: without end."""
    found = [
        policy.default_timeout_microseconds
        for _, policy in _policies(model)
        if policy.timeout_action == ModelQueuePolicy.REJECT
    ]
    return max(found, default=0) if all(found) else 0


def _overrides(model: Model) -> Iterator[Issue]:
    """A request's own timeout is handed to each step unchanged."""
    groups = _split(model, lambda step: any(policy.allow_timeout_override for _, policy in _policies(step)))
    able, unable = groups
    if len(able) > 1:
        yield Issue(
            "ensemble_scheduling.step",
            f"may wait a request's timeout {len(able)} times: {', '.join(_names(able))} each begin anew",
            "let clients send the target divided by the steps, or set allow_timeout_override on one step",
        )
    elif able and unable:
        yield Issue(
            "ensemble_scheduling.step",
            f"look at a request's timeout only in {_names(able)[0]}; {', '.join(_names(unable))} ignore it",
            "give the others a default_timeout_microseconds",
        )


def _priorities(model: Model) -> Iterator[Issue]:
    with_levels, without = _split(model, lambda step: step.config.dynamic_batching.priority_levels > 0)
    for step in without if with_levels else ():
        yield Issue(
            f"{step.place}.model_name",
            f"runs {step.settings.model_name} without priority_levels: there a request's priority is dropped",
            f"give it the levels of {_names(with_levels)[0]}",
        )
    counts = {
        step.model.config.dynamic_batching.priority_levels for step in with_levels if step.model is not None
    }
    if len(counts) > 1:
        yield Issue(
            "ensemble_scheduling.step",
            f"have {', '.join(map(str, sorted(counts)))} priority levels: a level that a step does not have"
            " becomes its default",
            "give all steps the same number",
        )


def _split(model: Model, has: Any) -> tuple[Sequence[Step], Sequence[Step]]:
    """Steps for which something holds, and the others."""
    known = [step for step in steps(model) if step.model is not None and not step.model.ensemble]
    return [step for step in known if has(step.model)], [step for step in known if not has(step.model)]


def _names(found: Sequence[Step]) -> Sequence[str]:
    return [step.settings.model_name for step in found]


def _ordering(model: Model) -> Iterator[Issue]:
    batching = model.config.dynamic_batching
    if batching.preserve_ordering:
        if batching.priority_levels > 1:
            yield Issue(
                "dynamic_batching.preserve_ordering",
                f"does not go with {batching.priority_levels} priority levels",
                "leave it out",
            )
        for place, policy in _policies(model):
            if policy.timeout_action == ModelQueuePolicy.DELAY:
                yield Issue(f"{place}.timeout_action", "is DELAY with preserve_ordering", "write REJECT")


def _levels(model: Model) -> Iterator[Issue]:
    batching = model.config.dynamic_batching
    levels = batching.priority_levels
    if levels and not 1 <= batching.default_priority_level <= levels:
        yield Issue(
            "dynamic_batching.default_priority_level",
            f"is {batching.default_priority_level}, and levels are 1 to {levels}",
            "write one of them",
        )
    for level in sorted(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            yield Issue(
                f"dynamic_batching.priority_queue_policy[{level}]",
                f"is for level {level}, and there are {levels} levels",
                "write priority_levels, or remove it",
            )


def _preferred(model: Model) -> Iterator[Issue]:
    most = model.config.max_batch_size
    beyond = [size for size in model.config.dynamic_batching.preferred_batch_size if not 1 <= size <= most]
    if beyond:
        yield Issue(
            "dynamic_batching.preferred_batch_size",
            f"has {', '.join(map(str, beyond))}, and batches are 1 to {most}",
            "keep to max_batch_size, or leave it out",
        )


def _delay(model: Model) -> Iterator[Issue]:
    for place, policy in _policies(model):
        if policy.default_timeout_microseconds and policy.timeout_action == ModelQueuePolicy.DELAY:
            yield Issue(
                f"{place}.timeout_action",
                "is DELAY: what has timed out is still run, after the others",
                "write REJECT, so that it is refused",
            )


def _no_batches(model: Model) -> Iterator[Issue]:
    if model.config.HasField("dynamic_batching") and not model.config.max_batch_size and not model.tensorrt:
        yield Issue(
            "dynamic_batching",
            "merges nothing, as max_batch_size is 0",
            "make the first dimension the batch and set max_batch_size, or remove it",
        )


QUEUE_RULES = (
    Rule(
        "Q01",
        "warning",
        "a target (`--slo-ms`, parameter `slo_ms`, timeouts, priorities) and `max_queue_size` 0",
        _unbounded,
        "no limit: overload makes every request wait longer",
        "bound the queue",
    ),
    Rule(
        "Q03",
        "error",
        "steps' timeouts that add up to more than the ensemble's target; steps without one beside others",
        _timeouts,
        "each step gets its timeout anew",
        "divide the target among the steps",
    ),
    Rule(
        "Q04",
        "warning",
        "`allow_timeout_override` in several steps, or in some only",
        _overrides,
        "a request's timeout is handed to each step whole, and others ignore it",
        "one step, or the target divided by the steps",
    ),
    Rule(
        "Q05",
        "warning",
        "steps without `priority_levels` beside others, or with other numbers of them",
        _priorities,
        "a request's priority is dropped there without a word (served; server#6055)",
        "the same levels in every step",
    ),
    Rule(
        "Q06",
        "error",
        "`preserve_ordering` with several priority levels or DELAY",
        _ordering,
        "the model does not load (served)",
        "leave it out",
    ),
    Rule(
        "Q07",
        "error",
        "a default priority or a policy for a level that there is not",
        _levels,
        "the model does not load; with no levels at all the policy is ignored (served)",
        "keep to 1 to `priority_levels`",
    ),
    Rule(
        "Q08",
        "error",
        "`preferred_batch_size` outside of 1 to `max_batch_size`",
        _preferred,
        "the model does not load (served)",
        "keep to `max_batch_size`",
    ),
    Rule(
        "Q09",
        "warning",
        "a timeout with action DELAY",
        _delay,
        "what has timed out is run after the others, and nothing is refused",
        "write REJECT",
    ),
    Rule(
        "Q02",
        "warning",
        "`dynamic_batching` with `max_batch_size: 0`",
        _no_batches,
        "loads, and merges nothing (served)",
        "set `max_batch_size`, or remove it",
    ),
)
