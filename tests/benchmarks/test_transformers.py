"""What the benchmark of transformers complains about: each threshold by a row that misses it alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.transformers import CASES, complaints, markdown

ROOT = Path(__file__).resolve().parents[2]
FIRST = CASES[0]
REACHED: dict[str, Any] = {
    "network": "bert_base",
    "length": 128,
    "batch": 8,
    "layers": 12,
    "compiled_layers": 12,
    "level": "streamed",
    "passes": 1,
    "cycles": 7_000_000,
    "per_second": 4_571.4,
    "goal_per_second": 4_052,
    "layer_cycles": None,
    "main_reads": 1.0,
    "weight_moves": 1.0,
    "seconds": 120.0,
    "plan_ratio": 1.5,
}


def test_a_row_that_reaches_all_is_no_complaint() -> None:
    assert list(complaints([REACHED], [FIRST])) == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("per_second", 4_000.0, "bert_base 128, 8 a cluster: 4,000 items/s of 4,052"),
        ("main_reads", 1.2, "bert_base 128, 8 a cluster: reads 1.20 times its inputs and constants, at most 1.1"),
        ("weight_moves", 2.0, "bert_base 128, 8 a cluster: a weight goes 2.00 times to a core, at most 1"),
        ("plan_ratio", 3.2, "bert_base 128, 8 a cluster: planning takes 3.2 times that of 2 layers, at most 2.0"),
        ("seconds", 300.0, "bert_base 128, 8 a cluster: 300 s of the processor to compile, at most 199"),
    ],
)
def test_each_threshold_is_told_with_what_there_is(key: str, value: float, said: str) -> None:
    assert list(complaints([REACHED | {key: value}], [FIRST])) == [said]


def test_a_row_that_is_extended_says_so() -> None:
    assert "| bert_base 128 | 8 | streamed | 7.00 | 4,571 | 4,052 |" in markdown([REACHED])
    assert "bert_base 128 (from 2 of 12 layers)" in markdown([REACHED | {"compiled_layers": 2}])


def test_the_published_goals_are_those_of_the_issue() -> None:
    goals = {(case.network, case.length, case.batch): case.goal_per_second for case in CASES}
    assert goals == {
        ("bert_base", 128, 8): 4_052,
        ("bert_base", 128, 16): 4_500,
        ("bert_large", 384, 2): 280,
        ("vit_b16", 0, 8): 2_400,
    }


def test_an_unknown_combination_is_refused() -> None:
    command = [sys.executable, "benchmarks/transformers.py", "--network", "vit_b16", "--batch", "16"]
    said = subprocess.run(command, text=True, capture_output=True, cwd=ROOT)
    assert said.returncode == 2
    assert "no network is measured at such a batch" in said.stderr
