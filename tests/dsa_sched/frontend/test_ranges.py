"""What leaves the range of fp16 between two ordinary values is computed so that it does not, however it is spelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import dsa_sched
from dsa_sched.frontend import load_model
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.ranged_models import CASES

OF_EACH_RULE = (
    "flax norm",
    "keras norm",
    "unbiased deviation by a sum",
    "log of a variance",
    "magnitude",
    "log of a power",
    "log of a square",
    "power of a guarded value",
    "normalised, Clip",
    "share",
    "quotient of either sign",
    "softmax over two axes",
)


def require_near(name: str, chip: str, level: str, folder: Path) -> None:
    """The results of a case are those of onnxruntime, within its bound."""
    case = CASES[name]
    b = ModelBuilder(opset=case.opset)
    x = case.input()
    path = b.save(folder, case.write(b, b.input(*x.shape)))
    (expected,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x0": x})
    (found,) = dsa_sched.compile(path, chip=chip, level=level).run({"x0": x}).values()
    assert np.isfinite(expected).all()
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - expected) <= case.bound * np.linalg.norm(expected)


@pytest.mark.spread(11)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.commit
def test_ordinary_results_stay_ordinary(name: str, tmp_path: Path) -> None:
    require_near(name, "stcp920", "O0", tmp_path)


@pytest.mark.spread(4)
@pytest.mark.parametrize(("chip", "level"), [("stcp920", "O3"), ("a100", "O0")])
@pytest.mark.parametrize("name", OF_EACH_RULE)
@pytest.mark.commit
def test_they_do_on_gpus_and_in_instances_too(name: str, chip: str, level: str, tmp_path: Path) -> None:
    require_near(name, chip, level, tmp_path)


def test_what_is_kept_in_range_is_told_by_its_node(tmp_path: Path) -> None:
    b = ModelBuilder(opset=17)
    x = b.input(4, 32)
    norm = b.node("ReduceL2", x, axes=[-1], keepdims=1, name="length")
    held = b.node("Max", b.node("Relu", x), b.constant(1e-9), name="held")
    quotient = b.node("Div", b.node("Div", x, b.node("Max", norm, b.constant(1e-12))), held)
    path = b.save(tmp_path, b.node("Log", b.node("Add", quotient, b.constant(1e-10)), name="log"))
    told = {decision.subject: decision.verdict for decision in load_model(path).decisions}
    assert told == {
        "length": "kept in range: sum of squares",
        "held": "kept in range: guard of a division",
        "log": "kept in range: logarithm or power",
    }
