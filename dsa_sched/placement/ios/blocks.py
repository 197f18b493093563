"""Blocks and parts: pieces of a network that are searched one at a time.

A task is a cut when every other task comes before or after it, and those after it read from none before it: a single
tensor goes across. A block is what lies between two cuts, with the later of them; consecutive blocks of one task form
one block, a chain. A block of more tasks than the search accepts is halved where the fewest tasks have readers on the
other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from dsa_sched.placement.model.task_graph import TaskGraph, reached
from hw_models.errors import PlacementError

Part = tuple[int, ...]
"""Task numbers in order, none of them an end."""


def blocks(graph: TaskGraph) -> tuple[Part, ...]:
    """Every task except the ends, in blocks in the order in which they run."""
    inner = [number for number, task in enumerate(graph.tasks) if not task.is_end]
    before = reached(inner, graph.predecessors)
    after = reached(reversed(inner), graph.successors)
    every = sum(1 << task for task in inner)
    read = {task: every & sum(1 << other for other in graph.successors[task]) for task in inner}
    cuts, over, reads = [], 0, 0
    for task in inner:
        if before[task] | after[task] == every:
            for other in _members(before[task] & ~over & ~(1 << task)):
                reads |= read[other]
            if not reads & ~before[task]:
                cuts.append(task)
            reads |= read[task]
            over = before[task]
    found: list[list[int]] = []
    over, chained = 0, False
    for mask in [*(before[cut] for cut in cuts), every]:
        block = _members(mask & ~over)
        if len(block) == 1 and chained:
            found[-1] += block
        elif block:
            found.append(block)
        chained = len(block) == 1
        over |= mask
    return tuple(map(tuple, found))


def _members(mask: int) -> list[int]:
    """Places of the bits of a mask."""
    found = []
    while mask:
        found.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return found


def parts_of(graph: TaskGraph, most: int) -> tuple[Part, ...]:
    """Blocks; a block of more than `most` tasks is halved repeatedly."""

    def divided(part: Part) -> tuple[Part, ...]:
        return (part,) if len(part) <= most else tuple(piece for half in halves(graph, part) for piece in divided(half))

    return tuple(piece for block in blocks(graph) for piece in divided(block))


def halves(graph: TaskGraph, part: Part) -> tuple[Part, Part]:
    """Two parts that run one after the other: cut where the fewest tasks have readers after the cut, and among such
    places at the one nearest to the middle.
    """
    place = {task: number for number, task in enumerate(part)}
    ends = [0] * (len(part) + 1)
    for number, task in enumerate(part):
        last = max((place[after] for after in graph.successors[task] if after in place), default=number)
        ends[number + 1] += 1
        ends[last + 1] -= 1
    open_values = list(accumulate(ends))
    middle = len(part) / 2
    cut = min(range(1, len(part)), key=lambda at: (open_values[at], abs(at - middle), at))
    return part[:cut], part[cut:]


def successors_within(graph: TaskGraph, part: Part) -> list[list[int]]:
    """For each task of a part, the places in the part of those of its tasks that read from it."""
    place = {task: number for number, task in enumerate(part)}
    return [[place[after] for after in graph.successors[task] if after in place] for task in part]


def verify_parts(graph: TaskGraph, parts: Sequence[Part]) -> None:
    """Check that parts have every task except the ends once, none before what it reads. Raises PlacementError."""
    order = [task for part in parts for task in part]
    inner = [number for number, task in enumerate(graph.tasks) if not task.is_end]
    if sorted(order) != inner:
        raise PlacementError(f"parts of {graph.name}", needs="every task once")
    place = {task: number for number, task in enumerate(order)}
    for task in order:
        for before in graph.predecessors[task]:
            if place.get(before, -1) > place[task]:
                names = graph.tasks[task].name, graph.tasks[before].name
                raise PlacementError(f"task {names[0]}", needs=f"a place after {names[1]} in the parts")
