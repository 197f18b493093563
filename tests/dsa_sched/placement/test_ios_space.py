"""The search space of IOS: published counts, and the definition written a second time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.lab.ios.schema import load_network
from benchmarks.lab.ios.space_counts import schedule_count, width
from benchmarks.lab.ios.tasks import task_graph, task_parts
from dsa_sched.placement.ios.blocks import successors_within
from dsa_sched.placement.ios.space import SearchLimits, StateSpace, closures, explore
from hw_models.errors import PlacementError

UNPRUNED = SearchLimits(None, None)

SQUEEZENET = ((1, 2), (3,), (3,), (5,), (5,), ())
INCEPTION = ((10,), (2, 3), (10,), (10,), (5,), (6, 7), (10,), (10,), (9,), (10,), ())
"""Successors of the blocks with the most transitions; published: Ding et al., MLSys 2021, table 1."""

PUBLISHED = {
    "squeezenet": (6, 3, 51, 131),
    "inception_v3": (11, 6, 4871, 3757392),
    "randwire_large": (33, 8, 1170663, 91973106270886052032664),
    "nasnet_large": (18, 8, 307841, 7150961274600),
}


def explored(successors: list[list[int]], limits: SearchLimits = UNPRUNED) -> StateSpace:
    found = explore(closures(successors), limits)
    assert found is not None
    return found


def random_successors(seed: int, count: int, density: float = 0.3) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[after for after in range(place + 1, count) if rng.random() < density] for place in range(count)]


def endings_by_definition(
    state: frozenset[int], after: list[set[int]], limits: SearchLimits
) -> Iterator[frozenset[int]]:
    """Unions of groups, each a head with what comes after it in the state, that have nothing in common."""
    groups = [frozenset(after[head] & state) for head in sorted(state)]
    groups = [group for group in groups if len(group) <= (limits.group_operators or len(after))]

    def chosen(number: int, union: frozenset[int], left: int) -> Iterator[frozenset[int]]:
        for place in range(number, len(groups)):
            if left and not groups[place] & union:
                yield union | groups[place]
                yield from chosen(place + 1, union | groups[place], left - 1)

    yield from chosen(0, frozenset(), limits.groups or len(after))


def counts_by_definition(successors: list[list[int]], limits: SearchLimits) -> tuple[int, int, int]:
    """States, transitions and schedules."""
    after: list[set[int]] = [set() for _ in successors]
    for place in reversed(range(len(successors))):
        after[place] = {place}.union(*(after[other] for other in successors[place]))
    schedules: dict[frozenset[int], int] = {frozenset(): 1}
    transitions = 0

    def count(state: frozenset[int]) -> int:
        nonlocal transitions
        if state not in schedules:
            endings = list(endings_by_definition(state, after, limits))
            transitions += len(endings)
            schedules[state] = sum(count(state - ending) for ending in endings)
        return schedules[state]

    total = count(frozenset(range(len(successors))))
    return len(schedules), transitions, total


@pytest.mark.parametrize(("successors", "counts"), [(SQUEEZENET, (6, 3, 51, 131)), (INCEPTION, (11, 6, 4871, 3757392))])
def test_published_counts_of_two_blocks(successors: list[list[int]], counts: tuple[int, ...]) -> None:
    found = explored(successors)
    assert (len(successors), width(closures(successors)), found.transitions, schedule_count(found)) == counts


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts_of_the_largest_blocks(name: str) -> None:
    network = load_network(name)
    graph = task_graph(network)
    rows = []
    for part in task_parts(network):
        successors = successors_within(graph, part)
        found = explored(successors)
        rows.append((found.transitions, len(part), width(closures(successors)), schedule_count(found)))
    transitions, operators, antichain, schedules = max(rows)
    assert (operators, antichain, transitions, schedules) == PUBLISHED[name]


@pytest.mark.parametrize(
    "limits", [UNPRUNED, SearchLimits(1, 3), SearchLimits(2, None), SearchLimits(None, 2), SearchLimits(3, 8)]
)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_explored_is_the_definition(seed: int, limits: SearchLimits) -> None:
    successors = random_successors(seed, 3 + seed)
    found = explored(successors, limits)
    assert (len(found.states), found.transitions, schedule_count(found)) == counts_by_definition(successors, limits)


def test_counts_of_schedules_have_no_largest_number() -> None:
    """Twenty layers of three operators, one operator a group: each layer has 13 sequences of stages (1 + 6 + 6)."""
    layers = [[3 * layer + 3, 3 * layer + 4, 3 * layer + 5] for layer in range(19) for _ in range(3)] + [[], [], []]
    assert schedule_count(explored(layers, SearchLimits(1, None))) == 13**20 > 1 << 64


def test_a_space_beyond_its_limit_is_not_explored() -> None:
    apart: list[list[int]] = [[] for _ in range(30)]
    assert explore(closures(apart), SearchLimits(3, 8, transitions=1000)) is None
    assert explore(closures(apart), SearchLimits(None, None, transitions=100_000)) is None


def test_merged_endings_need_all_their_operators_to_be_sinks() -> None:
    """0 -> 1, 0 -> 2 with the pair {1, 2}: it can end only the state in which both are left."""
    found = explore(closures([[1, 2], [], []]), UNPRUNED, [0b110, 0b001, 0b010, 0b100], concurrent=False)
    assert found is not None
    assert found.concurrent == 0
    assert schedule_count(found) == 3
    assert sorted(map(int, found.states)) == [0b000, 0b001, 0b011, 0b101, 0b111]


@pytest.mark.parametrize(
    ("successors", "said"),
    [([[] for _ in range(63)], "needs at most 62 operators; has 63"), ([[0]], "successors that come later")],
)
def test_parts_that_no_mask_holds_are_refused(successors: list[list[int]], said: str) -> None:
    with pytest.raises(PlacementError, match=said):
        closures(successors)


def test_the_largest_part_that_a_mask_holds() -> None:
    chain = [[place + 1] for place in range(61)] + [[]]
    assert schedule_count(explored(chain, SearchLimits(1, 1))) == 1
