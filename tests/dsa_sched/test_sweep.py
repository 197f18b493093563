"""`dsa-sched sweep`: networks, chips and options as one table, wherever it runs and however often it was ended."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dsa_sched
from dsa_sched.cli import cli
from dsa_sched.report.listing import plain_console
from dsa_sched.report.sweep_table import print_sweep, row_title
from dsa_sched.sweeping.carried_out import POINTS
from dsa_sched.sweeping.sweep_file import EXAMPLE, MOST_POINTS, SweptOptions, read_sweep
from hw_models.errors import ChipError, JobFileError
from partitioner.planners.levels import EFFORTS, LEVEL_CHOICES
from tests.pages import browser, opened
from tests.repo.test_docs import documented_keys
from tests.small_models import one_node, save

__all__ = ["browser"]

ROOT = Path(__file__).parents[2]
TABLES = ("table.csv", "table.json", "table.parquet")
STATUS = ("compiled", "planned", "refused")
LABEL = "</script><b>relu"
"""A name of a stranger who wants to become part of the page."""
SWEEP = f"""\
schema_version: 1
name: small
networks:
  - {{model: relu.onnx, name: {LABEL}}}
  - softmax.onnx
chips:
  - chip: stcp920
    set: {{clusters: 1}}
    vary:
      memories.L1.size_bytes: [64, 655_361, 1_310_720, 2_621_440]
      links.ddr_to_llb.bandwidth_bytes_per_cycle: [3.5, 27]
options: {{level: O0}}
"""
SIZES = "[64, 655_361, 1_310_720, 2_621_440]"
SIZE, RATE = "chip.memories.L1.size_bytes", "chip.links.ddr_to_llb.bandwidth_bytes_per_cycle"


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["sweep", *map(str, arguments)], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def written(folder: Path, text: str = SWEEP) -> Path:
    """A sweep file next to its networks."""
    save(one_node("Relu"), folder / "relu.onnx")
    save(one_node("Softmax", (1, 1, 2, 2048)), folder / "softmax.onnx")
    file = folder / "small.yaml"
    file.write_text(text)
    return file


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder of a sweep that was carried out, and what the command said."""
    file = written(tmp_path_factory.mktemp("sweep"))
    return file.with_suffix(".out"), invoke(file, "--jobs", 1)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "table.json").read_text())["rows"]
    return found


def tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*TABLES, "sweep.html")}


def test_there_is_a_row_for_every_combination_with_a_status_and_a_reason(swept: tuple[Path, Result]) -> None:
    folder, done = swept
    assert done.exit_code == 0, done.output
    found = rows(folder)
    assert len({(row["network"], row[SIZE], row[RATE]) for row in found}) == len(found) == 2 * 4 * 2
    status = {64: "refused", 655_361: "refused", 1_310_720: "compiled", 2_621_440: "planned"}
    assert all(row["status"] == status[row[SIZE]] for row in found if row["network"] == "softmax")
    reasons = {row[SIZE]: row["reason"] for row in found if row["network"] == "softmax"}
    assert "layer the_softmax (smallest tile): needs" in reasons[64]
    assert "655361 bytes are not a multiple" in reasons[655_361]
    assert reasons[1_310_720] == reasons[2_621_440] == ""
    assert {row["status"] for row in found if row[SIZE] == 64} == {"refused", "compiled"}
    assert done.stdout.startswith("small: 16 points: 6 compiled, 4 planned without machine code, 6 not compiled\n")


def test_progress_says_what_remains(swept: tuple[Path, Result], tmp_path: Path) -> None:
    said: list[str] = []
    file = written(tmp_path, SWEEP.replace(SIZES, "[64, 655_361]"))
    shutil.copytree(swept[0] / POINTS, tmp_path / "out" / POINTS)
    for result in list((tmp_path / "out" / POINTS).glob("*.json"))[:12]:
        result.unlink()
    dsa_sched.sweep(file, tmp_path / "out", jobs=1, progress=said.append)
    assert re.fullmatch(r"sweep: \d of 8 points(, \d refused)?, \d of them from before|sweep: 0 of 8 points", said[0])
    assert all(re.fullmatch(r"sweep: \d of 8 points(, \d refused)?, about \d+ s left", line) for line in said[1:-1])
    assert said[-1] == "sweep: 8 of 8 points, 6 refused"


