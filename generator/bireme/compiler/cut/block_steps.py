"""The plan's steps that write columns."""

from __future__ import annotations

from bireme.compiler.cut.blocks import Block
from bireme.compiler.cut.source_steps import SourceSteps
from bireme.compiler.rules.values import Count, Masked, Rows, features_of
from bireme.compiler.tables.arenas import Arenas
from bireme_runtime import plan as p

__all__ = ["about", "block_step"]

_SIGNS = {"ne": "≠", "ge": "≥", "gt": ">", "lt": "<"}


def block_step(
    name: str, block: Block, side: p.Side, offset: int, width: int, sources: SourceSteps, arenas: Arenas
) -> p.BlockStep:
    """The step that writes a block.

    Args:
        name: of the step.
        block: what it writes.
        side: into which output.
        offset: first column.
        width: number of columns.
        sources: gives the steps that make ids, strings and masks.
        arenas: gives the tables.
    """
    if isinstance(block, Rows):
        return p.Embed(
            name=name,
            ids=sources.step(block.ids),
            table=arenas.table(block),
            side=side,
            offset=offset,
            width=width,
            pool=block.pool,
            mask=sources.mask(block.mask) if block.mask is not None else None,
            floor=block.floor,
            weights=block.weights,
            fill=block.fill,
            present=block.present,
        )
    if isinstance(block, Masked):
        return p.Admitted(name, sources.mask(block), side, offset, width)
    if isinstance(block, Count):
        return p.Counted(name, sources.mask(block.mask), side, offset, block.floor, block.root)
    source = block.feature if block.source is None else sources.name(block.source)
    return p.Numeric(name, source, block.chain, side, offset, width)


def about(block: Block, arenas: Arenas) -> str:
    """What a block is made of, for people."""
    features = " × ".join(features_of(block))
    if isinstance(block, Rows):
        return f"{features} → {arenas.table(block)}" + (f", {block.pool}" if block.pool else "")
    if isinstance(block, Count):
        return f"count of {about(block.mask, arenas)}" + (", root" if block.root else "")
    if isinstance(block, Masked):
        tests = (f"{_SIGNS[one.test]} {one.value!r}" for one in block.tests)
        return f"{features} {' and '.join(tests)}"
    return " → ".join([features, *(operation for operation, _ in block.chain)])
