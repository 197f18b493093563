"""A chip, a target and an operator are each added in one place, outside this repository, and a network runs with them.

tmp/toy.yaml           a chip of two cores
tmp/toy_target.py      a target for its instruction set: kernels in numpy, "machine code" in JSON
tmp/toy_operators.py   one function an ONNX operator
tmp/toy-1.0.dist-info  what `pip install` would leave: the entry points
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import dsa_sched
from codegen.target_registry import find_target
from dsa_sched.cli import cli
from dsa_sched.frontend.rules.operators import OPERATORS, rule_of
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError
from partitioner.planners.levels import O0, Auto
from tests.small_models import save

MODULES = ("toy_target", "toy_operators")
ENTRY_POINTS = """
[dsa_sched.targets]
toy-v1 = toy_target:TARGET

[dsa_sched.operators]
Shrink = toy_operators:shrink
Hardmax = toy_operators:not_there
"""

CHIP = """
schema_version: 1
name: toy
description: two cores with a vector engine each
isa: toy-v1
clock_hz: 1000000
clusters: 1
cores_per_cluster: 2
memories:
  - {name: main, scope: cluster, size_bytes: 1048576, alignment_bytes: 2, read_by: [mover], written_by: [mover]}
  - name: shared
    scope: cluster
    size_bytes: 65536
    alignment_bytes: 2
    read_by: [mover, loader]
    written_by: [mover, loader]
  - name: local
    scope: core
    size_bytes: 1024
    alignment_bytes: 2
    read_by: [loader, compute]
    written_by: [loader, compute]
engines:
  - {kind: scalar, name: control}
  - kind: vector
    name: compute
    lanes: 4
    rates: [{dtype: float16, per_unit_per_cycle: 1}]
    start_latency_cycles: 1
    max_stride_bytes: 65535
    max_extent: 65535
  - {kind: transfer, name: loader, max_stride_bytes: 65535, max_extent: 65535}
  - {kind: dma, name: mover}
  - {kind: sync, name: sync, groups: 1}
links:
"""
LINK = """
  - name: {source}_to_{destination}
    source: {source}
    destination: {destination}
    engine: {engine}
    bandwidth_bytes_per_cycle: 8
    latency_cycles: 2
    shared_by: cluster
    max_stride_bytes: 65535
    dense_side: none
"""
REST = """
dma:
  engine: mover
  engines_per_cluster: 1
  channels_per_engine: 1
  max_descriptors: 64
  max_linear_bytes: 65536
  max_row_bytes: 65535
  max_rows: 65535
  max_stride_bytes: 65535
  gather: true
  scatter: true
assumed:
  launch_cycles: 0
  matrix_tile_cycles: 0
  vector_pass_cycles: 0
  dma_descriptor_cycles: 0
  sync_cycles: 0
  scalar_instruction_cycles: 1
  queue_depth: 1