def test_figures_are_those_of_compile_and_time(swept: tuple[Path, Result]) -> None:
    folder, _ = swept
    (row,) = (r for r in rows(folder) if r["network"] == "softmax" and r[SIZE] == 1_310_720 and r[RATE] == 3.5)
    changes = {"clusters": 1, "links.ddr_to_llb.bandwidth_bytes_per_cycle": 3.5}
    artifact = dsa_sched.compile(folder.parent / "softmax.onnx", dsa_sched.load_chip("stcp920", changes), level="O0")
    times = dsa_sched.time(artifact)
    assert (row["cycles"], row["items_per_second"]) == (times.cycles, pytest.approx(times.items_per_second))
    assert row["instructions"] == times.times.programs[0].instructions
    chip = artifact.chip
    own = sum(m.size_bytes for m in chip.memories if m.scope == "core")
    assert row["on_chip_bytes"] == chip.memory("LLB").size_bytes + 8 * own
    assert row["main_bytes_per_second"] == 3.5 * chip.clock_hz
    assert row["main_bytes"] == 2 * 2 * 2 * 2048
    assert "area_mm2" not in row
    assert "energy_uj" not in row


def test_an_estimate_has_the_launch_too(swept: tuple[Path, Result]) -> None:
    """So that it is near the time of the machine code of a chip that differs in memory that nothing needs."""
    asked = [row for row in rows(swept[0]) if row["network"] == "softmax" and row[RATE] == 27]
    timed, planned = ({row[SIZE]: row for row in asked}[size] for size in (1_310_720, 2_621_440))
    assert (timed["estimated"], planned["estimated"]) == (False, True)
    assert planned["seconds_per_item"] == pytest.approx(timed["seconds_per_item"], rel=0.2)
    assert planned["seconds_per_item"] > 20_000 / dsa_sched.load_chip("stcp920").clock_hz


def test_a_reason_does_not_say_where_a_file_is(tmp_path: Path) -> None:
    save(one_node("Det", (1, 3, 3)), tmp_path / "det.onnx")
    file = written(tmp_path, SWEEP.replace("softmax.onnx", "det.onnx").replace(SIZES, "1_310_720"))
    assert invoke(file, "--jobs", 1).exit_code == 0
    reasons = {row["reason"] for row in rows(tmp_path / "small.out") if row["network"] == "det"}
    assert len(reasons) == 1
    assert not any(str(tmp_path) in reason for reason in reasons)


def test_all_tables_say_the_same(swept: tuple[Path, Result]) -> None:
    folder, _ = swept
    whole = json.loads((folder / "table.json").read_text())
    names = [column["name"] for column in whole["columns"]]
    text = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    parquet = pytest.importorskip("pyarrow.parquet").read_table(folder / "table.parquet")
    assert parquet.column_names == [*text[0]] == names
    for row, said, typed in zip(whole["rows"], text, parquet.to_pylist(), strict=True):
        assert {name: cell for name, cell in typed.items() if cell is not None} == row
        assert all(said[name] == (str(row[name]).lower() if row[name] in (True, False) else str(row[name]))
                   for name in row if not isinstance(row[name], float))  # fmt: skip
        assert all(float(said[name]) == row[name] for name in row if isinstance(row[name], float))
    assert {*whole, *whole["columns"][0]} <= documented_keys("sweep")
    assert {name.partition(".")[0] for name in names} <= documented_keys("sweep")


