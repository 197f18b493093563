"""`--bind`: an input becomes a constant, is folded, and is no input of what is compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.artifact.format import Artifact
from dsa_sched.cli import cli
from dsa_sched.frontend import load_model
from hw_models.errors import ModelError
from tests.reference_runs import reference


@pytest.fixture
def rated(tmp_path: Path) -> Path:
    """A network that halves its input or not, by a sampling rate, and adds a row of an open length."""

    def branch(op_type: str, *inputs: str) -> onnx.GraphProto:
        node = helper.make_node(op_type, list(inputs), ["r"], name=op_type)
        return helper.make_graph([node], op_type, [], [onnx.ValueInfoProto(name="r")])

    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["c"], name="equal"),
        helper.make_node(
            "If", ["c"], ["z"], name="if", then_branch=branch("Mul", "x", "half"), else_branch=branch("Identity", "x")
        ),
        helper.make_node("Add", ["z", "row"], ["y"], name="add"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
        helper.make_tensor_value_info("sr", TensorProto.INT64, []),
        helper.make_tensor_value_info("row", TensorProto.FLOAT, ["n"]),
    ]
    constants = {"rate": np.array(16000), "half": np.array(0.5, np.float32)}
    graph = helper.make_graph(
        nodes,
        "rated",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = tmp_path / "rated.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


BINDINGS = ("--bind", "sr=16000", "--bind", "row=1,2,3,4.5")


def test_what_is_compiled_has_no_such_input(rated: Path, tmp_path: Path) -> None:
    words = ["compile", rated, "--chip", "stcp920", "--level", "O0", *BINDINGS, "-o", tmp_path / "out"]
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    artifact = Artifact.load(tmp_path / "out")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    feed = {"x": x, "sr": np.array(16000), "row": np.array([1, 2, 3, 4.5], np.float32)}
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], reference(onnx.load(rated), feed)["y"])


@pytest.mark.parametrize("command", [("verify", "--level", "O0"), ("explain", "--level", "O0")])
def test_other_commands_take_it(command: tuple[str, ...], rated: Path) -> None:
    done = CliRunner().invoke(cli, [command[0], str(rated), "--chip", "stcp920", *command[1:], *BINDINGS])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("bindings", "said"),
    [
        ({"rate": (1,)}, "--bind rate: needs the name of an input of the model; has inputs x, sr, row"),
        ({"sr": (0.5,)}, "--bind sr=0.5: needs elements of int64, the type of the input; has 0.5"),
        ({"sr": (1, 2)}, r"--bind sr: needs the elements of \[\], in order; has 2 elements"),
        ({"x": (1, 2, 3)}, r"--bind x: needs the elements of \[2, 4\], in order; has 3 elements"),
    ],
)
def test_what_cannot_be_bound(bindings: dict[str, tuple[float, ...]], said: str, rated: Path) -> None:
    with pytest.raises(ModelError, match=said):
        load_model(rated, bindings=bindings)


@pytest.mark.parametrize("text", ["sr", "sr=", "=1", "sr=1,,2", "sr=fast"])
def test_words_that_are_no_binding(text: str, rated: Path) -> None:
    done = CliRunner().invoke(cli, ["compile", str(rated), "--chip", "stcp920", "--print", "graph", "--bind", text])
    assert done.exit_code == 2
    assert "is not NAME=VALUE" in done.stderr
