"""Anchor of concatenations: a thread finds the input in which its position lies. A launch reads at most 16 inputs, so
that it has few parameters; more inputs take more launches, each for a part of the output.

    at[axis] --bounds of the inputs--> x, first, extent;  x[(before * extent + at[axis] - first) * behind + rest]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import prod

from codegen.cutlass.families.maps.maps import Anchor, MapFamily
from codegen.cutlass.kernel.epilogues import vector_width
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import Address
from partitioner.ir.graph import Constants

MOST_INPUTS = 16

STATEMENTS = """const half* x = x0;
  int j = 0;
  @CHOICE@
  const int first = b.v[j], extent = b.v[j + 1] - first;
  int before = 0, rest = 0;
#pragma unroll
  for (int axis = 0; axis < AXIS; ++axis) before = before * extents.v[axis] + at[axis];
#pragma unroll
  for (int axis = AXIS + 1; axis < RANK; ++axis) rest = rest * extents.v[axis] + at[axis];
  load(v, x + (size_t(before) * extent + (at[AXIS] - first)) * behind + rest);
  at[AXIS] += start;"""
ELEMENT = "(size_t(before) * total + at[AXIS]) * behind + rest"


def _axis(work: KernelWork) -> int:
    return int(work.anchor.number("axis"))


def _width(work: KernelWork) -> int:
    """Neighbours per thread: 8 where no bound of an input lies between eight neighbours."""
    shape, axis = work.shape(work.output), _axis(work)
    if axis < len(shape) - 1:
        return vector_width(shape)
    return 1 if any(work.shape(name)[axis] % 8 for name in work.anchor.inputs) else 8


def _parts(work: KernelWork) -> Iterator[tuple[str, ...]]:
    names = work.anchor.inputs
    for at in range(0, len(names), MOST_INPUTS):
        yield names[at : at + MOST_INPUTS]


def _concat(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
    del width, constants
    start, anchors = 0, []
    for names in _parts(work):
        anchors.append(_anchor(work, names, start))
        start += sum(work.shape(name)[_axis(work)] for name in names)
    return tuple(anchors)


def _anchor(work: KernelWork, names: tuple[str, ...], start: int) -> Anchor:
    """The anchor for the part of the output that the inputs `names` make, from `start` on."""
    shape, axis, count = work.shape(work.output), _axis(work), len(names)
    bounds = (0, *accumulate(work.shape(name)[axis] for name in names))
    choice = "\n  ".join(f"if (at[AXIS] >= b.v[{j}]) x = x{j}, j = {j};" for j in range(1, count))
    declarations = ", Bounds b, int start, int total, int behind"
    declarations += "".join(f", const half* __restrict__ x{j}" for j in range(count))
    return Anchor(
        declarations,
        STATEMENTS.replace("@CHOICE@", choice),
        (bounds, start, shape[axis], prod(shape[axis + 1 :]), *(Address(name) for name in names)),
        f"constexpr int AXIS = {axis};\nstruct Bounds {{\n  int v[{count + 1}];\n}};\n",
        (*shape[:axis], bounds[-1], *shape[axis + 1 :]),
        ELEMENT,
    )


CONCAT = MapFamily("concat", {"concat": _concat}, width=_width, parts=lambda work: sum(1 for _part in _parts(work)))
