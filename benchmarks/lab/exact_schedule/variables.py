"""Instructions and their variables, for the exact scheduler: one model of constraint programming for a small program.

TimedStream of each core --setting_of--> Setting: ops, the order of each core's, time variables not yet bound
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import ceil
from typing import TYPE_CHECKING

from hw_models.chip import Chip
from isched.program.timed_ops import CoreIssue, TimedOp, TimedStream
from isched.timing.contention import Contention, Mover
from isched.timing.engines import TOLERANCE, touched_by

if TYPE_CHECKING:
    from ortools.sat.python import cp_model
    from ortools.sat.python.cp_model_helper import IntVar, Literal

__all__ = ["Op", "Setting"]


class Op:
    """One instruction and its variables. The scalar core comes to it at `begin`; it waits for issue from `ready` to
    `issued`; the scalar core goes on at `left`; its engine works from `start` to `end`. `before[n]`: op n comes later.
    `epoch` counts barriers before it in the given order, `wait` is what awaits the transfer that it starts."""

    position: IntVar
    begin: IntVar
    ready: IntVar
    issued: IntVar
    left: IntVar
    start: IntVar
    end: IntVar

    def __init__(self, number: int, core: int, index: int, op: TimedOp, epoch: int, cycles: int) -> None:
        self.number, self.core, self.index, self.op, self.epoch = number, core, index, op, epoch
        self.cycles = cycles
        self.touched = touched_by(op)
        self.before: dict[int, Literal] = {}
        self.wait: Op | None = None

    @property
    def barrier(self) -> bool:
        return bool(self.op.rendezvous) and not self.op.unit

    @property
    def engine(self) -> bool:
        """Done by an engine of the core, not by a DMA channel or the scalar core itself."""
        return bool(self.op.unit) and not self.op.starts


class Setting:
    """The model, with the variables of all ops. `stays` says of each barrier whether it is kept."""

    def __init__(
        self, streams: tuple[TimedStream, ...], costs: tuple[CoreIssue, ...], chip: Chip, model: cp_model.CpModel
    ) -> None:
        self.model, self.chip = model, chip
        self.cores = [list(_ops(streams, core, chip)) for core in range(len(streams))]
        self.ops = [op for core in self.cores for op in core]
        self.horizon = self._horizon(costs)
        tokens = sorted({op.op.rendezvous for op in self.ops if op.barrier})
        self.stays = {token: model.new_bool_var(f"stays {token}") for token in tokens}
        for op in self.ops:
            self._declare(op)
        for core in self.cores:
            model.add_all_different([op.position for op in core])
            for a, b in combinations(core, 2):
                first = model.new_bool_var(f"{a.number} before {b.number}")
                model.add(a.position < b.position).only_enforce_if(first)
                model.add(a.position > b.position).only_enforce_if(~first)
                a.before[b.number], b.before[a.number] = first, ~first

    def scalar(self, count: int) -> int:
        """Whole cycles of so many scalar instructions."""
        return int(count * self.chip.assumed.scalar_instruction_cycles)

    def time(self, name: str = "") -> IntVar:
        return self.model.new_int_var(0, self.horizon, name)

    def both(self, *conditions: Literal) -> Literal:
        """Whether all of some conditions hold."""
        all_hold = self.model.new_bool_var("")
        self.model.add_bool_and(*conditions).only_enforce_if(all_hold)
        self.model.add_bool_or(*(~condition for condition in conditions), all_hold)
        return all_hold

    def value_if(self, condition: Literal, value: IntVar) -> IntVar:
        """`value` where the condition holds, else 0."""
        chosen = self.time()
        self.model.add(chosen == value).only_enforce_if(condition)
        self.model.add(chosen == 0).only_enforce_if(~condition)
        return chosen

    def _declare(self, op: Op) -> None:
        name = f"{op.core}.{op.index}"
        op.position = self.model.new_int_var(0, len(self.cores[op.core]) - 1, f"position {name}")
        op.begin, op.ready, op.issued, op.left, op.start, op.end = (
            self.time(f"{what} {name}") for what in ("begin", "ready", "issued", "left", "start", "end")
        )

    def _horizon(self, costs: tuple[CoreIssue, ...]) -> int:
        """By then the last order is done too, if everything waits for everything."""
        issues = (op.op.issue for op in self.ops)
        scalar = sum(self.scalar(issue.before + issue.after + issue.period) for issue in issues)
        scalar += sum(self.scalar(cost.start + cost.end) for cost in costs)
        sync = int(self.chip.assumed.sync_cycles)
        return 1 + scalar + sum(op.cycles + sync for op in self.ops)


def _ops(streams: tuple[TimedStream, ...], core: int, chip: Chip) -> Iterator[Op]:
    """The ops of one core; each takes as long as when nothing else moves."""
    contention, epoch = Contention(chip), 0
    first = sum(len(stream.ops) for stream in streams[:core])
    for index, timed in enumerate(streams[core].ops):
        cores = () if timed.starts else (core,)
        moved = sum(flow.size_bytes / contention.shares((Mover(flow.link, cores),))[0] for flow in timed.flows)
        op = Op(first + index, core, index, timed, epoch, int(timed.cycles + ceil(moved - TOLERANCE)))
        epoch += op.barrier
        yield op
