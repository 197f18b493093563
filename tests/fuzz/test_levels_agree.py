"""Random models of every operator have the bits of O0 at every level, with and without scheduling.

One model a seed, on the stcp920 or a chip of few cores and little memory; what half precision can judge is also near
onnxruntime. `python -m tests.fuzz.find_first` looks among other seeds and makes what it finds smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from dsa_sched.frontend import Model
from tests.fuzz.fresh_seeds import fresh_seeds
from tests.fuzz.levels_agree import WAYS, Way, chip_of, compare, feed_of, load, outputs_at_o0
from tests.fuzz.near_reference import judge
from tests.fuzz.random_models import model_of

FEW, SLOW, FRESH = 2, 100, 300
TOGETHER = 10
"""Seeds a test: their shares of what ran and of what was judged are asserted together."""
SMALLEST_SHARE = 0.9
SMALLEST_JUDGED = 0.7
"""Share of the outputs of ten models that can be judged, at least: one model whose rounding alone may make more than
its outputs has several of them."""


def blocks(start: int, stop: int) -> list[range]:
    return [range(first, first + TOGETHER) for first in range(start, stop, TOGETHER)]


def block_name(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


def every_other(seed: int) -> tuple[Way, ...]:
    """All ways in two models: plain ones in one, nearly all scheduled ones in the next."""
    return WAYS[seed % 2 :: 2]


def all_ways(_: int) -> tuple[Way, ...]:
    return WAYS


def check_levels(model: Model, seed: int, ways: tuple[Way, ...]) -> int:
    """How many ways ran."""
    found = compare(model, chip_of(seed, model.source), feed_of(model.source, seed), seed, ways)
    assert not found.differences, f"seed {seed}: " + "; ".join(map(str, found.differences))
    return len(found.ran)


def check_reference(model: Model, seed: int) -> Counter[str]:
    """How many outputs there are, and how many could be judged."""
    source, feed = model_of(seed), feed_of(model.source, seed)
    judged = judge(source, feed, outputs_at_o0(model, feed, seed))
    assert not (far := [each for each in judged if each.far]), f"seed {seed}: {far}"
    return Counter(outputs=len(judged), judged=sum(each.limit is not None for each in judged))


def check(seeds: range, ways: Callable[[int], tuple[Way, ...]] = all_ways) -> None:
    ran, outputs = 0, Counter[str]()
    for seed in seeds:
        model = load(model_of(seed))
        ran += check_levels(model, seed, ways(seed))
        outputs += check_reference(model, seed)
    assert ran >= SMALLEST_SHARE * sum(len(ways(seed)) for seed in seeds)
    assert outputs["judged"] >= SMALLEST_JUDGED * outputs["outputs"]


@pytest.mark.commit
def test_a_few_random_models_have_the_bits_of_o0_at_every_level() -> None:
    check(range(FEW), every_other)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", blocks(0, SLOW), ids=block_name)
def test_many_random_models_have_the_bits_of_o0_at_every_level(seeds: range) -> None:
    check(seeds)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", blocks(*fresh_seeds(FRESH)), ids=block_name)
def test_fresh_random_models_have_the_bits_of_o0_at_every_level(seeds: range) -> None:
    """About a second a model."""
    check(seeds)
