"""A share of the batch as micro-batches: one program runs again and again and gives the bits of one large run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

import dsa_sched
from dsa_sched.analysis.artifact_timing import time_path
from dsa_sched.artifact.format import Artifact
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_clusters, plan_model
from dsa_sched.stages.compile_options import CompileOptions, PerPass
from hw_models.errors import DoesNotFit, ModelError, TargetError
from partitioner.planners.levels import O0, O1
from tests.chip_runs import stcp920
from tests.small_models import classifier, save

Array = npt.NDArray[np.generic]
Json = dict[str, Any]


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier(batch="n"), tmp_path_factory.mktemp("model") / "classifier.onnx")


@pytest.fixture(scope="module")
def whole(model: Path) -> Artifact:
    """Seven images in one run of one cluster."""
    return dsa_sched.compile(model, "stcp920", batch=7, level="O0")


@pytest.fixture(scope="module")
def expected(whole: Artifact) -> Array:
    rows = whole.run({"x": images(7)})["y"]
    assert len(np.unique(rows, axis=0)) == 7
    return rows


@pytest.fixture(scope="module")
def uneven(model: Path) -> Artifact:
    """Seven images on two clusters, three a pass: four in two passes, three in one."""
    return dsa_sched.compile(model, "stcp920", batch=7, clusters=2, per_pass=3, level="O0")


def images(rows: int) -> Array:
    return np.random.default_rng(1).normal(size=(rows, 3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize(
    ("clusters", "per_pass", "rows", "passes"),
    [(1, 1, [7], [7]), (1, 3, [7], [3]), (1, 7, [7], [1]), (2, 2, [4, 3], [2, 2]), (2, "auto", [4, 3], None)],
)
@pytest.mark.commit
def test_passes_give_the_bits_of_one_run(
    model: Path, expected: Array, clusters: int, per_pass: PerPass, rows: list[int], passes: list[int] | None
) -> None:
    artifact = dsa_sched.compile(model, "stcp920", batch=7, clusters=clusters, per_pass=per_pass, level="O0")
    programs = artifact.manifest.programs
    assert [program.batch for program in programs] == rows
    assert passes is None or [program.passes for program in programs] == passes
    assert np.array_equal(artifact.run({"x": images(7)})["y"], expected)


@pytest.mark.parametrize("level", ["O1", "O3"])
def test_passes_of_other_levels_give_the_bits_of_o0(model: Path, expected: Array, level: str) -> None:
    artifact = dsa_sched.compile(model, "stcp920", level=level, batch=7, per_pass=2)
    assert np.array_equal(artifact.run({"x": images(7)})["y"], expected)


def test_uneven_passes_survive_the_folder(uneven: Artifact, expected: Array, tmp_path: Path) -> None:
    uneven.save(tmp_path / "out")
    loaded = dsa_sched.load(tmp_path / "out")
    programs = loaded.manifest.programs
    assert [(p.batch_start, p.batch, p.passes, p.batch_per_pass) for p in programs] == [(0, 4, 2, 3), (4, 3, 1, 3)]
    assert loaded.manifest.batch == 7
    said: list[str] = []
    assert np.array_equal(loaded.run({"x": images(7)}, progress=said.append)["y"], expected)
    assert said == [
        "running pass 1 of 3 on cluster 0",
        "running pass 2 of 3 on cluster 0",
        "running pass 3 of 3 on cluster 1",
    ]


def test_one_program_serves_all_passes(uneven: Artifact, model: Path) -> None:
    """The code is that of a batch of three, and is not longer for more passes."""
    alone = dsa_sched.compile(model, "stcp920", batch=3, level="O0")
    assert uneven.clusters[0].files["program.elf"] == alone.clusters[0].files["program.elf"]


def test_without_per_pass_the_share_is_one_run(model: Path) -> None:
    programs = dsa_sched.compile(model, "stcp920", batch=7, clusters=2, level="O0").manifest.programs
    assert [(program.batch_per_pass, program.passes) for program in programs] == [(4, 1), (3, 1)]


def test_the_choice_is_reproducible_and_says_its_numbers(model: Path) -> None:
    options = CompileOptions(O1(), 8)
    plans = [plan_model(model, stcp920(), replace(options, clusters=2, per_pass="auto")).plan for _ in range(2)]
    assert str(plans[0]) == str(plans[1])
    about = [decision for decision in plans[0].decisions if decision.subject == "batch"]
    chosen = plans[0].batch_per_cluster
    assert about[0].verdict.startswith(f"{chosen} per pass")
    for candidate in (1, 2, 4):
        assert f" at {candidate}" in about[0].reason
        assert candidate == chosen or any(d.verdict == f"not {candidate} per pass" for d in about)
    assert "O0 at batch 1" in about[1].reason
    parts = compile_clusters(model, "stcp920", replace(options, clusters=2, per_pass="auto"))
    assert [str(part.plan) for part in parts] == [str(plans[0])] * 2


def test_what_has_a_plan_but_no_program_gives_way(model: Path) -> None:
    """Plans do not ask whether the main memory holds all tensors, programs must: here only four images find room."""
    chip = stcp920()
    best = compile_clusters(model, chip, CompileOptions(O0(), batch=8, per_pass="auto"))[0]
    assert best.plan.batch_per_cluster == 8
    least = dict.fromkeys(("DDR",), max(p.offset_bytes + p.size_bytes for p in best.program.placements) - 1)
    memories = tuple(m.model_copy(update={"size_bytes": least.get(m.name, m.size_bytes)}) for m in chip.memories)
    small = chip.model_copy(update={"memories": memories})
    with pytest.raises(DoesNotFit, match="DDR"):
        compile_clusters(model, small, CompileOptions(O0(), batch=8))
    (part,) = compile_clusters(model, small, CompileOptions(O0(), batch=8, per_pass="auto"))
    assert (part.plan.batch_per_cluster, part.passes, part.rows) == (4, 2, 8)
    refused = [decision for decision in part.plan.decisions if decision.verdict == "not 8 per pass"]
    assert len(refused) == 1
    assert "of DDR" in refused[0].reason


@pytest.mark.parametrize(
    ("batch", "clusters", "per_pass", "said"),
    [
        (None, 1, 2, "per_pass: needs a batch to divide into micro-batches; has none"),
        (None, 1, "auto", "per_pass: needs a batch to divide into micro-batches; has none"),
        (8, 2, 5, "per_pass: needs 1 to 4, the share of a cluster, or auto; has 5"),
        (8, 5, "auto", "clusters: needs 1 to 4, as stcp920 has; has 5"),
    ],
)
def test_passes_that_cannot_be_are_refused(
    model: Path, batch: int | None, clusters: int, per_pass: PerPass, said: str
) -> None:
    with pytest.raises(ModelError) as caught:
        dsa_sched.compile(model, "stcp920", batch=batch, clusters=clusters, per_pass=per_pass, level="O0")
    assert str(caught.value) == said


def network(path: Path, shape: tuple[int | str, ...], *nodes: onnx.NodeProto) -> Path:
    """x -> nodes -> y of the same shape."""
    ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y"))
    graph = helper.make_graph(list(nodes), "odd", [next(ends)], [next(ends)])
    return save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize(("clusters", "per_pass"), [(1, 1), (1, 2), (1, "auto"), (2, None), (4, None), (4, "auto")])
def test_a_model_whose_items_meet_is_not_divided(tmp_path: Path, clusters: int, per_pass: PerPass) -> None:
    """A softmax over the batch would give other values, silently; even passes of one item are seen to be wrong."""
    path = network(tmp_path / "m.onnx", ("n", 8), helper.make_node("Softmax", ["x"], ["y"], axis=0))
    with pytest.raises(ModelError, match=r"has item 0 of the outputs reads items 0 to \d of x; compile the batch of 4"):
        dsa_sched.compile(path, "stcp920", batch=4, clusters=clusters, per_pass=per_pass, level="O0")


def test_a_model_without_a_batch_axis_is_refused(tmp_path: Path) -> None:
    path = network(tmp_path / "m.onnx", (), helper.make_node("Relu", ["x"], ["y"]))
    with pytest.raises(ModelError, match="needs a leading dimension of every input; has x without one"):
        dsa_sched.compile(path, "stcp920", batch=4, per_pass=2, level="O0")


def test_the_commands_take_passes_from_end_to_end(model: Path, tmp_path: Path, expected: Array) -> None:
    common = (model, "--chip", "stcp920", "--batch", 7, "--clusters", 2, "--per-pass", 3)
    done = invoke("compile", *common, "-o", tmp_path / "out")
    assert "4 items in 2 passes of batch 3" in done.stdout
    np.savez(tmp_path / "x.npz", x=images(7))
    ran = invoke("run", tmp_path / "out", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert ran.exit_code == 0, ran.output
    assert "pass 1 of 3" in ran.stderr
    assert np.array_equal(np.load(tmp_path / "y.npz")["y"], expected)
    assert "batch 3 per cluster" in invoke("explain", *common).stdout
    timed = time_path(tmp_path / "out", "stcp920")
    assert timed.cycles == 2 * timed.programs[0].timeline.cycles
    assert timed.items_per_second == pytest.approx(7 / timed.seconds)
    assert "each of 2 passes" in invoke("time", tmp_path / "out", "--chip", "stcp920").stdout


def test_explain_says_why_this_batch(model: Path) -> None:
    said = invoke("explain", model, "--chip", "stcp920", "--batch", 8, "--per-pass", "auto", "--level", "O1")
    assert "8 items on 1 cluster, 8 on the fullest: cycles per item" in said.stdout
    assert "trying batch 1 per pass (1 of 4)" in said.stderr


@pytest.mark.parametrize("value", ["0", "-1", "all", "1e3", ""])
def test_a_per_pass_that_is_no_number_is_a_usage_error(model: Path, value: str) -> None:
    result = invoke("compile", model, "--chip", "stcp920", "--batch", 4, f"--per-pass={value}", "--print", "plan")
    assert result.exit_code == 2
    assert "is neither auto nor a number that is at least 1" in result.stderr


def test_arrays_for_many_clusters_are_read(tmp_path: Path) -> None:
    """What the file may hold is counted over all programs and passes, not for the first run alone."""
    rows, side = 12, 64
    artifact = dsa_sched.compile(
        network(tmp_path / "m.onnx", ("n", 4, side, side), helper.make_node("Relu", ["x"], ["y"])),
        "stcp920", batch=rows, clusters=4, per_pass=1, level="O0",
    )  # fmt: skip
    artifact.save(tmp_path / "out")
    x = np.random.default_rng(2).normal(size=(rows, 4, side, side))
    np.savez(tmp_path / "x.npz", x=x)
    ran = invoke("run", tmp_path / "out", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert ran.exit_code == 0, ran.output
    assert np.array_equal(np.load(tmp_path / "y.npz")["y"], np.maximum(x.astype(np.float16), 0).astype(np.float32))


def change_program(number: int, field: str, value: object, manifest: Json) -> None:
    manifest["programs"][number][field] = value


def fewer_rows(manifest: Json) -> None:
    manifest["batch"] = 6


def rows_of_the_output(manifest: Json) -> None:
    output = manifest["programs"][1]["outputs"][0]
    output["shape"][0], output["bytes"] = 6, 2 * output["bytes"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (partial(change_program, 0, "passes", 0), "programs.0.passes"),
        (partial(change_program, 0, "passes", 1 << 50), "programs.0.passes"),
        (partial(change_program, 0, "passes", "2"), "programs.0.passes"),
        (partial(change_program, 0, "passes", 3), "needs 2 passes of 3 for 4 rows; has 3"),
        (partial(change_program, 0, "passes", 1), "needs 2 passes of 3 for 4 rows; has 1"),
        (partial(change_program, 1, "batch_start", 3), "needs rows of program 1 from 4 on; has 3 from 3 on"),
        (partial(change_program, 1, "batch", 0), "needs rows of program 1 from 4 on; has 0 from 4 on"),
        (partial(change_program, 1, "batch", 2), "needs programs for 7 rows; has 6"),
        (fewer_rows, "needs programs for 6 rows; has 7"),
        (rows_of_the_output, "needs 3 rows of y per pass; has [6, 10]"),
    ],
)
def test_hostile_divisions_are_refused(
    uneven: Artifact, tmp_path: Path, change: Callable[[Json], None], said: str
) -> None:
    uneven.save(tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(TargetError) as caught:
        dsa_sched.load(tmp_path / "out")
    assert said in str(caught.value)


@pytest.mark.parametrize("number", [1, 2])
def test_folders_of_older_formats_still_run(whole: Artifact, expected: Array, tmp_path: Path, number: int) -> None:
    whole.save(tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["format"] = f"dsa-sched-artifact/{number}"
    for program in manifest["programs"]:
        program["elf"] = program.pop("execution")["file"]
        if number == 1:
            del program["passes"]
    path.write_text(json.dumps(manifest), encoding="utf-8")
    loaded = dsa_sched.load(tmp_path / "out")
    assert np.array_equal(loaded.run({"x": images(7)})["y"], expected)
    loaded.save(tmp_path / "renewed")
    assert dsa_sched.load(tmp_path / "renewed").manifest == whole.manifest


@pytest.mark.parametrize("rows", [6, 8])
def test_a_wrong_number_of_rows_is_refused(uneven: Artifact, rows: int) -> None:
    with pytest.raises(ModelError, match="input x: needs 7 rows"):
        uneven.run({"x": images(rows)})
