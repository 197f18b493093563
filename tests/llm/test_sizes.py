"""Several sizes in one artifact: bits, weights, rows of padding, operators that are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import dsa_sched
from codegen.neuralscale.kernels import dispatch
from dsa_sched.cli import cli
from dsa_sched.frontend import open_model
from dsa_sched.sizes.compile import compile_sizes
from dsa_sched.sizes.sized_artifact import SizedArtifact
from dsa_sched.sizes.verify import verify_sizes
from dsa_sched.stages.compile_options import CompileOptions
from hw_models.cache import Cache
from hw_models.errors import ModelError, TargetError
from partitioner.ir.target import WeightPacking, WeightUse
from partitioner.planners.levels import O0
from tests.llm.decoders import Decoder, decoder, first_feed, generated

Array = npt.NDArray[Any]
SMALL = Decoder(layers=1, words=32, heads=2, groups=1, inner=32, room=16)


def drawn(*shape: int) -> Array:
    return np.random.default_rng([*shape]).normal(size=shape).astype(np.float32)


def perceptron() -> onnx.ModelProto:
    """Two layers over rows."""
    stored = [numpy_helper.from_array(drawn(32, 64), "w1"), numpy_helper.from_array(drawn(64, 32), "w2")]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="up"),
        helper.make_node("Relu", ["h"], ["a"], name="act"),
        helper.make_node("MatMul", ["a", "w2"], ["y"], name="down"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 32]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@cache
def perceptrons() -> SizedArtifact:
    return dsa_sched.compile(perceptron(), "stcp920", sizes={"rows": (2, 8)}, level="O2")


@cache
def decoders() -> SizedArtifact:
    return dsa_sched.compile(decoder("standard", "sequence", SMALL), "stcp920", sizes={"sequence": (1, 8)}, level="O2")


def reference(rows: int, feed: dict[str, Array]) -> dict[str, Array]:
    """What onnxruntime makes of a decoder of that many rows."""
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3
    session = onnxruntime.InferenceSession(decoder("standard", rows, SMALL).SerializeToString(), quiet)
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def test_a_compiled_size_has_the_bits_of_an_artifact_for_it_alone() -> None:
    for rows in (2, 8):
        alone = dsa_sched.compile(perceptron(), "stcp920", shape={"x": (rows, 32)}, level="O2", cache=False)
        x = drawn(rows, 32)
        assert np.array_equal(perceptrons().run({"x": x})["y"], alone.run({"x": x})["y"])
        assert perceptrons().at(rows=rows).clusters[0].files["program.s"] == alone.clusters[0].files["program.s"]


def test_weights_are_once_in_the_folder(tmp_path: Path) -> None:
    perceptrons().save(tmp_path / "a")
    assert (tmp_path / "a" / "weights.bin").stat().st_size == 2 * 2 * 32 * 64
    loaded = dsa_sched.load_sizes(tmp_path / "a")
    assert loaded == perceptrons()
    assert [artifact.own_constant_bytes for artifact in loaded.artifacts] == [0, 0]
    x = drawn(2, 32)
    one = dsa_sched.load(tmp_path / "a" / "rows=2")
    assert np.array_equal(one.run({"x": x})["y"], loaded.run({"x": x})["y"])
    one.save(tmp_path / "alone")
    assert np.array_equal(dsa_sched.load(tmp_path / "alone").run({"x": x})["y"], loaded.run({"x": x})["y"])
    loaded.save(tmp_path / "a")
    with pytest.raises(TargetError, match="name the folder of one in it: rows=8, rows=2"):
        dsa_sched.load(tmp_path / "a")


def test_rows_in_between_are_padded_and_cut() -> None:
    x = drawn(5, 32)
    assert perceptrons().choice({"x": x}).line == "program rows=8: rows is padded from 5 to 8, and outputs are cut"
    whole = perceptrons().run({"x": np.concatenate([x, drawn(3, 32)])})["y"]
    assert np.array_equal(perceptrons().run({"x": x})["y"], whole[:5])
    with pytest.raises(ModelError, match="rows=9: needs at most 8; has 9; compile with --sizes rows=2,8,9"):
        perceptrons().run({"x": drawn(9, 32)})


@pytest.mark.commit
def test_a_session_goes_from_a_prefill_to_steps() -> None:
    """Greedy tokens after a prompt that is padded are those of onnxruntime at the prompt's own size."""

    ids = [3, 1, 4, 1, 5]
    found = generated(reference, "standard", ids, 3, first_feed(decoder("standard", 1, SMALL)))
    session = decoders().session()
    tokens, new, length = list[int](), ids, 0
    for _ in range(4):
        length += len(new)
        outputs = session.run({"ids": np.array([new]), "length": np.array([length])})
        assert outputs["token"].shape == (1, len(new))
        new = [int(outputs["token"][0, -1])]
        tokens += new
    assert tokens == found
    assert not session.state["past.0.key"][0, 0, length:].any()


