"""Shares of links and memories, worked out by hand on the stcp920: LLB 256 bytes a cycle, 64 a core, DDR 27.0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw_models.chip import Chip
from isched.timing.contention import Contention, Mover
from tests.chip_runs import stcp920

IN = "llb_to_l1"
OUT = "l1_to_llb"


def shares(*movers: Mover, chip: Chip | None = None, clusters: int = 1) -> tuple[float, ...]:
    return Contention(chip or stcp920(), clusters).shares(movers)


def test_one_core_gets_its_own_link_whole() -> None:
    assert shares(Mover(IN, (3,))) == (64,)


def test_four_cores_do_not_disturb_each_other_and_eight_do() -> None:
    assert shares(*(Mover(IN, (core,)) for core in range(4))) == (64,) * 4
    assert shares(*(Mover(IN, (core,)) for core in range(8))) == (32,) * 8


def test_both_directions_share_the_memory() -> None:
    movers = [Mover(IN, (core,)) for core in range(4)] + [Mover(OUT, (core,)) for core in range(4, 8)]
    assert shares(*movers) == (32,) * 8


def test_who_cannot_use_its_part_leaves_it_to_the_others() -> None:
    """The DMA takes 27.0 of the LLB, the cores share what is left of 256; two DMA transfers share the DDR's 27.0."""
    for number in (7, 8):
        dma, *cores = shares(Mover("ddr_to_llb"), *(Mover(IN, (core,)) for core in range(number)))
        assert dma == 27.0
        assert cores == pytest.approx([(256 - 27.0) / number] * number)


def test_loads_and_stores_share_the_ddr() -> None:
    assert shares(Mover("ddr_to_llb"), Mover("ddr_to_llb")) == (27.0 / 2,) * 2
    assert shares(Mover("ddr_to_llb"), Mover("llb_to_ddr")) == (27.0 / 2,) * 2


def test_a_broadcast_takes_the_memory_once() -> None:
    assert shares(Mover(IN, tuple(range(8)))) == (64,)
    assert shares(Mover(IN, (0, 1, 2)), Mover(IN, (3,)), Mover(IN, (4,)), Mover(IN, (5,))) == (64,) * 4


def test_moves_between_cores_do_not_meet() -> None:
    assert shares(Mover("l1_to_l1", (0,)), Mover("l1_to_l1", (1,)), Mover(IN, (0,))) == (64, 64, 64)


def test_what_belongs_to_the_chip_is_divided_among_clusters() -> None:
    chip = stcp920()
    memories = tuple(m.model_copy(update={"scope": "chip"} if m.name == "DDR" else {}) for m in chip.memories)
    shared = chip.model_copy(update={"memories": memories})
    assert shares(Mover("ddr_to_llb"), chip=shared, clusters=4) == (27.0 / 4,)
    assert shares(Mover("ddr_to_llb"), clusters=4) == (27.0,)


movers_lists = st.lists(
    st.one_of(
        st.builds(Mover, st.sampled_from([IN, OUT, "l1_to_l1"]), st.tuples(st.integers(0, 7))),
        st.builds(Mover, st.sampled_from(["ddr_to_llb", "llb_to_ddr"])),
    ),
    min_size=1,
    max_size=12,
)


@given(movers_lists)
def test_nothing_carries_more_than_it_can_and_everyone_is_held_back_by_something_full(movers: list[Mover]) -> None:
    contention = Contention(stcp920())
    rates = contention.shares(tuple(movers))
    needs = [contention.resources(mover) for mover in movers]
    capacity = {resource: bandwidth for wanted in needs for resource, bandwidth in wanted}
    load = dict.fromkeys(capacity, 0.0)
    for rate, wanted in zip(rates, needs, strict=True):
        assert rate > 0
        for resource, _ in wanted:
            load[resource] += rate
    full = {resource for resource in capacity if load[resource] > capacity[resource] * (1 - 1e-9)}
    assert all(load[resource] <= capacity[resource] * (1 + 1e-9) for resource in capacity)
    for rate, wanted in zip(rates, needs, strict=True):
        mine = full & {resource for resource, _ in wanted}
        assert mine
        # Fair: on one of the full ones nobody has more.
        assert any(
            all(
                other <= rate * (1 + 1e-9)
                for other, its in zip(rates, needs, strict=True)
                if resource in {name for name, _ in its}
            )
            for resource in mine
        )


@given(movers_lists)
def test_the_order_of_the_transfers_does_not_matter(movers: list[Mover]) -> None:
    contention = Contention(stcp920())
    forward = contention.shares(tuple(movers))
    assert contention.shares(tuple(reversed(movers))) == tuple(reversed(forward))  # looked up: to the bit
    assert shares(*reversed(movers)) == pytest.approx(tuple(reversed(forward)))
