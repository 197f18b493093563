"""`dsa-sched time` as a user meets it: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from codegen.neuralscale.target import TARGET
from dsa_sched.analysis.artifact_timing import time_path
from dsa_sched.analysis.run_sums import run_times
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.whole_folder import file_entry
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.report.timed_run import times_json
from dsa_sched.stages.compilation import CompileOptions, gather_artifact
from hw_models.errors import TargetError
from isched.program.timed_ops import TimedStream
from isched.timing.cycle_model import time_program, time_streams
from isched.timing.timeline import Timeline
from partitioner.planners.levels import O0
from tests.chip_runs import stcp920
from tests.small_models import classifier, save


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier(batch="n"), tmp_path_factory.mktemp("model") / "classifier.onnx")


@pytest.fixture(scope="module")
def folder(model: Path) -> Path:
    """An artifact for two clusters that compute two rows and one."""
    parts = compile_clusters(str(model), "stcp920", CompileOptions(O0(), batch=3, clusters=2))
    gather_artifact(parts).save(model.parent / "out")
    return model.parent / "out"


def test_the_cycles_are_those_of_the_compiled_programs(model: Path, folder: Path, tmp_path: Path) -> None:
    """Of code without loops to the cycle; with loops other scalar instructions lead to the same ones."""
    parts = compile_clusters(str(model), "stcp920", CompileOptions(O0(), batch=3, roll=False, clusters=2))
    expected = [time_program(part.program, part.chip, TARGET).cycles for part in parts]
    gather_artifact(parts).save(tmp_path / "straight")
    run = time_path(tmp_path / "straight", "stcp920")
    assert [program.timeline.cycles for program in run.programs] == expected
    assert run.cycles == max(expected)
    assert run.items_per_second == pytest.approx(3 / (max(expected) * 1e-9))
    assert run.warnings == ()
    looped = [program.timeline.cycles for program in time_path(folder, "stcp920").programs]
    assert looped == pytest.approx(expected, rel=0.01)
    assert looped != expected


def test_an_elf_alone_takes_the_time_of_its_part_of_the_artifact(folder: Path) -> None:
    alone = time_path(folder / "cluster1" / "program.elf", "stcp920", cluster=1)
    whole = time_path(folder, "stcp920")
    assert alone.cycles == whole.programs[1].timeline.cycles
    assert alone.items_per_second is None


def test_equal_programs_of_several_clusters_are_timed_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven rows on four clusters: three programs of two rows and one of one, and each has the time of its own ELF."""
    gather_artifact(compile_clusters(str(model), "stcp920", CompileOptions(O0(), batch=7, clusters=4))).save(
        tmp_path / "out"
    )
    chip = stcp920()
    files = Artifact.load(tmp_path / "out").clusters
    traced = [TARGET.trace(f.files[f.executable], f.cores, chip, f.cluster) for f in files]
    expected = [time_streams(streams, chip, 4) for streams in traced]
    calls: list[tuple[TimedStream, ...]] = []

    def counted(streams: tuple[TimedStream, ...], *rest: object) -> Timeline:
        calls.append(streams)
        return time_streams(streams, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("dsa_sched.analysis.artifact_timing.time_streams", counted)
    run = time_path(tmp_path / "out", "stcp920")
    assert [program.timeline for program in run.programs] == expected
    assert [program.elf for program in run.programs] == [f"cluster{n}/program.elf" for n in range(4)]
    assert [program.cluster for program in run.programs] == [0, 1, 2, 3]
    distinct = set(traced)
    assert len(calls) == len(distinct) < 4
    written = json.loads(times_json(run_times(run)))["programs"]
    assert [(part["elf"], part["cluster"]) for part in written] == [(p.elf, p.cluster) for p in run.programs]
    assert [part["cycles"] for part in written] == [timeline.cycles for timeline in expected]


def test_what_is_printed(folder: Path) -> None:
    result = invoke("time", folder, "--chip", "stcp920")
    assert result.exit_code == 0
    run = time_path(folder, "stcp920")
    first, second, third, *rest = result.stdout.splitlines()
    assert first == f"{folder} on stcp920, batch 3"
    assert second == f"{run.seconds * 1e6:,.3f} us: {run.cycles:,.0f} cycles at 1,000 MHz, 20,000 for the launch"
    assert third == f"{run.items_per_second:,.1f} items/s"
    assert sum("cycles at work" in line for line in rest) == 2
    assert sum(line.startswith("cluster0/program.elf: cluster 0, 8 cores, ") for line in rest) == 1
    assert sum(line.startswith("at work together, ") and "vector/matrix" in line for line in rest) == 2
    assert sum(line.startswith("the critical path from the launch to the end: ") for line in rest) == 2
    assert sum(line.startswith("stage ") and line.endswith("cores wait for (of all their time)") for line in rest) == 2
    engines = {line.split()[0] for line in rest if line}
    assert {"scalar", "matrix", "vector", "transfer", "dma0.0", "other"} <= engines


def test_what_binds_is_said_by_part_of_the_network(folder: Path) -> None:
    """Cycles of the parts add up to the run without its launch, and the same run has the same text."""
    for by, some in (("stage", "12x12"), ("group", "conv1"), ("operator", "conv2")):
        done = invoke("time", folder, "--chip", "stcp920", "--by", by)
        assert done.exit_code == 0, done.output
        assert done.stdout == invoke("time", folder, "--chip", "stcp920", "--by", by).stdout
        lines = done.stdout.splitlines()
        begins = [number for number, line in enumerate(lines) if line.startswith(f"{by} ")]
        assert len(begins) == 2
        ends = [*(n for n, line in enumerate(lines) if not line and n > begins[0]), len(lines)]
        cycles = {row.split()[0]: float(row.split()[1].replace(",", "")) for row in lines[begins[0] + 1 : ends[0]]}
        assert some in cycles
        timeline = time_path(folder, "stcp920").programs[0].timeline
        assert sum(cycles.values()) == pytest.approx(timeline.cycles - timeline.launch_cycles, abs=len(cycles))
    alone = invoke("time", folder / "cluster0" / "program.elf", "--chip", "stcp920", "--by", "group")
    assert alone.exit_code == 1
    assert "needs an artifact folder, to know the group of an operator; has a program" in alone.stderr


def test_what_is_written(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "time.json"
    assert invoke("time", folder, "--chip", "stcp920", "--json", target).exit_code == 0
    written, run = json.loads(target.read_text()), time_path(folder, "stcp920")
    assert written["format"] == "dsa-sched-time/1"
    assert (written["chip"], written["batch"], written["cycles"]) == ("stcp920", 3, run.cycles)
    assert written["items_per_second"] == run.items_per_second
    for said, program in zip(written["programs"], run.programs, strict=True):
        timeline = program.timeline
        assert (said["cycles"], said["cores"], said["instructions"]) == (timeline.cycles, 8, len(timeline.spans))
        assert {engine["name"]: engine["busy_cycles"] for engine in said["engines"]} == timeline.busy_cycles
        assert {engine["name"]: engine["utilisation"] for engine in said["engines"]} == timeline.utilisation
        assert said["stall_cycles"] == timeline.stall_cycles
        assert sum(said["critical_cycles"].values()) == pytest.approx(timeline.cycles - timeline.launch_cycles)
        assert set(said["overlaps"]) == {"all", "transfer/matrix", "transfer/vector", "vector/matrix"}


def test_bounds_are_below_the_run(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "time.json"
    result = invoke("time", folder, "--chip", "stcp920", "--bounds", "--json", target)
    rows = [line for line in result.stdout.splitlines() if line.startswith("all of these, phase by phase")]
    for row, said in zip(rows, json.loads(target.read_text())["programs"], strict=True):
        bounds = said["bounds"]
        least = max(bounds["engine_cycles"], bounds["bandwidth_cycles"], bounds["path_cycles"])
        assert said["launch_cycles"] < least <= bounds["cycles"] <= said["cycles"]
        share = said["cycles"] / bounds["cycles"] - 1
        assert row.split()[-2:] == [f"{bounds['cycles']:,.0f}", f"{share:.1%}"]
    assert "no order takes less than" not in invoke("time", folder, "--chip", "stcp920").stdout


def slower(path: Path) -> Path:
    """A chip file of the same chip with half the clock and a launch of 1,000 cycles."""
    text = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    text = text.replace("clock_hz: 1_000_000_000", "clock_hz: 500_000_000").replace("20_000", "1_000")
    path.write_text(text, encoding="utf-8")
    return path


def test_another_chip_file_gives_another_time_and_says_so(folder: Path, tmp_path: Path) -> None:
    chip = slower(tmp_path / "slow.yaml")
    run, usual = time_path(folder, str(chip)), time_path(folder, "stcp920")
    assert run.cycles == usual.cycles - 19_000
    assert run.seconds == run.cycles / 5e8
    result = invoke("time", folder, "--chip", chip)
    assert f"warning: compiled for another chip file: stcp920, hash {stcp920().hash[:12]}" in result.stdout


def test_the_number_of_cores_counts(folder: Path) -> None:
    """Four cores meet without the others, and their transfers get more of the shared memory."""
    elf = folder / "cluster0" / "program.elf"
    assert time_path(elf, "stcp920", cores=8).cycles != time_path(elf, "stcp920", cores=4).cycles


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.elf",), "nothing.elf: needs a program or an artifact folder; has no such file or directory"),
        ((__file__,), f"{__file__}, program: needs a static executable for this chip; has not an ELF file"),
        ((Path(__file__).parent,), "needs the manifest of an artifact"),
    ],
)
def test_what_cannot_be_timed_is_said(arguments: tuple[object, ...], said: str) -> None:
    result = invoke("time", *arguments, "--chip", "stcp920")
    assert result.exit_code == 1
    assert said in result.stderr


def test_cores_and_clusters_that_the_chip_lacks_are_refused(folder: Path) -> None:
    elf = folder / "cluster0" / "program.elf"
    result = invoke("time", elf, "--chip", "stcp920", "--cores", 9)
    assert result.exit_code == 1
    assert "needs 1 to 8 cores of cluster 0 to 3 of stcp920; has 9 of cluster 0" in result.stderr
    with pytest.raises(TargetError, match="has 8 of cluster 4"):
        time_path(elf, "stcp920", cluster=4)


@pytest.mark.parametrize(
    ("field", "fewer", "said"),
    [
        ("cores_per_cluster: 8", "cores_per_cluster: 4", "cluster0/program.elf: needs 1 to 4 cores of cluster 0 to 3"),
        ("clusters: 4", "clusters: 1", "cluster1/program.elf: needs 1 to 8 cores of cluster 0 to 0"),
    ],
)
def test_an_artifact_for_more_cores_than_the_chip_has_is_refused(
    folder: Path, tmp_path: Path, field: str, fewer: str, said: str
) -> None:
    text = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    assert text.count(f"\n{field}") == 1
    (tmp_path / "fewer.yaml").write_text(text.replace(f"\n{field}", f"\n{fewer}"), encoding="utf-8")
    for command in ("time", "timeline"):
        result = invoke(command, folder, "--chip", tmp_path / "fewer.yaml")
        assert (result.exit_code, result.stdout) == (1, "")
        assert said in result.stderr


def test_an_elf_runs_where_it_was_compiled_for_and_says_when_it_does_not(folder: Path, tmp_path: Path) -> None:
    elf, whole = folder / "cluster1" / "program.elf", time_path(folder, "stcp920")
    run = time_path(elf, "stcp920")
    assert (run.programs[0].cluster, run.warnings) == (1, ())
    assert run.programs[0].timeline == whole.programs[1].timeline
    said = "warning: compiled for 8 cores of cluster 1, runs on 4 of cluster 1\n"
    for command in ("time", "timeline"):
        assert said in invoke(command, elf, "--chip", "stcp920", "--cores", 4).output
        assert "warning" not in invoke(command, elf, "--chip", "stcp920").output
    there = invoke("time", elf, "--chip", "stcp920", "--cluster", 0).stdout
    assert "warning: compiled for 8 cores of cluster 1, runs on 8 of cluster 0" in there
    another = invoke("time", elf, "--chip", slower(tmp_path / "slow.yaml")).stdout
    assert f"warning: compiled for another chip file: stcp920, hash {stcp920().hash[:12]}" in another


def test_a_program_for_another_instruction_set_or_more_memory_is_refused(folder: Path, tmp_path: Path) -> None:
    elf, data = tmp_path / "p.elf", (folder / "cluster0" / "program.elf").read_bytes()
    assert data.count(b'"neuralscale-v1"') == 1
    elf.write_bytes(data.replace(b'"neuralscale-v1"', b'"another-isa-v1"'))
    for command in ("time", "timeline"):
        result = invoke(command, elf, "--chip", "stcp920")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "needs machine code for neuralscale-v1; has another-isa-v1 for stcp920; name the chip" in result.stderr
    elf.write_bytes(data.replace(b'"cores": 8', b'"cores": 0'))
    assert "the note that names its chip: cores is not a number" in invoke("time", elf, "--chip", "stcp920").stderr
    text = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    (tmp_path / "small.yaml").write_text(text.replace("3_221_225_472", "4096"), encoding="utf-8")
    for path in (folder, folder / "cluster0" / "program.elf"):
        result = invoke("time", path, "--chip", tmp_path / "small.yaml")
        assert result.exit_code == 1
        assert re.search(r"67108864, which programs keep for their code", result.stderr)


@pytest.mark.parametrize("command", ["time", "timeline"])
@pytest.mark.parametrize("option", ["--cores", "--cluster"])
def test_the_manifest_says_where_programs_of_a_folder_run(folder: Path, command: str, option: str) -> None:
    result = invoke(command, folder, "--chip", "stcp920", option, 1)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option} is for an ELF" in result.stderr


