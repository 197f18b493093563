"""A target whose kernels are whole groups, from outside this repository: numpy functions, "code" in JSON.

tmp/toy.yaml           the chip of test_one_place.py with another instruction set
tmp/toy_groups.py      up to four element-wise layers as one kernel, which rounds each value as if it were stored
tmp/toy-1.0.dist-info  what `pip install` would leave: the entry point
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import dsa_sched
import hw_models
from codegen.target import GroupTarget
from codegen.target_registry import find_target
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_model, plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError, TargetError
from hw_models.loading import load_chip
from partitioner.ir.plan import parse_plan
from partitioner.ir.steps import RunStep
from partitioner.planners.levels import O0, O3, planner_or_auto
from tests.repo.test_one_place import CHIP, LINK, REST, WAYS
from tests.small_models import save

Array = npt.NDArray[np.float64]

CHIPS = Path(hw_models.__file__).parent / "chips"

ENTRY_POINTS = """
[dsa_sched.targets]
toy-groups = toy_groups:TARGET
"""

TARGET_CODE = '''
import json
from dataclasses import dataclass

import numpy as np

from codegen.judgement import BitExact
from codegen.target import ClusterFiles, Execution
from partitioner.ir.kernels import Kernel, KernelFloor, read_kernel
from partitioner.ir.wants import Wants, floats_as

KERNELS = {
    "relu": lambda x: np.maximum(x, 0),
    "neg": lambda x: -x,
    "exp": lambda x: np.exp(x),
    "tanh": lambda x: np.tanh(x),
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
}
MOST_LAYERS = 4
BYTES_A_SECOND = 1e6
LAUNCH_SECONDS = 1e-3


def compute(kind, operands):
    """fp16 bits in, fp16 bits out."""
    values = (bits.view(np.float16).astype(np.float64) for bits in operands)
    with np.errstate(over="ignore"):
        return KERNELS[kind](*values).astype(np.float16).view(np.uint16)


@dataclass(frozen=True)
class ToyGroups:
    name: str = "toy-groups"
    execution: str = "toy-launches"
    data_base_bytes: int = 64
    wants: Wants = Wants(floats_as("float16"), "channels_last")
    judgement: BitExact = BitExact()

    def unsuited(self, chip):
        return ()

    def operators(self):
        return tuple((kind, "anything that numpy broadcasts") for kind in KERNELS)

    def accepts(self, graph, op, constants, chip):
        return None if op.kind in KERNELS or op.is_view else f"{op.kind} is too much for a toy"

    def can_fuse_epilogue(self, graph, layer, op, operand):
        return "a toy fuses layers, not operators"

    def kernels(self, graph, layers, chip):
        if len(layers) > MOST_LAYERS:
            return ()
        made = {layer.output for layer in layers}
        read = {name for layer in layers for name in layer.inputs(graph)} - made
        inside = {name for layer in layers for name in layer.ops}
        left = {n for n in made if n in graph.outputs or any(o.name not in inside for o in graph.consumers[n])}
        moved = sum(graph.by_name[name].size_bytes for name in read | left)
        floor = KernelFloor("main", moved / BYTES_A_SECOND, f"{moved} bytes")
        kinds = "_".join(layer.anchor(graph).kind for layer in layers)
        slow = Kernel(kinds, (("unroll", 1),), launches=2, launch_seconds=LAUNCH_SECONDS, floors=(floor,))
        fast = Kernel(kinds, (("unroll", 4),), (), (("registers", 8),), 1, LAUNCH_SECONDS, (floor,))
        return (slow, fast)

    def address(self, memory, offset_bytes):
        return offset_bytes

    def emit_plan(self, plan, graph, constants, places, chip, progress):
        launches = []
        for step in plan.steps:
            group = plan.group_by_name[step.group]
            if step.kind == "view":
                continue
            made, ops = set(), []
            for layer in group.layers:
                op = layer.anchor(graph)
                reads = [[name, None if name in made else where(places.read(name), graph)] for name in op.inputs]
                stored = layer.output in group.outputs(graph)
                ops.append([op.kind, reads, layer.output, stored and places.written(layer.output).offset_bytes])
                made.add(layer.output)
            template, parameters = read_kernel(group.kernel)
            launches.append({"kernel": template, "unroll": parameters["unroll"], "ops": ops})
        data = {
            place.offset_bytes: constants[graph.by_name[place.tensor].constant].tobytes().hex()
            for place in places.placements if place.kind == "constant"
        }
        files = {"launches.json": json.dumps(launches).encode(), "data/constants.json": json.dumps(data).encode()}
        return ClusterFiles(0, "launches.json", files)

    def emulate(self, sampled):
        op = sampled.layer.anchor(sampled.graph)
        shape = sampled.graph.by_name[sampled.layer.output].shape
        operands = [np.broadcast_to(sampled.read(name), shape)[tuple(sampled.points.T)] for name in op.inputs]
        return compute(op.kind, operands).view(np.float16)

    def run(self, files, loads, dumps, seed):
        memory = np.zeros(1 << 20, np.uint8)
        constants = json.loads(files.files["data/constants.json"])
        for address, data in [*((int(a), bytes.fromhex(d)) for a, d in constants.items()), *loads.items()]:
            memory[address : address + len(data)] = np.frombuffer(data, np.uint8)
        for launch in json.loads(files.files[files.executable]):
            inside = {}
            for kind, reads, output, address in launch["ops"]:
                operands = [inside[name] if place is None else load(memory, *place) for name, place in reads]
                inside[output] = compute(kind, operands)
                if address:
                    data = np.ascontiguousarray(inside[output]).view(np.uint8).reshape(-1)
                    memory[address : address + len(data)] = data
        return Execution({(a, n): memory[a : a + n].tobytes() for a, n in dumps}, {}, {})


def where(place, graph):
    return [place.offset_bytes, graph.by_name[place.of or place.tensor].shape]


def load(memory, address, shape):
    size = 2 * int(np.prod(shape))
    return memory[address : address + size].copy().view(np.uint16).reshape(shape)


TARGET = ToyGroups()
'''


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of somebody else's package, installed."""
    links = "".join(LINK.format(source=a, destination=b, engine=engine) for a, b, engine in WAYS)
    chip = CHIP.replace("isa: toy-v1", "isa: toy-groups")
    (tmp_path / "toy.yaml").write_text(chip + links + REST, encoding="utf-8")
    (tmp_path / "toy_groups.py").write_text(TARGET_CODE, encoding="utf-8")
    installed = tmp_path / "toy-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("toy_groups", None)
    yield tmp_path
    sys.modules.pop("toy_groups", None)


