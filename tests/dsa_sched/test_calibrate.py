"""`dsa-sched calibrate`: numbers of a chip that nobody told the fit, found again from its cycles; hostile tables."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner, Result

import dsa_sched
from dsa_sched.calibration.counters import read_counters
from dsa_sched.calibration.determination import determine
from dsa_sched.calibration.emitted import calibration_of
from dsa_sched.calibration.prediction import COUNTERS, Predictor, part_of
from dsa_sched.cli import cli
from dsa_sched.stages.targets import require_timeable, target_of
from hw_models.chip import Chip
from hw_models.chip_numbers import number_at, source_of, with_comments, with_numbers
from hw_models.errors import CountersError
from hw_models.loading import chip_text, load_chip
from isched.timing.cycle_model import time_streams

NOISE, REPETITIONS = 0.02, 10

HIDDEN = {
    "assumed.launch_cycles": 31_000.0,
    "assumed.scalar_instruction_cycles": 1.4,
    "engines.scalar.instruction_cache.miss_cycles": 21.0,
    "engines.matrix.start_latency_cycles": 27.0,
    "engines.matrix.array_pixels": 32,
    "assumed.matrix_tile_cycles": 9.0,
    "assumed.matrix_row_cycles": 0.6,
    "engines.vector.start_latency_cycles": 16.0,
    "assumed.lookup_cycles": 4.0,
    "links.llb_to_l1.latency_cycles": 81.0,
    "links.llb_to_l1.core_bandwidth_bytes_per_cycle": 51.0,
    "links.llb_to_l1.burst_bytes": 128,
    "links.llb_to_l1.bandwidth_bytes_per_cycle": 205.0,
    "links.l1_to_llb.latency_cycles": 49.0,
    "links.l1_to_llb.core_bandwidth_bytes_per_cycle": 60.0,
    "links.l1_to_llb.bandwidth_bytes_per_cycle": 190.0,
    "memories.LLB.bandwidth_bytes_per_cycle": 270.0,
    "links.l1_to_l1.latency_cycles": 110.0,
    "links.l1_to_l1.bandwidth_bytes_per_cycle": 33.0,
    "links.ddr_to_llb.latency_cycles": 150.0,
    "links.ddr_to_llb.bandwidth_bytes_per_cycle": 21.0,
    "assumed.dma_descriptor_cycles": 14.0,
    "links.llb_to_ddr.latency_cycles": 95.0,
    "links.llb_to_ddr.bandwidth_bytes_per_cycle": 17.5,
    "memories.DDR.bandwidth_bytes_per_cycle": 28.5,
    "assumed.queue_depth": 6,
    "assumed.sync_cycles": 40.0,
}
"""Numbers of the hidden chip that differ from those of the file."""

REMOVED = {
    "vector_lookup": "assumed.lookup_cycles",
    "transfer_cores_start": "links.l1_to_l1.latency_cycles",
    "transfer_cores_block": "links.l1_to_l1.bandwidth_bytes_per_cycle",
    "barrier": "assumed.sync_cycles",
}
"""Benchmarks whose counters were lost, and the numbers that only they tell."""

FEW = {"launch", "scalar_loop", "dma_in_start", "dma_in_32768", "dma_in_131072"}
OF_FEW = (
    "assumed.launch_cycles",
    "assumed.scalar_instruction_cycles",
    "links.ddr_to_llb.latency_cycles",
    "links.ddr_to_llb.bandwidth_bytes_per_cycle",
)


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, ["calibrate", *map(str, words)])


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration") / "bench"
    done = invoke("emit", "--chip", "stcp920", "-o", folder)
    assert done.exit_code == 0, done.output
    assert re.fullmatch(r".*: \d\d benchmarks that isolate 3\d numbers; what to count is in .*\n", done.stdout)
    return folder


def counted(folder: Path, chip: Chip, wanted: Callable[[str], bool], seed: int = 0) -> str:
    """The template of a folder filled in by a chip: its programs under the cycle model, with noise, of the benchmarks
    that are wanted."""
    random, target = Random(seed), require_timeable(target_of(chip), "test")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    cycles: dict[tuple[str, str], float] = {}
    for each in filter(lambda each: wanted(each["name"]), manifest["benchmarks"]):
        first = each["started_together"][0]
        streams = target.trace((folder / first["path"]).read_bytes(), first["cores"], chip, first["cluster"])
        timeline = time_streams(streams, chip, len(each["started_together"]))
        cycles |= {(each["name"], counter): COUNTERS[counter].value(timeline) for counter in each["counters"]}
    lines = (folder / "template.csv").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines[3:], 3):
        name, _, counter, _ = line.split(",")
        if (name, counter) in cycles:
            lines[number] = f"{line}{cycles[name, counter] * random.gauss(1.0, NOISE):.1f}"
    return "\n".join(lines) + "\n"


def test_what_is_emitted(emitted: Path) -> None:
    manifest = json.loads((emitted / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["format"] == "dsa-sched-calibration/1"
    assert {path.relative_to(emitted).as_posix() for path in emitted.rglob("*") if path.is_file()} == {
        "manifest.json",
        *(entry["path"] for entry in manifest["files"]),
    }
    rows = list(csv.reader((emitted / "template.csv").read_text(encoding="utf-8").splitlines()[2:]))
    assert rows[0] == ["benchmark", "repetition", "counter", "cycles"]
    counters = sum(len(each["counters"]) for each in manifest["benchmarks"])
    assert len(rows) == 1 + REPETITIONS * counters
    together = [each for each in manifest["benchmarks"] if len(each["started_together"]) > 1]
    assert [len(each["started_together"]) for each in together] == [4]
    assert invoke("emit", "--chip", "stcp920", "-o", emitted).exit_code == 0  # in place of the same
    (emitted / "counters.csv").write_text("mine", encoding="utf-8")
    done = invoke("emit", "--chip", "stcp920", "-o", emitted)
    assert "has other files (counters.csv)" in done.stderr
    (emitted / "counters.csv").unlink()


@pytest.mark.commit
def test_numbers_of_a_few_benchmarks_are_found_again(emitted: Path, tmp_path: Path) -> None:
    hidden = with_numbers(load_chip("stcp920"), {path: HIDDEN[path] for path in OF_FEW})
    table, file = tmp_path / "counters.csv", tmp_path / "fitted.yaml"
    table.write_text(counted(emitted, hidden, FEW.__contains__), encoding="utf-8")
    page, data = tmp_path / "page.html", tmp_path / "fit.json"
    done = invoke("fit", table, "--chip", "stcp920", "-o", file, "--page", page, "--json", data)
    assert done.exit_code == 0, done.output
    fitted = load_chip(file)
    for path in OF_FEW:
        assert number_at(fitted, path) == pytest.approx(HIDDEN[path], rel=0.05), path
    assert "links.ddr_to_llb.latency_cycles is documented as 66 (16 bytes LLB -> DDR" in done.stdout
    text = file.read_text(encoding="utf-8")
    assert len(re.findall(r"# \[measured\] ", text)) == len(OF_FEW)
    assert len(text.splitlines()) == len(chip_text("stcp920")[0].splitlines())
    found = json.loads(data.read_text(encoding="utf-8"))
    assert found["format"] == "dsa-sched-calibration-fit/1"
    assert {each["path"] for each in found["numbers"] if each["measured"] is not None} == {*OF_FEW}
    assert len(found["residuals"]) == 6
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert CliRunner().invoke(cli, ["chip", "check", str(file)]).exit_code == 0


def test_the_same_in_python(emitted: Path, tmp_path: Path) -> None:
    assert dsa_sched.write_benchmarks("stcp920", tmp_path / "bench") > 60
    assert (tmp_path / "bench" / "template.csv").read_bytes() == (emitted / "template.csv").read_bytes()
    hidden = with_numbers(load_chip("stcp920"), {"assumed.scalar_instruction_cycles": 1.4})
    (tmp_path / "c.csv").write_text(counted(emitted, hidden, {"scalar_loop"}.__contains__), encoding="utf-8")
    found = dsa_sched.fit_chip(tmp_path / "c.csv", "stcp920")
    assert found.chip.assumed.scalar_instruction_cycles == pytest.approx(1.4, rel=0.05)
    assert len(found.undetermined) == len(found.fit.numbers) - 1
    assert found.to_dict()["undetermined"] == [*found.undetermined]
    assert re.match(r"stcp920: 1 of 3\d numbers are determined by 1 counters of 1 benchmarks", str(found))


@pytest.mark.commit
def test_a_chip_that_is_as_its_file_says_stays(emitted: Path, tmp_path: Path) -> None:
    table, file = tmp_path / "counters.csv", tmp_path / "fitted.yaml"
    table.write_text(counted(emitted, load_chip("stcp920"), FEW.__contains__, 4), encoding="utf-8")
    done = invoke("fit", table, "--chip", "stcp920", "-o", file)
    assert done.stdout.endswith(f"{file}: 0 numbers differ from stcp920\n")
    assert file.read_text(encoding="utf-8") == chip_text("stcp920")[0]


@pytest.mark.commit
def test_documented_numbers_can_be_left_alone(emitted: Path, tmp_path: Path) -> None:
    hidden = with_numbers(load_chip("stcp920"), {path: HIDDEN[path] for path in OF_FEW})
    table, file = tmp_path / "counters.csv", tmp_path / "fitted.yaml"
    table.write_text(counted(emitted, hidden, FEW.__contains__), encoding="utf-8")
    done = invoke("fit", table, "--chip", "stcp920", "-o", file, "--keep-documented", "--full")
    assert done.exit_code == 0, done.output
    assert number_at(load_chip(file), "links.ddr_to_llb.latency_cycles") == 66
    assert "documented as" not in done.stdout
    assert len(re.findall(r"^dma_in_start +cycles", done.stdout, re.MULTILINE)) == 1


@pytest.fixture(scope="module")
def recovered(emitted: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Chip, dict[str, object], str]:
    """The fitted chip of the hidden one, the fit as JSON, and what was printed."""
    folder = tmp_path_factory.mktemp("recovered")
    hidden = with_numbers(load_chip("stcp920"), HIDDEN)
    (folder / "counters.csv").write_text(counted(emitted, hidden, lambda name: name not in REMOVED), encoding="utf-8")
    files = (folder / "fitted.yaml", "--json", folder / "fit.json")
    done = invoke("fit", folder / "counters.csv", "--chip", "stcp920", "-o", *files)
    assert done.exit_code == 0, done.output
    return load_chip(files[0]), json.loads((folder / "fit.json").read_text(encoding="utf-8")), done.stdout


@pytest.mark.nightly
def test_every_number_of_a_hidden_chip_is_found_again(recovered: tuple[Chip, dict[str, object], str]) -> None:
    chip, _, _ = recovered
    isolated = [path for path in calibration_of(load_chip("stcp920")).numbers if path not in REMOVED.values()]
    hidden = with_numbers(load_chip("stcp920"), HIDDEN)
    assert len([path for path in isolated if path in HIDDEN]) >= 20
    wrong = {
        path: (number_at(chip, path), number_at(hidden, path))
        for path in isolated
        if number_at(chip, path) != pytest.approx(number_at(hidden, path), rel=0.05)
    }
    assert wrong == {}


@pytest.mark.nightly
def test_only_what_was_not_measured_is_undetermined(recovered: tuple[Chip, dict[str, object], str]) -> None:
    _, found, printed = recovered
    assert isinstance(found["undetermined"], list)
    assert {*found["undetermined"]} == {*REMOVED.values()}
    assert f"The measurements do not determine: {', '.join(found['undetermined'])}." in printed


@pytest.mark.nightly
def test_a_run_depends_only_on_the_numbers_that_are_said_to_count() -> None:
    made = calibration_of(load_chip("stcp920"))
    values = tuple(number_at(made.chip, path) for path in made.numbers)
    knowing, asking = (Predictor(made.chip, made.target, made.numbers) for _ in range(2))
    for number, path in enumerate(made.numbers):
        other = (*values[:number], values[number] * 2 + (0 if values[number] else 7), *values[number + 1 :])
        changed = with_numbers(made.chip, {path: other[number]})
        for benchmark in made.benchmarks:
            alone = Predictor(changed, made.target, ()).cycles(benchmark, ())
            assert knowing.cycles(benchmark, other) == alone, (benchmark.name, part_of(path))
    assert asking.cycles(made.benchmarks[0], values)


def test_targets_without_benchmarks_are_refused() -> None:
    assert "calibrate: needs a target that has micro-benchmarks for its chips; has gemmini" in (
        invoke("emit", "--chip", "gemmini", "-o", "nowhere").stderr
    )
    assert "has sm_80, whose kernels are whole groups" in invoke("emit", "--chip", "a100", "-o", "nowhere").stderr


HEAD = "benchmark,repetition,counter,cycles\n"
KNOWN = {"launch": ("cycles", "elapsed"), "queue": ("cycles",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no heading"),
        ("benchmark,cycles\nlaunch,1\n", "c.csv:1: the columns are 'benchmark', 'cycles'; they are benchmark, repet"),
        (f"{HEAD}lunch,0,cycles,1\n", "c.csv:2: benchmark: there is no benchmark 'lunch'; known: launch, queue"),
        (f"{HEAD}queue,0,elapsed,1\n", "c.csv:2: counter: queue has no counter 'elapsed'; known: cycles"),
        (f"{HEAD}# said\n\nqueue,0,cycles,nan\n", "c.csv:4: cycles: 'nan' is no number of cycles"),
        (f"{HEAD}queue,0,cycles,-3\n", "c.csv:2: cycles: '-3' is no number of cycles"),
        (f"{HEAD}queue,0,cycles,inf\n", "'inf' is no number"),
        (f"{HEAD}queue,0,cycles,1e400\n", "'1e400' is no number"),
        (f"{HEAD}queue,0,cycles,0.0\n", "c.csv:2: cycles: 0 cycles"),
        (f"{HEAD}queue,0,cycles,{'9' * 400}\n", f"'{'9' * 40}...' is no number"),
        (f"{HEAD}queue,-1,cycles,1\n", "c.csv:2: repetition: '-1' is no number"),
        (f"{HEAD}queue,0,cycles,1\nqueue,0,cycles,2\n", "c.csv:3: repetition: 0 of queue, cycles, comes twice"),
        (f"{HEAD}queue,0,cycles\n", "c.csv:2: 3 fields; there are 4 columns"),
        (f'{HEAD}"queue,0,cycles,1\n', "c.csv:2: not a line of CSV"),
        (f"{HEAD}queue,0,cycles,\n", "there are no measured cycles"),
        (HEAD + "x,0,cycles,1\n" * 100_000, "of at most 1 MiB; has a larger file"),
        (HEAD + "x,0,cycles,1\n" * 1_000, "40 problems"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CountersError, match=re.escape(said)):
        read_counters(file, KNOWN)


def damaged(text: str, random: Random) -> Iterator[bytes]:
    for _ in range(60):
        data = bytearray(text.encode())
        for _ in range(random.randint(1, 6)):
            data[random.randrange(len(data))] = random.choice(b'",\n#\x00\xff9-.eN')
        yield bytes(data[: random.randint(1, len(data))])


def test_no_damage_ends_in_anything_but_counts_or_an_error(tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    for data in damaged(f"{HEAD}queue,0,cycles,12.5\nlaunch,0,elapsed,7\nlaunch,1,elapsed,8\n", Random(3)):
        file.write_bytes(data)
        try:
            assert all(cycles > 0 for of in read_counters(file, KNOWN).cycles.values() for cycles in of)
        except CountersError:
            continue


def test_columns_come_in_any_order(tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    file.write_text("cycles,counter,benchmark,repetition\n5,cycles,queue,3\n,cycles,queue,4\n", encoding="utf-8")
    assert read_counters(file, KNOWN).cycles == {("queue", "cycles"): (5.0,)}


def test_counts_of_other_programs_are_refused(emitted: Path, tmp_path: Path) -> None:
    text = (emitted / "template.csv").read_text(encoding="utf-8").replace("launch,0,cycles,", "launch,0,cycles,40")
    (tmp_path / "c.csv").write_text(re.sub("# programs .*", "# programs 0123456789ab", text), encoding="utf-8")
    done = invoke("fit", tmp_path / "c.csv", "--chip", "stcp920", "-o", tmp_path / "fitted.yaml")
    assert done.exit_code == 1
    assert "those of the programs 0123456789ab" in done.stderr
    assert not (tmp_path / "fitted.yaml").exists()


def test_what_a_jacobian_determines() -> None:
    alone, twice, never = [1.0, 0, 0, 0], [0, 2.0, 2.0, 0], [0.0, 0, 0, 0]
    jacobian = np.array([alone, twice, [0, 1.0, 1.0, 0], never, [0, 0, 0, 0.5]]).T
    found = determine(jacobian, (0, 1, 2, 3, 4), (3.0,) * 5)
    assert found.errors == pytest.approx({0: 1.0, 1: 8**-0.5, 4: 2.0})
    assert found.partners == {2: (1,), 3: ()}
    assert found.condition == pytest.approx(1.0)
    assert determine(jacobian, (2, 1, 0), (3.0,) * 5).partners == {1: (2,), 3: (), 4: ()}
    assert determine(jacobian, (4,), (1.0,) * 5).errors == {}


def test_where_a_file_says_its_numbers_come_from() -> None:
    text, chip = chip_text("stcp920")[0], load_chip("stcp920")
    of = {path: source_of(text, path, chip) for path in calibration_of(chip).numbers}
    assert of["links.l1_to_llb.latency_cycles"].documented
    assert of["links.l1_to_llb.latency_cycles"].comment.startswith("2 bytes take 51 to 84 cycles by core")
    assert not of["engines.matrix.array_pixels"].documented  # which axis takes pixels is a guess
    assert "both" not in of["engines.matrix.array_pixels"].comment
    assert not of["engines.scalar.instruction_cache.miss_cycles"].documented
    assert "(8 + 140) / 8" in of["engines.scalar.instruction_cache.miss_cycles"].comment
    assert not [path for path, source in of.items() if path.startswith("assumed.") and source.documented]
    made = with_comments(text, {"assumed.sync_cycles": (12.5, "[measured] 12.5")}, chip)
    assert source_of(made, "assumed.sync_cycles", chip).comment == "[measured] 12.5"