def test_an_artifact_whose_program_is_none_is_refused_by_its_name(folder: Path, tmp_path: Path) -> None:
    artifact = Artifact.load(folder)
    broken = replace(artifact.clusters[0], files={**artifact.clusters[0].files, "program.elf": b"no"})
    entry = artifact.manifest.programs[0]
    files = tuple(file_entry(f"cluster0/{name}", data) for name, data in broken.files.items())
    programs = (entry.model_copy(update={"files": files}), *artifact.manifest.programs[1:])
    manifest = artifact.manifest.model_copy(update={"programs": programs})
    Artifact(manifest, (broken, *artifact.clusters[1:]), artifact.texts).save(tmp_path / "broken")
    with pytest.raises(TargetError, match=r"broken/cluster0/program\.elf, program: needs a static executable"):
        time_path(tmp_path / "broken", "stcp920")


def test_machine_code_of_another_instruction_set_is_refused(folder: Path, tmp_path: Path) -> None:
    artifact = Artifact.load(folder)
    manifest = artifact.manifest.model_copy(
        update={"chip": artifact.manifest.chip.model_copy(update={"isa": "other-v1", "name": "other"})}
    )
    Artifact(manifest, artifact.clusters, artifact.texts).save(tmp_path / "other")
    with pytest.raises(TargetError, match="needs machine code for neuralscale-v1; has other-v1 for other"):
        time_path(tmp_path / "other", "stcp920")


