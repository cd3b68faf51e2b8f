"""What the compiler found and did: as data (JSON) and as text."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bireme.compiler.ahead.user_ahead_text import ahead_table
from bireme.compiler.fp16.precision_report import precision_data, precision_text
from bireme.compiler.pipeline import Compiled
from bireme.compiler.reporting.report_flow import block_origin, dense_parts
from bireme.compiler.reporting.report_graphs import graphs_line
from bireme.compiler.rows.costs import bytes_per_request, flops_per_request
from bireme.compiler.tables.export import read_words
from bireme.compiler.tables.storage_report import storage_data, storage_rows
from bireme_runtime.plan import (
    Bucketize,
    Counted,
    Embed,
    HashBucket,
    IdentityId,
    IntVocabulary,
    Numeric,
    Subgraph,
    Vocabulary,
)
from bireme_runtime.tables import row_bytes
from bireme_runtime.text_steps import (
    Compute,
    Cross,
    Element,
    HashLegacy,
    HashStrong,
    Measure,
    features_behind,
    sources_of,
)

__all__ = ["as_data", "as_text", "text_sections"]


def as_data(compiled: Compiled) -> dict[str, Any]:
    """The report as JSON values: features, tables, the cut, passes, and cost of a request per bucket."""
    plan, cut = compiled.plan, compiled.split
    words = {name: len(keys) for name, keys in read_words(cut).items()}
    steps = {step.name: step for step in plan.steps}
    size = np.dtype(plan.handover).itemsize
    return {
        "model": plan.model,
        "target": compiled.contract.target,
        "tasks": list(compiled.contract.tasks),
        "features": [
            {
                "name": feature.name,
                "side": feature.side,
                "dtype": feature.dtype,
                "length": feature.length,
                "default": feature.default,
                "transforms": _transforms(compiled, feature.name, words),
            }
            for feature in plan.features
        ],
        "tables": [
            {
                "name": table.name,
                "rows": table.rows,
                "width": table.width,
                "storage": table.dtype,
                "bytes": table.rows * row_bytes(table),
                "read_by": [
                    step.name for step in plan.steps if isinstance(step, Embed) and step.table == table.name
                ],
            }
            for table in plan.tables
        ],
        "storage": storage_data(compiled.storage, compiled.auc_of),
        "cut": [
            {
                "tensor": boundary.tensor,
                "made_of": boundary.made_of,
                "side": boundary.side,
                "columns": [boundary.offset, boundary.offset + boundary.width],
                **block_origin(
                    boundary, plan.steps, cut.reasons, partial(_block_phrase, steps=steps, words=words)
                ),
            }
            for boundary in cut.boundaries
        ],
        "engines": [
            {
                "step": step.name,
                "engine": step.engine,
                "slow": step.engine == "tensorflow",
                "made_of": sorted({output.about for output in step.outputs}),
                "because_of": cut.reasons[step.name],
            }
            for step in plan.steps
            if isinstance(step, Subgraph)
        ],
        "dense": dense_parts(compiled.precision.dense, plan.buckets[-1]),
        "handover": {"dtype": plan.handover, "user_width": plan.user_width, "item_width": plan.item_width},
        "precision": precision_data(compiled.precision),
        "passes": [
            {"pass": name, "nodes": nodes, "max_difference": compiled.differences.get(name)}
            for name, nodes in compiled.nodes.items()
        ],
        "requests": [
            {
                "candidates": bucket,
                "bytes_to_dnn": size * (plan.user_width + bucket * plan.item_width),
                "bytes_if_tiled": size * bucket * (plan.user_width + plan.item_width),
                "flops": flops_per_request(compiled.dense, bucket),
                "flops_rowwise": flops_per_request(compiled.rowwise, bucket),
                "activation_bytes": bytes_per_request(compiled.dense, bucket),
                "activation_bytes_rowwise": bytes_per_request(compiled.rowwise, bucket),
            }
            for bucket in plan.buckets
        ],
    }


def _transforms(compiled: Compiled, feature: str, words: dict[str, int]) -> list[str]:
    """What happens to a feature, one phrase a step."""
    steps: dict[str, Any] = {step.name: step for step in compiled.plan.steps}
    for step in compiled.plan.steps:
        if isinstance(step, Subgraph):
            steps |= {output.name: step for output in step.outputs if output.name}
    result = []
    for step in compiled.plan.steps:
        columns = isinstance(step, Subgraph) and any(output.width for output in step.outputs)
        if not columns and not isinstance(step, (Embed, Numeric)):
            continue
        read = [name for source in sources_of(step) for name in features_behind(steps.values(), source)]
        if feature not in read:
            continue
        if isinstance(step, Embed):
            pool = f", {step.pool} over the sequence" if step.pool else ""
            result.append(f"{_phrase(step.ids, steps, words)} → {step.table} [{step.width}]{pool}")
        elif isinstance(step, Numeric):
            result.append(_block_phrase(step, steps, words))
        else:
            result.append(_step_phrase(step, words))
    return result


def _block_phrase(step: Any, steps: dict[str, Any], words: dict[str, int]) -> str:
    """What happens on the CPU until a step's columns are there."""
    if isinstance(step, Embed):
        pooled = f"{step.pool} over the sequence" if step.pool else ""
        return ", ".join(part for part in (_phrase(step.ids, steps, words), pooled) if part) or "rows"
    if isinstance(step, Numeric):
        chain = [_phrase(step.feature, steps, words), *(name for name, _ in step.chain)]
        return ", ".join(name for name in chain if name) or "as it is"
    return "count" if isinstance(step, Counted) else "mask"


