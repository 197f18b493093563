"""What a reader sees of schedules: charts, trace events, tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import pytest

from dsa_sched.placement.methods.registry import Search, find_method
from dsa_sched.placement.model.task_graph import ENDS
from dsa_sched.placement.schedule.schedule import TaskPlacement
from dsa_sched.placement.schedule.simulate import simulate
from dsa_sched.placing.place import PlacementResult
from dsa_sched.report.placement import (
    outcome_rows,
    placement_gantt,
    print_outcomes,
    print_placed,
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
    lines = placement_gantt(simulate(problem, TaskPlacement((0, 1), (0, 0), (0, 1))), problem, 122)
    assert lines[0] == "a        |" + "a" * 5 + " " * 117 + "|"
    assert lines[1] == "b        |" + " " * 115 + "b" * 7 + "|"
    assert lines[2] == "wire bus |" + " " * 5 + "a" * 110 + " " * 7 + "|"
    assert lines[3].split() == ["0", "122", "ns"]


def test_the_chart_says_which_task_a_letter_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Of forty tasks, those that take the longest have letters, each its own; the others are dots."""
    problem = random_problem(1, 40, 2)
    schedule = simulate(problem, random_placement(problem, 1))
    print_schedule(schedule, problem, 500)
    lines = capsys.readouterr().out.splitlines()
    chart = {sign for line in lines if line.endswith("|") for sign in line.split("|")[1]}
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["letter", "task"])
    legend = {line.split()[0]: line.split()[1:3] for line in lines[head + 1 :]}
    assert chart - {" ", "<"} <= legend.keys()
    assert legend.pop(".") == ["14", "others"]
    assert list(legend) == list(ascii_lowercase)
    took = {run.task: run.end_ns - run.start_ns for run in schedule.runs if run.task not in ENDS}
    assert sorted(took[task] for task, _ in legend.values()) == sorted(took.values())[-26:]
    assert all(schedule.run_of[task].machine == machine for task, machine in legend.values())


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


def test_each_bound_is_for_the_tasks_of_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Large parts that are compiled as one may take less than their layers."""
    problem, coarser = random_problem(1), chain((1, 1), (1, 1))
    layers, parts = (find_method("single")(each, Search()) for each in (problem, coarser))
    layers, parts = replace(layers, bound_ns=8.0), replace(parts, method="duet", bound_ns=2.0)
    placed = PlacementResult(problem, ((layers, 0.25), (parts, 0.25)), (), 8.0)
    rows = outcome_rows(placed)
    assert [row["tasks"] for row in rows] == [7, 2]
    assert [row["over_bound"] for row in rows] == [layers.makespan_ns / 8, 1.0]
    assert [row["optimal_for_these_tasks"] for row in rows] == [False, True]
    print_placed(placed)
    out = capsys.readouterr().out
    assert "duet: optimal for these 2 tasks at these prices\n" in out
    assert "as 7 tasks of one layer each, the network takes at least 8 ns at these prices" in out


def test_the_table_names_the_distance_from_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    problem = chain((5, 7), (5, 7))
    found = replace(find_method("single")(problem, Search()), bound_ns=8.0)
    print_outcomes(PlacementResult(problem, ((found, 0.25),), (), 8.0))
    print_schedule(found.schedule, problem, 20)
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["single", "2", "10", "ns", "1.250", "1.000", "0.25", "1"]
    assert "|aaaaaaaaaabbbbbbbbbb|" in out
