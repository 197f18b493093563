"""Operators that a chip computes, one ONNX operator at a time: each way to write it is tried on frontend and target.

    chip + target --each probe through load_model and `accepts`--> Support("Gelu", computed, refused with reasons)

Nothing is listed by hand a second time: the answers here are those of `compile` for the same node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dsa_sched.frontend import load_model
from dsa_sched.frontend.graph.probes import Probe, probes_of
from dsa_sched.frontend.network.network import OURS
from dsa_sched.frontend.network.refusals import Judge, Unsupported
from dsa_sched.frontend.rules.operators import SHAPE_ONLY, SIMPLIFIED_AWAY, operator_names
from dsa_sched.stages.targets import judge_of
from hw_models.chip import Chip
from hw_models.errors import UserError
from partitioner.ir.target import AcceptingTarget

GENERAL = (
    "of all operators: values have static shapes, at least one element, and are floating-point numbers but for "
    "constants and indices; what depends on constants alone may be any operator of standard ONNX"
)


@dataclass(frozen=True, slots=True)
class Support:
    """An ONNX operator: the ways of writing it that are computed, and those that are refused, with the reason."""

    op_type: str
    computed: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """(operator, `yes`, how it may be written), then (operator, `no`, how it may not: why), a row per reason."""
        by_reason: dict[str, list[str]] = {}
        for says, reason in self.refused:
            by_reason.setdefault(reason, []).append(says)
        lacks = [": ".join(filter(None, (", ".join(filter(None, s)), reason))) for reason, s in by_reason.items()]
        if not (self.computed or lacks):
            return ((self.op_type, "?", "not tried: ONNX does not say what it reads"),)
        yes = ((self.op_type, "yes", ", ".join(filter(None, self.computed))),) if self.computed else ()
        return (*yes, *((self.op_type, "no", text) for text in lacks))


def read_operators() -> tuple[str, ...]:
    """ONNX operators that a model may hold, here and in other packages."""
    # Operators of our own, which rewrites make, are no user's.
    return tuple(sorted({*operator_names(), *SIMPLIFIED_AWAY, *SHAPE_ONLY, "Constant", "ConstantOfShape"} - {*OURS}))


def operator_support(chip: Chip, target: AcceptingTarget) -> Iterator[Support]:
    """Every operator that the frontend reads, in alphabetical order."""
    judge = judge_of(chip, target)
    for op_type in read_operators():
        computed, refused = [], []
        for probe in probes_of(op_type):
            if (reason := _refusal(probe, judge)) is None:
                computed.append(probe.says)
            else:
                refused.append((probe.says, reason))
        yield Support(op_type, tuple(computed), tuple(refused))


def _refusal(probe: Probe, judge: Judge) -> str | None:
    """The refusal of `compile` for the probe, without its name; None where it is compiled."""
    try:
        load_model(probe.model(), judge=judge)
    except Unsupported as error:
        return "; ".join(node.reason for node in error.refused)
    except UserError as error:
        return f"needs {error.needs}; has {error.has}" if error.needs else str(error)
    return None
