"""Values that a loop keeps in registers: pointers that grow by a constant from iteration to iteration.

    uses of a loop's body --pins_of--> few pointers, so that every growing value lies near one

A value in an inner loop counts with its first iteration there, from which the inner loop's own pointers start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen.neuralscale.rolling.registers import NEAR, RollingValue
from codegen.neuralscale.rolling.repeats import Leaf, RepeatLoop


@dataclass(frozen=True, slots=True)
class Use:
    """A value that cores of the mask need."""

    value: RollingValue
    mask: int


Pin = Use


def shifted(strides: tuple[int, ...], level: int, stride: int) -> tuple[int, ...]:
    """The strides with one more for the loop at `level`."""
    return (*strides, *((0,) * (level - len(strides))), stride) if stride else strides


def uses_of(loop: RepeatLoop, values: Sequence[int], outer: Sequence[tuple[int, ...]], level: int) -> Iterator[Use]:
    """Every value of the body that grows in the loop at `level`; `outer` holds the strides of its values in the outer
    loops."""
    at = 0
    for node in loop.body:
        yield from _node_uses(node, at, values, outer, loop.strides, level)
        at += len(node.values)


def _node_uses(
    node: Leaf | RepeatLoop,
    at: int,
    values: Sequence[int],
    outer: Sequence[tuple[int, ...]],
    strides: Sequence[int],
    level: int,
) -> Iterator[Use]:
    if isinstance(node, Leaf):
        for place, spread in enumerate(node.step.spreads, at):
            if strides[place]:
                yield Use(RollingValue(values[place], spread, shifted(outer[place], level, strides[place])), node.mask)
        return
    for inner in node.body:
        yield from _node_uses(inner, at, values, outer, strides, level)
        at += len(inner.values)


def pins_of(uses: Iterator[Use], most: int) -> tuple[Pin, ...] | None:
    """At most `most` pointers; None where that many cannot serve all uses."""
    kinds: dict[tuple[object, ...], tuple[RollingValue, int, Counter[int]]] = {}
    for use in uses:
        value = use.value
        mask = use.mask if value.spread else 0
        first, union, bases = kinds.setdefault((value.spread, value.strides, mask), (value, 0, Counter()))
        bases[value.base] += 1
        kinds[value.spread, value.strides, mask] = first, union | use.mask, bases
    if len(kinds) > most:
        return None
    near = tuple(pin for kind in kinds.values() for pin in _clusters(*kind))
    return near if len(near) <= most else tuple(_one(*kind) for kind in kinds.values())


def _clusters(value: RollingValue, mask: int, bases: Counter[int]) -> Iterator[Pin]:
    """Pointers such that every base is near one: where several would do, the base with most uses."""
    rest = sorted(bases)
    while rest:
        reached = [base for base in rest if base - rest[0] <= 2 * NEAR]
        inside = [base for base in reached if base - rest[0] <= NEAR and reached[-1] - base <= NEAR]
        while not inside:
            reached.pop()
            inside = [base for base in reached if base - rest[0] <= NEAR and reached[-1] - base <= NEAR]
        anchor = max(inside, key=lambda base: (bases[base], -base))
        yield Pin(RollingValue(anchor, value.spread, value.strides), mask)
        rest = rest[len(reached) :]


def _one(value: RollingValue, mask: int, bases: Counter[int]) -> Pin:
    anchor = max(bases, key=lambda base: (bases[base], -base))
    return Pin(RollingValue(anchor, value.spread, value.strides), mask)
