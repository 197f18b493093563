"""`--host`: operators that the chip cannot compute run on the host, in stages with those that it can."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.artifact.format import Artifact
from dsa_sched.cli import cli
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.host.division import stage_numbers
from dsa_sched.host.staged_artifact import StagedArtifact
from dsa_sched.io.npz import read_arrays
from hw_models.errors import ModelError, TargetError, UserError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CHIP = "stcp920"


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], prog_name="dsa-sched")


def saved(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], outputs: dict[str, int]) -> Path:
    """A model with two constant matrices and a kernel."""
    random = np.random.default_rng(0)
    shapes = {"kernel": (4, 3, 3, 3), "matrix": (4, 5), "square": (5, 5)}
    constants = [
        numpy_helper.from_array((random.standard_normal(shape) * 0.3).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    constants.append(numpy_helper.from_array(np.array([2]), "two"))
    constants.append(numpy_helper.from_array(np.array(3), "three"))
    constants.append(numpy_helper.from_array(np.array(0.1, np.float32), "tenth"))
    graph = helper.make_graph(
        nodes,
        "hosted",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two operators that no template computes, one of them in the middle; what is before it has two readers."""
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Det", ["b"], ["d"], name="det"),
        helper.make_node("ReduceMean", ["b"], ["m"], name="mean", axes=[2, 3], keepdims=0),
        helper.make_node("Add", ["m", "d"], ["s"], name="sum"),
        helper.make_node("Gemm", ["s", "matrix"], ["y"], name="product"),
        helper.make_node("TopK", ["y", "two"], ["t", "i"], name="top"),
    ]
    return saved(tmp_path / "mixed.onnx", nodes, {"x": [1, 3, 8, 8]}, {"y": FLOAT, "i": INT64})


def test_stages_compute_what_onnxruntime_computes(mixed: Path, tmp_path: Path) -> None:
    folder, feed, out = tmp_path / "out", tmp_path / "x.npz", tmp_path / "y.npz"
    done = call("compile", mixed, "--chip", CHIP, "--level", "O2", "--host", "-o", folder)
    assert done.exit_code == 0, done.output
    assert "host: 2 of 7 operators: Det det, TopK top; 4 stages: chip, host, chip, host" in done.stdout
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.savez(feed, x=x)
    assert call("run", folder, "--input", feed, "--output", out).exit_code == 0
    y, i = onnxruntime.InferenceSession(mixed).run(["y", "i"], {"x": x})
    found = read_arrays(out, 1 << 20)
    assert np.linalg.norm(found["y"] - y) < 1e-2 * np.linalg.norm(y)
    assert np.array_equal(found["i"], i)
    assert found["i"].dtype == np.int64


