"""Large parts of a network as single tasks: a device's compiler makes more of many layers than of each by itself, and
the host starts them once.

    Problem --coarser_problems--> problems of sub-graphs, and of the largest parts that one device accepts
    Outcome --joined--> neighbours on one device as one task
    method + Problem --place_all_sizes--> the best outcome of all these

Prices of parts come from the problem (`Problem.price_groups`); without them there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from dsa_sched.placement.methods.duet import accepted_pieces, phases
from dsa_sched.placement.methods.registry import Method, Outcome, Search, finished
from dsa_sched.placement.model.problem import Groups, Problem
from dsa_sched.placement.model.task_graph import TaskGraph, group_order
from dsa_sched.placement.schedule.bounds import lower_bound_ns
from dsa_sched.placement.schedule.schedule import TaskPlacement, single_machine
from dsa_sched.placement.schedule.simulate import simulate
from hw_models.errors import PlacementError


def coarser_problems(problem: Problem) -> tuple[Problem, ...]:
    """The whole network as one task; the largest runs of tasks that the same machines accept as one task each; and each
    path of a phase as one task (`duet.phases`).

    Those with a part that every machine refuses, perhaps only once it is compiled, are left out.
    """
    if problem.price_groups is None:
        return ()
    graph = problem.graph
    ends, work = ends_and_work(graph)
    paths = [piece for phase in phases(graph) for path in phase.paths for piece in accepted_pieces(problem, path)]
    tried = dict.fromkeys([(*ends, work), (*ends, *accepted_pieces(problem, work)), (*ends, *paths)])
    found: list[Problem] = []
    for groups in sorted((each for each in tried if len(each) < len(graph.tasks)), key=len):
        with suppress(PlacementError):
            found.append(problem.price_groups(groups))
    return tuple(found)


def ends_and_work(graph: TaskGraph) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The two ends of the network as groups of one task each, and all other tasks."""
    ends = tuple((number,) for number, task in enumerate(graph.tasks) if task.is_end)
    return ends, tuple(number for number, task in enumerate(graph.tasks) if not task.is_end)


def joined(outcome: Outcome) -> Outcome:
    """The outcome with neighbours in one place as single tasks, if it then ends no later. Stages stay as they are."""
    problem, placement = outcome.problem, outcome.placement
    if problem.price_groups is None or placement.stage is not None:
        return outcome
    sets = neighbours(problem.graph, placement)
    if len(sets) == len(problem.graph.tasks):
        return outcome
    try:
        priced = problem.price_groups(sets)
    except PlacementError:
        return outcome
    groups = [sets[group] for group in group_order(problem.graph, sets)]
    machine = tuple(placement.machine[group[0]] for group in groups)
    if any(machine[task] not in own for task, own in enumerate(priced.accepted)):
        return outcome
    stream = tuple(placement.stream[group[0]] for group in groups)
    together = TaskPlacement(machine, stream, tuple(range(len(groups))))
    found = finished(outcome.method, priced, together)
    if found.makespan_ns > outcome.makespan_ns:
        return outcome
    return replace(
        outcome,
        problem=priced,
        placement=together,
        schedule=found.schedule,
        evaluations=1,
        bound_ns=0.0,
    )


def neighbours(graph: TaskGraph, placement: TaskPlacement) -> Groups:
    """Tasks in sets that may run as one without keeping another place waiting: of neighbours in one place, where all
    that the first ones make stays there, and all that the second ones read comes from there or from outside."""
    place = list(zip(placement.machine, placement.stream, strict=True))
    set_of = list(range(len(graph.tasks)))
    sets = {task: [task] for task in set_of}
    for task in range(len(graph.tasks)):
        for before in graph.predecessors[task]:
            first, second = set_of[before], set_of[task]
            ends = graph.tasks[before].is_end or graph.tasks[task].is_end
            if ends or first == second or place[before] != place[task]:
                continue
            made = {other for member in sets[first] for other in graph.successors[member]}
            read = {other for member in sets[second] for other in graph.predecessors[member]}
            stays = all(place[other][0] == place[task][0] for other in made if graph.tasks[other].is_end)
            stays = stays and all(place[other] == place[task] for other in made if not graph.tasks[other].is_end)
            comes = all(graph.tasks[other].is_end or place[other] == place[task] for other in read)
            if stays and comes and not _leads_around(graph, set_of, sets, first, second):
                for member in sets.pop(second):
                    set_of[member] = first
                    sets[first].append(member)
    return tuple(tuple(sorted(members)) for members in sets.values())


def _leads_around(graph: TaskGraph, set_of: list[int], sets: dict[int, list[int]], first: int, second: int) -> bool:
    """Whether a way from one set to another passes through a third."""
    todo = [first]
    seen = {first}
    while todo:
        at = todo.pop()
        for task in sets[at]:
            for other in graph.successors[task]:
                group = set_of[other]
                if group == second and at != first:
                    return True
                if group != second and group not in seen:
                    seen.add(group)
                    todo.append(group)
    return False


def place_all_sizes(
    method: Method, problem: Problem, coarser: Sequence[Problem], search: Search
) -> tuple[Outcome, float]:
    """The best of what a method finds for a problem and for its coarser ones, which share the limits of the search; of
    equal ones that of the fewest tasks. Its bound is of the tasks of its own problem; the second result is a bound of
    those of the problem given.

    Raises the PlacementError of the problem itself where the method can place none of them.
    """
    problems = (problem, *coarser)
    count = max(1, sum(work_tasks(each) > 1 for each in problems))
    shared = replace(
        search,
        evaluations=None if search.evaluations is None else max(1, search.evaluations // count),
        seconds=None if search.seconds is None else search.seconds / count,
    )
    found, errors = list[Outcome](), list[PlacementError]()
    for each in problems:
        try:
            found.append(method(each, shared if work_tasks(each) > 1 else replace(shared, evaluations=1)))
        except PlacementError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    bounds = (outcome.bound_ns for outcome in found if outcome.problem == problem)
    found += [again for outcome in found for again in _joined_again(method, outcome, shared)]
    best = min(found, key=lambda outcome: (outcome.makespan_ns, len(outcome.problem.graph.tasks), -outcome.bound_ns))
    bound_ns = max(best.bound_ns, proven_bound_ns(best.problem))
    best = replace(best, bound_ns=bound_ns, evaluations=sum(outcome.evaluations for outcome in found))
    return best, max(proven_bound_ns(problem), *bounds, 0.0)


def _joined_again(method: Method, outcome: Outcome, search: Search) -> list[Outcome]:
    """The outcome with neighbours joined, and what the method finds for these tasks; none where nothing is joined."""
    together = joined(outcome)
    if together is outcome:
        return []
    try:
        again = method(together.problem, search)
    except PlacementError:
        return [together]
    bound_ns = again.bound_ns if again.problem == together.problem else 0.0
    return [replace(together, bound_ns=bound_ns), again]


def work_tasks(problem: Problem) -> int:
    """Number of tasks without the two ends of the network."""
    return len(ends_and_work(problem.graph)[1])


def proven_bound_ns(problem: Problem) -> float:
    """A time below which no schedule is: of one task, the least makespan on any machine."""
    if work_tasks(problem) > 1 or any(problem.contended):
        return float(lower_bound_ns(problem))
    placements = (single_machine(problem, machine) for machine in range(len(problem.machines)))
    return min(simulate(problem, placement).makespan_ns for placement in placements if placement is not None)