@pytest.fixture(scope="module")
def timed(model: Path) -> tuple[Path, dict[str, float]]:
    """A compiled model, and the cycles of its operators by the model."""
    folder = model.parent / "against.out"
    compiled = ("compile", model, "--chip", "stcp920", "--batch", 2, "--level", "O1", "-o", folder)
    assert invoke(*compiled).exit_code == 0
    invoke("time", folder, "--by", "operator", "--json", model.parent / "against.json")
    (program,) = json.loads((model.parent / "against.json").read_text(encoding="utf-8"))["programs"]
    layers = {part["part"]: sum(part["critical_cycles"].values()) for part in program["parts"]}
    return folder, {"launch": program["launch_cycles"], **layers, "whole run": program["cycles"]}


def test_measured_layers_stand_beside_the_model(timed: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    folder, cycles = timed
    table, data = tmp_path / "counters.csv", tmp_path / "time.json"
    chosen = [name for name in cycles if name != "-"]
    rows = [f"{name},{n},cycles,{cycles[name] * (1.25 + n / 100):.3f}" for name in chosen for n in (0, 1)]
    table.write_text("\n".join(("layer,repetition,counter,cycles", *rows)), encoding="utf-8")
    done = invoke("time", folder, "--by", "operator", "--against", table, "--json", data)
    assert done.exit_code == 0
    found = json.loads(data.read_text(encoding="utf-8"))["against"]
    assert [each["layer"] for each in found] == chosen
    assert all(each["model"] == pytest.approx(cycles[each["layer"]]) for each in found)
    assert all(each["median"] == pytest.approx(1.255 * each["model"], rel=1e-4) for each in found)
    assert all(each["error"] == pytest.approx(1 / 1.255 - 1, rel=1e-3) for each in found)
    assert re.search(r"\nmeasured layers +2 .* -20\.3%\n", done.stdout)
    assert done.stdout.endswith("1 more were not measured\n")


def test_a_layer_that_the_run_does_not_have_is_refused(timed: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text("layer,repetition,counter,cycles\nconv9,0,cycles,12\n", encoding="utf-8")
    done = invoke("time", timed[0], "--by", "operator", "--against", table)
    assert done.exit_code == 1
    assert f"{table}:2: layer: there is no layer 'conv9'; known: launch, " in done.stderr
    assert "critical path" not in done.stdout
