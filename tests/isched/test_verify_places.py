"""Places in the main memory of plans whose kernels are whole groups: those made are right, wrong ones are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw_models.errors import DoesNotFit, PlanError
from isched.hazards.verify_places import verify_places
from isched.lowering.main_memory_allocation import place_group_tensors
from isched.program.program import TensorPlacement
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Plan
from partitioner.planners.levels import KERNEL_PLANNERS, LayerKernels
from partitioner.planners.registry import make_kernel_plan
from tests.partition_graphs import graphs
from tests.partitioner.kernel_networks import Names, network
from tests.partitioner.test_kernel_level import CHIP, Offers, context, one_second_each

Places = tuple[TensorPlacement, ...]


def placed(lines: tuple[str, ...], **options: bool) -> tuple[Graph, Plan, Places]:
    made = network(*lines)
    ctx = context(made, one_second_each())
    plan = make_kernel_plan(ctx, LayerKernels())
    return made[0], plan, place_group_tensors(ctx, 64, plan, **options)


@given(made=graphs(most_patterns=4), seed=st.integers(0, 99), keep=st.booleans(), isolated=st.booleans())
def test_places_of_random_plans_hold_what_is_read(
    made: tuple[Graph, Constants], seed: int, keep: bool, isolated: bool
) -> None:
    def offer(names: Names) -> float | None:
        return None if len(names) > 1 and sha256(f"{seed} {names}".encode()).digest()[0] > 100 else 1.0

    level = "O0" if isolated else "O3"
    ctx = context(made, Offers(offer))
    plan = make_kernel_plan(ctx, KERNEL_PLANNERS[level]())
    places = place_group_tensors(ctx, 64, plan, keep or isolated, isolated)
    verify_places(plan, made[0], places)
    assert all(place.offset_bytes >= 64 for place in places)


def test_values_share_memory_by_lifetime() -> None:
    """Of a chain only two values are alive at a time; all have places of their own where they are kept."""
    lines = ("a x", "b a", "c b", "d c", "e d")
    _, _, shared = placed(lines)
    _, _, kept = placed(lines, keep_values=True)
    assert len({place.offset_bytes for place in shared}) == 4  # input, output, two that share a place
    assert len({place.offset_bytes for place in kept}) == 6


def moved(places: Places, tensor: str, onto: str) -> Places:
    there = next(place for place in places if place.tensor == onto).offset_bytes
    return tuple(replace(place, offset_bytes=there) if place.tensor == tensor else place for place in places)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda p: moved(p, "b.out", "a.out"),
            "step b1: needs b.out on other bytes than what it reads; has a.out there",
        ),
        (
            lambda p: moved(p, "c.out", "a.out"),
            "step d3: needs a.out, which it reads; has bytes that another value overwrote",
        ),
        (lambda p: moved(p, "d.out", "x"), None),  # x is read no more
    ],
)
def test_places_that_overlap_too_soon_are_found(change: Callable[[Places], Places], said: str | None) -> None:
    graph, plan, places = placed(("a x", "b a", "c b", "d a c"), keep_values=True)
    named = {op.outputs[0]: f"{op.kind}.out" for op in graph.ops} | {"x": "x"}
    renamed = {plain: real for real, plain in named.items()}
    plain = tuple(replace(place, tensor=named[place.tensor]) for place in places)
    wrong = tuple(replace(place, tensor=renamed[place.tensor]) for place in change(plain))
    if said is None:
        verify_places(plan, graph, wrong)
        return
    with pytest.raises(PlanError) as refused:
        verify_places(plan, graph, wrong)
    text = str(refused.value)
    for real, name in named.items():
        text = text.replace(real, name)
    assert text == said


def test_an_input_that_shares_bytes_is_found() -> None:
    graph, plan, places = placed(("a x", "b a"), isolated=True, keep_values=True)
    probe = next(place for place in places if place.kind == "probe")
    with pytest.raises(PlanError, match="needs bytes of its own"):
        verify_places(plan, graph, moved(places, probe.tensor, "x"))


def test_what_does_not_fit_says_who_holds_the_memory() -> None:
    ctx = context(network("a x", "b a", "c b"), one_second_each())
    plan = make_kernel_plan(ctx, LayerKernels())
    with pytest.raises(DoesNotFit) as refused:
        place_group_tensors(ctx, CHIP.memory("DDR").size_bytes - 300, plan)
    assert "from a0 to b1" in str(refused.value)
