"""The price benchmark: equal seeds give equal cases, and goals are judged by the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks.lab.drawn_cases import FEATURES, drawn_case
from benchmarks.price import LEVELS_PER_CASE, clear_pairs, complaints, main, markdown, slowdown, summary
from hw_models.chip_rules import contradictions
from hw_models.loading import load_chip


def plan_row(case: int, level: str, expected: float, cycles: float) -> dict[str, Any]:
    costs = {"expected_cycles": expected, "serial_cycles": 2 * expected, "overlapped_cycles": expected}
    named = {"case": case, "network": "n", "features": [], "refusal": "", "level": level, "scheduled": True}
    return {**named, **costs, "cycles": cycles, "path": {"dma": cycles}, "busy": {"dma": expected}}


def test_equal_seeds_give_equal_cases() -> None:
    for number in range(12):
        one, other = drawn_case(7, number), drawn_case(7, number)
        assert one.chip == other.chip
        assert one.name == other.name
        assert one.network == other.network
        if isinstance(one.network, onnx.ModelProto):
            onnx.checker.check_model(one.network)


@pytest.mark.parametrize("number", range(24))
def test_odd_chips_contradict_nothing(number: int) -> None:
    case = drawn_case(11, number)
    assert not list(contradictions(case.chip))
    assert (case.chip == load_chip("stcp920")) == (not case.features)
    assert set(case.features) <= FEATURES.keys()


def test_pairs_are_those_that_differ_clearly() -> None:
    rows = [plan_row(0, "O0", 1.0, 100.0), plan_row(0, "O1", 2.0, 110.0), plan_row(0, "O2", 3.0, 130.0)]
    rows.append(plan_row(1, "O0", 1.0, 500.0))
    assert [(a["level"], b["level"]) for a, b in clear_pairs(rows)] == [("O0", "O2"), ("O1", "O2")]


def test_goals_are_judged_by_the_rows() -> None:
    plans = [plan_row(0, "O0", 200.0, 100.0), plan_row(0, "O1", 100.0, 150.0)]
    effort = {
        "case": 0, "network": "n", "features": [], "refusal": "", "fast_cycles": 30.0, "fast_seconds": 3.0,
        "normal_cycles": 10.0, "normal_seconds": 4.0, "level_cycles": {"O0": 40.0, "O2": 20.0},
    }  # fmt: skip
    said = summary(plans, [effort])
    assert (said["within"], said["ordered"], said["fast_never_slower"], said["fast_seconds_share"]) == (0, 0, 0, 0.75)
    assert slowdown(effort) == 1.5
    found = {"seed": 1, "summary": said, "plans": plans, "efforts": [effort]}
    assert len(list(complaints(found))) == 4
    assert "| 0 | n | O0, scheduled |  | 2.00 | 100 | dma 100% | dma 100% |" in markdown(found)


@pytest.mark.nightly
def test_a_few_plans_are_measured(tmp_path: Path) -> None:
    assert main(["--count", str(LEVELS_PER_CASE), "--jobs", "1", "--results", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "price.json").read_text())
    assert len(found["plans"]) == LEVELS_PER_CASE
    assert all(row["cycles"] > 0 and row["expected_cycles"] > 0 for row in found["plans"])
    assert (tmp_path / "price.md").read_text() == markdown(found)
