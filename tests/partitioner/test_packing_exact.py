"""The heuristics against proven optima: never below, and how far above."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.lab.offset_assignment_cpsat import exact_height, exact_spill
from benchmarks.lab.spill_allocation import SpillMemory, allocate
from partitioner.memory.offset_assignment import Item, lowest, pack, peak_bytes
from partitioner.memory.spill_policies import POLICIES, SpillValue

UNIT = 2
HIGHEST = 1.1
"""The worst ratio to the optimum that is let pass; `benchmarks/allocation.py` says what the ratios are."""


def random_values(seed: int) -> tuple[SpillValue, ...]:
    rng = np.random.default_rng(seed)
    made = []
    for number in range(int(rng.integers(4, 11))):
        slots = sorted({int(slot) for slot in rng.integers(0, 10, rng.integers(2, 5))})
        made.append(SpillValue(f"v{number}", int(rng.integers(1, 60)), tuple(slots)))
    return tuple(made)


def items_of(values: tuple[SpillValue, ...]) -> tuple[Item, ...]:
    return tuple(Item(v.name, v.slots[0], v.slots[-1], v.size_bytes) for v in values)


@pytest.mark.parametrize("seed", range(16))
def test_a_packing_is_never_below_the_optimum_and_little_above(seed: int) -> None:
    items = items_of(random_values(seed))
    best = exact_height(items, UNIT)
    assert best.proven
    aligned = [Item(i.name, i.first, i.last, -(-i.size_bytes // UNIT) * UNIT) for i in items]
    assert best.best_bytes >= peak_bytes(aligned)[0]
    _, height = lowest(aligned, UNIT)
    assert best.best_bytes <= height <= HIGHEST * best.best_bytes
    assert pack(items, best.best_bytes - 1, UNIT, {}).late is not None


@pytest.mark.parametrize("seed", range(16))
def test_no_policy_moves_less_than_the_optimum(seed: int) -> None:
    values = random_values(seed)
    peak, _ = peak_bytes(items_of(values))
    near = SpillMemory("L1", peak * 2 // 3, UNIT)
    best = exact_spill(values, near)
    assert best.proven
    moved = {
        name: allocate(values, (near, SpillMemory("DDR", 1 << 20)), policy).moved_bytes("L1")
        for name, policy in POLICIES.items()
    }
    assert 0 < best.best_bytes <= min(moved.values())


def test_nothing_moves_where_all_fits_and_what_is_fixed_stays() -> None:
    values = (SpillValue("a", 10, (0, 3)), SpillValue("b", 20, (1, 2, 4)))
    assert exact_spill(values, SpillMemory("L1", 30)).best_bytes == 0
    assert exact_spill(values, SpillMemory("L1", 29)).best_bytes == 20
    fixed = (SpillValue("a", 10, (0, 3), fixed=True), values[1])
    assert exact_spill(fixed, SpillMemory("L1", 29)).best_bytes == 60


def test_a_known_optimum() -> None:
    """Two items of each size, which meet crosswise."""
    items = (Item("a", 0, 2, 4), Item("b", 0, 0, 6), Item("c", 1, 3, 6), Item("d", 3, 3, 4))
    assert exact_height(items, 1).best_bytes == 10
