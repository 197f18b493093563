"""Inputs that are integers: index arithmetic and lookups, prepared before the layers, from the file to bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import hw_models
from codegen.neuralscale.emit.integer_loops import FUNCTIONS
from codegen.neuralscale.target import TARGET
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.runner import execute
from dsa_sched.frontend.integers.preparation import WORD_OPERATORS
from dsa_sched.frontend.integers.word_rules import RULES
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.prepared_values import wrong_prepared
from dsa_sched.zoo import seeded_inputs
from hw_models.errors import ModelError, PlanError
from hw_models.loading import load_chip
from isched.hazards.verify_program import verify_program
from isched.timing.cycle_model import time_program, time_streams
from partitioner.ir.batch_independence import batch_problem
from partitioner.ir.graph_text import parse_graph
from tests.integer_models import Array, compiled, model_of, node, reference, run_whole, table

FLOAT = int(onnx.TensorProto.FLOAT)
RANDOM = np.random.default_rng(7)
SMALL = RANDOM.integers(-9, 10, (3, 5)).astype(np.int64)
OTHER = RANDOM.integers(1, 7, (3, 5)).astype(np.int64)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


OPERATORS: dict[str, tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...]] = {
    **{name: ((name, ("a", "b"), {}), (name, ("a", "k"), {})) for name in ("Add", "Sub", "Mul", "Min", "Max")},
    "Div": (("Div", ("a", "b"), {}),),
    "Mod": (("Mod", ("a", "b"), {}), ("Mod", ("a", "b"), {"fmod": 1})),
    **{
        name: ((name, ("a", "b"), {}), (name, ("a", "one"), {}))
        for name in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
    },
    "Neg": (("Neg", ("a",), {}),),
    "Abs": (("Abs", ("a",), {}),),
    "CumSum": tuple(
        ("CumSum", ("a", axis), {"exclusive": e, "reverse": r})
        for axis in ("zero", "one0")
        for e in (0, 1)
        for r in (0, 1)
    ),
    "ReduceSum": (("ReduceSum", ("a", "axis1"), {}), ("ReduceSum", ("a",), {"keepdims": 0})),
    "ReduceMax": (("ReduceMax", ("a", "axis1"), {"keepdims": 0}),),
    "ReduceMin": (("ReduceMin", ("a", "axis0"), {}),),
    "ArgMax": tuple(("ArgMax", ("few",), {"axis": axis, "select_last_index": s}) for axis in (0, 1) for s in (0, 1)),
    "ArgMin": (("ArgMin", ("few",), {"axis": 1, "keepdims": 0}), ("ArgMin", ("few",), {"select_last_index": 1})),
    "Transpose": (("Transpose", ("a",), {"perm": [1, 0]}),),
    "Slice": (("Slice", ("a", "starts", "ends"), {}),),
    "Expand": (("Expand", ("a", "expanded"), {}),),
    "Tile": (("Tile", ("a", "repeats"), {}),),
    "Concat": (("Concat", ("a", "b", "k"), {"axis": 0}), ("Concat", ("a", "b"), {"axis": 1})),
    "Gather": (("Gather", ("a", "axis1"), {"axis": 1}), ("Gather", ("k", "rows"), {}), ("Gather", ("a", "rows"), {})),
    "GatherElements": (("GatherElements", ("a", "places"), {"axis": 1}), ("GatherElements", ("k", "rows2"), {})),
    "GatherND": (("GatherND", ("a", "points"), {}), ("GatherND", ("a", "lines"), {"batch_dims": 1})),
    "Clip": (("Clip", ("a", "low", "high"), {}), ("Clip", ("a", "", "high"), {})),
    "Trilu": (("Trilu", ("a",), {"upper": 0}), ("Trilu", ("a", "one0"), {})),
    "Reshape": (("Reshape", ("a", "flat"), {}),),
    "Flatten": (("Flatten", ("a",), {}),),
    "Unsqueeze": (("Unsqueeze", ("a", "axis1"), {}),),
    "Identity": (("Identity", ("a",), {}),),
}
CONSTANTS = {
    "k": RANDOM.integers(-9, 10, (3, 5)).astype(np.int64),
    "one": ints(1),
    "zero": np.array(0),
    "one0": np.array(1),
    "axis0": ints(0),
    "axis1": ints(1),
    "starts": ints(1, 0),
    "ends": ints(3, -1),
    "expanded": ints(2, 3, 5),
    "repeats": ints(2, 1),
    "flat": ints(-1),
    "low": np.array(-3),
    "high": np.array(4),
    "places": RANDOM.integers(-5, 5, (3, 2)).astype(np.int64),
    "points": ints(0, 1, 2, -1).reshape(2, 2),
    "lines": ints(0, 4, 2).reshape(3, 1),
}
INPUTS = {"a": SMALL, "b": OTHER, "few": SMALL % 3, "rows": ints(2, -3, 0, 1), "rows2": RANDOM.integers(-3, 3, (2, 5))}
CASES = [(op_type, *case) for op_type, cases in OPERATORS.items() for case in cases]


@pytest.mark.parametrize(("op_type", "operator", "operands", "attributes"), CASES)
def test_operators_on_integers(
    op_type: str, operator: str, operands: tuple[str, ...], attributes: dict[str, Any], tmp_path: Path
) -> None:
    """As numbers afterwards, and as indices: both are what onnxruntime makes of them."""
    del op_type
    nodes = [node(operator, operands, "found", **attributes), node("Cast", ["found"], "integers", to=7)]
    nodes += [node("Cast", ["integers"], to=FLOAT)]
    used = {name: array for name, array in INPUTS.items() if name in operands}
    if not used:
        used = {"a": SMALL}
    model = model_of(nodes, used, {name: array for name, array in CONSTANTS.items() if name in operands})
    found = run_whole(compiled(model, tmp_path), used)
    np.testing.assert_array_equal(found["y"], reference(model, used)[0])


@pytest.mark.parametrize("op_type", ["And", "Or", "Xor"])
def test_truth_values_as_integers(op_type: str, tmp_path: Path) -> None:
    """Of what is used as an index, on words."""
    nodes = [
        node("Greater", ["a", "b"], "first"),
        node("Equal", ["a", "k"], "second"),
        node(op_type, ["first", "second"], "both"),
        node("Not", ["both"], "neither"),
        node("Where", ["neither", "b", "two"], "row"),
        node("Gather", ["table", "row"]),
    ]
    constants = {"k": CONSTANTS["k"], "two": ints(2), "table": table(9, 4)}
    model = model_of(nodes, {"a": SMALL, "b": OTHER}, constants)
    inputs = {"a": SMALL, "b": OTHER}
    found = run_whole(compiled(model, tmp_path), inputs)
    np.testing.assert_array_equal(found["y"], reference(model, inputs)[0])


def test_every_operator_on_integers_is_tried() -> None:
    elsewhere = {"And", "Or", "Xor", "Not", "Where", "Cast", "OneHot", "Split", "Dropout", "Squeeze"}
    assert set(OPERATORS) | elsewhere == WORD_OPERATORS
    assert WORD_OPERATORS - {"OneHot"} == set(RULES)
    assert len(FUNCTIONS) == len(set(FUNCTIONS))


LOOKUPS: dict[str, tuple[dict[str, Any], Array, tuple[int, ...]]] = {
    "rows": ({}, np.array([[3, -1, 0], [9, -10, 5]], np.int64), (10, 24)),
    "one row": ({}, np.array(4, np.int64), (10, 24)),
    "int32": ({}, np.array([7, 7], np.int32), (10, 3)),
    "columns": ({"axis": 1}, np.array([[5, -1], [0, 3]], np.int64), (3, 6, 4)),
    "last axis": ({"axis": -1}, np.array([2, 0], np.int64), (2, 3, 4)),
    "numbers": ({}, np.array([3, 2, -1], np.int64), (11,)),
    "chunks": ({}, RANDOM.integers(-700, 700, (2, 450)), (700, 5)),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_rows_of_a_table(name: str, tmp_path: Path) -> None:
    attributes, indices, shape = LOOKUPS[name]
    numbers = table(shape[0], *shape[1:])
    model = model_of([node("Gather", ["table", "i"], **attributes)], {"i": indices}, {"table": numbers})
    found = run_whole(compiled(model, tmp_path), {"i": indices})
    np.testing.assert_array_equal(found["y"], reference(model, {"i": indices})[0])


@pytest.mark.parametrize(("engines", "descriptors"), [(1, 1), (1, 9), (2, 1)])
def test_rows_of_a_table_on_chips_with_one_engine_or_short_chains(
    engines: int, descriptors: int, tmp_path: Path
) -> None:
    """Chunks of few rows, whether layers read them where they arrive or not, in the order of the scheduler."""
    text = (Path(hw_models.__file__).parent / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    chip = tmp_path / "own.yaml"
    for name, before, after in (("engines_per_cluster", 2, engines), ("max_descriptors", 170, descriptors)):
        assert f"{name}: {before}" in text
        text = text.replace(f"{name}: {before}", f"{name}: {after}")
    chip.write_text(text, encoding="utf-8")
    indices = RANDOM.integers(-20, 20, (3, 7))
    nodes = [node("Gather", ["table", "i"], "rows"), node("MatMul", ["rows", "weights"])]
    model = model_of(nodes, {"i": indices}, {"table": table(20, 24), "weights": table(24, 5)})
    for level in ("O0", "O2"):
        found, usual = (
            run_whole(compiled(model, tmp_path, level, each, schedule=True), {"i": indices})
            for each in (chip, "stcp920")
        )
        np.testing.assert_array_equal(found["y"], usual["y"])


@pytest.mark.parametrize(
    ("op_type", "attributes", "shape", "indices"),
    [
        ("GatherND", {}, (4, 5, 6), [[0, 1], [-1, 4], [3, -5]]),
        ("GatherND", {}, (4, 5, 6), [[1], [3]]),
        ("GatherND", {"batch_dims": 1}, (2, 5, 6), [[4], [-2]]),
        ("GatherND", {"batch_dims": 1}, (2, 5, 6), [[[4, 1], [0, 0]], [[1, -1], [2, 3]]]),
        ("GatherElements", {"axis": 1}, (2, 5), [[4, -5, 0], [1, 1, 2]]),
        ("GatherElements", {"axis": 0}, (2, 5), [[1, 0, -1, 0, 1]]),
        ("Gather", {"axis": 1}, (2, 5, 3), [4, -5, 0]),
        ("Gather", {"axis": 0}, (6, 4), [[5, 0], [-1, -6]]),
    ],
)
@pytest.mark.parametrize("computed", ["constant table", "computed table", "constant indices"])
def test_gathers(
    op_type: str, attributes: dict[str, Any], shape: tuple[int, ...], indices: Any, computed: str, tmp_path: Path
) -> None:
    chosen, numbers = np.array(indices, np.int64), table(*shape[:1], *shape[1:])
    gather = node(op_type, ["data", "i"], **attributes)
    match computed:
        case "constant table":
            inputs: dict[str, Array] = {"i": chosen}
            model = model_of([gather], inputs, {"data": numbers})
        case "computed table":
            inputs = {"i": chosen, "x": numbers}
            model = model_of([node("Relu", ["x"], "data"), gather], inputs, {})
        case _:
            inputs = {"x": numbers}
            model = model_of([node("Relu", ["x"], "data"), gather], inputs, {"i": chosen})
    found = run_whole(compiled(model, tmp_path), inputs)
    np.testing.assert_array_equal(found["y"], reference(model, inputs)[0])


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("pair", [(0.0, 1.0), (-2.0, 3.5)])
def test_one_hot(axis: int, pair: tuple[float, float], tmp_path: Path) -> None:
    indices = np.array([[0, -1, 6], [3, -7, 2]], np.int64)
    constants = {"depth": ints(7), "pair": np.array(pair, np.float32)}
    model = model_of([node("OneHot", ["i", "depth", "pair"], axis=axis)], {"i": indices}, constants)
    found = run_whole(compiled(model, tmp_path), {"i": indices})
    np.testing.assert_array_equal(found["y"], reference(model, {"i": indices})[0])


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3", "auto"])
def test_a_model_of_everything_at_every_level(level: str, tmp_path: Path) -> None:
    """Embeddings, a mask of truth values, positions by a sum that runs: the numbers of onnxruntime, at every level."""
    ids, mask = RANDOM.integers(0, 40, (2, 6)), np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], np.int64)
    nodes = [
        node("Gather", ["words", "ids"], "rows"),
        node("CumSum", ["mask", "axis"], "sums"),
        node("Mul", ["sums", "mask"], "places"),
        node("Gather", ["positions", "places"], "positioned"),
        node("Add", ["rows", "positioned"], "sum"),
        node("MatMul", ["sum", "weights"], "scores"),
        node("Cast", ["mask"], "truth", to=9),
        node("Unsqueeze", ["truth", "last"], "column"),
        node("Where", ["column", "scores", "least"]),
    ]
    constants: dict[str, Array] = {
        "words": table(40, 16) / 64,
        "positions": table(7, 16) / 64,
        "weights": RANDOM.normal(0, 0.2, (16, 8)).astype(np.float32),
        "axis": np.array(1),
        "last": ints(2),
        "least": np.array(-4.0, np.float32),
    }
    inputs: dict[str, Array] = {"ids": ids, "mask": mask}
    model = model_of(nodes, inputs, constants)
    found = run_whole(compiled(model, tmp_path, level), inputs)["y"].astype(np.float64)
    wanted = reference(model, inputs)[0].astype(np.float64)
    assert (found[1, 4:] == -4).all()
    assert np.linalg.norm(found - wanted) < 5e-3 * np.linalg.norm(wanted)


HOSTILE = (2**31 - 1, -1, -(2**31), 10, -11, 0, 9, -10)


def test_machine_code_reads_nothing_outside_a_table(tmp_path: Path) -> None:
    """Indices that nobody checked: the nearest row of the table, or the one that counts from the end."""
    indices, numbers = np.array(HOSTILE, np.int32), table(10, 24)
    model = model_of([node("Gather", ["table", "i"])], {"i": indices}, {"table": numbers})
    made = compiled(model, tmp_path).artifact
    (entry,), (result,) = made.manifest.inputs, made.manifest.outputs
    done = execute(made, {entry.address: indices.tobytes()}, ((result.address, result.bytes),), None, 0)
    rows = [9, 9, 0, 9, 0, 0, 9, 0]
    np.testing.assert_array_equal(made.decode(done.memory)["y"], numbers[rows])


def test_words_chosen_by_words_stay_inside(tmp_path: Path) -> None:
    indices = np.array(HOSTILE, np.int32)
    nodes = [node("Gather", ["k", "i"], "chosen"), node("Cast", ["chosen"], to=FLOAT)]
    model = model_of(nodes, {"i": indices}, {"k": np.arange(100, 110)})
    made = compiled(model, tmp_path).artifact
    (entry,), (result,) = made.manifest.inputs, made.manifest.outputs
    done = execute(made, {entry.address: indices.tobytes()}, ((result.address, result.bytes),), None, 0)
    assert made.decode(done.memory)["y"].tolist() == [109, 109, 100, 109, 100, 100, 109, 100]


def test_run_refuses_indices_outside_a_table(tmp_path: Path) -> None:
    """Before the start: the input, the place, the value and what there is."""
    good = np.array([[0, 4], [5, -6]], np.int64)
    nodes = [node("Gather", ["i", "second"], "column", axis=1), node("Gather", ["table", "column"])]
    constants = {"second": np.array(1), "table": table(6, 4)}
    made = compiled(model_of(nodes, {"i": good}, constants), tmp_path).artifact
    made.save(tmp_path / "out")
    again = Artifact.load(tmp_path / "out")
    assert again.manifest == made.manifest
    np.testing.assert_array_equal(again.run({"i": good})["y"], constants["table"][[4, 0]])
    assert again.run({"i": np.array([[99, 0], [-99, 0]])})["y"].shape == (2, 4)  # the first column chooses nothing
    with pytest.raises(ModelError) as error:
        again.run({"i": np.array([[0, 0], [0, 6]])})
    assert (error.value.who, error.value.needs, error.value.has) == (
        "input i",
        "indices from -6 to 5",
        "6 at [1, 1]",
    )
    with pytest.raises(ModelError, match=r"indices from -6 to 5; has -7 at \[0, 1\]"):
        again.run({"i": np.array([[0, -7], [0, 0]])})
    with pytest.raises(ModelError, match=r"integers from -2147483648 to 2147483647; has 2147483648 at \[0, 0\]"):
        again.run({"i": np.array([[1 << 31, 0], [0, 0]])})
    with pytest.raises(ModelError, match=r"integers \(int64\); has float64"):
        again.run({"i": np.zeros((2, 2))})


def test_a_table_of_which_one_row_is_beyond_a_chunk_is_refused(tmp_path: Path) -> None:
    indices = np.array([1], np.int64)
    model = model_of([node("Gather", ["table", "i"])], {"i": indices}, {"table": np.zeros((2, 1_100_000), np.float32)})
    said = "a row of its table has 2,200,000 bytes; at most 2,097,152 are looked up at a time"
    with pytest.raises(ModelError, match=said):
        compiled(model, tmp_path)


def test_a_large_table(tmp_path: Path) -> None:
    """25 MB, more than the staging memory, read by rows alone."""
    indices, numbers = RANDOM.integers(0, 100_000, 300), table(100_000, 128)
    model = model_of([node("Gather", ["table", "i"])], {"i": indices}, {"table": numbers})
    made = compiled(model, tmp_path)
    np.testing.assert_array_equal(run_whole(made, {"i": indices})["y"], numbers[indices])


def everything(folder: Path, level: str = "O0") -> Any:
    nodes = [
        node("Add", ["i", "one"], "next"),
        node("Gather", ["table", "next"], "rows"),
        node("MatMul", ["rows", "weights"]),
    ]
    constants = {"one": ints(1), "table": table(300, 16), "weights": table(16, 8)}
    return compiled(model_of(nodes, {"i": np.arange(200, dtype=np.int64).reshape(2, 100)}, constants), folder, level)


def test_the_text_of_a_graph_with_prepared_operators(tmp_path: Path) -> None:
    graph = everything(tmp_path).model.graph
    assert graph.prepared
    assert graph.raw == ("i",)
    assert parse_graph(str(graph)) == graph


def test_a_program_without_the_barriers_behind_preparation_is_refused(tmp_path: Path) -> None:
    """Between the words and the chains that read them, and between the rows and the layers."""
    program, chip = everything(tmp_path).program, load_chip("stcp920")
    places = [place for place, instr in enumerate(program.streams[0].instrs) if program.is_barrier(instr)]
    for number in range(2):
        own = [
            [place for place, instr in enumerate(stream.instrs) if program.is_barrier(instr)][number]
            for stream in program.streams
        ]
        streams = tuple(
            replace(stream, instrs=(*stream.instrs[:at], *stream.instrs[at + 1 :]))
            for stream, at in zip(program.streams, own, strict=True)
        )
        if number == 0:
            with pytest.raises(PlanError, match="a barrier between accesses"):
                verify_program(replace(program, streams=streams), chip)
    assert len(places) > 2


def test_a_program_that_does_not_await_its_rows_is_refused(tmp_path: Path) -> None:
    program, chip = everything(tmp_path).program, load_chip("stcp920")
    first = program.streams[0]
    at = next(place for place, instr in enumerate(first.instrs) if instr.awaits)
    cut = replace(first, instrs=(*first.instrs[:at], *first.instrs[at + 1 :]))
    with pytest.raises(PlanError):
        verify_program(replace(program, streams=(cut, *program.streams[1:])), chip)


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_a_program_and_its_machine_code_take_the_same_time(level: str, tmp_path: Path) -> None:
    made, chip = everything(tmp_path, level), load_chip("stcp920")
    program = time_program(made.program, chip, TARGET)
    straight = TARGET.emit(made.program, made.model.graph, made.model.constants, chip)
    traced, looped = (
        time_streams(TARGET.trace(files.files[files.executable], files.cores, chip), chip)
        for files in (straight, made.files)
    )
    assert traced.cycles == program.cycles
    assert looped.cycles == pytest.approx(program.cycles, rel=0.01)


def test_items_of_a_batch(tmp_path: Path) -> None:
    """Rows are those of their own item; a sum that runs over the batch is not."""
    assert batch_problem((made := everything(tmp_path)).model.graph, made.model.constants) is None
    nodes = [node("CumSum", ["i", "axis"], "sums"), node("Gather", ["table", "sums"], "rows"), node("Relu", ["rows"])]
    for axis, problem in ((1, None), (0, "item 0 of the outputs reads data of other items in rows")):
        constants = {"axis": np.array(axis), "table": table(9, 4)}
        made = compiled(model_of(nodes, {"i": np.ones((3, 2), np.int64)}, constants), tmp_path)
        assert batch_problem(made.model.graph, made.model.constants) == problem


@pytest.mark.parametrize("negated", [False, True])
def test_a_row_that_a_mask_closes_as_a_whole_is_zero(negated: bool, tmp_path: Path) -> None:
    """As exporters guard attention: minus infinity in the mask, zeros where the softmax is no number."""
    random = np.random.default_rng(11)
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0]], np.int64)
    chosen = ("closed", "least", "zero") if negated else ("open", "zero", "least")
    nodes = [
        node("MatMul", ["x", "weights"], "scores"),
        node("Cast", ["mask"], "truth", to=9),
        node("Unsqueeze", ["truth", "one"], "open"),
        node("Not", ["open"], "closed"),
        node("Where", chosen, "masked"),
        node("Add", ["scores", "masked"], "sum"),
        node("Softmax", ["sum"], "soft", axis=-1),
        node("IsNaN", ["soft"], "none"),
        node("Where", ["none", "zero", "soft"]),
    ]
    constants: dict[str, Array] = {
        "weights": random.normal(0, 0.3, (8, 4)).astype(np.float32),
        "one": ints(1),
        "zero": np.array(0, np.float32),
        "least": np.array(-np.inf, np.float32),
    }
    inputs: dict[str, Array] = {"x": random.normal(0, 1, (2, 3, 8)).astype(np.float32), "mask": mask}
    model = model_of(nodes, inputs, constants)
    found = run_whole(compiled(model, tmp_path), inputs)["y"].astype(np.float64)
    wanted = reference(model, inputs)[0].astype(np.float64)
    assert (found[1] == 0).all()
    assert (found[0, :, 1] == 0).all()
    np.testing.assert_allclose(found, wanted, atol=3e-3)


@pytest.mark.parametrize(("shape", "wanted"), [((2, 6), (0, 10)), ((6,), (0, 10))])
def test_inputs_are_drawn_by_what_they_mean(shape: tuple[int, ...], wanted: tuple[int, int]) -> None:
    """Rows of a table, a mask that closes no line, lengths."""
    inputs: dict[str, Array] = {
        "ids": np.zeros(shape, np.int64),
        "mask": np.zeros(shape, np.int64),
        "lengths": np.zeros(2, np.int64),
    }
    nodes = [
        node("Gather", ["table", "ids"], "rows"),
        node("Cast", ["mask"], "y", to=FLOAT),
        node("Unsqueeze", ["lengths", "one"], "column"),
        node("Less", ["places", "column"], "open"),
        node("Cast", ["open"], "z", to=FLOAT),
    ]
    constants: dict[str, Array] = {"table": table(10, 4), "one": ints(1), "places": np.arange(12)}
    model = model_of(nodes, inputs, constants, ("rows", "y", "z"))
    for drawn in seeded_inputs(model, 20, 3):
        assert wanted[0] <= drawn["ids"].min() <= drawn["ids"].max() < wanted[1]
        assert set(np.unique(drawn["mask"])) <= {0, 1}
        assert (drawn["mask"][..., 0] == 1).all()
        assert 1 <= drawn["lengths"].min() <= drawn["lengths"].max() <= 12


def test_verify_sees_a_wrong_word(tmp_path: Path) -> None:
    """One bit of one index after a run is told, with operator and place."""
    made = everything(tmp_path)
    inputs: dict[str, Array] = {"i": np.arange(200, dtype=np.int64).reshape(2, 100)}
    artifact = made.artifact
    entries = [entry for entry in artifact.manifest.tensors if entry.kind != "probe"]
    dumps = tuple((entry.address, entry.bytes) for entry in entries)
    memory = execute(artifact, artifact.encode(inputs), dumps, None, 0).memory
    dump = {entry.name: memory[entry.address, entry.bytes] for entry in entries}
    exact = reference_values(made, inputs)
    assert list(wrong_prepared(made, dump, exact, 0)) == []
    name = made.model.graph.prepared[0].outputs[0]
    damaged = bytearray(dump[name])
    damaged[44] ^= 1
    said = list(wrong_prepared(made, {**dump, name: bytes(damaged)}, exact, 0))
    assert said[0].startswith("prepared Add the_next, input 0: 1 of 200 elements differ, first at [0, 11]: 13, 12 emul")
    assert len(said) > 1  # the rows are no longer those of the indices


def reference_values(made: Any, inputs: dict[str, Array]) -> dict[str, Array]:
    return OnnxReference(made.model.source).values(inputs)


@pytest.mark.parametrize("op_type", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("first", [0, -3])
def test_a_comparison_with_numbers_of_columns_is_a_row_of_a_table(
    op_type: str, flipped: bool, first: int, tmp_path: Path
) -> None:
    places = np.array([-(2**31), -4, -3, -1, 0, 2, 5, 6, 7, 2**31 - 1])[:, None]
    inputs: dict[str, Array] = {"places": places, "x": np.arange(60, dtype=np.float32).reshape(10, 6)}
    operands = ["places", "columns"] if flipped else ["columns", "places"]
    nodes = [
        node(op_type, operands, "truth"),
        node("Cast", ["truth"], "numbers", to=FLOAT),
        node("Mul", ["numbers", "x"]),
    ]
    model = model_of(nodes, inputs, {"columns": first + np.arange(6)})
    made = compiled(model, tmp_path)
    assert [op.kind for op in made.model.graph.prepared if op.outputs[0] == "truth"] == ["lookup"]
    assert np.array_equal(run_whole(made, inputs)["y"], reference(model, inputs)[0])
