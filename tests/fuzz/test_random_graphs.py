"""Random networks on random chips: right or refused with a clear message, and nothing else.

A network that compiles is run poisoned; every layer must be bit for bit what the emulation of the chip's arithmetic
makes of its inputs in memory, and every output close to onnxruntime's. Closeness is that of a whole network in fp16:
3e-2 of the norm, or 1e-2 a value. The first rule finds wrong machine code, the second a frontend that misread the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from dsa_sched.frontend import load_model
from hw_models.chip import Chip
from hw_models.errors import UserError
from tests.chip_runs import compile_graph, small_chip
from tests.fuzz.onnx_graphs import models

Array = npt.NDArray[np.generic]
KIB = 1024
RELATIVE, ABSOLUTE = 3e-2, 1e-2
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)

chips = st.builds(
    small_chip,
    cores=st.integers(1, 8),
    data_bytes=st.sampled_from([6, 16, 64, 1024]).map(lambda kib: kib * KIB),
    weights_bytes=st.sampled_from([4, 16, 256]).map(lambda kib: kib * KIB),
    im_bytes=st.sampled_from([2, 16, 256]).map(lambda kib: kib * KIB),
    llb_bytes=st.sampled_from([32, 128, 8192]).map(lambda kib: kib * KIB),
    enforced=st.booleans(),
)


def random_inputs(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    shapes = {item.name: tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim) for item in model.graph.input}
    return {name: random.normal(0, 1, shape).astype(np.float16).astype(np.float32) for name, shape in shapes.items()}


def reference(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in model.graph.output]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def check(model: onnx.ModelProto, chip: Chip, seed: int) -> str:
    """Right or refused; returns which. Raises AssertionError, or whatever the compiler lets escape."""
    inputs = random_inputs(model, seed)
    wanted = reference(model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        try:
            loaded = load_model(path)
            compiled = compile_graph(loaded.graph, loaded.constants, chip)
        except UserError as error:
            return f"refused: {type(error).__name__}"
    graph = compiled.graph
    device = {
        name: np.ascontiguousarray(inputs[name].transpose(graph.by_name[name].axes).astype(np.float16)).view(np.uint16)
        for name in graph.inputs
    }
    stored = compiled.run(device, seed)
    for name, (got, emulated) in compiled.expected(stored).items():
        np.testing.assert_array_equal(got, emulated, err_msg=name)
    for name in graph.outputs:
        result = stored[name].view(np.float16).astype(np.float64).transpose(np.argsort(graph.by_name[name].axes))
        assert result.shape == wanted[name].shape, name
        exact = wanted[name].astype(np.float64)
        distance = float(np.linalg.norm(result - exact))
        bound = max(RELATIVE * float(np.linalg.norm(exact)), ABSOLUTE * result.size**0.5)
        assert distance <= bound, f"{name}: error {distance:.3g}, at most {bound:.3g}"
    return "runs"


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW, derandomize=True)
@given(model=models(), chip=chips, seed=st.integers(0, 1 << 30))
def test_random_networks_are_right_or_refused(model: onnx.ModelProto, chip: Chip, seed: int) -> None:
    event(check(model, chip, seed))


@pytest.mark.nightly
@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(model=models(), chip=chips, seed=st.integers(0, 1 << 30))
def test_many_random_networks_are_right_or_refused(model: onnx.ModelProto, chip: Chip, seed: int) -> None:
    event(check(model, chip, seed))
