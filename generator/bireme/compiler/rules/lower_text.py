"""Rules that turn strings and numbers into strings; named by `lower.RULES`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bireme.compiler.graph import Node, tf
from bireme.compiler.rules.id_steps import OPERAND
from bireme.compiler.rules.lower_integers import as_integers, is_single
from bireme.compiler.rules.regex_subset import translate
from bireme.compiler.rules.values import Numbers, Raw, Source, Text, Value, as_text, derive, raw_feature
from bireme_runtime.text_steps import to_text

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["TEXT_RULES"]

_SIMPLE = {"StringLower": "lower", "StringUpper": "upper", "StringStrip": "strip"}


def _text(source: Source, function: str, *parameters: Any) -> Text:
    sources = () if isinstance(source, Raw) or raw_feature(source) is not None else (source,)
    return Text(source.feature, "text", (function, *parameters), source.shape, sources)


def simple(low: Lowering, node: Node) -> Value | None:
    """Lower and upper case of ASCII letters, and no white space at the ends."""
    text = as_text(low.lower(node.inputs[0]))
    # With encoding "utf-8" the result depends on the Unicode version that TensorFlow was built with.
    if text is None or (node.op != "StringStrip" and node.attr["encoding"].s):
        return None
    return _text(text, _SIMPLE[node.op])


def join(low: Lowering, node: Node) -> Value | None:
    """Strings, and constants between them, one after the other."""
    if node.op == "Add" and tf.as_dtype(node.attr["T"].type) != tf.string:
        return None
    constants: list[str | None] = []
    sources: list[Raw | Text] = []
    for index, ref in enumerate(node.inputs):
        constant, text = low.scalar(node, index), as_text(low.lower(ref))
        if isinstance(constant, bytes) and low.graph.producer(ref).value.ndim <= 1:  # type: ignore[union-attr]
            constants.append(to_text(constant))
        elif text is not None:
            constants.append(OPERAND)
            sources.append(text)
        else:
            return None
    if not sources or len({source.shape for source in sources}) != 1:
        return None
    separator = to_text(node.attr["separator"].s) if node.op == "StringJoin" else ""
    return Text(sources[0].feature, "join", (separator, tuple(constants)), sources[0].shape, tuple(sources))


def as_string(low: Lowering, node: Node) -> Value | None:
    """Numbers as text, in the formats of C."""
    value, dtype = low.lower(node.inputs[0]), tf.as_dtype(node.attr["T"].type)
    if isinstance(value, Numbers) and not value.chain and value.source is None:
        return None  # an integer or a double that was rounded to FP32 first
    source: Source | None = as_integers(value)
    floats = isinstance(value, Raw) and value.dtype in ("float32", "float64")
    if source is None and floats and isinstance(value, Raw):
        source = value
    if source is None or dtype not in (tf.bool, tf.int32, tf.int64, tf.float32, tf.float64):
        return None
    width, precision = int(node.attr["width"].i), int(node.attr["precision"].i)
    style = "%" + node.attr["fill"].s.decode() + (str(width) if width > -1 else "")
    if dtype.is_floating:
        style += f".{precision}" if precision > -1 else ""
        style += "e" if node.attr["scientific"].b else "g" if node.attr["shortest"].b else "f"
    else:
        style += "d"
    return _text(source, "as_string", dtype.name, style)


def substr(low: Lowering, node: Node) -> Value | None:
    """A slice of every string, at a constant place."""
    text, position, length = as_text(low.lower(node.inputs[0])), low.scalar(node, 1), low.scalar(node, 2)
    unit = node.attr["unit"].s.decode() or "BYTE"
    if text is None or position is None or length is None or length < 0:
        return None
    if (unit == "UTF8_CHAR" and position < 0) or text.shape[:1] != ("R",):
        return None  # of sparse tensors, the padding is no string that TensorFlow would see
    return _text(text, "substr", int(position), int(length), unit)


def length(low: Lowering, node: Node) -> Value | None:
    """Bytes or characters of every string."""
    text = as_text(low.lower(node.inputs[0]))
    if text is None:
        return None
    function = "utf8_length" if node.attr["unit"].s == b"UTF8_CHAR" else "length"
    return derive(text, "measure", function, non_negative=True)


def to_number(low: Lowering, node: Node) -> Value | None:
    """Strings read as integers or as FP32 numbers."""
    text, target = as_text(low.lower(node.inputs[0])), tf.as_dtype(node.attr["out_type"].type)
    if text is None or text.shape[:1] != ("R",):
        return None
    if target in (tf.int32, tf.int64):
        return derive(text, "measure", "integer", target.name, non_negative=False)
    if target != tf.float32 or not is_single(text):
        return None
    return Numbers(text.feature, (), text.shape, Text(text.feature, "parse", (), text.shape, (text,)))


def replaced(low: Lowering, node: Node) -> Value | None:
    """What a regular expression matches, replaced by a constant: for patterns of regex_subset.py."""
    text, static = as_text(low.lower(node.inputs[0])), node.op.startswith("Static")
    pattern = node.attr["pattern"].s if static else low.scalar(node, 1)
    rewrite = node.attr["rewrite"].s if static else low.scalar(node, 2)
    if text is None or not isinstance(pattern, bytes) or not isinstance(rewrite, bytes) or b"\\" in rewrite:
        return None
    translated = translate(pattern, whole=False)
    everywhere = bool(node.attr["replace_global"].b)
    return _text(text, "replace", translated, to_text(rewrite), everywhere) if translated else None


def full_match(low: Lowering, node: Node) -> Value | None:
    """Whether a regular expression matches whole strings."""
    text = as_text(low.lower(node.inputs[0]))
    pattern = node.attr["pattern"].s if node.op.startswith("Static") else low.scalar(node, 1)
    translated = translate(pattern, whole=True) if isinstance(pattern, bytes) else None
    if text is None or translated is None:
        return None
    return derive(text, "measure", "full_match", translated, non_negative=True)


Rule = Callable[["Lowering", Node], "Value | None"]
TEXT_RULES: dict[str, tuple[Rule, ...]] = {
    "Add": (join,),
    "AsString": (as_string,),
    "RegexFullMatch": (full_match,),
    "RegexReplace": (replaced,),
    "StaticRegexFullMatch": (full_match,),
    "StaticRegexReplace": (replaced,),
    "StringJoin": (join,),
    "StringLength": (length,),
    "StringLower": (simple,),
    "StringStrip": (simple,),
    "StringToNumber": (to_number,),
    "StringUpper": (simple,),
    "Substr": (substr,),
}