"""
WAYS = (
    ("main", "shared", "mover"),
    ("shared", "main", "mover"),
    ("shared", "local", "loader"),
    ("local", "shared", "loader"),
)

OPERATOR_CODE = '''
import numpy as np


def shrink(writer, node):
    """A soft one is relu(x - b) - relu(-x - b), in kinds that targets have already; a hard one is a kind of its own,
    which a target must know."""
    bias = node.number("bias", 0.0)
    if bias == 0:
        writer.add(node, "shrink")
        return
    names = ("neg", "over", "above", "under", "below")
    minus, over, above, under, below = (
        writer.intermediate(node, name, writer.shape(node.input(0))) for name in names
    )
    bias = writer.constant(f"{node.outputs[0]}::bias", np.full(1, bias, np.float32))
    writer.add(node, "neg", suffix="neg")
    writer.add(node, "sub", inputs=(node.input(0), bias), suffix="over")
    writer.add(node, "relu", inputs=(over,), suffix="above")
    writer.add(node, "sub", inputs=(minus, bias), suffix="under")
    writer.add(node, "relu", inputs=(under,), suffix="below")
    writer.add(node, "sub", inputs=(above, below))
'''

TARGET_CODE = '''
import json
from dataclasses import dataclass

import numpy as np

from codegen.judgement import BitExact
from codegen.target import ClusterFiles, Execution
from isched.program.program import Instr, Region
from partitioner.ir.regions import box_size
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork
from partitioner.ir.wants import Wants, floats_as

KERNELS = {
    "relu": lambda x: np.maximum(x, 0),
    "add": lambda x, y: x + y,
    "shrink": lambda x: np.where(np.abs(x) > 0.5, x, 0.0),
}


def compute(kind, operands):
    """fp16 bits in, fp16 bits out."""
    values = (bits.view(np.float16).astype(np.float64) for bits in operands)
    return KERNELS[kind](*values).astype(np.float16).view(np.uint16)


@dataclass(frozen=True)
class ToyTarget:
    name: str = "toy-v1"
    barrier: str = "barrier"
    data_base_bytes: int = 0
    wants: Wants = Wants(floats_as("float16"), "channels_last")
    judgement: BitExact = BitExact()

    def unsuited(self, chip):
        return ()

    def operators(self):
        return tuple((kind, "operands of equal shapes") for kind in KERNELS)

    def accepts(self, graph, op, constants, chip):
        shapes = {graph.by_name[name].shape for name in (*op.inputs, *op.outputs)}
        return None if op.kind in KERNELS and len(shapes) == 1 else f"{op.kind} is too much for a toy"

    def can_fuse_epilogue(self, graph, layer, op, operand):
        return "a toy fuses nothing"

    def granularity(self, graph, layer):
        return (1,) * len(graph.by_name[layer.output].shape)

    def whole_axes(self, graph, layer):
        return ()

    def work(self, graph, layer, box, chip):
        op, size = layer.anchor(graph), 2 * box_size(box)
        names = tuple(dict.fromkeys(op.inputs))
        buffers = tuple(TileBuffer(name, "local", "", size) for name in (*names, "output"))
        loads = tuple(TileLoad(name, box, name) for name in names)
        return TileWork(buffers, (Pass(loads),), "output", (("compute", size / 8),))

    def lower(self, graph, constants, layer, box, work, offsets_bytes, chip, pitches_bytes=None):
        op, size = layer.anchor(graph), 2 * box_size(box)
        reads = tuple(Region("local", offsets_bytes[name], size) for name in op.inputs)
        write = Region("local", offsets_bytes["output"], size)
        return ((Instr("compute", op.kind, (), reads, (write,), size / 8, layer.name),),)

    def copy(self, copies, source, chip):
        def engine(copy):
            return chip.link(copy.source.memory, copy.destination.memory).engine

        return tuple(Instr(engine(c), "copy", (), (c.source,), (c.destination,), 1.0, source) for c in copies)

    def broadcast(self, instr, cores):
        return instr

    def synchronise(self, source):
        return Instr("sync", "barrier", source=source)

    def address(self, memory, offset_bytes):
        return offset_bytes

    def emit(self, program, graph, constants, chip):
        def words(region):
            return [region.memory, region.offset_bytes, region.row_bytes, region.rows, region.stride_bytes]

        streams = [
            [[i.opcode, [words(r) for r in i.reads], [words(w) for w in i.writes]] for i in stream.instrs]
            for stream in program.streams
        ]
        data = {
            p.offset_bytes: constants[graph.by_name[p.tensor].constant].tobytes().hex()
            for p in program.placements if p.kind == "constant"
        }
        code = json.dumps({"streams": streams, "data": data}).encode()
        return ClusterFiles(len(streams), "program.json", {"program.json": code})

    def emulate(self, sampled):
        op = sampled.layer.anchor(sampled.graph)
        return compute(op.kind, [sampled.read(name)[tuple(sampled.points.T)] for name in op.inputs]).view(np.float16)

    def run(self, files, loads, dumps, seed):
        program = json.loads(files.files[files.executable])
        common = {"main": np.zeros(1 << 20, np.uint8), "shared": np.zeros(1 << 16, np.uint8)}
        memories = [common | {"local": np.zeros(1 << 10, np.uint8)} for _ in program["streams"]]
        for address, data in [*loads.items(), *((int(a), bytes.fromhex(d)) for a, d in program["data"].items())]:
            common["main"][address : address + len(data)] = np.frombuffer(data, np.uint8)
        epochs = [split(stream) for stream in program["streams"]]
        for number in range(len(epochs[0])):
            for memory, of_core in zip(memories, epochs):
                for instr in of_core[number]:
                    step(memory, *instr)
        return Execution({(a, n): common["main"][a : a + n].tobytes() for a, n in dumps}, {}, {})


def split(stream):
    epochs = [[]]
    for instr in stream:
        epochs.append([]) if instr[0] == "barrier" else epochs[-1].append(instr)
    return epochs


def cells(memory, name, offset, row_bytes, rows, stride):
    at = offset + np.arange(rows)[:, None] * stride + np.arange(row_bytes)
    return memory[name], at.reshape(-1)


def step(memory, opcode, reads, writes):
    operands = [array[at] for array, at in (cells(memory, *region) for region in reads)]
    target, at = cells(memory, *writes[0])
    if opcode != "copy":
        operands = [compute(opcode, [operand.view(np.uint16) for operand in operands]).view(np.uint8)]
    target[at] = operands[0]


TARGET = ToyTarget()
'''


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of somebody else's package, installed. Our own rule for its operator is taken away."""
    monkeypatch.delitem(OPERATORS, "Shrink")
    links = "".join(LINK.format(source=a, destination=b, engine=engine) for a, b, engine in WAYS)
    (tmp_path / "toy.yaml").write_text(CHIP + links + REST, encoding="utf-8")
    (tmp_path / "toy_target.py").write_text(TARGET_CODE, encoding="utf-8")
    (tmp_path / "toy_operators.py").write_text(OPERATOR_CODE, encoding="utf-8")
    installed = tmp_path / "toy-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def network(*types: str, bias: float = 0.0) -> onnx.ModelProto:
    """x -> operators one after the other -> y, and x added at the end. `bias` is that of all Shrink."""
    names = ["x", *(f"v{k}" for k in range(len(types)))]
    nodes = []
    for k, op_type in enumerate(types):
        nodes.append(helper.make_node(op_type, [names[k]], [names[k + 1]], name=f"{op_type.lower()}{k}"))
        if op_type == "Shrink":
            nodes[-1].attribute.append(helper.make_attribute("bias", bias))
    nodes.append(helper.make_node("Add", [names[-1], "x"], ["y"], name="sum"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 20, 20]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "toys", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_a_toy_chip_with_a_toy_target_runs_a_network_with_a_toy_operator(toys: Path) -> None:
    path = save(network("Relu", "Shrink"), toys / "net.onnx")
    report = verify_model(path, toys / "toy.yaml", CompileOptions(O0()), VerifyOptions(samples=256))
    assert report.failures == ()
    assert [layer.name for layer in report.layers] == ["relu0", "shrink1", "sum"]
    assert all(layer.samples > 0 and layer.isolated_error is not None for layer in report.layers)
    artifact = dsa_sched.compile(path, chip=toys / "toy.yaml", level="O0")
    artifact.save(toys / "net.out")
    x = np.linspace(-3, 3, 1200, dtype=np.float32).reshape(1, 3, 20, 20)
    relu = np.maximum(x, 0)
    expected = np.where(relu > 0.5, relu, 0) + x
    outputs = dsa_sched.load(toys / "net.out").run({"x": x})
    assert np.abs(outputs["y"].astype(np.float64) - expected).max() < 5e-3


def test_a_toy_chip_without_a_memory_in_between_loads_tiles_from_the_main_memory(toys: Path) -> None:
    ways = (("main", "local", "loader"), ("local", "main", "loader"))
    links = "".join(LINK.format(source=a, destination=b, engine=engine) for a, b, engine in ways)
    shared = CHIP[CHIP.index("  - name: shared") : CHIP.index("  - name: local")]
    chip = CHIP.replace(shared, "").replace("[mover], written_by: [mover]", "[mover, loader], written_by: [loader]")
    (toys / "toy.yaml").write_text(chip + links + REST, encoding="utf-8")
    path = save(network("Relu", "Shrink"), toys / "net.onnx")
    for planner in (O0(), Auto()):
        report = verify_model(path, toys / "toy.yaml", CompileOptions(planner), VerifyOptions(samples=256))
        assert report.failures == ()
        assert all(layer.samples > 0 and layer.isolated_error is not None for layer in report.layers)


def test_a_wrong_toy_kernel_is_caught(toys: Path) -> None:
    code = toys / "toy_target.py"
    code.write_text(code.read_text().replace("np.abs(x) > 0.5", "x > 0.5"), encoding="utf-8")
    path = save(network("Shrink"), toys / "net.onnx")
    report = verify_model(path, toys / "toy.yaml", CompileOptions(O0()), VerifyOptions(samples=256))
    assert any(failure.startswith("layer shrink0: relative error") for failure in report.failures)


@pytest.mark.usefixtures("toys")
def test_a_toy_operator_in_known_kinds_runs_on_a_built_in_chip(tmp_path: Path) -> None:
    path = save(network("Shrink", "Relu", bias=0.5), tmp_path / "net.onnx")
    report = verify_model(path, "stcp920", CompileOptions(O0()), VerifyOptions(samples=256))
    assert report.failures == ()
    assert {"Shrink"} <= {operator for layer in report.layers for operator in layer.operators}


def test_level_auto_asks_the_cost_model_where_no_program_can_be_timed(toys: Path) -> None:
    """And leaves the order of instructions alone, which the toy's programs cannot be given either."""
    path = save(network("Relu", "Shrink", "Relu"), toys / "net.onnx")
    report = verify_model(path, toys / "toy.yaml", CompileOptions(Auto()), VerifyOptions(samples=256))
    assert report.failures == ()
    (part,) = compile_clusters(path, toys / "toy.yaml", CompileOptions(Auto()))
    assert part.options.schedule is False
    said = [decision for decision in part.plan.decisions if decision.subject == "level"]
    assert said[0].verdict == f"{part.plan.level}, by auto"
    assert all("cycles by the cost model" in decision.reason or "no plan" in decision.reason for decision in said)


def test_the_toys_are_listed_like_our_own(toys: Path) -> None:
    done = CliRunner().invoke(cli, ["ops", "--chip", str(toys / "toy.yaml")])
    assert done.exit_code == 0, done.output
    assert "shrink" in done.stdout
    assert "Shrink" in done.stdout
    checked = CliRunner().invoke(cli, ["chip", "check", str(toys / "toy.yaml")])
    assert "good; chip toy, isa toy-v1, 2 cores" in checked.stdout


def test_a_target_says_what_it_cannot_compute(toys: Path) -> None:
    path = save(network("Sigmoid"), toys / "net.onnx")
    done = CliRunner().invoke(cli, ["compile", str(path), "--chip", str(toys / "toy.yaml"), "-o", str(toys / "out")])
    assert done.exit_code == 1
    assert "sigmoid is too much for a toy" in done.stderr


LACKS = "which lacks issue_costs, trace"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compile net.onnx --chip toy.yaml -o out --schedule",
         f"--schedule: needs a target whose programs the cycle model can time and reorder; has toy-v1, {LACKS}"),
        ("verify net.onnx --chip toy.yaml --schedule",
         f"--schedule: needs a target whose programs the cycle model can time and reorder; has toy-v1, {LACKS}"),
        ("time done --chip toy.yaml",
         f"done: needs a target whose programs the cycle model can time; has toy-v1, {LACKS}"),
        ("timeline done --chip toy.yaml",
         f"done: needs a target whose programs the cycle model can time; has toy-v1, {LACKS}"),
    ],
)  # fmt: skip
def test_what_a_target_lacks_is_said_in_one_sentence(
    toys: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    """The toy says nothing of what issuing costs: `isched.program.target.Timeable` is for those who can."""
    dsa_sched.compile(save(network("Relu"), toys / "net.onnx"), chip=toys / "toy.yaml", level="O0").save(toys / "done")
    monkeypatch.chdir(toys)
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == 1, done.output
    assert done.stderr.splitlines()[-1] == f"dsa-sched: error: {said}"
    assert not (toys / "out").exists()


def test_a_missing_member_is_named_when_the_target_is_found(toys: Path) -> None:
    code = toys / "toy_target.py"
    code.write_text(code.read_text().replace("def whole_axes(", "def other(").replace("def run(", "def walk("))
    done = CliRunner().invoke(cli, ["ops", "--chip", str(toys / "toy.yaml")])
    assert done.exit_code == 1
    said = "target toy-v1: needs all members of codegen.target.TileTarget; has ToyTarget with no "
    assert said in done.stderr
    assert {"no whole_axes", "no run"} <= set(done.stderr.partition(" with ")[2].partition(";")[0].split(", "))


@pytest.mark.usefixtures("toys")
def test_a_rule_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(ModelError, match="operator Hardmax: needs the rule toy_operators:not_there"):
        rule_of("Hardmax")


@pytest.mark.usefixtures("toys")
def test_our_own_rules_come_first() -> None:
    assert rule_of("Relu") is OPERATORS["Relu"]


def test_without_the_toys_nothing_of_them_is_known() -> None:
    assert find_target("toy-v1") is None
    assert rule_of("Shrink") is OPERATORS["Shrink"]
