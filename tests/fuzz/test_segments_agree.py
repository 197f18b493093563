"""Random models in random segments on random chips: the bits of O0, and every check of plans, layouts and programs.

    model, chip, seed --borders between groups, a level for each part, drawn--> program --run--> the bits of O0

Level auto takes segments only where they are fast; here any are taken that plans allow, so that borders of all kinds of
values between all pairs of levels are met. Checks are those that compiling itself makes.
"""

from __future__ import annotations

import pytest

from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import Model
from dsa_sched.pipeline.driver import compile_graph
from dsa_sched.stages.compilation import CompileOptions
from hw_models.chip import Chip
from hw_models.errors import PlanError
from partitioner.context.plan_context import Context
from partitioner.planners.levels import O0, O1, O2, O3, SEGMENTS, Astitch, Segment, Segments, WholePlanner
from partitioner.planners.o3 import BEST_POLICY
from partitioner.planners.registry import make_plan
from partitioner.planners.segments import cut_points
from tests.fuzz.fresh_seeds import fresh_seeds
from tests.fuzz.levels_agree import Way, at_o0, chip_of, differences, feed_of, load, run
from tests.fuzz.random_models import model_of
from tests.partition_graphs import Seeded

ORDINARY, SLOW, FRESH = 6, 96, 300
TOGETHER = 12
"""Seeds a test: how many ran in several segments is asserted for all of them."""
SMALLEST_SHARE = 0.25
"""Small models have few borders, and small chips no room for some."""
KINDS: tuple[WholePlanner, ...] = (O0(), O1(), O2(), O3(), O3(BEST_POLICY), Astitch())


def drawn(model: Model, chip: Chip, choose: Seeded) -> tuple[Segment, ...]:
    """Segments of levels that have a plan; a new one begins where both plans can be cut, in half of these places."""
    ctx = Context(model.graph, model.constants, chip, TARGET)
    cuts: dict[WholePlanner, frozenset[int]] = {}
    for kind in KINDS:
        try:
            cuts[kind] = cut_points(ctx.layers, make_plan(ctx, kind))
        except PlanError:
            continue
    kind = choose.one_of(tuple(cuts))
    segments = [Segment(kind, ctx.layers[0].name)]
    for cut in range(1, len(ctx.layers)):
        other = choose.one_of(tuple(cuts))
        if other != kind and cut in cuts[kind] and cut in cuts[other] and choose.number(0, 1):
            kind = other
            segments.append(Segment(kind, ctx.layers[cut].name))
    return tuple(segments)


def check_seed(seed: int) -> bool:
    """Whether it ran in several segments; False where there are not, or they do not fit together."""
    model, feed, choose = load(model_of(seed)), feed_of(model_of(seed), seed), Seeded(seed + 70_000)
    chip, _, plain = at_o0(model, chip_of(seed, model.source), feed, seed)
    segments = drawn(model, chip, choose)
    schedule = choose.number(0, 2) > 0
    ahead = schedule and choose.number(0, 1) == 1
    options = CompileOptions(Segments(segments), schedule=schedule, constants_ahead=ahead, keep_values=True)
    try:
        found = compile_graph(model, chip, TARGET, options)
    except PlanError:
        return False
    bits = run(found, feed, seed + 1)
    different = list(differences(Way(SEGMENTS, schedule), model.graph.outputs, bits, plain))
    assert not different, f"seed {seed}, {segments}: " + "; ".join(map(str, different))
    return len(segments) > 1


def blocks(start: int, stop: int) -> list[range]:
    return [range(first, first + TOGETHER) for first in range(start, stop, TOGETHER)]


def check(seeds: range) -> None:
    assert sum(map(check_seed, seeds)) >= SMALLEST_SHARE * len(seeds)


@pytest.mark.nightly
def test_random_segments_have_the_bits_of_o0() -> None:
    check(range(ORDINARY))


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", blocks(0, SLOW), ids=str)
def test_many_random_segments_have_the_bits_of_o0(seeds: range) -> None:
    check(seeds)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", blocks(*fresh_seeds(FRESH)), ids=str)
def test_fresh_random_segments_have_the_bits_of_o0(seeds: range) -> None:
    check(seeds)
