"""The operator table: one row per ONNX operator and per kind of operator of a graph, with its properties.

    OperatorRow("Relu", "relu", ELEMENTWISE | UNARY | EXACT | NEVER_NEGATIVE)

Code that needs the operators that share a property asks `onnx_names` or `kind_names`; no other module lists operators
by a property of this table (`tests/repo/test_operator_table.py`). The table does not say what an operator computes:
each target and each check writes its formula by itself, so that they can disagree.

A row without a kind is an ONNX operator that becomes other operators, or that nobody compiles; a row without an ONNX
name is a kind that only the compiler makes. Some kinds come from several ONNX operators (`Gemm` and `MatMul`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from types import MappingProxyType


class Trait(Flag):
    """A property that an operator has for all shapes and attributes."""

    ELEMENTWISE = auto()
    """It makes each element from one of each operand, which broadcast as in numpy."""
    UNARY = auto()
    """It is a function of one number, the same for all elements."""
    BINARY = auto()
    """It is a function of two numbers, the same for all elements."""
    LIGHT = auto()
    """It costs little, so that compilers fuse it with its neighbours. So do element-wise operators and views."""

    VIEW = auto()
    """It leaves all elements in their order, under another shape."""
    MOVES = auto()
    """It puts elements of its first operand in places that attributes and constants say; it has one result."""
    SPLITS = auto()
    """It cuts its first operand into several results."""
    GATHERS = auto()
    """It takes elements of its first operand at indices, its second operand."""
    JOINS = auto()
    """It puts operands next to each other, or a constant around one."""

    PRODUCTS = auto()
    """It sums products of two operands."""
    RECURRENT = auto()
    """It goes through a sequence step by step."""
    AVERAGES = auto()
    """It sums or averages elements of its first operand."""
    REDUCES = auto()
    """It reads every element of its first operand once to make fewer."""
    VECTOR = auto()
    """Only a vector engine makes it: no product with ones and no copy does. Element-wise kinds have this property
    too."""

    EXACT = auto()
    """Its results are among the numbers that it reads, or these with another sign: nothing is rounded. Rearranging
    operators have this property too."""
    ONE_ROUNDING = auto()
    """It is arithmetic whose result is rounded once."""
    FUNCTION = auto()
    """It is a function that a device can round correctly, however it computes it."""
    JUMPS = auto()
    """It is a function that jumps: near the jump, either side is right."""
    FROM_ONE = auto()
    """Its results are differences of numbers about one, and as exact near zero as those are."""

    BETWEEN = auto()
    """Its results lie between numbers of its first operand, and reach these. Operators that rearrange one operand have
    this property too."""
    NEVER_NEGATIVE = auto()
    KEEPS_SIGN = auto()
    """Its results are not negative where no operand is. Rearranging operators have this property too."""

    COMPARES = auto()
    """It makes truth values of numbers."""
    LOGIC = auto()
    """It makes truth values of truth values."""


REARRANGING = Trait.VIEW | Trait.MOVES | Trait.SPLITS | Trait.GATHERS | Trait.JOINS
"""Traits of operators whose result elements are each one of an operand, or of a constant edge."""

Default = float | str


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One row. `onnx` is its name in ONNX, or a name of the compiler that no file can hold; `kind` is its name in a
    graph. Either is empty where there is none. `settings` are the attributes of an element-wise kind with ONNX's
    defaults."""

    onnx: str
    kind: str
    traits: Trait
    settings: tuple[tuple[str, Default], ...] = ()


def onnx_names(*traits: Trait) -> frozenset[str]:
    """Operators, by their ONNX names, that have at least one of the traits; a union of traits requires all of them."""
    return frozenset(row.onnx for row in OPERATOR_TABLE if row.onnx and _has_any(row, traits))


def kind_names(*traits: Trait) -> frozenset[str]:
    """Kinds that have at least one of the traits; a union of traits requires all of them."""
    return frozenset(row.kind for row in OPERATOR_TABLE if row.kind and _has_any(row, traits))


def _has_any(row: OperatorRow, traits: tuple[Trait, ...]) -> bool:
    return any(wanted in row.traits for wanted in traits)


