"""Which line of a config.pbtxt a place such as `optimization.cuda.graph_spec[2].input[user]` stands on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Node", "line_of", "read_nodes"]

_TOKEN = re.compile(
    r"""(?P<newline>\n)|(?P<skip>[ \t\r,;]+|\#[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<mark>[{}<>\[\]:])|(?P<word>[^\s{}<>\[\]:,;"'\#]+)""",
    re.VERBOSE,
)
_PART = re.compile(r"([^.\[\]]+)((?:\[[^\]]*\])*)")


@dataclass
class Node:
    """One field of a message in text form.

    Args:
        name: the field's.
        line: where it begins, from 1.
        value: of a scalar, without quotes.
        fields: of a message, in order.
    """

    name: str
    line: int
    value: str = ""
    fields: list[Node] = field(default_factory=list)


def read_nodes(text: str) -> list[Node]:
    """The fields of a message that protobuf has parsed already."""
    tokens: list[tuple[str, str, int]] = []
    line = 1
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "newline":
            line += 1
        elif found.lastgroup != "skip":
            tokens.append((found.lastgroup or "", found[0], line))
    return _message(tokens[::-1])


def _message(tokens: list[tuple[str, str, int]]) -> list[Node]:
    """Takes fields off the end of reversed tokens, up to what closes the message."""
    nodes: list[Node] = []
    while tokens:
        kind, name, line = tokens.pop()
        if kind == "mark":
            if name in "}>":
                break
            continue
        while tokens and tokens[-1][1] == ":":
            tokens.pop()
        nodes.extend(_values(name, line, tokens))
    return nodes


def _values(name: str, line: int, tokens: list[tuple[str, str, int]]) -> list[Node]:
    """What follows a field's name; a list gives a node for each of its values."""
    if not tokens:
        return []
    _, token, at = tokens.pop()
    if token in ("{", "<"):
        return [Node(name, line, fields=_message(tokens))]
    if token != "[":
        return [Node(name, line, token.strip("\"'"))]
    nodes: list[Node] = []
    while tokens and tokens[-1][1] != "]":
        at = tokens[-1][2]
        nodes.extend(_values(name, at, tokens))
    if tokens:
        tokens.pop()
    return nodes


def line_of(place: str, nodes: list[Node]) -> int | None:
    """The line of the deepest part of a place that the text has; None: not even the first part is written.

    Args:
        place: fields joined by dots; `[2]` picks the third of a list, `[user]` the one of that name or key.
        nodes: the config's fields.
    """
    line = None
    for name, picks in _PART.findall(place):
        found = [node for node in nodes if node.name == name]
        for pick in picks[1:-1].split("][") if picks else ():
            if pick.isdecimal() and int(pick) < len(found):
                found = [found[int(pick)]]
            else:
                found = [node for node in found if _named(node, pick)]
        if not found:
            break
        line, nodes = found[0].line, _inside(found[0])
    return line


def _named(node: Node, name: str) -> bool:
    return any(inner.name in ("name", "key", "model_name") and inner.value == name for inner in node.fields)


def _inside(node: Node) -> list[Node]:
    """A message's fields; those of a map's value, as places leave `value` out."""
    values = [inner for inner in node.fields if inner.name == "value"]
    return [*node.fields, *(deeper for value in values for deeper in value.fields)]
