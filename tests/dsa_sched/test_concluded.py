"""Outputs that are integers or truth values: of integer inputs, and of what layers computed, from the file to bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from codegen.neuralscale.target import TARGET
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.runner import execute
from dsa_sched.host.compile import compile_with_host
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.prepared_values import wrong_prepared
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError, PlanError
from hw_models.loading import load_chip
from isched.hazards.verify_program import verify_program
from isched.timing.cycle_model import time_program, time_streams
from partitioner.ir.batch_independence import batch_problem
from partitioner.ir.graph_text import parse_graph
from partitioner.planners.levels import O0, O3, planner_or_auto
from tests.integer_models import Array, compiled, model_of, node, reference, run_whole, table

RANDOM = np.random.default_rng(23)
FLOAT, BOOL, INT32, INT64 = (int(getattr(TensorProto, name)) for name in ("FLOAT", "BOOL", "INT32", "INT64"))
LEVELS = ("O0", "O1", "O2", "O3", "auto")


def giving(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array], constants: Mapping[str, Array], **outputs: int
) -> onnx.ModelProto:
    """Outputs of these TensorProto types."""
    model = model_of(nodes, inputs, constants, tuple(outputs))
    for item, dtype in zip(model.graph.output, outputs.values(), strict=True):
        item.type.tensor_type.elem_type = dtype
    return model


def halves(*shape: int) -> Array:
    """Numbers that halves hold, some of them equal, some zeros of either sign."""
    numbers = RANDOM.integers(-12, 13, shape).astype(np.float32) / 4
    return np.where(RANDOM.random(shape) < 0.1, np.float32(-0.0), numbers)


X, OTHER = halves(3, 5, 4), halves(3, 5, 4)
BETWEEN = np.array([0.3, -1.1, 0.25, 7e4], np.float32)
"""One half among numbers that are none."""

CHOICES: dict[str, tuple[str, tuple[str, ...], dict[str, Any], int]] = {
    **{
        f"{op_type}, axis {axis}, last {last}, keepdims {keep}": (
            op_type,
            ("x",),
            {"axis": axis, "select_last_index": last, "keepdims": keep},
            INT64,
        )
        for op_type in ("ArgMax", "ArgMin")
        for axis, last, keep in ((0, 0, 1), (1, 1, 0), (-1, 0, 0), (2, 1, 1))
    },
    **{
        f"{op_type} {second}": (op_type, ("x", second), {}, BOOL)
        for op_type in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
        for second in ("o", "between", "zero")
    },
    "a constant first": ("Less", ("between", "x"), {}, BOOL),
    "whole numbers": ("Cast", ("x",), {"to": INT64}, INT64),
    "words": ("Cast", ("x",), {"to": INT32}, INT32),
    "truth values": ("Cast", ("x",), {"to": BOOL}, BOOL),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_numbers_decide(name: str, tmp_path: Path) -> None:
    """Bit for bit, also where numbers are equal, and for constants between two halves."""
    op_type, operands, attributes, dtype = CHOICES[name]
    arrays = {"x": X, "o": OTHER}
    inputs = {operand: arrays[operand] for operand in operands if operand in arrays}
    constants = {"between": BETWEEN, "zero": np.array(0, np.float32)}
    used = {operand: constants[operand] for operand in operands if operand in constants}
    model = giving([node(op_type, operands, "y", **attributes)], inputs, used, y=dtype)
    found = run_whole(compiled(model, tmp_path), inputs)["y"]
    (wanted,) = reference(model, inputs)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("shape", [(3, 600), (2, 3, 1024), (521,)], ids=str)
def test_long_lines_are_searched_by_blocks(op_type: str, last: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Many numbers are equal; 521 is prime, so that this line has no blocks."""
    inputs = {"x": halves(*shape), "o": halves(*shape)}
    nodes = [node("Add", ["x", "o"], "s"), node(op_type, ["s"], "y", axis=-1, select_last_index=last)]
    made = compiled(giving(nodes, inputs, {}, y=INT64), tmp_path)
    words = [prod(made.model.graph.by_name[op.outputs[0]].shape) for op in made.model.graph.concluded]
    assert (max(words) < prod(shape) / 4) == (shape != (521,))
    (wanted,) = reference(giving(nodes, inputs, {}, y=INT64), inputs)
    np.testing.assert_array_equal(run_whole(made, inputs)["y"], wanted)
    if len(shape) > 1:
        assert batch_problem(made.model.graph, made.model.constants) is None


def test_more_numbers_than_words_are_searched_by_blocks(tmp_path: Path) -> None:
    inputs = {"x": np.zeros((9, 1 << 17), np.float32), "o": np.zeros((9, 1), np.float32)}
    nodes = [node("Add", ["x", "o"], "wide"), node("ArgMax", ["wide"], axis=1)]
    assert compiled(giving(nodes, inputs, {}, y=INT64), tmp_path).model.graph.concluded


EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def test_all_halves_in_their_order(tmp_path: Path) -> None:
    """Infinities too."""
    every = np.sort(EVERY_HALF[~np.isnan(EVERY_HALF)]).astype(np.float32)
    inputs = {"x": every, "o": np.roll(every, 1)}
    nodes = [node("Greater", ["x", "o"], "more"), node("Equal", ["x", "o"], "same")]
    found = run_whole(compiled(giving(nodes, inputs, {}, more=BOOL, same=BOOL), tmp_path), inputs)
    np.testing.assert_array_equal(found["more"], every > inputs["o"])
    np.testing.assert_array_equal(found["same"], every == inputs["o"])


def test_all_finite_halves_cut_toward_zero(tmp_path: Path) -> None:
    inputs = {"x": EVERY_HALF[np.isfinite(EVERY_HALF)].astype(np.float32)}
    found = run_whole(compiled(giving([node("Cast", ["x"], to=INT32)], inputs, {}, y=INT32), tmp_path), inputs)
    np.testing.assert_array_equal(found["y"], np.trunc(inputs["x"]).astype(np.int32))


def greedy() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The next words, by embeddings and logits; where the mask is closed a word of padding, and how many there are."""
    ids, mask = RANDOM.integers(0, 40, (2, 6)), np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], np.int64)
    nodes = [
        node("Gather", ["words", "ids"], "rows"),
        node("MatMul", ["rows", "weights"], "logits"),
        node("ArgMax", ["logits"], "best", axis=-1, keepdims=0),
        node("Cast", ["mask"], "open", to=BOOL),
        node("Where", ["open", "best", "padding"], "next"),
        node("ReduceSum", ["mask", "last"], "lengths", keepdims=0),
        node("Gather", ["kinds", "next"], "kind"),
    ]
    constants: dict[str, Array] = {
        "words": table(40, 16) / 64,
        "weights": RANDOM.normal(0, 0.2, (16, 37)).astype(np.float32),
        "padding": np.array(-1),
        "last": np.array([1], np.int64),
        "kinds": np.arange(100, 137),
    }
    inputs: dict[str, Array] = {"ids": ids, "mask": mask}
    outputs = {"next": INT64, "logits": FLOAT, "open": BOOL, "lengths": INT64, "kind": INT64}
    return giving(nodes, inputs, constants, **outputs), inputs


@pytest.mark.parametrize("level", LEVELS)
def test_greedy_decoding_at_every_level(level: str, tmp_path: Path) -> None:
    """In the file's order and types; the words are those of the logits that the run left, and of the reference's where
    these are not close."""
    model, inputs = greedy()
    made = compiled(model, tmp_path, level)
    found = run_whole(made, inputs)
    wanted = dict(zip((item.name for item in model.graph.output), reference(model, inputs), strict=True))
    assert list(found) == list(wanted)
    assert {name: str(each.dtype) for name, each in found.items()} == {n: str(each.dtype) for n, each in wanted.items()}
    assert np.abs(found["logits"].astype(np.float64) - wanted["logits"].astype(np.float64)).max() < 0.05
    np.testing.assert_array_equal(found["next"], np.where(wanted["open"], found["logits"].argmax(-1), -1))
    first, second = np.sort(wanted["logits"], -1)[..., ::-1][..., :2].transpose(2, 0, 1)
    clear = first - second > 0.1
    assert clear.any()
    np.testing.assert_array_equal(found["next"][clear], wanted["next"][clear])
    for name in ("open", "lengths"):
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize("level", ["O0", "O3", "auto"])
def test_verify_judges_what_numbers_decide(level: str, tmp_path: Path) -> None:
    model, _ = greedy()
    path = tmp_path / "greedy.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    report = verify_model(path, "stcp920", CompileOptions(planner_or_auto(level)), VerifyOptions(samples=64))
    assert report.failures == ()
    assert {result.tensor for result in report.logits} == {"logits"}
    assert report.end_to_end == "passed"


@pytest.mark.parametrize("level", ["O0", "auto"])
def test_a_network_of_integers_alone(level: str, tmp_path: Path) -> None:
    """No layer at all: all is prepared, or concluded of the inputs themselves."""
    inputs: dict[str, Array] = {"i": np.array([[3, -4]], np.int64), "x": halves(1, 7)}
    nodes = [node("Add", ["i", "one"], "next"), node("ArgMax", ["x"], "best", axis=1)]
    model = giving(nodes, inputs, {"one": np.array(1)}, next=INT64, best=INT64, i=INT64)
    found = run_whole(compiled(model, tmp_path, level), inputs)
    for name, wanted in zip(("next", "best", "i"), reference(model, inputs), strict=True):
        np.testing.assert_array_equal(found[name], wanted)
    report = verify_model(tmp_path / "model.onnx", "stcp920", CompileOptions(planner_or_auto(level)))
    assert report.failures == ()
    assert report.end_to_end == "passed"


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_a_mask_that_leaves_and_is_used(level: str, tmp_path: Path) -> None:
    """In the network as a number, behind it as a truth value; images in the order of the file."""
    inputs: dict[str, Array] = {"x": halves(1, 3, 6, 6)}
    nodes = [
        node("Relu", ["x"], "image"),
        node("Greater", ["image", "limit"], "bright"),
        node("Where", ["bright", "image", "limit"], "z"),
        node("Conv", ["z", "weights"], "scores"),
        node("ArgMax", ["scores"], "classes", axis=1, keepdims=0),
    ]
    constants: dict[str, Array] = {
        "limit": np.array(0.75, np.float32),
        "weights": RANDOM.normal(0, 0.3, (5, 3, 1, 1)).astype(np.float32),
    }
    model = giving(nodes, inputs, constants, classes=INT64, bright=BOOL, z=FLOAT)
    found = run_whole(compiled(model, tmp_path, level), inputs)
    wanted = dict(zip(("classes", "bright", "z"), reference(model, inputs), strict=True))
    np.testing.assert_array_equal(found["bright"], wanted["bright"])
    np.testing.assert_array_equal(found["z"], wanted["z"])
    report = verify_model(tmp_path / "model.onnx", "stcp920", CompileOptions(planner_or_auto(level)))
    assert report.failures == ()
    assert {result.tensor for result in report.logits} == {"image", "z", "scores"}


def test_the_artifact_has_the_types_of_the_file(tmp_path: Path) -> None:
    model, inputs = greedy()
    compiled(model, tmp_path).artifact.save(tmp_path / "out")
    loaded = Artifact.load(tmp_path / "out")
    found = {
        entry.name: (entry.kind, entry.dtype, entry.device_dtype, entry.shape) for entry in loaded.manifest.outputs
    }
    assert found == {
        "next": ("output", "int64", "int32", (2, 6)),
        "logits": ("output", "float32", "float16", (2, 6, 37)),
        "open": ("output", "bool", "int32", (2, 6)),
        "lengths": ("output", "int64", "int32", (2,)),
        "kind": ("output", "int64", "int32", (2, 6)),
    }
    assert loaded.run(inputs)["next"].shape == (2, 6)


def test_the_text_of_a_graph_with_concluded_operators(tmp_path: Path) -> None:
    graph = compiled(greedy()[0], tmp_path).model.graph
    assert graph.concluded
    assert graph.results == ("next", "logits", "open", "lengths", "kind")
    assert graph.outputs == ("logits",)
    assert parse_graph(str(graph)) == graph


def test_verify_sees_a_wrong_answer(tmp_path: Path) -> None:
    """One bit of one word: beside the emulation, and beside what the file makes of the logits that the run left."""
    model, inputs = greedy()
    made = compiled(model, tmp_path)
    artifact = made.artifact
    entries = [entry for entry in artifact.manifest.tensors if entry.kind != "probe"]
    dumps = tuple(dict.fromkeys((entry.address, entry.bytes) for entry in entries))
    memory = execute(artifact, artifact.encode(inputs), dumps, None, 0).memory
    dump = {entry.name: memory[entry.address, entry.bytes] for entry in entries}
    exact = OnnxReference(made.model.source).values(inputs)
    assert list(wrong_prepared(made, dump, exact, 0)) == []
    damaged = bytearray(dump["next"])
    damaged[4] ^= 1
    said = list(wrong_prepared(made, {**dump, "next": bytes(damaged)}, exact, 0))
    assert len(said) == 2
    assert said[0].startswith("concluded Where the_next::2, input 0: 1 of 12 elements differ, first at [0, 1]: ")
    assert said[1].startswith("output next, input 0: 1 of 12 elements differ, first at [0, 1]: ")


def test_a_program_without_the_barrier_before_the_conclusion_is_refused(tmp_path: Path) -> None:
    """Words must not be made of logits that another core has not stored yet."""
    program, chip = compiled(greedy()[0], tmp_path).program, load_chip("stcp920")
    verify_program(program, chip)
    streams = []
    for stream in program.streams:
        places = [place for place, instr in enumerate(stream.instrs) if program.is_barrier(instr)]
        cut = [place for place in places if place >= places[-3]]
        streams.append(replace(stream, instrs=tuple(i for n, i in enumerate(stream.instrs) if n not in cut)))
    with pytest.raises(PlanError):
        verify_program(replace(program, streams=tuple(streams)), chip)


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_a_program_and_its_machine_code_take_the_same_time(level: str, tmp_path: Path) -> None:
    made, chip = compiled(greedy()[0], tmp_path, level), load_chip("stcp920")
    straight = TARGET.emit(made.program, made.model.graph, made.model.constants, chip)
    traced, looped = (
        time_streams(TARGET.trace(files.files[files.executable], files.cores, chip), chip)
        for files in (straight, made.files)
    )
    cycles = time_program(made.program, chip, TARGET).cycles
    assert traced.cycles == cycles
    assert looped.cycles == pytest.approx(cycles, rel=0.01)


@pytest.mark.parametrize(
    ("axis", "problem"), [(1, None), (0, "y has 1 items and x 4"), (2, None)], ids=["columns", "items", "rows"]
)
def test_items_of_a_batch(axis: int, problem: str | None, tmp_path: Path) -> None:
    inputs: dict[str, Array] = {"x": halves(4, 3, 5)}
    nodes = [node("Relu", ["x"], "scores"), node("ArgMax", ["scores"], axis=axis)]
    made = compiled(giving(nodes, inputs, {}, y=INT64), tmp_path)
    assert batch_problem(made.model.graph, made.model.constants) == problem


def test_answers_that_mix_items_are_not_divided(tmp_path: Path) -> None:
    inputs: dict[str, Array] = {"x": halves(4, 3)}
    nodes = [
        node("ArgMax", ["x"], "best", axis=1, keepdims=0),
        node("CumSum", ["best", "zero"]),
        node("Relu", ["x"], "z"),
    ]
    made = compiled(giving(nodes, inputs, {"zero": np.array(0)}, y=INT64, z=FLOAT), tmp_path)
    assert batch_problem(made.model.graph, made.model.constants) == "an item of y reads data of other items"


def test_answers_of_a_divided_batch(tmp_path: Path) -> None:
    """Each cluster concludes its own rows."""
    inputs: dict[str, Array] = {"x": halves(6, 9)}
    nodes = [node("MatMul", ["x", "weights"], "scores"), node("ArgMax", ["scores"], axis=1)]
    constants = {"weights": RANDOM.normal(0, 0.3, (9, 11)).astype(np.float32)}
    made = compiled(giving(nodes, inputs, constants, y=INT64, scores=FLOAT), tmp_path)
    artifact = compile_model(tmp_path / "model.onnx", "stcp920", CompileOptions(O3(), batch=5)).artifact
    rows = {"x": inputs["x"][:5]}
    found = artifact.run(rows)
    np.testing.assert_array_equal(found["y"], found["scores"].argmax(1, keepdims=True))
    whole = made.artifact.run(inputs)
    np.testing.assert_array_equal(found["y"], whole["y"][:5])


def test_indices_that_numbers_decide_are_refused(tmp_path: Path) -> None:
    """Rows are looked up before all layers. Both operators are told, and --host takes them."""
    nodes = [node("MatMul", ["x", "weights"], "scores"), node("ArgMax", ["scores"], "best", axis=1, keepdims=0)]
    nodes += [node("Gather", ["table", "best"])]
    constants = {"weights": RANDOM.normal(0, 0.3, (9, 11)).astype(np.float32), "table": table(11, 4)}
    inputs: dict[str, Array] = {"x": halves(6, 9)}
    with pytest.raises(ModelError) as error:
        compiled(model_of(nodes, inputs, constants), tmp_path)
    said = str(error.value)
    assert (
        "ArgMax the_best (6x11): of computed numbers it is supported for outputs of the model only, of at most "
        "1,048,576 elements"
    ) in said
    assert (
        "Gather the_y (11x4, 6): rows are looked up before all layers: by constants, or by what is computed of integer "
        "inputs alone"
    ) in said
    assert "--host" in said
    staged = compile_with_host(tmp_path / "model.onnx", "stcp920", CompileOptions(O0()))
    assert staged is not None


def test_more_numbers_than_a_loop_of_words_takes_are_refused(tmp_path: Path) -> None:
    prime = (1 << 20) + 7  # so that it has no blocks
    inputs: dict[str, Array] = {"x": np.zeros((1, prime), np.float32), "o": np.zeros((1, 1), np.float32)}
    nodes = [node("Add", ["x", "o"], "wide"), node("ArgMax", ["wide"], axis=1)]
    with pytest.raises(
        ModelError, match=r"ArgMax the_y .* for outputs of the model only, of at most 1,048,576 elements"
    ):
        compiled(giving(nodes, inputs, {}, y=INT64), tmp_path)
