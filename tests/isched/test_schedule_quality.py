"""The scheduler against the exact optimum, on random programs: valid, never below it, and near it on average."""

from __future__ import annotations

import pytest

from benchmarks.lab.exact_schedule.cpsat import exact_schedule
from benchmarks.lab.programs import schedule_program
from isched.bounds.lower_bounds import program_bounds
from isched.hazards.verify_program import verify_program
from isched.timing.cycle_model import time_program
from tests.random_programs import FIXED_COSTS, duo, random_program

DUO = duo()
PROGRAMS = 60


@pytest.fixture(scope="module")
def gaps() -> list[float]:
    """Scheduled cycles over the least possible ones, a program each."""
    found = []
    for seed in range(PROGRAMS):
        program = random_program(seed, DUO)
        scheduled = schedule_program(program, DUO, FIXED_COSTS)
        verify_program(scheduled, DUO)
        cycles = time_program(scheduled, DUO, FIXED_COSTS).cycles
        best = exact_schedule(program, DUO, FIXED_COSTS)
        assert best.proven
        assert cycles >= program_bounds(program, DUO, FIXED_COSTS).cycles - 1e-3
        found.append(cycles / best.cycles)
    return found


@pytest.mark.commit
def test_no_schedule_is_better_than_the_best(gaps: list[float]) -> None:
    assert min(gaps) >= 1.0


def test_schedules_are_within_five_percent_of_the_best_on_average(gaps: list[float]) -> None:
    assert sum(gaps) / len(gaps) <= 1.05
