"""A chip that nobody can generate code for still gives graph, plan and costs; compiling says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from codegen.generic import GenericTarget, local_memory
from codegen.target import TileTarget
from codegen.target_registry import find_target, target_members
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.chip import Chip
from hw_models.cost import matrix_cycles, vector_cycles
from hw_models.errors import ChipError, TargetError
from hw_models.loading import load_chip
from partitioner.ir.graph_text import parse_graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import parse_plan
from partitioner.planners.levels import O0
from tests.small_models import classifier, save

ISA = "abacus-v2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and a chip of an instruction set that has no target."""
    path = tmp_path_factory.mktemp("abacus")
    save(classifier(), path / "mine.onnx")
    builtin = Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml"
    text = builtin.read_text(encoding="utf-8").replace("isa: neuralscale-v1", f"isa: {ISA}")
    (path / "abacus.yaml").write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chip(folder: Path) -> Chip:
    return load_chip(str(folder / "abacus.yaml"))


def invoke(folder: Path, *more: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["compile", str(folder / "mine.onnx"), "--chip", str(folder / "abacus.yaml"), *more])
    return done.exit_code, done.stdout, done.stderr


def test_graph_and_plan_are_printed_without_a_target(folder: Path) -> None:
    assert find_target(ISA) is None
    code, graph, said = invoke(folder, "--print", "graph")
    assert code == 0, said
    assert str(parse_graph(graph)) == graph
    code, plan, said = invoke(folder, "--level", "O0", "--print", "plan")
    assert code == 0, said
    assert str(parse_plan(plan)) == plan
    assert [step.group for step in parse_plan(plan).steps if step.kind == "run"] == [
        "conv1", "conv2", "pool", "mean", "fc", "softmax"
    ]  # fmt: skip
    assert "the slowest core needs about" in plan


@pytest.mark.parametrize("words", ["-o out", "--print program", "--print asm", "--print plan -o out"])
def test_machine_code_is_refused_with_what_is_missing(folder: Path, words: str) -> None:
    code, printed, said = invoke(folder, *words.replace("out", str(folder / "out")).split())
    assert (code, printed) == (1, "")
    assert f"entry point '{ISA}' in the group 'dsa_sched.targets'" in said
    assert all(name in said for name in ("accepts", "work", "lower", "emit", "run", "--print plan"))
    assert not (folder / "out").exists()


def test_a_target_has_all_that_the_message_lists() -> None:
    target = find_target("neuralscale-v1")
    assert target is not None
    assert all(hasattr(target, name) for name in target_members())
    assert set(target_members()) >= {name for name in vars(TileTarget) if not name.startswith("_")}


def test_a_tile_of_a_convolution_costs_its_halo_and_its_products(folder: Path, chip: Chip) -> None:
    model = plan_model(folder / "mine.onnx", chip, CompileOptions(O0())).model
    box = ((0, 1), (4, 8), (0, 12), (0, 8))
    work = GenericTarget(ISA).work(model.graph, Layer("conv1", ("conv1", "relu1"), "r1"), box, chip)
    loads = {load.tensor: load.box for load in work.passes[0].loads}
    assert loads["x"] == ((0, 1), (3, 9), (0, 12), (0, 3)), "one row above and one below; columns clipped at the border"
    sizes = {buffer.name: buffer.size_bytes for buffer in work.buffers}
    assert (sizes["x"], sizes["output"]) == (2 * 6 * 12 * 3, 2 * 4 * 12 * 8)
    relu = vector_cycles(chip, 4 * 12 * 8, "float16")
    assert dict(work.engine_cycles) == {"matrix": matrix_cycles(chip, 48, 8, 27, "float16"), "vector": relu}


def test_a_chip_without_a_matrix_engine_sums_products_on_its_vectors(folder: Path, chip: Chip) -> None:
    plain = chip.model_copy(update={"engines": tuple(e for e in chip.engines if e.kind != "matrix")})
    planned = plan_model(folder / "mine.onnx", plain, CompileOptions(O0()))
    assert planned.plan.chip_hash == plain.hash
    work = GenericTarget(ISA).work(
        planned.model.graph, Layer("conv2", ("conv2",), "c2"), ((0, 1), (0, 12), (0, 12), (0, 8)), plain
    )
    assert dict(work.engine_cycles) == {"vector": vector_cycles(plain, 12 * 12 * 8 * 72, "float16")}


def test_a_chip_without_memories_of_cores_says_so(folder: Path, chip: Chip) -> None:
    shared = chip.model_copy(update={"memories": tuple(m for m in chip.memories if m.scope != "core")})
    with pytest.raises(ChipError, match="a memory of scope core that links reach from DDR"):
        local_memory(shared)
    with pytest.raises(TargetError, match="links: none lead from DDR to a memory of scope core"):
        plan_model(folder / "mine.onnx", shared, CompileOptions(O0()))


def test_compiling_in_python_raises_the_same(folder: Path, chip: Chip) -> None:
    from dsa_sched.pipeline.driver import compile_model

    with pytest.raises(TargetError, match="a code generator for abacus-v2"):
        compile_model(folder / "mine.onnx", chip, CompileOptions(O0()))
