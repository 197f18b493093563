"""The SPHINX benchmark: how it counts, what it takes over from earlier runs, and that its tables say its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.sphinx import BUDGETS, Result, compared, fewer, markdown, plan, proven_before
from dsa_sched.placement.methods.search_space import DecoderSpace, random_state
from dsa_sched.placement.methods.sphinx import list_starts, perturbed
from tests.placement_problems import random_problem

ROOT = Path(__file__).resolve().parents[2]
FEW = 500
"""Evaluations: more than the first individuals are."""


def result(*history: tuple[int, float]) -> Result:
    return Result(history[-1][1], 0.0, 5000, history, 1.0)


def test_evaluations_are_counted_until_the_makespan_of_the_plain_one() -> None:
    plain = [result((1, 90.0), (400, 80.0), (4000, 70.0)), result((1, 90.0), (100, 60.0))]
    other = [result((1, 90.0), (10, 80.0), (40, 65.0)), result((1, 90.0), (50, 61.0))]
    assert fewer(plain, other, 500) == [40.0, 0.0]
    assert fewer(plain, other, 5000) == [100.0, 0.0]
    assert compared(plain[:1], other, 5000)["median"] == 100.0
    assert compared(plain, other, 5000)["reached"] == 1


@pytest.mark.parametrize("start", ["random", "listed"])
@pytest.mark.commit
def test_both_begin_with_the_same_individuals(start: str) -> None:
    """The first makespans of either are those of the same rows, as far as CPGA takes them."""
    problem = random_problem(4, 40, 3)
    space, parts = DecoderSpace.of(problem), plan(1)
    method, search = parts[f"plain {start}"][0]
    genes, priorities = space.random(60, random_state(search))
    listed = [list_starts(space), perturbed(space, priorities)] if start == "listed" else [(genes, priorities)]
    makespans = [int(ns) for rows in listed for ns in space.decoder.evaluate(*rows)[0]]
    plain = method(problem, replace(search, evaluations=FEW))
    method, search = parts[f"cpga {start} {BUDGETS[-1]}"][0]
    cpga = method(problem, replace(search, evaluations=FEW))
    assert plain.history[0] == cpga.history[0]
    assert plain.history[0][1] == makespans[0]
    assert {ns for count, ns in plain.history if count <= len(makespans)} <= set(makespans)


def test_bounds_are_taken_over_for_an_equal_problem_only(tmp_path: Path) -> None:
    row = {"network": "n", "scenario": "s", "heft_ns": 5, "cpop_ns": 6, "bound_ns": 4}
    (tmp_path / "before.json").write_text(json.dumps({"rows": [row]}))
    proven = proven_before(tmp_path / "before.json")
    assert proven(("n", "s"), {"heft_ns": 5, "cpop_ns": 6}) == 4
    assert proven(("n", "s"), {"heft_ns": 5, "cpop_ns": 7}) == 0
    assert proven(("n", "t"), {"heft_ns": 5, "cpop_ns": 6}) == 0
    assert proven_before(None)(("n", "s"), {}) == 0


def test_committed_tables_say_the_committed_figures() -> None:
    results = ROOT / "benchmarks" / "results"
    figures = json.loads((results / "sphinx.json").read_text())
    assert markdown(figures) == (results / "sphinx.md").read_text()


def test_committed_figures_reach_what_is_claimed() -> None:
    """From list schedules, where these do not hold the optimum: at least three times fewer in the median."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "sphinx.json").read_text())["rows"]
    ratios = sorted(row["starts"]["listed"]["fewer"][-1]["median"] for row in rows if row["open"])
    assert ratios[len(ratios) // 2] >= 3
    assert all(row["starts"]["listed"]["cpga"][-1]["worst_ns"] <= row["heft_ns"] for row in rows)
