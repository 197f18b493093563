"""Models with unusual ends: no outputs, constants as outputs, values without axes, types that the device lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.cli import cli
from dsa_sched.frontend import load_model
from dsa_sched.pipeline.driver import compile_clusters, compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError
from partitioner.planners.levels import O0, O2, planner_or_auto
from tests.small_models import save

node = helper.make_node
F, D, WHOLE = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
THREE = np.arange(1, 4, dtype=np.float32)
WEIGHTS = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8, 1, 1)
End = tuple[str, int, tuple[int, ...]]


def network(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[End], outputs: Sequence[End], **constants: np.ndarray
) -> onnx.ModelProto:
    given, found = ([helper.make_tensor_value_info(*end) for end in side] for side in (inputs, outputs))
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(list(nodes), "ends", given, found, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


IMAGE = ("x", F, (1, 8, 4, 4))
ROW = ("x", F, (2, 3))
MODELS: Mapping[str, onnx.ModelProto] = {
    "a constant as an output": network(
        [node("Relu", ["x"], ["y"])], [IMAGE], [("y", F, (1, 8, 4, 4)), ("c", F, (3,))], c=THREE
    ),
    "an output folded to a constant": network(
        [node("Relu", ["x"], ["y"]), node("Exp", ["c"], ["e"])], [IMAGE], [("e", F, (3,)), ("y", F, (1, 8, 4, 4))],
        c=THREE,
    ),
    "the shape of an input as an output": network(
        [node("Relu", ["x"], ["y"]), node("Shape", ["x"], ["s"])], [IMAGE], [("y", F, (1, 8, 4, 4)), ("s", WHOLE, (4,))]
    ),
    "weights as an output, which the device keeps in another order": network(
        [node("Conv", ["x", "w"], ["y"])], [IMAGE], [("y", F, (1, 8, 4, 4)), ("w", F, (8, 8, 1, 1))], w=WEIGHTS
    ),
    "an operand as an output": network(
        [node("Add", ["x", "c"], ["y"])], [ROW], [("c", F, (3,)), ("y", F, (2, 3))], c=THREE
    ),
    "a constant without axes as an output": network(
        [node("Relu", ["x"], ["y"])], [ROW], [("c", F, ()), ("y", F, (2, 3))], c=np.array(2.5, np.float32)
    ),
    "a constant cast like an input": network(
        [node("CastLike", ["c", "x"], ["k"]), node("Sqrt", ["k"], ["r"]), node("Mul", ["x", "r"], ["y"])],
        [ROW], [("y", F, (2, 3))], c=THREE.astype(np.float64),
    ),
    "constants alone": network([node("Exp", ["c"], ["e"])], [ROW], [("e", F, (3,))], c=THREE),
    "constants alone, and no input": network([node("Exp", ["c"], ["e"])], [], [("e", F, (3,))], c=THREE),
    "a scalar that scales": network(
        [node("Mul", ["x", "s"], ["y"])], [ROW, ("s", F, ())], [("y", F, (2, 3))]
    ),
    "scalars alone": network(
        [node("Mul", ["x", "s"], ["m"]), node("Sub", ["m", "c"], ["d"]), node("Tanh", ["d"], ["y"])],
        [("x", F, ()), ("s", F, ())], [("y", F, ()), ("m", F, ())], c=np.array(0.25, np.float32),
    ),
    "a scalar between": network(
        [
            node("ReduceMean", ["x"], ["m"], keepdims=0), node("Exp", ["m"], ["e"]), node("Clip", ["e"], ["l"]),
            node("Add", ["e", "l"], ["t"]), node("Mul", ["x", "t"], ["y"]),
        ],
        [ROW], [("y", F, (2, 3))],
    ),
    "a scalar that is reduced, and one passed on": network(
        [node("ReduceSum", ["s"], ["y"])], [("s", F, ())], [("y", F, ()), ("s", F, ())]
    ),
    "a scalar as an output": network([node("ReduceMax", ["x"], ["y"], keepdims=0)], [ROW], [("y", F, ())]),
    "double precision": network(
        [node("Mul", ["x", "c"], ["m"]), node("Relu", ["m"], ["y"])], [("x", D, (2, 3))],
        [("y", D, (2, 3)), ("c", D, (3,))], c=THREE.astype(np.float64),
    ),
    "double precision cast down": network(
        [node("Cast", ["x"], ["m"], to=F), node("Relu", ["m"], ["y"])], [("x", D, (2, 3))], [("y", F, (2, 3))]
    ),
}  # fmt: skip


def drawn(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {
        item.name: random.normal(0, 1, [dim.dim_value for dim in item.type.tensor_type.shape.dim]).astype(
            helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
        )
        for item in model.graph.input
    }


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("name", MODELS)
def test_it_compiles_and_runs(name: str, level: str, tmp_path: Path) -> None:
    """Values, shapes and types are those of onnxruntime."""
    path = save(MODELS[name], tmp_path / "m.onnx")
    feeds = drawn(MODELS[name])
    found = compile_model(path, "stcp920", CompileOptions(planner_or_auto(level))).artifact.run(feeds)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    assert list(found) == names
    for output, expected in zip(names, session.run(names, feeds), strict=True):
        assert (found[output].shape, found[output].dtype) == (expected.shape, expected.dtype), output
        assert np.allclose(found[output], expected, rtol=4e-3, atol=4e-3), output


@pytest.mark.spread(7)
@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith("constants alone")])
@pytest.mark.commit
def test_verify_judges_it(name: str, tmp_path: Path) -> None:
    path = save(MODELS[name], tmp_path / "m.onnx")
    assert verify_model(path, "stcp920", CompileOptions(O2()), VerifyOptions(samples=64)).failures == ()


def test_verify_has_nothing_to_judge_where_nothing_is_computed(tmp_path: Path) -> None:
    path = save(MODELS["constants alone"], tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="ends: needs an output that depends on an input; has outputs that are const"):
        verify_model(path, "stcp920", CompileOptions(O0()))


def test_a_model_without_outputs_is_refused(tmp_path: Path) -> None:
    path = save(network([node("Relu", ["x"], ["y"])], [IMAGE], []), tmp_path / "m.onnx")
    result = CliRunner().invoke(cli, ["compile", str(path), "--chip", "stcp920", "-o", str(tmp_path / "out")])
    assert result.exit_code == 1
    said = f"{path}: needs at least one output; has none, so that nothing would be computed; list the values"
    assert said in result.stderr


@pytest.mark.parametrize("array", [np.array(["a", "b"], object), np.zeros((0, 3), np.float32), np.ones(3, np.uint64)])
def test_a_constant_that_no_device_holds_is_no_output(array: np.ndarray, tmp_path: Path) -> None:
    dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
    model = network([node("Relu", ["x"], ["y"])], [ROW], [("y", F, (2, 3)), ("c", dtype, array.shape)], c=array)
    with pytest.raises(ModelError, match=r"output c: needs elements, of a floating-point type .* leave it out"):
        load_model(save(model, tmp_path / "m.onnx"))


def test_constants_are_no_items_of_a_batch(tmp_path: Path) -> None:
    model = network([node("Relu", ["x"], ["y"])], [ROW], [("y", F, (2, 3)), ("c", F, (2,))], c=THREE[:2])
    with pytest.raises(ModelError, match="c is constant: its items do not belong to those of the inputs"):
        compile_clusters(save(model, tmp_path / "m.onnx"), "stcp920", CompileOptions(O0(), batch=4, clusters=2))


def test_double_precision_is_told_once(tmp_path: Path) -> None:
    warned = {name: load_model(save(model, tmp_path / "m.onnx")).warnings for name, model in MODELS.items()}
    assert warned.pop("double precision") == ("ends: x, m, y are float64 and computed in float16, the device's type",)
    assert warned.pop("double precision cast down") == (
        "ends: x is float64 and computed in float16, the device's type",
    )
    assert set(warned.values()) == {()}


def test_many_double_values_are_counted(tmp_path: Path) -> None:
    names = [f"v{number}" for number in range(9)]
    nodes = [node("Relu", [a], [b]) for a, b in pairwise(names)]
    model = network(nodes, [("v0", D, (2, 3))], [("v8", D, (2, 3))])
    (warning,) = load_model(save(model, tmp_path / "m.onnx")).warnings
    assert warning.startswith("ends: v0, v1, v2 and 6 more are float64")


def test_bfloat16_comes_and_goes_as_float32(tmp_path: Path) -> None:
    """Arrays of bfloat16 cannot be saved by numpy; float32 holds all its values."""
    kind = TensorProto.BFLOAT16
    scale = THREE.astype(ml_dtypes.bfloat16)
    model = network([node("Mul", ["x", "c"], ["y"])], [("x", kind, (2, 3))], [("y", kind, (2, 3))], c=scale)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = compile_model(save(model, tmp_path / "m.onnx"), "stcp920", CompileOptions(O0())).artifact.run({"x": x})["y"]
    assert found.dtype == np.float32
    assert np.array_equal(found, x * THREE)
