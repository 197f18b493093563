"""Small ONNX models compiled and run on the simulator, against onnxruntime without its optimisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper

from dsa_sched.frontend.network.shapes import initializer_names
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from partitioner.planners.levels import planner_or_auto

__all__ = ["Array", "drawn", "reference", "require_near"]

Array = npt.NDArray[np.generic]


def drawn(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Numbers that fp16 holds exactly for every input; integers from 0 to 3."""
    random, constants = np.random.default_rng(seed), initializer_names(model)
    feed: dict[str, Array] = {}
    for item in model.graph.input:
        if item.name in constants:
            continue
        shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
        numbers = random.normal(0, 1, shape).astype(np.float16)
        feed[item.name] = (numbers if dtype.kind == "f" else random.integers(0, 4, shape)).astype(dtype)
    return feed


def reference(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return {name: np.asarray(array) for name, array in zip(names, session.run(None, dict(feed)), strict=True)}


def require_near(
    model: onnx.ModelProto,
    folder: Path,
    *,
    levels: Sequence[str] = ("O0", "O3"),
    chip: str = "stcp920",
    feed: Mapping[str, Array] | None = None,
    tolerance: float = 2e-3,
    wanted: Mapping[str, Array] | None = None,
) -> Compilation:
    """Every output has the reference's shape and, relative to its norm, an error of at most `tolerance`; all levels
    store the same bits. Returns what the last level made."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    feed = drawn(model) if feed is None else feed
    wanted = reference(model, feed) if wanted is None else wanted
    first: dict[str, Array] = {}
    for level in levels:
        made = compile_model(path, chip, CompileOptions(planner_or_auto(level)))
        got = made.artifact.run(feed)
        for name, value in wanted.items():
            assert got[name].shape == value.shape, name
            error = float(np.linalg.norm(got[name].astype(np.float64) - value.astype(np.float64)))
            assert error <= tolerance * max(float(np.linalg.norm(value)), 1e-6), (level, name, error)
            np.testing.assert_array_equal(got[name], first.setdefault(name, got[name]), err_msg=f"{level}, {name}")
    return made
