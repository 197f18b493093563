"""Reasons why nothing can be said about an output: rounding may have made it wrong, or nothing is left to compare.

judged outputs + the reference, rounded  -->  "y: off by 51 times ...; Sub v0: a difference of nearly equal values, ..."

The operator of the file is named at which the rounded reference first loses a value that it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from dsa_sched.verification.evidence import Array, Feed
from dsa_sched.verification.rounding import RoundedReference
from dsa_sched.verification.tolerances import LogitsResult, relative_error
from dsa_sched.verification.value_ranges import TypeLimits, limits_of
from hw_models.errors import ModelError
from partitioner.ir.operators import Trait, onnx_names

LOST = 0.25
"""Smallest rounding error, relative to its norm, of a value that an operator loses; its operands have less than
half.
"""

DIFFERENCES = onnx_names(Trait.PRODUCTS) | {"Add", "Sub", "Sum", "ReduceMean", "ReduceSum"}
"""Operators whose results may be small compared with what they read."""


def doubts_of(
    source: onnx.ModelProto,
    logits: Sequence[LogitsResult],
    ends: Mapping[str, tuple[Array, ...]],
    exact: Sequence[Feed],
    dtype: str,
) -> Iterator[str]:
    """Sentences about outputs in doubt. `ends` are the reference's values of the judged outputs, for each input."""
    limits, seen = limits_of(dtype), set[str]()
    for result in logits:
        if result.tensor in seen:
            continue
        reference = ends[result.tensor][result.input]
        if reference.size and not np.isfinite(reference).any():
            seen.add(result.tensor)
            yield f"{result.tensor}: the reference has no finite value for input {result.input}, so nothing is compared"
            continue
        beyond = np.isfinite(reference) & (np.abs(reference) > limits.largest)
        if beyond.any():
            seen.add(result.tensor)
            yield (
                f"{result.tensor}: {int(beyond.sum())} of {beyond.size} values of the reference for input "
                f"{result.input} are beyond {limits.largest:g}, the largest of {limits.name}; they reach "
                f"{float(np.abs(reference[beyond]).max()):.3g}"
            )
        elif result.doubtful:
            seen.add(result.tensor)
            times = f"{result.error / result.norm:.3g} times its norm" if result.norm else f"by {result.error:.3g}"
            where = lost_digits(source, exact[result.input], result.tensor, dtype)
            who = f"{result.tensor} for input {result.input}"
            yield f"{who}: off by {times}, and rounding alone may make it wrong{where}"


@dataclass(frozen=True, slots=True)
class _Rounded:
    exact: Feed
    rounded: Feed

    def error(self, name: str) -> float:
        """Relative error that rounding makes of a value; 0 for one that does not move."""
        if name not in self.rounded or self.exact[name].dtype.kind != "f":
            return 0.0
        return relative_error(self.rounded[name], self.exact[name])


def lost_digits(source: onnx.ModelProto, exact: Feed, end: str, dtype: str) -> str:
    """A clause about the first operator on the way to `end` of whose result rounding leaves nothing; else empty."""
    needed, nodes = {end}, list[onnx.NodeProto]()
    for node in reversed(source.graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.insert(0, node)
    wanted = frozenset(name for node in nodes for name in node.output if name in exact)
    try:
        found = _Rounded(exact, RoundedReference(source, exact, wanted, dtype).values(exact))
    except ModelError:
        return ""
    for node in nodes:
        name = next(iter(node.output))
        error = found.error(name)
        if error >= LOST and all(found.error(read) < error / 2 for read in node.input):
            return f"; {node.op_type} {name}: {_how(node, found, error, limits_of(dtype))}"
    return ""


def _how(node: onnx.NodeProto, found: _Rounded, error: float, limits: TypeLimits) -> str:
    reads = [found.exact[name] for name in node.input if name in found.exact and found.exact[name].dtype.kind == "f"]
    sizes = [np.abs(array[np.isfinite(array) & (array != 0)]) for array in reads]
    times = f"{error:.2g} times off"
    if any(array.size and np.quantile(array, 0.05) <= limits.becomes_zero for array in sizes):
        return f"values below {limits.name}'s smallest become zero, {times}"
    sizes.append(np.abs(found.exact[node.output[0]]))
    if any(array.size and array.max() < limits.smallest_normal for array in sizes):
        return f"values below {limits.name}'s smallest normal number, {times}"
    if node.op_type in DIFFERENCES:
        return f"a difference of nearly equal values, {times}"
    return times
