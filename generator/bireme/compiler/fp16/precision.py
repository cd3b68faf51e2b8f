"""Pass 10, precision: FP16 typed in the graph, with as few FP32 nodes as scores and ranking allow.

1. Constants that only mask (−2³² + 1) are drawn into FP16's range, if that changes no score.
2. A range scan on half of the samples finds what cannot be FP16, and what had better not be.
3. A search on the same half finds few nodes that have to stay FP32; the hand-over counts as one of them.
4. The other half confirms it. If it does not, the search is repeated on both halves, and the report says so.

The user's patterns come before all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

from bireme.compiler.cut.split import Boundary
from bireme.compiler.fp16.evidence import Evidence, Sample
from bireme.compiler.fp16.half import FP16_MAX, MOVES, is_float, tensor_types
from bireme.compiler.fp16.half_limits import HEADROOM, Limited, Mask, clip, find_limits, find_masks
from bireme.compiler.fp16.layers import Layer, group_layers, node_costs, origin
from bireme.compiler.fp16.patterns import match_nodes, user_choice
from bireme.compiler.fp16.precision_search import Found, search
from bireme.compiler.fp16.ranges import column_ranges, tensor_ranges
from bireme.compiler.fp16.ranking import Change, Limits, rank_gate, worst_of
from bireme.compiler.fp16.trials import HANDOVER, Trials, damage_of
from bireme.errors import CompileError
from bireme.spec_precision import PrecisionSpec

__all__ = ["Kept", "Precision", "choose_precision", "full_precision"]

#: A clipped mask may change a score by this much, in units of the largest: FP32's own rounding.
_SAME = 1e-6
#: The search aims at this share of the limits, so that requests it has not seen keep within them.
_AIM = 0.7
#: A column whose values are so much larger than their spread that FP16 leaves fewer than 5 bits of it.
_COARSE = 64.0


@dataclass(frozen=True)
class Kept:
    """A node that stays FP32.

    Args:
        node: its name in the ONNX; `HANDOVER` for what crosses from the CPU.
        op: its op.
        origin: its name in TensorFlow.
        layer: the layer it belongs to.
        reason: why.
    """

    node: str
    op: str
    origin: str
    layer: str
    reason: str


@dataclass(frozen=True)
class Precision:
    """What was decided, and on what evidence.

    Args:
        mode: "fp16", or "fp32" where nothing was to be decided.
        dense: the typed network.
        handover: type of its inputs.
        handover_reason: why it is FP32; empty for FP16.
        kept: nodes that stay FP32, in order.
        computing: how many nodes compute FP32 numbers before.
        flops_kept: share of the multiply-adds with weights that stay FP32.
        clipped: masks that were drawn into FP16's range.
        evaluations: how often the network was tried, the confirmation included.
        complete: whether the evaluations sufficed for the whole search.
        confirmed: whether the held-out half kept the limits at once.
        searched: task → change on the half that was searched on.
        held_out: task → change on the other half.
        recorded: how many of the sample requests are the user's.
        made_up: how many are not.
        refused: how many of the user's are left out, as the CPU side refuses them.
        auc_of: task → whose AUC is compared, in words.
        alone: layer → damage alone in FP16 (the limit being 1), where the search had to ask.
    """

    mode: Literal["fp16", "fp32"]
    dense: onnx.ModelProto
    handover: Literal["float32", "float16"]
    handover_reason: str = ""
    kept: tuple[Kept, ...] = ()
    computing: int = 0
    flops_kept: float = 1.0
    clipped: tuple[Mask, ...] = ()
    evaluations: int = 0
    complete: bool = True
    confirmed: bool = True
    searched: Mapping[str, Change] | None = None
    held_out: Mapping[str, Change] | None = None
    recorded: int = 0
    made_up: int = 0
    refused: int = 0
    auc_of: Mapping[str, str] | None = None
    alone: Mapping[str, float] | None = None


def full_precision(dense: onnx.ModelProto) -> Precision:
    """Everything FP32."""
    return Precision("fp32", dense, "float32", "precision is FP32 throughout")


def choose_precision(
    dense: onnx.ModelProto, spec: PrecisionSpec, evidence: Evidence, boundaries: Sequence[Boundary]
) -> Precision:
    """Type a network in FP16.

    Args:
        dense: the lifted network, FP32, inputs too; its nodes documented with their origin.
        spec: limits and patterns.
        evidence: sample requests.
        boundaries: which column is what, for reasons.

    Raises:
        SpecError: a pattern names nothing, or contradicts another.
        CompileError: the user's patterns leave no network within the limits.
    """
    limits = Limits(spec.tolerance, spec.max_auc_change, spec.max_rank_move)
    model, masks = _clip_masks(dense, evidence.search)
    forced, suspect = _limits_of(model, spec, evidence.search, boundaries)
    chosen = user_choice(dense, spec, forced)
    forced |= {name: reason for name, reason in chosen.items() if name not in forced}

    released = set(match_nodes(dense, spec.keep_fp16, "keep_fp16"))
    if spec.handover == "float16":
        released.add(HANDOVER)
    layers = _layers(model, released, spec.evaluations)
    trials = Trials(dense, model, evidence.search)
    found = _searched(layers, forced, suspect, [trials], limits, model, spec)
    evaluations, confirmed = found.evaluations, True
    other = Trials(dense, model, evidence.held_out)
    held_out = other.changes(found.kept)
    if damage_of(held_out, limits) > 1 and spec.evaluations:
        confirmed = False
        found = _searched(layers, forced, suspect, [trials, other], limits, model, spec)
        evaluations += found.evaluations
        held_out = other.changes(found.kept)
    searched = trials.changes(found.kept)
    _require(spec, limits, {"the samples": searched, "the held-out samples": held_out})

    typed, handover = trials.typed(found.kept)
    reasons = _reasons(layers, found, forced, suspect)
    costs = node_costs(model)
    weighted = {name: cost for name, cost in costs.items() if cost > 1}
    return Precision(
        mode="fp16",
        dense=typed,
        handover=handover,
        handover_reason=reasons.get(HANDOVER, ""),
        kept=_kept(model, layers, reasons),
        computing=sum(len(layer.nodes) for layer in group_layers(model)),
        flops_kept=sum(c for n, c in weighted.items() if n in found.kept) / max(1, sum(weighted.values())),
        clipped=tuple(masks),
        evaluations=evaluations + 1,
        complete=found.complete,
        confirmed=confirmed,
        searched=searched,
        held_out=held_out,
        recorded=evidence.recorded,
        made_up=evidence.made_up,
        refused=evidence.refused,
        auc_of=evidence.auc_of,
        alone=found.alone,
    )


def _clip_masks(dense: onnx.ModelProto, samples: Sequence[Sample]) -> tuple[onnx.ModelProto, list[Mask]]:
    """Draw masks into range, those that no score depends on."""
    masks = []
    for mask in find_masks(dense):
        changes = Trials(dense, dense, samples).compare(clip(dense, [mask]))
        worst = worst_of(changes.values())
        if worst.finite and worst.score <= _SAME:
            masks.append(mask)
    return clip(dense, masks), masks


def _limits_of(
    model: onnx.ModelProto, spec: PrecisionSpec, samples: Sequence[Sample], boundaries: Sequence[Boundary]
) -> tuple[dict[str, str], dict[str, str]]:
    """Node → why it may not, and why it had better not, be FP16; the hand-over among them."""
    found: Limited = find_limits(model, tensor_ranges(model, [sample.feeds for sample in samples]))
    for name in (value.name for value in model.graph.input):
        side = "user" if name == "user" else "item"
        for column, seen in enumerate(column_ranges([sample.feeds[name] for sample in samples])):
            what = _column(boundaries, side, column)
            if seen.largest > FP16_MAX / HEADROOM:
                reason = f"{what} reaches {seen.largest:.3g}, FP16 ends at {FP16_MAX:g}"
                found.forced.setdefault(HANDOVER, reason)
            elif seen.spread > 0 and seen.size > _COARSE * seen.spread:
                reason = f"{what} is {seen.size / seen.spread:.0f} times larger than it varies"
                found.suspect.setdefault(HANDOVER, reason)
    if spec.handover == "float32":
        found.forced[HANDOVER] = "the spec says so"
    return found.forced, found.suspect


def _column(boundaries: Sequence[Boundary], side: str, column: int) -> str:
    for boundary in boundaries:
        if boundary.side == side and boundary.offset <= column < boundary.offset + boundary.width:
            return f"'{boundary.made_of}'"
    return f"column {column} of {side}"


def _layers(model: onnx.ModelProto, released: set[str], evaluations: int) -> list[Layer]:
    """What the search decides about: the hand-over, and layers, few enough to ask about each."""
    at_most = max(4, evaluations // 3) if evaluations else None
    layers = [Layer(HANDOVER, (HANDOVER,)), *group_layers(model, at_most)]
    left = [Layer(x.name, tuple(name for name in x.nodes if name not in released)) for x in layers]
    return [layer for layer in left if layer.nodes]


def _searched(
    layers: Sequence[Layer],
    forced: Mapping[str, str],
    suspect: Mapping[str, str],
    trials: Sequence[Trials],
    limits: Limits,
    model: onnx.ModelProto,
    spec: PrecisionSpec,
) -> Found:
    if not spec.evaluations:
        return Found(frozenset(forced), 0, {}, True)
    free = {name for layer in layers for name in layer.nodes}
    widths = {value.name: value.type.tensor_type.shape.dim[-1].dim_value for value in model.graph.input}
    costs = node_costs(model) | {HANDOVER: sum(widths.values())}
    return search(
        layers,
        frozenset(forced),
        frozenset(suspect) & free,
        lambda kept: max(damage_of(trial.changes(kept), limits) for trial in trials) / _AIM,
        costs,
        spec.evaluations,
    )


def _require(spec: PrecisionSpec, limits: Limits, changes: Mapping[str, Mapping[str, Change]]) -> None:
    """Refuse what the search was not free to avoid.

    Raises:
        CompileError: naming the limit.
    """
    for where, tasks in changes.items():
        for task, change in tasks.items():
            beyond = rank_gate(change, limits)
            if beyond:
                cause = "`keep_fp16`" if spec.keep_fp16 or spec.handover == "float16" else "`evaluations: 0`"
                raise CompileError(
                    f"pass precision, output '{task}'",
                    f"on {where}, {'; '.join(beyond)}",
                    f"{cause} in the spec's `precision` leaves no choice: allow more nodes in FP32",
                )


def _reasons(
    layers: Sequence[Layer], found: Found, forced: Mapping[str, str], suspect: Mapping[str, str]
) -> dict[str, str]:
    """Kept node → why."""
    reasons = {}
    for layer in layers:
        damage = found.alone.get(layer.name)
        for name in layer.nodes:
            if name not in found.kept:
                continue
            if name in forced:
                reasons[name] = forced[name]
            elif name in suspect:
                reasons[name] = suspect[name]
            elif damage is None or not np.isfinite(damage):
                reasons[name] = "scores are lost without it" if damage is not None else "kept to be safe"
            else:
                reasons[name] = f"its layer alone in FP16 takes {damage:.2g} of what may be lost"
    return reasons


def _kept(model: onnx.ModelProto, layers: Sequence[Layer], reasons: Mapping[str, str]) -> tuple[Kept, ...]:
    layer_of = {name: layer.name for layer in layers for name in layer.nodes}
    types = tensor_types(model)
    return tuple(
        Kept(node.name, node.op_type, origin(node), layer_of[node.name], reasons[node.name])
        for node in model.graph.node
        if node.name in reasons and is_float(node, types) and node.op_type not in MOVES
    )
