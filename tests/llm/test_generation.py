"""Decoders with caches generate onnxruntime's tokens: a prefill of several tokens, then one token after the other."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

import dsa_sched
from dsa_sched.artifact.format import Artifact
from tests.llm.decoders import LAYERS, decoder, first_feed, generated

Array = npt.NDArray[Any]


def theirs(spelling: str, ids: list[int], steps: int) -> list[int]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3

    @cache
    def session(rows: int) -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(decoder(spelling, rows).SerializeToString(), options)

    def run(rows: int, feed: dict[str, Array]) -> dict[str, Array]:
        names = [item.name for item in session(rows).get_outputs()]
        return dict(zip(names, session(rows).run(names, feed), strict=True))

    return generated(run, spelling, ids, steps, first_feed(decoder(spelling, 1)))


def ours(spelling: str, ids: list[int], steps: int, level: str) -> list[int]:
    @cache
    def artifact(rows: int) -> Artifact:
        return dsa_sched.compile(decoder(spelling, rows), chip="stcp920", level=level, cache=False)

    def run(rows: int, feed: dict[str, Array]) -> dict[str, Array]:
        return {name: np.asarray(array) for name, array in artifact(rows).run(feed).items()}

    return generated(run, spelling, ids, steps, first_feed(decoder(spelling, 1)))


def prompt(count: int) -> list[int]:
    return [int(word) for word in np.random.default_rng(1).integers(0, 48, count)]


@pytest.mark.spread(1)
@pytest.mark.parametrize("spelling", LAYERS)
@pytest.mark.commit
def test_two_steps_after_a_prefill(spelling: str) -> None:
    ids = prompt(5)
    assert ours(spelling, ids, 2, "O2") == theirs(spelling, ids, 2)


def test_both_spellings_mean_the_same() -> None:
    assert theirs("standard", prompt(13), 16) == theirs("fused", prompt(13), 16)


@pytest.mark.nightly
@pytest.mark.parametrize("spelling", LAYERS)
@pytest.mark.parametrize(("rows", "level"), [(13, "O0"), (13, "O3"), (24, "auto")])
def test_many_steps_after_a_prefill(spelling: str, rows: int, level: str) -> None:
    ids, steps = prompt(rows), 31 - rows
    assert ours(spelling, ids, steps, level) == theirs(spelling, ids, steps)