def test_caches_keep_their_rows_beyond_the_new_ones() -> None:
    feed = {name: drawn(*array.shape) for name, array in first_feed(decoder("standard", 1, SMALL)).items()}
    feed |= {"ids": np.array([[1, 2, 3]]), "length": np.array([7])}
    kept = decoders().run(feed)["present.0.key"]
    assert np.array_equal(kept[0, 0, 7:], feed["past.0.key"][0, 0, 7:].astype(np.float16))
    assert np.array_equal(kept[0, 0, :4], feed["past.0.key"][0, 0, :4].astype(np.float16))


def test_the_command_line_compiles_and_runs(tmp_path: Path) -> None:
    onnx.save(perceptron(), tmp_path / "p.onnx")
    command = ["compile", str(tmp_path / "p.onnx"), "--chip", "stcp920", "--level", "O0", "--sizes", "rows=2,4"]
    done = CliRunner().invoke(cli, [*command, "-o", str(tmp_path / "a")])
    assert done.exit_code == 0, done.output
    assert "weights: 8 KiB once for all 2 programs; constants that one has alone: 0 bytes, 0 bytes" in done.stdout
    np.savez(tmp_path / "x.npz", x=drawn(3, 32))
    ends = ["--input", str(tmp_path / "x.npz"), "--output", str(tmp_path / "y.npz")]
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "a"), *ends])
    assert done.exit_code == 0, done.output
    assert "program rows=4: rows is padded from 3 to 4, and outputs are cut" in done.stderr
    with np.load(tmp_path / "y.npz") as found:
        assert found["y"].shape == (3, 32)


def test_sizes_are_verified_and_timed_one_by_one(tmp_path: Path) -> None:
    onnx.save(perceptron(), tmp_path / "p.onnx")
    perceptrons().save(tmp_path / "a")
    report = tmp_path / "report.json"
    done = CliRunner().invoke(cli, ["verify", str(tmp_path / "a"), "--json", str(report)])
    assert done.exit_code == 0, done.output
    rows = [line.split()[:2] for line in done.stdout.splitlines()[1:]]
    assert rows == [["rows=8", "passed"], ["rows=2", "passed"], ["rows=5", "passed"], ["passed"]]
    kept = json.loads(report.read_text())
    assert (kept["format"], kept["verdict"]) == ("dsa-sched-verify-sizes/1", "passed")
    assert kept["between"][0]["padding_error"] <= 1e-6
    done = CliRunner().invoke(cli, ["time", str(tmp_path / "a"), "--json", str(tmp_path / "t.json")])
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["rows=8", "rows=2"]
    assert [each["sizes"] for each in json.loads((tmp_path / "t.json").read_text())["sizes"]] == [
        {"rows": 8},
        {"rows": 2},
    ]


