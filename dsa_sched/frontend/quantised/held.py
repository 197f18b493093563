"""Integers of a quantised value as the device holds them, and values that follow linearly from them.

    file: q (uint8)    device: `narrow` int8, q - 128    and `floats` float16, the same integers, for what has no
                       kernels of int8

A value whose channels are odd in number is held as floats alone: int8 tensors move in units of two bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsa_sched.frontend.network.network import Network
from dsa_sched.frontend.quantised.grids import DEQUANTISE, QUANTISE, Grid
from partitioner.ir.operators import REARRANGING, Trait, onnx_names


@dataclass(frozen=True, slots=True)
class Rounded:
    """How a value becomes an integer: rounded `to` the nearest, or cut off; then `centre` is added. Near zero fp16 has
    more digits than near a zero point, so that the integer zero is reached after rounding, not before."""

    to: str
    centre: int = 0


NEAREST, CUT = Rounded("nearest"), Rounded("truncate")


@dataclass(frozen=True, slots=True)
class HeldIntegers:
    """Device integers, or what a linear operator makes of them: number = scale * (`floats` - zero point). `narrow` is
    the int8 value that holds the same where there is one; `exact` says that these are integers. An odd number of
    channels has no int8 value; there `raw` is the value that becomes the integers by `rounding`."""

    floats: str
    narrow: str
    grid: Grid
    exact: bool = True
    raw: str = ""
    rounding: Rounded = CUT


MAXIMA = frozenset(["MaxPool", "GlobalMaxPool"])

EXACT_MOVES = onnx_names(Trait.VIEW, Trait.MOVES) | MAXIMA
"""Operators of one operand whose results are among the integers that they read."""

REARRANGED = onnx_names(*REARRANGING) | MAXIMA
"""Operators that may have integers of the file as operands, and whose results are among these, or a constant integer.
"""

AVERAGES = frozenset(["AveragePool", "GlobalAveragePool", "ReduceMean"])
"""Linear operators whose weights add up to one, so that they keep scale and zero point."""

_OWN_AXES = onnx_names(Trait.VIEW) - onnx_names(Trait.ELEMENTWISE) | {"Transpose", "MatMul", "Gemm", "Gather", "Einsum"}
_MAPPED = frozenset(["Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LRN",
                     "BatchNormalization", "InstanceNormalization", "Resize", "Upsample"])  # fmt: skip
"""Operators whose operand and result are feature maps, with channels on axis 1."""


def channel_extent(shape: tuple[int, ...], is_map: bool) -> int:
    """Extent of the axis that lies innermost on a device with channels last."""
    if not shape:
        return 1
    return shape[1] if is_map and len(shape) > 2 else shape[-1]


def feature_maps(network: Network) -> frozenset[str]:
    """Values whose channels are on axis 1: those of convolutions and pools, and those that meet them in operators that
    work in any layout."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.get(name, name) != name:
            name = root[name]
        return name

    seeds = []
    for node in network.nodes:
        if node.op_type in _MAPPED:
            seeds += [node.inputs[0], node.outputs[0]]
        if node.op_type in _OWN_AXES | _MAPPED:
            continue
        names = node.inputs[:1] if node.op_type in (QUANTISE, DEQUANTISE) else node.inputs
        alike = [name for name in (*names, *node.outputs) if name and name not in network.constants]
        rank = len(network.known_shape(node.outputs[0]) or ())
        for name in alike:
            if len(network.known_shape(name) or ()) == rank:
                root[find(name)] = find(alike[-1])
    mapped = {find(name) for name in seeds}
    return frozenset(name for name in network.values if find(name) in mapped)
