"""Sets of layers that could become one kernel: connected, and computable before or after all other layers.

    layers --reads--> groups in a graph without circles --growing from one of them--> sets, the smallest first

A set must be convex: no value may leave it and come back through another group, which would have to run in between.
Sets are bit masks over groups, and `reach` holds for each group all that depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer

MOST_REFUSED = 3
"""Number of groups by which a set grows beyond the last one for which there is a kernel: a chain of three may have a
kernel where the first two of it have none."""
MOST_SETS = 256
"""Largest number of sets tried from one group on, so that the search ends for wide networks."""


@dataclass(frozen=True, slots=True)
class Dependences:
    """Dependences between groups as bit masks: for each group, the groups that read its outputs, those whose outputs it
    reads, and all that depend on it and all on which it depends, directly or indirectly."""

    readers: tuple[int, ...]
    makers: tuple[int, ...]
    reach: tuple[int, ...]
    needs: tuple[int, ...]

    def neighbours(self, members: int) -> int:
        """Groups outside that read a member or are read by one."""
        return _any_of(members, self.readers, self.makers) & ~members

    def after(self, members: int) -> int:
        """Groups outside that depend on a member."""
        return _any_of(members, self.reach) & ~members

    def between(self, members: int) -> int:
        """Groups outside that depend on a member and on which another member depends. A set without any is convex."""
        return self.after(members) & _any_of(members, self.needs)


def _any_of(members: int, *masks: Sequence[int]) -> int:
    found = 0
    for group in bits(members):
        for mask in masks:
            found |= mask[group]
    return found


def bits(mask: int) -> Iterator[int]:
    """Numbers of the bits that are set, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def dependences_of(graph: Graph, groups: Sequence[tuple[Layer, ...]]) -> Dependences:
    """The dependences among groups of layers, which must be without circles."""
    readers = _readers(graph, groups)
    reach = [0] * len(groups)
    for number in reversed(_order(readers)):
        for reader in bits(readers[number]):
            reach[number] |= 1 << reader | reach[reader]
    makers, needs = _turned(readers), _turned(reach)
    return Dependences(tuple(readers), tuple(makers), tuple(reach), tuple(needs))


def _turned(masks: Sequence[int]) -> list[int]:
    """For each group, the groups whose masks contain it."""
    found = [0] * len(masks)
    for number, mask in enumerate(masks):
        for group in bits(mask):
            found[group] |= 1 << number
    return found


def sets_from(start: int, among: Dependences, excluded: int, has_kernel: Callable[[int], bool]) -> Iterator[int]:
    """Sets of two or more groups that begin with `start` and satisfy `has_kernel`, the smaller ones first. A set grows
    by its readers and producers, and beyond a set without a kernel by `MOST_REFUSED` groups. No set has a group of
    `excluded`, and at most `MOST_SETS` are asked for."""
    outside = excluded | (1 << start + 1) - 1
    waiting, seen = [(1 << start, 0)], {1 << start}
    for members, refused in waiting:
        for group in bits(among.neighbours(members) & ~outside):
            grown = members | 1 << group
            if grown in seen or len(seen) >= MOST_SETS or among.between(grown):
                continue
            seen.add(grown)
            if has_kernel(grown):
                yield grown
                waiting.append((grown, 0))
            elif refused + 1 < MOST_REFUSED:
                waiting.append((grown, refused + 1))


def _readers(graph: Graph, groups: Sequence[tuple[Layer, ...]]) -> list[int]:
    maker = {layer.output: number for number, layers in enumerate(groups) for layer in layers}
    readers = [0] * len(groups)
    for number, layers in enumerate(groups):
        for name in (name for layer in layers for name in layer.inputs(graph)):
            if maker.get(name, number) != number:
                readers[maker[name]] |= 1 << number
    return readers


def in_order(graph: Graph, groups: Sequence[tuple[Layer, ...]]) -> list[tuple[Layer, ...]]:
    """The groups in an order of execution: of those whose inputs are made, the one that comes first in `groups`."""
    return [groups[number] for number in _order(_readers(graph, groups))]


def _order(readers: Sequence[int]) -> list[int]:
    waiting = [0] * len(readers)
    for mask in readers:
        for reader in bits(mask):
            waiting[reader] += 1
    ready, order = [number for number, count in enumerate(waiting) if not count], []
    while ready:
        number = min(ready)
        ready.remove(number)
        order.append(number)
        for reader in bits(readers[number]):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order
