"""Candidates of level auto beyond whole levels: parts of the network, each planned by the level that is fastest there.

    programs that were timed --cycles of each layer, by the clock and by the cost model--> columns
    plans that were ruled out --cycles of each layer by the cost model, scaled as those of the timed ones--> columns
    columns --cheapest division, borders counted more or less--> candidates, the fewest borders first

The critical path of a run tells which layers bind, but a layer's neighbours have their share in its time. The cost
model sees each layer by itself, but not what waits for what. Divisions by both are offered, and the clock decides.
A plan that one part of the network rules out may still be the best for another part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from codegen.target import TileTarget
from dsa_sched.search.candidates import SUBJECT, Candidate, Config, costed
from dsa_sched.search.floors import has_region
from dsa_sched.stages.compilation import CompileOptions
from isched.timing.cycle_model import EndedRun
from isched.timing.waiting_by_part import path_cycles_by
from partitioner.context.plan_context import Context
from partitioner.ir.decisions import Decision
from partitioner.memory.no_plan import NoPlan
from partitioner.planners.levels import Images, Planner, Segment, Segments, planner_text
from partitioner.planners.segments import (
    Column,
    PlanPart,
    SegmentDivision,
    column_of,
    divide,
    expected_layer_cycles,
    fit_segments,
)
from partitioner.verification.verify_plan import verify_plan

MOST_TIMES = 1.6
"""Largest ratio to the best program's cycles up to which programs are timed to the end: parts may be faster."""

BORDER_WEIGHTS = (4.0, 2.0, 1.0, 8.0)
"""Factors on the cost of a border, one per division that is tried, in this order: a change of plans also interrupts
what runs ahead.
"""

LEAST_GAIN = 0.02
"""Smallest expected gain, as a share of the cycles, for which a division is tried: changing plans costs more than is
known beforehand.
"""

