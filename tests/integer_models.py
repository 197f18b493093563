"""Small ONNX models whose inputs are integers, compiled and run, against onnxruntime; written here for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.prepared_values import wrong_prepared
from partitioner.planners.levels import planner_or_auto

__all__ = ["Array", "compiled", "model_of", "node", "reference", "run_whole", "table"]

Array = npt.NDArray[np.generic]


def node(op_type: str, inputs: Sequence[str], output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), [output], name=f"the_{output}", **attributes)


def table(rows: int, *width: int) -> npt.NDArray[np.float32]:
    """Rows that differ, of numbers that halves hold exactly."""
    numbers = np.random.default_rng(rows).integers(-1000, 1000, (rows, *width)) / 8
    return numbers.astype(np.float32)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array],
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
) -> onnx.ModelProto:
    """Inputs of the arrays' types and shapes."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "integers",
        infos,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def compiled(
    model: onnx.ModelProto, folder: Path, level: str = "O0", chip: str | Path = "stcp920", **options: Any
) -> Compilation:
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return compile_model(path, chip, CompileOptions(planner_or_auto(level), keep_values=True, **options))


def reference(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(inputs))]


def run_whole(compilation: Compilation, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a run whose prepared values are those of the emulation and of the reference."""
    artifact = compilation.artifact
    names = [entry for entry in artifact.manifest.tensors if entry.kind != "probe"]
    dumps = tuple(dict.fromkeys((entry.address, entry.bytes) for entry in names))
    from dsa_sched.artifact.runner import execute

    done = execute(artifact, artifact.encode(inputs), dumps, None, 3)
    dump = {entry.name: done.memory[entry.address, entry.bytes] for entry in names}
    exact = OnnxReference(compilation.model.source).values(inputs)
    assert list(wrong_prepared(compilation, dump, exact, 0)) == []
    return artifact.decode(done.memory)
