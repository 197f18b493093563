"""Convolutions summed by the threads themselves: grouped ones, and those that CUTLASS's kernels do not take. Depthwise
ones of eights of channels along one or two axes have a family of their own (`depthwise.py`).

    own      as many groups as channels and filters: eight products side by side   n y x c: sum in[.., c] w[tap, c]
    shared   neighbouring filters read one channel after the other, together
    each     neighbouring filters are of different groups, each with channels of its own
    along    one filter at a time: eight channels after the other

Weights are arranged when a network is emitted, so that elements read by neighbours lie side by side: (tap, channel of
the group, filter), for `along` (filter, tap, channel of the group) as they are.
"""

from __future__ import annotations

from typing import Literal

from codegen.cutlass.families.maps.depthwise import depthwise_problem
from codegen.cutlass.families.maps.maps import Anchor, MapFamily
from codegen.cutlass.families.maps.windows import WINDOW, over_taps, window_numbers
from codegen.cutlass.families.matrix.convolution import CONVOLUTION
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import taps, window_bytes
from codegen.cutlass.kernel.launches import Address, Data
from partitioner.ir.graph import Constants

Way = Literal["own", "shared", "each", "along"]

STATEMENTS: dict[Way, str] = {
    "own": """float t[V], u[V];
  load(t, x + pixel * FILTERS + filter);
  load(u, weights + size_t(tap) * FILTERS + filter);
  EACH v[k] = fmaf(t[k], u[k], v[k]);""",
    "shared": """const half* from = x + pixel * channels + filter / filters_a_group * channels_a_group;
  for (int c = 0; c < channels_a_group; ++c) {
    const float t = __half2float(from[c]);
    float u[V];
    load(u, weights + (size_t(tap) * channels_a_group + c) * FILTERS + filter);
    EACH v[k] = fmaf(t, u[k], v[k]);
  }""",
    "each": """const half* from = x + pixel * channels;
  for (int c = 0; c < channels_a_group; ++c) {
    float u[V];
    load(u, weights + (size_t(tap) * channels_a_group + c) * FILTERS + filter);
    EACH v[k] = fmaf(__half2float(from[(filter + k) / filters_a_group * channels_a_group + c]), u[k], v[k]);
  }""",
    "along": """const half* from = x + pixel * channels + filter / filters_a_group * channels_a_group;
  for (int c = 0; c < channels_a_group; c += 8) {
    float t[8], u[8];
    load(t, from + c);
    load(u, weights + (size_t(filter) * all_taps + tap) * channels_a_group + c);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[0] = fmaf(t[j], u[j], v[0]);
  }""",
}


def _way(channels_a_group: int, filters_a_group: int, width: int) -> Way:
    if width == 1 and channels_a_group % 8 == 0:
        return "along"
    if channels_a_group == filters_a_group == 1:
        return "own"
    return "each" if filters_a_group % width else "shared"


def _groups(work: KernelWork) -> tuple[int, int]:
    """Channels and filters of a group."""
    op = work.anchor
    groups = int(op.number("groups"))
    return work.shape(op.inputs[0])[-1] // groups, work.shape(op.outputs[0])[-1] // groups


def _arranged(work: KernelWork, way: Way, constants: Constants) -> Address | Data:
    name = work.anchor.inputs[1]
    if way == "along":
        return Address(name)
    channels, _ = _groups(work)
    filters = work.shape(work.anchor.outputs[0])[-1]
    weights = constants[work.graph.by_name[name].constant].reshape(filters, -1, channels)
    return Data(f"{name} by tap", weights.transpose(1, 2, 0).tobytes())


def _anchor(work: KernelWork, width: int, constants: Constants) -> tuple[Anchor, ...]:
    op = work.anchor
    channels, filters = _groups(work)
    way = _way(channels, filters, width)
    biased = len(op.inputs) > 2
    start = "load(v, bias + filter);" if biased else "EACH v[k] = 0.f;"
    declarations = ", const half* __restrict__ x, const half* __restrict__ weights, Window w, int channels"
    declarations += ", int channels_a_group, int filters_a_group, int all_taps"
    declarations += ", const half* __restrict__ bias" if biased else ""
    statements = f"const int filter = at[RANK - 1];\n  {start}\n  {over_taps(work, STATEMENTS[way])}"
    arguments = (
        Address(op.inputs[0]),
        _arranged(work, way, constants),
        window_numbers(work),
        work.shape(op.inputs[0])[-1],
        channels,
        filters,
        taps(work),
        *((Address(op.inputs[2]),) if biased else ()),
    )
    includes = f"{WINDOW}#define FILTERS extents.v[RANK - 1]\n"
    return (Anchor(declarations, statements, arguments, includes),)


def _takes(work: KernelWork) -> bool:
    """Whether the convolution has several groups, for each of which CUTLASS's kernels need a launch, or is one that
    they do not compute; the family of depthwise ones computes some of them better."""
    return depthwise_problem(work) is None and _of_groups(work)


def _of_groups(work: KernelWork) -> bool:
    return int(work.anchor.number("groups")) > 1 or not CONVOLUTION.offers(work)


def _products(work: KernelWork) -> int:
    """Products per element; each is one multiply-add of a lane."""
    return _groups(work)[0] * taps(work)


DIRECT_CONVOLUTION = MapFamily(
    "direct_conv",
    {"conv": _anchor},
    takes=_takes,
    moved=window_bytes,
    operations=_products,
)
