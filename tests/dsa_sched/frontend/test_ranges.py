"""What leaves the range of fp16 between two ordinary values is computed so that it does not, however it is spelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import dsa_sched
from dsa_sched.frontend import load_model
from dsa_sched.frontend.patterns.found import decisions
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


def test_what_is_kept_in_range_is_told_by_its_node(tmp_path: Path) -> None:
    b = ModelBuilder(opset=17)
    x = b.input(4, 32)
    norm = b.node("ReduceL2", x, axes=[-1], keepdims=1, name="length")
    held = b.node("Max", b.node("Relu", x), b.constant(1e-9), name="held")
    quotient = b.node("Div", b.node("Div", x, b.node("Max", norm, b.constant(1e-12))), held)
    path = b.save(tmp_path, b.node("Log", b.node("Add", quotient, b.constant(1e-10)), name="log"))
    told = {decision.subject: decision.verdict for decision in decisions(load_model(path).found)}
    assert told == {
        "length": "kept in range: sum of squares",
        "held": "kept in range: guard of a division",
        "log": "kept in range: logarithm or power",
    }
