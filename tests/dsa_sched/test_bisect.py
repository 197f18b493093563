"""A failing network is narrowed to the nodes that are to blame; faults are planted in the kernels of the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from codegen.neuralscale.kernels.dispatch import NeuralScaleKernels
from dsa_sched.cli import cli
from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.operation import Writer
from dsa_sched.frontend.rules.operators import OPERATORS
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.bisect import Bisection, bisect, cut, narrow, require_place, save
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.verify import VerifyOptions, verify_model
from dsa_sched.zoo import seeded_inputs
from hw_models.chip import Chip
from hw_models.errors import UserError
from isched.program.program import Instr
from isched.program.target import DENSE
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.ir.target import TileWork
from partitioner.planners.levels import O0
from tests.small_models import classifier
from tests.small_models import save as save_model

OPTIONS = VerifyOptions(samples=256)


@pytest.fixture
def swapped_sub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target computes b - a where a - b is asked for."""
    right = NeuralScaleKernels.lower

    def wrong(
        self: NeuralScaleKernels,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        box: Box,
        work: TileWork,
        offsets_bytes: Mapping[str, int],
        chip: Chip,
        pitches_bytes: Mapping[str, int] = DENSE,
    ) -> tuple[tuple[Instr, ...], ...]:
        passes = right(self, graph, constants, layer, box, work, offsets_bytes, chip, pitches_bytes)
        return tuple(tuple(swapped(instr) for instr in instrs) for instrs in passes)

    monkeypatch.setattr(NeuralScaleKernels, "lower", wrong)


def swapped(instr: Instr) -> Instr:
    if instr.opcode != "vesub.mm":
        return instr
    old = dict(instr.operands)
    return replace(instr, operands=tuple((old | {"rs1": old["rs2"], "rs2": old["rs1"]}).items()))


