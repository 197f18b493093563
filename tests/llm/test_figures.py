"""What `time` says of a language model: tokens, and bytes of the main memory by what they are for."""

from __future__ import annotations

from functools import cache

import pytest

import dsa_sched
from dsa_sched.analysis.artifact_timing import time_whole
from dsa_sched.analysis.language_model import CACHES, HEAD, LanguageFigures, language_figures, tokens_of
from dsa_sched.api.results import TimingReport
from dsa_sched.artifact.format import Artifact

NETWORK = "qwen3-mini"
WORDS, HIDDEN, LAYERS, CACHE_BYTES = 96, 64, 2, 2 * 96 * 16 * 2


@cache
def artifact(rows: int) -> Artifact:
    return dsa_sched.compile(NETWORK, chip="stcp920", level="O0", shape={"ids": (1, rows)}, cache=False)


@cache
def figures(rows: int) -> LanguageFigures:
    found = language_figures(time_whole(artifact(rows), NETWORK))
    assert found is not None
    return found


def report(rows: int) -> TimingReport:
    return dsa_sched.time(artifact(rows))


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.commit
def test_all_bytes_are_for_something(rows: int) -> None:
    said = artifact(rows).manifest.figures
    assert said is not None
    assert sum(figures(rows).main_bytes.values()) == said.main_read_bytes + said.main_written_bytes


def test_the_head_and_the_caches_are_told_apart() -> None:
    moved = figures(1).main_bytes
    whole = 2 * WORDS * (HIDDEN + 1)
    assert whole <= moved[HEAD] <= whole + 2 * HIDDEN  # the weights of the norm before it may come with them
    assert moved[CACHES] >= 2 * LAYERS * CACHE_BYTES  # keys and values are read


def test_a_step_has_a_rate_and_a_first_pass_a_first_token() -> None:
    assert (figures(1).tokens, figures(5).tokens) == (1, 5)
    assert "tokens/s" in str(report(1))
    assert "the first token comes after" not in str(report(1))
    assert "the first token comes after" in str(report(5))
    assert report(5).to_dict()["language"]["rows"] == 5


def test_masks_are_no_tokens() -> None:
    """An input of integers that choose no rows of a table may have more elements than there are tokens."""
    (manifest, mask) = artifact(1).manifest, artifact(1).tensor("begin").model_copy(update={"shape": (1, 96)})
    longer = manifest.model_copy(update={"inputs": (*manifest.inputs, mask.model_copy(update={"indices": ()}))})
    assert tokens_of(longer) == 1


def test_other_networks_have_no_tokens() -> None:
    plain = dsa_sched.compile("dlrm-mini", chip="stcp920", level="O0", cache=False)
    assert "language" not in dsa_sched.time(plain).to_dict()
