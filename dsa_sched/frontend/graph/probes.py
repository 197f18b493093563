"""Small models, one per way to write an ONNX operator, which `dsa-sched ops` tries on a chip.

    "Gelu"  -->  Probe("approximate=none"), Probe("approximate=tanh"), each a model of one node

A probe does not say what can be computed: rules and targets decide. Operators that are not in `PROBES` have one
probe, plain, by the signature that ONNX gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend.network.network import Array, Setting
from partitioner.ir.operators import Trait, onnx_names

OPSET = 24
IMAGE, MATRIX = (1, 4, 6, 6), (4, 6)
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A computed operand of whole numbers: indices, extents, lengths."""

    shape: Shape
    dtype: type[np.generic] = np.int64


@dataclass(frozen=True, slots=True)
class Truth:
    """A truth value of computed numbers."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Shares:
    """A Softmax of computed numbers, whatever these are."""

    shape: Shape


Operand = Shape | Whole | Truth | Shares | Array | None
TRUTHS = onnx_names(Trait.COMPARES, Trait.LOGIC) | {"IsNaN"}
"""Operators whose result is a truth value."""


@dataclass(frozen=True)
class Probe:
    """A model of one node. `says` tells how it is written, in ONNX's terms; empty if there is only one way.

    `operands` are shapes of computed values, arrays of constants, or None for one that is left out.
    """

    op_type: str
    says: str
    operands: tuple[Operand, ...] = (IMAGE,)
    settings: Mapping[str, Setting | onnx.GraphProto] | None = None
    outputs: int = 1
    opset: int = OPSET

    def model(self) -> onnx.ModelProto:
        """The model, whose node is named like the operator; truth values come of numbers and become such again."""
        inputs, constants, names, before, after = [], [], [], [], []
        for number, operand in enumerate(self.operands):
            names.append("" if operand is None else f"in{number}")
            if isinstance(operand, np.ndarray):
                constants.append(numpy_helper.from_array(operand, names[-1]))
            elif isinstance(operand, Truth):
                inputs.append(helper.make_tensor_value_info(f"number{number}", TensorProto.FLOAT, operand.shape))
                before.append(helper.make_node("Greater", [f"number{number}", "zero"], [names[-1]]))
            elif isinstance(operand, Shares):
                inputs.append(helper.make_tensor_value_info(f"number{number}", TensorProto.FLOAT, operand.shape))
                before.append(helper.make_node("Softmax", [f"number{number}"], [names[-1]]))
            elif isinstance(operand, Whole):
                dtype = helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
                inputs.append(helper.make_tensor_value_info(names[-1], dtype, operand.shape))
            elif operand is not None:
                inputs.append(helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, operand))
        results = [f"out{number}" for number in range(self.outputs)]
        node = helper.make_node(self.op_type, names, results, name=self.op_type)
        node.attribute.extend(helper.make_attribute(*setting) for setting in (self.settings or {}).items())
        if any(isinstance(operand, Truth) for operand in self.operands):
            constants.append(numpy_helper.from_array(np.zeros((), np.float32), "zero"))
        if self.op_type in TRUTHS:
            after.append(helper.make_node("Cast", results, ["as_number"], to=TensorProto.FLOAT))
            results = ["as_number"]
        outputs = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph([*before, node, *after], self.op_type, inputs, outputs, constants)
        bare = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(bare, data_prop=True)


def probes_of(op_type: str) -> tuple[Probe, ...]:
    """The ways in which an operator can be written; none where ONNX does not define its inputs."""
    listed = tuple(probe for probe in PROBES if probe.op_type == op_type)
    if listed or not onnx.defs.has(op_type):
        return listed
    return (Probe(op_type, "", (IMAGE,) * max(1, onnx.defs.get_schema(op_type).min_input)),)


def _numbers(*shape: int) -> Array:
    return np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def _spatial(axes: int) -> Shape:
    return (1, 4, *(6,) * axes)


def _words(axes: int) -> str:
    return f"{axes} spatial {'axis' if axes == 1 else 'axes'}"


def _convolutions() -> tuple[Probe, ...]:
    kernel = _numbers(4, 4, 3, 3)
    return (
        *(Probe("Conv", _words(n), (_spatial(n), _numbers(4, 4, *(3,) * n))) for n in (2, 1, 3)),
        Probe("Conv", "bias", (IMAGE, kernel, _numbers(4))),
        Probe("Conv", "group", (IMAGE, _numbers(4, 2, 3, 3)), {"group": 2}),
        Probe("Conv", "group=channels", (IMAGE, _numbers(4, 1, 3, 3)), {"group": 4}),
        Probe("Conv", "strides", (IMAGE, kernel), {"strides": (2, 2)}),
        Probe("Conv", "strides that differ", (IMAGE, kernel), {"strides": (1, 2)}),
        Probe("Conv", "dilations", (IMAGE, kernel), {"dilations": (2, 2)}),
        Probe("Conv", "pads", (IMAGE, kernel), {"pads": (1, 0, 1, 2)}),
        Probe("Conv", "auto_pad", (IMAGE, kernel), {"auto_pad": "SAME_UPPER"}),
        Probe("Conv", "pads beyond the window", (IMAGE, _numbers(4, 4, 1, 1)), {"pads": (1, 1, 1, 1)}),
        Probe("Conv", "300 taps", ((1, 2, 900), _numbers(4, 2, 300)), {"strides": (100,)}),
        Probe("Conv", "computed weights", (IMAGE, (4, 4, 3, 3))),
        Probe("Conv", "computed bias", (IMAGE, kernel, (4,))),
    )


def _pools() -> tuple[Probe, ...]:
    found: list[Probe] = []
    for op_type in ("MaxPool", "AveragePool"):
        window: dict[str, Setting] = {"kernel_shape": (3, 3)}
        ceil: dict[str, Setting] = {**window, "strides": (2, 2), "ceil_mode": 1}
        found += (Probe(op_type, _words(n), (_spatial(n),), {"kernel_shape": (3,) * n}) for n in (2, 1, 3))
        found += (
            Probe(op_type, "strides, pads", settings={**window, "strides": (2, 2), "pads": (1, 1, 1, 1)}),
            Probe(op_type, "dilations", settings={**window, "dilations": (2, 2)}),
            Probe(op_type, "auto_pad", settings={**window, "auto_pad": "SAME_LOWER"}),
            Probe(op_type, "ceil_mode", settings=ceil),
        )
    padded: dict[str, Setting] = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1}
    return (
        *found,
        Probe("MaxPool", "indices as well", settings={"kernel_shape": (3, 3)}, outputs=2),
        Probe("AveragePool", "count_include_pad", settings=padded),
        Probe(
            "AveragePool", "count_include_pad with ceil_mode", settings={**padded, "strides": (2, 2), "ceil_mode": 1}
        ),
        *(Probe(op, _words(n), (_spatial(n),)) for op in ("GlobalAveragePool", "GlobalMaxPool") for n in (2, 1, 3)),
        Probe("LRN", "odd size", settings={"size": 3}),
        Probe("LRN", "even size", settings={"size": 2}),
    )


def _products() -> tuple[Probe, ...]:
    a, constant = MATRIX, _numbers(6, 5)
    return (
        Probe("MatMul", "constant factor", (a, constant)),
        Probe("MatMul", "both factors computed", (a, (6, 5))),
        Probe("MatMul", "more than 2 axes", ((2, 3, *a), (2, 3, 6, 5))),
        Probe("MatMul", "factors of unequal rank", ((2, *a), (6, 5))),
        Probe("MatMul", "a factor of 1 axis", (a, (6,))),
        Probe("Einsum", "one operand", (IMAGE,), {"equation": "bcij->cb"}),
        Probe("Einsum", "two operands", (a, constant), {"equation": "ij,jk->ki"}),
        Probe("Einsum", "three operands", (a, constant, (5, 3)), {"equation": "ij,jk,kl->il"}),
        Probe("Einsum", "a diagonal", ((6, 6),), {"equation": "ii->i"}),
        Probe("Einsum", "ellipsis", ((2, *a), (2, 6, 5)), {"equation": "...ij,...jk->...ik"}),
        Probe("Gemm", "constant B", (a, constant)),
        Probe("Gemm", "computed B", (a, (6, 5))),
        Probe("Gemm", "transA", ((6, 4), constant), {"transA": 1}),
        Probe("Gemm", "transB", (a, _numbers(5, 6)), {"transB": 1}),
        Probe("Gemm", "constant C", (a, constant, _numbers(5))),
        Probe("Gemm", "computed C", (a, constant, (4, 5))),
        Probe("Gemm", "alpha", (a, constant), {"alpha": 0.5}),
        Probe("Gemm", "alpha with computed B", (a, (6, 5)), {"alpha": 0.5}),
        Probe("Gemm", "beta", (a, constant, _numbers(5)), {"beta": 0.5}),
        Probe("Gemm", "beta with computed C", (a, constant, (4, 5)), {"beta": 0.5}),
    )


def _elementwise() -> tuple[Probe, ...]:
    found: list[Probe] = []
    for op_type in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        found += (
            Probe(op_type, "equal shapes", (IMAGE, IMAGE)),
            Probe(op_type, "broadcast", (IMAGE, (6, 1))),
            Probe(op_type, "both broadcast", ((4, 1), (1, 6))),
            Probe(op_type, "constant operand", (IMAGE, _numbers(4, 1, 1))),
            Probe(op_type, "no axes", ((), ())),
        )
    statistics = tuple(_numbers(4) for _ in range(4))
    return (
        *found,
        *(Probe(op, "many operands", (IMAGE, IMAGE, IMAGE)) for op in ("Sum", "Max", "Min", "Mean")),
        Probe("Clip", "constant bounds", (IMAGE, np.array(0, np.float32), np.array(6, np.float32))),
        Probe("Clip", "computed bounds", (IMAGE, ())),
        Probe("PRelu", "constant slope", (IMAGE, _numbers(4, 1, 1))),
        Probe("PRelu", "computed slope", (IMAGE, (4, 1, 1))),
        Probe("BatchNormalization", "constant statistics", (IMAGE, *statistics)),
        Probe("BatchNormalization", "computed statistics", (IMAGE, *statistics[:2], (4,), (4,))),
        Probe("BatchNormalization", "training_mode", (IMAGE, *statistics), {"training_mode": 1}, 3),
        Probe("Dropout", "inference", (IMAGE,)),
        Probe("Dropout", "training_mode", (IMAGE, np.array(0.5, np.float32), np.array(True))),
        Probe("Cast", "between floating-point types", (IMAGE,), {"to": TensorProto.FLOAT16}),
        Probe("Cast", "to integers", (IMAGE,), {"to": TensorProto.INT64}),
        *(Probe("Gelu", f"approximate={way}", (IMAGE,), {"approximate": way}) for way in ("none", "tanh")),
        *(
            Probe("Pow", f"constant exponent {number:g}", (IMAGE, np.array(number, np.float32)))
            for number in (1, 2, 3, 0.5, -0.5, -1)
        ),
        Probe("Pow", "other constant exponents", (IMAGE, np.array(1.7, np.float32))),
        Probe("Pow", "computed exponent", (IMAGE, IMAGE)),
    )


def _whole_axes() -> tuple[Probe, ...]:
    found: list[Probe] = []
    kinds = ("Mean", "Sum", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    for op_type in (f"Reduce{kind}" for kind in kinds):
        found += (
            Probe(op_type, "some axes", (IMAGE, _whole(1, 3))),
            Probe(op_type, "all axes", (IMAGE,)),
            Probe(op_type, "keepdims=0", (IMAGE, _whole(2)), {"keepdims": 0}),
            Probe(op_type, "noop_with_empty_axes", (IMAGE,), {"noop_with_empty_axes": 1}),
        )
    vector, channels = _numbers(6), _numbers(4)
    last = np.array(-1, np.int64)
    return (
        *found,
        Probe("CumSum", "constant axis", (IMAGE, last)),
        Probe("CumSum", "exclusive", (IMAGE, last), {"exclusive": 1}),
        Probe("CumSum", "reverse", (IMAGE, last), {"reverse": 1}),
        Probe("CumSum", "computed axis", (IMAGE, Whole(()))),
        *(Probe("Softmax", f"axis={axis}", (IMAGE,), {"axis": axis}) for axis in (-1, 1)),
        Probe("Softmax", "several axes, before opset 13", (IMAGE,), {"axis": 1}, opset=11),
        Probe("LayerNormalization", "last axis", (IMAGE, vector, vector)),
        Probe("LayerNormalization", "several axes", (IMAGE, _numbers(4, 6, 6)), {"axis": 1}),
        Probe("LayerNormalization", "computed scale", (IMAGE, (6,))),
        Probe("LayerNormalization", "mean and deviation as well", (IMAGE, vector), outputs=3),
        Probe("RMSNormalization", "last axis", (IMAGE, vector)),
        Probe("RMSNormalization", "several axes", (IMAGE, _numbers(4, 6, 6)), {"axis": 1}),
        *_attention(),
        Probe("InstanceNormalization", "constant scale and bias", (IMAGE, channels, channels)),
        Probe("InstanceNormalization", "computed scale or bias", (IMAGE, (4,), channels)),
    )


def _attention() -> tuple[Probe, ...]:
    heads, fewer, fewer_rows, flat = (1, 4, 6, 8), (1, 2, 6, 8), (1, 4, 2, 8), (1, 6, 16)
    counts = {"q_num_heads": 2, "kv_num_heads": 2}
    tables = (_numbers(1, 6, 4), _numbers(1, 6, 4))
    return (
        Probe("Attention", "by head", (heads, heads, heads)),
        Probe("Attention", "heads side by side", (flat, flat, flat), counts),
        Probe("Attention", "grouped heads", (heads, fewer, fewer)),
        Probe("Attention", "numbers as mask", (heads, heads, heads, (6, 6))),
        Probe("Attention", "truth values as mask", (heads, heads, heads, Truth((6, 6)))),
        Probe("Attention", "is_causal", (heads, heads, heads), {"is_causal": 1}),
        Probe("Attention", "left_window_size", (heads, heads, heads), {"left_window_size": 2}, opset=25),
        Probe("Attention", "softcap", (heads, heads, heads), {"softcap": 2.0}),
        Probe("Attention", "past keys and values", (heads, heads, heads, None, heads, heads), outputs=3),
        Probe("Attention", "lengths", (heads, heads, heads, None, None, None, Whole((1,))), opset=24),
        Probe("Attention", "scores", (heads, heads, heads, None, heads, heads), outputs=4),
        Probe("ScatterND", "rows", ((6, 8), Whole((2, 1)), (2, 8))),
        Probe("ScatterND", "elements", ((6, 8), Whole((2, 2)), (2,))),
        Probe("TensorScatter", "a place", (heads, fewer_rows, Whole((1,))), opset=24),
        Probe("TensorScatter", "circular", (heads, fewer_rows, Whole((1,))), {"mode": "circular"}, opset=24),
        Probe("RotaryEmbedding", "by head", (heads, *tables)),
        Probe("RotaryEmbedding", "heads side by side", (flat, *tables), {"num_heads": 2}),
        Probe("RotaryEmbedding", "interleaved", (heads, *tables), {"interleaved": 1}),
        Probe(
            "RotaryEmbedding",
            "constant places",
            (heads, _numbers(9, 4), _numbers(9, 4), _whole(*range(6)).reshape(1, 6)),
        ),
        Probe("RotaryEmbedding", "tables of other rows", (heads, _numbers(1, 5, 4), _numbers(1, 5, 4))),
    )


def _movement() -> tuple[Probe, ...]:
    starts, ends = _whole(0, 1), _whole(4, 5)
    pads = _whole(0, 0, 1, 1, 0, 0, 1, 1)
    return (
        *(Probe("Concat", f"axis={axis}", (IMAGE, IMAGE), {"axis": axis}) for axis in (0, 1, 3)),
        Probe("Transpose", "perm", (IMAGE,), {"perm": (0, 2, 3, 1)}),
        Probe("Reshape", "constant shape", (IMAGE, _whole(1, 24, 6))),
        Probe("Reshape", "computed shape", (IMAGE, Whole((3,)))),
        Probe("Squeeze", "constant axes", (IMAGE, _whole(0))),
        Probe("Unsqueeze", "constant axes", (IMAGE, _whole(0))),
        Probe("Slice", "constant starts and ends", (IMAGE, starts, ends, _whole(2, 3))),
        Probe("Slice", "steps", (IMAGE, starts, ends, _whole(2, 3), _whole(2, 3))),
        Probe("Slice", "negative steps", (IMAGE, _whole(5), _whole(0), _whole(2), _whole(-1))),
        Probe("Split", "equal parts", (IMAGE,), {"axis": 1, "num_outputs": 2}, 2),
        Probe("Split", "constant sizes", (IMAGE, _whole(1, 3)), {"axis": 1}, 2),
        *(Probe("Pad", f"mode={m}", (IMAGE, pads), {"mode": m}) for m in ("constant", "reflect", "edge", "wrap")),
        Probe("Pad", "axes", (IMAGE, _whole(1, 1), None, _whole(2))),
        Probe("Pad", "negative pads", (IMAGE, _whole(0, 0, -1, 0, 0, 0, 0, 0))),
        *(
            Probe("Pad", f"negative pads, mode={m}", (IMAGE, _whole(0, 0, -1, 0, 0, 0, 0, 1)), {"mode": m})
            for m in ("reflect", "edge", "wrap")
        ),
        Probe("Pad", "computed value", (IMAGE, pads, ())),
        Probe("Gather", "evenly spaced constant indices", (IMAGE, _whole(0, 2)), {"axis": 1}),
        Probe("Gather", "any constant indices", (IMAGE, _whole(0, 3, 1)), {"axis": 1}),
        Probe("Gather", "computed indices", (IMAGE, Whole((3,))), {"axis": 1}),
        Probe("GatherElements", "constant indices", (IMAGE, _whole(*range(4)).reshape(1, 4, 1, 1)), {"axis": 1}),
        Probe("GatherElements", "computed indices", (IMAGE, Whole(IMAGE)), {"axis": 1}),
        Probe("GatherND", "constant indices", (IMAGE, _whole(0, 3, 0, 1).reshape(2, 2))),
        Probe("GatherND", "batch_dims", (IMAGE, _whole(3, 1).reshape(1, 2, 1)), {"batch_dims": 1}),
        Probe("GatherND", "computed indices", (IMAGE, Whole((2, 2)))),
        *(Probe("DepthToSpace", f"mode={m}", (IMAGE,), {"blocksize": 2, "mode": m}) for m in ("DCR", "CRD")),
        Probe("SpaceToDepth", "blocksize", (IMAGE,), {"blocksize": 2}),
    )


def _choices() -> tuple[Probe, ...]:
    mask = np.arange(6) > 2
    scalar, on_and_off = np.array(0.5, np.float32), np.array([0, 1], np.float32)
    comparisons = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    return (
        *(Probe(op, "computed numbers", (IMAGE, IMAGE)) for op in comparisons),
        *(Probe(op, "a constant number", (IMAGE, scalar)) for op in comparisons),
        *(Probe(op, "whole numbers", (Whole((4,)), _whole(2))) for op in comparisons),
        *(Probe(op, "truth values of numbers", (Truth(IMAGE), Truth(IMAGE))) for op in ("And", "Or", "Xor")),
        *(Probe(op, "a constant truth value", (Truth(IMAGE), mask)) for op in ("And", "Or", "Xor")),
        Probe("Not", "a truth value of numbers", (Truth(IMAGE),)),
        Probe("IsNaN", "by itself", (IMAGE,)),
        Probe("Where", "computed condition", (Truth(IMAGE), IMAGE, IMAGE)),
        Probe("Where", "constant condition", (mask, IMAGE, scalar)),
        Probe("Where", "from a Softmax whose rows may be masked as a whole", (Truth(IMAGE), Shares(IMAGE), scalar)),
        Probe("Where", "whole numbers", (Truth(IMAGE), Whole(IMAGE), Whole(IMAGE))),
        Probe("Trilu", "constant diagonal", (IMAGE, np.array(1, np.int64))),
        Probe("Trilu", "computed diagonal", (IMAGE, Whole(()))),
        Probe("Expand", "constant shape", ((1, 4, 1, 1), _whole(1, 4, 6, 6))),
        Probe("Expand", "computed shape", (IMAGE, Whole((4,)))),
        Probe("Tile", "constant repeats", (IMAGE, _whole(1, 2, 1, 3))),
        Probe("Tile", "computed repeats", (IMAGE, Whole((4,)))),
        Probe("OneHot", "constant indices", (_whole(0, 2, 1), _whole(4), on_and_off)),
        Probe("OneHot", "computed indices", (Whole((3,)), _whole(4), on_and_off)),
    )


def _recurrent() -> tuple[Probe, ...]:
    found: list[Probe] = []
    for op_type, gates, states in (("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)):
        x, size = (3, 2, 4), {"hidden_size": 5}
        weights = _numbers(1, 5 * gates, 4), _numbers(1, 5 * gates, 5)
        both = (_numbers(2, 5 * gates, 4), _numbers(2, 5 * gates, 5))
        lengths = np.array([3, 2], np.int32)
        found += (
            Probe(op_type, "constant weights", (x, *weights, _numbers(1, 10 * gates)), size),
            Probe(op_type, "both directions", (x, *both), {**size, "direction": "bidirectional"}, states + 1),
            Probe(op_type, "layout=1", ((2, 3, 4), *weights), {**size, "layout": 1}),
            Probe(op_type, "computed states", (x, *weights, None, None, *[(1, 2, 5)] * states), size),
            Probe(op_type, "constant lengths", (x, *weights, None, lengths), size),
            Probe(op_type, "computed lengths", (x, *weights, None, Whole((2,), np.int32)), size),
            Probe(op_type, "computed weights", (x, (1, 5 * gates, 4), (1, 5 * gates, 5)), size),
        )
    return tuple(found)


def _transposed() -> tuple[Probe, ...]:
    kernel = _numbers(4, 4, 3, 3)
    return (
        *(Probe("ConvTranspose", _words(n), (_spatial(n), _numbers(4, 4, *(3,) * n))) for n in (2, 1, 3)),
        Probe("ConvTranspose", "group", (IMAGE, _numbers(4, 2, 3, 3)), {"group": 2}),
        Probe("ConvTranspose", "strides", (IMAGE, kernel), {"strides": (2, 2)}),
        Probe("ConvTranspose", "dilations", (IMAGE, kernel), {"dilations": (2, 2)}),
        Probe("ConvTranspose", "output_padding", (IMAGE, kernel), {"strides": (2, 2), "output_padding": (1, 1)}),
        Probe("ConvTranspose", "output_shape", (IMAGE, kernel), {"strides": (2, 2), "output_shape": (12, 12)}),
        Probe("ConvTranspose", "computed weights", (IMAGE, (4, 4, 3, 3))),
    )


def _resizing() -> tuple[Probe, ...]:
    def resize(mode: str, coordinates: str, scales: Array, **settings: Setting) -> Probe:
        says = " ".join((mode, coordinates, *(f"{name}={value}" for name, value in settings.items())))
        named: dict[str, Setting] = {"mode": mode, "coordinate_transformation_mode": coordinates, **settings}
        return Probe("Resize", says, (IMAGE, None, scales), named)

    up, down = np.array([1, 1, 2, 2], np.float32), np.array([1, 1, 0.5, 0.5], np.float32)
    ways = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
    return (
        *(resize(mode, way, up) for mode in ("nearest", "linear", "cubic") for way in ways),
        resize("linear", "half_pixel", down, antialias=1),
        Probe("Resize", "constant sizes", (IMAGE, None, None, _whole(1, 4, 9, 9))),
        Probe("Resize", "computed scales", (IMAGE, None, (4,))),
        Probe("Resize", "channels", (IMAGE, None, np.array([1, 2, 1, 1], np.float32))),
        *(Probe("Upsample", f"mode={mode}", (IMAGE, up), {"mode": mode}, opset=9) for mode in ("nearest", "linear")),
    )


def _constants() -> tuple[Probe, ...]:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op_type, ["number"], ["chosen"])],
            name,
            [],
            [helper.make_tensor_value_info("chosen", TensorProto.FLOAT, [])],
            [numpy_helper.from_array(np.array(0.5, np.float32), "number")],
        )
        for name, op_type in (("then", "Neg"), ("else", "Identity"))
    }
    return (
        Probe("If", "constant condition", (np.array(True),), branches),
        Probe("If", "computed condition", (Truth(()),), branches),
        Probe("Constant", "", (), {"value_floats": (1.0, 2.0)}),
        Probe("ConstantOfShape", "constant shape", (_whole(2, 3),)),
        Probe("ConstantOfShape", "computed shape", (Whole((2,)),)),
    )


PROBES: tuple[Probe, ...] = (
    Probe("QuantizeLinear", "int8", (IMAGE, np.array(0.1, np.float32), np.array(3, np.int8))),
    Probe("QuantizeLinear", "uint8", (IMAGE, np.array(0.1, np.float32), np.array(128, np.uint8))),
    Probe("QuantizeLinear", "int16", (IMAGE, np.array(0.1, np.float32), np.array(0, np.int16))),
    Probe("DequantizeLinear", "int8", (Whole(IMAGE, np.int8), np.array(0.1, np.float32), np.array(3, np.int8))),
    Probe("DequantizeLinear", "uint8", (Whole(IMAGE, np.uint8), np.array(0.1, np.float32), np.array(128, np.uint8))),
    Probe("DequantizeLinear", "uint8, per channel", (Whole(IMAGE, np.uint8), _numbers(4), np.full(4, 9, np.uint8))),
    *_convolutions(),
    *_pools(),
    *_products(),
    *_elementwise(),
    *_whole_axes(),
    *_movement(),
    *_choices(),
    *_transposed(),
    *_recurrent(),
    *_resizing(),
    *_constants(),
)
