"""`dsa-sched timeline`: the trace, the chart and the table say what the clock said."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsa_sched.cli import cli
from dsa_sched.clock import RunTime, TimedProgram, time_path
from dsa_sched.driver import CompileOptions, compile_model
from dsa_sched.report.gantt import GANTT_LEVELS, busy_shares, gantt_lines, operator_rows, share_rows
from dsa_sched.report.trace_events import trace_events
from isched.timed import Flow, Issue, TimedOp, TimedStream
from isched.timeline import Timeline
from isched.timing import time_streams
from tests.chip_runs import stcp920
from tests.small_models import classifier, save

CHIP = stcp920()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model = save(classifier(), path / "classifier.onnx")
    compile_model(str(model), "stcp920", CompileOptions()).artifact.save(path / "out")
    return path / "out"


@pytest.fixture(scope="module")
def run(folder: Path) -> RunTime:
    return time_path(folder, "stcp920")


def example() -> Timeline:
    """Core 0: matrix 1..101, vector 2..52, then a matrix instruction that waits for a place; core 1: DMA."""
    first = tuple(TimedOp(name, name, Issue(1), name, work) for name, work in (("matrix", 100), ("vector", 50)))
    third = TimedOp("matrix", "matrix", Issue(1), "matrix", 99)
    dma = TimedOp("dma", "dma.start", Issue(1), "dma0.0", 66, (Flow("ddr_to_llb", 299),), starts="dma0.0#1")
    chip = CHIP.model_copy(update={"assumed": CHIP.assumed.model_copy(update={"queue_depth": 1})})
    return time_streams((TimedStream(0, (*first, third)), TimedStream(1, (dma,))), chip)


def test_events_of_an_example() -> None:
    timeline = example()
    events = list(trace_events(RunTime("x", "stcp920", 10**9, 0, (TimedProgram("x", 0, timeline),))))
    slices = [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [
        ("matrix", 0, 1, pytest.approx(20.001), pytest.approx(0.1)),
        ("vector", 0, 2, pytest.approx(20.002), pytest.approx(0.05)),
        ("waits: queue", 0, 0, pytest.approx(20.003), pytest.approx(0.098)),
        ("matrix", 0, 1, pytest.approx(20.101), pytest.approx(0.099)),
        ("dma.start", 1000, 3, pytest.approx(20.001), pytest.approx(0.076)),
    ]
    arrows = [(e["ph"], e["name"], e["tid"], e["ts"]) for e in events if e["ph"] in ("s", "f")]
    assert arrows == [("s", "queue", 1, pytest.approx(20.001)), ("f", "queue", 1, pytest.approx(20.101))]
    names = {(e["pid"], e["tid"]): e["args"] for e in events if e["name"] == "thread_name"}
    assert names[0, 0] == {"name": "scalar"}
    assert names[1000, 3] == {"name": "dma0.0"}
    assert [e["args"] for e in events if e["name"] == "process_name"] == [
        {"name": "cluster 0 core 0"},
        {"name": "cluster 0 core 1"},
        {"name": "cluster 0 DMA"},
    ]


def test_the_file_holds_every_instruction_once(folder: Path, run: RunTime, tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    result = CliRunner().invoke(cli, ["timeline", str(folder), "--chip", "stcp920", "-o", str(target)])
    assert result.exit_code == 0
    events = json.loads(target.read_text())["traceEvents"]
    assert f"{len(events):,} events in {target}" in result.stdout
    timeline = run.programs[0].timeline
    work = [event for event in events if event["ph"] == "X" and event["cat"] != "wait"]
    assert len(work) == sum(1 for span in timeline.spans if span.unit)
    for unit in ("matrix", "vector", "transfer"):
        took = sum(event["args"]["cycles"] for event in work if event["cat"] == unit)
        assert took == pytest.approx(timeline.busy_cycles[unit])
    waits = [event for event in events if event.get("cat") == "wait" and event["ph"] == "X"]
    assert sum(event["dur"] for event in waits) * 1e3 == pytest.approx(sum(timeline.stall_cycles.values()))


def test_slices_of_a_track_do_not_overlap_and_arrows_have_two_ends(run: RunTime) -> None:
    tracks: dict[tuple[object, object], list[tuple[float, float]]] = defaultdict(list)
    ends: dict[object, list[object]] = defaultdict(list)
    for event in trace_events(run):
        if event["ph"] == "X":
            start, duration = float(str(event["ts"])), float(str(event["dur"]))
            tracks[event["pid"], event["tid"]].append((start, start + duration))
        elif event["ph"] in ("s", "f"):
            ends[event["id"]].append(event["ph"])
    for slices in tracks.values():
        slices.sort()
        assert all(later >= end - 1e-6 for (_, end), (later, _) in pairwise(slices))
    assert ends
    assert all(phases == ["s", "f"] for phases in ends.values())


def test_slices_are_named_by_operator(run: RunTime) -> None:
    names = {event["name"] for event in trace_events(run) if event["ph"] == "X" and event["cat"] == "matrix"}
    sources = {span.source for span in run.programs[0].timeline.spans if span.unit == "matrix"}
    assert names == sources
    assert all(sources)


def test_the_chart_is_darker_where_more_is_done() -> None:
    lines = gantt_lines(example(), 10)
    # 200 cycles after the launch in stretches of 20; the vector engine works from 2 to 52.
    assert [line.partition("|")[0].strip() for line in lines] == ["core 0 matrix", "core 0 vector", "dma0.0"]
    assert lines[1].partition("|")[2] == f"{GANTT_LEVELS[8]}@{GANTT_LEVELS[5]}       |"
    assert lines[0].endswith("%@@@@@@@@@|")


def test_shares_of_stretches_add_up(run: RunTime) -> None:
    timeline = run.programs[0].timeline
    width = (timeline.cycles - timeline.launch_cycles) / 7
    for unit, busy in timeline.busy_cycles.items():
        work = [(span.start, span.end) for span in timeline.spans if span.unit == unit]
        assert sum(busy_shares(timeline, work, 7)) * width == pytest.approx(busy)
    rows = share_rows(timeline, 7)
    assert len(rows) == 7
    assert rows[0][0] == "0"
    assert rows[-1][1] == f"{timeline.cycles - timeline.launch_cycles:,.0f}"


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
    flow = (Flow("ddr_to_llb", 29900),)
    ops = tuple(TimedOp("dma", "dma.start", Issue(1), f"dma{n}.0", 66, flow, starts=f"dma{n}.0#1") for n in (0, 1))
    timeline = time_streams((TimedStream(0, ops),), CHIP)
    assert float(share_rows(timeline, 1)[0][-1].rstrip("%")) == pytest.approx(100, abs=0.1)


def test_a_run_without_work_has_an_empty_chart() -> None:
    timeline = time_streams((TimedStream(0, ()),), CHIP)
    assert gantt_lines(timeline, 20) == []
    assert busy_shares(timeline, [], 3) == [0.0, 0.0, 0.0]
