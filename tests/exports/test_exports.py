"""What PyTorch's exporters write compiles, runs and is right: 24 architectures by two exporters, at O0, O3 and `auto`.

    architecture, exporter --export--> file --verify at O0--> every layer beside onnxruntime
                                            --O3, auto------> outputs bit for bit those of O0

A few are run at every commit, with the extra `exports` installed; all of them at night.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

import dsa_sched
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import UserError
from partitioner.planners.levels import planner_or_auto
from tests.exports.table import EXPORTERS, EXPORTS, NAMES, REFUSED, Which

if TYPE_CHECKING:
    from tests.exports.exporting import Export

CHIP = "stcp920"
PLAIN, LEVELS = "O0", ("O3", "auto")

NETWORK_BOUND, LAYER_BOUND = 5e-2, 1.5e-2
"""Relative L2 error of each output, and of a layer by itself."""

SAMPLES = 64
"""Outputs of each layer that are compared with the target's emulation."""

Outputs = dict[str, npt.NDArray[np.generic]]


AT_COMMIT = (("dlrm", "dynamo"), ("dlrm", "script"))
"""What `.ci/run` takes: both exporters."""


def marked(exports: Iterable[Which]) -> list[object]:
    marks = {True: pytest.mark.slow, False: pytest.mark.nightly}
    return [pytest.param(each, marks=marks[each in AT_COMMIT], id="-".join(each)) for each in exports]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Which], Export]:
    """Writes an export."""
    pytest.importorskip(
        "torch", reason="PyTorch, which writes these models, is not installed: pip install '.[exports]'"
    )
    from tests.exports.exporting import export

    return lambda which: export(*which, tmp_path)


def relative(ours: npt.NDArray[np.generic], theirs: npt.NDArray[np.generic]) -> float:
    exact = theirs.astype(np.float64)
    return float(np.linalg.norm(ours.astype(np.float64) - exact) / np.linalg.norm(exact))


def run(model: Path, level: str, feeds: Iterable[Outputs]) -> list[Outputs]:
    artifact = dsa_sched.compile(model, chip=CHIP, level=level)
    return [dict(artifact.run(feed)) for feed in feeds]


def reference(model: Path, feed: Outputs) -> Outputs:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def same_bytes(one: Outputs, other: Outputs) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize("which", marked(each for each in EXPORTS if each not in REFUSED))
def test_an_export_compiles_and_agrees_with_onnxruntime(which: Which, write: Callable[[Which], Export]) -> None:
    export = write(which)
    options = VerifyOptions(samples=SAMPLES, feeds=export.inputs)
    report = verify_model(export.model, CHIP, CompileOptions(planner_or_auto(PLAIN)), options)
    assert report.failures == ()
    errors = {layer.name: layer.isolated_error for layer in report.layers if layer.isolated_error is not None}
    assert errors
    assert {layer: error for layer, error in errors.items() if not error <= LAYER_BOUND} == {}

    feeds = [dict(np.load(path)) for path in export.inputs]
    plain = run(export.model, PLAIN, feeds)
    for ours, exact in zip(plain, (reference(export.model, feed) for feed in feeds), strict=True):
        assert ours.keys() == exact.keys()
        for name, values in ours.items():
            assert relative(values, exact[name]) <= NETWORK_BOUND, name
    assert not same_bytes(*plain), "what comes out does not depend on what goes in"

    for level in LEVELS:
        assert all(map(same_bytes, run(export.model, level, feeds), plain)), level


@pytest.mark.parametrize("which", marked(REFUSED))
def test_what_is_refused_is_refused_for_the_reason_that_is_listed(
    which: Which, write: Callable[[Which], Export]
) -> None:
    """An export that compiles by now, or fails for something else, has to leave the list or change its reason."""
    with pytest.raises(UserError) as refusal:
        dsa_sched.compile(write(which).model, chip=CHIP, level=PLAIN)
    assert REFUSED[which] in str(refusal.value)


@pytest.mark.slow
def test_the_table_names_the_architectures_that_there_are() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[exports]'")
    from tests.exports import architectures

    assert tuple(architectures.ARCHITECTURES) == NAMES
    assert len(NAMES) == 24
    assert set(REFUSED) <= set(EXPORTS)


@pytest.mark.slow(at_commit=1)
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_an_architecture_is_written_with_the_same_bytes_again(exporter: str, write: Callable[[Which], Export]) -> None:
    first, second = (write((name, exporter)).model.read_bytes() for name in ("mlp_mixer", "mlp_mixer"))
    assert first == second
