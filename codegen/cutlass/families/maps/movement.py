"""Anchors that move elements: slices, gathers by constant indices, constant padding, resizing to the nearest element,
and transposes that keep the last axis or gain little from a tile.

    from = base + sum over axes of at[axis] * stride[axis], or of a table of the axis at at[axis];  v[k] = x[from]

Along the last axis eight neighbours of the output are one access where they are neighbours in the input too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.cutlass.families.maps.maps import Anchor, AnchorRule, MapFamily
from codegen.cutlass.families.maps.resize import nearest_places
from codegen.cutlass.families.maps.transposes import tiling_of
from codegen.cutlass.kernel.epilogues import dims
from codegen.cutlass.kernel.expressions import literal
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import reached_bytes
from codegen.cutlass.kernel.launches import Address, Argument, Data
from partitioner.ir.graph import Constants

Table = npt.NDArray[np.int64]
Places = Callable[[KernelWork], "MapMove"]


@dataclass(frozen=True, slots=True)
class MapMove:
    """The element that a position reads: `base` and, for each axis, a stride in elements or a table of elements."""

    base: int
    axes: tuple[int | Table, ...]


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one position to the next along each axis."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _transposed(work: KernelWork) -> MapMove:
    """Transpose: output axis i is input axis perm[i]."""
    strides = strides_of(work.shape(work.anchor.inputs[0]))
    return MapMove(0, tuple(strides[axis] for axis in work.anchor.ints("perm")))


def _sliced(work: KernelWork) -> MapMove:
    """Slice: position p reads starts + steps * p."""
    op, strides = work.anchor, strides_of(work.shape(work.anchor.inputs[0]))
    base = sum(start * stride for start, stride in zip(op.ints("starts"), strides, strict=True))
    steps = zip(work.shape(op.outputs[0]), op.ints("steps"), strides, strict=True)
    return MapMove(base, tuple(step * stride if extent > 1 else 0 for extent, step, stride in steps))


def _taken(work: KernelWork) -> MapMove:
    """Take: position p of the axis reads indices[p]."""
    op, axes = work.anchor, list[int | Table](strides_of(work.shape(work.anchor.inputs[0])))
    axis = int(op.number("axis"))
    axes[axis] = np.array(op.ints("indices"), np.int64) * axes[axis]
    return MapMove(0, tuple(axes))


def _nearest(work: KernelWork) -> MapMove:
    """Nearest resize: position p of a resized axis reads the nearest input position."""
    axes = list[int | Table](strides_of(work.shape(work.anchor.inputs[0])))
    for axis, places in nearest_places(work).items():
        axes[axis] = places * axes[axis]
    return MapMove(0, tuple(axes))


def _together(moved: MapMove, shape: tuple[int, ...]) -> bool:
    """Whether eight neighbours of the output lie side by side in the input, at a multiple of 16 bytes."""
    *outer, last = moved.axes
    if isinstance(last, np.ndarray) or last != 1 or moved.base % 8:
        return False
    wide = (of for of, extent in zip(outer, shape, strict=False) if extent > 1)
    return all(not np.any(of % 8) if isinstance(of, np.ndarray) else of % 8 == 0 for of in wide)


def _moving(places: Places) -> AnchorRule:
    def rule(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
        del constants
        shape, moved = work.shape(work.output), places(work)
        tables: dict[int, Table] = {a: of for a, of in enumerate(moved.axes) if isinstance(of, np.ndarray)}
        strides = tuple(0 if isinstance(of, np.ndarray) else of for of in moved.axes)
        last = len(shape) - 1
        lines = ["int from = base + offset<RANK>(at, strides);"]
        lines += [f"from += table{axis}[at[{axis}]];" for axis in tables if axis != last or width == 1]
        if width > 1 and _together(moved, shape):
            lines.append("load(v, x + from);")
        elif width > 1 and last in tables:
            lines.append(f"EACH v[k] = __half2float(x[from + table{last}[at[{last}] + k]]);")
        else:
            lines.append("EACH v[k] = __half2float(x[from + k * strides.v[RANK - 1]]);")
        arguments: list[Argument] = [Address(work.anchor.inputs[0]), moved.base, dims(strides)]
        arguments += [
            Data(f"{work.anchor.name} elements along axis {axis}", of.astype("<i4").tobytes())
            for axis, of in tables.items()
        ]
        declarations = ", const half* __restrict__ x, int base, Dims strides"
        declarations += "".join(f", const int* __restrict__ table{axis}" for axis in tables)
        return (Anchor(declarations, "\n  ".join(lines), tuple(arguments)),)

    return rule


def _pad(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
    """Pad: position p reads p - begins; outside the input it is the value. Negative begins and ends cut off."""
    del constants
    op, given = work.anchor, work.shape(work.anchor.inputs[0])
    begins = op.ints("begins")
    together = width > 1 and begins[-1] % 8 == 0 and given[-1] % 8 == 0
    statements = f"""bool inside = true;
  unsigned from = 0;
#pragma unroll
  for (int axis = 0; axis < RANK; ++axis) {{
    const int place = at[axis] - begins.v[axis];
    if ({"true" if together else "axis < RANK - 1"}) inside = inside && place >= 0 && place < given.v[axis];
    from = from * given.v[axis] + place;
  }}
  EACH v[k] = {literal(op.number("value"))};
  """
    if together:
        statements += "if (inside) load(v, x + from);"
    else:
        statements += """EACH {
    const int place = at[RANK - 1] + k - begins.v[RANK - 1];
    if (inside && place >= 0 && place < given.v[RANK - 1]) v[k] = __half2float(x[from + k]);
  }"""
    declarations = ", const half* __restrict__ x, Dims given, Dims begins"
    return (Anchor(declarations, statements, (Address(op.inputs[0]), dims(given), dims(begins))),)


def _moved_bytes(work: KernelWork) -> int:
    """Bytes moved: each element of the output comes from one of the input, or from none."""
    return reached_bytes(work, prod(work.shape(work.output)))


def _takes(work: KernelWork) -> bool:
    """Whether this family computes the layer: linear resizing and large transposes belong to other families."""
    op = work.anchor
    if op.kind == "transpose":
        return tiling_of(work.shape(op.inputs[0]), op.ints("perm")) is None
    return not (op.kind == "resize" and op.attribute("mode") != "nearest")


ANCHORS: Mapping[str, AnchorRule] = {
    "transpose": _moving(_transposed),
    "slice": _moving(_sliced),
    "take": _moving(_taken),
    "resize": _moving(_nearest),
    "pad": _pad,
}

MOVEMENT = MapFamily("movement", ANCHORS, takes=_takes, moved=_moved_bytes)
