"""The methods, by name: functions of one signature.

    Problem + Search --a method--> Outcome(placement, schedule, what the search took)

A new method is one function and one row of `METHODS`. `finished` makes its outcome, so that all are judged alike.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType

from dsa_sched.placement.methods.ios_limits import MOST_OPERATORS, MOST_TRANSITIONS
from dsa_sched.placement.model.problem import Problem, verify_problem
from dsa_sched.placement.schedule.schedule import Schedule, TaskPlacement, single_machine, verify_schedule
from dsa_sched.placement.schedule.simulate import simulate
from hw_models.errors import PlacementError
from partitioner.ir.decisions import Decision


@dataclass(frozen=True, slots=True)
class Option:
    """A setting that some methods know by a name: a number, or a whole one, from `least` to `most`."""

    methods: tuple[str, ...]
    least: float
    most: float
    whole: bool = False


_STAGES = ("ios", "ios-merge", "ios-both")

OPTIONS: Mapping[str, Option] = MappingProxyType({
    "enough_ns": Option(("sphinx",), 0, 1e18),
    "effort": Option(("exact",), 0, 1e6),
    "r": Option(_STAGES, 0, MOST_OPERATORS, whole=True),
    "s": Option(_STAGES, 0, MOST_OPERATORS, whole=True),
    "part": Option(_STAGES, 1, MOST_OPERATORS, whole=True),
    "transitions": Option(_STAGES, 1, MOST_TRANSITIONS, whole=True),
})  # fmt: skip
"""Options that `Search.options` may hold."""


@dataclass(frozen=True)
class Search:
    """Limits of a method's search, in time and evaluations. `options` are its own, by the names in its docstring.

    Whatever `evaluations` says, a method tries the schedules that it starts from, such as list schedules.

    Equal seeds give equal outcomes, as long as `seconds` does not end the search.
    """

    seed: int = 0
    evaluations: int | None = None
    seconds: float | None = None
    options: Mapping[str, float] = field(default_factory=dict)  # no mapping proxy: searches travel to other processes

    def option(self, name: str, default: float) -> float:
        """A setting of `OPTIONS`. Raises PlacementError where it is out of range."""
        value, about = self.options.get(name, default), OPTIONS[name]
        if not about.least <= value <= about.most or (about.whole and value != int(value)):
            kind = "a whole number" if about.whole else "a number"
            needs = f"{kind} from {about.least:g} to {about.most:g}"
            raise PlacementError(f"option {name}", needs=needs, has=f"{value:g}")
        return value


@dataclass
class Budget:
    """Largest number of evaluations of a search, and its longest time, which counts from here."""

    evaluations: int | None = None
    seconds: float | None = None
    started: float = field(default_factory=time.monotonic)

    def spent(self, evaluations: int) -> bool:
        if self.evaluations is not None and evaluations >= self.evaluations:
            return True
        return self.seconds is not None and time.monotonic() - self.started >= self.seconds


@dataclass(frozen=True)
class Outcome:
    """Result of a method. `problem` is the one that the placement is for: methods that merge operators make their own.

    `evaluations` counts placements whose makespan was computed; `history` has (evaluations, best makespan in ns) at
    every improvement. `bound_ns` is a time that no schedule can go below, where the method proves one.
    """

    method: str
    problem: Problem
    placement: TaskPlacement
    schedule: Schedule
    evaluations: int = 1
    bound_ns: float = 0.0
    history: tuple[tuple[int, float], ...] = ()
    decisions: tuple[Decision, ...] = ()

    @property
    def makespan_ns(self) -> float:
        return self.schedule.makespan_ns


Method = Callable[[Problem, Search], Outcome]

METHODS: Mapping[str, str] = MappingProxyType({
    "single": "dsa_sched.placement.methods.registry:single",
    "heft": "dsa_sched.placement.methods.list_scheduling:heft",
    "sphinx": "dsa_sched.placement.methods.sphinx:sphinx",
    "duet": "dsa_sched.placement.methods.duet:duet",
    "exact": "dsa_sched.placement.methods.exact:exact",
    "sequential": "dsa_sched.placement.ios.methods:sequential",
    "greedy": "dsa_sched.placement.ios.methods:greedy",
    "ios": "dsa_sched.placement.ios.methods:ios",
    "ios-merge": "dsa_sched.placement.ios.methods:ios_merge",
    "ios-both": "dsa_sched.placement.ios.methods:ios_both",
})  # fmt: skip
"""Name -> module and function, which is imported when asked for."""


def verify_options(names: Sequence[str], options: Mapping[str, float]) -> None:
    """Options that at least one of the methods knows. Raises PlacementError."""
    known = [option for option, about in OPTIONS.items() if set(about.methods) & set(names)]
    for option in options:
        if option not in known:
            close = difflib.get_close_matches(option, known, n=1)
            allowed = f"one of {', '.join(known)}" if known else f"none: {', '.join(names)} takes no options"
            raise PlacementError(f"option {option}", needs=allowed, change=f"did you mean {close[0]}?" if close else "")


def find_method(name: str) -> Method:
    """The method of that name, which refuses unsound problems first. Raises PlacementError for an unknown name."""
    module, function = _place_of(name)
    found: Method = getattr(import_module(module), function)

    def checked(problem: Problem, search: Search) -> Outcome:
        verify_problem(problem)
        return found(problem, search)

    return checked


def described(name: str) -> str:
    """Description of a method: the first sentence of its docstring. Raises PlacementError for an unknown name."""
    module, function = _place_of(name)
    text = " ".join((getattr(import_module(module), function).__doc__ or "").split())
    return text.split(". ")[0].rstrip(".")


def _place_of(name: str) -> list[str]:
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        change = f"did you mean {close[0]}?" if close else ""
        raise PlacementError(f"method {name}", needs=f"one of {', '.join(METHODS)}", change=change)
    return METHODS[name].split(":")


def finished(method: str, problem: Problem, placement: TaskPlacement, **known: object) -> Outcome:
    """The outcome of a method: its placement simulated and verified. `known` are further fields of `Outcome`."""
    schedule = simulate(problem, placement)
    verify_schedule(schedule, problem)
    return Outcome(method, problem, placement, schedule, **known)  # type: ignore[arg-type]  # fields by name


def single(problem: Problem, search: Search) -> Outcome:  # noqa: ARG001 - one signature for all methods
    """Everything on the one device that takes the least time. Raises PlacementError where none accepts every task."""
    placements = [single_machine(problem, machine) for machine in range(len(problem.machines))]
    found = [finished("single", problem, placement) for placement in placements if placement is not None]
    if not found:
        raise PlacementError("single", needs="a device that accepts every task", change="choose another method")
    return min(found, key=lambda outcome: outcome.makespan_ns)