def network() -> onnx.ModelProto:
    """Two branches of which one is long, added, a scale, and a reshape at the end; the sum is an output too."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Tanh", ["a"], ["b"], name="tanh"),
        helper.make_node("Neg", ["b"], ["c"], name="neg"),
        helper.make_node("Exp", ["c"], ["d"], name="exp"),
        helper.make_node("Add", ["a", "d"], ["s"], name="sum"),
        helper.make_node("Mul", ["s", "half"], ["m"], name="scale"),
        helper.make_node("Flatten", ["m"], ["y"], name="flat"),
    ]
    shape = [2, 3, 8, 8]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    ends = [
        helper.make_tensor_value_info("s", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 192]),
    ]
    half = helper.make_tensor("half", TensorProto.FLOAT, [1], [0.5])
    graph = helper.make_graph(nodes, "branches", [x], ends, [half])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture
def model(toys: Path) -> Path:
    return save(network(), toys / "net.onnx")


def expected(x: Array) -> dict[str, Array]:
    relu = np.maximum(x.astype(np.float64), 0)
    total = relu + np.exp(-np.tanh(relu))
    return {"s": total, "y": (total / 2).reshape(2, 192)}


@pytest.mark.parametrize("level", ["O0", "O3", "auto"])
def test_a_network_compiles_runs_and_is_verified(toys: Path, model: Path, level: str) -> None:
    report = verify_model(model, toys / "toy.yaml", CompileOptions(planner_or_auto(level)), VerifyOptions(samples=256))
    assert report.failures == ()
    assert all(layer.samples > 0 and layer.isolated_error is not None for layer in report.layers)
    assert [layer.name for layer in report.layers] == ["relu", "tanh", "neg", "exp", "sum", "scale"]
    dsa_sched.compile(model, toys / "toy.yaml", level=level).save(toys / "out")
    loaded = dsa_sched.load(toys / "out")
    x = np.linspace(-3, 3, 384).reshape(2, 3, 8, 8)
    for name, array in loaded.run({"x": x.astype(np.float32)}).items():
        assert np.abs(array.astype(np.float64) - expected(x)[name]).max() < 5e-3
    manifest = json.loads((toys / "out" / "manifest.json").read_text())
    assert manifest["format"] == "dsa-sched-artifact/4"
    assert manifest["programs"][0]["execution"] == {"kind": "toy-launches", "file": "cluster0/launches.json"}
    assert manifest["programs"][0]["cores"] == 0
    assert manifest["level"] == level.replace("auto", "O3")
    assert (toys / "out" / "cluster0" / "data" / "constants.json").is_file()


def test_a_chip_file_of_a_gpu_will_do(toys: Path, model: Path) -> None:
    """The seam asks for nothing that only arrays of cores have."""
    gpu = toys / "gpu.yaml"
    text = (CHIPS / "a100.yaml").read_text(encoding="utf-8")
    gpu.write_text(text.replace(f"isa: {load_chip('a100').isa}", "isa: toy-groups"), encoding="utf-8")
    report = verify_model(model, gpu, CompileOptions(O3()), VerifyOptions(samples=256))
    assert report.failures == ()
    explained = CliRunner().invoke(cli, ["explain", str(model), "--chip", str(gpu), "--level", "O3"])
    assert "relu_tanh_neg_exp(unroll=4)" in explained.stdout


def test_layers_are_merged_where_one_kernel_for_them_pays(toys: Path, model: Path) -> None:
    alone = plan_model(model, toys / "toy.yaml", CompileOptions(O0())).plan
    assert [len(group.layers) for group in alone.groups] == [1] * 7
    plan = plan_model(model, toys / "toy.yaml", CompileOptions(O3())).plan
    names = [tuple(layer.name for layer in group.layers) for group in plan.groups]
    assert names == [("relu", "tanh", "neg", "exp"), ("sum", "scale"), ("flat",)]
    assert [group.kernel for group in plan.groups] == ["relu_tanh_neg_exp(unroll=4)", "add_mul(unroll=4)", ""]
    assert [step.exports for step in plan.steps if isinstance(step, RunStep)] == [(("a", "main"),), (("s", "main"),)]
    assert all(step.binding.cores == () for step in plan.steps if isinstance(step, RunStep))
    assert parse_plan(str(plan)) == plan
    merged = next(d for d in plan.decisions if d.subject == "relu" and d.verdict.startswith("one kernel with"))
    assert "tanh, neg, exp" in merged.verdict
    assert "separately they take" in merged.reason


def test_auto_is_the_faster_of_the_two(toys: Path, model: Path) -> None:
    """By floors and launches."""
    chip = toys / "toy.yaml"
    fused, found = (plan_model(model, chip, CompileOptions(planner_or_auto(level))).plan for level in ("O3", "auto"))
    assert (found.level, found.groups, found.steps) == ("O3", fused.groups, fused.steps)
    chosen, left = found.decisions[:2]
    assert (chosen.subject, chosen.verdict, left.verdict) == ("level", "O3, by auto", "not O0")
    assert float(chosen.reason.split()[0]) < float(left.reason.split()[0])


def test_spills_are_refused(toys: Path, model: Path) -> None:
    with pytest.raises(ModelError, match="--spill: needs none for toy-groups"):
        plan_model(model, toys / "toy.yaml", CompileOptions(O3("cost")))


def test_a_kernel_that_is_wrong_only_when_fused_is_caught(toys: Path, model: Path) -> None:
    code = toys / "toy_groups.py"
    wrong = 'inside[output] = compute(kind, operands) if len(launch["ops"]) < 4 else compute(kind, operands) ^ 1'
    code.write_text(code.read_text().replace("inside[output] = compute(kind, operands)", wrong), encoding="utf-8")
    report = verify_model(model, toys / "toy.yaml", CompileOptions(O3()), VerifyOptions(samples=256))
    assert any(failure.startswith("level O3: ") for failure in report.failures)


def test_passes_and_equal_bytes(toys: Path, model: Path) -> None:
    """A batch in passes, and the same files from the same input."""
    whole = dsa_sched.compile(model, toys / "toy.yaml", level="O3", batch=6, per_pass=4)
    x = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype(np.float32)
    alone = dsa_sched.compile(model, toys / "toy.yaml", level="O3", batch=6)
    assert whole.manifest.programs[0].passes == 2
    for name, array in alone.run({"x": x}).items():
        assert np.array_equal(whole.run({"x": x})[name], array)
    again = dsa_sched.compile(model, toys / "toy.yaml", level="O3", batch=6)
    assert again.manifest == alone.manifest


WHOLE = "toy-groups, whose kernels are whole groups of layers"
NO_PROGRAM = "toy-groups: needs a target that lowers plans to instructions"
CODE = "machine code, of an artifact for a target of in-order cores; has kernels of whole groups of layers"
REFUSED = {
    "compile net.onnx --chip toy.yaml -o out --schedule":
        f"--schedule: needs a target that lowers plans to instructions; has {WHOLE}",
    "compile net.onnx --chip toy.yaml -o out --level O1": f"--level: needs O0 or O3 or auto for {WHOLE}; has O1",
    "compile net.onnx --chip toy.yaml -o out --level O2": f"--level: needs O0 or O3 or auto for {WHOLE}; has O2",
    "verify net.onnx --chip toy.yaml --level astitch": f"--level: needs O0 or O3 or auto for {WHOLE}; has astitch",
    "compile net.onnx --chip toy.yaml -o out --level O3 --spill auto": f"--spill: needs none for {WHOLE}; has auto",
    "compile net.onnx --chip toy.yaml --print plan --level O1": f"--level: needs O0 or O3 or auto for {WHOLE}; has O1",
    "compile net.onnx --chip toy.yaml --print program": NO_PROGRAM,
    "compile net.onnx --chip toy.yaml --print asm": NO_PROGRAM,
    "compile net.onnx --chip toy.yaml --print layout":
        "toy-groups: needs a target that lays plans out in the memories of cores; has one whose kernels are whole",
    "explain net.onnx --chip toy.yaml --schedule":
        f"--schedule: needs a target that lowers plans to instructions; has {WHOLE}",
    "compile net.onnx --chip toy.yaml -o out --batch 4 --per-pass auto":
        f"--per-pass auto: needs a target of in-order cores, whose cycles the cost model counts; has {WHOLE}",
    "time done --chip toy.yaml": f"done: needs a target that lowers plans to instructions; has {WHOLE}",
    "timeline done --chip toy.yaml": f"done: needs a target that lowers plans to instructions; has {WHOLE}",
    "time done --chip stcp920": f"done: needs {CODE} (execution toy-launches)",
    "timeline done --chip stcp920": f"done: needs {CODE} (execution toy-launches)",
    "iss done/cluster0/launches.json": f"done/cluster0/launches.json: needs {CODE}",
    "disasm done/cluster0/launches.json": f"done/cluster0/launches.json: needs {CODE}",
    "run done --input x.npz --output y.npz --runner {elf}{out}":
        "--runner: needs machine code, which a command can run; has execution toy-launches",
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.commit
def test_what_makes_no_sense_is_said_in_one_sentence(
    toys: Path, model: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    dsa_sched.compile(model, toys / "toy.yaml", level="O0").save(toys / "done")
    np.savez(toys / "x.npz", x=np.zeros((2, 3, 8, 8), np.float32))
    monkeypatch.chdir(toys)
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == 1, done.output
    assert done.stderr.splitlines()[-1].startswith(f"dsa-sched: error: {REFUSED[words]}")
    assert not (toys / "out").exists()


@pytest.mark.usefixtures("model")
@pytest.mark.commit
def test_commands_that_work_for_both_kinds(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toys)
    run = CliRunner().invoke
    compiled = run(cli, ["compile", "net.onnx", "--chip", "toy.yaml", "--level", "O3", "-o", "out"])
    assert "branches for toy, O3, batch 2: 3 steps, 2 kernels, " in compiled.stdout
    verified = run(cli, ["verify", "net.onnx", "--chip", "toy.yaml", "--level", "O3", "--json", "report.json"])
    assert verified.exit_code == 0, verified.output
    assert "instructions" not in verified.stdout
    assert json.loads(Path("report.json").read_text())["passed"]
    assert "relu" in run(cli, ["ops", "--chip", "toy.yaml"]).stdout
    assert "good; chip toy, isa toy-groups" in run(cli, ["chip", "check", "toy.yaml"]).stdout
    explained = run(cli, ["explain", "net.onnx", "--chip", "toy.yaml", "--level", "O3", "--json", "plan.json"])
    assert explained.exit_code == 0, explained.output
    assert "relu_tanh_neg_exp(unroll=4)" in explained.stdout
    groups = json.loads(Path("plan.json").read_text())["groups"]
    assert [group["kernel"] for group in groups] == ["relu_tanh_neg_exp(unroll=4)", "add_mul(unroll=4)"]


def without(source: Path, *names: str) -> None:
    """Take members out of the toy target."""
    text = source.read_text()
    for name in names:
        text = text.replace(f"def {name}(", f"def no_{name}(")
    source.write_text(text, encoding="utf-8")


def test_a_target_is_checked_when_it_is_found(toys: Path, model: Path) -> None:
    assert isinstance(find_target("toy-groups"), GroupTarget)
    shutil.rmtree(toys / "__pycache__", ignore_errors=True)
    sys.modules.pop("toy_groups")
    code = toys / "toy_groups.py"
    without(code, "emulate", "emit_plan")
    code.write_text(
        code.read_text().replace('execution: str = "toy-launches"', "execution: object = print"), encoding="utf-8"
    )
    with pytest.raises(TargetError) as refused:
        compile_model(model, toys / "toy.yaml", CompileOptions(O0()))
    assert refused.value.who == "target toy-groups"
    assert refused.value.needs == "all members of codegen.target.GroupTarget"
    assert refused.value.has == "ToyGroups with no emulate, execution as a method, not a value, no emit_plan"


@pytest.mark.parametrize("kind", ["elf", "Launches", "a b", ""])
def test_a_kind_of_execution_is_a_word(toys: Path, kind: str) -> None:
    code = toys / "toy_groups.py"
    code.write_text(code.read_text().replace('"toy-launches"', f'"{kind}"'), encoding="utf-8")
    with pytest.raises(TargetError, match="target toy-groups: needs an execution of small letters"):
        find_target("toy-groups")


def test_files_stay_inside_the_artifact(toys: Path, model: Path) -> None:
    code = toys / "toy_groups.py"
    code.write_text(code.read_text().replace('"data/constants.json": json', '"../../constants.json": json'))
    with pytest.raises(TargetError, match="needs files inside the folder"):
        dsa_sched.compile(model, toys / "toy.yaml", level="O0").save(toys / "out")
    assert not (toys / "out").exists()
    assert not (toys / "constants.json").exists()


def test_an_artifact_of_a_target_that_is_gone_says_what_to_install(toys: Path, model: Path) -> None:
    dsa_sched.compile(model, toys / "toy.yaml", level="O0").save(toys / "out")
    shutil.rmtree(toys / "toy-1.0.dist-info")
    with pytest.raises(TargetError, match="needs a target for toy-groups to run it; has none; install the package"):
        dsa_sched.load(toys / "out").run({"x": np.zeros((2, 3, 8, 8), np.float32)})


def test_a_target_that_cannot_be_loaded_is_named(toys: Path) -> None:
    (toys / "toy_groups.py").write_text("import not_there", encoding="utf-8")
    with pytest.raises(TargetError, match="target toy-groups: needs the object toy_groups:TARGET of another package"):
        find_target("toy-groups")


def test_a_layer_without_a_kernel_is_named(toys: Path, model: Path) -> None:
    code = toys / "toy_groups.py"
    said = 'if layers[0].anchor(graph).kind == "exp" or len(layers)'
    code.write_text(code.read_text().replace("if len(layers)", said), encoding="utf-8")
    done = CliRunner().invoke(cli, ["compile", str(model), "--chip", str(toys / "toy.yaml"), "-o", str(toys / "out")])
    assert done.exit_code == 1
    assert "layer exp: needs a kernel of toy-groups for exp; has none" in done.stderr
