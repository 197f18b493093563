"""Level auto: the fastest of what the levels make, by the cycle model, and what it says about the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

import dsa_sched
from codegen.neuralscale.target import TARGET, NeuralScaleTarget
from codegen.target import ClusterFiles
from dsa_sched.analysis.explanation import explain_model
from dsa_sched.artifact.format import Artifact
from dsa_sched.cli import cli
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.driver import compile_clusters, compile_graph, compile_model, plan_model
from dsa_sched.report.progress import ProgressSteps
from dsa_sched.search.candidates import CONFIGS, PLAIN_CONFIGS, Config, Pruning, SearchRequest, costed
from dsa_sched.search.floors import has_region, memory_floor_cycles
from dsa_sched.search.loop import MOST_EXPECTED, fastest_timed
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered
from dsa_sched.stages.targets import with_defaults
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, ModelError, PlanError, TargetError, UserError
from isched.program.program import Program
from isched.timing.cycle_model import time_program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.roofline import binding_floor, network_floors
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import parse_plan
from partitioner.planners.levels import EFFORTS, SEGMENTS, Auto, Streamed, planner_of, planner_or_auto
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip, stcp920
from tests.partition_graphs import Seeded, random_chip, random_graph
from tests.small_graphs import patches_before_large_values
from tests.small_models import classifier, save
from tests.small_networks import save_small_network

KIB = 1024


@cache
def network(name: str, extent: int, batch: int, until: str = "") -> Model:
    with TemporaryDirectory() as folder:
        return load_model(save_small_network(name, extent, Path(folder), until), {}, batch)


def scarce() -> Chip:
    return small_chip(4, data_bytes=96 * KIB, llb_bytes=1024 * KIB)


CASES: dict[str, Callable[[], tuple[Model, Chip]]] = {
    "squeezenet": lambda: (network("squeezenet", 64, 2, "r31"), scarce()),
    "resnet50": lambda: (network("resnet50", 64, 2, "r23"), scarce()),
}
BOTH = ("squeezenet", pytest.param("resnet50", marks=pytest.mark.nightly))
SLOW: dict[str, Callable[[], tuple[Model, Chip]]] = {
    "squeezenet, all layers": lambda: (network("squeezenet", 64, 2), scarce()),
    "resnet50, half of it": lambda: (network("resnet50", 64, 2, "r47"), scarce()),
    "squeezenet, whole": lambda: (network("squeezenet", 224, 2), stcp920()),
    "unet": lambda: (network("unet", 128, 1), stcp920()),
    "densenet121": lambda: (network("densenet121", 64, 2), scarce()),
}


def cycles_of(compilation: Compilation) -> float:
    return time_program(compilation.program, compilation.chip, TARGET).cycles


def compiled(model: Model, chip: Chip, options: CompileOptions) -> Compilation | None:
    """None where the network or the level does not fit."""
    try:
        return compile_graph(model, chip, TARGET, options)
    except UserError:
        return None


@cache
def made(case: str, config: Config | None, schedule: bool | None = None) -> Compilation | None:
    """As one configuration has it, or as level auto finds it."""
    if config is None:
        return searched(case, schedule)[0]
    model, chip = {**CASES, **SLOW}[case]()
    return compiled(model, chip, config.of(CompileOptions(schedule=schedule)))


@cache
def searched(case: str, schedule: bool | None = None) -> tuple[Compilation, tuple[str, ...]]:
    """What level auto finds, and all progress."""
    said: list[str] = []
    model, chip = {**CASES, **SLOW}[case]()
    return compile_graph(model, chip, TARGET, CompileOptions(schedule=schedule), said.append), tuple(said)


def auto(case: str, schedule: bool | None = None) -> Compilation:
    found = made(case, None, schedule)
    assert found is not None
    return found


def check_against(found: Compilation, others: list[float]) -> None:
    """A whole level is the fastest of all; segments are faster than every level, else they are not taken."""
    if found.plan.level == SEGMENTS:
        assert cycles_of(found) < min(others)
    else:
        assert cycles_of(found) == min(others)


def check_fastest(case: str, schedule: bool | None) -> None:
    found, scheduled = auto(case, schedule), schedule is None
    assert found.options.schedule is scheduled
    configs = CONFIGS if scheduled else PLAIN_CONFIGS
    others = [other for config in configs if (other := made(case, config, scheduled))]
    assert len(others) >= len(configs) - 1
    check_against(found, [cycles_of(other) for other in others])
    assert isinstance(found.made, Lowered)
    assert found.made.cycles == cycles_of(found)


@pytest.mark.slow(at_commit=1)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("schedule", [None, False])
def test_auto_is_slower_than_no_level(case: str, schedule: bool | None) -> None:
    """`--schedule` never takes longer than without it: tests/dsa_sched/test_levels.py."""
    check_fastest(case, schedule)


@pytest.mark.parametrize("case", BOTH)
@pytest.mark.commit
def test_what_the_search_says_of_levels_is_what_they_take_alone(case: str) -> None:
    assert auto(case).level_times
    for learned in auto(case).level_times:
        alone = made(case, Config(planner_of(learned.level)), schedule=True)
        assert alone is not None
        assert learned.cycles == cycles_of(alone) if learned.timed else learned.cycles <= cycles_of(alone)


@pytest.mark.nightly
def test_the_search_times_some_levels_and_bounds_others() -> None:
    assert {learned.timed for case in CASES for learned in auto(case).level_times} == {True, False}


@pytest.mark.nightly
def test_no_plan_is_made_for_a_limit_below_what_the_network_needs() -> None:
    model, chip = CASES["squeezenet"]()
    floor = binding_floor(network_floors(model.graph, chip)).cycles
    said: list[str] = []
    request = SearchRequest(chip, TARGET, with_defaults(CompileOptions(), TARGET), said.append)
    assert fastest_timed(request, model, Pruning(floor)) is None
    assert said == []
    assert fastest_timed(request, model, Pruning(floor + 1)) is None
    assert any("planning" in step for step in said)


@pytest.mark.nightly
def test_the_best_is_found_where_no_whole_level_is_below_the_limit() -> None:
    """Another size of a pass is searched with the best so far as limit, which segments or constants ahead alone may be
    below."""
    model, chip = CASES["resnet50"]()
    best = auto("resnet50")
    limit = cycles_of(best) + 1
    assert limit <= min(learned.cycles for learned in best.level_times)
    request = SearchRequest(chip, TARGET, with_defaults(CompileOptions(), TARGET), lambda _step: None)
    found = fastest_timed(request, model, Pruning(limit))
    assert found is not None
    assert found.planned.plan.level == best.plan.level
    assert found.cycles == cycles_of(best)


@pytest.mark.slow
def test_more_plans_of_segments_are_tried_where_programs_are_small() -> None:
    """The first three divisions of this network that are tried are not faster; the search does not end there."""
    tried = [step for step in searched("squeezenet")[1] if "into segments" in step]
    assert len(tried) > 3


SMALL = ["mobilenet_v2-mini", "resnet18_tailor-mini", "vit_b16-mini"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", SMALL)
def test_auto_is_slower_than_no_level_with_or_without_a_schedule(name: str) -> None:
    """Small networks of the zoo on the stcp920."""
    model, chip = load_model(name), stcp920()
    found = compiled(model, chip, CompileOptions())
    assert found is not None
    spent: dict[str, float] = {}
    for config in CONFIGS:
        for schedule in (True, *(() if config.ahead else (False,))):
            options = replace(config.of(CompileOptions()), schedule=schedule)
            if other := compiled(model, chip, options):
                spent[f"{config}, {schedule}"] = cycles_of(other)
    assert len(spent) >= 2 * (len(PLAIN_CONFIGS) - 1)
    assert {name: cycles for name, cycles in spent.items() if cycles < cycles_of(found)} == {}
    check_against(found, list(spent.values()))


@pytest.mark.nightly
@pytest.mark.parametrize("case", SLOW)
@pytest.mark.parametrize("schedule", [None, False])
def test_auto_is_slower_than_no_level_on_larger_networks(case: str, schedule: bool | None) -> None:
    check_fastest(case, schedule)


@pytest.mark.slow(at_commit=1)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.commit
def test_what_auto_makes_is_what_its_level_makes(case: str) -> None:
    """Program, plan and files, but for the decisions of the search: so values are those of the level, which are those
    of O0."""
    found = auto(case)
    model, chip = CASES[case]()
    assert found.options.planner.name == found.plan.level != "auto"
    same = compile_graph(model, chip, TARGET, found.options)
    assert found.program == same.program
    assert found.files == same.files
    about = [decision for decision in found.plan.decisions if decision.subject == "level"]
    assert replace(found.plan, decisions=found.plan.decisions[len(about) :]) == same.plan
    assert about[0].verdict.endswith(", by auto")
    assert parse_plan(str(found.plan)) == found.plan
    again = compile_graph(model, chip, TARGET, CompileOptions(Auto()))
    assert again.artifact.manifest == found.artifact.manifest
    assert found.artifact.manifest.level == found.plan.level


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.commit
def test_random_networks_on_random_chips(seed: int) -> None:
    choose = Seeded(seed + 900)
    graph, constants = random_graph(choose)
    chip = random_chip(choose)
    model = Model(graph, dict(constants), network("squeezenet", 32, 1).source, (), "")
    options = [config.of(CompileOptions(schedule=True)) for config in CONFIGS]
    others = [other for each in options if (other := compiled(model, chip, each))]
    found = compiled(model, chip, CompileOptions(Auto()))
    if not others:
        assert found is None
        return
    assert found is not None
    check_against(found, [cycles_of(other) for other in others])


@pytest.mark.parametrize("case", BOTH)
@pytest.mark.commit
def test_every_way_is_accounted_for_with_its_numbers(case: str) -> None:
    plan = auto(case).plan
    said = {decision.verdict: decision.reason for decision in plan.decisions if decision.subject == "level"}
    spilling = made(case, PLAIN_CONFIGS[-1], True)
    spills = spilling is None or any(group.spills for group in spilling.plan.groups)
    configs = {str(config) for config in CONFIGS if spills or config != PLAIN_CONFIGS[-1]}
    known = {verdict.removeprefix("not ").removesuffix(", by auto") for verdict in said}
    assert {verdict for verdict in known if "segment" not in verdict} == configs
    assert all("cycles" in reason for reason in said.values())


@pytest.mark.spread(1)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("schedule", [True, False])
@pytest.mark.commit
def test_no_program_is_faster_than_the_floor_by_which_plans_are_left_out(case: str, schedule: bool) -> None:
    model, chip = CASES[case]()
    for config in CONFIGS if schedule else PLAIN_CONFIGS:
        options = config.of(CompileOptions(schedule=schedule))
        found = made(case, config, schedule)
        if found is None:
            continue
        ctx: PlanContext = Context(model.graph, model.constants, chip, TARGET)
        floor = memory_floor_cycles(make_plan(ctx, config.planner), ctx, options, 0.0)
        assert 0 < floor <= cycles_of(found), config


@pytest.mark.parametrize("case", BOTH)
@pytest.mark.commit
def test_no_program_is_much_faster_than_the_cost_model_expects(case: str) -> None:
    """By the bound with which plans are left out: what is expected of them is never that far above the clock."""
    model, chip = CASES[case]()
    ctx: PlanContext = Context(model.graph, model.constants, chip, TARGET)
    options = CompileOptions(schedule=True)
    for config in CONFIGS:
        if (found := made(case, config, True)) is not None:
            expected = costed(ctx, config, make_plan(ctx, config.planner), options).expected_cycles
            assert expected <= 0.75 * MOST_EXPECTED * cycles_of(found), config


def heard(options: CompileOptions, until: str = "", times: int = 1) -> tuple[Compilation, list[str]]:
    """SqueezeNet at level auto, and all progress; Ctrl-C comes when `until` is said so many times."""
    if not until:
        return uninterrupted(options)
    words: list[str] = []

    def say(step: str) -> None:
        words.append(step)
        if step.startswith(until) and sum(word.startswith(until) for word in words) == times:
            raise KeyboardInterrupt

    return compile_graph(network("squeezenet", 32, 1), stcp920(), TARGET, options, say), words


@cache
def uninterrupted(options: CompileOptions) -> tuple[Compilation, list[str]]:
    words: list[str] = []
    return compile_graph(network("squeezenet", 32, 1), stcp920(), TARGET, options, words.append), words


def tried(words: list[str]) -> list[str]:
    return [word for word in words if re.match(r"level auto: plan \d+ of \d+\b", word)]


@pytest.mark.nightly
def test_effort_bounds_what_becomes_a_program() -> None:
    quick, words = heard(CompileOptions(Auto(), effort="fast"))
    assert len(tried(words)) <= EFFORTS["fast"]
    whole, more = heard(CompileOptions(Auto()))
    assert len(tried(more)) > len(tried(words))
    assert cycles_of(whole) <= cycles_of(quick)
    assert any("not tried at effort fast" in decision.reason for decision in quick.plan.decisions)
    assert any(re.search(r", best so far .*: [\d,]+ cycles$", word) for word in more)


@pytest.mark.commit
def test_ctrl_c_keeps_what_was_found_and_says_so() -> None:
    first = heard(CompileOptions(Auto(), effort="fast"))[0]
    found, _ = heard(CompileOptions(Auto()), until="level auto: plan 2 of")
    assert found.program == first.program
    assert found.files == first.files
    assert sum("interrupted" in decision.reason for decision in found.plan.decisions) >= 2
    (warning,) = [text for text in found.model.warnings if "interrupted" in text]
    assert warning.startswith("the search of level auto was interrupted: level: ")


@pytest.mark.parametrize("until", ["partitioning", "level auto: planning, 4 of", "level auto: plan 1 of"])
@pytest.mark.commit
def test_ctrl_c_before_there_is_a_program_ends_the_compilation(until: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        heard(CompileOptions(Auto()), until)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are forked for small networks, and from a process with threads, which runs of tests have."""
    monkeypatch.setattr("dsa_sched.search.candidates.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("dsa_sched.search.candidates.processes_of", lambda jobs: jobs)


def children() -> set[str]:
    """Process ids of the children of this process."""
    return {number for path in Path("/proc/self/task").glob("*/children") for number in path.read_text().split()}


@pytest.mark.nightly
@pytest.mark.usefixtures("forks")
def test_the_number_of_processes_changes_no_byte(tmp_path: Path) -> None:
    """Of the programs, and of the plans with all decisions: of whole levels, segments and other sizes of a pass."""
    source, before = save_small_network("squeezenet", 32, tmp_path, "r9"), children()
    plans, files = set(), set()
    for jobs in (1, 3):
        (found,) = compile_clusters(source, stcp920(), CompileOptions(Auto(), batch=3, jobs=jobs))
        plans.add(str(found.plan))
        files.add(tuple(sorted(found.files.files.items())))
    (plan,) = plans
    assert len(files) == 1
    assert "segments" in plan
    assert 'verdict="not 2 per pass"' in plan
    assert children() <= before


@pytest.mark.usefixtures("forks")
@pytest.mark.commit
def test_ctrl_c_keeps_what_was_found_when_others_work_too() -> None:
    before = children()
    alone, _ = heard(CompileOptions(Auto(), jobs=1), until="level auto: plan 2 of")
    found, _ = heard(CompileOptions(Auto(), jobs=2), until="level auto: plan 2 of")
    assert found.plan == alone.plan
    assert found.files == alone.files
    assert children() <= before


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(classifier(), tmp_path / "classifier.onnx")


def test_the_command_keeps_what_was_found(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def say(_steps: ProgressSteps, step: str) -> None:
        if "best so far" in step:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressSteps, "say", say)
    words = ("compile", str(model), "--chip", "stcp920", "--level", "auto", "-o", str(tmp_path / "out"))
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert "dsa-sched: warning: the search of level auto was interrupted: level: " in done.stderr
    assert Artifact.load(tmp_path / "out").manifest.level in done.stdout


def test_verify_holds_auto_to_the_bits_of_o0(model: Path) -> None:
    report = verify_model(model, "stcp920", CompileOptions(Auto()), VerifyOptions(samples=64))
    assert report.failures == ()
    assert report.level != "auto"


@pytest.mark.commit
def test_commands_take_it(model: Path) -> None:
    def run(*words: object) -> str:
        done = CliRunner().invoke(cli, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    said = run("explain", model, "--chip", "stcp920", "--level", "auto", "--full")
    assert ", by auto: " in said
    run("verify", model, "--chip", "stcp920", "--level", "auto", "--no-schedule", "--effort", "fast")
    plan = run("compile", model, "--chip", "stcp920", "--level", "auto", "--print", "plan")
    assert 'verdict="not O0"' in plan
    assert "step" in run("compile", model, "--chip", "stcp920", "--level", "auto", "--print", "layout")
    assert dsa_sched.compile(model, "stcp920", level="auto", effort="fast").manifest.level != "auto"


def test_a_chip_without_a_code_generator_is_planned_by_its_costs(model: Path) -> None:
    chip = stcp920().model_copy(update={"isa": "not-there-yet"})
    plan = plan_model(model, chip, CompileOptions(Auto())).plan
    reasons = [decision.reason for decision in plan.decisions if decision.subject == "level"]
    assert len(reasons) >= len(PLAIN_CONFIGS) - 1
    assert all(reason.endswith("cycles by the cost model") for reason in reasons)
    cycles = [float(reason.split()[0].replace(",", "")) for reason in reasons]
    assert cycles == sorted(cycles)
    with pytest.raises(TargetError, match="a code generator for not-there-yet"):
        compile_model(model, chip, CompileOptions(Auto()))


def test_explain_shows_the_plan_that_compile_takes(model: Path) -> None:
    explained = explain_model(model, "stcp920", CompileOptions(Auto()))
    assert getattr(explained, "plan", None) == compile_model(model, "stcp920", CompileOptions(Auto())).plan


@dataclass(frozen=True)
class Picky(NeuralScaleTarget):
    """Has room for the code of no program that `fits` does not like."""

    fits: Callable[[Program], bool] = field(default=lambda _program: True)

    def emit(self, program: Program, graph: Graph, constants: Constants, chip: Chip | None = None) -> ClusterFiles:
        if not self.fits(program):
            raise PlanError("code", needs="less", has="more")
        return super().emit(program, graph, constants, chip)

    def emit_rolled(
        self, program: Program, graph: Graph, constants: Constants, chip: Chip | None = None
    ) -> ClusterFiles:
        if not self.fits(program):
            raise PlanError("code", needs="less", has="more")
        return super().emit_rolled(program, graph, constants, chip)


@pytest.mark.slow
def test_code_that_overflows_its_space_gives_way_to_the_next_best(model: Path) -> None:
    net, chip = load_model(model), stcp920()
    fast = CompileOptions(Auto(), effort="fast")
    best = compile_graph(net, chip, TARGET, fast)
    picky = Picky(fits=lambda program: program != best.program)
    second = compile_graph(net, chip, picky, fast)
    assert second.options != best.options  # another level, or the same one with its constants elsewhere
    assert second.program != best.program
    levels = {"O1", "O2", "O3"} - {best.options.planner.name}
    others = [
        compile_graph(net, chip, TARGET, CompileOptions(planner_or_auto(level), schedule=True))
        for level in sorted(levels)
    ]
    assert cycles_of(second) <= min(map(cycles_of, others))
    with pytest.raises(PlanError, match="code: needs less; has more"):
        compile_graph(net, chip, Picky(fits=lambda _program: False), fast)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (
            lambda: planner_or_auto("best"),
            "--level: needs one of O0, O1, O2, O3, streamed, astitch, auto; has best",
        ),
        (lambda: CompileOptions(effort="none"), "--effort: needs one of fast, normal, high; has none"),
        (
            lambda: planner_or_auto("auto", "cost"),
            "--spill: needs a level that does not try spills by itself: O3; has auto",
        ),
        (lambda: planner_or_auto("auto", "never"), "--spill: needs one of none, "),
    ],
)
def test_refusals(refused: Callable[[], object], said: str) -> None:
    with pytest.raises(ModelError) as raised:
        refused()
    assert str(raised.value).startswith(said)


@pytest.mark.commit
def test_a_network_for_which_no_level_has_room_is_refused_as_by_the_first(model: Path) -> None:
    net = load_model(model)
    tiny = small_chip(2, data_bytes=128, weights_bytes=128, im_bytes=128, llb_bytes=4 * KIB)
    said: list[str] = []
    for level in ("O0", "auto"):
        with pytest.raises(UserError) as raised:
            compile_graph(net, tiny, TARGET, CompileOptions(planner_or_auto(level)))
        assert isinstance(raised.value, DoesNotFit)
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_a_layer_staged_where_no_value_lies_yet_leaves_constants_their_region() -> None:
    graph, constants = patches_before_large_values()
    chip = small_chip(8, 96 * KIB, 64 * KIB, 64 * KIB, 256 * KIB)
    ctx = PlanContext(graph, constants, chip, TARGET)
    assert has_region(make_plan(ctx, Streamed()), ctx)
