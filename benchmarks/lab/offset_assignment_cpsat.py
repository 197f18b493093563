"""The best packing, and the cheapest spilling, by constraint programming (OR-tools CP-SAT): for judging the heuristics.

    items or values --rectangles, time by bytes, that must not overlap--> proven height, or proven bytes to move

One worker, a fixed seed and a limit in the solver's own deterministic time: the same answer on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.lab.spill_allocation import SpillMemory
from partitioner.memory.offset_assignment import Item, peak_bytes
from partitioner.memory.spill_policies import SpillValue

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Exact", "exact_height", "exact_spill"]


@dataclass(frozen=True, slots=True)
class Exact:
    """`best_bytes` is the best that was found, at most so much; nothing is below `bound_bytes`; equal where proven."""

    best_bytes: int
    bound_bytes: int

    @property
    def proven(self) -> bool:
        return self.best_bytes == self.bound_bytes


def exact_height(items: Sequence[Item], alignment_bytes: int, limit: float = 5.0) -> Exact:
    """The fewest bytes in which all items find places, for at most `limit` units of deterministic time."""
    from ortools.sat.python import cp_model  # a second to import, and only needed here

    model = cp_model.CpModel()
    units = [-(-item.size_bytes // alignment_bytes) for item in items]
    floor = peak_bytes(Item(i.name, i.first, i.last, u) for i, u in zip(items, units, strict=True))[0]
    height = model.new_int_var(floor, sum(units), "height")
    times, spans = [], []
    for item, size in zip(items, units, strict=True):
        start = model.new_int_var(0, sum(units) - size, f"offset {item.name}")
        model.add(start + size <= height)
        times.append(model.new_fixed_size_interval_var(item.first, item.last - item.first + 1, f"life {item.name}"))
        spans.append(model.new_fixed_size_interval_var(start, size, f"bytes {item.name}"))
    model.add_no_overlap_2d(times, spans)
    model.minimize(height)
    best, bound = _solve(model, limit, sum(units))
    return Exact(best * alignment_bytes, bound * alignment_bytes)


def exact_spill(values: Sequence[SpillValue], memory: SpillMemory, limit: float = 5.0) -> Exact:
    """The fewest bytes that must be written and read so that what is not spilled finds places in one memory."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    unit = memory.alignment_bytes
    capacity = memory.size_bytes // unit
    times, spans, moved = [], [], []
    for value in values:
        size, name = -(-value.size_bytes // unit), value.name
        stays = model.new_bool_var(f"{name} stays")
        if value.fixed or size > capacity:
            model.add(stays == int(value.fixed))
        start = model.new_int_var(0, max(0, capacity - size), f"offset {name}")
        first, length = value.slots[0], value.liveness
        times.append(model.new_optional_fixed_size_interval_var(first, length, stays, f"life {name}"))
        spans.append(model.new_optional_fixed_size_interval_var(start, size, stays, f"bytes {name}"))
        moved.append(value.moved_bytes - value.moved_bytes * stays)
    model.add_no_overlap_2d(times, spans)
    model.add_cumulative(times, [-(-value.size_bytes // unit) for value in values], capacity)
    model.minimize(sum(moved))
    return Exact(*_solve(model, limit, sum(value.moved_bytes for value in values)))


def _solve(model: cp_model.CpModel, limit: float, worst: int) -> tuple[int, int]:
    """The best objective that was found, `worst` without any, and the bound."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = limit
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return (round(solver.objective_value) if found else worst), round(solver.best_objective_bound)
