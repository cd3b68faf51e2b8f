"""What every TensorRT from 8.6 to 11 takes of an ONNX file: ops, the roles of their operands, their types.

Data only; `strong_types` applies it. An entry holds what all of these versions take:

* Ops and types: docs/operators.md of onnx-tensorrt as of TensorRT 8.5 (commit 6d0ab7b), 9.2 and 10.15, with
  the changes for 8.6 in its docs/Changelog.md; for 11 a mirror of the list as of 11.2. An op that only some
  of them take (Hardmax: from 9.2 on) is not in the table. Where 8.5 lists INT32, 9 and newer list INT32 and
  INT64; 8.6 narrows INT64 to INT32 itself. One exception: 8.5 lists ConstantOfShape for FP32 alone, here
  it may be of any type.
* Reductions of integers are missing in the parser's list as of 8.5, but its layer has them (IReduceLayer in
  the API reference of 8.2: "Shape, Int32, Float, Half, and Int8 tensors"), and the list from 9 on.
* Operands of one type, conditions that are bool, indices that are INT32 or INT64: the pages ElementWise,
  Select, Gather and Unary of NVIDIA's operator documentation (8.5.3, 8.6.1, 10.6, 10.7, 10.15). ONNX itself
  lets the exponent of Pow be of another type; a strongly typed network does not.
* Operands that must be weights, and attributes: the column "restrictions" of those lists, and the parser's
  static checks (onnxOpCheckers.cpp, 10.6). The list for 8.5 is the strictest.
* Opsets: 8.6 parses up to 17, 11 from 9 on (its ONNX Opset Guide).
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

__all__ = ["INTEGERS", "KNOWN", "OPSETS", "RULES", "SINGLE_OUTPUT", "Rule"]

FLOATS = frozenset({int(TensorProto.FLOAT), int(TensorProto.FLOAT16)})
INTEGERS = frozenset({int(TensorProto.INT32), int(TensorProto.INT64)})
BOOL = frozenset({int(TensorProto.BOOL)})
#: Types that a tensor may have at all. Float64 is narrowed, INT8 is for quantized networks only.
KNOWN = FLOATS | INTEGERS | BOOL
#: Oldest and newest opset that all versions parse.
OPSETS = (9, 17)


@dataclass(frozen=True)
class Rule:
    """What an op takes.

    Args:
        roles: one letter an operand; the last also stands for all that follow it.
            `x` data: of one of `types`, all of them of the same.
            `b` a condition: bool.
            `i` indices: INT32 or INT64.
            `n` the same, and it sets a shape: known once the shapes of the inputs are.
            `s` a shape or a bound: INT32 or INT64, known as early.
            `w` sizes or axes: INT32 or INT64, a weight.
        types: of `x` and `n`.
    """

    roles: str
    types: frozenset[int]


# fmt: off
_UNARY_FLOAT = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Ceil", "Celu", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Floor", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "HardSigmoid", "HardSwish",
    "IsInf", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "LpPool", "MaxPool", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu",
)
_MANY_FLOAT = (
    "BatchNormalization", "Clip", "Conv", "ConvTranspose", "Einsum", "Gemm", "LayerNormalization", "MatMul",
    "PRelu", "Pow",
)
_NUMBERS = (
    "Abs", "Add", "ArgMax", "ArgMin", "Div", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less",
    "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Sign", "Sub", "Sum",
)
_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare",
)
# fmt: on

#: Op → what it takes.
RULES: dict[str, Rule] = {
    **dict.fromkeys((*_UNARY_FLOAT, *_MANY_FLOAT), Rule("x", FLOATS)),
    **dict.fromkeys(_NUMBERS, Rule("x", FLOATS | INTEGERS)),
    **dict.fromkeys(_REDUCTIONS, Rule("xw", FLOATS | INTEGERS)),
    **dict.fromkeys(("And", "Not", "Or", "Xor"), Rule("x", BOOL)),
    **dict.fromkeys(
        ("Cast", "Concat", "EyeLike", "Flatten", "Identity", "Shape", "Size", "Transpose"), Rule("x", KNOWN)
    ),
    **dict.fromkeys(("Expand", "Reshape", "Tile"), Rule("xs", KNOWN)),
    **dict.fromkeys(("Split", "Squeeze", "Unsqueeze"), Rule("xw", KNOWN)),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), Rule("xi", KNOWN)),
    **dict.fromkeys(("ScatterElements", "ScatterND"), Rule("xix", FLOATS | INTEGERS)),
    "ConstantOfShape": Rule("s", KNOWN),
    "CumSum": Rule("xw", FLOATS),
    "OneHot": Rule("iwx", KNOWN),
    "Pad": Rule("xsx", FLOATS | INTEGERS),
    "Range": Rule("n", FLOATS | INTEGERS),
    "Slice": Rule("xssws", KNOWN),
    "TopK": Rule("xs", FLOATS | INTEGERS),
    "Trilu": Rule("xs", KNOWN),
    "Where": Rule("bx", KNOWN),
}

#: Ops of which only the first output is made.
SINGLE_OUTPUT = frozenset({"BatchNormalization", "LayerNormalization", "MaxPool"})
