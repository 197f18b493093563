"""Anchors that read a window of a feature map: pools of one to four spatial axes.

n y x c  -->  max or mean over in[n, y * stride - pad + r * dilation, x * ..., c]
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from codegen.cutlass.families.maps.maps import Anchor, AnchorRule
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import Address
from partitioner.ir.graph import Constants

WINDOW = """
// Windows along the AXES axes between the first and the last one.
constexpr int AXES = RANK - 2;
struct Window {
  int extent[AXES], kernel[AXES], stride[AXES], pad[AXES], dilation[AXES];
};

// Steps of this length that a way of `distance` needs, the last one not in full; not positive where the way is not.
__device__ __forceinline__ int steps(int distance, int length) {
  return length == 1 ? distance : (distance + length - 1) / length;
}
"""
LOADED = "float t[V];\n  load(t, x + pixel * extents.v[RANK - 1] + at[RANK - 1]);"


def over_taps(work: KernelWork, statements: str) -> str:
    """Code that runs `statements` for every tap of window `w` at `at` that lies inside the image: `pixel` is its
    position, counted in pixels, and `tap` its number."""
    spatial = range(len(work.anchor.ints("kernel")))
    lines, pixel, tap = [], "size_t(at[0])", ""
    for axis in spatial:
        lines.append(f"const int origin{axis} = at[{axis + 1}] * w.stride[{axis}] - w.pad[{axis}];")
        lines.append(
            f"const int end{axis} = min(w.kernel[{axis}], steps(w.extent[{axis}] - origin{axis}, w.dilation[{axis}]));"
        )
    for axis in spatial:
        first = f"steps(max(-origin{axis}, 0), w.dilation[{axis}])"
        lines.append(f"for (int tap{axis} = {first}; tap{axis} < end{axis}; ++tap{axis}) {{")
        pixel = f"({pixel} * w.extent[{axis}] + origin{axis} + tap{axis} * w.dilation[{axis}])"
        tap = f"({tap} * w.kernel[{axis}] + tap{axis})" if axis else f"tap{axis}"
    lines += [f"const size_t pixel = {pixel};", f"const int tap = {tap};", statements, "}" * len(spatial)]
    return "\n  ".join(lines)


def window_numbers(work: KernelWork) -> tuple[int, ...]:
    """Numbers of the window, in the order of the sources' window structure."""
    op, kernel = work.anchor, work.anchor.ints("kernel")
    dilations = (length if taps > 1 else 1 for length, taps in zip(op.ints("dilations"), kernel, strict=True))
    return tuple(
        chain(work.shape(op.inputs[0])[1:-1], kernel, op.ints("strides"), op.ints("pads")[: len(kernel)], dilations)
    )


def _max_pool(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
    """Maximum of the elements inside the image; there is at least one."""
    del width, constants
    start = "EACH v[k] = __int_as_float(0xff800000);\n  "
    return _anchor(work, start + over_taps(work, f"{LOADED}\n  EACH v[k] = larger(v[k], t[k]);"))


def _average_pool(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
    """Mean of the elements inside the image; with `count_include_pad`, their sum over the number of all taps, none of
    which lies beyond the padding (the frontend refuses such windows). 0 where no tap lies inside."""
    del width, constants
    statements = "EACH v[k] = 0.f;\n  int inside = 0;\n  " + over_taps(
        work, f"{LOADED}\n  EACH v[k] += t[k];\n  ++inside;"
    )
    if work.anchor.number("count_include_pad"):
        statements += "\n  inside = 1;\n  for (int axis = 0; axis < AXES; ++axis) inside *= w.kernel[axis];"
    return _anchor(work, statements + "\n  EACH v[k] /= max(inside, 1);")


def _anchor(work: KernelWork, statements: str) -> tuple[Anchor, ...]:
    arguments = (Address(work.anchor.inputs[0]), window_numbers(work))
    return (Anchor(", const half* __restrict__ x, Window w", statements, arguments, WINDOW),)


WINDOWS: Mapping[str, AnchorRule] = {"max_pool": _max_pool, "average_pool": _average_pool}
