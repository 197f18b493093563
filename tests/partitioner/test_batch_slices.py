"""Slices of the batch: graphs of a slice, plans that run groups slice by slice, and what their check refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pytest

from dsa_sched.frontend import load_model
from dsa_sched.stages.targets import judge_of, target_of
from hw_models.chip import Chip
from hw_models.errors import ModelError, PlanError
from isched.hazards.verify_places import verify_places
from isched.lowering.main_memory_allocation import place_group_tensors
from partitioner.context.batch_slices import batch_slice
from partitioner.context.plan_context import GraphContext, KernelContext
from partitioner.fusion.cache_hits import run_of
from partitioner.ir.graph import Graph, verify_graph
from partitioner.ir.kernels import Kernel, KernelFloor, KernelSpeed
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan, parse_plan
from partitioner.ir.slice_segments import slice_segments, slices_of
from partitioner.ir.steps import RunStep, Step
from partitioner.planners.kernel_level import kernels_in_place
from partitioner.planners.kernel_offers import KernelOffers
from partitioner.planners.levels import FastestKernels, FusedKernels, LayerKernels
from partitioner.planners.registry import make_kernel_plan
from partitioner.planners.sliced_kernels import sliced_context
from partitioner.verification.kernel_plan import verify_kernel_plan
from tests.partitioner.kernel_networks import GPU, LAUNCH_SECONDS, Moves, network

BATCH = 16
SHAPE = (BATCH, 128, 128, 32)
"""16 MiB: two values and more are beyond the part of the L2 that counts."""
START_SECONDS = 1e-6
ERROR = 0.05
US = 1e6


@dataclass(frozen=True)
class Sized(Moves):
    """One kernel per layer, which moves its values as large as they are in the graph; `slow` layers are bound by
    something else, and `rated` says whether such kernels were measured."""

    slow: frozenset[str] = frozenset()
    rated: bool = True

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        if len(layers) > 1:
            return ()
        names = dict.fromkeys((*layers[0].inputs(graph), layers[0].output))
        values = tuple((name, graph.by_name[name].size_bytes) for name in names)
        main = chip.memory("HBM")
        rate = (main.bandwidth_bytes_per_cycle or 0) * chip.clock_hz
        moving = sum(size for _, size in values) / rate
        other = 3 * moving if layers[0].name in self.slow else 0.0
        floors = (KernelFloor("HBM", moving), KernelFloor("tensor", other))
        speed = KernelSpeed("sized", START_SECONDS, (("HBM", 1.0), ("tensor", 1.0)), ERROR)
        measured = speed if self.rated else None
        return (Kernel("sized", launch_seconds=LAUNCH_SECONDS, floors=floors, values=values, measured=measured),)


def sized(**more: object) -> Sized:
    return Sized(lambda _name: 0, lambda _names: None, **more)  # type: ignore[arg-type]


def context(*lines: str, shape: Sequence[int] = SHAPE, outputs: str = "", **more: object) -> KernelContext:
    return GraphContext(*network(*lines, shape=shape, outputs=outputs), GPU, sized(**more))


def planned(ctx: KernelContext, slices: int | None = None) -> Plan:
    plan = make_kernel_plan(ctx, FusedKernels(), slices=slices)
    assert str(parse_plan(str(plan))) == str(plan)
    verify_places(plan, ctx.graph, place_group_tensors(ctx, 0, plan))
    return plan


def order(plan: Plan) -> str:
    return " ".join(f"{step.group}.{step.instance}" for step in plan.steps)


CHAIN = ("a x", "b a", "c b", "d c")


def test_a_chain_of_large_values_runs_slice_by_slice() -> None:
    ctx = context(*CHAIN)
    plan = planned(ctx)
    assert order(plan) == "a0.0 b1.0 c2.0 d3.0 a0.1 b1.1 c2.1 d3.1"
    (decision,) = [each for each in plan.decisions if each.subject == "batch"]
    assert decision.verdict == "in 2 slices: a0 to d3"
    whole = planned(ctx, 1)
    assert order(whole) == "a0.0 b1.0 c2.0 d3.0"
    saved = [sum(kernel.seconds for kernel in kernels_in_place(each, ctx).values()) for each in (whole, plan)]
    assert saved[1] * (1 + ERROR) < saved[0]
    assert f"take {saved[1] * US:.3f} us, whole kernels {saved[0] * US:.3f} us" in decision.reason
    assert make_kernel_plan(ctx, FastestKernels()).steps == plan.steps


def test_one_slice_of_what_a_segment_keeps_has_a_place() -> None:
    ctx = context(*CHAIN)
    plan = planned(ctx)
    places = {each.tensor: each for each in place_group_tensors(ctx, 0, plan)}
    assert places["a.out" if "a.out" in places else plan.groups[0].output].size_bytes == 8 << 20
    assert places[plan.groups[-1].output].size_bytes == 16 << 20
    kept = place_group_tensors(ctx, 0, plan, keep_values=True)
    assert all(each.size_bytes == 16 << 20 for each in kept)
    verify_places(plan, ctx.graph, kept)


def test_small_batches_and_kernels_without_rates_stay_whole() -> None:
    for ctx, why in (
        (context(*CHAIN, shape=(BATCH, 16, 16, 32)), "saves less than further launches cost"),
        (context(*CHAIN, rated=False), "no kernel has a measured rate"),
    ):
        plan = planned(ctx)
        assert order(plan) == "a0.0 b1.0 c2.0 d3.0"
        (decision,) = [each for each in plan.decisions if each.subject == "batch"]
        assert decision.verdict == "not in slices"
        assert why in decision.reason
    alone = planned(context(*CHAIN, shape=(1, 128, 128, 512)))
    assert not [each for each in alone.decisions if each.subject == "batch"]


def test_slices_are_made_where_they_are_asked_for() -> None:
    ctx = context(*CHAIN, shape=(BATCH, 16, 16, 32))
    plan = planned(ctx, 4)
    assert [(segment.count, len(segment.groups)) for segment in slice_segments(plan)] == [(4, 4)]
    assert slices_of(make_kernel_plan(ctx, LayerKernels(), slices=2).groups[0]) == 2
    forced = make_kernel_plan(ctx, LayerKernels(), forced=("b1",), slices=2)
    assert [(segment.count, len(segment.groups)) for segment in slice_segments(forced)] == [(1, 1), (1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("lines", "shape", "count", "words"),
    [
        (CHAIN, SHAPE, 3, "--slices 3: needs a number of slices that divides the batch; has a batch of 16"),
        (("a x",), SHAPE, 2, "--slices 2: needs two kernels in a row .*; has none in net"),
        (CHAIN, (2, 1, 1, 2), 2, "--slices 2: needs two kernels in a row .* begin at multiples of 16 bytes"),
    ],
)
def test_slices_that_cannot_be_are_refused(lines: Sequence[str], shape: Sequence[int], count: int, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        planned(context(*lines, shape=shape), count)


# What the check of a plan refuses.


def damaged(plan: Plan) -> Iterator[tuple[str, Plan]]:
    steps = plan.steps

    def of(*changed: Step) -> Plan:
        return replace(plan, steps=changed)

    yield "every instance of every group once", of(*steps[:4], *steps[:4])
    yield "2 slices of a0, b1, c2, d3, one after the other", of(*steps[:5], steps[6], steps[5], steps[7])
    yield "every instance of every group once", of(*steps[:-1])
    yield "b1.* which c2 reads", of(steps[0], steps[2], steps[1], *steps[3:5], steps[6], steps[5], steps[7])
    first = steps[0]
    assert isinstance(first, RunStep)
    yield "needs slice 0 of 2", of(replace(first, box=((0, BATCH), *first.box[1:])), *steps[1:])
    points = tuple(range(10**4))
    many = replace(plan.groups[0], split=replace(plan.groups[0].split, cuts=tuple((axis, points) for axis in range(4))))
    yield "every instance of every group once", replace(plan, groups=(many, *plan.groups[1:]))
    unequal = replace(plan.groups[0], split=replace(plan.groups[0].split, cuts=((0, (0, 4, BATCH)),)))
    yield "equal slices", replace(plan, groups=(unequal, *plan.groups[1:]))
    three = tuple(replace(group, split=replace(group.split, cuts=((0, (0, 5, 10, BATCH)),))) for group in plan.groups)
    thrice = tuple(replace(step, instance=n) for n in range(3) for step in steps[:4] if isinstance(step, RunStep))
    yield "needs a batch that can be cut; has 3 slices of 16", replace(plan, groups=three, steps=thrice)


def test_more_slices_than_steps_are_refused_at_once() -> None:
    plan = planned(context(*CHAIN))
    points = tuple(range(10**4))
    many = replace(plan.groups[0], split=replace(plan.groups[0].split, cuts=tuple((axis, points) for axis in range(4))))
    with pytest.raises(PlanError, match="one after the other; has fewer"):
        slice_segments(replace(plan, groups=(many, *plan.groups[1:])))


def test_damaged_plans_are_refused() -> None:
    ctx = context(*CHAIN)
    for words, plan in damaged(planned(ctx)):
        with pytest.raises(PlanError, match=words):
            verify_kernel_plan(plan, ctx)


def test_slices_over_each_other_are_refused() -> None:
    ctx = context(*CHAIN)
    plan = planned(ctx)
    places = place_group_tensors(ctx, 0, plan)
    own = {each.tensor: each for each in places}
    a, b, d = (own[plan.groups[number].output] for number in (0, 1, 3))
    for words, changed in (
        ("on other bytes than what it reads", replace(b, offset_bytes=a.offset_bytes)),
        ("a place of", replace(b, size_bytes=b.size_bytes // 2)),
        ("needs earlier slices of|on other bytes", replace(d, offset_bytes=a.offset_bytes)),
        ("the output", replace(d, size_bytes=d.size_bytes // 2)),
    ):
        with pytest.raises(PlanError, match=words):
            verify_places(plan, ctx.graph, tuple(changed if each.tensor == changed.tensor else each for each in places))


# Drawn networks.


def drawn(seed: int) -> KernelContext:
    """A chain with some residuals and views, of which some layers are bound by something else."""
    rng = random.Random(seed)
    names = "abcdefghij"[: rng.randint(3, 8)]
    lines, made = [], ["x"]
    for name in names:
        if rng.random() < 0.1 and made[-1] != "v" and "v" not in made:
            lines.append(f"v {made[-1]}")
            made.append("v")
        other = rng.choice(made[-3:]) if rng.random() < 0.3 else made[-1]
        operands = dict.fromkeys((made[-1], other)) if "v" not in made else (made[-1],)
        lines.append(f"{name} {' '.join(operands)}")
        made.append(name)
    slow = frozenset(f"{name}{number}" for number, name in enumerate(names) if rng.random() < 0.3)
    shape = (rng.choice((4, 8, 16)), 128, 128, rng.choice((16, 32, 64, 128)))
    return context(*lines, shape=shape, slow=slow)


def least(ctx: KernelContext) -> float:
    """Seconds of the best way to run the layers in whole pieces and in segments, these with their error, by trying all
    borders."""
    batch, count = ctx.graph.by_name["x"].shape[0], len(ctx.layers)
    parts = [batch_slice(ctx.graph, slices) for slices in (2, 4, 8, 16) if batch % slices == 0]
    own = [(part.count, KernelOffers(sliced_context(ctx, part))) for part in parts if part]
    best = [0.0]
    for end in range(1, count + 1):
        ways = [best[start] + run_alone(KernelOffers(ctx), start, end) for start in range(end)]
        for start in range(end):
            if sum(not layer.is_view(ctx.graph) for layer in ctx.layers[start:end]) > 1:
                ways += (best[start] + n * run_alone(offers, start, end) * (1 + ERROR) for n, offers in own)
        best.append(min(ways))
    return best[-1]


def run_alone(offers: KernelOffers, start: int, end: int) -> float:
    """Seconds of these layers one after the other, with nothing in the cache before."""
    return run_of(offers.values, map(offers.alone, range(start, end))).cost


def priced(ctx: KernelContext, plan: Plan) -> float:
    """Seconds of a plan's groups, of those in slices with their error."""
    kernels = kernels_in_place(plan, ctx)
    return sum(
        kernels[group.name].seconds * (1 + ERROR if slices_of(group) > 1 else 1.0)
        for group in plan.groups
        if group.kernel
    )


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(6, 56))])
def test_drawn_networks_are_cut_where_that_is_best(seed: int) -> None:
    ctx = drawn(seed)
    plan, whole = planned(ctx), planned(ctx, 1)
    assert priced(ctx, plan) <= priced(ctx, whole) * (1 + 1e-9)
    assert priced(ctx, plan) <= least(ctx) * (1 + 1e-9)
    for count in (2, 4):
        forced = planned(ctx, count)
        assert {slices_of(group) for group in forced.groups} - {1} == {count}