def test_a_front_has_what_no_other_point_beats(swept: tuple[Path, Result]) -> None:
    report = dsa_sched.sweep(swept[0].parent / "small.yaml", swept[0])
    for cost in ("on_chip_bytes", "main_bytes_per_second"):
        for number in report.front(cost):
            row = report.rows[number]
            assert not any(
                (other["network"], other["estimated"]) == (row["network"], row["estimated"])
                and other[cost] <= row[cost]
                and other["items_per_second"] >= row["items_per_second"]
                and (other[cost], other["items_per_second"]) != (row[cost], row["items_per_second"])
                for other in report.rows
                if "items_per_second" in other
            )
    assert len(report.front("main_bytes_per_second")) >= 2
    assert report.front("area_mm2") == ()


def test_what_is_printed_are_the_points_on_fronts(swept: tuple[Path, Result]) -> None:
    report = dsa_sched.sweep(swept[0].parent / "small.yaml", swept[0])
    best = {*report.front("on_chip_bytes"), *report.front("main_bytes_per_second")}
    printed = swept[1].stdout.splitlines()
    table = printed[printed.index("") + 1 : printed.index("", printed.index("") + 1)]
    assert len(table) == 1 + len(best) + 1
    assert table[-1] == f"and {16 - 6 - len(best)} more, which the tables have"
    assert str(report) == swept[1].stdout[: len(str(report))]


def test_of_few_points_all_are_printed_and_each_refusal_has_its_point(swept: tuple[Path, Result]) -> None:
    whole = dsa_sched.sweep(swept[0].parent / "small.yaml", swept[0]).table
    table = replace(whole, rows=whole.rows[-8:])
    stream = io.StringIO()
    print_sweep(table, plain_console(stream))
    first, timed, refused = stream.getvalue().split("\n\n")
    rows_of = {status: [row for row in range(8) if table.cell(row, "status") == status] for status in STATUS}
    assert first.startswith("small: 8 points: ")
    assert len(timed.splitlines()) == 1 + len(rows_of["compiled"]) + len(rows_of["planned"])
    whys = [f"{row_title(table, row)}: {table.cell(row, 'reason')}" for row in rows_of["refused"]]
    assert whys
    assert refused.splitlines() == ["not compiled:", *whys]


class Killed(BaseException):
    """The end of a process, as far as the code can see it."""


def test_a_sweep_that_was_ended_goes_on_to_the_same_table(
    swept: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in the middle of writing a result: that file is not there, the others are whole and are not made
    again."""
    file, folder = written(tmp_path), tmp_path / "small.out"
    replaced = os.replace

    def ends(source: Any, target: Any) -> None:
        if len(list((folder / POINTS).glob("*.json"))) == 5:
            raise Killed
        replaced(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", ends)
        with pytest.raises(Killed):
            invoke(file, "--jobs", 1)
    before = {path: path.stat().st_mtime_ns for path in (folder / POINTS).glob("*.json")}
    assert len(before) == 5
    (folder / POINTS / "half.json").write_text("{")
    next(iter(before)).write_text('{"status": "compiled"')
    done = invoke(file, "--jobs", 1)
    assert "4 of them from before" in done.stderr
    assert tables(folder) == tables(swept[0])
    assert sum(path.stat().st_mtime_ns == moment for path, moment in before.items()) == 4


@pytest.mark.nightly
def test_a_killed_sweep_over_processes_goes_on_to_the_same_table(swept: tuple[Path, Result], tmp_path: Path) -> None:
    file, folder = written(tmp_path), tmp_path / "small.out"
    words = [sys.executable, "-m", "dsa_sched", "sweep", str(file), "--jobs", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        while running.poll() is None and len(list(folder.glob(f"{POINTS}/*.json"))) < 2:
            time.sleep(0.02)
        assert running.poll() is None, running.communicate()
        running.send_signal(signal.SIGKILL)
    assert 2 <= len(list(folder.glob(f"{POINTS}/*.json"))) < 16
    assert not (folder / "table.json").exists()
    subprocess.run(words, env=environment, check=True, capture_output=True)
    assert tables(folder) == tables(swept[0])


@pytest.mark.commit
def test_a_worker_that_dies_costs_one_point(tmp_path: Path) -> None:
    """Its row says so, and the point is tried again by the same command."""
    code = f"""
import os, sys
import dsa_sched.sweeping.sweep as sweep
from pathlib import Path
file, folder = Path({str(written(tmp_path))!r}), Path({str(tmp_path / "small.out")!r})
def dies(point, use_cache):
    if dict(point.changes)["memories.L1.size_bytes"] == 64 and point.network.label == "softmax":
        os._exit(9)
    return sweep.PointResult("refused", "for a test", None)
sweep.result_of = dies
found = sweep.run_sweep(file, folder, sweep.WorkPlace(2))
print(found.faults, len(found.results), len(list((folder / "points").iterdir())))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "16", "14"]


