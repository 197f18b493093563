"""What leaves the range of fp16 between two ordinary values is computed so that it does not, however it is spelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import dsa_sched
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.ranged_models import CASES


@pytest.mark.parametrize("name", CASES)
def test_ordinary_results_stay_ordinary(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    b = ModelBuilder(opset=case.opset)
    x = case.input()
    path = b.save(tmp_path, case.write(b, b.input(*x.shape)))
    (expected,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x0": x})
    (found,) = dsa_sched.compile(path, chip="stcp920", level="O0").run({"x0": x}).values()
    assert np.isfinite(expected).all()
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - expected) <= case.bound * np.linalg.norm(expected)
