"""Resizing: the input coordinate of each position of an axis, computed in fp32 as in onnxruntime, and the anchor of
linear resizing. Resizing to the nearest element is a movement by these tables.

    position p --coordinates, scale--> place;  linear: x[floor] (1 - share) + x[floor + 1] share, axis by axis
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.cutlass.families.maps.maps import Anchor, MapFamily
from codegen.cutlass.kernel.epilogues import dims
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import reached_bytes
from codegen.cutlass.kernel.launches import Address, Argument, Data
from partitioner.ir.graph import Constants, Op

Places = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]


def resized_axes(given: tuple[int, ...], wanted: tuple[int, ...], op: Op) -> tuple[int, ...]:
    """Axes that resizing changes: the extent differs, or a factor other than one leaves it the same. Where all extents
    stay the same onnxruntime copies, whatever the factors."""
    if given == wanted:
        return ()
    scales = _scales(op) or (1.0,) * len(given)
    axes = enumerate(zip(given, wanted, scales, strict=True))
    return tuple(axis for axis, (extent, made, scale) in axes if extent != made or scale != 1)


def nearest_places(work: KernelWork) -> Mapping[int, Positions]:
    """Input positions that are read, for each resized axis."""
    op, given, wanted = work.anchor, work.shape(work.anchor.inputs[0]), work.shape(work.anchor.outputs[0])
    return {
        axis: _nearest(str(op.attribute("rounding")), _places(op, axis, given[axis], wanted[axis]),
                       wanted[axis] < given[axis])
        for axis in resized_axes(given, wanted, op)
    }  # fmt: skip


def _scales(op: Op) -> tuple[float, ...]:
    found = dict(op.attributes).get("scales", ())
    return tuple(float(scale) for scale in found) if isinstance(found, tuple) else ()


def _places(op: Op, axis: int, extent: int, wanted: int) -> Places:
    """Coordinates of all output positions, clamped to the input."""
    one = np.float32
    at = np.arange(wanted).astype(one)
    scales = _scales(op)
    scale = one(scales[axis]) if scales else one(wanted) / one(extent)
    match op.attribute("coordinates"):
        case "align_corners":
            places = at * one(extent - 1) / one(wanted - 1) if wanted > 1 else at
        case "asymmetric":
            places = at / scale
        case "pytorch_half_pixel" if wanted == 1:
            places = at
        case _:
            places = (at + one(0.5)) / scale - one(0.5)
    return np.clip(places, 0, extent - 1).astype(one)


def _nearest(rounding: str, places: Places, shrinks: bool) -> Positions:
    match rounding:
        case "simple":
            rounded = np.ceil(places) if shrinks else np.floor(places)
        case "floor":
            rounded = np.floor(places)
        case "ceil":
            rounded = np.ceil(places)
        case "round_prefer_ceil":
            rounded = np.floor(places + np.float32(0.5))
        case _:
            rounded = np.ceil(places - np.float32(0.5))
    return rounded.astype(np.int64)


def _linear(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
    """Linear resizing: all corners around the place, times the product of their shares. A corner without a share is not
    read, so that an infinity next to a whole place does no harm."""
    del width, constants
    op, given, wanted = work.anchor, work.shape(work.anchor.inputs[0]), work.shape(work.anchor.outputs[0])
    axes = resized_axes(given, wanted, op)
    strides = [0 if axis in axes else prod(given[axis + 1 :]) for axis in range(len(given))]
    declarations, arguments = ", const half* __restrict__ x, Dims strides", list[Argument]()
    lines = ["EACH v[k] = 0.f;", "const int from = offset<RANK>(at, strides);"]
    for number, axis in enumerate(axes):
        places = _places(op, axis, given[axis], wanted[axis])
        low = np.floor(places)
        elements = np.stack([low, np.minimum(low + 1, given[axis] - 1)], 1).astype("<i4")
        declarations += f", const int* __restrict__ near{axis}, const float* __restrict__ share{axis}"
        arguments.append(Data(f"{op.name} neighbours along axis {axis}",
                              (elements * prod(given[axis + 1 :])).astype("<i4").tobytes()))  # fmt: skip
        arguments.append(Data(f"{op.name} shares along axis {axis}", (places - low).astype("<f4").tobytes()))
        lines += [
            f"for (int c{number} = 0; c{number} < 2; ++c{number}) {{",
            f"const float part{number} = c{number} ? share{axis}[at[{axis}]] : 1.f - share{axis}[at[{axis}]];",
            f"if (part{number} == 0.f) continue;",
        ]
    corner = " + ".join(["from", *(f"near{axis}[2 * at[{axis}] + c{number}]" for number, axis in enumerate(axes))])
    share = " * ".join(["1.f", *(f"part{number}" for number in range(len(axes)))])
    lines += ["float t[V];", f"load(t, x + ({corner}));", f"EACH v[k] = fmaf({share}, t[k], v[k]);", "}" * len(axes)]
    return (Anchor(declarations, "\n  ".join(lines), (Address(op.inputs[0]), dims(tuple(strides)), *arguments)),)


def _takes(work: KernelWork) -> bool:
    """Whether the last axis stays as it is, since neighbours along it are read together."""
    op, given, wanted = work.anchor, work.shape(work.anchor.inputs[0]), work.shape(work.anchor.outputs[0])
    return op.attribute("mode") == "linear" and len(given) - 1 not in resized_axes(given, wanted, op)


def _moved_bytes(work: KernelWork) -> int:
    """Bytes moved: for each element of the output, two neighbours along every axis that changes."""
    given, wanted = work.shape(work.anchor.inputs[0]), work.shape(work.output)
    return reached_bytes(work, prod(wanted) << len(resized_axes(given, wanted, work.anchor)))


LINEAR_RESIZE = MapFamily("resize", {"resize": _linear}, takes=_takes, moved=_moved_bytes)
