"""Caches that stay in their place: new rows alone are written, where integers say, and attention reads both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import dsa_sched
from codegen.neuralscale.target import TARGET
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.runner import execute
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compile_options import CompileOptions
from hw_models.errors import ModelError, PlanError
from isched.hazards.verify_program import verify_program
from isched.program.program import Region
from isched.timing.cycle_model import time_program, time_streams
from partitioner.planners.levels import O0, planner_or_auto
from tests.llm.decoders import LAYERS, decoder
from tests.llm.test_caches import expected

Array = npt.NDArray[Any]
ROOM, WIDTH, HEADS, GROUPS = 12, 8, 4, 2
NEAR = 0.012
"""Largest error of an element of the result, in fp16."""
RESULTS = ("y", "present_key", "present_value")


def step(
    rows: int,
    items: int = 1,
    *,
    after: Sequence[onnx.NodeProto] = (),
    mask: int = 0,
    names: tuple[str, str] = ("past_key", "past_value"),
    opset: int = 24,
    room: int = ROOM,
    **attributes: Any,
) -> onnx.ModelProto:
    """Attention of `rows` new rows over caches with `room`, whose places end at a length."""
    shapes = {
        "q": (items, HEADS, rows, WIDTH),
        **dict.fromkeys("kv", (items, GROUPS, rows, WIDTH)),
        **dict.fromkeys(names, (items, GROUPS, room, WIDTH)),
    }
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    inputs.append(helper.make_tensor_value_info("length", TensorProto.INT64, (items,)))
    written = [
        helper.make_node("TensorScatter", [name, f"{new}2", "begin"], [present], present)
        for name, new, present in zip(names, "kv", RESULTS[1:], strict=True)
    ]
    if mask:
        inputs.append(helper.make_tensor_value_info("mask", mask, (rows, room)))
    operands = ["q", *RESULTS[1:], "mask" if mask else "", "", "", "length"]
    nodes = [
        *(helper.make_node("Add", [name, name], [f"{name}2"], f"{name}2") for name in "kv"),
        helper.make_node("Sub", ["length", "rows"], ["begin"], "begin"),
        *written,
        helper.make_node("Attention", operands, ["y"], "attention", **attributes),
        *after,
    ]
    results = [*RESULTS, *(node.output[0] for node in after)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph(nodes, "step", inputs, ends, [helper.make_tensor("rows", TensorProto.INT64, (), [rows])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def feed_of(model: onnx.ModelProto, *lengths: int) -> dict[str, Array]:
    random = np.random.default_rng(5)
    shapes = {item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in model.graph.input}
    truths = {item.name for item in model.graph.input if item.type.tensor_type.elem_type == TensorProto.BOOL}
    drawn = {name: random.normal(size=shape).astype(np.float16) for name, shape in shapes.items() if name != "length"}
    feed = {name: array > -0.5 if name in truths else array.astype(np.float32) for name, array in drawn.items()}
    return {**feed, "length": np.array(lengths)}


def compiled(model: onnx.ModelProto, **options: Any) -> Artifact:
    made: Artifact = dsa_sched.compile(model, **{"chip": "stcp920", "level": "O0", "cache": False, **options})
    return made


def places_of(artifact: Artifact) -> dict[str, str]:
    """Inputs by the outputs that lie in their places."""
    tensors = {entry.name: entry for entry in artifact.manifest.inputs}
    found = {entry.name: entry.state_of for entry in artifact.manifest.outputs if entry.kind == "state"}
    assert all(artifact.tensor(name).address == tensors[past].address for name, past in found.items())
    return found


KEPT = {"present_key": "past_key", "present_value": "past_value"}
CAUSAL: dict[str, Any] = {"is_causal": 1}
CASES: Sequence[tuple[int, tuple[int, ...], dict[str, Any]]] = [
    (1, (5,), CAUSAL),
    (1, (1,), CAUSAL),
    (1, (ROOM,), {}),
    (3, (7,), CAUSAL),
    (3, (3, ROOM), CAUSAL),
    (3, (9, 4), {}),
    (3, (9,), {**CAUSAL, "softcap": 2.0, "scale": 0.5}),
    (3, (9, 4), {**CAUSAL, "left_window_size": 3, "opset": 25}),
    (3, (9, 4), {"left_window_size": 3, "right_window_size": 1, "opset": 25}),
]


@pytest.mark.spread(4)
@pytest.mark.parametrize(("rows", "lengths", "attributes"), CASES)
@pytest.mark.commit
def test_attention_reads_old_and_new_rows(rows: int, lengths: tuple[int, ...], attributes: dict[str, Any]) -> None:
    model = step(rows, len(lengths), **attributes)
    feed = feed_of(model, *lengths)
    artifact = compiled(model)
    assert places_of(artifact) == KEPT
    found = artifact.run(feed)
    for name, wanted in zip(RESULTS, expected(model, feed), strict=True):
        assert np.abs(found[name] - wanted).max() <= (NEAR if name == "y" else 0.0), name


@pytest.mark.parametrize(
    ("lengths", "attributes"),
    [((41, 50), CAUSAL), ((40,), {}), ((47, 41), {**CAUSAL, "left_window_size": 3, "opset": 25})],
)
def test_many_rows_attend_to_both_parts_in_one_kernel(lengths: tuple[int, ...], attributes: dict[str, Any]) -> None:
    """Rows enough for a tile of the matrix array, of two heads that share one of the keys."""
    model = step(40, len(lengths), room=50, **attributes)
    feed = feed_of(model, *lengths)
    artifact, other = compiled(model), compiled(model, level="O2", schedule=True)
    assert places_of(artifact) == KEPT
    (kernel,) = (op for op in artifact.graph.ops if op.kind == "attend")
    assert kernel.number("parts") == 2
    found = artifact.run(feed)
    for name, wanted in zip(RESULTS, expected(model, feed), strict=True):
        assert np.abs(found[name] - wanted).max() <= (1.5 * NEAR if name == "y" else 0.0), name
        np.testing.assert_array_equal(other.run(feed)[name], found[name])


@pytest.mark.parametrize(
    ("rows", "mask", "kept"),
    [
        (1, TensorProto.BOOL, KEPT),
        (3, TensorProto.BOOL, KEPT),
        (1, TensorProto.FLOAT, KEPT),
        (3, TensorProto.FLOAT, {}),  # numbers at one place can be chosen, not at several
    ],
)
def test_a_mask_next_to_a_length(rows: int, mask: int, kept: dict[str, str]) -> None:
    model = step(rows, mask=mask, **CAUSAL)
    feed = feed_of(model, 7)
    artifact = compiled(model)
    assert places_of(artifact) == kept
    found = artifact.run(feed)
    for name, wanted in zip(RESULTS, expected(model, feed), strict=True):
        assert np.abs(found[name] - wanted).max() <= (NEAR if name == "y" else 0.0), name


def test_items_with_windows_by_their_places() -> None:
    nodes = [
        helper.make_node("Reshape", ["begin", "apart"], ["before"]),
        helper.make_node("Add", ["before", "less"], ["oldest"]),
        helper.make_node("Greater", ["columns", "oldest"], ["window"]),
    ]
    model = step(2, 2, mask=TensorProto.BOOL, **CAUSAL)
    del model.graph.input[-1]
    mask, attention = "window", next(node for node in model.graph.node if node.op_type == "Attention")
    attention.input[3] = mask
    at = [node.name for node in model.graph.node].index("begin") + 1
    for node in reversed(nodes):
        model.graph.node.insert(at, node)
    for name, array in (
        ("less", np.array([[-3], [-2]])),
        ("apart", np.array([2, 1, 1, 1])),
        ("columns", np.arange(ROOM)),
    ):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    feed = feed_of(model, 9, 4)
    artifact = compiled(model)
    assert places_of(artifact) == KEPT
    found = artifact.run(feed)
    for name, wanted in zip(RESULTS, expected(model, feed), strict=True):
        assert np.abs(found[name] - wanted).max() <= (NEAR if name == "y" else 0.0), name


@pytest.mark.parametrize("spelling", LAYERS)
@pytest.mark.commit
def test_both_spellings_of_decoders_keep_their_caches(spelling: str) -> None:
    artifact = compiled(decoder(spelling, 1))
    pairs = {(layer, kind) for layer in range(2) for kind in ("key", "value")}
    assert places_of(artifact) == {f"present.{n}.{kind}": f"past.{n}.{kind}" for n, kind in sorted(pairs)}


@pytest.mark.spread(1)
@pytest.mark.parametrize("level", ["O2", "O3"])
def test_all_levels_store_the_same_bits(level: str) -> None:
    model = step(3, 2, **CAUSAL)
    feed = feed_of(model, 3, 9)
    found, plain = (compiled(model, level=each, schedule=each != "O0").run(feed) for each in (level, "O0"))
    assert all(np.array_equal(found[name], plain[name]) for name in RESULTS)


@pytest.mark.spread(1)
@pytest.mark.parametrize("model", [step(1, scale=1e-3, **CAUSAL), step(3, 2, scale=1e-3, **CAUSAL)])
def test_it_is_verified(model: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "step.onnx")
    report = dsa_sched.verify(tmp_path / "step.onnx", "stcp920", level="O2", cache=False)
    assert not report.failures


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_a_program_and_its_machine_code_take_the_same_time(level: str) -> None:
    options = CompileOptions(planner=planner_or_auto(level), schedule=level == "O3")
    made = compile_model(step(1, 2, **CAUSAL), "stcp920", options)
    program = time_program(made.program, made.chip, TARGET)
    straight = TARGET.emit(made.program, made.model.graph, made.model.constants, made.chip)
    traced = TARGET.trace(straight.files[straight.executable], straight.cores, made.chip)
    assert time_streams(traced, made.chip).cycles == program.cycles


def test_new_rows_alone_go_to_the_main_memory() -> None:
    model = step(1, **CAUSAL)
    artifact = compiled(model, level="O3")
    dumps = tuple((entry.address, entry.bytes) for entry in artifact.manifest.outputs)
    done = execute(artifact, artifact.encode(feed_of(model, 5)), dumps, None, 0, 0)
    cache_bytes = artifact.tensor("past_key").bytes
    row_bytes = 2 * GROUPS * WIDTH
    # rows as the layers leave them and as they are written, the result, and words of integers
    assert done.moved_bytes["LLB->DDR"] < 2 * 2 * row_bytes + 2 * HEADS * WIDTH + cache_bytes


@pytest.mark.spread(4)
@pytest.mark.parametrize("length", [-1, 0, 1, 2, 13, 14, 15, 40])
def test_rows_without_a_place_are_not_written(length: int) -> None:
    rows = 3
    model = step(rows, **CAUSAL)
    feed = feed_of(model, length)
    found = compiled(model).run(feed)
    for name, past in KEPT.items():
        wanted, new = feed[past].copy(), 2 * feed[name[len("present_")]]
        for row in range(rows):
            if 0 <= length - rows + row < ROOM:
                wanted[:, :, length - rows + row] = new[:, :, row]
        assert np.array_equal(found[name], wanted)
    assert np.isfinite(found["y"]).all()


def test_a_session_keeps_what_runs_write() -> None:
    model = step(1, **CAUSAL)
    session = compiled(model).session()
    assert session.pairs == KEPT
    state = {name: np.zeros((1, GROUPS, ROOM, WIDTH), np.float32) for name in KEPT.values()}
    for length in (1, 2, 3):
        feed = {**feed_of(model, length), **state}
        found = session.run({name: feed[name] for name in (*"qkv", "length")})
        y, *present = expected(model, feed)
        state = dict(zip(KEPT.values(), present, strict=True))
        assert np.abs(found["y"] - y).max() <= NEAR
    assert all(np.array_equal(session.state[name], array) for name, array in state.items())


def test_pairs_of_other_names_are_said() -> None:
    model = step(1, names=("keys", "values"), **CAUSAL)
    assert places_of(compiled(model)) == {}
    state = {"present_key": "keys", "present_value": "values"}
    artifact = compiled(model, state=state)
    assert places_of(artifact) == state
    assert artifact.session().pairs == state
    assert artifact.origin.options.state_pairs == state
    assert artifact.graph.in_place == state


@pytest.mark.parametrize("pair", [("y", "past_key"), ("present_key", "none"), ("none", "past_key")])
def test_pairs_that_do_not_go_together_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(ModelError, match="state "):
        compiled(step(1, **CAUSAL), state=dict([pair]))


def test_pairs_are_said_on_the_command_line(tmp_path: Path) -> None:
    onnx.save(step(1, names=("keys", "values"), **CAUSAL), tmp_path / "step.onnx")
    command = ["explain", str(tmp_path / "step.onnx"), "--chip", "stcp920", "--level", "O0", "--no-cache"]
    pairs = ["--state", "present_key=keys", "--state", "present_value=values"]
    done = CliRunner().invoke(cli, [*command, *pairs])
    assert "present_key: cache: 1 of 12 rows are written in the place of keys" in done.output
    assert CliRunner().invoke(cli, [*command, "--state", "present_key"]).exit_code == 2


OTHERS: Sequence[tuple[dict[str, Any], str]] = [
    ({"after": [helper.make_node("Add", ["past_key", "past_key"], ["twice"], "twice")]}, "more than this reads"),
    ({"after": [helper.make_node("Add", ["present_key", "present_key"], ["twice"], "twice")]}, "an attention"),
]


@pytest.mark.parametrize(("how", "reason"), OTHERS)
def test_a_cache_that_is_read_otherwise_is_written_whole(how: dict[str, Any], reason: str) -> None:
    model = step(1, **how, **CAUSAL)
    feed = feed_of(model, 5)
    artifact = compiled(model)
    assert places_of(artifact) == {}
    assert any(each.verdict == "cache" and reason in each.reason for each in artifact.origin.decisions)
    found = artifact.run(feed)
    for name, wanted in zip((*RESULTS, "twice"), expected(model, feed), strict=True):
        assert np.abs(found[name] - wanted).max() <= (NEAR if name == "y" else 0.0), name


def test_items_are_divided_among_clusters() -> None:
    model = step(1, 2, **CAUSAL)
    feed = feed_of(model, 5, 9)
    whole, halves = (compiled(model, batch=2, clusters=clusters).run(feed) for clusters in (1, 2))
    assert all(np.array_equal(whole[name], halves[name]) for name in RESULTS)


def written(shape: tuple[int, ...], rows: int) -> onnx.ModelProto:
    """Rows that are written into a cache that nothing reads."""
    nodes = [
        helper.make_node("Add", ["new", "new"], ["twice"], "twice"),
        helper.make_node("TensorScatter", ["past", "twice", "places"], ["present"], "write"),
    ]
    shapes = {"past": shape, "new": (*shape[:-2], rows, shape[-1])}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, extents) for name, extents in shapes.items()]
    inputs.append(helper.make_tensor_value_info("places", TensorProto.INT64, shape[:1]))
    ends = [helper.make_tensor_value_info("present", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "write", inputs, ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


@pytest.mark.parametrize(
    ("shape", "rows", "places"),
    [
        ((2, 3, 8, 4), 1, (5, 0)),
        ((2, 3, 8, 4), 3, (5, 0)),
        ((2, 3, 8, 4), 3, (7, -2)),
        ((3, 90, 4, 2), 1, (1, 3, 2)),  # more pieces than a chain has descriptors
        ((1, 2, 17000, 64), 16900, (70,)),  # pieces larger than a buffer
        ((1, 2, 17000, 64), 16900, (-300,)),
    ],
)
def test_rows_are_written_to_the_bit(shape: tuple[int, ...], rows: int, places: tuple[int, ...]) -> None:
    random = np.random.default_rng(6)
    past, new = (random.normal(size=(*shape[:2], count, shape[3])).astype(np.float16) for count in (shape[2], rows))
    artifact = compiled(written(shape, rows))
    assert places_of(artifact) == {"present": "past"}
    feed = {"past": past.astype(np.float32), "new": new.astype(np.float32), "places": np.array(places)}
    found, wanted = artifact.run(feed)["present"], past.copy()
    for item, place in enumerate(places):
        inside = slice(max(place, 0), min(place + rows, shape[2]))
        wanted[item, :, inside] = 2 * new[item, :, inside.start - place : inside.stop - place]
    assert np.array_equal(found, wanted.astype(np.float32))


def test_no_other_instruction_may_write_an_input() -> None:
    made = compile_model(step(1, **CAUSAL), "stcp920", CompileOptions(planner=O0()))
    program, chip = made.program, made.chip
    verify_program(program, chip)
    place = program.placement["q"]
    streams = list(program.streams)
    number = next(n for n, instr in enumerate(streams[0].instrs) if instr.writes and instr.writes[0].memory == "DDR")
    instrs = list(streams[0].instrs)
    instrs[number] = replace(instrs[number], writes=(Region("DDR", place.offset_bytes, 64),))
    streams[0] = replace(streams[0], instrs=tuple(instrs))
    with pytest.raises(PlanError, match="q as it was given"):
        verify_program(replace(program, streams=tuple(streams)), chip)


MASKS = ("truths", "numbers", "windows", "shared")


def exported(rows: int, mask: str, items: int = 1) -> onnx.ModelProto:
    """Attention over static caches as PyTorch's exporter writes it: rows assigned at places, and a mask of integers."""
    shapes = {
        "q": (items, HEADS, rows, WIDTH),
        **dict.fromkeys("kv", (items, GROUPS, rows, WIDTH)),
        **dict.fromkeys(KEPT.values(), (items, GROUPS, ROOM, WIDTH)),
    }
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    inputs.append(helper.make_tensor_value_info("length", TensorProto.INT64, (rows,)))
    stored = {
        "columns": np.arange(ROOM)[None],
        "second": np.array([1]),
        "first_two": np.array([0, 1]),
        "two": np.array(2),
        "width": np.array(4),
        "none": np.array(0.0, np.float32),
        "hidden": np.array(-np.inf, np.float32),
        "some": np.random.default_rng(7).random((rows, ROOM)) < 0.7,
    }
    nodes = [
        helper.make_node("Unsqueeze", ["length", "second"], ["rows"]),
        helper.make_node("LessOrEqual", ["columns", "rows"], ["seen"]),
    ]
    for new, (present, past) in zip("kv", KEPT.items(), strict=True):
        nodes += [
            helper.make_node("Add", [new, new], [f"{new}2"]),
            helper.make_node("Transpose", [past], [f"{past}_rows"], perm=(2, 0, 1, 3)),
            helper.make_node("Transpose", [f"{new}2"], [f"{new}_rows"], perm=(2, 0, 1, 3)),
            helper.make_node("ScatterND", [f"{past}_rows", "rows", f"{new}_rows"], [f"{present}_rows"]),
            helper.make_node("Transpose", [f"{present}_rows"], [present], perm=(1, 2, 0, 3)),
        ]
    match mask:
        case "windows":
            nodes += [
                helper.make_node("Sub", ["rows", "width"], ["before"]),
                helper.make_node("Greater", ["columns", "before"], ["after"]),
                helper.make_node("And", ["seen", "after"], ["both"]),
            ]
        case "shared":
            nodes.append(helper.make_node("And", ["seen", "some"], ["both"]))
        case _:
            nodes.append(helper.make_node("Identity", ["seen"], ["both"]))
    nodes.append(helper.make_node("Unsqueeze", ["both", "first_two"], ["apart"]))
    if mask == "numbers":
        nodes.append(helper.make_node("Where", ["apart", "none", "hidden"], ["mask"]))
    else:
        nodes.append(helper.make_node("Identity", ["apart"], ["mask"]))
    nodes.append(helper.make_node("Attention", ["q", *KEPT, "mask"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in RESULTS]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "exported", inputs, ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


@pytest.mark.spread(5)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("places", "items"), [((5,), 1), ((-1,), 1), ((3, 4, 5), 1), ((9, 2, 11), 2)])
def test_rows_assigned_to_static_caches(mask: str, places: tuple[int, ...], items: int) -> None:
    model = exported(len(places), mask, items)
    feed = feed_of(model, *places)
    artifact = compiled(model)
    assert places_of(artifact) == KEPT
    found = artifact.run(feed)
    for name, wanted in zip(RESULTS, expected(model, feed), strict=True):
        assert np.abs(found[name] - np.nan_to_num(wanted)).max() <= (NEAR if name == "y" else 0.0), name
