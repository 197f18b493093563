"""Integers that follow from inputs and from the number of rows: what they are when rows of padding are added.

    length - rows, with length and rows one larger for each row of padding  -->  the same number

An input that counts rows, such as the length of a cache with the new rows, must count those of padding too; others must
not. Which inputs count follows from what their numbers are used for: `Counting.require_same` collects that, and
`Counting.solved` finds the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LinearNumber:
    """constant + rows * (number of rows) + sum of coefficient * input."""

    constant: int = 0
    rows: int = 0
    inputs: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: LinearNumber) -> LinearNumber:
        joined = dict(self.inputs)
        for name, count in other.inputs:
            joined[name] = joined.get(name, 0) + count
        inputs = tuple(sorted((name, count) for name, count in joined.items() if count))
        return LinearNumber(self.constant + other.constant, self.rows + other.rows, inputs)

    def times(self, factor: int) -> LinearNumber:
        inputs = tuple((name, count * factor) for name, count in self.inputs if factor)
        return LinearNumber(self.constant * factor, self.rows * factor, inputs)

    def __sub__(self, other: LinearNumber) -> LinearNumber:
        return self + other.times(-1)

    @property
    def is_constant(self) -> bool:
        return not self.rows and not self.inputs

    @staticmethod
    def of_input(name: str) -> LinearNumber:
        return LinearNumber(inputs=((name, 1),))


@dataclass(slots=True)
class Counting:
    """Requirements on what inputs count, each with the node that has it."""

    required: list[tuple[LinearNumber, str]] = field(default_factory=list)

    def require_same(self, number: LinearNumber, node: str) -> None:
        """Require that a number does not change with rows of padding."""
        if number.rows or number.inputs:
            self.required.append((number, node))

    def solved(self) -> tuple[dict[str, int], list[str]]:
        """How much each input grows with a row of padding, those left out by nothing; and the nodes whose requirements
        no such growth meets."""
        found: dict[str, int] = {}
        while more := self._next(found):
            found |= more
        broken = [node for number, node in self.required if _growth(number, found)]
        return {name: count for name, count in found.items() if count}, list(dict.fromkeys(broken))

    def _next(self, found: Mapping[str, int]) -> dict[str, int]:
        """The growth of one more input, that of a requirement in which it alone is not known."""
        open_ones = [(number, [item for item in number.inputs if item[0] not in found]) for number, _ in self.required]
        for number, unknown in open_ones:
            if len(unknown) == 1:
                name, factor = unknown[0]
                return {name: -_growth(number, found) // factor}
        unknown_names = [name for _, unknown in open_ones for name, _ in unknown]
        return {unknown_names[0]: 0} if unknown_names else {}


def _growth(number: LinearNumber, found: Mapping[str, int]) -> int:
    return number.rows + sum(count * found.get(name, 0) for name, count in number.inputs)
