"""Anchor of local response normalisation across channels, which lie last.

y[c] = x[c] * (bias + alpha / size * sum of x[c']^2 over the `size` channels around c)^-beta
"""

from __future__ import annotations

from codegen.cutlass.families.maps.maps import Anchor, MapFamily
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import Address
from partitioner.ir.graph import Constants

MOST_UNROLLED = 32
"""Largest number of channels around V neighbours that are unrolled; wider windows are a loop."""

STATEMENTS = """const half* line = x + size_t(i) * V - at[RANK - 1];
  float squares[V];
  EACH squares[k] = 0.f;
#pragma unroll UNROLLED
  for (int j = -REACH; j < V + REACH; ++j) {
    const int channel = at[RANK - 1] + j;
    if (channel < 0 || channel >= extents.v[RANK - 1]) continue;
    const float t = __half2float(line[channel]);
    EACH if (j - k >= -REACH && j - k <= REACH) squares[k] = fmaf(t, t, squares[k]);
  }
  load(v, line + at[RANK - 1]);
  EACH v[k] *= powf(fmaf(share, squares[k], bias), -beta);"""


def _lrn(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
    del constants
    op = work.anchor
    size = int(op.number("size"))
    reach = min(size // 2, work.shape(op.inputs[0])[-1])
    steps = width + 2 * reach
    includes = f"constexpr int REACH = {reach}, UNROLLED = {steps if steps <= MOST_UNROLLED else 1};\n"
    share = float(op.number("alpha")) / size
    arguments = (Address(op.inputs[0]), share, float(op.number("bias")), float(op.number("beta")))
    declarations = ", const half* __restrict__ x, float share, float bias, float beta"
    return (Anchor(declarations, STATEMENTS, arguments, includes),)


LRN = MapFamily(
    "lrn", {"lrn": _lrn}, operations=lambda work: min(int(work.anchor.number("size")), work.shape(work.output)[-1])
)
