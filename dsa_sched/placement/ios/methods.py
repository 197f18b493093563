"""The methods: the sequential and greedy baselines of the paper, and IOS with concurrent stages, with merging and both.

    Problem --parts_of--> parts --explore, price, best--> stages --placed, simulated--> Outcome

Options of a search, by name: `r` operators a group and `s` groups a stage (3 and 8, the paper's; 0 is no pruning),
`part` operators a part (50), `transitions` that a part may have before it is halved. A stage never has more groups than
the machine has streams. When `seconds` or `evaluations` (stages priced) run out, the remaining parts get the better of
the baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dsa_sched.placement.ios.blocks import Part, parts_of
from dsa_sched.placement.ios.costs import StageContention, StreamStage
from dsa_sched.placement.ios.search import BOTH, MERGE, PARALLEL, StageKinds, StageSearch, search_stages
from dsa_sched.placement.ios.space import SearchLimits
from dsa_sched.placement.ios.stages import greedy_stages, placed, sequential_stages
from dsa_sched.placement.methods.registry import Budget, Outcome, Search, finished
from dsa_sched.placement.model.problem import Problem
from hw_models.errors import PlacementError
from partitioner.ir.decisions import Decision

PART_OPERATORS = 50


def sequential(problem: Problem, search: Search) -> Outcome:  # noqa: ARG001 - one signature for all methods
    """One task per stage, on the device where that takes the least time."""
    return _best(problem, lambda machine: [_outcome("sequential", problem, machine, sequential_stages(_all(problem)))])


def greedy(problem: Problem, search: Search) -> Outcome:  # noqa: ARG001 - one signature for all methods
    """All ready tasks in one stage, on the device where that takes the least time."""

    def tried(machine: int) -> list[Outcome]:
        streams = problem.machines[machine].streams
        return [_outcome("greedy", problem, machine, greedy_stages(problem.graph, _all(problem), streams))]

    return _best(problem, tried)


def ios(problem: Problem, search: Search) -> Outcome:
    """IOS with concurrent stages ("IOS-Parallel" of the paper)."""
    return _method(problem, search, PARALLEL)


def ios_merge(problem: Problem, search: Search) -> Outcome:
    """IOS whose stages are one task or several merged into one ("IOS-Merge"). The problem needs `merging`."""
    return _method(problem, search, MERGE)


def ios_both(problem: Problem, search: Search) -> Outcome:
    """IOS with both kinds of stages ("IOS-Both"). The problem needs `merging`."""
    return _method(problem, search, BOTH)


def _method(problem: Problem, search: Search, kind: StageKinds) -> Outcome:
    """The best result of the search and the baselines, by the simulator: values of the network's ends are copied, and a
    part ends with a barrier, neither of which the search of a part knows.
    """
    if kind.merged and problem.merging is None:
        needs = "a device that its roofline prices, also with layers merged"
        raise PlacementError(kind.name, needs=needs, change="choose ios")
    limits, most = _limits(search)
    parts = parts_of(problem.graph, most)
    budget = Budget(search.evaluations, search.seconds)

    def tried(machine: int) -> list[Outcome]:
        streams = problem.machines[machine].streams
        own = kind if streams > 1 else replace(kind, concurrent=False)
        if own.concurrent or own.merged:
            found = search_stages(problem, StageContention(problem, machine), parts, streams, own, limits, budget)
        else:
            found = StageSearch(tuple(sequential_stages(_all(problem))), 0.0)  # all stages of one stream cost the same
        known = {"evaluations": max(1, found.priced), "decisions": found.decisions}
        outcomes = [_outcome(kind.name, problem, machine, found.stages, **known)]
        baselines = {"sequential": sequential_stages(_all(problem))}
        if kind.concurrent:
            baselines["greedy"] = greedy_stages(problem.graph, _all(problem), streams)
        for name, stages in baselines.items():
            outcome = _outcome(kind.name, problem, machine, stages, **known)
            reason = f"{outcome.makespan_ns:,.0f} ns, searched stages {outcomes[0].makespan_ns:,.0f} ns"
            said = Decision(problem.graph.name, f"stages of {name} on {problem.machines[machine].name}", reason)
            outcomes.append(replace(outcome, decisions=(*outcome.decisions, said)))
        return outcomes

    return _best(problem, tried)


def _limits(search: Search) -> tuple[SearchLimits, int]:
    """Limits and operators a part. Raises PlacementError for options out of range."""
    defaults = {"r": 3, "s": 8, "part": PART_OPERATORS, "transitions": SearchLimits().transitions}
    values = {name: int(search.option(name, default)) for name, default in defaults.items()}
    return SearchLimits(values["r"] or None, values["s"] or None, values["transitions"]), values["part"]


def _all(problem: Problem) -> Part:
    return tuple(number for number, task in enumerate(problem.graph.tasks) if not task.is_end)


def _outcome(method: str, problem: Problem, machine: int, stages: Sequence[StreamStage], **known: object) -> Outcome:
    made, placement = placed(problem, machine, stages)
    return finished(method, made, placement, **known)


def _best(problem: Problem, tried: Callable[[int], list[Outcome]]) -> Outcome:
    """The outcome with the least makespan, of all machines that accept every task."""
    inner = _all(problem)
    machines = [
        machine
        for machine in range(len(problem.machines))
        if all(machine in problem.accepted[task] for task in inner)
        and all(0 in problem.accepted[task] for task in set(range(len(problem.graph.tasks))) - set(inner))
    ]
    found = [outcome for machine in machines for outcome in tried(machine)]
    if not found:
        raise PlacementError("stages", needs="a device that accepts every task", change="choose another method")
    return min(found, key=lambda outcome: outcome.makespan_ns)
