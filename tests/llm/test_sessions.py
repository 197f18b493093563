"""Runs that follow each other: what is kept between them, in Python and on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import dsa_sched
from dsa_sched.cli import cli
from hw_models.errors import ModelError

ROW = np.arange(4, dtype=np.float32)[None]


def sums(names: tuple[str, str] = ("past.0.total", "present.0.total")) -> onnx.ModelProto:
    """Adds x to what is kept, and makes twice the sum."""
    past, present = names
    nodes = [helper.make_node("Add", ["x", past], [present]), helper.make_node("Add", [present, present], ["twice"])]
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4)) for name in ("x", *names, "twice")}
    graph = helper.make_graph(nodes, "sums", [ends["x"], ends[past]], [ends[present], ends["twice"]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "names",
    [
        ("past.0.total", "present.0.total"),
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_0", "present_key_0"),
        ("past0", "present0"),
    ],
)
def test_pairs_of_the_usual_spellings_are_kept(names: tuple[str, str]) -> None:
    session = dsa_sched.compile(sums(names), "stcp920", level="O0", cache=False).session()
    assert session.pairs == {names[1]: names[0]}
    for count in (1, 2, 3):
        outputs = session.run({"x": ROW})
        assert [*outputs] == ["twice"]
        assert np.array_equal(outputs["twice"], 2 * count * ROW)
    assert np.array_equal(session.state[names[0]], 3 * ROW)
    session.reset()
    assert np.array_equal(session.run({"x": ROW})["twice"], 2 * ROW)


def test_steps_stack_outputs_and_read_one_value_per_step() -> None:
    artifact = dsa_sched.compile(sums(("a", "b")), "stcp920", level="O0", cache=False)
    x = np.stack([ROW, 2 * ROW, 4 * ROW])
    found = artifact.session({"b": "a"}).steps({"x": x, "a": ROW}, 3)
    assert np.array_equal(found["twice"][:, 0, 1], [4, 8, 16])
    assert np.array_equal(found["b"], 8 * ROW)
    assert artifact.session().pairs == {}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"none": "a"}, "an output, one of"),
        ({"b": "none"}, "an input, one of"),
        ({"b": "a", "twice": "a"}, "one output that is its next value"),
    ],
)
def test_pairs_that_do_not_go_together_are_refused(state: dict[str, str], message: str) -> None:
    artifact = dsa_sched.compile(sums(("a", "b")), "stcp920", level="O0", cache=False)
    with pytest.raises(ModelError, match=message):
        artifact.session(state)


def test_the_command_line_runs_steps(tmp_path: Path) -> None:
    dsa_sched.compile(sums(), "stcp920", level="O0", cache=False).save(tmp_path / "a")
    np.savez(tmp_path / "x.npz", x=ROW)
    command = ["run", str(tmp_path / "a"), "--input", str(tmp_path / "x.npz"), "--output", str(tmp_path / "y.npz")]
    done = CliRunner().invoke(cli, [*command, "--steps", "3"])
    assert done.exit_code == 0, done.output
    assert "past.0.total <- present.0.total" in done.stderr
    with np.load(tmp_path / "y.npz") as found:
        assert np.array_equal(found["twice"], 2 * np.stack([ROW, 2 * ROW, 3 * ROW]))
        assert np.array_equal(found["present.0.total"], 3 * ROW)
    refused = CliRunner().invoke(cli, [*command, "--state", "twice=x"])
    assert refused.exit_code == 2
    assert "--state needs --steps" in refused.stderr
    wrong = CliRunner().invoke(cli, [*command, "--steps", "2", "--state", "twice=none"])
    assert wrong.exit_code == 1
    assert "an input, one of" in wrong.stderr
