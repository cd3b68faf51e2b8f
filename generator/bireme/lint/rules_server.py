"""Settings that need a flag of the server, and instances that Triton takes and then does not use.

"served" was seen on tritonserver 24.10.
"""

from __future__ import annotations

from collections.abc import Iterator

from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from bireme.lint.finding import Issue, Model, Rule

__all__ = ["SERVER_RULES"]


def _cache(model: Model) -> Iterator[Issue]:
    settings = model.settings
    if not model.config.response_cache.enable or settings.has_flag("--cache-config"):
        return
    # `bireme serve` and the embedded server give the flag by themselves (bireme.server.cache).
    if settings.flags is not None or not _ours(model):
        yield Issue(
            "response_cache",
            "caches nothing unless the server has --cache-config",
            "give the server --cache-config=local,size=67108864, or remove it",
        )


def _ours(model: Model) -> bool:
    return model.parameter("bireme_features") is not None


def _cache_refused(model: Model) -> Iterator[Issue]:
    if not model.config.response_cache.enable:
        return
    if model.config.model_transaction_policy.decoupled:
        yield Issue("response_cache", "does not go with a decoupled model", "remove one of them")
    if model.config.HasField("sequence_batching"):
        yield Issue("response_cache", "does not go with sequence_batching", "remove one of them")


def _host_policy(model: Model) -> Iterator[Issue]:
    for index, group in enumerate(model.config.instance_group):
        name = group.host_policy
        if name and not model.settings.has_flag(f"--host-policy={name},"):
            yield Issue(
                f"instance_group[{index}].host_policy",
                f"is '{name}': unless the server has --host-policy={name},… it does nothing, without a word",
                "give the server that flag, or remove it",
            )


def _rate_limiter(model: Model) -> Iterator[Issue]:
    for index, group in enumerate(model.config.instance_group):
        if group.HasField("rate_limiter") and not model.settings.has_flag("--rate-limit=execution_count"):
            yield Issue(
                f"instance_group[{index}].rate_limiter",
                "is ignored without --rate-limit=execution_count",
                "give the server that flag, or remove it",
            )


def _passive(model: Model) -> Iterator[Issue]:
    groups = list(model.config.instance_group)
    if groups and all(group.passive for group in groups):
        yield Issue(
            "instance_group[0].passive",
            "is true in every group: nothing runs requests, and the first one ends the server",
            "leave it out",
        )


def _gpus(model: Model) -> Iterator[Issue]:
    for index, group in enumerate(model.config.instance_group):
        if group.gpus and group.kind in (ModelInstanceGroup.KIND_CPU, ModelInstanceGroup.KIND_MODEL):
            yield Issue(
                f"instance_group[{index}].gpus",
                f"lists GPUs for {ModelInstanceGroup.Kind.Name(group.kind)}",
                "write KIND_GPU, or remove it",
            )


def _profiles(model: Model) -> Iterator[Issue]:
    for index, group in enumerate(model.config.instance_group):
        place = f"instance_group[{index}].profile"
        named = list(group.profile)
        if not model.tensorrt:
            continue  # S07
        if any(not name.isdecimal() for name in named):
            yield Issue(place, f"is {named}: profiles are numbers", "write them as '0'")
        if len(set(named)) < len(named):
            yield Issue(place, f"is {named}, with one twice", "name each once")
        missing = sorted(set(_named_elsewhere(model)) - set(named)) if not named else []
        if missing:
            yield Issue(
                place,
                f"is left out, which is profile 0 only; other groups use {', '.join(missing)}",
                "name this group's profiles",
            )


def _named_elsewhere(model: Model) -> Iterator[str]:
    for group in model.config.instance_group:
        yield from group.profile


def _decoupled(model: Model) -> Iterator[Issue]:
    if model.config.model_transaction_policy.decoupled:
        yield Issue(
            "model_transaction_policy.decoupled",
            "answers over gRPC streams only: HTTP and plain gRPC requests fail",
            "leave it out where a request has one answer",
        )


SERVER_RULES = (
    Rule(
        "S08",
        "warning",
        "`host_policy`",
        _host_policy,
        "an unknown name does nothing (served)",
        "give the server `--host-policy`, or remove it",
    ),
    Rule(
        "S09",
        "warning",
        "`rate_limiter`",
        _rate_limiter,
        "ignored without `--rate-limit` (served)",
        "give the server `--rate-limit`, or remove it",
    ),
    Rule(
        "S13",
        "warning",
        "`response_cache` without a cache; bireme's own get it from `bireme serve`",
        _cache,
        "loads, and caches nothing without `--cache-config` (served)",
        "give the server `--cache-config`, or remove it",
    ),
    Rule(
        "S14",
        "error",
        "`response_cache` with a decoupled model or sequence batching",
        _cache_refused,
        "the model does not load (served)",
        "remove one of them",
    ),
    Rule(
        "S15",
        "error",
        "instance groups that are all `passive`",
        _passive,
        "loads; the first request ends the server (served)",
        "leave it out",
    ),
    Rule(
        "S16",
        "error",
        "`gpus` with KIND_CPU or KIND_MODEL",
        _gpus,
        "the model does not load (served)",
        "write KIND_GPU, or remove them",
    ),
    Rule(
        "S17",
        "error",
        "profiles that are no numbers, named twice, or left out in a group beside others that name some",
        _profiles,
        "the model does not load, or the group runs profile 0 only",
        "name each group's profiles",
    ),
    Rule(
        "S18",
        "warning",
        "a decoupled model",
        _decoupled,
        "needs gRPC streams; plain requests fail",
        "leave it out for ranking",
    ),
)
