"""`dsa-sched explain`: it answers why a plan is slow, why something was not fused, whether it fits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from codegen.neuralscale.target import TARGET
from dsa_sched.analysis.explanation import Explained, explain_plan
from dsa_sched.analysis.group_detail import detail_of
from dsa_sched.analysis.what_binds import what_binds
from dsa_sched.cli import cli
from dsa_sched.report.decisions import decision_lines
from dsa_sched.report.explain import explanation_json, print_detail, print_explanation
from hw_models.errors import ModelError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Group, Split
from partitioner.ir.steps import Binding, MoveStep, RunStep, Step
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import FOR_SCHEDULING, PLAIN
from partitioner.planners.levels import LEVELS, O3
from partitioner.planners.registry import make_plan
from partitioner.tiling.core_regions import instance_box
from tests.chip_runs import small_chip
from tests.repo.test_docs import documented_keys
from tests.small_graphs import GraphBuilder
from tests.small_models import classifier, save


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["explain", *map(str, arguments)], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier(), tmp_path_factory.mktemp("model") / "classifier.onnx")


def steps_of(graph: Graph, group: Group, order: tuple[int, ...], scope: str, pieces: tuple[int, ...]) -> list[RunStep]:
    binding = Binding(pieces, tuple(range(4)))
    return [RunStep(group.name, i, instance_box(graph, group, group.output, i), scope, binding) for i in order]


@pytest.fixture(scope="module")
def explained() -> Explained:
    """Two groups: two convolutions in four instances whose outputs wait in the LLB, then one convolution by halves."""
    builder = GraphBuilder("two")
    x = builder.input("x", 4, 8, 8, 16)
    for _ in range(3):
        x = builder.elementwise("relu", builder.conv(x, 16))
    graph, constants = builder.build(x)
    chip = small_chip(4)
    base = make_plan(PlanContext(graph, constants, chip, TARGET))
    first, second, third = (layer for group in base.groups for layer in group.layers)
    head = Group("head", (first, second), Split(((0, (0, 1, 2, 3, 4)),)))
    tail = Group("tail", (third,), Split(((0, (0, 2, 4)),)))
    steps = [
        *steps_of(graph, head, (3, 2), "LLB", (1, 4, 1, 1)),
        *steps_of(graph, tail, (1,), "DDR", (2, 2, 1, 1)),
        *steps_of(graph, head, (1, 0), "LLB", (1, 4, 1, 1)),
        *steps_of(graph, tail, (0,), "DDR", (2, 2, 1, 1)),
    ]
    decisions = (
        Decision("head", "4 instances", "the fewest that find room"),
        Decision(f"{first.name}..{second.name} + {third.name}", "not merged", "straight, factor 8 merged, 4 apart"),
    )
    plan = replace(base, level="O3", groups=(head, tail), steps=tuple(steps), decisions=decisions)
    return explain_plan(plan, PlanContext(graph, {}, chip, TARGET))


def test_facts_of_groups(explained: Explained) -> None:
    found = explained.explanation
    head, tail = found.groups
    assert (head.letter, head.instances, dict(head.scopes)) == ("a", 4, {"LLB": 4})
    assert (tail.letter, tail.instances, dict(tail.scopes)) == ("b", 2, {"DDR": 2})
    assert dict(found.tensors) == {"L1": 4, "LLB": 4, "DDR": 2}
    assert (found.kernels, found.instances) == (6, 6)
    # Each core computes two of eight rows of the second layer, so three (at a border) or four of the first.
    assert head.recompute_share == pytest.approx((3 + 4 + 4 + 3 - 8) / 8 / 2)
    assert tail.recompute_share == 0
    # What a core keeps of the first layer: four rows of 8 pixels and 16 channels, of two bytes.
    assert head.local.values_bytes >= 4 * 8 * 16 * 2
    assert found.peak_bytes["LLB"] == 2 * 8 * 8 * 16 * 2
    assert set(head.moved_bytes) >= {"DDR->LLB", "LLB->L1", "L1->LLB"}
    assert "LLB->DDR" not in head.moved_bytes


def test_the_order_is_one_line_of_letters_and_numbers(explained: Explained, capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(explained.explanation, explained.chip)
    lines = capsys.readouterr().out.splitlines()
    assert "order: a3 a2 b1 a1 a0 b0" in lines
    assert "  head: 4 instances: the fewest that find room" in lines
    assert any(re.match(r"a +head +\S+\.\.\S+ \(2\) +4 of axis 0 +1x4x1x1 +LLB 4 ", line) for line in lines)
    assert lines[0] == "two on small, O3, batch 4 per cluster"


MERGED = "straight, rule (i): factor {0} >= 1, uncut, {0}.5 KiB at the worst step"


def test_equal_decisions_are_one_line_and_many_of_a_kind_one_paragraph() -> None:
    decisions = (
        *(Decision(f"n{n}", "fused", f"reads r{n} of n{n - 1}, which nothing else reads") for n in range(2, 7)),
        *(Decision(f"/g{n}/conv + n{n}", "merged", MERGED.format(n)) for n in range(12)),
        Decision("n1", "own kernel", "reads two"),
        Decision("/g0/conv + n0", "merged", MERGED.format(0)),
        Decision("n1 + n2", "not merged", "straight, factor 2 merged, 3 apart"),
        Decision("n2 + n3", "not merged", "straight, factor 4 merged, 5 apart"),
        Decision("n2 + n3", "not merged", "diamond"),
    )
    first = ["  n1 + n2: not merged: straight, factor 2 merged, 3 apart", "  n2 + n3"]
    first += ["    not merged: straight, factor 4 merged, 5 apart", "    not merged: diamond"]
    assert list(decision_lines(decisions)) == [
        *first,
        "  n1: own kernel: reads two",
        f"  /g0/conv + n0: merged: {MERGED.format(0)} (x 2)",
        "    and 11 like this: " + ", ".join(f"/g{n}/conv + n{n}" for n in range(1, 9)) + " and 3 more",
        "  n2: fused: reads r2 of n1, which nothing else reads",
        "    and 4 like this: n3, n4, n5, n6",
    ]
    full = list(decision_lines(decisions, full=True))
    assert full == [
        f"  /g0/conv + n0: merged: {MERGED.format(0)} (x 2)",
        *(f"  /g{n}/conv + n{n}: merged: {MERGED.format(n)}" for n in range(1, 12)),
        *first,
        *(f"  n{n}: fused: reads r{n} of n{n - 1}, which nothing else reads" for n in range(2, 7)),
        "  n1: own kernel: reads two",
    ]


def test_decisions_that_say_different_things_are_not_folded() -> None:
    reasons = ("uncut", "2 pieces of axis 1", "no factor makes it fit", "halo of r1", "moving 2 KiB", "value r3 waits")
    decisions = tuple(Decision(f"n{n}", "merged", reason) for n, reason in enumerate(reasons))
    assert [line.partition(": merged: ")[2] for line in decision_lines(decisions)] == list(reasons)


@pytest.mark.nightly
def test_resnet50_is_explained_on_three_screens() -> None:
    short, full = (
        CliRunner().invoke(cli, ["explain", "resnet50", "--chip", "stcp920", "--level", "O3", *words])
        for words in ((), ("--full",))
    )
    assert (short.exit_code, full.exit_code) == (0, 0)
    lines = short.stdout.splitlines()
    assert len(lines) <= 150 < len(full.stdout.splitlines())
    assert "decisions (--full shows all of each kind)" in lines
    assert any(line.startswith("    and ") and " like this: " in line for line in lines)
    assert not any(" like this: " in line for line in full.stdout.splitlines())


def test_a_group_in_detail(explained: Explained, capsys: pytest.CaptureFixture[str]) -> None:
    detail = detail_of(explained, "head")
    first, last = detail.layers
    assert first.lies_in == "L1"
    assert last.lies_in == "LLB"
    assert [core for core, _ in first.boxes] == [0, 1, 2, 3]
    assert first.boxes[1][1] == ((3, 4), (1, 5), (0, 8), (0, 16))
    assert last.boxes[1][1] == ((3, 4), (2, 4), (0, 8), (0, 16))
    assert first.again == pytest.approx(6 / 8)
    assert [position for position, _ in detail.steps] == [0, 1, 3, 4]
    # Nothing is pinned, so that each of the four instances loads all weights.
    assert {constant.loads for constant in detail.constants} == {4}
    (neighbour,) = detail.neighbours
    assert (neighbour.name, neighbour.side) == ("tail", "after")
    assert [reason.verdict for reason in neighbour.reasons] == ["not merged"]
    print_detail(explained.explanation, detail)
    text = capsys.readouterr().out
    assert "    not merged: straight, factor 8 merged, 4 apart" in text
    assert "    core 1: [3:4, 1:5, 0:8, 0:16]" in text
    assert "  cut along axis 0 at 0, 1, 2, 3, 4" in text


def test_moves_are_counted_and_listed(explained: Explained, capsys: pytest.CaptureFixture[str]) -> None:
    """The same plan with outputs of the first group in L1, gathered there for the second."""
    steps: list[Step] = []
    for step in explained.plan.steps:
        if step.group == "tail" and isinstance(step, RunStep):
            box = (step.box[0], (0, 8), (0, 8), (0, 16))
            value = explained.plan.groups[0].output
            steps.append(MoveStep("concat", "tail", step.instance, box, "L1", step.binding, value))
        steps.append(replace(step, scope="L1") if step.group == "head" else step)
    plan = replace(explained.plan, steps=tuple(steps), decisions=())
    moved = explain_plan(plan, PlanContext(explained.graph, {}, explained.chip, TARGET))
    print_explanation(moved.explanation, moved.chip)
    print_detail(moved.explanation, detail_of(moved, "tail"))
    text = capsys.readouterr().out
    assert "6 instances: 6 kernels and 2 moves into cores' memories" in text
    assert re.search(r"\n  2: concat \S+ \[2:4, 0:8, 0:8, 0:16\] into L1 for instance 1\n", text)
    assert "    no decision names the two together" in text
    assert moved.explanation.peak_bytes["L1"] > explained.explanation.peak_bytes["L1"]
    assert dict(moved.explanation.tensors) == {"L1": 10, "DDR": 2}


def test_a_group_is_found_by_what_it_holds(explained: Explained) -> None:
    names = {"head", "a", explained.plan.groups[0].layers[1].name, explained.plan.groups[0].layers[1].ops[-1]}
    assert {detail_of(explained, name).facts.name for name in names} == {"head"}
    with pytest.raises(ModelError, match=r"--group heat: needs a group, a layer .* did you mean head"):
        detail_of(explained, "heat")
    with pytest.raises(ModelError, match="for example head, tail"):
        detail_of(explained, "0123456789")


def keys(value: Any) -> set[str]:
    """Keys of an object, and of those inside that describe things (not those whose keys are names of memories)."""
    found = set(value)
    for group in value["groups"]:
        found |= set(group) | set(group["local"]) | set(group["floors"][0])
    return found | set(value["order"][0]) | set(value["decisions"][0])


def test_what_binds_is_shown_with_the_work_of_the_rest(
    explained: Explained, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = explained.explanation.groups
    bounds = what_binds(groups)
    assert sorted(name for bound in bounds for name in bound.groups) == sorted(group.name for group in groups)
    assert sum(bound.cycles for bound in bounds) == pytest.approx(explained.explanation.phase_cycles)
    for bound in bounds:
        members = [group for group in groups if group.name in bound.groups]
        assert all(group.binding.name == bound.name for group in members)
        for work in bound.others:
            assert work.name != bound.name
            of = (floor.cycles for group in members for floor in group.floors if floor.name == work.name)
            assert work.cycles == pytest.approx(sum(of))
            assert 0 < work.cycles <= bound.cycles
    print_explanation(explained.explanation, explained.chip)
    lines = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("binds "))
    assert [line.split()[0] for line in lines[begin + 1 : begin + 1 + len(bounds)]] == [bound.name for bound in bounds]


def test_json_says_the_same_and_is_documented(explained: Explained) -> None:
    data = json.loads(explanation_json(explained.explanation, explained.chip, detail_of(explained, "tail")))
    assert [group["name"] for group in data["groups"]] == ["head", "tail"]
    assert [f"{step['group'][0]}{step['instance']}" for step in data["order"]] == ["h3", "h2", "t1", "h1", "h0", "t0"]
    assert data["main_bytes"] == sum(size for way, size in data["moved_bytes"].items() if "DDR" in way)
    assert data["group"]["facts"]["name"] == "tail"
    step = {"kind", "group", "instance", "box", "scope", "binding", "tensor", "exports"}
    assert all(entry.keys() == step for entry in (*data["order"], *(entry for _, entry in data["group"]["steps"])))
    assert keys(data) - documented_keys("explain") == set()


def test_closed_forms_are_loaded_where_a_group_is_asked_for() -> None:
    """So that `explain` without `--group` does not wait for sympy."""
    code = "import sys, dsa_sched.report.explain, dsa_sched.analysis.explanation; assert 'sympy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.commit
def test_every_level_is_explained(level: str, model: Path, tmp_path: Path) -> None:
    done = invoke(model, "--chip", "stcp920", "--level", level, "--batch", 2, "--json", tmp_path / "e.json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"classifier on stcp920, {level}, batch 2 per cluster\n")
    assert "\norder: " in done.stdout
    data = json.loads((tmp_path / "e.json").read_text(encoding="utf-8"))
    assert (data["level"], data["batch_per_cluster"]) == (level, 2)
    assert sum(group["instances"] for group in data["groups"]) == data["instances"]


def test_a_scheduled_build_is_explained_by_its_own_layout(explained: Explained) -> None:
    ctx = PlanContext(explained.graph, {}, explained.chip, TARGET)
    ahead = explain_plan(explained.plan, ctx, FOR_SCHEDULING)
    assert explained.layout.options == PLAIN
    assert ahead.layout == lay_out(ahead.plan, ctx, FOR_SCHEDULING)
    assert ahead.explanation.peak_bytes == dict(ahead.layout.peaks)
    assert ahead.layout.steps != explained.layout.steps


def test_explain_takes_the_schedule(model: Path) -> None:
    done = invoke(model, "--chip", "stcp920", "--level", "O3", "--schedule")
    assert done.exit_code == 0, done.stderr
    assert "LLB: values that stay take" in done.stdout


def test_an_operator_says_why_its_neighbours_are_not_with_it(model: Path) -> None:
    done = invoke(model, "--chip", "stcp920", "--level", "O0", "--group", "relu1")
    assert done.exit_code == 0, done.stderr
    assert "group conv1 (a in the order of instances): 1 layer, 1 instance" in done.stdout
    assert "  relu1: fused: reads c1 of conv1, which nothing else reads" in done.stdout
    assert "    at O0 every layer is a group of its own" in done.stdout


def test_an_unknown_group_is_an_error_with_suggestions(model: Path) -> None:
    done = invoke(model, "--chip", "stcp920", "--group", "conv9")
    assert done.exit_code == 1
    assert "did you mean conv" in done.stderr


def test_a_chip_without_a_code_generator_is_explained(model: Path, tmp_path: Path) -> None:
    chip = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(chip.replace("isa: neuralscale-v1", "isa: not-there-yet"), encoding="utf-8")
    done = invoke(model, "--chip", tmp_path / "mine.yaml")
    assert done.exit_code == 0, done.stderr
    assert "floor of this plan: " in done.stdout


def test_what_does_not_fit_is_said_with_its_numbers(model: Path, tmp_path: Path) -> None:
    chip = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    small = chip.replace("size_bytes: 8_388_608", "size_bytes: 64")
    (tmp_path / "small.yaml").write_text(small, encoding="utf-8")
    done = invoke(model, "--chip", tmp_path / "small.yaml")
    assert done.exit_code == 1
    assert re.search(r"needs .* of LLB; has 64 bytes \(.* too few\)", done.stderr)


def test_no_report_is_lost_for_want_of_a_folder(model: Path, tmp_path: Path) -> None:
    done = invoke(model, "--chip", "stcp920", "--json", tmp_path / "nowhere" / "e.json")
    assert done.exit_code == 1
    assert "needs a folder that exists" in done.stderr


def test_a_spilled_value_says_where_its_readers_find_it() -> None:
    builder = GraphBuilder("skip")
    first = builder.elementwise("relu", builder.conv(builder.input("x", 4, 8, 8, 16), 32))
    y = first
    for _ in range(3):
        y = builder.elementwise("relu", builder.conv(y, 32))
    graph, constants = builder.build(builder.conv(builder.concat(3, first, y), 16))
    chip = small_chip(data_bytes=8 << 10)
    ctx = PlanContext(graph, constants, chip, TARGET)
    explained = explain_plan(make_plan(ctx, O3("longest")), ctx)
    (group,) = explained.explanation.groups
    console = Console(file=StringIO(), width=200)
    print_detail(explained.explanation, detail_of(explained, group.name), console)
    assert isinstance(console.file, StringIO)
    (line,) = (line for line in console.file.getvalue().splitlines() if "left in" in line)
    pattern = rf"  {first} is computed once, in pieces \S+, and left in LLB, where its readers find it"
    assert re.fullmatch(pattern, line.rstrip())
