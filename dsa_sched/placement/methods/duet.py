"""DUET: coarse sub-graphs, priced as their compilers see them, placed greedily and corrected end to end.

    Problem --phases--> sub-graphs --price--> coarse Problem --greedy, moves, swaps--> Placement

Source: "DUET", IPDPS 2021, doi 10.1109/IPDPS49936.2021.00024. Its abstract names coarse-grained partitioning with low
communication, compiler-aware profiling and greedy-correction scheduling; a published figure shows a swap of two
sub-graphs. All details below are this project's reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

from dsa_sched.placement.methods.coarsening import coarse, expanded
from dsa_sched.placement.methods.registry import Budget, Outcome, Search, finished
from dsa_sched.placement.model.problem import NOT_ACCEPTED, Groups, PriceGroups, Problem
from dsa_sched.placement.model.task_graph import TaskGraph, group_order, reached
from dsa_sched.placement.schedule.schedule import TaskPlacement, single_machine
from dsa_sched.placement.schedule.simulate import simulate
from partitioner.ir.decisions import Decision

MOST_EVALUATIONS = 5000
"""Default number of evaluations of a search."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Part of a network between two tasks that everything passes through: one path, or several independent ones.

    A path is the numbers of its tasks, in order.
    """

    paths: Groups


def phases(graph: TaskGraph) -> tuple[Phase, ...]:
    """Sequential and multi-path phases in order, without the two ends.

    A task that is before or after every other one is on all paths. Runs of such tasks are sequential phases.
    The tasks between two of them fall into parts that are not connected there: the paths of a multi-path phase. Where
    everything there is connected, its paths are the runs of tasks that neither fork nor join.
    """
    work = [number for number, task in enumerate(graph.tasks) if not task.is_end]
    before, after = reached(work, graph.predecessors), reached(reversed(work), graph.successors)
    found: list[list[tuple[int, ...]]] = []
    run: list[int] = []
    between: list[int] = []
    for number in work:
        if before[number].bit_count() + after[number].bit_count() == len(work) + 1:
            if between:
                found.append(_paths(between, graph))
                run, between = [], []
            if run:
                found.pop()
            run.append(number)
            found.append([tuple(run)])
        else:
            between.append(number)
            run = []
    if between:
        found.append(_paths(between, graph))
    return tuple(Phase(tuple(paths)) for paths in found)


def _paths(tasks: Sequence[int], graph: TaskGraph) -> list[tuple[int, ...]]:
    """Independent parts among tasks that nothing separates."""
    found = _components(tasks, graph)
    return found if len(found) > 1 else _runs(tasks, graph)


def _runs(tasks: Sequence[int], graph: TaskGraph) -> list[tuple[int, ...]]:
    """Tasks in runs, in which each is the only reader of the previous one and reads nothing else of them."""
    inside = set(tasks)
    runs: dict[int, list[int]] = {}
    for task in tasks:
        before = [other for other in graph.predecessors[task] if other in inside]
        alone = len(before) == 1 and [other for other in graph.successors[before[0]] if other in inside] == [task]
        run = runs[before[0]] if alone else []
        run.append(task)
        runs[task] = run
    return [tuple(run) for run in {run[0]: run for run in runs.values()}.values()]


def _components(tasks: Sequence[int], graph: TaskGraph) -> list[tuple[int, ...]]:
    """Connected components of the tasks, in the order of their first task."""
    inside, seen = set(tasks), set[int]()
    found = []
    for start in tasks:
        if start in seen:
            continue
        seen.add(start)
        part, todo = [start], [start]
        while todo:
            number = todo.pop()
            for other in (*graph.predecessors[number], *graph.successors[number]):
                if other in inside and other not in seen:
                    seen.add(other)
                    part.append(other)
                    todo.append(other)
        found.append(tuple(sorted(part)))
    return found


def accepted_pieces(problem: Problem, path: Sequence[int]) -> list[tuple[int, ...]]:
    """Tasks in topological order in pieces whose tasks the same machines accept."""
    return [tuple(piece) for _, piece in groupby(path, key=problem.accepted.__getitem__)]


def duet(problem: Problem, search: Search) -> Outcome:
    """Sub-graphs by phases, placed greedily and corrected by moves and swaps.

    Where the problem prices groups (`Problem.price_groups`), sub-graphs cost what their compilers make of them, and the
    outcome is for sub-graphs. Otherwise a sub-graph takes what its tasks take together, and the outcome is for the
    problem given, so that its schedule may be better than that of the sub-graphs: values leave when their tasks are
    over. Source: see the module; phases, the order of the greedy placement and of corrections are this project's
    reading of an abstract.
    """
    if problem.price_groups is not None:
        found = _Duet(problem, problem.price_groups, search).run()
        return _told(finished("duet", found.problem, found.placement), found)
    found = _Duet(problem, lambda groups: coarse(problem, groups).problem, search).run()
    placement = expanded(coarse(problem, found.groups), found.placement)
    alone = [single_machine(problem, machine) for machine in range(len(problem.machines))]
    outcomes = [finished("duet", problem, chosen) for chosen in (placement, *alone) if chosen is not None]
    return _told(min(outcomes, key=lambda outcome: outcome.makespan_ns), found)


def _told(outcome: Outcome, found: _Found) -> Outcome:
    """The outcome with a history that ends at it, because sub-graphs are slower than their tasks by themselves."""
    longer = [(count, best) for count, best in found.history if best > outcome.makespan_ns]
    history = (*longer, (found.evaluations, outcome.makespan_ns))
    return replace(outcome, evaluations=found.evaluations, history=history, decisions=tuple(found.decisions))


@dataclass
class _Found:
    """The best so far. `groups` are the members of the tasks of `problem`, in their order."""

    problem: Problem
    groups: Groups
    placement: TaskPlacement
    evaluations: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @cached_property
    def makespan_ns(self) -> float:
        return simulate(self.problem, self.placement).makespan_ns


class _Duet:
    """One search; each evaluation simulates a whole placement."""

    def __init__(self, problem: Problem, price: PriceGroups, search: Search) -> None:
        self.given, self.price = problem, price
        self.budget = Budget(MOST_EVALUATIONS if search.evaluations is None else search.evaluations, search.seconds)
        self.evaluations = 0
        self.history: list[tuple[int, float]] = []
        self.decisions: list[Decision] = []

    def run(self) -> _Found:
        graph = self.given.graph
        ends = [(number,) for number, task in enumerate(graph.tasks) if task.is_end]
        parts = [
            [part for path in phase.paths for part in accepted_pieces(self.given, path)] for phase in phases(graph)
        ]
        priced, groups = self._priced((*ends, *(part for phase in parts for part in phase)))
        phase_of = self._phase_numbers(priced, groups, parts)
        placement = self._greedy(priced, phase_of)
        placement = self._corrected(priced, placement, phase_of)
        return _Found(priced, groups, placement, self.evaluations, self.history, self.decisions)

    def _priced(self, groups: Groups) -> tuple[Problem, Groups]:
        order = group_order(self.given.graph, groups)
        return self.price(groups), tuple(groups[group] for group in order)

    def _phase_numbers(self, priced: Problem, groups: Groups, parts: list[list[tuple[int, ...]]]) -> list[int]:
        """Phase of each sub-graph; -1 for the ends."""
        number = {part: phase for phase, own in enumerate(parts) for part in own}
        for group, task in zip(groups, priced.graph.tasks, strict=True):
            if group in number:
                times = ", ".join(
                    f"{machine.name} {_ms(ns)}"
                    for machine, ns in zip(priced.machines, priced.work_ns[priced.graph.number[task.name]], strict=True)
                )
                paths = len(parts[number[group]])
                verdict = "sequential" if paths == 1 else f"one of {paths} paths"
                reason = f"phase {number[group] + 1} of {len(parts)}, {len(group)} tasks; {times}"
                self.decisions.append(Decision(task.name, verdict, reason))
        return [number.get(group, -1) for group in groups]

    def _greedy(self, priced: Problem, phase_of: list[int]) -> TaskPlacement:
        """Place greedily: in each phase, the longest path goes to its faster machine; then every other one, the longest
        first, goes where the phase ends soonest; among equals, where it ends soonest itself.
        """
        graph = priced.graph
        machine, stream = [0] * len(graph.tasks), [0] * len(graph.tasks)
        free = {(m, s): 0 for m in range(len(priced.machines)) for s in range(priced.machines[m].streams)}
        over: dict[int, int] = {task: 0 for task, phase in enumerate(phase_of) if phase < 0}
        order = [task for task, phase in enumerate(phase_of) if phase < 0 and not graph.predecessors[task]]
        for phase in range(max(phase_of, default=-1) + 1):
            own = [task for task, at in enumerate(phase_of) if at == phase]
            end = 0
            for task in self._longest_first(priced, own):
                choices = []
                for m, s in free:
                    if m in priced.accepted[task]:
                        done = max(free[m, s], self._arrival(priced, task, m, machine, over)) + int(
                            priced.work_ns[task, m]
                        )
                        fast = int(priced.work_ns[task, m]) if not end else max(end, done)
                        choices.append((fast, done, m, s))
                _, done, machine[task], stream[task] = min(choices)
                over[task] = free[machine[task], stream[task]] = done
                end = max(end, done)
            order += own
        order += [task for task in range(len(graph.tasks)) if task not in set(order)]
        placement = TaskPlacement(tuple(machine), tuple(stream), tuple(order))
        self._note(self._makespan(priced, placement))
        return placement

    def _longest_first(self, priced: Problem, own: list[int]) -> list[int]:
        """Order by the time on the faster machine; pieces of one path stay in order."""
        shortest = {task: min(int(priced.work_ns[task, m]) for m in priced.accepted[task]) for task in own}
        left, found = set(own), list[int]()
        while left:
            ready = [task for task in left if not left.intersection(priced.graph.predecessors[task])]
            found.append(max(ready, key=lambda task: (shortest[task], -task)))
            left.discard(found[-1])
        return found

    def _arrival(self, priced: Problem, task: int, target: int, machine: list[int], over: dict[int, int]) -> int:
        """When everything that a task reads is on a machine, with wires free."""
        graph = priced.graph
        return max(
            (
                over[graph.producers[value]] + int(priced.copy_ns[value, machine[graph.producers[value]], target])
                for value in graph.reads[task]
            ),
            default=0,
        )

    def _corrected(self, priced: Problem, placement: TaskPlacement, phase_of: list[int]) -> TaskPlacement:
        """Try moves and swaps, keeping each that makes the whole end sooner, until a pass over all keeps none."""
        tasks = [task for task, phase in enumerate(phase_of) if phase >= 0]
        names = [task.name for task in priced.graph.tasks]
        pairs = [(a, b) for a in tasks for b in tasks if a < b and phase_of[a] == phase_of[b]]
        best, before = self._makespan(priced, placement), -1.0
        while before != best and not self._is_over():
            before = best
            for task in tasks:
                for words, changed in _moves(priced, placement, task):
                    placement, best = self._better(priced, placement, best, changed, names[task], words)
            for task, other in pairs:
                for changed in _swaps(priced, placement, task, other):
                    words = f"swapped with {names[other]}"
                    placement, best = self._better(priced, placement, best, changed, names[task], words)
        return placement

    def _better(
        self, priced: Problem, placement: TaskPlacement, best: float, changed: TaskPlacement, subject: str, words: str
    ) -> tuple[TaskPlacement, float]:
        """The changed placement if it ends sooner, else the present one."""
        if self._is_over():
            return placement, best
        makespan = self._makespan(priced, changed)
        if makespan >= best:
            return placement, best
        self.decisions.append(Decision(subject, words, f"end to end {_ms(makespan)} instead of {_ms(best)}"))
        self._note(makespan)
        return changed, makespan

    def _makespan(self, priced: Problem, placement: TaskPlacement) -> float:
        self.evaluations += 1
        return simulate(priced, placement).makespan_ns

    def _note(self, makespan: float) -> None:
        if not self.history or makespan < self.history[-1][1]:
            self.history.append((self.evaluations, makespan))

    def _is_over(self) -> bool:
        return self.budget.spent(self.evaluations)


def _moves(priced: Problem, placement: TaskPlacement, task: int) -> Iterator[tuple[str, TaskPlacement]]:
    """The sub-graph on each other stream of each machine that accepts it."""
    for m in priced.accepted[task]:
        for s in range(priced.machines[m].streams):
            if (m, s) != (placement.machine[task], placement.stream[task]):
                yield f"moved to {priced.machines[m].name}", _put(placement, {task: (m, s)})


def _swaps(priced: Problem, placement: TaskPlacement, task: int, other: int) -> Iterator[TaskPlacement]:
    """Two sub-graphs in each other's places, where both are accepted there."""
    here = placement.machine[task], placement.stream[task]
    there = placement.machine[other], placement.stream[other]
    if here != there and there[0] in priced.accepted[task] and here[0] in priced.accepted[other]:
        yield _put(placement, {task: there, other: here})


def _put(placement: TaskPlacement, places: dict[int, tuple[int, int]]) -> TaskPlacement:
    machine, stream = list(placement.machine), list(placement.stream)
    for task, (m, s) in places.items():
        machine[task], stream[task] = m, s
    return TaskPlacement(tuple(machine), tuple(stream), placement.order)


def _ms(ns: float) -> str:
    return "refused" if ns == NOT_ACCEPTED else f"{ns / 1e6:.3f} ms"
