"""Whole networks of the zoo on the executor of PTX: every layer within its bound, one kernel a layer and fused."""

from __future__ import annotations

import pytest

from dsa_sched.pipeline.compilation import CompileOptions
from dsa_sched.verification.verify import verify_model


@pytest.mark.parametrize(
    ("network", "level"),
    [
        pytest.param("mobilenet_v2-mini", "O3", marks=pytest.mark.slow(at_commit=1)),
        pytest.param("squeezenet", "O0", marks=pytest.mark.slow(at_commit=1)),
        pytest.param("resnet50", "O0", marks=pytest.mark.nightly),
        pytest.param("mobilenet_v2", "O3", marks=pytest.mark.nightly),
    ],
)
def test_every_layer_is_within_its_bound(network: str, level: str) -> None:
    report = verify_model(network, "a100", CompileOptions(level))
    assert report.failures == ()
    assert all(layer.samples and layer.samples_wrong == 0 for layer in report.layers)
