"""If: the branch that shapes and constants choose is compiled; one that data choose is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend import load_model
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import ModelError
from partitioner.planners.levels import O0
from tests.reference_runs import reference, require_near

Shape = Sequence[int | str]


def branch(
    nodes: list[onnx.NodeProto], output: str = "r", constants: Sequence[onnx.TensorProto] = ()
) -> onnx.GraphProto:
    """Of no inputs of its own, as every branch; values of the same names in every one."""
    return helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name=output)], constants)


def node(op_type: str, inputs: Sequence[str], output: str, **settings: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), [output], name=f"{op_type}_{output}", **settings)


def model(nodes: list[onnx.NodeProto], shape: Shape = (1, 4, 1), **constants: Any) -> onnx.ModelProto:
    """Of x and what nodes make of it, to y."""
    return helper.make_model(
        helper.make_graph(
            nodes,
            "branches",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def on_last_extent(then: onnx.GraphProto, other: onnx.GraphProto, output: str = "z") -> list[onnx.NodeProto]:
    """As exporters write a squeeze: by whether the last axis has one element."""
    return [
        node("Shape", ["x"], f"{output}_s"),
        node("Gather", [f"{output}_s", "two"], f"{output}_d"),
        node("Equal", [f"{output}_d", "one"], f"{output}_c"),
        node("If", [f"{output}_c"], output, then_branch=then, else_branch=other),
    ]


NUMBERS: dict[str, Any] = {"two": np.array(2), "one": np.array(1), "axis": np.array([2])}


def test_a_branch_that_a_shape_chooses(tmp_path: Path) -> None:
    squeeze, same = branch([node("Squeeze", ["x", "axis"], "r")]), branch([node("Neg", ["x"], "r")])
    require_near(model([*on_last_extent(squeeze, same), node("Relu", ["z"], "y")], **NUMBERS), tmp_path)


@pytest.mark.parametrize("extent", [1, 3])
def test_a_shape_given_later_chooses(extent: int, tmp_path: Path) -> None:
    """The file leaves the extent open."""
    squeeze, same = branch([node("Squeeze", ["x", "axis"], "r")]), branch([node("Neg", ["x"], "r")])
    file = model([*on_last_extent(squeeze, same), node("Relu", ["z"], "y")], (1, 4, "n"), **NUMBERS)
    path = tmp_path / "open.onnx"
    onnx.save(file, path)
    x = np.random.default_rng(0).normal(0, 1, (1, 4, extent)).astype(np.float32)
    made = compile_model(path, "stcp920", CompileOptions(O0(), shapes=(("x", (1, 4, extent)),)))
    got, wanted = made.artifact.run({"x": x})["y"], reference(file, {"x": x})["y"]
    assert np.linalg.norm(got.astype(np.float64) - wanted.astype(np.float64)) < 1e-2


def test_branches_within_branches_and_of_equal_names(tmp_path: Path) -> None:
    """Two with the same inner names, one with an inner If that reads a value of the branch around it."""
    weights = numpy_helper.from_array(np.full((1, 4, 1), 0.5, np.float32), "w")
    inner = node(
        "If",
        ["yes"],
        "r",
        then_branch=branch([node("Add", ["t", "x"], "q")], "q"),
        else_branch=branch([node("Neg", ["t"], "r")]),
    )
    outer = branch([node("Mul", ["x", "w"], "t"), inner], constants=[weights])
    other = branch([node("Abs", ["x"], "t"), node("Neg", ["t"], "r")])
    nodes = [*on_last_extent(outer, other, "a"), *on_last_extent(other, outer, "b"), node("Sub", ["a", "b"], "y")]
    nodes[-2].input[0] = "no"
    require_near(model(nodes, yes=np.array(True), no=np.array(False), **NUMBERS), tmp_path)


def test_a_branch_that_gives_out_what_is_around_it(tmp_path: Path) -> None:
    nodes = [
        node("Exp", ["x"], "e"),
        node(
            "If",
            ["yes"],
            "z",
            then_branch=branch([node("Identity", ["e"], "r")]),
            else_branch=branch([node("Neg", ["x"], "r")]),
        ),
        node("Add", ["z", "x"], "y"),
    ]
    require_near(model(nodes, yes=np.array([True])), tmp_path, tolerance=1e-2)


def test_a_condition_of_data_is_refused() -> None:
    nodes = [
        node("ReduceMax", ["x"], "m", keepdims=0),
        node("Greater", ["m", "half"], "c"),
        node(
            "If",
            ["c"],
            "z",
            then_branch=branch([node("Neg", ["x"], "r")]),
            else_branch=branch([node("Identity", ["x"], "r")]),
        ),
        node("Relu", ["z"], "y"),
    ]
    with pytest.raises(ModelError, match=r"If If_z .*: its condition is computed at run time"):
        load_model(model(nodes, half=np.array(0.5, np.float32)))


def test_what_a_chosen_branch_holds_is_judged() -> None:
    """By the name of its If, which is in the file."""
    custom = branch([helper.make_node("Magic", ["x"], ["r"], domain="com.example")])
    plain = branch([node("Identity", ["x"], "r")])
    file = model([node("If", ["yes"], "y", then_branch=custom, else_branch=plain)], yes=np.array(True))
    file.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(ModelError, match=r"Magic If_y::Magic_0::0 .*domain com.example is not standard ONNX"):
        load_model(file)


def test_names_that_rewrites_could_make_too(tmp_path: Path) -> None:
    """A value `x::t` beside `x`, which gets another name outside of a branch and in it, and the same within one."""
    inner = branch([node("Exp", ["x::t"], "e"), node("Neg", ["e"], "e::0"), node("Softsign", ["e::0"], "r")])
    other = branch([node("Identity", ["x"], "r")])
    nodes = [node("Abs", ["x"], "x::t"), node("If", ["yes"], "y", then_branch=inner, else_branch=other)]
    require_near(model(nodes, yes=np.array(True)), tmp_path, tolerance=1e-2)


def test_data_of_a_branch_may_not_lie_anywhere(tmp_path: Path) -> None:
    """As data of the graph itself: inside the model's folder."""
    tensor = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../outside.bin")
    inside = branch([node("Mul", ["x", "w"], "r")], constants=[tensor])
    file = model([node("If", ["yes"], "y", then_branch=inside, else_branch=inside)], yes=np.array(True))
    path = tmp_path / "m.onnx"
    path.write_bytes(file.SerializeToString())
    with pytest.raises(ModelError, match="external data inside the model's folder"):
        load_model(path)
