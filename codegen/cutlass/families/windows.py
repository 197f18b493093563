"""Anchors that read a window of a feature map: pools.

    n y x c  -->  max or mean over in[n, y * stride - pad + r * dilation, x * ..., c]
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from codegen.cutlass.families.family import Work
from codegen.cutlass.families.maps import Anchor, AnchorRule
from codegen.cutlass.launches import Address

__all__ = ["WINDOWS", "taps"]

WINDOW = """
// Over the taps of a two-dimensional window that lie inside the image.
struct Window {
  int height, width, kernel_height, kernel_width, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
};
"""

TAPS = """for (int r = 0; r < w.kernel_height; ++r) {
    const int row = at[1] * w.stride_y - w.pad_y + r * w.dilation_y;
    if (row < 0 || row >= w.height) continue;
    for (int s = 0; s < w.kernel_width; ++s) {
      const int column = at[2] * w.stride_x - w.pad_x + s * w.dilation_x;
      if (column < 0 || column >= w.width) continue;
      float t[V];
      load(t, x + ((size_t(at[0]) * w.height + row) * w.width + column) * extents.v[3] + at[3]);
      @COMBINE@
    }
  }"""


def _window(work: Work) -> tuple[int, ...]:
    op = work.anchor
    _, height, width, _ = work.shape(op.inputs[0])
    values: list[int] = [height, width]
    for name in ("kernel", "strides", "pads", "dilations"):
        values.extend(op.ints(name)[:2])
    return tuple(values)


def _max_pool(work: Work, width: int) -> Anchor:
    """The largest element inside; there is one at least."""
    del width
    start = "EACH v[k] = __int_as_float(0xff800000);\n  "
    statements = start + TAPS.replace("@COMBINE@", "EACH v[k] = larger(v[k], t[k]);")
    return _anchor(work, statements)


def _average_pool(work: Work, width: int) -> Anchor:
    """The mean of what lies inside; with `count_include_pad` the sum of that over the number of all taps, none of which
    lies beyond the padding (the frontend refuses such windows). 0 where no tap lies inside."""
    del width
    start = "EACH v[k] = 0.f;\n  int taps = 0;\n  "
    statements = start + TAPS.replace("@COMBINE@", "EACH v[k] += t[k];\n      ++taps;")
    if work.anchor.number("count_include_pad"):
        statements += "\n  taps = w.kernel_height * w.kernel_width;"
    return _anchor(work, statements + "\n  EACH v[k] /= max(taps, 1);")


def _anchor(work: Work, statements: str) -> Anchor:
    arguments = (Address(work.anchor.inputs[0]), _window(work))
    return Anchor(", const half* __restrict__ x, Window w", statements, arguments, WINDOW)


def taps(work: Work) -> int:
    """Elements under a window."""
    return prod(work.anchor.ints("kernel"))


WINDOWS: Mapping[str, AnchorRule] = {"max_pool": _max_pool, "average_pool": _average_pool}
