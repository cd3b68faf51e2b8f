"""Do other scores still rank alike? Pure functions; the gates of precision and table storage rest on them.

Two questions, since neither answers the other: how far does a candidate move inside its request
(`rank_moves`, sensitive to every swap of close scores), and does the ranking still separate what it should
(`auc`, blind to swaps among equals).

**Labels.** Where clicks are known, AUC is that of the clicks. Where they are not, the reference ranks for
them: its top share counts as clicked (`top_share`), so the reference's own AUC is 1 and a change of AUC is
the share of pairs (top, rest) that the other scores order otherwise.

**Ties.** Candidates that tie in the reference may come in any order; candidates that tie only in the other
scores may come in the worst. So equal scores for all never pass for a perfect ranking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "Change",
    "Limits",
    "auc",
    "max_rank_move",
    "measure_change",
    "rank_gate",
    "rank_moves",
    "top_share",
    "worst_of",
]

Array = np.ndarray[Any, Any]

#: What counts as clicked in the reference's ranking where no clicks are known: its best tenth.
TOP_SHARE = 0.1


def auc(scores: Array, labels: Array) -> float:
    """Area under the ROC curve: the share of (clicked, other) pairs in the right order, ties half.

    Args:
        scores: [n], finite.
        labels: [n], true (or above 0) where clicked.

    Returns:
        0 to 1; NaN where all labels are alike, since then there is nothing to order.

    Raises:
        ValueError: a score is not finite, or the lengths differ.
    """
    scores, clicked = _flat(scores), np.asarray(labels).reshape(-1) > 0
    if scores.size != clicked.size:
        raise ValueError(f"{scores.size} scores and {clicked.size} labels")
    positives = int(clicked.sum())
    negatives = clicked.size - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    first, last = _places(-scores)
    # Places count from the best; a tie takes the middle of its places, which is what counts it half.
    worse = clicked.size - 1 - (first + last)[clicked] / 2
    return float((worse.sum() - positives * (positives - 1) / 2) / (positives * negatives))


def top_share(reference: Array, share: float = TOP_SHARE) -> Array:
    """Labels from the reference's ranking: its best `share`, at least one, with all that tie with the last.

    Args:
        reference: [n], finite.
        share: 0 to 1.

    Returns:
        bool [n]; all true where all scores tie.
    """
    reference = _flat(reference)
    count = min(max(1, round(share * reference.size)), reference.size)
    result: Array = reference >= np.partition(reference, reference.size - count)[reference.size - count]
    return result


def rank_moves(reference: Array, scores: Array) -> Array:
    """How many places each candidate of one request moves, in the worst order that its ties allow.

    Args:
        reference: [n], finite.
        scores: [n], finite.

    Returns:
        int64 [n]; 0 where it stays, or moves only among candidates that tie in the reference.
    """
    reference, scores = _flat(reference), _flat(scores)
    if reference.size != scores.size:
        raise ValueError(f"{reference.size} reference scores and {scores.size} scores")
    before_first, before_last = _places(-reference)
    after_first, after_last = _places(-scores)
    return np.maximum(0, np.maximum(before_first - after_first, after_last - before_last))


def max_rank_move(reference: Array, scores: Array) -> int:
    """The largest of `rank_moves`; 0 for no candidates."""
    return int(rank_moves(reference, scores).max(initial=0))


@dataclass(frozen=True)
class Change:
    """What became of the scores of one task, or the worst of several.

    Args:
        score: largest difference of two scores, in units of the largest reference score.
        rank_move: largest move inside a request, in places.
        rank_share: largest move as a share of its request's candidates; a move by one place counts as none.
        auc: change of AUC, without its sign; NaN where all labels are alike.
        reference_auc: AUC of the reference.
        labelled: whether `auc` is that of known clicks; otherwise the reference's top share stands for them.
        finite: whether all scores are finite where the reference's are. If not, all else is infinite.
    """

    score: float
    rank_move: int | float
    rank_share: float
    auc: float
    reference_auc: float
    labelled: bool
    finite: bool


@dataclass(frozen=True)
class Limits:
    """What a change may be at most; the fields are those of `Change`."""

    score: float = np.inf
    auc: float = np.inf
    rank_share: float = np.inf


def measure_change(
    reference: Sequence[Array], scores: Sequence[Array], labels: Sequence[Array | None] | None = None
) -> Change:
    """Compare scores, request by request.

    Args:
        reference: [N] a request.
        scores: the same.
        labels: the same, true where clicked, None for a request without labels: AUC is then that of the
            others. If none has any: the reference's top share over all requests.
    """
    before = np.concatenate([np.asarray(part, dtype=np.float64).reshape(-1) for part in reference])
    after = np.concatenate([np.asarray(part, dtype=np.float64).reshape(-1) for part in scores])
    known = np.isfinite(before)
    labelled = labels is not None and any(part is not None for part in labels)
    if not np.isfinite(after[known]).all() or not known.any():
        worst = np.inf
        return Change(worst, worst, worst, worst, float("nan"), labelled, finite=not known.any())
    scale = np.abs(before[known]).max() or 1.0
    moves = []
    for old, new in zip(reference, scores, strict=True):
        kept = np.isfinite(old)
        moves.append((max_rank_move(old[kept], new[kept]), int(kept.sum())))
    if labels is not None and labelled:
        pairs = list(zip(reference, labels, strict=True))
        counted = known & np.concatenate([np.full(np.size(x), part is not None) for x, part in pairs])
        clicks = [np.zeros(np.size(x)) if part is None else np.reshape(part, -1) for x, part in pairs]
        marked = np.concatenate(clicks)[counted]
    else:
        counted, marked = known, top_share(before[known])
    old_auc, new_auc = auc(before[counted], marked), auc(after[counted], marked)
    return Change(
        score=float(np.abs(after - before)[known].max() / scale),
        rank_move=max(move for move, _ in moves),
        rank_share=max((move / count for move, count in moves if move > 1), default=0.0),
        auc=abs(new_auc - old_auc),
        reference_auc=old_auc,
        labelled=labelled,
        finite=True,
    )


def worst_of(changes: Iterable[Change]) -> Change:
    """The worst of several tasks, measure by measure."""
    known = list(changes)
    aucs = [change.auc for change in known if not np.isnan(change.auc)]
    worst = max(known, key=lambda change: -1.0 if np.isnan(change.auc) else change.auc)
    return Change(
        score=max(change.score for change in known),
        rank_move=max(change.rank_move for change in known),
        rank_share=max(change.rank_share for change in known),
        auc=max(aucs, default=float("nan")),
        reference_auc=worst.reference_auc,
        labelled=worst.labelled,
        finite=all(change.finite for change in known),
    )


def rank_gate(change: Change, limits: Limits) -> list[str]:
    """What of a change is beyond its limit, one sentence each; empty if nothing is.

    An AUC that does not exist (all labels alike) is beyond no limit.
    """
    if not change.finite:
        return ["scores are not finite where the reference's are"]
    found = []
    if change.score > limits.score:
        found.append(f"scores change by {change.score:.2g} of the largest (limit {limits.score:g})")
    if change.auc > limits.auc:
        found.append(f"AUC changes by {change.auc:.2g} (limit {limits.auc:g})")
    if change.rank_share > limits.rank_share:
        share = f"{change.rank_share:.2%} of its request"
        found.append(f"a candidate moves by {share} (limit {limits.rank_share:.2%})")
    return found


def _flat(scores: Array) -> Array:
    flat = np.asarray(scores, dtype=np.float64).reshape(-1)
    if not np.isfinite(flat).all():
        raise ValueError("a score is not finite")
    return flat


def _places(values: Array) -> tuple[Array, Array]:
    """First and last place of each value in ascending order; they differ where it ties."""
    ordered = np.sort(values)
    first: Array = np.searchsorted(ordered, values, side="left")
    last: Array = np.searchsorted(ordered, values, side="right") - 1
    return first, last
