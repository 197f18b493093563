"""`dsa-sched timeline`: the trace, the chart, the tables and the plots say what the cycle model said."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dsa_sched.analysis.artifact_timing import RunTime, TimedProgram, time_path
from dsa_sched.analysis.network_stages import plan_groups
from dsa_sched.analysis.parts import parts_of
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.report.gantt import GANTT_LEVELS, busy_shares, gantt_lines, operator_rows
from dsa_sched.report.memory import memory_rows
from dsa_sched.report.trace_events import COLOURS, trace_events
from dsa_sched.report.usage import part_rows, stretch_rows
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import size_text
from isched.program.timed_ops import IssueCost, LinkFlow, TimedOp, TimedStream
from isched.timing.cycle_model import time_streams
from isched.timing.occupancy import occupancies
from isched.timing.timeline import Timeline
from isched.timing.utilisation import usage_of_run
from partitioner.ir.plan import parse_plan
from partitioner.planners.levels import O0
from tests.chip_runs import stcp920
from tests.small_models import classifier, save

CHIP = stcp920()
Event = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model = save(classifier(), path / "classifier.onnx")
    compile_model(str(model), "stcp920", CompileOptions(O0())).artifact.save(path / "out")
    return path / "out"


@pytest.fixture(scope="module")
def run(folder: Path) -> RunTime:
    return time_path(folder, "stcp920")


def example() -> Timeline:
    """Core 0: matrix 1..101, vector 2..52, then a matrix instruction that waits for a place; core 1: DMA."""
    first = tuple(TimedOp(name, name, IssueCost(1), name, work) for name, work in (("matrix", 100), ("vector", 50)))
    third = TimedOp("matrix", "matrix", IssueCost(1), "matrix", 99)
    dma = TimedOp("dma", "dma.start", IssueCost(1), "dma0.0", 66, (LinkFlow("ddr_to_llb", 270),), starts="dma0.0#1")
    chip = CHIP.model_copy(update={"assumed": CHIP.assumed.model_copy(update={"queue_depth": 1})})
    return time_streams((TimedStream(0, (*first, third)), TimedStream(1, (dma,))), chip)


def test_events_of_an_example() -> None:
    timeline = example()
    events = list(trace_events(RunTime("x", "stcp920", 10**9, 0, (TimedProgram("x", 0, timeline),))))
    slices = [
        (e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["cat"] != "operator"
    ]
    assert slices == [
        ("matrix", 0, 1, 0.001, 0.1),
        ("dma.start", 1000, 3, 0.001, 0.076),
        ("vector", 0, 2, 0.002, 0.05),
        ("waits: queue", 0, 0, 0.003, 0.098),
        ("matrix", 0, 1, 0.101, 0.099),
    ]
    around = [(e["pid"], e["tid"], e["ts"], e["dur"], e["args"]) for e in events if e.get("cat") == "operator"]
    assert around == [
        (0, 1, 0.001, 0.199, {"operator": "-", "instructions": 2}),
        (1000, 3, 0.001, 0.076, {"operator": "-", "instructions": 1}),
        (0, 2, 0.002, 0.05, {"operator": "-", "instructions": 1}),
    ]
    arrows = [(e["ph"], e["name"], e["tid"], e["ts"]) for e in events if e["ph"] in ("s", "f")]
    assert arrows == [("s", "queue", 1, 0.1), ("f", "queue", 1, 0.101)]
    names = {(e["pid"], e["tid"]): e["args"] for e in events if e["name"] == "thread_name"}
    assert names[0, 0] == {"name": "scalar"}
    assert names[1000, 3] == {"name": "dma0.0"}
    assert [e["args"] for e in events if e["name"] == "process_name"] == [
        {"name": "cluster 0 core 0"},
        {"name": "cluster 0 core 1"},
        {"name": "cluster 0 DMA"},
    ]


@pytest.fixture(scope="module")
def trace(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Event]]:
    """What the command says, and the events of the file that it writes."""
    target = tmp_path_factory.mktemp("trace") / "trace.json"
    result = CliRunner().invoke(cli, ["timeline", str(folder), "--chip", "stcp920", "--by", "group", "-o", str(target)])
    assert result.exit_code == 0
    events = json.loads(target.read_text())["traceEvents"]
    assert f"{len(events):,} events in {target}" in result.stdout
    return result.stdout, events


def test_the_file_holds_every_instruction_once(run: RunTime, trace: tuple[str, list[Event]]) -> None:
    timeline, events = run.programs[0].timeline, trace[1]
    work = [event for event in events if event["ph"] == "X" and event["cat"] not in ("wait", "group")]
    assert len(work) == sum(1 for span in timeline.spans if span.unit)
    for unit in ("matrix", "vector", "transfer"):
        took = sum(event["args"]["cycles"] for event in work if event["cat"] == unit)
        assert took == pytest.approx(timeline.busy_cycles[unit])
    waits = [event for event in events if event.get("cat") == "wait" and event["ph"] == "X"]
    rounding = len(waits)
    assert sum(event["dur"] for event in waits) * 1e3 == pytest.approx(
        sum(timeline.stall_cycles.values()), abs=rounding
    )


def test_there_is_one_track_for_each_engine_of_each_core(run: RunTime, trace: tuple[str, list[Event]]) -> None:
    timeline, events = run.programs[0].timeline, trace[1]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    tracks = [(processes[e["pid"]], e["args"]["name"]) for e in events if e["name"] == "thread_name"]
    assert len(set(tracks)) == len(tracks)
    engines = {(f"cluster 0 core {s.core}", s.unit) for s in timeline.spans if timeline.engine_kinds.get(s.unit)}
    channels = {("cluster 0 DMA", span.unit) for span in timeline.spans if span.unit.startswith("dma")}
    scalar = {(f"cluster 0 core {core}", "scalar") for core in timeline.cores}
    assert set(tracks) == engines | channels | scalar
    known = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in ("X", "s", "f")} <= known


def test_events_are_in_order_of_time_in_whole_nanoseconds(trace: tuple[str, list[Event]]) -> None:
    kinds = [event["ph"] for event in trace[1]]
    named = kinds.count("M")
    assert kinds[:named] == ["M"] * named
    times = [event["ts"] for event in trace[1][named:]]
    assert times == sorted(times)
    for event in trace[1][named:]:
        for key in ("ts", "dur"):
            assert event.get(key, 0) * 1000 == pytest.approx(round(event.get(key, 0) * 1000), abs=1e-6)


def test_slices_of_a_track_nest(trace: tuple[str, list[Event]]) -> None:
    for slices in nanoseconds(trace[1]).values():
        open_until: list[int] = []
        for start, end, _ in slices:  # in the order of the file
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            assert len(open_until) < 2
            open_until.append(end)


def test_every_arrow_has_two_ends_inside_slices(trace: tuple[str, list[Event]]) -> None:
    tracks = nanoseconds(trace[1])
    ends: dict[object, dict[str, int]] = defaultdict(dict)
    for event in trace[1]:
        if event["ph"] in ("s", "f"):
            time = round(event["ts"] * 1000)
            assert event["ph"] not in ends[event["id"]]
            ends[event["id"]][event["ph"]] = time
            track = tracks[event["pid"], event["tid"]]
            assert any(start <= time < max(end, start + 1) and not part for start, end, part in track)
    assert ends
    assert all(set(pair) == {"s", "f"} and pair["s"] <= pair["f"] for pair in ends.values())
    causes = {event["name"] for event in trace[1] if event["ph"] == "s"}
    assert {"barrier", "conflict", "drain", "transfer"} <= causes, "other cores, engines and the DMA are waited for"


def test_an_arrow_to_a_barrier_comes_from_what_the_last_core_did() -> None:
    barrier = TimedOp("sync", "sync", IssueCost(1), rendezvous="b1")
    work = TimedOp("matrix", "matrix", IssueCost(1), "matrix", 50, source="late")
    timeline = time_streams((TimedStream(0, (work, barrier)), TimedStream(1, (barrier,))), CHIP)
    events = list(trace_events(RunTime("x", "stcp920", 10**9, 0, (TimedProgram("x", 0, timeline),))))
    arrows = sorted((e["id"], e["ph"] == "f", e["name"], e["pid"], e["tid"]) for e in events if e["ph"] in ("s", "f"))
    assert [arrow[1:] for arrow in arrows] == [
        (False, "drain", 0, 1),
        (True, "drain", 0, 0),
        (False, "barrier", 0, 1),
        (True, "barrier", 1, 0),
    ]


def nanoseconds(events: list[Event]) -> dict[tuple[int, int], list[tuple[int, int, bool]]]:
    """Track -> start and end of its slices, and whether each is a part's."""
    tracks: dict[tuple[int, int], list[tuple[int, int, bool]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start, duration = round(event["ts"] * 1000), round(event["dur"] * 1000)
            tracks[event["pid"], event["tid"]].append((start, start + duration, event["cat"] == "group"))
    return tracks


def test_colours_and_slices_by_part(folder: Path, trace: tuple[str, list[Event]]) -> None:
    groups = plan_groups(parse_plan((folder / "plan.txt").read_text()))
    around = [event for event in trace[1] if event.get("cat") == "group"]
    letters = dict(event["name"].split(" ") for event in around)
    assert set(letters.values()) == set(groups.values()) - {"flatten"}, "a view does nothing"
    assert len(letters) == len(set(letters.values())), "a letter of its own for each group"
    colours = {event["args"]["group"]: event["cname"] for event in around}
    assert set(colours.values()) <= set(COLOURS)
    for event in trace[1]:
        if event["ph"] == "X" and event.get("cat") in ("matrix", "vector", "transfer", "dma"):
            assert event["args"]["group"] == groups[event["name"]]
            assert event["cname"] == colours[groups[event["name"]]]
    assert sum(event["args"]["instructions"] for event in around) == sum(
        1 for event in trace[1] if event["ph"] == "X" and event["cat"] in ("matrix", "vector", "transfer", "dma")
    )


def test_counters_say_what_the_memories_hold(run: RunTime, trace: tuple[str, list[Event]]) -> None:
    held = occupancies(run.programs[0].timeline, run.programs[0].streams, CHIP)
    most: dict[tuple[int, str], int] = defaultdict(int)
    for event in trace[1]:
        if event["ph"] == "C":
            key = event["pid"], event["name"]
            most[key] = max(most[key], event["args"]["bytes"])
    process = {one.core: one.core if one.core >= 0 else 1000 for one in held}
    assert most == {(process[one.core], f"{one.memory} live bytes"): one.peak_bytes for one in held}


def test_slices_are_named_by_operator(run: RunTime) -> None:
    names = {event["name"] for event in trace_events(run) if event["ph"] == "X" and event["cat"] == "matrix"}
    sources = {span.source for span in run.programs[0].timeline.spans if span.unit == "matrix"}
    assert names == sources
    assert all(sources)


def test_the_chart_is_darker_where_more_is_done() -> None:
    lines = gantt_lines(example(), 10, each_core=True)
    # 200 cycles after the launch in stretches of 20; the vector engine works from 2 to 52.
    assert [line.partition("|")[0].strip() for line in lines] == ["core 0 matrix", "core 0 vector", "dma0.0", ""]
    assert lines[1].partition("|")[2] == f"{GANTT_LEVELS[8]}@{GANTT_LEVELS[5]}       |"
    assert lines[0].endswith("%@@@@@@@@@|")
    mean = gantt_lines(example(), 10)
    assert [line.partition("|")[0].strip() for line in mean] == ["matrix", "vector", "dma0.0", ""]
    assert mean[0].endswith(f"|{GANTT_LEVELS[4] * 10}|"), "one of two cores works"


def test_the_chart_has_letters_and_a_time_axis(run: RunTime) -> None:
    parts = parts_of(run, run.programs[0].timeline, "group")
    lines = gantt_lines(run.programs[0].timeline, 120, parts=parts)
    assert lines[0].startswith("group ")
    letters = lines[0].partition("|")[2].rstrip("| ")
    assert list(dict.fromkeys(letters)) == list(parts.letters.values())
    timeline = run.programs[0].timeline
    end = (timeline.cycles - timeline.launch_cycles) / 1000
    assert lines[-1].endswith(f"{end:,.1f} us|")
    assert len({len(line) for line in lines}) == 1


def test_shares_of_stretches_add_up(run: RunTime) -> None:
    timeline = run.programs[0].timeline
    width = (timeline.cycles - timeline.launch_cycles) / 7
    for unit, busy in timeline.busy_cycles.items():
        work = [(span.start, span.end) for span in timeline.spans if span.unit == unit]
        assert sum(busy_shares(timeline, work, 7)) * width == pytest.approx(busy)
    rows = stretch_rows(timeline, 7)
    end = f"{timeline.cycles - timeline.launch_cycles:,.0f}"
    assert [row[0] for row in rows[:2]] == ["0", f"{width:,.0f}"]
    assert [row[:2] for row in rows[7:]] == [("0", end)], "the whole run comes last"
    assert rows[6][1] == end


def test_the_tables_say_what_the_timeline_says(run: RunTime) -> None:
    timeline = run.programs[0].timeline
    parts = parts_of(run, timeline, "stage")
    rows = part_rows(timeline, parts)
    assert [row[:2] for row in rows] == [*parts.letters.items(), ("whole run", "")]
    whole = rows[-1]
    shares = [f"{timeline.utilisation[kind]:.1%}" for kind in ("matrix", "vector", "transfer")]
    assert list(whole[5:8]) == shares
    assert list(whole[-4:]) == [f"{overlap.share:.1%}" for overlap in timeline.overlaps.values()]
    cycles = [int(row[4].replace(",", "")) for row in rows]
    assert sum(cycles[:-1]) == pytest.approx(cycles[-1], abs=len(rows))
    held = occupancies(timeline, run.programs[0].streams, CHIP)
    table = memory_rows(timeline, held, parts)
    assert [row[0] for row in table] == ["DDR", "LLB", "L1", "IM"]
    for row in table:
        peaks = [one.peak_bytes for one in held if one.memory == row[0]]
        assert row[2] == size_text(max(peaks))
        assert row[5] in parts.letters


def test_operators_in_the_order_of_their_work(folder: Path, run: RunTime) -> None:
    timeline = run.programs[0].timeline
    rows = operator_rows(timeline)
    starts = [int(row[1].replace(",", "")) for row in rows]
    assert starts == sorted(starts)
    for place, unit in ((4, "matrix"), (5, "vector"), (6, "transfer")):
        total = sum(int(row[place].replace(",", "")) for row in rows)
        assert total == pytest.approx(timeline.busy_cycles[unit], abs=len(rows))
    assert sum(int(row[3].replace(",", "")) for row in rows) == sum(1 for span in timeline.spans if span.unit)
    said = CliRunner().invoke(cli, ["timeline", str(folder), "--chip", "stcp920", "--operators"]).stdout
    assert all(row[0] in said for row in rows)


def test_channels_that_work_together_count_once() -> None:
    flow = (LinkFlow("ddr_to_llb", 27000),)
    ops = tuple(TimedOp("dma", "dma.start", IssueCost(1), f"dma{n}.0", 66, flow, starts=f"dma{n}.0#1") for n in (0, 1))
    timeline = time_streams((TimedStream(0, ops),), CHIP)
    assert usage_of_run(timeline).utilisation("dma") == pytest.approx(1, abs=0.001)


def test_a_run_without_work_has_an_empty_chart() -> None:
    timeline = time_streams((TimedStream(0, ()),), CHIP)
    assert gantt_lines(timeline, 20) == []
    assert busy_shares(timeline, [], 3) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "options", [("-o", "a.json", "--json", "a.json"), ("--memory", "a.png", "--memory", "./a.png")]
)
def test_two_outputs_of_one_name_are_refused(
    folder: Path, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["timeline", str(folder), "--chip", "stcp920", *options])
    assert result.exit_code == 2
    assert "is named twice" in result.stderr
