"""Floating-point registers of the values of one element that the core computes.

constants c, sources s, steps  -->  a register for each value; constants keep theirs, others give it back at their end
"""

from __future__ import annotations

from collections.abc import Sequence

FLOAT_REGISTERS = 32
"""Registers that the core has."""


def float_registers(constants: int, sources: int, steps: Sequence[tuple[str, int, int]]) -> list[int]:
    """The register of each value, as few as there may be; they may be more than the core has. Steps are (kind, number
    of a value, number of a value)."""
    count = constants + sources
    values = count + len(steps)
    last = dict.fromkeys(range(values), values - 1)
    for value, (_, first, second) in enumerate(steps, count):
        last[first] = last[second] = value
    free = list(range(max(values, FLOAT_REGISTERS) - 1, constants - 1, -1))
    at = list(range(constants))
    for value in range(constants, values):
        if value >= count:
            _, first, second = steps[value - count]
            over = {each for each in (first, second) if each >= constants and last[each] == value}
            free += sorted((at[each] for each in over), reverse=True)
        at.append(free.pop())
    return at
