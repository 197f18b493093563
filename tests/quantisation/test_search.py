"""The search for layers that stay in floating point, on errors that add up and cancel, against all there is."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dsa_sched.quantisation.search import searched

LAYERS = tuple("abcdefghij")


class Errors:
    """Errors of layers as drawn vectors, of different lengths, that are added up."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.vectors = random.normal(size=(len(LAYERS), 6)) * random.uniform(0.2, 2.0, (len(LAYERS), 1))

    def alone(self, layer: str) -> float:
        return float(np.linalg.norm(self.vectors[LAYERS.index(layer)]))

    def of(self, kept: frozenset[str]) -> float:
        left = [number for number, layer in enumerate(LAYERS) if layer not in kept]
        return float(np.linalg.norm(self.vectors[left].sum(axis=0)))

    def fewest(self, bound: float) -> int:
        """The least number that keeps the bound, of all sets."""
        sizes = range(len(LAYERS) + 1)
        return next(n for n in sizes if any(self.of(frozenset(s)) <= bound for s in combinations(LAYERS, n)))

    def greedy(self, bound: float) -> int:
        """How many are chosen one by one, the best of all each time."""
        kept: frozenset[str] = frozenset()
        while self.of(kept) > bound:
            kept = min((kept | {layer} for layer in LAYERS if layer not in kept), key=self.of)
        return len(kept)


@pytest.mark.parametrize("share", [0.7, 0.4])
def test_few_layers_are_found_where_errors_cancel(share: float) -> None:
    """Over twenty networks never more than one beyond the best of all sets, and in all not more than a greedy choice
    that tries every layer each time."""
    found, greedy = 0, 0
    for seed in range(20):
        errors = Errors(seed)
        bound = share * errors.of(frozenset())
        search = searched(LAYERS, errors.alone, errors.of, bound, lambda _step: None)
        assert search.error <= bound
        assert search.error == pytest.approx(errors.of(frozenset(search.kept)))
        assert len(search.kept) <= errors.fewest(bound) + 1
        found, greedy = found + len(search.kept), greedy + errors.greedy(bound)
    assert found <= greedy


def test_no_version_is_tried_twice() -> None:
    errors, seen = Errors(0), list[frozenset[str]]()

    def error_of(kept: frozenset[str]) -> float:
        seen.append(kept)
        return errors.of(kept)

    search = searched(LAYERS, errors.alone, error_of, 0.4 * errors.of(frozenset()), lambda _step: None)
    assert len(seen) == len(set(seen)) == len(search.steps)
    assert list(search.kept) == sorted(search.kept, key=[layer.name for layer in search.ranking].index)
