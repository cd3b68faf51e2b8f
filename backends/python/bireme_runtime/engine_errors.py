"""What an engine says when it fails, less what tells a user nothing: stack traces, names of functions."""

from __future__ import annotations

import re

__all__ = ["plain_reason"]

# "Non-zero status code returned while running Gather node. Name:'x' Status Message: why"
_ONNX = re.compile(r"running (\w+) node\..*?Status Message: (.*)")
# "Graph execution error: … <stack traces unavailable> why [[{{node a/b/Op}}]] [Op:…]"
_TENSORFLOW = re.compile(r"^(.*?)\s*\[\[\{\{node ([^}]+)\}\}\]\]")
_ROOT_ERROR = re.compile(r"^.*?root error\(s\) found\. \(0\) \w+: ")


def plain_reason(error: Exception) -> str:
    """One line: the op that failed, as far as the engine names it, and why."""
    text = " ".join(str(error).split())
    onnx = _ONNX.search(text)
    if onnx:
        return f"{onnx[1]}: {onnx[2]}"
    tensorflow = _TENSORFLOW.search(text)
    if tensorflow:
        said = _ROOT_ERROR.sub("", tensorflow[1].rpartition("<stack traces unavailable>")[2].strip())
        return f"{tensorflow[2].rpartition('/')[2]}: {said}"
    return text
