"""The fastest order of a small program by constraint programming (OR-tools CP-SAT): what a scheduler is judged by.

    Program --orders of each stream, times as the cycle model has them--> Exact: the best order, proven or not

Decided is the order of every core's stream, and which barriers stay. The rules are those of
`isched.timing.cycle_model`: one scalar core a stream that issues in order, waits for conflicting accesses in flight and
for places in full queues, polls for the end of transfers at its period; queues in order; rendezvous; DMA
channels that do one chain after the other.

It is the cycle model itself where no two transfers ask for more bandwidth together than there is. Elsewhere the solver
lets every transfer run at its full rate, so `cycles` is a lower bound of what the model can reach. Times are whole
cycles: fractions are cut off. Where the target's issue costs depend on the order, each instruction takes what it takes
right behind itself, when registers hold all that it needs.

Valid is what `verify_program` accepts and what keeps accesses to common bytes in their order
(benchmarks.lab.exact_schedule.order_constraints). What meets keeps its partners.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.lab.exact_schedule.order_constraints import add_orders
from benchmarks.lab.exact_schedule.timing_constraints import add_times
from benchmarks.lab.exact_schedule.variables import Op, Setting
from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.program.program import Program, Stream
from isched.program.target import Timeable
from isched.program.timed_ops import CoreIssue, timed_streams

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["MOST_INSTRUCTIONS", "Exact", "exact_schedule", "reordered"]

MOST_INSTRUCTIONS = 24
"""More than that take the solver too long."""


@dataclass(frozen=True, slots=True)
class Exact:
    """`orders`: for each stream positions of the given one, dropped barriers left out. `cycles` is what they take by
    the rules above, launch included; `bound` what no order can beat; `proven` where the two are equal."""

    orders: tuple[tuple[int, ...], ...]
    cycles: float
    bound: float

    @property
    def proven(self) -> bool:
        return self.cycles <= self.bound


def exact_schedule(program: Program, chip: Chip, target: Timeable, seconds: float = 10.0) -> Exact:
    """The best order found in `seconds` of the solver's own deterministic time, about as long in fact.

    Raises PlanError for programs of more than MOST_INSTRUCTIONS instructions, and where no order was found in time.
    """
    count = sum(len(stream.instrs) for stream in program.streams)
    if count > MOST_INSTRUCTIONS:
        raise PlanError(f"program {program.name}", needs=f"at most {MOST_INSTRUCTIONS} instructions", has=str(count))
    from ortools.sat.python import cp_model  # a second to import, and only needed here

    costs = _least_costs(program, chip, target)
    # What comes before a core's first instruction is paid apart: it belongs to whatever stands there.
    bare = tuple(replace(cost, start=0) for cost in costs)
    setting = Setting(timed_streams(program, chip, bare), costs, chip, cp_model.CpModel())
    add_orders(setting)
    setting.model.minimize(add_times(setting, costs))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = seconds
    if solver.solve(setting.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise PlanError(f"program {program.name}", needs=f"an order within {seconds} s", has="none")
    launch = chip.assumed.launch_cycles
    orders = tuple(tuple(_order(core, setting, solver)) for core in setting.cores)
    return Exact(orders, launch + solver.objective_value, launch + solver.best_objective_bound)


def _order(core: list[Op], setting: Setting, solver: cp_model.CpSolver) -> Iterator[int]:
    """Positions in the order found, without barriers that do not stay."""
    for op in sorted(core, key=lambda op: solver.value(op.position)):
        if not op.barrier or solver.value(setting.stays[op.op.rendezvous]):
            yield op.index


def reordered(program: Program, orders: tuple[tuple[int, ...], ...]) -> Program:
    """The program with the instructions of each stream in the order given; positions that are missing are left out."""
    streams = (
        Stream(stream.core, tuple(stream.instrs[n] for n in order))
        for stream, order in zip(program.streams, orders, strict=True)
    )
    return replace(program, streams=tuple(streams))


def _least_costs(program: Program, chip: Chip, target: Timeable) -> tuple[CoreIssue, ...]:
    """What issuing each instruction takes right behind itself."""
    doubled = (
        Stream(stream.core, tuple(instr for instr in stream.instrs for _ in range(2))) for stream in program.streams
    )
    costs = target.issue_costs(replace(program, streams=tuple(doubled)), chip)
    return tuple(CoreIssue(cost.start, cost.issues[1::2], cost.end) for cost in costs)
