"""Judgement of the compiled program's outputs for inputs of extreme sizes, or why they cannot be judged.

    inputs times 2^7; in the reference:
    products, convolutions and outputs in fp16's range  --run-->  outputs judged: held, failed
    a convolution's result beyond it                    ------->  not judged, and why

Only the program itself runs, once per kind of inputs. Layers, samples and constants are judged by ordinary inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsa_sched.stages.compilation import Compilation
from dsa_sched.verification.evidence import (
    Dump,
    Feed,
    comparable,
    file_array,
    file_name,
    logits_names,
    of_file,
    stored_values,
)
from dsa_sched.verification.extreme_inputs import Extreme
from dsa_sched.verification.masked_values import held_in_range
from dsa_sched.verification.onnx_reference import OnnxReference, RefusedInput
from dsa_sched.verification.tolerances import LAYER_BOUND, LogitsResult, judge_logits
from dsa_sched.verification.value_ranges import Lost, TypeLimits, beyond_at_products, limits_of, lost_values
from dsa_sched.verification.verdict import ExtremeResult

LARGEST_RUN_CYCLES = 500_000
"""Cycles, by the cycle model, of the largest program that is run for every kind of inputs. A larger one is run only
where the reference shows that something may be lost: its simulation takes minutes.
"""

LARGEST_RUN_MACS = 1 << 27
"""Multiply-adds of the largest such program, where the target has no cycle model."""

SHARE_BOUND = 0.25
"""Largest allowed ratio of an output's error to the distance between the reference's outputs for two such inputs. Small
inputs next to biases of ordinary size change outputs by little more than rounding does, so more is allowed here than
for ordinary inputs. A value that leaves the range is off by all of the distance.
"""

REACTS_TO_ZEROS = frozenset(["Div", "Log", "Pow", "Reciprocal"])

LAST_BITS = 1e-6
"""Share by which two ways to add up the same error may differ."""


@dataclass(frozen=True, slots=True)
class PlannedExtreme:
    """Inputs of one kind, with the reference's values for them (`exact`) and for another input of the kind (`other`).
    Where `reason` says why they are not run, values may be missing.
    """

    extreme: Extreme
    exact: Feed
    other: Feed
    lost: tuple[Lost, ...]
    reason: str = ""


def planned_extremes(
    whole: Compilation, reference: OnnxReference, extremes: Sequence[Extreme], dtype: str, cycles: float | None
) -> tuple[PlannedExtreme, ...]:
    """The reference's judgement of each kind of inputs before anything is run. `cycles` are those of the program."""
    macs = sum(op.macs for op in whole.model.graph.ops)
    large = macs > LARGEST_RUN_MACS if cycles is None else cycles > LARGEST_RUN_CYCLES
    return tuple(_planned(whole, reference, extreme, limits_of(dtype), large) for extreme in extremes)


def _planned(
    whole: Compilation, reference: OnnxReference, extreme: Extreme, limits: TypeLimits, large: bool
) -> PlannedExtreme:
    source = whole.model.source
    if large and extreme.zeros and not _reacts_to_zeros(whole):
        return PlannedExtreme(extreme, {}, {}, (), "not run, as a large network that divides by nothing it computes")
    try:
        exact = reference.values(extreme.feed)
    except RefusedInput as error:
        return PlannedExtreme(extreme, {}, {}, (), f"onnxruntime refuses them: {error.has}")
    lost = lost_values(source, (exact,), limits)
    ends = frozenset(item.name for item in source.graph.output)
    reason = beyond_at_products(source, lost, limits, ends)
    if not reason and large and not extreme.zeros and not any(each.beyond or each.all_tiny for each in lost):
        reason = f"not run, as a large network: by the reference no value leaves the range of {limits.name}"
    try:
        other = {} if reason else reference.values(extreme.other)
    except RefusedInput:
        other = exact
    return PlannedExtreme(extreme, exact, other, lost, reason)


def _reacts_to_zeros(whole: Compilation) -> bool:
    """Whether the file divides by computed values or takes their logarithms."""
    nodes = whole.model.source.graph.node
    constants = {tensor.name for tensor in whole.model.source.graph.initializer}
    constants.update(name for node in nodes if node.op_type == "Constant" for name in node.output)
    return any(node.op_type in REACTS_TO_ZEROS and node.input[-1] not in constants for node in nodes)


def not_judged(planned: PlannedExtreme) -> ExtremeResult:
    """Result for inputs that were not run."""
    return ExtremeResult(planned.extreme.label, "not judged", planned.reason)


