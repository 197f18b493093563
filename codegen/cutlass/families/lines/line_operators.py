"""Operators on whole lines, as C++ statements for a team of threads (`sources/lines.cuh`).

    softmax  -->  the largest, the sum of powers, each power over the sum: three passes over a line
    layer_norm(x, scale, bias)  -->  (x - mean) / deviation, and the chain  * scale, + bias

A NaN in a line propagates as ONNX's definition says. Sums are fp32; a variance is summed after the mean is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codegen.cutlass.kernel.expressions import literal
from partitioner.ir.graph import Graph, Op


@dataclass(frozen=True, slots=True)
class LineOperator:
    """Code of an operator. `statements(op)` end in `team.map` or, where there is one result per line (`reduces`), in
    `team.once`; `passes` is the number of passes over a line."""

    statements: Callable[[Op], str]
    passes: int
    reduces: bool = False


INFINITY = literal(float("inf"))
EACH_LINE = '_Pragma("unroll") for (int k = 0; k < S; ++k)'
LARGEST = f"""float high[S];
  team.reduce(high, -{INFINITY}, Larger(), [](float x, int) {{ return x; }});"""
SMALLEST = f"""float low[S];
  team.reduce(low, {INFINITY}, Smaller(), [](float x, int) {{ return x; }});"""
COUNT = "const float count = float(lines.length * ALONG_STEP);"
MEAN = f"""{COUNT}
  float v[S];
  team.reduce(v, 0.f, Plus(), [](float x, int) {{ return x; }});
  {EACH_LINE} v[k] /= count;"""
ONCE = "team.once(v, stored);"


def _softmax(_op: Op) -> str:
    return f"""{LARGEST}
  float sum[S];
  team.reduce(sum, 0.f, Plus(), [&](float x, int k) {{ return expf(x - high[k]); }});
  {EACH_LINE} sum[k] = 1.f / sum[k];
  team.map([&](float x, int k) {{ return expf(x - high[k]) * sum[k]; }}, stored);"""


def _layer_norm(op: Op) -> str:
    return f"""{MEAN}
  float power[S];
  team.reduce(power, 0.f, Plus(), [&](float x, int k) {{ return (x - v[k]) * (x - v[k]); }});
  {_root(op)}
  team.map([&](float x, int k) {{ return (x - v[k]) * power[k]; }}, stored);"""


def _rms_norm(op: Op) -> str:
    return f"""{COUNT}
  float power[S];
  team.reduce(power, 0.f, Plus(), [](float x, int) {{ return x * x; }});
  {_root(op)}
  team.map([&](float x, int k) {{ return x * power[k]; }}, stored);"""


def _root(op: Op) -> str:
    """One over the root of the mean of squares."""
    return f"{EACH_LINE} power[k] = rsqrtf(power[k] / count + {literal(op.number('epsilon'))});"


def _sum(_op: Op) -> str:
    return f"""float v[S];
  team.reduce(v, 0.f, Plus(), [](float x, int) {{ return x; }});
  {ONCE}"""


def _mean(_op: Op) -> str:
    return f"{MEAN}\n  {ONCE}"


def _max(_op: Op) -> str:
    return LARGEST.replace("high", "v") + f"\n  {ONCE}"


def _nearest(_op: Op) -> str:
    """The value nearest to zero between the smallest and the largest."""
    return f"""{SMALLEST}
  {LARGEST}
  float v[S];
  {EACH_LINE} v[k] = larger(low[k], 0.f) + smaller(high[k], 0.f);
  {ONCE}"""


def _power(op: Op) -> str:
    """64 over the power of two at or above the largest |x|, or |x - nearest| where it is `centred`. The latter is that
    of the smallest or of the largest element, since rounded differences keep their order."""
    nearest = "larger(low[k], 0.f) + smaller(high[k], 0.f)" if op.number("centred") else "0.f"
    return f"""{SMALLEST}
  {LARGEST}
  float v[S];
  {EACH_LINE} {{
    const float centre = {nearest};
    v[k] = scaled_to_64(larger(high[k] - centre, centre - low[k]));
  }}
  {ONCE}"""


LINES: Mapping[str, LineOperator] = {
    "softmax": LineOperator(_softmax, 3),
    "layer_norm": LineOperator(_layer_norm, 3),
    "rms_norm": LineOperator(_rms_norm, 2),
    "reduce_sum": LineOperator(_sum, 1, reduces=True),
    "reduce_mean": LineOperator(_mean, 1, reduces=True),
    "reduce_max": LineOperator(_max, 1, reduces=True),
    "reduce_nearest": LineOperator(_nearest, 2, reduces=True),
    "reduce_power": LineOperator(_power, 2, reduces=True),
    "average_pool": LineOperator(_mean, 1, reduces=True),
    "max_pool": LineOperator(_max, 1, reduces=True),
}

SUMS = "Any axes, kept or not. Sums are fp32, in an order that depends on the shape alone."
EXTREMES = "Any axes, kept or not. NaN stays NaN."
LINE_RULES: Mapping[str, str] = {
    "softmax": "Any axis, lines of any length. Powers and their sum are fp32; a line of -inf is NaN.",
    "layer_norm": "All axes from one on, with scale and bias, constant or computed. The variance is summed after the "
    "mean, in fp32; mean and deviation are not given out.",
    "rms_norm": "All axes from one on, with a scale, constant or computed. Squares are summed in fp32.",
    "reduce_sum": SUMS,
    "reduce_mean": SUMS,
    "reduce_max": EXTREMES,
    "reduce_nearest": "Any axes: what is nearest to zero between the smallest and the largest.",
    "reduce_power": "Any axes: 64 over the power of two at or above the largest magnitude, which is held between 2^-9 "
    "and 65504.",
}
"""Rules of the operators in words, for a reader; pools have rules of their own, shared by all windows."""


def line_axes(graph: Graph, op: Op) -> frozenset[int] | None:
    """Axes along which the operator's lines lie; None for a pool whose window is not the whole map."""
    shape = graph.by_name[op.inputs[0]].shape
    if op.kind == "softmax":
        return frozenset([int(op.number("axis")) % len(shape)])
    if op.kind not in ("average_pool", "max_pool"):
        return frozenset(axis % len(shape) for axis in op.ints("axes"))
    apart = any(step > 1 and extent > 1 for step, extent in zip(op.ints("dilations"), op.ints("kernel"), strict=True))
    whole = op.ints("kernel") == shape[1:-1] and not any(op.ints("pads")) and not apart
    return frozenset(range(1, len(shape) - 1)) if whole else None


def affine(op: Op) -> tuple[Op, ...]:
    """Last steps of a norm, as element-wise operators on its result: times the scale, plus the bias."""
    if op.kind not in ("layer_norm", "rms_norm"):
        return ()
    result = op.outputs[0]
    return tuple(
        Op(f"{op.name} {kind}", kind, (result, operand), (result,))
        for kind, operand in zip(("mul", "add"), op.inputs[1:], strict=False)
    )