LEAST_UNTIMED_GAIN = 0.1
"""Smallest expected gain of a division with a part whose plan was never timed: the cost model may be this far off."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate whose program was timed to the end: its cycles, and those of each layer on its critical path."""

    candidate: Candidate
    cycles: float
    layer_cycles: tuple[float, ...]

    @property
    def planner(self) -> Planner:
        """Whose plan it is; constants that run ahead change its program only."""
        return self.candidate.config.planner


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A candidate none of whose programs was timed to the end, and a lower bound of their cycles."""

    candidate: Candidate
    least_cycles: float


@dataclass(frozen=True, slots=True)
class SegmentCandidate:
    """A candidate of several segments, and the decision for each of them."""

    candidate: Candidate
    decisions: tuple[Decision, ...]


def layer_cycles_of(run: EndedRun, ctx: Context[TileTarget]) -> tuple[float, ...]:
    """Cycles of each layer on the critical path of a program that was timed to the end."""
    numbers: dict[str, str] = {}
    for number, layer in enumerate(ctx.layers):
        for name in (layer.name, *layer.ops):
            numbers.setdefault(name, str(number))
    spent = path_cycles_by(run.timeline(ctx.chip), numbers)
    return tuple(spent.get(str(number), 0.0) for number in range(len(ctx.layers)))


def segment_candidates(
    ctx: Context[TileTarget], found: Sequence[Timed], options: CompileOptions
) -> Iterator[SegmentCandidate]:
    """Divisions of the network among plans that were timed, each once, that are expected to be faster than all of these
    by `LEAST_GAIN`. Lazy: each is planned when it is asked for."""
    return _offered(ctx, partial(_sources, ctx, found), options, (1 - LEAST_GAIN) * _fastest(found))


def with_ruled_out(
    ctx: Context[TileTarget],
    found: Sequence[Timed],
    ruled_out: Sequence[RuledOut],
    options: CompileOptions,
    best: float,
) -> Iterator[SegmentCandidate]:
    """Divisions in which at least one part is planned as in a plan that was ruled out as a whole, and which are
    expected to take fewer cycles than `best` by `LEAST_UNTIMED_GAIN`.
    """
    others = _whole_plans(found, ruled_out)
    if not others:
        return iter(())
    scale = min(each.cycles / each.candidate.expected_cycles for each in found)
    untimed = []
    for each in others:
        one = each.candidate
        cycles = max(scale * one.expected_cycles, each.least_cycles)
        untimed.append((one, column_of(ctx, one.plan, expected_layer_cycles(ctx, one.plan, one.cost, cycles))))

    def sources() -> Iterator[_Source]:
        for source in _sources(ctx, found):
            yield [*source, *untimed]

    timed_plans = frozenset(each.candidate.config for each in found)
    return _offered(ctx, sources, options, (1 - LEAST_UNTIMED_GAIN) * best, timed_plans)


_Source: TypeAlias = Sequence[tuple[Candidate, Column]]


def _whole_plans(found: Sequence[Timed], ruled_out: Sequence[RuledOut]) -> list[RuledOut]:
    """Candidates that were ruled out: each plan once, with the least cycles known of it, and none of which a program
    was timed. Groups of images appear only if no program of such groups was timed, and then only the most promising
    ones, because options can name them only once.
    """
    known = {each.planner for each in found}
    plans: dict[Planner, RuledOut] = {}
    for each in (
        sorted(ruled_out, key=lambda each: (each.least_cycles, each.candidate.expected_cycles)) if found else ()
    ):
        if (planner := each.candidate.config.planner) not in known:
            plans.setdefault(planner, each)
    images = [planner for planner in (*known, *plans) if isinstance(planner, Images)]
    return [each for planner, each in plans.items() if planner not in images or planner == images[0]]


def _fastest(found: Sequence[Timed]) -> float:
    return min((each.cycles for each in found), default=0.0)


def _offered(
    ctx: Context[TileTarget],
    sources: Callable[[], Iterator[_Source]],
    options: CompileOptions,
    enough: float,
    among: frozenset[Config] = frozenset(),
) -> Iterator[SegmentCandidate]:
    """Divisions that are expected to take at most `enough` cycles, and whose plans are not all `among` these
    configurations.
    """
    seen: set[object] = set()
    for weight in BORDER_WEIGHTS if ctx.layers else ():  # all may be prepared or concluded
        for source in sources():
            plans, columns = [plan for plan, _ in source], [column for _, column in source]
            division = divide(ctx, columns, weight)
            segments = _segments(ctx, plans, division)
            if len(segments) == 1 or segments in seen or division.cycles > enough:
                continue
            if among.issuperset(plans[part.column].config for part in division.parts):
                continue
            seen.add(segments)
            fitted = _candidate(ctx, plans, division, segments, options)
            if fitted is not None:
                yield SegmentCandidate(fitted, tuple(_decisions(ctx, plans, columns, division)))


def _sources(ctx: Context[TileTarget], found: Sequence[Timed]) -> Iterator[_Source]:
    """The plans as columns: by the cost model, by the clock, and by the clock with constants ahead where that was
    timed. Groups of images once, as options have them once: the fastest of these."""
    once = [each for each in found if not isinstance(each.planner, Images)]
    once += sorted((each for each in found if each not in once), key=lambda each: each.cycles)[:1]
    plain = {each.planner: each for each in sorted(once, key=lambda each: not each.candidate.config.ahead)}
    ahead = {each.planner: each for each in sorted(once, key=lambda each: each.candidate.config.ahead)}
    for chosen, by_clock in ((plain, False), (plain, True), (ahead, True)):
        columns = []
        for each in chosen.values():
            one = each.candidate
            by_model = expected_layer_cycles(ctx, one.plan, one.cost, each.cycles)
            columns.append((one, column_of(ctx, one.plan, each.layer_cycles if by_clock else by_model)))
        yield columns


def _segments(ctx: Context[TileTarget], plans: Sequence[Candidate], division: SegmentDivision) -> tuple[Segment, ...]:
    found = []
    for part in division.parts:
        planner = plans[part.column].config.planner
        assert not isinstance(planner, Segments)  # only whole plans are timed or ruled out
        found.append(Segment(planner, ctx.layers[part.first].name))
    return tuple(found)


def _candidate(
    ctx: Context[TileTarget],
    plans: Sequence[Candidate],
    division: SegmentDivision,
    segments: tuple[Segment, ...],
    options: CompileOptions,
) -> Candidate | None:
    """The division as a plan, its constants ahead where there is room for that; None where it does not fit."""
    plan = fit_segments(ctx, [PlanPart(plans[part.column].plan, part.first, part.end) for part in division.parts])
    if isinstance(plan, NoPlan):
        return None
    verify_plan(plan, ctx)
    ahead = any(each.config.ahead for each in plans) or (bool(options.schedule) and ctx.roles.has_staging)
    return costed(ctx, Config(Segments(segments), ahead and has_region(plan, ctx)), plan, options)


def _decisions(
    ctx: Context[TileTarget], plans: Sequence[Candidate], columns: Sequence[Column], division: SegmentDivision
) -> Iterator[Decision]:
    """For each segment, the cycles expected of it in every plan that can be cut there."""
    for part in division.parts:
        cycles = [column.cycles(part.first, part.end) for column in columns]
        others = ", ".join(
            f"{planner_text(plan.config.planner)} {spent:,.0f}"
            for number, (plan, column, spent) in enumerate(zip(plans, columns, cycles, strict=True))
            if number != part.column and {part.first, part.end} <= column.cuts
        )
        layers = f"{ctx.layers[part.first].name} to {ctx.layers[part.end - 1].name}"
        verdict = f"segment {layers} as {planner_text(plans[part.column].config.planner)}"
        yield Decision(SUBJECT, verdict, f"{cycles[part.column]:,.0f} cycles expected{'; ' if others else ''}{others}")
