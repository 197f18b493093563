"""Loops over boxes of dense tensors, as few as possible, and blocks of an extent.

box [2, 6, 6, 8] of tensors of the same shape  -->  one loop of 576
blocks(40, 16)  -->  (0, 2, 16), (32, 1, 8)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.ir.regions import Box


@dataclass(frozen=True, slots=True)
class BoxLoop:
    """A loop of `count` passes, and what each of them adds, by name."""

    count: int
    steps: tuple[tuple[str, int], ...]

    def step(self, name: str) -> int:
        return dict(self.steps).get(name, 0)


def box_loop(count: int, **steps: int) -> BoxLoop:
    return BoxLoop(count, tuple(steps.items()))


def merged(axes: Sequence[BoxLoop]) -> tuple[BoxLoop, ...]:
    """The axes, outermost first, with those of one pass left out, and two made one where the outer one goes on where
    the inner one ends."""
    result: list[BoxLoop] = []
    for each in axes:
        if each.count == 1:
            continue
        before = result[-1] if result else None
        names = dict.fromkeys(name for name, _ in (*each.steps, *(before.steps if before else ())))
        if before is not None and all(before.step(name) == each.count * each.step(name) for name in names):
            result[-1] = BoxLoop(before.count * each.count, each.steps)
        else:
            result.append(each)
    return tuple(result)


def blocks(extent: int, size: int) -> tuple[tuple[int, int, int], ...]:
    """The whole blocks of an extent and what is left, each as (start, number of blocks, their extent)."""
    whole, rest = divmod(extent, size)
    found = ((0, whole, size), (whole * size, 1, rest))
    return tuple((start, number, block) for start, number, block in found if number and block)


def strides(shape: Sequence[int], item_bytes: int) -> tuple[int, ...]:
    """Bytes from one index to the next along each axis of a dense array."""
    found = [item_bytes]
    for extent in reversed(shape[1:]):
        found.append(found[-1] * extent)
    return tuple(reversed(found)) if shape else ()


def start_of(shape: Sequence[int], item_bytes: int, box: Box) -> int:
    """Bytes from the start of a dense array to the first element of a box."""
    return sum(low * step for (low, _), step in zip(box, strides(shape, item_bytes), strict=True))


def broadcast_steps(shape: Sequence[int], item_bytes: int, rank: int) -> tuple[int, ...]:
    """Bytes from one index to the next along each of `rank` axes, for an array that is repeated along those that it
    lacks or in which it has one element."""
    own = tuple(0 if extent == 1 else step for extent, step in zip(shape, strides(shape, item_bytes), strict=True))
    return (0,) * (rank - len(own)) + own
