"""What the reference says that layers compute: onnxruntime in fp32 is within its error, for every kind of operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.codegen.cutlass.reference.fed_layers import evaluated, fed
from tests.codegen.cutlass.reference.models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_is_within_the_error(name: str, tmp_path: Path) -> None:
    build, opset = MODELS[name]
    found = fed(build, tmp_path, opset)
    compared = [layer for layer in found.layers if layer.output in found.wanted]
    for layer in compared:
        ours, wanted = evaluated(found, layer), found.wanted[layer.output]
        apart = np.abs(ours.numbers - wanted)
        assert (apart <= ours.error).all(), (layer.name, apart.max(), ours.error[apart.argmax()])
        # The error is that of fp32, not something in which a wrong operator could hide.
        assert np.median(ours.error) <= 1e-4 * max(1.0, float(np.abs(wanted).max()))
    assert compared or not found.layers