def test_each_stage_of_the_chip_is_an_artifact(mixed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    call("compile", mixed, "--chip", CHIP, "--level", "O0", "--host", "-o", folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json", "stage0", "stage1.onnx", "stage2", "stage3.onnx",
    ]  # fmt: skip
    done = call("time", folder / "stage0", "--chip", CHIP)
    assert done.exit_code == 0, done.output
    figures = Artifact.load(folder / "stage0").manifest.figures
    assert figures is not None
    assert f"{figures.cycles:,.0f} cycles" in done.stdout
    assert call("compile", mixed, "--chip", CHIP, "--level", "O1", "--host", "-o", folder).exit_code == 0  # replaced
    (folder / "notes.txt").write_text("mine")
    done = call("compile", mixed, "--chip", CHIP, "--level", "O1", "--host", "-o", folder)
    assert done.exit_code != 0
    assert "has other files (notes.txt)" in done.stderr


def test_verify_judges_stages_and_the_whole(mixed: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = call("verify", mixed, "--chip", CHIP, "--level", "O2", "--host", "--json", report)
    assert done.exit_code == 0, done.output
    assert "hosted, stage 0 on stcp920, O2" in done.stdout
    assert "all stages, one after another" in done.stdout
    read = json.loads(report.read_text())
    assert read["format"] == "dsa-sched-verify-host/1"
    assert [stage["model"] for stage in read["stages"]] == ["hosted, stage 0", "hosted, stage 2"]
    assert all(stage["passed"] for stage in read["stages"])
    assert {end["tensor"] for end in read["ends"]} == {"y"}
    assert {entry["tensor"] for entry in read["unequal"]} == {"i"}


def test_a_wrong_stage_fails_the_whole(mixed: Path, tmp_path: Path) -> None:
    """A runner that leaves zeros everywhere."""
    script = tmp_path / "zeros.py"
    script.write_text(
        "import pathlib, sys\n"
        "out, dumps, _ = sys.argv[1:]\n"
        "for dump in dumps.split(','):\n"
        "    address, size = dump.split(':')\n"
        "    pathlib.Path(out, f'{address}_{size}.bin').write_bytes(bytes(int(size, 16)))\n"
    )
    runner = f"{sys.executable} {script} {{out}} {{dumps}} {{elf}}"
    done = call("verify", mixed, "--chip", CHIP, "--level", "O0", "--host", "--runner", runner)
    assert done.exit_code == 3, done.output
    assert done.stdout.endswith("FAILED\n")


def branch(op_type: str, *inputs: str) -> onnx.GraphProto:
    node = helper.make_node(op_type, inputs, ["t"], name=op_type)
    return helper.make_graph([node], op_type, [], [onnx.ValueInfoProto(name="t")])


def body() -> onnx.GraphProto:
    """Adds a value of the graph around it, again and again."""
    value = helper.make_tensor_value_info
    inputs = [value("i", INT64, []), value("go", TensorProto.BOOL, []), value("sum", FLOAT, [1, 4])]
    outputs = [value("goes", TensorProto.BOOL, []), value("more", FLOAT, [1, 4])]
    nodes = [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Add", ["sum", "m"], ["more"])]
    return helper.make_graph(nodes, "body", inputs, outputs)


FOREIGN: dict[str, tuple[onnx.NodeProto, ...]] = {
    "FusedMatMul": (
        helper.make_node("FusedMatMul", ["m", "m"], ["g"], name="foreign", domain="com.microsoft", transB=1),
    ),
    "If": (
        helper.make_node("ReduceMax", ["m"], ["most"], name="most", keepdims=0),
        helper.make_node("Greater", ["most", "tenth"], ["c"], name="large"),
        helper.make_node(
            "If", ["c"], ["g"], name="foreign", then_branch=branch("Exp", "m"), else_branch=branch("Abs", "m")
        ),
    ),
    "Loop": (helper.make_node("Loop", ["three", "", "m"], ["g"], name="foreign", body=body()),),
}


@pytest.mark.parametrize("op_type", FOREIGN)
def test_whatever_onnxruntime_runs(op_type: str, tmp_path: Path) -> None:
    """Operators of its own domain, branches that data choose, loops that read what is around them."""
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["a"], name="conv"),
        helper.make_node("ReduceMean", ["a"], ["m"], name="mean", axes=[2, 3], keepdims=0),
        *FOREIGN[op_type],
        helper.make_node("Add", ["g", "m"], ["y"], name="sum"),
    ]
    path = saved(tmp_path / "foreign.onnx", nodes, {"x": [1, 3, 6, 6]}, {"y": FLOAT})
    model = onnx.load(path)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [1, 4]))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, path)
    done = call("compile", path, "--chip", CHIP, "--level", "O0", "--host", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert f"{op_type} foreign" in done.stdout
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(path).run(["y"], {"x": x})[0]
    found = StagedArtifact.load(tmp_path / "out").run({"x": x})["y"].astype(np.float64)
    assert np.linalg.norm(found - wanted) < 1e-2 * np.linalg.norm(wanted)


def test_nothing_for_the_host_is_the_same_program(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "matrix"], ["y"], name="product")]
    path = saved(tmp_path / "plain.onnx", nodes, {"x": [2, 4]}, {"y": FLOAT})
    assert call("compile", path, "--chip", CHIP, "--level", "O1", "-o", tmp_path / "plain").exit_code == 0
    done = call("compile", path, "--chip", CHIP, "--level", "O1", "--host", "-o", tmp_path / "hosted")
    assert "host: 0 of 1 operators: the chip computes them all" in done.stdout
    program = Path("cluster0") / "program.elf"
    plain = (tmp_path / "plain" / program).read_bytes()
    assert len((tmp_path / "hosted" / "stage0" / program).read_bytes()) == len(plain)


def test_refusals_name_the_option(mixed: Path) -> None:
    done = call("compile", mixed, "--chip", CHIP, "--print", "plan")
    assert done.exit_code != 0
    assert "2 unsupported operators" in done.stderr
    assert "--host (of compile and verify) leaves such operators to the host" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compile", "--print", "plan"), "--host makes an artifact for one cluster"),
        (("compile", "-o", "x", "--batch", "2", "--clusters", "2"), "--host makes an artifact for one cluster"),
        (("verify", "--bisect"), "--bisect is for networks that the chip computes alone"),
    ],
)
def test_options_that_host_does_not_go_with(mixed: Path, words: tuple[str, ...], said: str) -> None:
    command, *rest = words
    done = call(command, mixed, "--chip", CHIP, "--host", *rest)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_value_between_stages_needs_a_shape(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("NonZero", ["r"], ["n"], name="places"),
        helper.make_node("Cast", ["n"], ["f"], name="cast", to=FLOAT),
        helper.make_node("Relu", ["f"], ["y"], name="end"),
    ]
    path = saved(tmp_path / "open.onnx", nodes, {"x": [3, 4]}, {"y": FLOAT})
    done = call("compile", path, "--chip", CHIP, "--host", "-o", tmp_path / "out")
    assert done.exit_code != 0
    assert "needs a static shape" in done.stderr
    assert not (tmp_path / "out").exists()


