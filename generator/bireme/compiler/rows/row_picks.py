"""A mask that is the same in every row: `boolean_mask` as ONNX has it, done row by row.

TensorFlow flattens tensor and mask over rows and all, asks where the mask holds (`NonZero`), and gathers
there: as many numbers from each row, at the same places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from bireme.compiler.rows.row_bench import Bench, attributes_of
from bireme.compiler.rows.row_view import NoViewError, View
from bireme.compiler.rows.row_view_fills import view_of

__all__ = ["Picks", "gather_picks", "picks_of"]


@dataclass(frozen=True)
class Picks:
    """Positions in [rows·size]: `chosen` of [0, size) in each row, row by row.

    Args:
        size: numbers in a row.
        chosen: ascending positions within a row.
        rank: of the tensor of positions: 1, or 2 where it still has a dimension of 1 from `NonZero`.
    """

    size: int
    chosen: tuple[int, ...]
    rank: int


def picks_of(bench: Bench, node: onnx.NodeProto) -> Picks | None:
    """The positions that a node gives, if they are known."""
    if node.op_type == "NonZero":
        view = bench.views.get(node.input[0])
        if view is None or view.before or view.after or view.pre != 1 or view.base not in bench.constants:
            return None
        row = bench.constants[view.base].reshape(-1)
        if row.size != view.post:
            return None
        return Picks(view.post, tuple(int(i) for i in np.flatnonzero(row)), 2)
    known: Picks | None = bench.picks.get(node.input[0]) if node.input else None
    if known is None:
        return None
    if node.op_type in ("Transpose", "Identity", "Cast"):
        return known
    return Picks(known.size, known.chosen, 1) if node.op_type == "Squeeze" and known.rank == 2 else None


def gather_picks(bench: Bench, node: onnx.NodeProto) -> list[View]:
    """The numbers at such positions: [rows·size, …] → [rows·k, …].

    Raises:
        NoViewError: the node gathers otherwise.
    """
    picks, view = bench.picks[node.input[1]], view_of(bench, node.input[0])
    fits = picks.rank == 1 and not view.before and view.pre == 1 and view.post == picks.size
    if not fits or not picks.chosen or attributes_of(node).get("axis", 0) != 0:
        raise NoViewError
    base = bench.reform(view.base, (picks.size, *view.after))
    made = View("", (), 1, len(picks.chosen), view.after)
    gathered = bench.emit("Gather", [base, bench.numbers(*picks.chosen)], axis=1)
    return [made.on(bench.reform(gathered, made.rest))]