# Graphs of a slice.

MINIS = ["mobilenet_v2-mini", *(pytest.param(name, marks=pytest.mark.nightly) for name in (
    "vit_b16-mini", "bert_base-mini", "conformer_m-mini", "convnext_t-mini", "efficientnet_b0-mini", "gpt2-mini",
    "inception_v3-mini", "swin_t-mini", "whisper_encoder-mini", "resnet18_tailor-mini", "squeezenet",
))]  # fmt: skip
TEXTS = {"gpt2-mini": (16, ("input_ids",)), "bert_base-mini": (16, ("input_ids", "attention_mask", "token_type_ids"))}


@pytest.mark.parametrize("name", MINIS)
def test_a_slice_is_the_network_of_a_smaller_batch(name: str) -> None:
    """Operators that can be cut are those that the frontend makes for half of the batch, to the letter."""
    judge = judge_of(GPU, target_of(GPU))

    def graph_of(batch: int) -> Graph:
        words, inputs = TEXTS.get(name, (0, ()))
        shapes = dict.fromkeys(inputs, (batch, words))
        return load_model(name, shapes, None if inputs else batch, judge).graph

    whole, half = graph_of(4), graph_of(2)
    part = batch_slice(whole, 2)
    assert part is not None
    verify_graph(part.graph)
    assert all(op == half.op_by_name[op.name] for op in part.graph.ops)
    assert all(part.graph.by_name[value] == half.by_name[value] for value in part.values)
    assert len(part.graph.ops) > len(whole.ops) / 2
    if len(part.graph.ops) == len(whole.ops):
        assert str(part.graph) == str(half)


def test_operators_that_mix_images_are_not_cut() -> None:
    graph, _ = network("a x", "b a", shape=(8, 2, 2, 8))
    assert batch_slice(graph, 3) is None
    assert batch_slice(graph, 1) is None
    part = batch_slice(graph, 2, {graph.ops[1].name})
    assert part is not None
    assert part.graph.inputs == graph.ops[1].inputs
    for first, second in combinations(range(2), 2):
        distance = part.offset_bytes(graph.outputs[0], second) - part.offset_bytes(graph.outputs[0], first)
        assert distance == graph.by_name[graph.outputs[0]].size_bytes // 2