def end_names(whole: Compilation, exact: Feed) -> tuple[str, ...]:
    """Names of the values that the program stores and by which its outputs are judged."""
    stored = frozenset(stored_values(whole))
    before = [name for name in logits_names(whole.model, exact) if name in stored]
    rest = [name for name in whole.model.graph.outputs if name in stored and comparable(whole.model, name, exact)]
    return tuple(dict.fromkeys(before)) or tuple(dict.fromkeys(rest))


def judge_extreme(
    whole: Compilation, planned: PlannedExtreme, dump: Dump, floors: tuple[Feed, ...], names: Sequence[str], dtype: str
) -> ExtremeResult:
    """Judge the outputs `names` as stored in `dump`, each by its finite values in the reference. `floors` are the
    reference's values with rounding errors apart, together up and together down (`dsa_sched/verification/floors.py`).
    """
    label, limits = planned.extreme.label, limits_of(dtype)
    results = [_judge(whole, planned, name, dump, floors, limits) for name in names]
    failed = [line for outcome, line in results if outcome == "failed"]
    if failed:
        return ExtremeResult(label, "failed", failed[0])
    held = [line for outcome, line in results if outcome == "held"]
    if held:
        return ExtremeResult(label, "held", held[0])
    return ExtremeResult(label, "not judged", results[0][1] if results else "no output that the reference has")


def _judge(
    whole: Compilation, planned: PlannedExtreme, name: str, dump: Dump, floors: tuple[Feed, ...], limits: TypeLimits
) -> tuple[str, str]:
    model, theirs = whole.model, file_name(whole.model, name)
    ours = file_array(whole, name, dump)
    exact, other = (of_file(model, name, values[theirs]) for values in (planned.exact, planned.other))
    moved = tuple(of_file(model, name, values[theirs]) if theirs in values else exact for values in floors)
    known = np.isfinite(exact) & (np.abs(exact) <= limits.largest)
    if not known.any():
        return "not judged", f"{name}: the reference has no finite value in the range of {limits.name}"
    gone = known & ~np.isfinite(ours)
    if gone.any():
        largest = float(np.abs(np.where(known, exact, 0)).max())
        return "failed", (
            f"{name}: {int(gone.sum())} of {gone.size} elements are NaN or infinite, where the reference has "
            f"at most {largest:.3g}{_excursion(planned.lost, limits)}"
        )
    arrays = [np.where(known, held_in_range(array, limits.dtype), 0) for array in (ours, exact, other, *moved)]
    mine, reference, neighbour, apart, *signs = (np.nan_to_num(array) for array in arrays)
    together = max(signs, key=lambda array: float(np.linalg.norm(np.subtract(array, reference, dtype=np.float64))))
    (result,) = judge_logits(name, (mine,), (reference,), ((apart, together),), (neighbour,))
    if not result.distance:
        return _of_equal_outputs(name, result)
    if not result.statement:
        return "not judged", (
            f"{name}: rounding alone may make {result.floor:.3g} of the distance {result.distance:.3g} between inputs"
        )
    share = f"error {result.error:.3g} is {result.share:.3g} of the distance {result.distance:.3g} between inputs"
    allowed = max(result.bound, SHARE_BOUND * result.distance, LAYER_BOUND * result.norm)
    if result.error > allowed:
        at_most = f", at most {allowed / result.distance:.3g} is allowed"
        return "failed", f"{name}: {share}{at_most}{_excursion(planned.lost, limits)}"
    return "held", f"{name}: {share}"


def _of_equal_outputs(name: str, result: LogitsResult) -> tuple[str, str]:
    """Outcome and text for an output that is equal for both inputs of the kind in the reference."""
    allowed = max(LAYER_BOUND * result.norm, (1 + LAST_BITS) * result.floor)
    line = f"{name}: error {result.error:.3g} of the norm {result.norm:.3g}, where such inputs change nothing"
    return ("held", line) if result.error <= allowed else ("failed", f"{line}, at most {allowed:.3g} is allowed")


def _excursion(lost: Sequence[Lost], limits: TypeLimits) -> str:
    """Text about the value between inputs and outputs that leaves the range farthest; empty if none does."""
    far = max((each for each in lost if each.beyond), key=lambda each: each.largest, default=None)
    if far is not None:
        return f"; {far.operator} {far.value} reaches {far.largest:.3g} in between, beyond {limits.name}"
    low = min((each for each in lost if each.all_tiny), key=lambda each: each.of_tiny, default=None)
    if low is None:
        return ""
    return f"; {low.operator} {low.value} is at most {low.of_tiny:.3g} in between, below the normal {limits.name}"