def test_a_point_that_a_fault_ends_is_a_row_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, SWEEP.replace(SIZES, "1_310_720"))

    def breaks(*_arguments: object) -> None:
        raise AssertionError("for a test")

    with monkeypatch.context() as patch:
        patch.setattr("dsa_sched.sweeping.point_result.figures_of", breaks)
        done = invoke(file, "--jobs", 1)
    assert done.exit_code == 1
    assert {row["reason"] for row in rows(tmp_path / "small.out")} == {"AssertionError: for a test"}
    assert "4 ended by a fault, to be tried again" in done.stdout
    assert invoke(file, "--jobs", 1).exit_code == 0
    assert {row["status"] for row in rows(tmp_path / "small.out")} == {"compiled"}


@pytest.mark.parametrize(
    ("workers", "processes"), [(1, False), pytest.param(2, True, marks=pytest.mark.nightly)], ids=str
)
def test_a_dask_cluster_gives_the_same_table(
    swept: tuple[Path, Result], tmp_path: Path, workers: int, processes: bool
) -> None:
    distributed = pytest.importorskip("distributed")
    settings = {"threads_per_worker": 1, "processes": processes, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=workers, **settings) as cluster:
        done = invoke(written(tmp_path), "--cluster", cluster.scheduler_address)
    assert done.exit_code == 0, done.output
    assert tables(tmp_path / "small.out") == tables(swept[0])


def test_workers_with_another_compiler_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    settings = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    hashes = iter(["ours", *["theirs"] * 99])
    with distributed.LocalCluster(n_workers=1, **settings) as cluster:
        monkeypatch.setattr("dsa_sched.sweeping.spread.compiler_hash", lambda: next(hashes))
        done = invoke(written(tmp_path), "--cluster", cluster.scheduler_address)
    assert done.exit_code == 1
    assert "the cluster: needs workers with this version of dsa-sched and of its libraries; has another" in done.stderr


def test_workers_with_several_threads_are_refused(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    settings = {"threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=1, **settings) as cluster:
        done = invoke(written(tmp_path), "--cluster", cluster.scheduler_address)
    assert done.exit_code == 1
    assert "needs workers with one thread each; has 2 in one of them" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cluster", "nonsense://x"], "needs the address of a Dask scheduler that answers"),
        (["--cluster", "tcp://x:1", "--jobs", 2], "--jobs is for processes of this machine"),
        (["-o", "small.yaml"], "needs a folder that can be written"),
        (["-o", "."], "needs a folder that is empty, or that of a run before"),
    ],
    ids=str,
)
def test_places_that_cannot_be_used_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[object], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke(written(Path()), *arguments)
    assert done.exit_code in (1, 2)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("package", "arguments", "said"),
    [
        (
            "pyarrow",
            ["--parquet"],
            "--parquet: needs the package pyarrow, of the extra `tables`",
        ),
        ("distributed", ["--cluster", "tcp://x:1"], "needs the package distributed"),
    ],
)
def test_without_an_extra_it_says_what_to_install(
    swept: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, arguments: list[str],
    said: str,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, package, None)
    done = invoke(written(tmp_path), *arguments)
    assert done.exit_code == 1
    assert said in done.stderr
    shutil.copytree(swept[0], tmp_path / "copy")
    (tmp_path / "copy" / "table.parquet").unlink()
    done = invoke(tmp_path / "small.yaml", "-o", tmp_path / "copy")
    assert done.exit_code == 0
    assert (tmp_path / "copy" / "table.parquet").exists() == (package != "pyarrow")
    assert ("no table.parquet: it needs the package pyarrow" in done.stderr) == (package == "pyarrow")