def test_a_wrong_result_at_a_size_in_between_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that padding changes nothing, where it does: rows of padding that are not counted in a length."""
    entries = tuple(entry.model_copy(update={"counts": {}}) for entry in decoders().manifest.ends.inputs)
    ends = decoders().manifest.ends.model_copy(update={"inputs": entries})
    wrong = replace(decoders(), manifest=decoders().manifest.model_copy(update={"ends": ends}))
    monkeypatch.setattr("dsa_sched.sizes.verify.verify_artifact", lambda *_: NotImplemented)
    monkeypatch.setattr("dsa_sched.sizes.verify.source_of", lambda *_: "decoder.onnx")
    monkeypatch.setattr(
        "dsa_sched.sizes.verify.open_model", lambda *_: open_model(decoder("standard", "sequence", SMALL))
    )
    (found,) = verify_sizes(wrong).between
    assert found.verdict == "failed"
    assert any("in onnxruntime, padding changes an output" in line for line in found.findings)


def averages() -> onnx.ModelProto:
    """The mean of the rows of each item, with a batch that the file fixes."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], name="mean", axes=[1], keepdims=0)]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "rows", 16]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16]),
    ]
    graph = helper.make_graph(nodes, "averages", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_exact_sizes_refuse_nothing_and_run_alone() -> None:
    sizes = {"rows": (2, 4), "batch": (1, 3)}
    with pytest.raises(ModelError, match=r"padding would change 1 operator\n  along rows, ReduceMean mean: it reads"):
        dsa_sched.compile(averages(), "stcp920", sizes=sizes, level="O0")
    made = dsa_sched.compile(averages(), "stcp920", sizes=sizes, exact=True, level="O0")
    assert [entry.folder for entry in made.manifest.sizes] == [
        "rows=4,batch=3", "rows=4,batch=1", "rows=2,batch=3", "rows=2,batch=1",
    ]  # fmt: skip
    x = drawn(3, 2, 16)
    assert np.allclose(made.run({"x": x})["y"], x.mean(1), atol=1e-2)
    with pytest.raises(ModelError, match="batch=2: needs one of the sizes 1, 3; has 2"):
        made.run({"x": x[:2]})


def test_a_batch_is_padded_too() -> None:
    made = dsa_sched.compile(perceptron(), "stcp920", sizes={"batch": (4,)}, level="O0")
    x = drawn(3, 32)
    assert made.choice({"x": x}).line == "program batch=4: batch is padded from 3 to 4, and outputs are cut"
    assert np.array_equal(made.run({"x": x})["y"], perceptrons().run({"x": x})["y"])
    assert made.only(batch=4) == made


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"columns": (1, 2)}, "--sizes columns: needs a symbolic dimension of an input, or the batch; has rows, batch"),
        ({"rows": ()}, "--sizes rows: needs sizes of at least 1; has none"),
        ({"rows": tuple(range(1, 67))}, "--sizes: needs 1 to 64 combinations of sizes; has 66"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ModelError, match=message.replace("--", "(--)?")):
        dsa_sched.compile(perceptron(), "stcp920", sizes=sizes)


def test_commands_about_one_size_name_its_folder(tmp_path: Path) -> None:
    perceptrons().save(tmp_path / "a")
    for command in (["explain"], ["report", "-o", str(tmp_path / "r.html")], ["timeline"]):
        done = CliRunner().invoke(cli, [command[0], str(tmp_path / "a"), *command[1:]])
        assert done.exit_code == 1
        assert "has programs for several sizes; name the folder of one in it: rows=8, rows=2" in done.stderr
    program = str(tmp_path / "a" / "rows=2" / "cluster0" / "program.elf")
    done = CliRunner().invoke(cli, ["iss", program])
    assert f"give --load 0x4000000={tmp_path / 'a' / 'weights.bin'}" in done.stderr


