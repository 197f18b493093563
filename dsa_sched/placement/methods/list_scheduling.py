"""List scheduling: HEFT, and the rules of CPOP and PEFT. They differ in priorities and in how a machine is chosen.

    Problem --ranks--> priorities (+ fixed machines, or a bias) --Decoder.run--> Placement

The compiled list scheduler (`schedule/list_decoder.py`) does the rest: tasks in the order of their priorities, each in
the earliest gap of a stream. Unlike in the papers, copies take turns on wires, and a value is copied to a machine once;
a machine with several streams acts like several machines without copies between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsa_sched.placement.methods.registry import Outcome, Search, finished
from dsa_sched.placement.model.problem import NOT_ACCEPTED, Problem
from dsa_sched.placement.schedule.list_decoder import FREE, Decoder


@dataclass(frozen=True)
class ListRule:
    """Data of one pass of the list scheduler: priorities, machines that are given, and numbers added to ends."""

    name: str
    priority: NDArray[np.float64]
    gene: NDArray[np.int64]
    bias: NDArray[np.float64] | None = None


def mean_work(problem: Problem) -> NDArray[np.float64]:
    """Mean work of each task, over the machines that accept it."""
    accepted = problem.work_ns != NOT_ACCEPTED
    return np.asarray(np.where(accepted, problem.work_ns, 0).sum(axis=1) / accepted.sum(axis=1))


def mean_copy(problem: Problem) -> NDArray[np.float64]:
    """Mean time to copy each value, over all routes; 0 with one machine."""
    routes = max(1, len(problem.route))
    return np.asarray(problem.copy_ns.sum(axis=(1, 2)) / routes)


def upward_ranks(problem: Problem) -> NDArray[np.float64]:
    """Mean time from the start of each task to the end of the network, on its longest way."""
    graph, work, copy = problem.graph, mean_work(problem), mean_copy(problem)
    rank = np.zeros(len(graph.tasks))
    for task in reversed(range(len(rank))):
        behind = [copy[value] + rank[other] for value in graph.writes[task] for other in graph.consumers[value]]
        rank[task] = work[task] + max(behind, default=0.0)
    return rank


def downward_ranks(problem: Problem) -> NDArray[np.float64]:
    """Mean time from the start of the network to the start of each task, on its longest way."""
    graph, work, copy = problem.graph, mean_work(problem), mean_copy(problem)
    rank = np.zeros(len(graph.tasks))
    for task, reads in enumerate(graph.reads):
        makers = ((graph.producers[value], value) for value in reads)
        rank[task] = max((rank[other] + work[other] + copy[value] for other, value in makers), default=0.0)
    return rank


def optimistic_costs(problem: Problem) -> NDArray[np.float64]:
    """PEFT's table: task x machine, the least time from the end of the task there to the end of the network, when
    everything after it finds its best machine free. Machines that refuse a task get the cost of choosing them.
    """
    graph, copy = problem.graph, mean_copy(problem)
    count = len(problem.machines)
    work = np.where(problem.work_ns == NOT_ACCEPTED, np.inf, problem.work_ns.astype(float))
    table = np.zeros((len(graph.tasks), count))
    travels = 1.0 - np.eye(count)
    for task in reversed(range(len(table))):
        for value in graph.writes[task]:
            for other in graph.consumers[value]:
                ways = (table[other] + work[other])[None, :] + travels * copy[value]
                table[task] = np.maximum(table[task], ways.min(axis=1))
    return table


def heft_rule(problem: Problem) -> ListRule:
    return ListRule("heft", upward_ranks(problem), np.full(len(problem.graph.tasks), FREE, np.int64))


def peft_rule(problem: Problem) -> ListRule:
    table = optimistic_costs(problem)
    accepted = problem.work_ns != NOT_ACCEPTED
    priority = np.where(accepted, table, 0).sum(axis=1) / accepted.sum(axis=1)
    return ListRule("peft", priority, np.full(len(priority), FREE, np.int64), table)


def cpop_rule(problem: Problem) -> ListRule:
    priority = upward_ranks(problem) + downward_ranks(problem)
    path = _critical_path(problem, priority)
    work = problem.work_ns[path]
    refused = (work == NOT_ACCEPTED).sum(axis=0)
    total = np.where(work == NOT_ACCEPTED, 0, work).sum(axis=0)
    machine = min(range(len(problem.machines)), key=lambda number: (refused[number], total[number], number))
    gene = np.full(len(priority), FREE, np.int64)
    gene[[task for task in path if machine in problem.accepted[task]]] = machine
    return ListRule("cpop", priority, gene)


def _critical_path(problem: Problem, priority: NDArray[np.float64]) -> list[int]:
    """Path from the first task of highest priority, always to the successor of highest priority."""
    graph = problem.graph
    first = [task for task, before in enumerate(graph.predecessors) if not before]
    path = [max(first, key=lambda task: (priority[task], -task))]
    while after := graph.successors[path[-1]]:
        path.append(max(after, key=lambda task: (priority[task], -task)))
    return path


def list_rules(problem: Problem) -> tuple[ListRule, ...]:
    """All three rules, as starting points of searches."""
    return heft_rule(problem), cpop_rule(problem), peft_rule(problem)


def list_schedule(problem: Problem, rule: ListRule) -> Outcome:
    """The schedule that one pass by a rule makes."""
    decoder = Decoder.of(problem)
    decoder.run(rule.gene, rule.priority, rule.bias)
    return finished(rule.name, problem, decoder.placement())


def heft(problem: Problem, search: Search) -> Outcome:  # noqa: ARG001 - one signature for all methods
    """Heterogeneous earliest finish time (Topcuoglu, Hariri, Wu 2002): by upward rank, where each task ends first."""
    return list_schedule(problem, heft_rule(problem))
