"""What all methods have in common: their options, to the ends of their ranges, and the problems that they refuse."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from dsa_sched.placement.methods.registry import OPTIONS, Search, find_method
from dsa_sched.placement.model.problem import MOST_STREAMS, Merged, Problem
from dsa_sched.placement.schedule.schedule import verify_schedule
from hw_models.errors import PlacementError
from tests.placement_problems import random_problem

ENDS = [
    (method, name, value)
    for name, option in OPTIONS.items()
    for method, value in product(option.methods, (option.least, option.most))
]


class NothingMerges:
    def merged(self, tasks: tuple[int, ...]) -> Merged | None:  # noqa: ARG002 - one protocol
        return None


@pytest.mark.parametrize(("method", "name", "value"), ENDS)
def test_options_hold_to_the_ends_of_their_ranges(method: str, name: str, value: float) -> None:
    problem = replace(random_problem(1, 8, 3), merging=NothingMerges())
    seconds = 1.0 if name == "effort" else None
    search = Search(evaluations=50, seconds=seconds, options={name: value})
    outcome = find_method(method)(problem, search)
    verify_schedule(outcome.schedule, outcome.problem)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"streams": MOST_STREAMS + 1}, f"1 to {MOST_STREAMS} streams"),
        ({"streams": 0}, f"1 to {MOST_STREAMS} streams"),
        ({"name": "m0"}, "unique names"),
    ],
)
def test_machines_without_sense_are_refused(change: dict[str, object], said: str) -> None:
    problem = random_problem(2)
    machines = problem.machines[0], replace(problem.machines[1], **change)  # type: ignore[arg-type]  # by name
    with pytest.raises(PlacementError, match=said):
        find_method("single")(Problem(problem.graph, replace(problem.costs, machines=machines)), Search())


@pytest.mark.parametrize("scale", [10**14, 10**400], ids=["large", "huge"])
def test_times_that_no_method_could_add_up_are_refused(scale: int) -> None:
    """Whole numbers of nanoseconds are exact as floating-point numbers up to 104 days."""
    problem = random_problem(3)
    work = tuple(tuple(time * scale if time > 0 else time for time in row) for row in problem.costs.work_ns)
    with pytest.raises(PlacementError, match="at most 104 days"):
        find_method("heft")(Problem(problem.graph, replace(problem.costs, work_ns=work)), Search())


def test_copies_that_take_for_ever_are_refused() -> None:
    problem = random_problem(3)
    routes = tuple(replace(route, latency_ns=2**52) for route in problem.costs.routes)
    with pytest.raises(PlacementError, match="at most 104 days"):
        find_method("heft")(Problem(problem.graph, replace(problem.costs, routes=routes)), Search())