def test_a_folder_that_lost_its_weights_is_refused(tmp_path: Path) -> None:
    perceptrons().save(tmp_path / "a")
    (tmp_path / "a" / "rows=2").rename(tmp_path / "moved")
    with pytest.raises(TargetError, match=r"weights\.bin"):
        dsa_sched.load(tmp_path / "moved")
    with pytest.raises(TargetError, match="a readable file"):
        dsa_sched.load_sizes(tmp_path / "a")


def changed(value: Any, *path: str | int, to: Any) -> Any:
    """JSON with another value at a path."""
    if not path:
        return to
    copy = {**value} if isinstance(value, dict) else [*value]
    copy[path[0]] = changed(copy[path[0]], *path[1:], to=to)  # type: ignore[index]
    return copy


STRANGE: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "a dimension that an input does not have": (("inputs", 0, "rows", 0, "dim"), 9),
    "an axis that it does not have": (("inputs", 0, "rows", 0, "axis"), "other"),
    "rows in another order": (("inputs", 0, "rows", 0, "outer"), 2),
    "rows twice": (("inputs", 0, "rows"), [{"axis": "sequence", "dim": 1, "outer": 1, "more": 0, "inner": 1}] * 2),
    "an input of another name": (("inputs", 0, "name"), "other"),
    "counts along another axis": (("inputs", 1, "counts"), {"other": 1}),
    "a dimension that an output does not have": (("outputs", 0, "rows", 0, "dim"), 9),
    "more rows of an output": (("outputs", 0, "rows", 0, "more"), 3),
    "an output of another name": (("outputs", 0, "name"), "other"),
    "a cache that is restored from another input": (("outputs", 1, "restored", "input"), "ids"),
    "a cache that is restored along another dimension": (("outputs", 1, "restored", "dim"), 9),
    "a place of an input that is not there": (("outputs", 1, "restored", "begin", "inputs"), {"other": 1}),
    "a limit of another axis": (("limits", 0, "axis"), "other"),
    "a limit of an input that is not there": (("limits", 0, "number", "inputs"), {"other": 1}),
}


@pytest.mark.parametrize("damage", STRANGE)
def test_ends_that_do_not_fit_the_programs_are_refused(damage: str, tmp_path: Path) -> None:
    decoders().save(tmp_path / "a")
    path = tmp_path / "a" / "manifest.json"
    manifest = json.loads(path.read_text())
    where, value = STRANGE[damage]
    path.write_text(json.dumps(changed(manifest, "ends", *where, to=value)))
    with pytest.raises(TargetError, match="as they are"):
        dsa_sched.load_sizes(tmp_path / "a")


def of_int8() -> onnx.ModelProto:
    """A product by weights in int8, with a scale per column."""
    random = np.random.default_rng(3)
    scales = np.asarray(random.uniform(3e-4, 9e-4, 32), np.float16).astype(np.float32)
    stored: dict[str, Array] = {"q": random.integers(-127, 128, (64, 32)).astype(np.int8), "s": scales}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], name="dq", axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", e]) for n, e in (("x", 64), ("y", 32))]
    constants = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "integers", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_weights_that_stay_int8_at_one_size_do_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def few_rows(use: WeightUse, _chip: object) -> WeightPacking:
        return WeightPacking(use.rows < 4, "few rows")

    monkeypatch.setattr(dispatch, "weight_packing", few_rows)
    onnx.save(of_int8(), tmp_path / "q.onnx")
    made = dsa_sched.compile(tmp_path / "q.onnx", "stcp920", sizes={"rows": (1, 8)}, level="O0")
    assert [artifact.own_constant_bytes for artifact in made.artifacts] == [0, 0]
    assert len(made.artifacts[0].weights) == 64 * 32 + 2 * 32
    alone = dsa_sched.compile(of_int8(), "stcp920", shape={"x": (8, 64)}, level="O0", cache=False)
    assert {tensor.dtype for tensor in alone.graph.tensors if tensor.constant} == {"float16"}
    monkeypatch.setattr(dispatch, "weight_packing", lambda _use, _chip: WeightPacking(True, "all rows"))
    x, packed = drawn(8, 64), dsa_sched.compile(of_int8(), "stcp920", shape={"x": (8, 64)}, level="O0", cache=False)
    assert np.array_equal(made.run({"x": x})["y"], packed.run({"x": x})["y"])
    monkeypatch.setattr(dispatch, "weight_packing", few_rows)
    made.save(tmp_path / "a")
    (decision,) = (each for each in made.at(rows=8).origin.decisions if each.verdict == "weights stay int8")
    assert decision.reason == "another size of the network has them so; at this one: few rows"
    assert verify_sizes(dsa_sched.load_sizes(tmp_path / "a")).passed


