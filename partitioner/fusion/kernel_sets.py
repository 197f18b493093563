"""Sets of layers that could become one kernel: connected, and computable before or after all the rest.

    layers --reads--> groups in a graph without circles --growing from one of them--> sets, the smallest first

A set must be convex: no value may leave it and come back through another group, which would have to run in between.
Sets are bit masks over groups, and `reach` says what depends on each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer

__all__ = ["Dependences", "dependences_of", "in_order"]


@dataclass(frozen=True, slots=True)
class Dependences:
    """For each group, as bit masks: the groups that read its outputs, and all that depend on it, nearer or farther."""

    readers: tuple[int, ...]
    reach: tuple[int, ...]

    def convex(self, members: int) -> bool:
        """Whether nothing outside both depends on a member and is depended on by one."""
        after = 0
        for group in bits(members):
            after |= self.reach[group]
        return not any(self.reach[group] & members for group in bits(after & ~members))

    def next_readers(self, members: int) -> tuple[int, ...]:
        """Groups outside that read a member, in order, each of which leaves the set convex."""
        read = 0
        for group in bits(members):
            read |= self.readers[group]
        return tuple(group for group in bits(read & ~members) if self.convex(members | 1 << group))


def bits(mask: int) -> Iterator[int]:
    """Numbers of the bits that are set, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def dependences_of(graph: Graph, groups: Sequence[tuple[Layer, ...]]) -> Dependences:
    """The dependences among groups of layers, which must be without circles."""
    maker = {layer.output: number for number, layers in enumerate(groups) for layer in layers}
    readers = [0] * len(groups)
    for number, layers in enumerate(groups):
        for name in (name for layer in layers for name in layer.inputs(graph)):
            if maker.get(name, number) != number:
                readers[maker[name]] |= 1 << number
    reach = [0] * len(groups)
    for number in reversed(_order(readers)):
        for reader in bits(readers[number]):
            reach[number] |= 1 << reader | reach[reader]
    return Dependences(tuple(readers), tuple(reach))


def in_order(graph: Graph, groups: Sequence[tuple[Layer, ...]]) -> list[tuple[Layer, ...]]:
    """The groups in an order of execution: of those whose inputs are made, the one that came first."""
    return [groups[number] for number in _order(dependences_of(graph, groups).readers)]


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