_T = Trait
_EACH = _T.ELEMENTWISE
_OF_ONE = _T.ELEMENTWISE | _T.UNARY
_OF_TWO = _T.ELEMENTWISE | _T.BINARY
_SMOOTH = _OF_ONE | _T.FUNCTION
_STEPS = _OF_ONE | _T.JUMPS
_CHOICE = _T.EXACT | _T.BETWEEN | _T.KEEPS_SIGN
_MEAN = _T.AVERAGES | _T.BETWEEN | _T.KEEPS_SIGN

OPERATOR_TABLE: tuple[OperatorRow, ...] = (
    # Functions of one number.
    OperatorRow("Relu", "relu", _OF_ONE | _T.EXACT | _T.NEVER_NEGATIVE),
    OperatorRow("LeakyRelu", "leaky_relu", _OF_ONE | _T.ONE_ROUNDING, (("alpha", 0.01),)),
    OperatorRow("Clip", "clip", _EACH | _T.EXACT),
    OperatorRow("Neg", "neg", _OF_ONE | _T.EXACT),
    OperatorRow("Abs", "abs", _OF_ONE | _T.EXACT | _T.NEVER_NEGATIVE),
    OperatorRow("Sqrt", "sqrt", _OF_ONE | _T.ONE_ROUNDING | _T.NEVER_NEGATIVE),
    OperatorRow("Reciprocal", "reciprocal", _SMOOTH | _T.KEEPS_SIGN),
    OperatorRow("Exp", "exp", _SMOOTH | _T.NEVER_NEGATIVE),
    OperatorRow("Log", "log", _SMOOTH),
    OperatorRow("Sigmoid", "sigmoid", _SMOOTH | _T.NEVER_NEGATIVE),
    OperatorRow("HardSigmoid", "hard_sigmoid", _SMOOTH | _T.NEVER_NEGATIVE, (("alpha", 0.2), ("beta", 0.5))),
    OperatorRow("HardSwish", "hard_swish", _SMOOTH),
    OperatorRow("Tanh", "tanh", _SMOOTH),
    OperatorRow("Erf", "erf", _SMOOTH),
    OperatorRow("Softplus", "softplus", _SMOOTH | _T.NEVER_NEGATIVE),
    OperatorRow("Softsign", "softsign", _SMOOTH),
    OperatorRow("Gelu", "gelu", _SMOOTH, (("approximate", "none"),)),
    OperatorRow("Mish", "mish", _SMOOTH),
    OperatorRow("Swish", "swish", _SMOOTH, (("alpha", 1.0),)),
    OperatorRow("Elu", "elu", _SMOOTH, (("alpha", 1.0),)),
    OperatorRow("Celu", "celu", _SMOOTH, (("alpha", 1.0),)),
    OperatorRow("Selu", "selu", _SMOOTH, (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))),
    OperatorRow("Sin", "sin", _SMOOTH),
    OperatorRow("Cos", "cos", _SMOOTH),
    OperatorRow("Tan", "tan", _SMOOTH),
    OperatorRow("Asin", "asin", _SMOOTH),
    OperatorRow("Acos", "acos", _SMOOTH),
    OperatorRow("Atan", "atan", _SMOOTH),
    OperatorRow("Sinh", "sinh", _SMOOTH),
    OperatorRow("Cosh", "cosh", _SMOOTH),
    OperatorRow("Asinh", "asinh", _SMOOTH),
    OperatorRow("Acosh", "acosh", _SMOOTH),
    OperatorRow("Atanh", "atanh", _SMOOTH),
    OperatorRow("Floor", "floor", _STEPS),
    OperatorRow("Ceil", "ceil", _STEPS),
    OperatorRow("Round", "round", _STEPS),
    OperatorRow("Sign", "sign", _STEPS),
    OperatorRow("Pow", "power", _EACH | _T.FUNCTION),
    OperatorRow("Formula", "formula", _EACH),
    OperatorRow("", "lookup", _EACH),
    OperatorRow("Shrink", "shrink", _STEPS, (("lambd", 0.5), ("bias", 0.0))),
    OperatorRow("ThresholdedRelu", "", _STEPS),
    # Of several numbers.
    OperatorRow("Add", "add", _OF_TWO | _T.ONE_ROUNDING | _T.KEEPS_SIGN),
    OperatorRow("Sub", "sub", _OF_TWO | _T.ONE_ROUNDING),
    OperatorRow("Mul", "mul", _OF_TWO | _T.ONE_ROUNDING | _T.KEEPS_SIGN),
    OperatorRow("Div", "div", _OF_TWO | _T.ONE_ROUNDING | _T.KEEPS_SIGN),
    OperatorRow("Max", "max", _OF_TWO | _T.EXACT),
    OperatorRow("Min", "min", _OF_TWO | _T.EXACT | _T.KEEPS_SIGN),
    OperatorRow("PRelu", "", _EACH | _T.ONE_ROUNDING),
    OperatorRow("Sum", "", _EACH | _T.ONE_ROUNDING | _T.KEEPS_SIGN),
    OperatorRow("Mean", "", _EACH | _T.ONE_ROUNDING),
    OperatorRow("Where", "", _EACH | _T.EXACT),
    OperatorRow("Mod", "", _EACH),
    OperatorRow("ScaleShift", "", _T.LIGHT),  # along axis 1
    OperatorRow("", "scale_shift", _EACH),  # along the channels, here the last axis
    OperatorRow("BatchNormalization", "", _T.LIGHT | _T.ONE_ROUNDING),
    # Types.
    OperatorRow("Cast", "", _EACH | _CHOICE),
    OperatorRow("CastLike", "", _T.LIGHT | _T.EXACT),
    OperatorRow("QuantizeLinear", "", _T.LIGHT),
    OperatorRow("DequantizeLinear", "", _T.LIGHT),
    OperatorRow("Widen", "widen", _EACH | _CHOICE),  # int8 to float16
    OperatorRow("Narrow", "narrow", _EACH | _T.JUMPS),  # float16 to int8
    OperatorRow("AddScaled", "add_scaled", _EACH),  # a float16 operand and an int8 one times a number
    # Truth values and integers.
    OperatorRow("Greater", "", _EACH | _T.COMPARES | _T.JUMPS),
    OperatorRow("GreaterOrEqual", "", _EACH | _T.COMPARES | _T.JUMPS),
    OperatorRow("Less", "", _EACH | _T.COMPARES | _T.JUMPS),
    OperatorRow("LessOrEqual", "", _EACH | _T.COMPARES | _T.JUMPS),
    OperatorRow("Equal", "", _EACH | _T.COMPARES),
    OperatorRow("And", "", _EACH | _T.LOGIC),
    OperatorRow("Or", "", _EACH | _T.LOGIC),
    OperatorRow("Xor", "", _EACH | _T.LOGIC),
    OperatorRow("Not", "", _EACH | _T.LOGIC),
    OperatorRow("IsInf", "", _EACH),
    OperatorRow("IsNaN", "", _EACH),
    OperatorRow("BitShift", "", _EACH),
    OperatorRow("BitwiseAnd", "", _EACH),
    OperatorRow("BitwiseNot", "", _EACH),
    OperatorRow("BitwiseOr", "", _EACH),
    OperatorRow("BitwiseXor", "", _EACH),
    # Elements in other places.
    OperatorRow("Identity", "", _EACH | _T.VIEW),
    OperatorRow("Dropout", "", _EACH | _T.VIEW),
    OperatorRow("Reshape", "view", _T.VIEW),
    OperatorRow("Flatten", "view", _T.VIEW),
    OperatorRow("Squeeze", "view", _T.VIEW),
    OperatorRow("Unsqueeze", "view", _T.VIEW),
    OperatorRow("Transpose", "transpose", _T.MOVES | _T.LIGHT),
    OperatorRow("Expand", "take", _T.MOVES | _T.LIGHT),
    OperatorRow("Slice", "slice", _T.MOVES),
    OperatorRow("Tile", "take", _T.MOVES),
    OperatorRow("DepthToSpace", "", _T.MOVES),
    OperatorRow("SpaceToDepth", "", _T.MOVES),
    OperatorRow("Split", "slice", _T.SPLITS),
    OperatorRow("Gather", "take", _T.GATHERS),
    OperatorRow("GatherElements", "", _T.GATHERS),
    OperatorRow("GatherND", "", _T.GATHERS),
    OperatorRow("Concat", "concat", _T.JOINS),
    OperatorRow("Pad", "pad", _T.JOINS),
    OperatorRow("ScatterND", "", Trait(0)),
    OperatorRow("TensorScatter", "", Trait(0)),
    OperatorRow("Trilu", "", _T.EXACT),
    OperatorRow("Resize", "resize", Trait(0)),
    OperatorRow("Upsample", "resize", Trait(0)),
    # Sums of products.
    OperatorRow("Conv", "conv", _T.PRODUCTS),
    OperatorRow("ConvTranspose", "conv", _T.PRODUCTS),
    OperatorRow("Gemm", "matmul", _T.PRODUCTS),
    OperatorRow("MatMul", "matmul", _T.PRODUCTS | _T.KEEPS_SIGN),
    OperatorRow("IntegerConv", "conv", _T.PRODUCTS),  # int8 factors, with a scale per output channel
    OperatorRow("IntegerMatMul", "matmul", _T.PRODUCTS),
    OperatorRow("Einsum", "", _T.PRODUCTS),
    OperatorRow("GRU", "", _T.RECURRENT),
    OperatorRow("LSTM", "", _T.RECURRENT),
    OperatorRow("RNN", "", _T.RECURRENT),
    # Windows, and whole axes.
    OperatorRow("MaxPool", "max_pool", _CHOICE | _T.VECTOR),
    OperatorRow("AveragePool", "average_pool", _MEAN),
    OperatorRow("GlobalMaxPool", "max_pool", _CHOICE | _T.VECTOR | _T.REDUCES),
    OperatorRow("GlobalAveragePool", "average_pool", _MEAN | _T.REDUCES),
    OperatorRow("GlobalLpPool", "", _T.REDUCES),
    OperatorRow("ReduceMax", "reduce_max", _CHOICE | _T.VECTOR | _T.REDUCES),
    OperatorRow("ReduceMin", "", _CHOICE | _T.REDUCES),
    OperatorRow("ReduceMean", "reduce_mean", _MEAN | _T.REDUCES),
    OperatorRow("ReduceSum", "reduce_sum", _T.AVERAGES | _T.KEEPS_SIGN | _T.REDUCES),
    OperatorRow("ReduceProd", "", _T.REDUCES),
    OperatorRow("ReduceL1", "", _T.NEVER_NEGATIVE | _T.REDUCES),
    OperatorRow("ReduceL2", "", _T.NEVER_NEGATIVE | _T.REDUCES),
    OperatorRow("ReduceSumSquare", "", _T.NEVER_NEGATIVE | _T.REDUCES),
    OperatorRow("ReduceLogSum", "", _T.REDUCES),
    OperatorRow("ReduceLogSumExp", "", _T.REDUCES),
    OperatorRow("ReduceNearest", "reduce_nearest", _T.VECTOR),
    OperatorRow("ReducePower", "reduce_power", _T.VECTOR | _T.NEVER_NEGATIVE),
    OperatorRow("ArgMax", "", _T.REDUCES),
    OperatorRow("ArgMin", "", _T.REDUCES),
    OperatorRow("TopK", "", _T.REDUCES),
    OperatorRow("LRN", "lrn", _T.VECTOR),
    # Lines, which are read as a whole.
    OperatorRow("Softmax", "softmax", _T.VECTOR | _T.NEVER_NEGATIVE),
    OperatorRow("LogSoftmax", "", _T.FROM_ONE),
    OperatorRow("Normalise", "normalise", _T.VECTOR),
    OperatorRow("LayerNormalization", "layer_norm", _T.FROM_ONE),
    OperatorRow("GroupNormalization", "", _T.FROM_ONE),
    OperatorRow("InstanceNormalization", "", _T.FROM_ONE),
    OperatorRow("RMSNormalization", "rms_norm", Trait(0)),
    OperatorRow("Attention", "attention", Trait(0)),
    OperatorRow("Attend", "attend", Trait(0)),
    OperatorRow("RotaryEmbedding", "rotary_embedding", Trait(0)),
)

OPERATORS_BY_NAME: Mapping[str, OperatorRow] = MappingProxyType({row.onnx: row for row in OPERATOR_TABLE if row.onnx})
"""Rows by their ONNX names."""

ELEMENTWISE_KINDS = kind_names(Trait.ELEMENTWISE)
"""Kinds that may follow another operator on the elements that it has just made."""
