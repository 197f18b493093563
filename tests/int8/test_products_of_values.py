"""Products of two quantised values: of integers, or of their numbers with a recorded reason."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from partitioner.planners.levels import O0
from tests.int8.decomposed_networks import Writer


@pytest.mark.parametrize(
    ("rows", "zero", "reason"),
    [
        (8, 0, ""),
        (7, 0, "its second factor is 16x7; int8 kernels need even numbers of rows and columns there"),
        (8, 3, "its factors have the zero points 3 of int8 and 0 of int8; two values need 0 of int8 or 128 of uint8"),
    ],
)
def test_a_reason_is_recorded_for_products_in_floating_point(rows: int, zero: int, reason: str, tmp_path: Path) -> None:
    writer = Writer("QDQ")
    turned = writer.add("Transpose", [writer.add("Relu", ["x"], "r")], "t", perm=[0, 2, 1])
    writer.add("MatMul", [writer.fake("x", 0.03, zero=zero), writer.fake(turned, 0.02)], "y")
    onnx.save(writer.model((1, rows, 16), {"y": (1, rows, rows)}), path := tmp_path / "values.onnx")
    made = compile_model(path, "stcp920", CompileOptions(O0()))
    (product,) = [op for op in made.model.graph.ops if op.kind == "matmul"]
    assert made.model.graph.by_name[product.inputs[0]].dtype == ("float16" if reason else "int8")
    assert made.artifact.manifest.origin is not None
    decisions = made.artifact.manifest.origin.decisions
    assert [each.reason for each in decisions if each.verdict == "product in floating point"] == [reason] * bool(reason)
