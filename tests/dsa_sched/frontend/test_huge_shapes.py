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


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_resize_of_two_thousand_million_elements_is_refused(mode: str, tmp_path: Path) -> None:
    """What says where results come from would be a matrix of 32 GiB."""
    shape, wanted = [1 << 31, 8, 5, 2], [2 if mode != "nearest" else 1 << 30, 8, 9, 2]
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], name="large", mode=mode)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, at) for name, at in (("x", shape), ("y", wanted))]
    sizes = numpy_helper.from_array(np.array(wanted, np.int64), "sizes")
    graph = helper.make_graph([node], "huge", ends[:1], ends[1:], [sizes])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "huge.onnx")
    with pytest.raises(ModelError, match="large"):
        compile_model(tmp_path / "huge.onnx", "stcp920", CompileOptions(O0()))