def model(nodes: list[onnx.NodeProto], shape: list[int], result: list[int], **constants: np.ndarray) -> onnx.ModelProto:
    """x -> nodes -> y."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def narrowed(path: Path) -> Bisection:
    report = verify_model(path, "stcp920", CompileOptions(O0()), OPTIONS)
    assert report.failures
    found = bisect(path, "stcp920", CompileOptions(O0()), OPTIONS, report=report)
    assert found is not None
    return found


@given(st.integers(1, 60), st.data())
def test_narrow_finds_exactly_the_nodes_that_must_be_there(total: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first, total - 1))
    start = data.draw(st.integers(0, total - 1))
    suspects = data.draw(st.sampled_from([None, (start, total)]))
    assert narrow(total, lambda a, b: a <= first and last < b, suspects) == (first, last + 1)


@given(st.integers(1, 24), st.integers())
def test_what_narrow_finds_fails_and_cannot_be_trimmed(total: int, seed: int) -> None:
    """Also where failing is erratic: every part fails by the toss of a coin, the whole does."""
    failing = np.random.default_rng(abs(seed)).integers(0, 2, (total + 1, total + 1)).astype(bool)
    failing[0, total] = True

    def fails(start: int, end: int) -> bool:
        assert 0 <= start < end <= total
        return bool(failing[start, end])

    start, end = narrow(total, fails)
    assert fails(start, end)
    assert end - start == 1 or not (fails(start + 1, end) or fails(start, end - 1))


@pytest.mark.usefixtures("swapped_sub")
def test_a_kernel_that_miscomputes_is_narrowed_to_its_node(tmp_path: Path) -> None:
    path = save_model(classifier(), tmp_path / "classifier.onnx")
    found = narrowed(path)
    assert [node.name for node in found.part.model.graph.node] == ["sub"]
    assert (found.end - found.start, found.total) == (1, 9)
    assert found.check == "samples"
    assert "1 of 9 nodes (Sub sub): layer sub: " in found.line
    assert "\n" not in found.line


@pytest.mark.usefixtures("swapped_sub")
def test_the_saved_part_fails_again_on_the_saved_inputs_and_passes_without_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_model(classifier(), tmp_path / "classifier.onnx")
    command = ["verify", str(path), "--chip", "stcp920", "--bisect", "-o", str(tmp_path / "failing")]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 3, done.output
    assert "bisect: 1 of 9 nodes (Sub sub): layer sub: " in done.stdout
    files = sorted(file.name for file in (tmp_path / "failing").iterdir())
    assert files == ["failing.onnx", "failure.txt", "input0.npz", "input1.npz"]
    again = done.stdout.splitlines()[-1].removeprefix("bisect: to run it again: dsa-sched ").split()
    assert again[again.index("--level") + 1] != "auto", "the level that the whole model was judged at"
    assert "--schedule" in again
    assert CliRunner().invoke(cli, again).exit_code == 3
    monkeypatch.undo()
    assert CliRunner().invoke(cli, again).exit_code == 0


def test_a_loss_that_only_the_logits_show_is_narrowed_to_where_it_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute is misread: all of a layer is 1 % off, which its bound allows, and the inputs change little."""

    def wrong(writer: Writer, node: Node) -> None:
        numbers = {"size": node.integer("size", 0), "alpha": node.number("alpha", 0.0), "beta": 0.75, "bias": 1.013}
        writer.add(node, "lrn", numbers)

    monkeypatch.setitem(OPERATORS, "LRN", wrong)
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Mul", ["x", "small"], ["m"], name="mul"),
        helper.make_node("Add", ["m", "pattern"], ["a"], name="add"),
        helper.make_node("Conv", ["a", "w1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("LRN", ["r"], ["l"], name="lrn", size=3, alpha=1e-4, beta=0.75, bias=1.0),
        helper.make_node("GlobalAveragePool", ["l"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w2"], ["y"], name="fc", transB=1),
    ]
    weights = {
        "small": np.full((1, 3, 8, 8), 0.06),
        "pattern": random.normal(0, 1, (1, 3, 8, 8)),
        "w1": random.normal(0, 0.2, (8, 3, 3, 3)),
        "w2": random.uniform(0.5, 1.0, (4, 8)),
    }
    path = save_model(model(nodes, [1, 3, 8, 8], [1, 4], **weights), tmp_path / "misread.onnx")
    found = narrowed(path)
    assert found.check == "logits"
    assert "of the distance" in found.failure
    assert [node.name for node in found.part.model.graph.node] in (["lrn"], ["lrn", "mean"])


@pytest.mark.commit
def test_a_run_that_ends_in_a_fault_is_narrowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool's instructions read far behind what was loaded, which the checks of the program cannot see."""
    right = NeuralScaleKernels.lower

    def wrong(
        self: NeuralScaleKernels,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        box: Box,
        work: TileWork,
        offsets_bytes: Mapping[str, int],
        chip: Chip,
        pitches_bytes: Mapping[str, int] = DENSE,
    ) -> tuple[tuple[Instr, ...], ...]:
        passes = right(self, graph, constants, layer, box, work, offsets_bytes, chip, pitches_bytes)
        if layer.anchor(graph).kind != "max_pool":
            return passes
        return tuple(tuple(moved(instr) for instr in instrs) for instrs in passes)

    monkeypatch.setattr(NeuralScaleKernels, "lower", wrong)
    path = save_model(classifier(), tmp_path / "classifier.onnx")
    done = CliRunner().invoke(
        cli, ["verify", str(path), "--chip", "stcp920", "--bisect", "-o", str(tmp_path / "failing")]
    )
    assert done.exit_code == 1, done.output
    assert "bisect: 1 of 9 nodes (MaxPool pool): simulation" in done.stderr
    assert (tmp_path / "failing" / "failing.onnx").is_file()


def moved(instr: Instr) -> Instr:
    old = dict(instr.operands)
    return replace(instr, operands=tuple((old | ({"rs1": old["rs1"] + 0x8_0000} if "rs1" in old else {})).items()))


def test_a_refusal_is_no_failure(tmp_path: Path) -> None:
    """Nothing runs, so there is nothing to narrow: the message is that of every other command."""
    path = save_model(
        model([helper.make_node("NoSuch", ["x"], ["y"], name="s")], [1, 4], [1, 4]), tmp_path / "refused.onnx"
    )
    done = CliRunner().invoke(
        cli, ["verify", str(path), "--chip", "stcp920", "--bisect", "-o", str(tmp_path / "failing")]
    )
    assert done.exit_code == 1
    assert "NoSuch s" in done.stderr
    assert not (tmp_path / "failing").exists()


@pytest.mark.usefixtures("swapped_sub")
def test_names_of_a_model_never_become_paths(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["../../escaped"], name="/etc/relu"),
        helper.make_node("Neg", ["../../escaped"], ["file"], name="\u202eneg"),
        helper.make_node("Sub", ["file", "../../escaped"], ["a b;`c`"], name="../sub\n\x1b[2J"),
        helper.make_node("Neg", ["a b;`c`"], ["y"], name="neg"),
    ]
    path = save_model(model(nodes, [1, 4, 8, 8], [1, 4, 8, 8]), tmp_path / "hostile.onnx")
    found = narrowed(path)
    assert list(found.part.feeds[0]) == ["file", "../../escaped"]
    files = save(found, tmp_path / "deep" / "failing")
    assert all(file.parent == tmp_path / "deep" / "failing" for file in files)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "hostile.onnx"]
    said = (tmp_path / "deep" / "failing" / "failure.txt").read_text()
    assert said == f"{found.line}\n"
    assert found.line.isprintable()
    again = VerifyOptions(samples=256, feeds=tuple(files[1:-1]))
    assert verify_model(files[0], "stcp920", CompileOptions(O0()), again).failures


def test_a_folder_with_other_things_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="other files"):
        require_place(tmp_path)
    done = CliRunner().invoke(cli, ["verify", "no_such", "--chip", "stcp920", "--bisect", "-o", str(tmp_path)])
    assert "other files" in done.stderr


