"""Looked-up rows on their way to layers: what needs no place in the main memory, what does, and the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from dsa_sched.artifact.runner import execute
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from isched.hazards.verify_program import verify_program
from isched.program.program import Instr
from partitioner.planners.levels import O1, planner_or_auto
from tests.integer_models import Array, model_of, node, reference, table

ROWS, COLUMNS = 40, 64
TABLES: dict[str, Array] = {"words": table(ROWS, COLUMNS), "places": table(12, COLUMNS)}
IDS = np.random.default_rng(3).integers(-ROWS, ROWS, (3, 12))
INPUTS: dict[str, Array] = {"ids": IDS}


def compiled(nodes: Sequence[onnx.NodeProto], folder: Path, level: str, outputs: Sequence[str] = ("y",)) -> Compilation:
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model_of(nodes, INPUTS, TABLES, outputs)), path)
    return compile_model(path, "stcp920", CompileOptions(planner_or_auto(level), schedule=level != "O0"))


def equal_to_reference(made: Compilation, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",)) -> None:
    artifact = made.artifact
    ends = tuple((entry.address, entry.bytes) for entry in artifact.manifest.outputs)
    found = artifact.decode(execute(artifact, artifact.encode(INPUTS), ends, None, 5).memory)
    for name, wanted in zip(outputs, reference(model_of(nodes, INPUTS, TABLES, outputs), INPUTS), strict=True):
        np.testing.assert_array_equal(found[name], wanted)


def placed(made: Compilation) -> set[str]:
    return {placement.tensor for placement in made.program.placements}


def gathers(made: Compilation) -> list[Instr]:
    return [instr for stream in made.program.streams for instr in stream.instrs if instr.opcode == "dma.gather"]


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3", "streamed", "auto"])
def test_rows_go_from_the_table_to_the_layer(level: str, tmp_path: Path) -> None:
    nodes = [node("Gather", ["words", "ids"], "rows"), node("Add", ["rows", "places"])]
    made = compiled(nodes, tmp_path, level)
    assert "rows" not in placed(made)
    verify_program(made.program, made.chip)
    assert sum(dict(instr.operands)["count"] for instr in gathers(made)) == IDS.size
    assert {instr.source for instr in gathers(made)} == {"the_y"}
    equal_to_reference(made, nodes)


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([node("Gather", ["words", "ids"], "rows"), node("Relu", ["rows"])], ("rows", "y")),
        ([node("Gather", ["words", "ids"], "rows"), node("Relu", ["rows"], "z"), node("Abs", ["rows"])], ("z", "y")),
    ],
    ids=["an output", "read by two layers"],
)
def test_a_result_that_is_read_again_has_a_place(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], tmp_path: Path
) -> None:
    made = compiled(nodes, tmp_path, "O0", outputs)
    assert any(op.outputs[0] in placed(made) for op in made.model.graph.prepared if op.kind == "lookup")
    assert {instr.source for instr in gathers(made)} == {"the_rows"}
    equal_to_reference(made, nodes, outputs)


def test_rows_have_a_place_where_every_value_is_kept(tmp_path: Path) -> None:
    """They are read after the run, and the layers read the table all the same."""
    nodes = [node("Gather", ["words", "ids"], "rows"), node("Add", ["rows", "places"])]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model_of(nodes, INPUTS, TABLES)), path)
    made = compile_model(path, "stcp920", CompileOptions(O1(), keep_values=True))
    assert "rows" in placed(made)
    assert {instr.source for instr in gathers(made)} == {"the_rows", "the_y"}