class TestStrangeFolders:
    @pytest.fixture
    def folder(self, mixed: Path, tmp_path: Path) -> Path:
        assert call("compile", mixed, "--chip", CHIP, "--level", "O0", "--host", "-o", tmp_path / "out").exit_code == 0
        return tmp_path / "out"

    def change(self, folder: Path, key: str, value: object) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest[key] = value
        (folder / "manifest.json").write_text(json.dumps(manifest))

    def test_a_changed_model_of_the_host(self, folder: Path) -> None:
        file = folder / "stage1.onnx"
        file.write_bytes(file.read_bytes().replace(b"Det", b"Dot"))
        with pytest.raises(TargetError, match="another SHA-256"):
            StagedArtifact.load(folder)

    @pytest.mark.parametrize("file", ["../elsewhere.onnx", "/etc/hostname", "stage9.onnx"])
    def test_a_stage_that_is_not_listed(self, folder: Path, file: str) -> None:
        self.change(folder, "stages", [{"place": "host", "file": file}])
        with pytest.raises(TargetError, match="no such file in the manifest"):
            StagedArtifact.load(folder)

    def test_a_listed_file_outside(self, folder: Path) -> None:
        self.change(folder, "files", [{"path": "../x", "bytes": 1, "sha256": ""}])
        with pytest.raises(TargetError, match="needs files inside the folder"):
            StagedArtifact.load(folder)

    def test_a_stage_of_the_wrong_place(self, folder: Path) -> None:
        self.change(folder, "stages", [{"place": "chip", "file": "stage1.onnx"}])
        with pytest.raises(TargetError, match=r"a stage of the chip to be a manifest\.json"):
            StagedArtifact.load(folder)

    def test_stages_in_another_order(self, folder: Path) -> None:
        stages = json.loads((folder / "manifest.json").read_text())["stages"]
        self.change(folder, "stages", stages[::-1])
        artifact = StagedArtifact.load(folder)
        with pytest.raises(TargetError, match="no earlier stage that makes it"):
            artifact.run({"x": np.zeros((1, 3, 8, 8), np.float32)})

    def test_an_output_that_no_stage_makes(self, folder: Path) -> None:
        self.change(folder, "outputs", [{"name": "z", "shape": [1], "dtype": "float32"}])
        artifact = StagedArtifact.load(folder)
        with pytest.raises(TargetError, match="output z"):
            artifact.run({"x": np.zeros((1, 3, 8, 8), np.float32)})

    @pytest.mark.parametrize(("name", "shape"), [("x", (2, 3, 8, 8)), ("z", (1, 3, 8, 8))])
    def test_wrong_inputs(self, folder: Path, name: str, shape: tuple[int, ...]) -> None:
        with pytest.raises(ModelError, match="input"):
            StagedArtifact.load(folder).run({name: np.zeros(shape, np.float32)})

    def test_commands_that_want_one_program(self, folder: Path) -> None:
        done = call("time", folder, "--chip", CHIP)
        assert done.exit_code != 0
        assert "stage0" in done.stderr


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, frozenset[str]]:
    """Nodes that each read one or two values before them, and some of them for the host."""
    count = draw(st.integers(1, 12))
    nodes = []
    for number in range(count):
        reads = draw(st.lists(st.integers(-1, number - 1), min_size=1, max_size=2))
        inputs = tuple("x" if read < 0 else f"v{read}" for read in reads)
        nodes.append(Node(f"n{number}", "Relu", inputs, (f"v{number}",)))
    host = draw(st.frozensets(st.sampled_from([node.name for node in nodes])))
    network = Network("drawn", tuple(nodes), {}, {}, ("x",), (f"v{count - 1}",), 17)
    return network, host


@given(networks())
def test_stages_are_in_order_and_of_one_place(drawn: tuple[Network, frozenset[str]]) -> None:
    network, host = drawn
    numbers = stage_numbers(network, host)
    assert list(numbers) == [node.name for node in network.nodes]
    for node in network.nodes:
        for name in node.inputs:
            if name in network.producer:
                before = network.producer[name].name
                assert numbers[before] <= numbers[node.name]
                assert (numbers[before] == numbers[node.name]) <= ((before in host) == (node.name in host))
    places = {number: {name in host for name in numbers if numbers[name] == number} for number in numbers.values()}
    assert all(len(kinds) == 1 for kinds in places.values())
    if not host or len(host) == len(network.nodes):
        assert set(numbers.values()) == {numbers[network.nodes[0].name]}


def test_branches_share_stages() -> None:
    """x -> host -> chip, and x -> chip: the second needs no stage of its own."""
    nodes = (
        Node("a", "Relu", ("x",), ("v0",)),
        Node("b", "Relu", ("x",), ("v1",)),
        Node("c", "Add", ("v0", "v1"), ("v2",)),
    )
    network = Network("two", nodes, {}, {}, ("x",), ("v2",), 17)
    numbers = stage_numbers(network, frozenset("a"))
    assert numbers["b"] == numbers["c"] > numbers["a"]


def test_errors_are_the_users(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="manifest"):
        StagedArtifact.load(tmp_path)