def test_python_verifies_sizes(tmp_path: Path) -> None:
    onnx.save(perceptron(), tmp_path / "p.onnx")
    report = dsa_sched.verify_sizes(perceptrons(), model=tmp_path / "p.onnx")
    assert report.passed
    assert repr(report) == "<Verification of rows=8, rows=2: passed>"
    assert report.to_dict()["verdict"] == report.verdict
    assert str(report).splitlines()[-1] == "passed"


def test_the_command_line_keeps_caches_over_steps(tmp_path: Path) -> None:
    decoders().save(tmp_path / "a")
    lengths = np.array([[1], [2], [3]])
    np.savez(tmp_path / "x.npz", ids=np.array([[[1]], [[2]], [[3]]]), length=lengths)
    ends = ["--input", str(tmp_path / "x.npz"), "--output", str(tmp_path / "y.npz")]
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "a"), *ends, "--steps", "3"])
    assert done.exit_code == 0, done.output
    session = decoders().session()
    for step in range(3):
        session.run({"ids": np.array([[step + 1]]), "length": lengths[step]})
    with np.load(tmp_path / "y.npz") as found:
        assert found["token"].shape == (3, 1, 1)
        assert np.array_equal(found["present.0.key"], session.state["past.0.key"])


def test_sizes_are_built_once(tmp_path: Path) -> None:
    onnx.save(perceptron(), tmp_path / "p.onnx")
    kept = Cache(tmp_path / "cache")
    options, said = CompileOptions(O0()), list[str]()
    made = compile_sizes(tmp_path / "p.onnx", "stcp920", options, {"rows": (1, 2)}, cache=kept)
    again = compile_sizes(tmp_path / "p.onnx", "stcp920", options, {"rows": (2, 1)}, False, said.append, kept)
    assert again == made
    assert said == ["found in the build cache"]
    compile_sizes(tmp_path / "p.onnx", "stcp920", options, {"rows": (1, 2)}, True, said.append, kept)
    assert "keeping the build" in said


def test_what_sizes_do_not_have_is_refused() -> None:
    with pytest.raises(ModelError, match="clusters: needs 1 with sizes, whose programs run on one cluster; has 2"):
        dsa_sched.compile(perceptron(), "stcp920", sizes={"batch": (4,)}, clusters=2)
    with pytest.raises(TargetError, match="sizes: needs a target that lowers plans to instructions"):
        dsa_sched.compile(perceptron(), "a100", sizes={"rows": (1, 2)})


def test_rows_of_padding_need_room_in_tables_of_places() -> None:
    feed = {name: drawn(*array.shape) for name, array in first_feed(decoder("standard", 1, SMALL)).items()}
    for length in (11, 12):
        feed |= {"ids": np.array([[1, 2, 3]]), "length": np.array([length])}
        if length == 11:
            found, theirs = decoders().run(feed), reference(3, feed)
            assert np.array_equal(found["token"], theirs["token"])
            assert all(np.allclose(found[name], theirs[name], atol=2e-2) for name in theirs)
    with pytest.raises(
        ModelError, match=r"length: needs room in tables and caches for 5 rows of padding along sequence; has 1"
    ):
        decoders().run(feed)
