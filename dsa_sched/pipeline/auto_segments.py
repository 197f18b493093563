"""Candidates of level auto beyond whole levels: parts of the network, each as the level has it that is fastest there.

    programs that were timed --cycles of each layer, by the clock and by the cost model--> columns
    columns --cheapest division, borders counted more or less--> candidates, the fewest borders first

What binds in a run is told layer by layer by its critical path, but a layer's neighbours have their share in it; the
cost model sees layers by themselves, but not what waits for what. Divisions by both are offered, and the clock decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen.target import TileTarget
from dsa_sched.pipeline.auto_floors import has_region
from dsa_sched.pipeline.auto_ways import SUBJECT, Candidate, Way, costed
from dsa_sched.pipeline.compilation import CompileOptions
from isched.timing.cycle_model import EndedRun
from isched.timing.waiting_by_part import path_cycles_by
from partitioner.context.plan_context import Context
from partitioner.ir.decisions import Decision
from partitioner.memory.no_plan import NoPlan
from partitioner.planners.levels import SEGMENTS, Segment
from partitioner.planners.segment_choice import Column, Division, column_of, divide, expected_layer_cycles
from partitioner.planners.segments import PlanPart, fit_segments
from partitioner.verification.verify_plan import verify_plan

__all__ = ["MOST_TIMES", "SegmentCandidate", "Timed", "segment_candidates", "timed"]

MOST_TIMES = 1.6
"""Programs that take up to so many times as long as the best are timed to the end: parts of them may be faster."""

BORDER_WEIGHTS = (4.0, 2.0, 1.0, 8.0)
"""How often a border's cost counts, one division after the other: a change of plans also breaks what runs ahead."""

LEAST_GAIN = 0.02
"""Of a division that is tried, by what is expected of it: changing plans costs more than is known beforehand."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate whose program was timed to the end: its cycles, and those of each layer on its critical path."""

    candidate: Candidate
    cycles: float
    layer_cycles: tuple[float, ...]

    @property
    def whole(self) -> Way:
        """The way without what only moves constants: what the plan is of."""
        return Way(self.candidate.way.level, self.candidate.way.spill)


@dataclass(frozen=True, slots=True)
class SegmentCandidate:
    """A candidate of several segments, and what decides for each of them."""

    candidate: Candidate
    decisions: tuple[Decision, ...]


def timed(candidate: Candidate, run: EndedRun, ctx: Context[TileTarget]) -> Timed:
    """What the clock says about each layer of a program that it has timed."""
    numbers: dict[str, str] = {}
    for number, layer in enumerate(ctx.layers):
        for name in (layer.name, *layer.ops):
            numbers.setdefault(name, str(number))
    spent = path_cycles_by(run.timeline(ctx.chip), numbers)
    layers = tuple(spent.get(str(number), 0.0) for number in range(len(ctx.layers)))
    return Timed(candidate, run.cycles, layers)


def segment_candidates(
    ctx: Context[TileTarget], found: Sequence[Timed], options: CompileOptions
) -> Iterator[SegmentCandidate]:
    """Divisions of the network among plans that were timed, each once, that are expected to be faster than all of these
    by `LEAST_GAIN`. Lazy: each is planned when it is asked for."""
    enough = (1 - LEAST_GAIN) * min((each.cycles for each in found), default=0.0)
    seen: set[object] = set()
    for weight in BORDER_WEIGHTS if ctx.layers else ():  # all may be prepared or concluded
        for plans, columns in _sources(ctx, found):
            division = divide(ctx, columns, weight)
            segments = _segments(ctx, plans, division)
            if len(segments) == 1 or segments in seen or division.cycles > enough:
                continue
            seen.add(segments)
            fitted = _candidate(ctx, plans, division, segments, options)
            if fitted is not None:
                yield SegmentCandidate(fitted, tuple(_decisions(ctx, plans, columns, division)))


def _sources(
    ctx: Context[TileTarget], found: Sequence[Timed]
) -> Iterator[tuple[tuple[Candidate, ...], tuple[Column, ...]]]:
    """The plans as columns: by the cost model, by the clock, and by the clock with constants ahead where that was
    timed."""
    plain = {each.whole: each for each in sorted(found, key=lambda each: not each.candidate.way.ahead)}
    ahead = {each.whole: each for each in sorted(found, key=lambda each: each.candidate.way.ahead)}
    for chosen, by_clock in ((plain, False), (plain, True), (ahead, True)):
        columns = []
        for each in chosen.values():
            one = each.candidate
            by_model = expected_layer_cycles(ctx, one.plan, one.cost, each.cycles)
            columns.append(column_of(ctx, one.plan, each.layer_cycles if by_clock else by_model))
        yield tuple(each.candidate for each in chosen.values()), tuple(columns)


def _segments(ctx: Context[TileTarget], plans: Sequence[Candidate], division: Division) -> tuple[Segment, ...]:
    ways = [plans[part.column].way for part in division.parts]
    return tuple(
        Segment(way.level, way.spill, ctx.layers[part.first].name)
        for way, part in zip(ways, division.parts, strict=True)
    )


def _candidate(
    ctx: Context[TileTarget],
    plans: Sequence[Candidate],
    division: Division,
    segments: tuple[Segment, ...],
    options: CompileOptions,
) -> Candidate | None:
    """The division as a plan, its constants ahead where there is room for that; None where it does not fit."""
    plan = fit_segments(ctx, [PlanPart(plans[part.column].plan, part.first, part.end) for part in division.parts])
    if isinstance(plan, NoPlan):
        return None
    verify_plan(plan, ctx)
    ahead = any(each.way.ahead for each in plans) or (bool(options.schedule) and ctx.staging != ctx.main)
    way = Way(SEGMENTS, ahead=ahead and has_region(plan, ctx), segments=segments)
    return costed(ctx, way, plan, options)


def _decisions(
    ctx: Context[TileTarget], plans: Sequence[Candidate], columns: Sequence[Column], division: Division
) -> Iterator[Decision]:
    """For each segment what was expected of it in every plan that can be cut there."""
    for part in division.parts:
        cycles = [column.cycles(part.first, part.end) for column in columns]
        others = ", ".join(
            f"{Way(plan.way.level, plan.way.spill)} {spent:,.0f}"
            for number, (plan, column, spent) in enumerate(zip(plans, columns, cycles, strict=True))
            if number != part.column and {part.first, part.end} <= column.cuts
        )
        layers = f"{ctx.layers[part.first].name} to {ctx.layers[part.end - 1].name}"
        way = plans[part.column].way
        verdict = f"segment {layers} as {Way(way.level, way.spill)}"
        yield Decision(SUBJECT, verdict, f"{cycles[part.column]:,.0f} cycles expected{'; ' if others else ''}{others}")
