"""The benchmark of larger chips: every drawn chip and its larger one can be, and goals are judged by the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.larger_chips import (
    CHIPS,
    DOUBLED_PER_CHIP,
    FIELDS,
    NETWORKS,
    SEED,
    chip_of,
    complaints,
    drawn_case,
    main,
    markdown,
    slowdown,
)
from codegen.neuralscale.emit.limits import unsuited
from hw_models.chip_rules import contradictions
from hw_models.loading import load_chip

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results"


def row(cycles: float, larger_cycles: float, refusal: str = "") -> dict[str, Any]:
    named = {"case": 0, "network": "n", "batch": 1, "factors": {"L1": 0.5}, "doubled": "L1", "refusal": refusal}
    made = {"cycles": cycles, "chosen": "O2", "seconds": 1.0, "larger_chosen": "O3", "larger_seconds": 1.0}
    return {**named, **made, "larger_cycles": larger_cycles}


def test_factors_of_one_leave_the_chip_as_it_is() -> None:
    assert chip_of(dict.fromkeys(FIELDS, 1.0)).hash == load_chip("stcp920").hash


@pytest.mark.parametrize("number", range(CHIPS))
def test_the_instruction_set_allows_every_chip_and_twice_as_much_of_it(number: int) -> None:
    case = drawn_case(SEED, number)
    assert case == drawn_case(SEED, number)
    assert len(set(case.doubled)) == DOUBLED_PER_CHIP
    for name in case.doubled:
        smaller, larger = chip_of(case.factors), chip_of({**case.factors, name: 2 * case.factors[name]})
        assert smaller != larger
        for chip in (smaller, larger):
            assert not list(contradictions(chip))
            assert not unsuited(chip)


def test_slower_and_refused_larger_chips_are_complained_of() -> None:
    rows = [row(100.0, 101.0), row(100.0, 100.0), row(100.0, 0.0, "does not fit")]
    assert [slowdown(each) for each in rows] == [1.01, 1.0, 1.0]
    found = {"seed": 1, "rows": rows}
    assert len(list(complaints(found))) == 2
    assert "| 0 | n | 1 | L1 | 100 | 101 | 1.010 | O2, then O3 |" in markdown(found)


def test_committed_points_are_of_this_drawing() -> None:
    found = json.loads((RESULTS / "larger_chips.json").read_text())
    points = [(each["case"], each["network"], each["doubled"]) for each in found["rows"]]
    cases = [drawn_case(SEED, number) for number in range(CHIPS)]
    drawn = [(n, case.network, name) for n, case in enumerate(cases) for name in case.doubled]
    assert points == [point for point in drawn if point in points]
    assert {case.network for case in cases} == set(NETWORKS)
    assert (RESULTS / "larger_chips.md").read_text() == markdown(found)


@pytest.mark.nightly
def test_one_chip_is_measured(tmp_path: Path) -> None:
    assert main(["--chips", "1", "--jobs", "1", "--results", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "larger_chips.json").read_text())
    assert len(found["rows"]) == DOUBLED_PER_CHIP
