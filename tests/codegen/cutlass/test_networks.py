"""Whole networks of the zoo on the executor of PTX: every layer within its bound, one kernel a layer and fused."""

from __future__ import annotations

import pytest

from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import verify_model
from partitioner.planners.levels import planner_or_auto


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("network", "level"),
    [
        ("mobilenet_v2-mini", "O3"),
        ("squeezenet", "O0"),
        ("resnet50", "O0"),
        ("mobilenet_v2", "O3"),
    ],
)
def test_every_layer_is_within_its_bound(network: str, level: str) -> None:
    report = verify_model(network, "a100", CompileOptions(planner_or_auto(level)))
    assert report.failures == ()
    assert all(layer.samples and layer.samples_wrong == 0 for layer in report.layers)