def test_area_and_energy_follow_from_the_coefficients_of_the_chip_file(tmp_path: Path) -> None:
    proxies = """
proxies:
  memories: [{name: L1, mm2_per_mib: 2.0, source: a made-up number}]
  engines: [{name: vector, mm2_per_unit: 0.5, source: another one}, {name: matrix, pj_per_mac: 1.5, source: one more}]
  links: [{name: ddr_to_llb, pj_per_byte: 100.0, source: the last one}]
"""
    builtin = (ROOT / "hw_models" / "chips" / "stcp920.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(builtin + proxies)
    chip = dsa_sched.load_chip(tmp_path / "mine.yaml")
    assert "proxy L1: 2 mm2 per MiB (a made-up number)" in str(chip)
    assert chip.hash != dsa_sched.load_chip("stcp920").hash
    text = SWEEP.replace("chip: stcp920", "chip: mine.yaml").replace(SIZES, "1_310_720")
    file = written(tmp_path, text.replace("[3.5, 27]", "27").replace("  - softmax.onnx\n", ""))
    assert invoke(file, "--jobs", 1).exit_code == 0
    (row,) = rows(tmp_path / "small.out")
    lanes = chip.vector.lanes
    assert row["area_mm2"] == pytest.approx(8 * (2.0 * 1_310_720 / (1 << 20) + 0.5 * lanes))
    assert row["energy_uj"] == pytest.approx(100.0 * row["moved_bytes.DDR->LLB"] / 1e6)
    wrong = proxies.replace("L1", "L9").replace("vector, mm2_per_unit", "vector, pj_per_mac")
    (tmp_path / "mine.yaml").write_text(builtin + wrong)
    with pytest.raises(ChipError) as raised:
        dsa_sched.load_chip(tmp_path / "mine.yaml")
    assert "there is no memory named 'L9'" in str(raised.value)
    assert "vector has no multiply-accumulates" in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("options:", "option:", "small.yaml:12: option: unknown field; did you mean 'options'?"),
        ("level: O0", "lvel: O0", "options.lvel: unknown field; did you mean 'level'?"),
        ("level: O0", "level: O9", "options.level[0]: 'O9' should be "),
        ("level: O0", "level: [O0, O0]", "options.level: 'O0' is given twice"),
        ("level: O0", "level: O0, per_pass: 0", "options.per_pass[0]: 0 should be auto, or a number"),
        ("level: O0", "level: O0, batch: true", "options.batch[0]: true should be a valid integer"),
        ("level: O0", "level: O3, spill: largset", "options.spill[0]: 'largset' is unknown"),
        ("stcp920", "stcp921", "did you mean 'stcp920'?"),
        ("memories.L1.size_bytes", "memories.L1.size_byte", "did you mean 'memories.L1.size_bytes'?"),
        ("memories.L1.size_bytes", "memories.L1.size", "did you mean 'memories.L1.size_bytes'?"),
        ("[3.5, 27]", "[3.5, fast]", "'fast' is not a number; the chip has 27.0"),
        ("[3.5, 27]", "[]", "should have at least 1 item"),
        ("{clusters: 1}", "{memories.L1.size_bytes: 1}", "is in set, too; give it in one of them"),
        ("softmax.onnx", "relu.onnx", ""),
        ("softmax.onnx", "{model: softmax.onnx, name: '</script><b>relu'}", "a second network called"),
        ("softmax.onnx", "*relu", "not valid YAML"),
        ("softmax.onnx", "!!python/name:os.system", "is not a number, a text or true/false"),
        ("softmax.onnx", "&a relu", "anchors and aliases (&name, *name) are not used in sweep files"),
        ("name: small", "name: a/b", "is not a name"),
        ("schema_version: 1", "schema_version: 2", "schema_version"),
        (SWEEP, "[]", "a list should be"),
        (SWEEP, "", "the file is empty"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = written(tmp_path, SWEEP.replace(old, new, 1))
    if not said:
        assert [network.label for network in read_sweep(file).networks] == [LABEL, "relu"]
        return
    with pytest.raises(JobFileError) as raised:
        read_sweep(file)
    assert said in str(raised.value)
    assert not (tmp_path / "small.out").exists()


def test_a_sweep_has_a_bounded_number_of_points(tmp_path: Path) -> None:
    many = ", ".join(str(number) for number in range(1, 1001))
    text = SWEEP.replace("[3.5, 27]", f"[{many}]").replace("level: O0", f"level: O0, batch: [{many}]")
    with pytest.raises(JobFileError, match=rf"8,000,000 points; a sweep has at most {MOST_POINTS:,}"):
        read_sweep(written(tmp_path, text))
    with pytest.raises(JobFileError, match="should have at most 1000 items"):
        read_sweep(written(tmp_path, SWEEP.replace("[3.5, 27]", f"[{many}, 1001]")))


def test_the_example_is_a_sweep_file(tmp_path: Path) -> None:
    done = invoke("--example")
    assert done.stdout == EXAMPLE
    (tmp_path / "sweep.yaml").write_text(done.stdout)
    assert read_sweep(tmp_path / "sweep.yaml").size == 8
    assert invoke().exit_code == 2


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    ((name, text),) = re.findall(r"<!-- runnable: (sweep.yaml) -->\n```yaml\n(.*?)```", page, re.DOTALL)
    (commands,) = re.findall(r"<!-- runnable -->\n```sh\n(dsa-sched sweep .*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    save(one_node("Relu"), Path("mine.onnx"))
    Path(name).write_text(text)
    for line in commands.splitlines():
        done = CliRunner().invoke(cli, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)
    assert "4 of them from before" in done.stderr
    assert {row["status"] for row in rows(Path("sweep.out"))} == {"compiled"}


def test_levels_and_efforts_are_those_of_the_command_line() -> None:
    fields = SweptOptions.model_json_schema()["properties"]
    assert {*fields["level"]["items"]["enum"]} == {*LEVEL_CHOICES}
    assert {*fields["effort"]["items"]["enum"]} == {*EFFORTS}


# In a browser.


@pytest.mark.spread(1)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
@pytest.mark.commit
def test_the_page_shows_fronts_and_rows(swept: tuple[Path, Result], browser: Any, scheme: str, width: int) -> None:
    file = swept[0] / "sweep.html"
    text = file.read_text(encoding="utf-8")
    assert LABEL not in text
    assert not re.search(r"(src|href)\s*=", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    shown, errors = opened(browser, file, scheme, width)
    assert "6 not compiled" in shown.inner_text("#summary")
    for name in ("on_chip_bytes", "main_bytes_per_second"):
        shown.click(f"button[data-tab={name}]")
        shown.wait_for_selector(f"#{name} .main-svg", state="visible", timeout=10_000)
        assert shown.eval_on_selector(f"#{name} .chart", "chart => chart.data.length") == 2 * 2 * 2
    assert not shown.locator("button[data-tab=area_mm2]").count()
    shown.click("button[data-tab=rows]")
    assert shown.locator("#rows tbody tr").count() == 16
    shown.fill("#search", "655361 bytes are")
    assert shown.locator("#rows tbody tr").count() == 4
    shown.click("#rows tbody tr >> nth=0")
    assert "655361 bytes are not a multiple" in shown.inner_text("#detail")
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert errors == []
    shown.close()
