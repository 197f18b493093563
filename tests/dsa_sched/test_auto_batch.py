"""Level auto for a batch: what is one pass is chosen by the cycle model, and values stay those of one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dsa_sched
from dsa_sched.analysis.artifact_timing import time_path
from dsa_sched.pipeline.driver import compile_clusters, plan_model
from dsa_sched.search.passes import sizes_to_try
from dsa_sched.stages.compilation import CompileOptions, Lowered, gather_artifact
from hw_models.errors import ModelError, PlanError
from partitioner.planners.levels import O0, O3, Auto
from tests.chip_runs import small_chip, stcp920
from tests.small_models import classifier, save
from tests.small_networks import save_small_network

KIB = 1024


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier(batch="n"), tmp_path_factory.mktemp("model") / "classifier.onnx")


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_network("squeezenet", 32, tmp_path_factory.mktemp("model"), "r5")


@pytest.mark.parametrize(
    ("share", "effort", "sizes"),
    [
        (1, "high", ()),
        (4, "normal", (2, 8)),
        (12, "normal", (8, 16)),
        (24, "normal", (16, 8, 32)),
        (32, "normal", (16, 8, 64)),
        (32, "fast", ()),
        (12, "high", (8, 16, 4, 3, 2, 1)),
    ],
)
def test_sizes_to_try(share: int, effort: str, sizes: tuple[int, ...]) -> None:
    assert sizes_to_try(share, 8, CompileOptions(effort=effort)) == sizes


@pytest.mark.nightly
@pytest.mark.parametrize("batch", [2, 3, 6])
def test_no_size_of_a_pass_that_is_tried_is_faster(squeezenet: Path, batch: int, tmp_path: Path) -> None:
    """On a chip with memory for few images: a larger pass leaves the cores."""
    chip = small_chip(2, data_bytes=24 * KIB, llb_bytes=64 * KIB)
    (part,) = compile_clusters(squeezenet, chip, CompileOptions(Auto(), batch, roll=False))
    assert isinstance(part.made, Lowered)
    assert part.made.cycles is not None
    assert part.rows == batch
    found = part.passes * part.made.cycles
    gather_artifact((part,)).save(tmp_path / "out")
    assert time_path(tmp_path / "out", chip).cycles == found
    planner = part.options.planner
    for size in (batch, *sizes_to_try(batch, 2, CompileOptions())):
        (other,) = compile_clusters(squeezenet, chip, CompileOptions(Auto(), size, per_pass=size))
        assert isinstance(other.made, Lowered)
        assert other.made.cycles is not None
        if other.options.planner in (planner, O3()):
            assert found <= -(-batch // size) * other.made.cycles
    about = [decision for decision in part.plan.decisions if decision.subject == "batch"]
    assert about[0].verdict.startswith(f"{part.plan.batch_per_cluster} per pass, ")
    assert about[0].reason == f"{found:,.0f} cycles in all by the cycle model, before loops are made"


@pytest.mark.spread(1)
@pytest.mark.parametrize(("batch", "clusters"), [(5, 1), (7, 2)])
@pytest.mark.commit
def test_values_are_those_of_one_run_at_o0(model: Path, batch: int, clusters: int) -> None:
    images = np.random.default_rng(1).normal(size=(batch, 3, 12, 12)).astype(np.float32)
    expected = dsa_sched.compile(model, "stcp920", level="O0", batch=batch).run({"x": images})["y"]
    assert len(np.unique(expected, axis=0)) == batch
    found = dsa_sched.compile(model, "stcp920", level="auto", batch=batch, clusters=clusters)
    assert np.array_equal(found.run({"x": images})["y"], expected)
    assert found.manifest.batch == batch


def test_a_pass_may_be_filled_up(model: Path) -> None:
    """The image of a batch of one, computed as the first of two."""
    images = np.random.default_rng(1).normal(size=(1, 3, 12, 12)).astype(np.float32)
    whole = dsa_sched.compile(model, "stcp920", level="O0", batch=1).run({"x": images})["y"]
    (part,) = compile_clusters(model, "stcp920", CompileOptions(O0(), 2))
    filled = gather_artifact((part.with_decisions(part.plan, part.model, 1),))
    assert (filled.manifest.batch, filled.manifest.programs[0].passes) == (1, 1)
    assert np.array_equal(filled.run({"x": images})["y"], whole)


def test_a_number_of_items_a_pass_is_kept_to(model: Path) -> None:
    artifact = dsa_sched.compile(model, "stcp920", level="auto", batch=6, per_pass=2)
    assert artifact.manifest.programs[0].passes == 3


@pytest.mark.commit
def test_explain_and_compile_agree(model: Path) -> None:
    options = CompileOptions(Auto(), 6)
    (part,) = compile_clusters(model, "stcp920", options)
    assert plan_model(model, stcp920(), options).plan == part.plan


def test_a_batch_whose_items_meet_stays_whole(tmp_path: Path) -> None:
    ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", 8)) for name in ("x", "y"))
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    graph = helper.make_graph([node], "odd", [next(ends)], [next(ends)])
    odd: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (part,) = compile_clusters(save(odd, tmp_path / "odd.onnx"), "stcp920", CompileOptions(Auto(), 4))
    assert (part.plan.batch_per_cluster, part.passes) == (4, 1)
    with pytest.raises(ModelError, match="reads items 0 to"):
        compile_clusters(tmp_path / "odd.onnx", "stcp920", CompileOptions(Auto(), 4, clusters=2))


@pytest.mark.spread(1)
@pytest.mark.parametrize("until", ["level auto, 4 per pass", "level auto, 16 per pass"])
def test_ctrl_c_keeps_the_best_pass(squeezenet: Path, until: str) -> None:
    def say(step: str) -> None:
        if step == until:
            raise KeyboardInterrupt

    whole = compile_clusters(squeezenet, "stcp920", CompileOptions(Auto(), 8, effort="fast"), say)[0]
    (part,) = compile_clusters(squeezenet, "stcp920", CompileOptions(Auto(), 8), say)
    assert isinstance(part.made, Lowered)
    assert isinstance(whole.made, Lowered)
    assert part.made.cycles is not None
    assert part.passes * part.made.cycles <= (whole.made.cycles or 0)
    assert any("the search of level auto was interrupted" in warning for warning in part.model.warnings)


@pytest.mark.spread(1)
@pytest.mark.parametrize("effort", ["fast", "normal"])
@pytest.mark.commit
def test_a_share_without_a_program_is_divided(squeezenet: Path, effort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of two images has too many instructions here, and so have those of four and eight."""
    (one,) = compile_clusters(squeezenet, "stcp920", CompileOptions(O0()))
    most = sum(len(stream.instrs) for stream in one.program.streams)
    monkeypatch.setattr("isched.lowering.lower.MOST_INSTRUCTIONS", most)
    options = CompileOptions(Auto(), 8, effort=effort)
    (part,) = compile_clusters(squeezenet, "stcp920", options)
    about = {decision.verdict: decision.reason for decision in part.plan.decisions if decision.subject == "batch"}
    assert f"needs at most {most:,} instructions" in about["not 8 per pass"]
    assert part.passes * part.plan.batch_per_cluster == 8
    assert part.passes > 1
    monkeypatch.setattr("isched.lowering.lower.MOST_INSTRUCTIONS", 10)
    with pytest.raises(PlanError, match="needs at most 10 instructions"):
        compile_clusters(squeezenet, "stcp920", options)


def test_a_target_that_cannot_be_timed_asks_for_a_level(model: Path) -> None:
    chip = stcp920().model_copy(update={"isa": "not-there-yet"})
    with pytest.raises(ModelError) as raised:
        plan_model(model, chip, CompileOptions(Auto(), 4, per_pass="auto"))
    needs = "a target whose programs the cycle model can time, or a level by its name"
    assert str(raised.value) == f"--per-pass auto: needs {needs}; has --level auto"
