"""What a reader sees of schedules: charts, trace events, tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsa_sched.placement.methods import Search, find_method
from dsa_sched.placement.place import Placed
from dsa_sched.placement.schedule import Placement
from dsa_sched.placement.simulate import simulate
from dsa_sched.report.placement import (
    outcome_rows,
    placement_gantt,
    print_outcomes,
    print_schedule,
    schedule_trace,
    write_schedule_trace,
)
from tests.dsa_sched.placement.random_placements import random_placement
from tests.dsa_sched.placement.test_frame import chain
from tests.placement_problems import random_problem


def test_the_chart_shows_tasks_and_copies_by_letter() -> None:
    """5 ns, a copy of 110 ns, 7 ns: in 122 columns a nanosecond each."""
    problem = chain((5, 7), (5, 7))
    lines = placement_gantt(simulate(problem, Placement((0, 1), (0, 0), (0, 1))), problem, 122)
    assert lines[0] == "a        |" + "a" * 5 + " " * 117 + "|"
    assert lines[1] == "b        |" + " " * 115 + "b" * 7 + "|"
    assert lines[2] == "wire bus |" + " " * 5 + "a" * 110 + " " * 7 + "|"
    assert lines[3].split() == ["0", "122", "ns"]


@pytest.mark.parametrize("seed", range(5))
def test_a_trace_has_every_run_and_copy(seed: int, tmp_path: Path) -> None:
    problem = random_problem(seed, 10, 3, 2)
    schedule = simulate(problem, random_placement(problem, seed))
    count = write_schedule_trace(schedule, problem, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == count
    slices = [event for event in events if event["ph"] == "X"]
    assert sorted(event["name"] for event in slices) == sorted(
        [run.task for run in schedule.runs] + [copy.value for copy in schedule.copies]
    )
    assert max(event["ts"] + event["dur"] for event in slices) == pytest.approx(schedule.makespan_ns / 1e3)
    starts, ends = (sorted(event["id"] for event in events if event["ph"] == kind) for kind in "sf")
    assert starts == ends == list(range(len(schedule.copies)))
    assert list(schedule_trace(schedule, problem)) == events


def test_the_table_names_the_distance_from_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    problem = chain((5, 7), (5, 7))
    found = find_method("single")(problem, Search())
    print_outcomes(Placed(problem, ((found, 0.25),), (), 8.0))
    print_schedule(found.schedule, problem, 20)
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["single", "10", "ns", "1.250", "1.000", "0.25", "1"]
    assert "|aaaaaaaaaabbbbbbbbbb|" in out
    assert outcome_rows(Placed(problem, ((found, 0.25),), (), 10.0))[0]["proven_optimal"] is True
    assert outcome_rows(Placed(random_problem(0), ((found, 0.25),), (), 10.0))[0]["proven_optimal"] is False