def _phrase(source: str, steps: dict[str, Any], words: dict[str, int]) -> str:
    """How a source is made of features; "" for a feature."""
    if source not in steps:
        return ""
    step = steps[source]
    before = [phrase for name in sources_of(step) if (phrase := _phrase(name, steps, words))]
    return ", ".join(dict.fromkeys([*before, _step_phrase(step, words)]))


def _step_phrase(step: Any, words: dict[str, int]) -> str:
    if isinstance(step, Subgraph):
        return {"tensorflow": "TensorFlow", "onnx": "ONNX Runtime"}[step.engine]
    if isinstance(step, HashBucket):
        return f"FarmHash64 mod {step.buckets}"
    if isinstance(step, HashStrong):
        return f"SipHash mod {step.buckets}"
    if isinstance(step, HashLegacy):
        return f"Hash64 mod {step.buckets}"
    if isinstance(step, Cross):
        return f"cross of {len(step.of)}, mod {step.buckets}"
    if isinstance(step, (Vocabulary, IntVocabulary)):
        return f"vocabulary of {words[step.file]}"
    if isinstance(step, Bucketize):
        return f"{len(step.edges) + 1} intervals"
    if isinstance(step, (Measure, Compute)) or step.op == "text":
        return str(step.function).replace("_", " ")
    if isinstance(step, Element):
        return f"element {step.index}"
    return "row id" if isinstance(step, IdentityId) else step.op


def as_text(report: dict[str, Any]) -> RenderableType:
    """The report for a terminal."""
    head = Text(f"{report['model']} ({report['target']} target) → {', '.join(report['tasks'])}", style="bold")
    return Group(head, *text_sections(report))


def text_sections(report: dict[str, Any]) -> list[RenderableType]:
    """The report's tables and sentences, in order, without its head."""
    features = _table("feature", "side", "type", "optional", "on the CPU", title="Features")
    for feature in report["features"]:
        form = feature["dtype"] + {None: "", -1: " sequence"}.get(feature["length"], f"[{feature['length']}]")
        optional = "" if feature["default"] is None else repr(feature["default"])
        features.add_row(feature["name"], feature["side"], form, optional, "\n".join(feature["transforms"]))
    tables = _table("table", "rows", "width", "stored as", "bytes", "read by", title="Embedding tables")
    for table in report["tables"]:
        rows, width, size = (f"{table[key]:,}" for key in ("rows", "width", "bytes"))
        tables.add_row(table["name"], rows, width, table["storage"], size, ", ".join(table["read_by"]))
    columns = ("task", "change of score", "of AUC", "that of", "places moved at most", "of a request")
    storage = _table(*columns, title="What the storage of the tables changes")
    for row in storage_rows(report["storage"]):
        storage.add_row(*row)
    cut = _table("columns", "made of", title="The cut: what crosses to the DNN")
    for boundary in report["cut"]:
        name = "user" if boundary["side"] == "user" else "items"
        cut.add_row(f"{name}[{boundary['columns'][0]}:{boundary['columns'][1]}]", boundary["made_of"])
    engines = _table("features", "engine", "because of", title="Outside the fast path: TensorFlow is slow")
    for entry in report["engines"]:
        style = "bold red" if entry["slow"] else None
        engines.add_row(", ".join(entry["made_of"]), entry["engine"], entry["because_of"], style=style)
    passes = _table("pass", "nodes", "max difference", title="Passes")
    for entry in report["passes"]:
        difference = entry["max_difference"]
        passes.add_row(entry["pass"], str(entry["nodes"]), "" if difference is None else f"{difference:.1e}")
    costs = _table(
        "candidates", "bytes to the DNN", "if the user were tiled", "MFLOP", "row-wise MFLOP",
        "activation bytes", "row-wise", title="One request"
    )  # fmt: skip
    for entry in report["requests"]:
        flops = [f"{entry[key] / 1e6:.2f}" for key in ("flops", "flops_rowwise")]
        counts = [f"{entry[key]:,}" for key in ("candidates", "bytes_to_dnn", "bytes_if_tiled")]
        moved = [f"{entry[key]:,}" for key in ("activation_bytes", "activation_bytes_rowwise")]
        costs.add_row(*counts, *flops, *moved)
    ahead = [ahead_table(report["user_ahead"])] if "user_ahead" in report else []
    precision = precision_text(report["precision"])
    stored = [storage] if storage.rows else []
    shown = [engines] if report["engines"] else []
    graphs = [Text(f"{graphs_line(report['graphs'])}.")] if "graphs" in report else []
    return [features, tables, *stored, cut, *shown, precision, *graphs, passes, costs, *ahead]


def _table(*columns: str, title: str) -> Table:
    """A table that folds what does not fit instead of cutting it off: a name cut short names nothing."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