def test_every_part_computes_what_the_whole_computes() -> None:
    """Integers and what depends on shapes only become constants; all else is an input."""
    whole = classifier()
    reference = OnnxReference(whole)
    values = tuple(reference.values(feed) for feed in seeded_inputs(whole, 2, 0))
    total = len(whole.graph.node)
    for start in range(total):
        for end in range(start + 1, total + 1):
            part = cut(whole, values, start, end)
            assert part is not None
            onnx.checker.check_model(part.model)
            for feed, expected in zip(part.feeds, values, strict=True):
                got = OnnxReference(part.model).values(feed)
                for output in part.model.graph.output:
                    np.testing.assert_array_equal(got[output.name], expected[output.name])


def test_shapes_computed_by_nodes_outside_become_constants() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Reshape", ["r", "shape"], ["v"], name="reshape"),
        helper.make_node("Neg", ["v"], ["y"], name="neg"),
    ]
    whole = model(nodes, [1, 4], [1, 4])
    values = (OnnxReference(whole).values({"x": np.ones((1, 4), np.float32)}),)
    part = cut(whole, values, 2, 4)
    assert part is not None
    assert [item.name for item in part.model.graph.input] == ["r"]
    assert [tensor.name for tensor in part.model.graph.initializer] == ["shape"]
    assert cut(whole, values, 0, 1) is None, "a shape is nothing that a chip computes"


def test_given_inputs_must_be_those_of_the_model(tmp_path: Path) -> None:
    path = save_model(classifier(), tmp_path / "classifier.onnx")
    np.savez(tmp_path / "a.npz", z=np.zeros((1, 3, 12, 12), np.float32))
    command = ["verify", str(path), "--chip", "stcp920", "--feed", str(tmp_path / "a.npz")]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1
    assert "x [1, 3, 12, 12]" in done.stderr
