"""What engines say of a failure, in one line: real messages of theirs."""

from __future__ import annotations

import pytest

from bireme_runtime.engine_errors import plain_reason

TENSORFLOW = """Graph execution error:

Detected at node import/StatefulPartitionedCall/DecodeBase64 defined at (most recent call last):
<stack traces unavailable>
Base64 string length cannot be 1 modulo 4.
\t [[{{node import/StatefulPartitionedCall/DecodeBase64}}]] [Op:__inference_wrapped_function_19]"""
SEVERAL = """Graph execution error:

Detected at node call/A defined at (most recent call last):
<stack traces unavailable>
Detected at node call/B defined at (most recent call last):
<stack traces unavailable>
2 root error(s) found.
  (0) INVALID_ARGUMENT:  no number: x
\t [[{{node call/A}}]]
  (1) INVALID_ARGUMENT:  no number: y
\t [[{{node call/B}}]]"""
ONNX = (
    "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running Gather node. "
    "Name:'rows' Status Message: indices element out of data bounds, idx=9"
)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (TENSORFLOW, "DecodeBase64: Base64 string length cannot be 1 modulo 4."),
        (SEVERAL, "A: no number: x"),
        (ONNX, "Gather: indices element out of data bounds, idx=9"),
        ("seven\n is too much", "seven is too much"),
    ],
)
def test_the_op_and_the_reason_are_left(said: str, reason: str) -> None:
    assert plain_reason(RuntimeError(said)) == reason
