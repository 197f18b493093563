"""Candidates of segments: parts as plans have them that were timed, or that were ruled out as a whole."""

from __future__ import annotations

from dataclasses import replace

from codegen.neuralscale.target import TARGET, NeuralScaleTarget
from dsa_sched.search.candidates import Candidate, Config, costed
from dsa_sched.search.segments import RuledOut, SegmentCandidate, Timed, segment_candidates, with_ruled_out
from dsa_sched.stages.compilation import CompileOptions
from partitioner.context.plan_context import Context
from partitioner.ir.steps import RunStep
from partitioner.planners.levels import O0, O2, ImageGroup, Images, Segment, Segments, planner_of
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import stcp920
from tests.partitioner.test_local_scopes import chain

OPTIONS = CompileOptions(schedule=True)


def context() -> Context[NeuralScaleTarget]:
    graph, constants = chain(batch=2, layers=6)
    return Context(graph, constants, stcp920(), TARGET)


def planned(ctx: Context[NeuralScaleTarget], level: str) -> Candidate:
    return costed(ctx, Config(planner_of(level)), make_plan(ctx, planner_of(level)), OPTIONS)


def segments(made: SegmentCandidate) -> tuple[Segment, ...]:
    assert isinstance(made.candidate.config.planner, Segments)
    return made.candidate.config.planner.parts


def slow_in_front(ctx: Context[NeuralScaleTarget], candidate: Candidate, factor: float = 20.0) -> Timed:
    """As if a program of the plan had been timed, and had waited in its first layers."""
    cycles = factor * candidate.expected_cycles
    count = len(ctx.layers)
    return Timed(candidate, cycles, (cycles / 2, cycles / 2 - count, *(1.0 for _ in range(count - 2))))


def test_a_plan_that_was_ruled_out_as_a_whole_may_be_the_best_for_a_part() -> None:
    ctx = context()
    found = [slow_in_front(ctx, planned(ctx, "O0"))]
    least = 1.1 * found[0].cycles  # of O2 as a whole
    assert not list(segment_candidates(ctx, found, OPTIONS))
    made = list(with_ruled_out(ctx, found, [RuledOut(planned(ctx, "O2"), least)], OPTIONS, found[0].cycles))
    assert made
    for each in made:
        planners = [segment.planner for segment in segments(each)]
        assert set(planners) == {O0(), O2()}
        verify_plan(each.candidate.plan, ctx)
        assert make_plan(ctx, each.candidate.config.planner) == each.candidate.plan
        assert [decision.subject for decision in each.decisions] == ["level"] * len(planners)
    assert any(segments(each)[0].planner == O2() for each in made)


def test_what_is_known_of_the_whole_is_what_its_parts_make() -> None:
    """The same plan, but no program of it is below a hundred times what the best takes: no part is worth a try."""
    ctx = context()
    found = [slow_in_front(ctx, planned(ctx, "O0"))]
    ruled_out = [RuledOut(planned(ctx, "O2"), 100 * found[0].cycles)]
    assert not list(with_ruled_out(ctx, found, ruled_out, OPTIONS, found[0].cycles))


def test_nothing_is_ruled_out_that_was_timed_in_another_way() -> None:
    ctx = context()
    one = planned(ctx, "O2")
    found = [slow_in_front(ctx, planned(ctx, "O0")), slow_in_front(ctx, one)]
    ahead = RuledOut(replace(one, config=replace(one.config, ahead=True)), 0.0)
    assert not list(with_ruled_out(ctx, found, [ahead], OPTIONS, found[0].cycles))


def test_without_a_program_nothing_is_expected_of_parts() -> None:
    ctx = context()
    ruled_out = [RuledOut(planned(ctx, level), 0.0) for level in ("O1", "O2")]
    assert not list(with_ruled_out(ctx, [], ruled_out, OPTIONS, 1e9))


def test_groups_of_images_are_parts_too() -> None:
    ctx = context()
    groups = tuple(ImageGroup((layer.name,), (1, 1)) for layer in ctx.layers)
    images = costed(ctx, Config(Images(groups)), make_plan(ctx, Images(groups)), OPTIONS)
    found = [slow_in_front(ctx, planned(ctx, "O0"))]
    made = list(with_ruled_out(ctx, found, [RuledOut(images, 0.0)], OPTIONS, found[0].cycles))
    assert made
    for each in made:
        assert Images(groups) in {segment.planner for segment in segments(each)}
        assert "groups of up to" in str(each.candidate.config)
        assert make_plan(ctx, each.candidate.config.planner) == each.candidate.plan


def test_a_part_in_groups_of_images_is_that_part_of_the_whole() -> None:
    ctx = context()
    groups = tuple(ImageGroup((layer.name,), (1, 1)) for layer in ctx.layers)
    whole = make_plan(ctx, Images(groups))
    alone = make_plan(ctx, Segments((Segment(Images(groups), ctx.layers[0].name),)))
    assert (alone.groups, alone.steps) == (whole.groups, whole.steps)
    assert any(isinstance(step, RunStep) for step in alone.steps)
