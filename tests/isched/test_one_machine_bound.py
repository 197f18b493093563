"""Starts of works that share machines: the compiled loop beside its definition in plain Python, on random graphs."""

from __future__ import annotations

from math import inf
from random import Random

import numpy as np
import pytest

from isched.bounds.one_machine_bound import BLOCK, starts

Claims = list[tuple[int, float, float, float]]
"""Of one machine: (work, head, cycles, tail)."""


def by_definition(
    before: list[list[int]], cycles: list[float], judged: list[bool], machines: list[Claims], earliest: float
) -> list[float]:
    """Every work asks all claims of all works before it."""
    found: list[float] = []
    ancestors: list[set[int]] = []
    for number, others in enumerate(before):
        mine = set(others).union(*(ancestors[other] for other in others))
        start = max((found[other] + cycles[other] for other in others), default=earliest)
        start = max(start, earliest)
        for claims in machines if judged[number] else ():
            head, total, tail = inf, 0.0, inf
            for work, claim_head, kept, claim_tail in reversed(claims):
                if work in mine:  # with all that come behind it in the list
                    head, total, tail = min(head, found[work] + claim_head), total + kept, min(tail, claim_tail)
                    start = max(start, head + total + tail)
        found.append(start)
        ancestors.append(mine)
    return found


def compiled(
    before: list[list[int]], cycles: list[float], judged: list[bool], machines: list[Claims], earliest: float
) -> list[float]:
    works = [claim[0] for claims in machines for claim in claims]
    bit = np.full(len(before), -1, np.int64)
    claimed = sorted(set(works))
    bit[claimed] = np.arange(len(claimed))
    numbers = np.array([claim[1:] for claims in machines for claim in claims], np.float64).reshape(-1, 3).T.copy()
    result: list[float] = starts(
        np.cumsum([0, *map(len, before)], dtype=np.int64),
        np.array([other for others in before for other in others], np.int64),
        np.array(cycles, np.float64),
        earliest,
        bit,
        np.array(judged, np.uint8),
        np.cumsum([0, *map(len, machines)], dtype=np.int64),
        np.array(works, np.int64),
        numbers,
    ).tolist()
    return result


def phases(draw: Random, count: int) -> list[list[int]]:
    """Works side by side, then one that is behind all of them, or most: machines bind within a phase."""
    before: list[list[int]] = []
    joint, phase = -1, list[int]()
    for n in range(count):
        if phase and draw.random() < 0.02:
            joint = n
            before.append(sorted(draw.sample(phase, max(1, draw.choice((1, len(phase) - 2, len(phase)))))))
            phase = []
        else:
            before.append([joint] if joint >= 0 else [])
            phase.append(n)
    return before


def anyhow(draw: Random, count: int) -> list[list[int]]:
    """A few works before each, near or anywhere."""
    reach, most = draw.choice((3, 20, count)), draw.choice((1, 2, 4))
    return [sorted({draw.randrange(max(0, n - reach), n) for _ in range(min(n, most))}) for n in range(count)]


@pytest.mark.parametrize("seed", range(32))
def test_starts_are_those_of_the_definition(seed: int) -> None:
    """Of machines that bind and machines that hardly work, and of works that nothing follows."""
    draw = Random(seed)
    count = draw.choice((1, 5, 3 * BLOCK, 12 * BLOCK))
    before = draw.choice((phases, phases, anyhow))(draw, count)
    cycles = [float(draw.randint(0, 200)) for _ in range(count)]
    judged = [draw.random() < 0.7 for _ in range(count)]
    plain = by_definition(before, cycles, judged, [], 1.0)
    machines: list[Claims] = []
    for busy in draw.sample((0.02, 0.3, 1.0), draw.randint(1, 3)):
        claims: Claims = []
        for n in range(count):
            if draw.random() < 0.8:
                head = (1.0 - busy) * draw.uniform(0.0, cycles[n])
                kept = busy * (cycles[n] - head)
                claims.append((n, head, kept, draw.uniform(0.0, cycles[n] - head - kept)))
        machines.append(sorted(claims, key=lambda claim: plain[claim[0]] + claim[1]))
    expected = by_definition(before, cycles, judged, machines, 1.0)
    assert compiled(before, cycles, judged, machines, 1.0) == pytest.approx(expected, rel=0.0, abs=1e-3)


def test_no_works() -> None:
    assert compiled([], [], [], [[]], 0.0) == []
