"""Networks that others have trained, as their packages ship them, decide on the stcp920 as they do in onnxruntime.

Needs the packages of the extra `trained`, see `packages.py`; each network is skipped where its own is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import dsa_sched
from hw_models.errors import UserError
from tests.trained.judging import CHIP, Judged, judge
from tests.trained.network import Network
from tests.trained.packages import FOLDER, missing
from tests.trained.results import SUMMED, Row, rows
from tests.trained.table import NETWORKS, REFUSED, RIGHT, WRONG

pytestmark = pytest.mark.slow

CONVOLUTIONAL, RECURRENT = 3.0, 4.0
"""Largest error beside that of fp16 storage alone."""

EXPLAINED = 2.0
"""Where a remark says why it is larger: beside what storage and the engine's sums make."""

LAST_PLACE = 2.0**-10
"""Largest relative distance of numbers of fp16: a smaller error of storage is luck, as that of a certain Softmax."""


AT_COMMIT = ("aecmos", "speech-embedding")
"""Of those that are right: a recurrent and a convolutional one, which take 3 seconds each."""


def named(networks: Iterable[Network]) -> list[object]:
    return [pytest.param(network, id=network.name) for network in networks]


def marked(networks: Iterable[Network]) -> list[object]:
    nightly = pytest.mark.nightly
    return [pytest.param(each, id=each.name, marks=() if each.name in AT_COMMIT else nightly) for each in networks]


def require(network: Network) -> None:
    if reason := missing(network.package):
        pytest.skip(reason)


def too_large(network: Network, judged: Judged) -> dict[str, float]:
    """Errors beyond their bounds, by output."""
    measured = rows().get(network.name, Row()).get(SUMMED, {}) if network.remark else {}
    most = RECURRENT if network.recurrent else CONVOLUTIONAL
    bounds = {
        name: max(most * max(stored, LAST_PLACE), EXPLAINED * (measured.get(name) or 0.0))
        for name, stored in judged.stored.items()
    }
    return {name: error for name, error in judged.errors.items() if not error <= bounds[name]}


@pytest.mark.parametrize("network", marked(RIGHT))
def test_decisions_are_equal_and_errors_small(network: Network) -> None:
    require(network)
    judged = judge(network, FOLDER)
    assert judged.equal, (judged.our_decision, judged.decision)
    assert too_large(network, judged) == {}


@pytest.mark.parametrize("network", named(WRONG))
def test_what_is_wrong_still_is(network: Network) -> None:
    """A network that is right by now has to lose its `wrong`."""
    require(network)
    judged = judge(network, FOLDER)
    assert not judged.equal or too_large(network, judged)


@pytest.mark.parametrize("network", named(REFUSED))
def test_what_is_refused_is_refused_for_the_reason_that_is_listed(network: Network, tmp_path: Path) -> None:
    """A network that compiles by now has to lose its `refused`."""
    require(network)
    path = network.prepared(FOLDER, tmp_path)
    shapes = network.shapes(network.all_feeds(FOLDER)[0])
    with pytest.raises(UserError) as refusal:
        dsa_sched.compile(path, CHIP, level="O0", shape=shapes)
    assert network.refused in " ".join(str(refusal.value).split())


def test_networks_are_named_once() -> None:
    assert len({network.name for network in NETWORKS}) == len(NETWORKS)
