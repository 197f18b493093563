"""One truth: what `compile` writes is what `verify`, `explain`, `time` and `timeline` speak of, and is made once."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import numpy_helper

import dsa_sched
from dsa_sched.analysis.artifact_timing import time_artifact
from dsa_sched.analysis.explanation import Explained, explain_artifact
from dsa_sched.analysis.run_sums import run_times
from dsa_sched.analysis.work import timed_work
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.whole_folder import MANIFEST, file_entry
from dsa_sched.builds import fresh_build as builds
from dsa_sched.builds.build import build
from dsa_sched.builds.build_cache import ENVIRONMENT, build_key, find_build, keep_build
from dsa_sched.builds.kept_figures import Figures, figures_cache
from dsa_sched.cli import cli
from dsa_sched.io.entry_point_groups import OPERATORS
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.pipeline.rebuild import built_again, planned_again, reloaded
from dsa_sched.stages import tile_stages
from dsa_sched.stages.compilation import INTERRUPTED, CompileOptions, gather_artifact
from dsa_sched.stages.targets import target_of
from dsa_sched.verification.verify import verify_artifact
from hw_models.cache import Cache
from hw_models.errors import ModelError, PlanError, TargetError, UserError
from hw_models.loading import load_chip
from partitioner.planners.levels import O0, O2, O3, Planner, Streamed
from partitioner.planners.registry import make_plan
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import classifier, save

CHIP = "stcp920"


def invoke(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, [str(word) for word in words], prog_name="dsa-sched")
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier("n"), tmp_path_factory.mktemp("model") / "classifier.onnx")


@pytest.fixture(scope="module")
def artifact(model: Path) -> Artifact:
    return build(model, CHIP, CompileOptions(O2(), batch=2)).artifact


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "builds"))
    return Cache(tmp_path / "builds")


def test_all_commands_tell_the_cycles_of_one_program(model: Path, tmp_path: Path) -> None:
    words = ("--level", "O3", "--schedule", "--batch", 2)
    folder = model.parent / "one"
    said = invoke("compile", model, "--chip", CHIP, *words, "-o", folder).stdout
    cycles = json.loads((folder / MANIFEST).read_text())["figures"]["cycles"]
    assert f": {cycles:,.0f} cycles by the cycle model" in said
    for source in ((folder,), (model, "--chip", CHIP, *words)):
        for command in ("verify", "explain", "time", "timeline"):
            invoke(command, *source, "--json", tmp_path / f"{command}.json")
        told = {c: json.loads((tmp_path / f"{c}.json").read_text()) for c in ("verify", "explain", "time", "timeline")}
        assert told["verify"]["programs"][-1]["cycles"] == cycles
        assert told["explain"]["measured"]["cycles"] == cycles
        assert told["time"]["cycles"] == cycles
        assert told["timeline"]["programs"][0]["cycles"] == cycles
        parts = told["explain"]["measured"]
        for kind in ("groups", "layers"):
            assert sum(part["cycles"] for part in parts[kind]) == pytest.approx(parts["work_cycles"])


def test_verify_of_a_model_judges_the_bytes_that_compile_writes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Artifact] = []

    def recorded(artifact: Artifact, *rest: object) -> object:
        judged.append(artifact)
        return verify_artifact(artifact, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("dsa_sched.verification.verify.verify_artifact", recorded)
    words = (model, "--chip", CHIP, "--level", "O0", "--batch", 4, "--clusters", 2)
    said = invoke("verify", *words).stdout
    invoke("compile", *words, "-o", tmp_path / "out")
    assert dict(judged[0].files()) == dict(Artifact.load(tmp_path / "out").files())
    assert "bit for bit the same as its twin with --keep-values" in said


def test_the_way_back_leads_to_the_same_bytes(artifact: Artifact) -> None:
    again = built_again(artifact, reloaded(artifact))
    assert again.files == artifact.clusters[0]
    model = artifact.model_path
    plain = build(model, CHIP, CompileOptions(O0(), batch=2)).artifact
    again, twin = (built_again(plain, reloaded(plain), keep_values=keep) for keep in (False, True))
    assert again.files == plain.clusters[0]
    assert twin.plan == again.plan
    assert twin.files != again.files


def test_an_artifact_that_computes_other_values_than_its_twin_fails(artifact: Artifact, model: Path) -> None:
    """The code of one network with the plan of another that differs in a weight alone."""
    changed = onnx.load(model)
    weight = max(changed.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    array = numpy_helper.to_array(weight).copy()
    array.flat[0] += 1
    weight.raw_data = array.tobytes()
    onnx.save(changed, model.with_name("changed.onnx"))
    other = build(model.with_name("changed.onnx"), CHIP, CompileOptions(O2(), batch=2)).artifact
    report = verify_artifact(replace(artifact, clusters=other.clusters))
    assert report.verdict == "failed"
    assert "bytes that the artifact computes are not those of the same plan with all values kept" in report.failures[0]


def test_another_file_is_not_taken_for_the_model(artifact: Artifact, tmp_path: Path) -> None:
    other = save(classifier(3), tmp_path / "other.onnx")
    with pytest.raises(ModelError, match="needs the file that was compiled, SHA-256"):
        verify_artifact(artifact, other)
    with pytest.raises(ModelError, match=r"next to the artifact; give it with --model"):
        reloaded(replace(artifact, model_path=""))


def test_a_model_next_to_the_folder_is_found(artifact: Artifact, model: Path) -> None:
    artifact.save(model.parent / "out")
    assert reloaded(Artifact.load(model.parent / "out")).sha256 == artifact.manifest.model_sha256


def _with_text(artifact: Artifact, folder: Path, name: str, text: str) -> Artifact:
    """The artifact, read from a folder in which one text is another, with its hash in the manifest."""
    texts = {**artifact.texts, name: text.encode()}
    files = tuple(file_entry(path, data) for path, data in texts.items())
    replace(artifact, texts=texts, manifest=artifact.manifest.model_copy(update={"files": files})).save(folder)
    return Artifact.load(folder)


def test_texts_of_strangers_are_checked(artifact: Artifact, tmp_path: Path) -> None:
    plan, graph, chip = (artifact.texts[name].decode() for name in ("plan.txt", "graph.txt", "chip.json"))
    smaller = chip.replace('"clusters": 4', '"clusters": 3')
    assert smaller != chip
    with pytest.raises(TargetError, match=r"chip\.json: needs what the manifest says"):
        planned_again(_with_text(artifact, tmp_path / "chip", "chip.json", smaller))
    with pytest.raises(TargetError, match=r"graph\.txt: needs"):
        planned_again(_with_text(artifact, tmp_path / "graph", "graph.txt", graph.replace("relu", "add")))
    with pytest.raises(TargetError, match=r"plan\.txt: needs the text of a compilation; has line 2"):
        planned_again(_with_text(artifact, tmp_path / "text", "plan.txt", plan.splitlines()[0] + "\n  groop name=1\n"))
    missing = "\n".join(line for line in plan.splitlines() if not line.startswith("  run ")) + "\n"
    with pytest.raises(PlanError):
        planned_again(_with_text(artifact, tmp_path / "plan", "plan.txt", missing))
    old = replace(artifact, texts={}, manifest=artifact.manifest.model_copy(update={"origin": None, "files": ()}))
    with pytest.raises(TargetError, match="an artifact of an older version, without it; compile again"):
        planned_again(old)


def two_kernels(folder: Path) -> Path:
    b = ModelBuilder()
    return b.save(folder, b.node("Softmax", b.node("Relu", b.input(2, 16)), axis=1))


@pytest.mark.commit
def test_plans_of_kernels_are_checked_too(tmp_path: Path) -> None:
    made = build(two_kernels(tmp_path), "a100", CompileOptions(O0())).artifact
    assert planned_again(made).plan == made.plan
    missing = "\n".join(made.texts["plan.txt"].decode().rsplit("\n  run ", 1)[:1]) + "\n"
    with pytest.raises(PlanError):
        planned_again(_with_text(made, tmp_path / "out", "plan.txt", missing))


@pytest.mark.commit
def test_a_chip_in_json_is_the_chip(tmp_path: Path) -> None:
    model = two_kernels(tmp_path)
    for name in ("a100", "h200", "stcp920"):
        made = gather_artifact(compile_clusters(model, name, CompileOptions(O0())))
        assert made.chip == load_chip(name)


def test_a_build_is_made_once(model: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    options = CompileOptions(O2(), batch=2)
    first = build(model, CHIP, options, cache=cache).artifact
    monkeypatch.setattr(builds, "compile_clusters", None)
    again = build(model, CHIP, options, cache=cache)
    assert again.parts is None
    assert dict(again.artifact.files()) == dict(first.files())
    for command in ("explain", "time", "verify"):
        invoke(command, model, "--chip", CHIP, "--level", "O2", "--batch", 2)
    with pytest.raises(TypeError):
        build(model, CHIP, replace(options, batch=3), cache=cache)
    assert cache.entries() == 1
    assert "1 build," in invoke("cache").stdout
    assert "removed 1 build," in invoke("cache", "--clear").stdout
    assert cache.entries() == 0


def test_the_key_depends_on_all_that_matters(model: Path, tmp_path: Path) -> None:
    options = CompileOptions(O2(), batch=2)
    other = save(classifier(3), tmp_path / "classifier.onnx")
    small = load_chip(CHIP).model_copy(update={"clusters": 2})
    keys = [
        build_key(model, load_chip(CHIP), options),
        build_key(other, load_chip(CHIP), options),
        build_key(model, small, options),
        build_key(model, load_chip(CHIP), CompileOptions(O3(), batch=2)),
        build_key("mobilenet_v2-mini", load_chip(CHIP), options),
    ]
    assert len({*keys}) == len(keys)
    assert build_key(model, load_chip(CHIP), replace(options, tune=True)) is None
    for other_options in (replace(options, isolated=True), replace(options, planner=Streamed(chunks=True))):
        assert build_key(model, load_chip(CHIP), other_options) not in {*keys, None}
    assert build_key(model, load_chip(CHIP), replace(options, jobs=3)) == keys[0]


def test_what_other_packages_take_part_in_is_not_kept(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chip, options = load_chip(CHIP), CompileOptions(O2(), batch=2)
    assert build_key(model, chip.model_copy(update={"isa": "toy-v1"}), options) is None
    found = [EntryPoint("Toy", "toy:rule", OPERATORS)]
    monkeypatch.setattr("dsa_sched.builds.build_cache.entry_points", lambda **_: found)
    assert build_key(model, chip, options) is None


def test_a_model_that_is_not_there_is_told_as_ever(cache: Cache) -> None:
    said = invoke("explain", "squeezenett", "--chip", CHIP, code=1).output
    assert "model squeezenett: needs a file, or one of" in said
    assert "did you mean squeezenet?" in said
    assert cache.entries() == 0


@pytest.mark.commit
def test_kernels_of_gpus_end_with_an_estimate(tmp_path: Path) -> None:
    said = invoke("compile", "mobilenet_v2-mini", "--chip", "a100", "--level", "O3", "-o", tmp_path / "out").stdout
    assert re.search(r"estimate for batch 1: [0-9.]+ us at least, by the floors of its kernels; not timed", said)


def test_an_artifact_is_timed_once_to_be_verified(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Artifact] = []

    def recorded(made: Artifact, *rest: object) -> object:
        timed.append(made)
        return time_artifact(made, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("dsa_sched.analysis.figures.time_artifact", recorded)
    verify_artifact(artifact)
    assert timed == [artifact]


@pytest.mark.commit
def test_a_chip_that_is_only_planned_for_is_explained(tmp_path: Path) -> None:
    """More cores than the instruction set has: `chip check` promises plans."""
    text = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    chip = tmp_path / "large.yaml"
    chip.write_text(text.replace("cores_per_cluster: 8", "cores_per_cluster: 16"), encoding="utf-8")
    model = save(classifier(1), tmp_path / "m.onnx")
    assert "plans only, no machine code" in invoke("chip", "check", chip).stdout
    said = invoke("explain", model, "--chip", chip).stdout
    assert "all of these are estimates" in said
    explained = dsa_sched.explain(model, chip)
    assert str(explained) == said
    assert explained.cycles is None
    assert "by the cycle model, " not in said.split("\ndecisions")[0]
    for stage in ("plan", "layout"):
        assert invoke("compile", model, "--chip", chip, "--level", "O2", "--print", stage).stdout
    assert "at most 8: core i of cluster k" in invoke("time", model, "--chip", chip, code=1).output


def test_a_damaged_entry_is_as_good_as_absent(model: Path, cache: Cache) -> None:
    options = CompileOptions(O0(), batch=1)
    first = build(model, CHIP, options, cache=cache).artifact
    assert cache.folder is not None
    (entry,) = (path for path in cache.folder.iterdir() if path.is_file())
    entry.write_bytes(entry.read_bytes()[:-1])
    again = build(model, CHIP, options, cache=cache)
    assert again.parts is not None
    assert dict(again.artifact.files()) == dict(first.files())
    assert build(model, CHIP, options, cache=cache).parts is None


def test_the_oldest_entries_go_first(artifact: Artifact, tmp_path: Path) -> None:
    size = len(artifact.packed())
    cache = Cache(tmp_path / "builds", most_bytes=2 * size + size // 2)
    for key in ("a", "b", "c"):
        keep_build(cache, key, artifact)
    assert [find_build(cache, key) is not None for key in ("a", "b", "c")] == [False, True, True]


def test_several_writers_leave_a_whole_entry(artifact: Artifact, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "builds")
    writers = [threading.Thread(target=keep_build, args=(cache, "key", artifact)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = find_build(cache, "key")
    assert found is not None
    assert dict(found.files()) == dict(artifact.files())


def _not_again(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """From now on, nobody may call these functions."""

    def refused(*_given: object, **_named: object) -> None:
        raise AssertionError("this was worked out before")

    for name in names:
        monkeypatch.setattr(name, refused)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "words", [("--level", "O3", "--batch", 1), ("--effort", "fast", "--batch", 2), ("--batch", 2, "--clusters", 2)]
)
@pytest.mark.commit
def test_what_is_kept_of_a_build_is_what_would_be_found(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    invoke("compile", model, "--chip", CHIP, *words, "-o", tmp_path / "out")
    commands = (("explain",), ("time",), ("time", "--by", "group"), ("time", "--by", "group"))
    own = [invoke(*command, tmp_path / "out", "--no-cache").stdout for command in commands]
    invoke(*commands[2], tmp_path / "out")  # other parts than the usual ones are kept when they are first asked for
    _not_again(
        monkeypatch,
        "dsa_sched.analysis.artifact_timing.time_streams",
        "partitioner.memory.memory_plan._placed",
        "dsa_sched.pipeline.rebuild.verify_plan",
        "partitioner.planners.registry._planned",
    )
    for command, expected in zip(commands, own, strict=True):
        kept = invoke(*command, tmp_path / "out", "--json", tmp_path / "kept.json").stdout
        assert kept == expected
        named = invoke(*command, model, "--chip", CHIP, *words).stdout
        assert named.splitlines()[1:] == expected.splitlines()[1:]


@pytest.mark.usefixtures("cache")
def test_verify_neither_plans_the_network_nor_times_it_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (model, "--chip", CHIP, "--level", "O2", "--batch", 2)
    said = invoke("verify", *words).stdout
    planned: list[object] = []

    def recorded(ctx: object, planner: Planner) -> object:
        planned.append(planner)
        return made(ctx, planner)  # type: ignore[arg-type]

    made = make_plan
    monkeypatch.setattr(tile_stages, "make_plan", recorded)
    _not_again(monkeypatch, "dsa_sched.analysis.artifact_timing.time_streams", "dsa_sched.stages.tile_stages.run_below")
    again = invoke("verify", *words).stdout
    assert planned == [O0()]  # the reference that it is held to
    assert [line for line in again.splitlines() if " s" not in line] == [
        line for line in said.splitlines() if " s" not in line
    ]


def test_figures_are_kept_to_the_last_bit(cache: Cache) -> None:
    """Also those of moves into the memories of cores, and of spans of which the path touches nothing."""
    made = build("bert_base-mini", CHIP, CompileOptions(O3(), schedule=True), cache=cache).artifact
    figures = Figures(made, cache)
    explained = explain_artifact(made)
    assert isinstance(explained, Explained)
    assert figures.explanation() == explained.explanation
    run = time_artifact(made, made.chip, target_of(made.chip), made.manifest.model)
    assert figures.times(None, lambda: pytest.fail("not kept")) == run_times(run)
    assert figures.work() == timed_work(run.programs[0], made.chip, made.plan)


def test_damaged_figures_are_found_again(model: Path, cache: Cache) -> None:
    made = build(model, CHIP, CompileOptions(O0(), batch=1), cache=cache).artifact
    figures, folder = Figures(made, cache), figures_cache(cache).folder
    assert folder is not None
    whole = figures.explanation()
    for entry in folder.iterdir():
        Cache(folder).keep(entry.name, b'{"model": "another"}')  # whole, but no explanation
    assert figures.explanation() is None
    assert figures.work() is None
    assert invoke("explain", model, "--chip", CHIP, "--level", "O0", "--batch", 1).exit_code == 0
    assert figures.explanation() == whole
    assert "removed 1 build" in invoke("cache", "--clear").stdout
    assert not list(folder.iterdir())


def test_what_was_interrupted_is_not_kept(model: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    (part,) = compile_clusters(model, CHIP, CompileOptions(O0(), batch=1))
    ended = replace(part, model=replace(part.model, warnings=(f"{INTERRUPTED}: best so far",)))
    monkeypatch.setattr(builds, "compile_clusters", lambda *_: (ended,))
    build(model, CHIP, CompileOptions(O0(), batch=1), cache=cache)
    assert cache.entries() == 0


def test_options_of_compiling_are_for_models(artifact: Artifact, tmp_path: Path) -> None:
    artifact.save(tmp_path / "out")
    said = invoke("explain", tmp_path / "out", "--level", "O3", code=2).output
    assert "--level says how a model is compiled" in said
    assert "compiled already" in said
    said = invoke("explain", tmp_path / "out", "--chip", "a100", code=1).output
    assert "needs the chip that" in said
    assert "There is no default chip" in invoke("time", "mobilenet_v2-mini", code=2).output


def test_python_does_what_the_commands_do(model: Path, tmp_path: Path) -> None:
    made = dsa_sched.compile(model, CHIP, level="O2", batch=2, cache=False)
    invoke("compile", model, "--chip", CHIP, "--level", "O2", "--batch", 2, "-o", tmp_path / "out")
    assert dict(made.files()) == dict(dsa_sched.load(tmp_path / "out").files())
    explained, timed, verified = dsa_sched.explain(made), dsa_sched.time(made), dsa_sched.verify(made)
    assert made.manifest.figures is not None
    cycles = made.manifest.figures.cycles
    assert [explained.cycles, timed.cycles, verified.cycles, dsa_sched.timeline(made).cycles] == [cycles] * 4
    assert verified.verdict == "passed"
    invoke("explain", tmp_path / "out", "--json", tmp_path / "explain.json")
    assert explained.to_dict() == json.loads((tmp_path / "explain.json").read_text())
    assert str(explained) == invoke("explain", tmp_path / "out").stdout
    assert str(timed).splitlines()[1:] == invoke("time", tmp_path / "out").stdout.splitlines()[1:]
    assert all("\n" not in repr(each) for each in (made, explained, timed, verified))
    shown = np.asarray(made.run({name: np.zeros((2, *shape[1:]), np.float32) for name, shape in _inputs(made)})["y"])
    assert shown.shape[0] == 2


def _inputs(artifact: Artifact) -> list[tuple[str, tuple[int, ...]]]:
    return [(entry.name, entry.shape) for entry in artifact.manifest.inputs]


def test_python_places_as_the_command_does(tmp_path: Path) -> None:
    scenario = Path(__file__).parents[2] / "samples" / "scenarios" / "two_cpus.yaml"
    model = save(classifier(1), tmp_path / "m.onnx")
    placed = dsa_sched.place(model, scenario, method="heft", estimate=True)
    words = ("place", model, "--scenario", scenario, "--method", "heft", "--estimate", "--json", tmp_path / "p.json")
    said = invoke(*words).stdout
    told = json.loads((tmp_path / "p.json").read_text())
    made = placed.to_dict()
    for each in (told, made):
        for row in each["methods"]:
            row.pop("search_seconds")
    assert made == told
    assert placed.method == "heft"
    assert f"{placed.makespan_seconds * 1e6:,.3f} us" in said
    assert {*placed.devices.values()} <= {*made["machines"]}
    with pytest.raises(UserError, match=r"^estimate: needs True for one"):
        dsa_sched.place(model, scenario, estimate=True, measure=True)


def test_errors_name_the_argument() -> None:
    with pytest.raises(UserError, match=r"^per_pass: needs a batch to divide"):
        dsa_sched.compile("mobilenet_v2-mini", CHIP, per_pass=2)
    with pytest.raises(UserError, match=r"^level: needs one of O0, O1"):
        dsa_sched.plan("mobilenet_v2-mini", CHIP, level="O9")
    with pytest.raises(TypeError, match="no option is called levle; there are level"):
        dsa_sched.compile("mobilenet_v2-mini", CHIP, levle="O2")  # type: ignore[call-overload]
