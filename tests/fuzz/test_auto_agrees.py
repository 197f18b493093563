"""Random models on random chips at level auto: the bits of O0, and plan and program hold by every check.

What auto keeps may be of any level, with or without spills, scheduled or as lowered; here it is checked as a user gets
it. Seeds are those of tests/fuzz/test_levels_agree.py, so that a level by its name can be asked about one that fails.
"""

from __future__ import annotations

from collections import Counter

import pytest

from codegen.neuralscale.target import TARGET
from dsa_sched.stages.compilation import Lowered
from hw_models.errors import DoesNotFit
from isched.hazards.verify_program import verify_program
from partitioner.context.plan_context import Context
from partitioner.planners.levels import AUTO
from partitioner.verification.verify_layout import verify_layout
from partitioner.verification.verify_plan import verify_plan
from tests.fuzz.fresh_seeds import fresh_seeds
from tests.fuzz.levels_agree import Way, at_o0, chip_of, compiled, differences, feed_of, load, run
from tests.fuzz.random_models import model_of

FEW, SLOW, FRESH = 2, 100, 200
TOGETHER = 10
"""Seeds a test: their share of what ran, and the levels that were chosen, are asserted together."""
SMALLEST_SHARE = 0.9
WAY = Way(AUTO, schedule=True)


def blocks(start: int, stop: int) -> list[range]:
    return [range(first, first + TOGETHER) for first in range(start, stop, TOGETHER)]


def block_name(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


def check_seed(seed: int) -> str:
    """The level that was chosen, empty where the model does not fit the chip."""
    model, feed = load(model_of(seed)), feed_of(model_of(seed), seed)
    chip, _, plain = at_o0(model, chip_of(seed, model.source), feed, seed)
    try:
        found = compiled(model, chip, WAY)
    except DoesNotFit:
        return ""
    assert isinstance(found.made, Lowered)
    assert found.made.cycles is not None
    ctx = Context(model.graph, model.constants, chip, TARGET)
    verify_plan(found.plan, ctx)
    verify_layout(found.layout, found.plan, ctx)
    verify_program(found.program, chip)
    different = list(differences(WAY, model.graph.outputs, run(found, feed, seed + 1), plain))
    assert not different, f"seed {seed}, {found.plan.level}: " + "; ".join(map(str, different))
    return found.plan.level


def check(seeds: range) -> None:
    chosen = Counter(map(check_seed, seeds))
    assert len(seeds) - chosen[""] >= SMALLEST_SHARE * len(seeds)
    assert AUTO not in chosen


@pytest.mark.commit
def test_a_few_random_models_have_the_bits_of_o0() -> None:
    check(range(FEW))


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", blocks(0, SLOW), ids=block_name)
def test_many_random_models_have_the_bits_of_o0(seeds: range) -> None:
    check(seeds)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", blocks(*fresh_seeds(FRESH)), ids=block_name)
def test_fresh_random_models_have_the_bits_of_o0(seeds: range) -> None:
    check(seeds)
