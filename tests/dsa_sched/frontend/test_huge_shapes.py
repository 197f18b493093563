"""Extents of a stranger's file are bounded before anything is made for each element: a refusal, not a memory full."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import ModelError
from partitioner.planners.levels import O0


@pytest.mark.parametrize(
    ("mode", "way", "shape", "wanted"),
    [
        ("nearest", "half_pixel", [1 << 31, 8, 5, 2], [1 << 30, 8, 9, 2]),
        ("linear", "half_pixel", [1 << 31, 8, 5, 2], [2, 8, 9, 2]),
        ("cubic", "half_pixel", [1 << 31, 8, 5, 2], [2, 8, 9, 2]),
        ("linear", "tf_crop_and_resize", [1, 1, 1 << 16, 2], [1, 1, 1 << 16, 2]),
    ],
)
def test_a_resize_of_many_elements_is_refused(
    mode: str, way: str, shape: list[int], wanted: list[int], tmp_path: Path
) -> None:
    """What says where results come from would take up to 32 GiB."""
    inputs = ["x", "roi", "", "sizes"]
    node = helper.make_node("Resize", inputs, ["y"], name="large", mode=mode, coordinate_transformation_mode=way)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, at) for name, at in (("x", shape), ("y", wanted))]
    sizes = numpy_helper.from_array(np.array(wanted, np.int64), "sizes")
    roi = numpy_helper.from_array(np.array([0.0] * 4 + [1.0] * 4, np.float32), "roi")
    graph = helper.make_graph([node], "huge", ends[:1], ends[1:], [sizes, roi])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "huge.onnx")
    with pytest.raises(ModelError, match="large"):
        compile_model(tmp_path / "huge.onnx", "stcp920", CompileOptions(O0()))
