"""`ModelConfig` message → the text of a config.pbtxt, proven to say the same.

The template knows how such a file looks, `_view` what this one holds; neither decides anything. Whatever a
message holds that the two do not know is missing from the text, so the text is always parsed back and
compared with what was meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from jinja2 import Environment, PackageLoader, StrictUndefined
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInstanceGroup

from bireme.errors import EmitError

__all__ = ["quoted", "render"]

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TEMPLATES = Environment(
    loader=PackageLoader("bireme.emitter"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # the reader is protobuf, not a browser; `quoted` escapes
)


def render(config: ModelConfig, head: Sequence[str]) -> str:
    """The text of a config.pbtxt that parses to exactly `config`.

    Args:
        config: what is meant.
        head: comment lines at the top, one printable line each.

    Raises:
        EmitError: the text would not say what is meant.
    """
    text = _TEMPLATES.get_template("config.pbtxt.j2").render(head=head, **_view(config))
    try:
        read_back = text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        raise _wrong(config, f"cannot be parsed: {error}") from None
    if read_back != config:
        raise _wrong(config, "does not say what was meant")
    return text


def quoted(text: str) -> str:
    """A protobuf text literal: printable characters as they are, everything else as octal UTF-8 bytes."""
    return '"' + "".join(_ESCAPES.get(char) or _escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode())


def _wrong(config: ModelConfig, message: str) -> EmitError:
    hint = "this is a fault of bireme's template emitter/templates/config.pbtxt.j2; please report it"
    return EmitError(f"{config.name}/config.pbtxt", message, hint)


def _view(config: ModelConfig) -> dict[str, Any]:
    """The message as plain lists and literals; what is absent is an empty list: the template only loops."""
    names = ("platform", "backend", "default_model_filename")
    words = [(name, getattr(config, name)) for name in names if getattr(config, name)]
    return {
        "fields": [
            _entry("name", config.name),
            *(_entry(name, value) for name, value in words),
            # Written even when 0: left out, some backends take it as leave to choose one.
            {"key": "max_batch_size", "value": config.max_batch_size},
        ],
        "tensors": [
            *(_tensor("input", tensor, ("allow_ragged_batch", "optional")) for tensor in config.input),
            *(_tensor("output", tensor, ()) for tensor in config.output),
        ],
        "instance_groups": [
            {"kind": ModelInstanceGroup.Kind.Name(group.kind), "count": group.count}
            for group in config.instance_group
        ],
        "dynamic_batching": [
            {"preferred": list(config.dynamic_batching.preferred_batch_size)}
            for _ in _present(config, "dynamic_batching")
        ],
        "caches": _present(config, "response_cache"),
        "parameters": [
            {"key": quoted(key), "value": quoted(value.string_value)}
            for key, value in sorted(config.parameters.items())
        ],
        "optimizations": [_optimization(config.optimization) for _ in _present(config, "optimization")],
        "ensembles": [
            {"steps": [_step(step) for step in config.ensemble_scheduling.step]}
            for _ in _present(config, "ensemble_scheduling")
        ],
    }


def _entry(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": quoted(value)}


def _tensor(kind: str, tensor: Any, flags: Iterable[str]) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": quoted(tensor.name),
        "data_type": DataType.Name(tensor.data_type),
        "dims": _dims(tensor.dims),
        "flags": _flags(tensor, flags),
    }


def _optimization(optimization: Any) -> dict[str, Any]:
    pinned = ("input_pinned_memory", "output_pinned_memory")
    return {
        "flags": _flags(optimization, ("eager_batching",)),
        "pinned": [name for name in pinned if getattr(optimization, name).enable],
        "cuda": [
            {
                "flags": _flags(optimization.cuda, ("graphs",)),
                "graphs": [_graph(spec) for spec in optimization.cuda.graph_spec],
            }
            for _ in _present(optimization, "cuda")
        ],
    }


def _graph(spec: Any) -> dict[str, Any]:
    bounds = [spec.graph_lower_bound for _ in _present(spec, "graph_lower_bound")]
    return {
        "batch_size": spec.batch_size,
        "shapes": _shapes(spec.input),
        "lower_bounds": [
            {"batch_size": bound.batch_size, "shapes": _shapes(bound.input)} for bound in bounds
        ],
    }


def _shapes(shapes: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"key": quoted(key), "dims": _dims(shape.dim)} for key, shape in sorted(shapes.items())]


def _step(step: Any) -> dict[str, Any]:
    return {
        "model_name": quoted(step.model_name),
        "model_version": step.model_version,
        "maps": [
            {"kind": kind, "key": quoted(key), "value": quoted(value)}
            for kind in ("input_map", "output_map")
            for key, value in sorted(getattr(step, kind).items())
        ],
    }


def _flags(message: Any, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(message, name)]


def _dims(dims: Iterable[int]) -> str:
    return ", ".join(map(str, dims))


def _present(message: Any, field: str) -> list[None]:
    return [None] if message.HasField(field) else []
