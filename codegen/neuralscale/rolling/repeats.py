"""Repeats become loops: code that occurs several times in a row, each time with its values one constant step further.

    Node, Node, ... --roll--> Loop(count, body, strides), Node, ...

Nodes have a number for their shape and a number that is linear in their values, so that equal differences are seen
without comparing values; the repeats found are then checked value by value. Loops are nodes again: short repeats are
found first, then repeats of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.rolling.alignment import SharedStep

LONGEST_PERIOD = 512
"""Largest number of nodes in the body of a loop; an inner loop counts as one."""

LEAST_SAVED = 10
"""Least number of steps that a loop saves, so that its own instructions are paid for."""

_WORD = (1 << 64) - 1
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One step; `shape` is equal for steps that may be iterations of one loop."""

    step: SharedStep
    shape: int
    key: int

    @property
    def values(self) -> tuple[int, ...]:
        return self.step.values

    @property
    def mask(self) -> int:
        return self.step.mask

    size = 1


@dataclass(frozen=True, slots=True)
class RepeatLoop:
    """A loop that runs the body `count` times; `values` are all values of its steps in the first iteration, in order,
    and `strides` their growth per iteration."""

    count: int
    body: tuple[Leaf | RepeatLoop, ...]
    values: tuple[int, ...]
    strides: tuple[int, ...]
    mask: int
    size: int
    shape: int
    key: int


Node = Leaf | RepeatLoop


def roll(steps: Sequence[SharedStep]) -> tuple[Node, ...]:
    """The steps in unchanged order, as the fewest nodes that their repeats allow."""
    shapes: dict[object, int] = {}
    line = _Line.of([_leaf(step, shapes) for step in steps])
    while True:
        before = len(line.nodes)
        period = 1
        while period <= min(LONGEST_PERIOD, len(line.nodes) // 2):
            nodes = _rolled(line, period, shapes)
            if nodes is None:
                period += 1
            else:
                line = _Line.of(nodes)
        if len(line.nodes) == before:
            return tuple(line.nodes)


@dataclass(frozen=True, slots=True)
class _Line:
    """Nodes in order, with their shapes and keys, the number of steps before each, and the total."""

    nodes: list[Node]
    shape: Ints
    key: NDArray[np.uint64]
    sizes: Ints

    @classmethod
    def of(cls, nodes: list[Node]) -> _Line:
        sizes = np.concatenate(([0], np.cumsum([node.size for node in nodes], dtype=np.int64)))
        shapes = np.array([node.shape for node in nodes], np.int64)
        return cls(nodes, shapes, np.array([node.key for node in nodes], np.uint64), sizes)


def _leaf(step: SharedStep, shapes: dict[object, int]) -> Leaf:
    what: object = (step.kind, step.mask, step.spreads)
    if step.kind.opaque is not None:
        what = len(shapes)  # equal to no other
    shape = shapes.setdefault(what, len(shapes))
    return Leaf(step, shape, sum(_factor(n) * value for n, value in enumerate(step.values)) & _WORD)


def _factor(number: int) -> int:
    """An odd 64-bit number that looks random (splitmix64)."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & _WORD
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _WORD
    return mixed ^ mixed >> 31 | 1


def _rolled(line: _Line, period: int, shapes: dict[object, int]) -> list[Node] | None:
    """The nodes with loops of `period` nodes per body; None where there are none."""
    nodes, shape, key, sizes = line.nodes, line.shape, line.key, line.sizes
    pairs = len(nodes) - period
    alike = shape[:pairs] == shape[period:]
    if int(np.count_nonzero(alike)) < period:
        return None
    step = key[period:] - key[:pairs]
    steady = np.zeros(pairs, np.bool_)
    steady[: max(pairs - period, 0)] = alike[:-period] & alike[period:] & (step[:-period] == step[period:])
    twice = _run_lengths(alike)
    starts = np.flatnonzero(twice >= period)
    if not len(starts):
        return None
    further = _run_lengths(steady)
    found: list[Node] = []
    done = at = 0
    while True:
        index = int(np.searchsorted(starts, at))
        if index >= len(starts):
            break
        begin, count = _best(int(starts[index]), period, twice, further, sizes)
        loop = _loop(nodes, begin, period, count, shapes) if count else None
        if loop is None:
            at = int(starts[index]) + 1
            continue
        found += [*nodes[done:begin], loop]
        done = at = begin + count * period
    return [*found, *nodes[done:]] if found else None


def _run_lengths(flags: NDArray[np.bool_]) -> Ints:
    """For each position, the number of flags in a row that are set from there on."""
    ends = np.append(np.flatnonzero(~flags), len(flags))
    places = np.arange(len(flags))
    return ends[np.searchsorted(ends, places)] - places


def _best(start: int, period: int, twice: Ints, further: Ints, sizes: Ints) -> tuple[int, int]:
    """(start, count) of the repeats that save most and begin less than a period later; count 0 where none is worth
    it."""
    best, chosen = LEAST_SAVED - 1, (start, 0)
    for begin in range(start, min(start + period, len(twice))):
        if twice[begin] < period:
            break
        count = 2 + int(further[begin]) // period
        saved = (count - 1) * int(sizes[begin + period] - sizes[begin])
        if saved > best:
            best, chosen = saved, (begin, count)
    return chosen


def _loop(nodes: list[Node], begin: int, period: int, count: int, shapes: dict[object, int]) -> RepeatLoop | None:
    """The loop of these nodes; None where its values turn out not to grow evenly."""
    body = tuple(nodes[begin : begin + period])
    turns = [
        [value for node in nodes[first : first + period] for value in node.values]
        for first in range(begin, begin + count * period, period)
    ]
    strides = tuple(b - a for a, b in zip(turns[0], turns[1], strict=True))
    for number, turn in enumerate(turns):
        if any(a + number * by != b for a, by, b in zip(turns[0], strides, turn, strict=True)):
            return None
    mask = 0
    for node in body:
        mask |= node.mask
    shape = shapes.setdefault((count, tuple(node.shape for node in body), strides), len(shapes))
    key = sum(_factor(1000 + n) * node.key for n, node in enumerate(body)) & _WORD
    return RepeatLoop(count, body, tuple(turns[0]), strides, mask, sum(n.size for n in body) + 2, shape, key)


def flattened(loop: RepeatLoop, values: Sequence[int]) -> list[tuple[Node, tuple[int, ...]]]:
    """The nodes of all iterations one after the other, each with its values, for a loop that begins with `values`."""
    found: list[tuple[Node, tuple[int, ...]]] = []
    for number in range(loop.count):
        at = 0
        for node in loop.body:
            end = at + len(node.values)
            turn = tuple(v + number * s for v, s in zip(values[at:end], loop.strides[at:end], strict=True))
            found.append((node, turn))
            at = end
    return found
