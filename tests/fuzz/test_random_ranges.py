"""Random networks around what leaves the range of fp16 are as near to onnxruntime as their values let them be.

`python -m tests.fuzz.test_random_ranges` prints how many networks of each kind it takes to find a fault.
"""

from __future__ import annotations

from statistics import median

import numpy as np
import onnxruntime
import pytest

import dsa_sched
from hw_models.errors import UserError
from tests.fuzz.draw_ranges import KINDS, ranged_model

ORDINARY, SLOW = 6, 56
TRIES, MOST = 10, 40


def fault(kind: str, seed: int) -> str:
    """What is wrong with the network of a kind and a seed; empty where nothing is."""
    drawn = ranged_model(kind, seed)
    session = onnxruntime.InferenceSession(drawn.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, drawn.feed)
    (found,) = dsa_sched.compile(drawn.model, chip="stcp920", level="O0").run(drawn.feed).values()
    apart, norm = float(np.linalg.norm(found - expected)), float(np.linalg.norm(expected))
    return "" if apart <= drawn.bound * norm else f"{kind} {seed}: {apart:.3g} of {norm:.3g}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.commit
def test_random_networks_around_the_range_are_right(kind: str) -> None:
    assert not [found for seed in range(ORDINARY) if (found := fault(kind, seed))]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_networks_around_the_range_are_right(kind: str) -> None:
    assert not [found for seed in range(ORDINARY, ORDINARY + SLOW) if (found := fault(kind, seed))]


def _needed(kind: str, start: int) -> int:
    """How many networks from a seed on until a fault shows; one more than the most where none does."""
    for count in range(1, MOST + 1):
        try:
            if fault(kind, start + count):
                return count
        except UserError:
            continue
    return MOST + 1


if __name__ == "__main__":
    for kind in KINDS:
        counts = [_needed(kind, 1000 * (number + 1)) for number in range(TRIES)]
        print(f"{kind}: median {median(counts):g} of {counts}")
