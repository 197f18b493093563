"""The cheapest order and scopes together by constraint programming (OR-tools CP-SAT), for small graphs and for judging
the other methods.

    instance graph + capacity --steps, optional intervals, two cumulative capacities--> order, scopes, proven bound

One worker, a fixed seed and a limit in the solver's own deterministic time give the same answer on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from partitioner.ordering.cost import Capacity, InstanceGraph, Ordered, refuse_too_large, weighed
from partitioner.ordering.methods import OrderChoice
from partitioner.ordering.scope_assignment import LOCAL, MAIN, STAGING, Scope


@dataclass(frozen=True, slots=True)
class ProvenOrder:
    """`best` is None where the limit came before any order. No order costs less than `bound`; `proven` is set where
    `best` costs exactly that."""

    best: Ordered | None
    bound: int
    proven: bool


def exact_order(
    graph: InstanceGraph, capacity: Capacity, hint: Ordered | None = None, limit: float = 10.0
) -> ProvenOrder:
    """Solve for at most `limit` units of deterministic time, about a second each, starting from `hint`. Raises
    DoesNotFit for an instance that can never run."""
    from ortools.sat.python import cp_model  # a second to import, and only needed here

    refuse_too_large(graph, capacity)
    graph = weighed(graph, capacity)
    count = len(graph.nodes)
    model = cp_model.CpModel()
    steps = [model.new_int_var(0, count - 1, f"step {i}") for i in range(count)]
    model.add_all_different(steps)
    for a, b in graph.edges:
        model.add(steps[a] < steps[b])
    local_lives = [model.new_fixed_size_interval_var(step, 1, "work") for step in steps]
    local_bytes = [node.work_bytes for node in graph.nodes]
    staged_lives, staged_bytes = [], []
    local, staged = {}, {}
    cost: list[cp_model.LinearExprT] = []
    for i, (node, consumers) in enumerate(zip(graph.nodes, graph.consumers, strict=True)):
        if not consumers:
            continue
        end = model.new_int_var(1, count, f"end {i}")
        model.add_max_equality(end, [steps[c] + 1 for c in consumers])
        length = model.new_int_var(2, count, f"length {i}")
        local[i], staged[i] = model.new_bool_var(f"local {i}"), model.new_bool_var(f"staged {i}")
        model.add_at_most_one(local[i], staged[i])
        local_lives.append(model.new_optional_interval_var(steps[i], length, end, local[i], f"waits {i}"))
        local_bytes.append(node.output_bytes)
        staged_lives.append(model.new_optional_interval_var(steps[i], length, end, staged[i], f"waits staged {i}"))
        staged_bytes.append(node.total_bytes)
        stay, move = node.total_bytes * capacity.main_weight, node.total_bytes * capacity.staging_weight
        cost.append(stay - stay * local[i] + (move - stay) * staged[i])
    model.add_cumulative(local_lives, local_bytes, capacity.local_bytes)
    model.add_cumulative(staged_lives, staged_bytes, capacity.staging_bytes)
    model.minimize(sum(cost))
    if hint is not None:
        for position, i in enumerate(hint.order):
            model.add_hint(steps[i], position)
        for i in local:
            model.add_hint(local[i], hint.scopes[i] == LOCAL)
            model.add_hint(staged[i], hint.scopes[i] == STAGING)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = limit
    status = solver.solve(model)
    bound = max(0, round(solver.best_objective_bound))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return ProvenOrder(None, bound, False)
    order = tuple(sorted(range(count), key=lambda i: solver.value(steps[i])))
    scopes: list[Scope] = [
        LOCAL if i in local and solver.value(local[i]) else STAGING if i in staged and solver.value(staged[i]) else MAIN
        for i in range(count)
    ]
    found = Ordered(order, tuple(scopes), round(solver.objective_value), "exact")
    return ProvenOrder(found, bound, status == cp_model.OPTIMAL)


def proven_choice(
    graph: InstanceGraph, capacity: Capacity, choice: OrderChoice, limit: float
) -> tuple[OrderChoice, int]:
    """A choice among the other methods with the exact one added, which continues from the best of them for at most
    `limit` units of deterministic time; and a lower bound of the cost of all orders, 0 where it was not asked."""
    if not choice.best.cost or limit <= 0:
        return choice, 0
    exact = exact_order(graph, capacity, choice.best, limit)
    if exact.best is None:
        return choice, exact.bound
    best = min(choice.best, exact.best, key=lambda ordered: ordered.cost)
    return OrderChoice(best, (*choice.candidates, exact.best)), exact.bound
