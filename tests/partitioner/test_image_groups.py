"""Groups in instances of given images: sums of least cost, instances that differ in size and spread, refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import Model, load_model
from hw_models.errors import DoesNotFit, ModelError, PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.plan import Exchange, Plan, parse_plan
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.image_groups import cheapest_division, plan_like, sizes_to_try
from partitioner.planners.levels import IMAGES, O3, ImageGroup, Images, planner_of
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_layout import verify_layout
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import small_chip, stcp920
from tests.group_plans import check_against_o0
from tests.partition_graphs import Seeded
from tests.small_networks import save_small_network

KIB = 1024
CHIP = small_chip(8, data_bytes=24 * KIB, weights_bytes=32 * KIB, im_bytes=32 * KIB, llb_bytes=512 * KIB)


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_network("squeezenet", 32, tmp_path_factory.mktemp("model"), "r12")


@cache
def loaded(path: Path, batch: int) -> Model:
    return load_model(path, {}, batch)


def context(path: Path, batch: int) -> PlanContext:
    model = loaded(path, batch)
    return PlanContext(model.graph, model.constants, CHIP, TARGET)


def like(path: Path, batch: int, other: int) -> tuple[PlanContext, tuple[ImageGroup, ...], Plan]:
    """A batch in groups as for another one."""
    ctx = context(path, batch)
    found = plan_like(ctx, make_plan(context(path, other), O3()))
    assert found is not None
    groups, plan = found
    assert isinstance(plan, Plan)
    return ctx, groups, plan


def test_sizes_to_try_are_those_from_which_batches_are_put_together() -> None:
    assert sizes_to_try(12, 8) == (1, 2, 4, 6, 8)
    assert sizes_to_try(20, 16) == (1, 2, 4, 8, 10, 16)
    assert sizes_to_try(24, 1) == (1,)


@pytest.mark.parametrize("seed", range(20))
def test_the_division_of_least_cost_is_found(seed: int) -> None:
    choose = Seeded(seed)
    batch = choose.number(1, 9)
    costs = {size: float(choose.number(1, 40)) for size in range(1, 7) if choose.number(0, 2)}
    sums = [
        parts
        for count in range(1, batch + 1)
        for parts in combinations_with_replacement(sorted(costs), count)
        if sum(parts) == batch
    ]
    found = cheapest_division(batch, costs)
    if not sums:
        assert found is None
        return
    assert found is not None
    assert sum(found) == batch
    assert list(found) == sorted(found, reverse=True)
    assert sum(costs[size] for size in found) == min(sum(costs[size] for size in parts) for parts in sums)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> tuple[PlanContext, Plan]:
    """Three images on four cores, the whole network one group: two images, each over two cores, then one over four."""
    path = save_small_network("squeezenet", 64, tmp_path_factory.mktemp("uneven"), "r12")
    model = load_model(path, {}, 3)
    ctx = PlanContext(model.graph, model.constants, small_chip(4), TARGET)
    whole = ImageGroup(tuple(layer.name for layer in ctx.layers), (2, 1))
    return ctx, make_plan(ctx, Images((whole,)))


def test_instances_of_two_sizes_are_spread_in_their_own_ways(uneven: tuple[PlanContext, Plan]) -> None:
    ctx, plan = uneven
    (group,) = plan.groups
    assert plan.level == IMAGES
    assert group.split.cuts == ((0, (0, 2, 3)),)
    assert [(each.pieces[0], _instances(each)) for each in group.exchanges] == [(2, (0,)), (1, (1,))]
    assert parse_plan(str(plan)) == plan
    verify_layout(lay_out(plan, ctx), plan, ctx)
    check_against_o0(ctx.graph, ctx.constants, ctx.chip, plan)


def _instances(exchange: object) -> tuple[int, ...]:
    return exchange.instances if isinstance(exchange, Exchange) else ()


@pytest.mark.spread(2)
@pytest.mark.parametrize(("batch", "other"), [(3, 2), (5, 4), (6, 8), (12, 8)])
def test_values_are_those_of_o0(squeezenet: Path, batch: int, other: int) -> None:
    ctx, groups, plan = like(squeezenet, batch, other)
    check_against_o0(ctx.graph, ctx.constants, CHIP, plan)
    assert make_plan(ctx, Images(groups)) == plan


@pytest.mark.spread(2)
@pytest.mark.parametrize("seed", range(4))
def test_any_division_of_each_group_has_the_values_of_o0(squeezenet: Path, seed: int) -> None:
    """Whatever is fast: sizes of all kinds after each other, in any order."""
    choose, batch = Seeded(seed), 5
    ctx = context(squeezenet, batch)
    found = plan_like(ctx, make_plan(context(squeezenet, 4), O3()))
    assert found is not None
    groups = tuple(replace(group, images=_drawn(choose, batch, max(group.images))) for group in found[0])
    try:
        plan = make_plan(ctx, Images(groups))
    except DoesNotFit:
        plan = make_plan(ctx, Images(tuple(replace(group, images=(1,) * batch) for group in found[0])))
    check_against_o0(ctx.graph, ctx.constants, CHIP, plan)


def _drawn(choose: Seeded, batch: int, most: int) -> tuple[int, ...]:
    images: list[int] = []
    while batch:
        images.append(choose.number(1, min(batch, most)))
        batch -= images[-1]
    return tuple(images)


@pytest.mark.nightly
def test_twelve_images_of_resnet50_are_eight_and_four() -> None:
    """O3 refuses the merges of 16 images for 12, because no such factor divides them; here the groups are the same."""

    def ctx(batch: int) -> PlanContext:
        model = load_model("resnet50", {}, batch)
        return PlanContext(model.graph, model.constants, stcp920(), TARGET)

    found = plan_like(ctx(12), make_plan(ctx(16), O3()))
    assert found is not None
    assert [group.images for group in found[0]] == [(2,) * 6, (4,) * 3, (8, 4), (12,)]


def test_items_that_meet_are_cut_into_no_images(squeezenet: Path) -> None:
    """A plan of another network has groups that this one lacks."""
    other = make_plan(context(squeezenet, 2), O3())
    renamed = replace(other.groups[0], layers=(replace(other.groups[0].layers[0], name="nobody"),))
    assert plan_like(context(squeezenet, 3), replace(other, groups=(renamed, *other.groups[1:]))) is None


def test_refusals(squeezenet: Path) -> None:
    ctx, groups, _ = like(squeezenet, 3, 2)
    with pytest.raises(ModelError, match=r"--level: needs a planner: .*; has images"):
        make_plan(ctx, planner_of(IMAGES))
    with pytest.raises(ModelError, match=f"groups of images: needs each of the {len(ctx.layers)} layers of .* once"):
        make_plan(ctx, Images((replace(groups[0], layers=groups[0].layers * 2), *groups[1:])))
    wrong = (*groups[:-1], replace(groups[-1], images=(2,)))
    with pytest.raises(ModelError, match=r"needs instances of 3 images in all; has \[2\]"):
        make_plan(ctx, Images(wrong))


def test_exchanges_of_instances_are_checked(uneven: tuple[PlanContext, Plan]) -> None:
    ctx, plan = uneven
    (group,) = plan.groups
    first, second = (each for each in group.exchanges if isinstance(each, Exchange))

    def verified(*exchanges: Exchange) -> None:
        verify_plan(replace(plan, groups=(replace(group, exchanges=exchanges),)), ctx)

    verified(first, second)
    with pytest.raises(PlanError, match="needs instances below 2 that exchange r2; has 2"):
        verified(first, second, replace(second, instances=(2,)))
    with pytest.raises(PlanError, match="needs each value cut in one way; has two ways in instance 1"):
        verified(first, second, replace(first, instances=(1,)))
