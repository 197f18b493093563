"""A node in two networks of the same file that differ in the number of rows along one axis, for a rule to judge.

Case(node, operands, shapes of both sizes, constants of both sizes) --rule--> Padded of each output
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dsa_sched.frontend.network.network import Array, Network, Node
from dsa_sched.frontend.padding.linear import Counting, LinearNumber
from dsa_sched.frontend.padding.values import Extent, Meets, Padded, Stale, covering
from partitioner.ir.operators import OPERATORS_BY_NAME, Trait

Shape = tuple[int, ...]
SAME = Padded()


@dataclass(frozen=True)
class Sizes:
    """The file at two numbers of rows of an axis, fewer first."""

    axis: str
    rows: tuple[int, int]
    networks: tuple[Network, Network]

    @cached_property
    def twins(self) -> dict[str, str]:
        """Constants that have another name with fewer rows, as those have that a batch changes."""
        few, many = self.networks
        pairs = zip(many.nodes, few.nodes, strict=False)
        named = (each for node, other in pairs for each in zip(node.inputs, other.inputs, strict=False))
        return {name: own for name, own in named if name != own and name in many.constants and own in few.constants}

    def shapes(self, name: str) -> tuple[Shape, Shape]:
        """Shape of a value at both sizes. Raises ModelError where one is not known."""
        few, many = self.networks
        return few.shape(self.twins.get(name, name)), many.shape(name)

    def fits(self, extent: Extent, extents: Sequence[int]) -> bool:
        """Whether a dimension has these rows at both sizes."""
        return tuple(map(extent.of, self.rows)) == tuple(extents)


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule sees. Of an operand that cannot be read, `known` has the reason. `within` collects numbers that must
    not be positive when the network runs, `inside` those that must not be so with the rows of padding counted.
    """

    node: Node
    sizes: Sizes
    known: Mapping[str, Padded | str]
    counting: Counting
    within: list[LinearNumber]
    inside: list[LinearNumber]

    @property
    def count(self) -> int:
        return len(self.node.inputs)

    def has(self, position: int) -> bool:
        return bool(self.node.input(position))

    def value(self, position: int) -> Padded:
        """An operand as it is, with its number. Raises Meets for a constant that does not begin as with fewer rows."""
        name = self.node.input(position)
        found = self.known.get(name, SAME)
        if isinstance(found, str):
            raise Meets(f"it reads {name}: {found}")
        return found

    def read(self, position: int) -> Padded:
        """An operand whose elements are computed with: integers that padding changes are refused or counted."""
        value = self.value(position)
        if value.number is not None:
            self.counting.require_same(value.number.base, self.node.name)
        return replace(value, number=None)

    def look_up(self, position: int, rows: int) -> Padded:
        """An operand of indices into a table of so many rows. Places that go on with rows of padding must be in it."""
        value = self.value(position)
        if value.number is not None and value.number.along in value.extents:
            self.fit(value.number.base, rows)
        return self.read(position)

    def fit(self, begin: LinearNumber, rows: int) -> None:
        """Require that rows from a place on, those of padding too, fit among so many."""
        last = begin + LinearNumber(-rows, rows=1)
        if last.inputs or last.constant + self.sizes.rows[1] > 0:
            self.inside.append(last)

    def plain(self, position: int) -> None:
        """Require an operand that padding does not change at all. Raises Meets."""
        value = self.read(position)
        if value.extents or value.stale is not None:
            raise Meets(f"{self.node.input(position)} has rows of padding")

    def shape(self, position: int) -> Shape:
        """Shape of an operand with padding."""
        return self.sizes.shapes(self.node.input(position))[1]

    def shapes(self, position: int) -> tuple[Shape, Shape]:
        return self.sizes.shapes(self.node.input(position))

    def result(self, number: int = 0) -> tuple[Shape, Shape]:
        return self.sizes.shapes(self.node.outputs[number])

    def constants(self, position: int) -> tuple[Array, Array] | None:
        """An operand that is a constant, at both sizes."""
        few, many = self.sizes.networks
        name = self.node.input(position)
        own = self.sizes.twins.get(name, name)
        return (few.constants[own], many.constants[name]) if name in many.constants else None

    def fixed(self, position: int) -> tuple[int, ...]:
        """The elements of a constant operand of integers that no size changes. Raises Meets for another one."""
        found = self.constants(position)
        if found is None:
            raise Meets(f"{self.node.input(position)} is computed")
        if not np.array_equal(*found):
            raise Meets(f"{self.node.input(position)} changes with the number of rows")
        return tuple(int(element) for element in found[1].reshape(-1))

    def axis(self, default: int, position: int = 0) -> int:
        """The attribute `axis`, from the front."""
        return self.node.integer("axis", default) % max(len(self.shape(position)), 1)

    def settled(self, value: Padded) -> Padded:
        """The value without a cache's rows of padding where a known number has taken their place."""
        stale = value.stale
        for region in value.facts if stale is not None else ():
            assert stale is not None
            over = covering(region, stale)
            if over is not None and self.is_within(over):
                return replace(value, stale=None)
        return value

    def is_within(self, number: LinearNumber) -> bool:
        """Whether a number is not positive, as far as constants tell; others are looked at when the network runs."""
        if number.is_constant:
            return number.constant <= 0
        self.within.append(number)
        return True


Rule = Callable[[Case], tuple[Padded, ...]]


def has_trait(op_type: str, trait: Trait) -> bool:
    row = OPERATORS_BY_NAME.get(op_type)
    return row is not None and trait in row.traits


def one_stale(values: Sequence[Padded]) -> Stale | None:
    """The cache that some of the operands are. Raises Meets for two that differ."""
    found = list(dict.fromkeys(replace(value.stale, source="") for value in values if value.stale is not None))
    if len(found) > 1:
        raise Meets("two caches meet that are written at different places")
    return found[0] if found else None
