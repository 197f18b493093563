"""The rows of the allocation benchmark that come from plans, on a small network."""

from __future__ import annotations

import pytest

from benchmarks.allocation import SPILLS, measure_main_memory, measure_plans
from tests.chip_runs import stcp920


@pytest.mark.nightly
def test_auto_is_what_the_cost_model_finds_fastest() -> None:
    rows = {row["spill"]: row for row in measure_plans([("squeezenet", 2, 256 << 10)])}
    assert tuple(rows) == SPILLS
    assert rows["none"]["spilled"] == 0 < rows["cost"]["spilled"]
    best = min(("cost", "none"), key=lambda spill: rows[spill]["model_cycles"])
    assert rows["auto"] == {**rows[best], "spill": "auto"}
    assert all(row["scheduled_cycles"] < row["clock_cycles"] for row in rows.values())


@pytest.mark.commit
def test_a_plan_that_does_not_fit_is_a_row_too() -> None:
    rows = list(measure_plans([("resnet18_tailor-mini", 1, 1 << 8)]))
    assert [row["spill"] for row in rows] == list(SPILLS)
    assert all("needs" in row["refusal"] for row in rows)


def test_turns_need_less_main_memory_than_keeping_every_value() -> None:
    (row,) = measure_main_memory([("squeezenet", 1, "O0")], stcp920())
    assert 0 < row["constant_bytes"] < row["shared_bytes"] < row["kept_bytes"]
