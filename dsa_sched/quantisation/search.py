"""Which layers stay in floating point so that the outputs' error keeps a bound.

    errors of layers alone --sorted--> worst first --binary search--> as many of them as keep the bound
                                                   --chosen one by one--> fewer, where the errors of layers cancel
                                                   --one by one--> those that can be quantised after all

Layers are ranked by the error at the outputs that each makes if it alone is quantised. That needs one run per layer,
and no layer hides behind the errors of the others, as it would if it alone were left in floating point. Errors of
several layers add up or cancel, which no ranking knows: so layers are then chosen one by one, each time that of the
next few in the ranking with which the network's error is least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hw_models.errors import ModelError

Kept = tuple[str, ...]
"""Layers in floating point."""


CHOICES = 6
"""Layers of the ranking among which each is chosen: each costs a run."""


@dataclass(frozen=True, slots=True)
class RankedLayer:
    """A layer, and the relative L2 error at the outputs if it alone is quantised."""

    name: str
    error: float


@dataclass(frozen=True, slots=True)
class SearchStep:
    """A version that was tried: how many layers were in floating point, and its relative L2 error at the outputs."""

    float_layers: int
    error: float


@dataclass(frozen=True, slots=True)
class FloatSearch:
    """What was found: layers `kept` in floating point, worst first, the `error` with these, and all that was tried."""

    bound: float
    kept: tuple[str, ...]
    error: float
    ranking: tuple[RankedLayer, ...]
    steps: tuple[SearchStep, ...]

    @property
    def curve(self) -> tuple[SearchStep, ...]:
        """The steps by number of layers in floating point, with the least error of each number."""
        least: dict[int, float] = {}
        for step in self.steps:
            least[step.float_layers] = min(step.error, least.get(step.float_layers, step.error))
        return tuple(SearchStep(count, least[count]) for count in sorted(least))


def searched(
    layers: tuple[str, ...],
    alone: Callable[[str], float],
    error_of: Callable[[frozenset[str]], float],
    bound: float,
    say: Callable[[str], None],
) -> FloatSearch:
    """The search over `layers`: `alone` gives the error with one layer quantised, `error_of` that with these layers in
    floating point. Raises ModelError where no layer can be quantised within the bound."""
    steps: list[SearchStep] = []
    known: dict[frozenset[str], float] = {}

    def tried(kept: Kept) -> float:
        version = frozenset(kept)
        if version not in known:
            say(f"searching, {len(kept)} of {len(layers)} layers in floating point")
            known[version] = error_of(version)
            steps.append(SearchStep(len(kept), known[version]))
        return known[version]

    error = tried(())
    if error <= bound:
        return FloatSearch(bound, (), error, (), tuple(steps))
    ranking = []
    for number, name in enumerate(layers, 1):
        say(f"ranking layers, {number} of {len(layers)}")
        ranking.append(RankedLayer(name, alone(name)))
    ranking.sort(key=lambda layer: (-layer.error, layer.name))
    worst = tuple(layer.name for layer in ranking)
    kept, error = _fewest(worst, tried, bound)
    if len(kept) == len(layers):
        least = f"an error of {ranking[-1].error:.3g} with the layer that makes the least alone, {ranking[-1].name}"
        raise ModelError(f"--bound {bound:g}", needs="a bound within which a layer can be quantised", has=least)
    kept, error = _fewer(worst, tried, bound, len(kept)) or (kept, error)
    for name in reversed(kept):  # the best first
        rest = tuple(each for each in kept if each != name)
        if len(kept) > 1 and (without := tried(rest)) <= bound:
            kept, error = rest, without
    kept = tuple(sorted(kept, key=worst.index))
    return FloatSearch(bound, kept, error, tuple(ranking), tuple(steps))


def _fewest(worst: Kept, tried: Callable[[Kept], float], bound: float) -> tuple[Kept, float]:
    """The shortest beginning of a ranking that keeps the bound, if errors fall as it gets longer. The empty one does
    not keep it; the whole one does, since nothing is quantised then."""
    fails, holds, error = 0, len(worst), 0.0
    while holds - fails > 1:
        middle = (fails + holds) // 2
        found = tried(worst[:middle])
        if found <= bound:
            holds, error = middle, found
        else:
            fails = middle
    return worst[:holds], error


def _fewer(worst: Kept, tried: Callable[[Kept], float], bound: float, most: int) -> tuple[Kept, float] | None:
    """Layers that are chosen one by one until they keep the bound; None where these are not fewer than `most`."""
    kept: Kept = ()
    while len(kept) + 1 < most:
        near = [name for name in worst if name not in kept][:CHOICES]
        kept = min(((*kept, name) for name in near), key=tried)
        if tried(kept) <= bound:
            return kept, tried(kept)
    return None
