"""The exact method: a placement as a constraint model, solved by CP-SAT; proven on small graphs, a bound on large ones.

    Problem + known schedules --model--> CP-SAT --> devices, starts, copies --Placement--> simulate

One optional interval for each task and machine that may run it, one for each value, source and target; streams of a
machine are a cumulative resource, wires carry one value at a time, a value travels once to a machine. Devices that no
schedule as good as the best known one can use for a task are left out (`bounds.heads`, `bounds.tails`).

Where streams contend (`Problem.contended`), the model leaves the slowdown out: its bound holds, its schedule is
whatever the simulator makes of it, and nothing is called optimal unless the two meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from dsa_sched.placement.methods.registry import Outcome, Search, finished
from dsa_sched.placement.methods.sphinx import sphinx
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.schedule.bounds import heads, lower_bound_ns, tails
from dsa_sched.placement.schedule.schedule import Schedule, TaskPlacement
from dsa_sched.placement.schedule.simulate import simulate
from partitioner.ir.decisions import Decision

if TYPE_CHECKING:
    from ortools.sat.python import cp_model
    from ortools.sat.python.cp_model_helper import IntVar, Literal

EFFORT = 1.0
"""Deterministic time of the solver, by default: equal input gives equal output, whatever else the machine does. One
unit takes about half a minute on such models.
"""

FIRST = 1000
"""Largest number of evaluations of SPHINX before the solver."""


@dataclass(frozen=True)
class _Model:
    """Variables. `on[task][machine]`, `carried[value, source, target]`: whether; `sent[value, target]`: when."""

    model: cp_model.CpModel
    makespan: IntVar
    start: list[IntVar]
    end: list[IntVar]
    on: list[dict[int, IntVar]]
    sent: dict[tuple[int, int], IntVar]
    carried: dict[tuple[int, int, int], IntVar]


def exact(problem: Problem, search: Search) -> Outcome:
    """The best schedule by a constraint solver, with a proven bound. It starts from what SPHINX finds in a few
    evaluations, so it is never worse than that, HEFT, CPOP and PEFT.

    Options: `effort` (1), the solver's deterministic time. The `seconds` of the search, which count from the start, end
    it too, but then not reproducibly; setting up the model is not cut short.
    """
    began = monotonic()
    known = sphinx(problem, Search(search.seed, min(FIRST, search.evaluations or FIRST), search.seconds))
    simple = max(int(known.bound_ns), lower_bound_ns(problem))
    if known.makespan_ns <= simple:
        said = _said(problem, known.makespan_ns, simple, "without the solver")
        count = known.evaluations
        return finished("exact", problem, known.placement, bound_ns=simple, evaluations=count, decisions=(said,))
    limit = int(np.ceil(known.makespan_ns))
    built = _build(problem, limit, simple)
    _hint(built, problem, known.schedule)
    left = None if search.seconds is None else max(0.0, search.seconds - (monotonic() - began))
    solver, status = _solve(built, search, left)
    bound = max(simple, int(np.ceil(solver.best_objective_bound - 1e-6)))
    placements = [known.placement]
    if status in ("OPTIMAL", "FEASIBLE"):
        placements.insert(0, _placement(built, problem, solver))
    best = min(placements, key=lambda placement: simulate(problem, placement).makespan_ns)
    said = _said(problem, simulate(problem, best).makespan_ns, bound, f"the solver's status: {status.lower()}")
    count = known.evaluations + len(placements) - 1
    return finished("exact", problem, best, bound_ns=bound, evaluations=count, decisions=(said,))


def _said(problem: Problem, makespan_ns: float, bound_ns: float, status: str) -> Decision:
    verdict = "proven" if makespan_ns <= bound_ns else "not proven"
    without = " by a model in which streams do not slow each other down" if any(problem.contended) else ""
    reason = f"{makespan_ns:.0f} ns, these tasks at these prices take {bound_ns:.0f} ns or more{without} ({status})"
    return Decision("schedule", verdict, reason)


def _build(problem: Problem, limit: int, bound: int) -> _Model:
    """Schedules of at most `limit` ns."""
    from ortools.sat.python import cp_model  # a second to import, and only needed here

    work = problem.work_ns
    model = cp_model.CpModel()
    makespan = model.new_int_var(bound, limit, "makespan")
    head, tail = heads(problem), tails(problem)
    start, end, on = [], [], []
    streams: list[list[cp_model.IntervalVar]] = [[] for _ in problem.machines]
    for task, accepted in enumerate(problem.accepted):
        options = [m for m in accepted if head[task, m] + work[task, m] + tail[task, m] <= limit]
        first = int(head[task, options].min())
        last = limit - int(tail[task, options].min())
        start.append(model.new_int_var(first, last, ""))
        end.append(model.new_int_var(first, last, ""))
        on.append({machine: model.new_bool_var("") for machine in options})
        model.add_exactly_one(on[-1].values())
        model.add(makespan >= end[-1] + int(tail[task, options].min()))
        for machine, chosen in on[-1].items():
            length = int(work[task, machine])
            interval = model.new_optional_interval_var(start[-1], length, end[-1], chosen, "")
            streams[machine].append(interval)
            model.add(start[-1] >= int(head[task, machine])).only_enforce_if(chosen)
            model.add(makespan >= end[-1] + int(tail[task, machine])).only_enforce_if(chosen)
    for machine, intervals in enumerate(streams):
        width = problem.machines[machine].streams
        if width == 1:
            model.add_no_overlap(intervals)
        else:
            model.add_cumulative(intervals, [1] * len(intervals), width)
        load = [int(work[task, machine]) * own[machine] for task, own in enumerate(on) if machine in own]
        model.add(cp_model.LinearExpr.sum(load) <= width * makespan)
    built = _Model(model, makespan, start, end, on, {}, {})
    _add_copies(built, problem, limit)
    model.minimize(makespan)
    return built


def _add_copies(built: _Model, problem: Problem, limit: int) -> None:
    """Add that what a task reads is there: made there, or copied there once, in turn on the wire."""
    from ortools.sat.python import cp_model

    model, graph = built.model, problem.graph
    wires: dict[str, list[tuple[cp_model.IntervalVar, int, IntVar]]] = {}
    for value, (maker, readers) in enumerate(zip(graph.producers, graph.consumers, strict=True)):
        for reader in readers:
            model.add(built.start[reader] >= built.end[maker])
        for target in range(len(problem.machines)):
            here = [reader for reader in readers if target in built.on[reader]]
            sources = [source for source in built.on[maker] if source != target]
            if not here or not sources:
                continue
            sent = built.sent[value, target] = model.new_int_var(0, limit, "")
            for source in sources:
                length = int(problem.copy_ns[value, source, target])
                carried = built.carried[value, source, target] = model.new_bool_var("")
                interval = model.new_optional_fixed_size_interval_var(sent, length, carried, "")
                wires.setdefault(problem.route[source, target].wire, []).append((interval, length, carried))
                model.add_implication(carried, built.on[maker][source])
                model.add_bool_or([built.on[reader][target] for reader in here]).only_enforce_if(carried)
                model.add(sent >= built.end[maker]).only_enforce_if(carried)
                for reader in here:
                    ends: list[Literal] = [built.on[maker][source], built.on[reader][target]]
                    model.add_bool_or([carried, *(~literal for literal in ends)])
                    model.add(built.start[reader] >= sent + length).only_enforce_if(ends)
    for carries in wires.values():
        model.add_no_overlap([interval for interval, _, _ in carries])
        load = [length * carried for _, length, carried in carries]
        model.add(cp_model.LinearExpr.sum(load) <= built.makespan)


def _hint(built: _Model, problem: Problem, schedule: Schedule) -> None:
    """Begin the search at a known schedule."""
    graph = problem.graph
    number = {machine.name: place for place, machine in enumerate(problem.machines)}
    machine_of = [number[schedule.run_of[task.name].machine] for task in graph.tasks]
    model = built.model
    for task, own in enumerate(built.on):
        run = schedule.run_of[graph.tasks[task].name]
        model.add_hint(built.start[task], int(run.start_ns))
        model.add_hint(built.end[task], int(run.end_ns))
        for machine, chosen in own.items():
            model.add_hint(chosen, machine == machine_of[task])
    sent = {(graph.value_number[copy.value], number[copy.target]): int(copy.start_ns) for copy in schedule.copies}
    for way, variable in built.sent.items():
        model.add_hint(variable, sent.get(way, 0))
    for (value, source, target), carried in built.carried.items():
        model.add_hint(carried, (value, target) in sent and machine_of[graph.producers[value]] == source)
    model.add_hint(built.makespan, int(np.ceil(schedule.makespan_ns)))


def _solve(built: _Model, search: Search, seconds: float | None) -> tuple[cp_model.CpSolver, str]:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.interleave_search = True
    solver.parameters.random_seed = search.seed % 2**31
    solver.parameters.max_deterministic_time = search.option("effort", EFFORT)
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    return solver, solver.status_name(solver.solve(built.model))


def _placement(built: _Model, problem: Problem, solver: cp_model.CpSolver) -> TaskPlacement:
    """Devices as found; streams and orders by the starts found."""
    tasks = range(len(built.start))
    machine = tuple(next(m for m, chosen in own.items() if solver.boolean_value(chosen)) for own in built.on)
    times = [(solver.value(built.start[task]), solver.value(built.end[task]), task) for task in tasks]
    order = tuple(task for _, _, task in sorted(times))
    place = {task: number for number, task in enumerate(order)}
    free = [[0] * kind.streams for kind in problem.machines]
    stream = [0] * len(machine)
    for task in order:
        ends = free[machine[task]]
        stream[task] = _free_stream(ends, solver.value(built.start[task]))
        ends[stream[task]] = solver.value(built.end[task])
    sent = sorted(
        (solver.value(built.sent[value, target]), length, place[problem.graph.producers[value]], value, target)
        for (value, source, target), carried in built.carried.items()
        if solver.boolean_value(carried)
        for length in [int(problem.copy_ns[value, source, target])]
    )
    return TaskPlacement(machine, tuple(stream), order, None, tuple((value, target) for *_, value, target in sent))


def _free_stream(ends: list[int], begin: int) -> int:
    """Among the streams that are free by then, the one that was busy last. There is none only for a task without work
    among others; it gets the one that is free first.
    """
    free = [number for number, end in enumerate(ends) if end <= begin]
    return max(free, key=ends.__getitem__) if free else min(range(len(ends)), key=ends.__getitem__)
