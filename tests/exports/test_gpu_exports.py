"""What PyTorch's exporters write compiles for a GPU, without a host, and is within its bound on the executor.

    architecture, TorchScript --export--> file --verify for h200 at O3--> every layer and output judged

All of them at night, with the extra `exports` installed; one at every commit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import planner_or_auto
from tests.exports.table import NAMES

CHIP, LEVEL, SAMPLES = "h200", "O3", 64
AT_COMMIT = "wide_and_deep"

MARKED = [
    pytest.param(name, marks=pytest.mark.slow if name == AT_COMMIT else pytest.mark.nightly, id=name) for name in NAMES
]


@pytest.mark.parametrize("name", MARKED)
def test_an_export_is_right_on_a_gpu(name: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "torch", reason="PyTorch, which writes these models, is not installed: pip install '.[exports]'"
    )
    from tests.exports.exporting import export

    written = export(name, "script", tmp_path)
    options = VerifyOptions(samples=SAMPLES, feeds=written.inputs)
    report = verify_model(written.model, CHIP, CompileOptions(planner_or_auto(LEVEL)), options)
    assert report.failures == ()
    assert report.layers
