"""ONNX's node tests stay at least as good as the table says: a spread of them always, all of them when marked slow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hw_models.chip import Chip
from hw_models.loading import load_chip
from tests.onnx_backend.node_cases import NodeCase, node_cases
from tests.onnx_backend.outcome import Outcome, judge
from tests.onnx_backend.table import read_table, worse, write_table

PASSING_ALWAYS, OTHERS_ALWAYS = 30, 20
LEAST_PASSING = 300


@pytest.fixture(scope="module")
def cases() -> dict[str, NodeCase]:
    return {case.name: case for case in node_cases()}


@pytest.fixture(scope="module")
def chip() -> Chip:
    return load_chip("stcp920")


def spread(names: list[str], count: int) -> list[str]:
    """`count` of the sorted names, at equal distances."""
    return [names[index * len(names) // count] for index in range(count)] if len(names) > count else names


def rejudged(names: list[str], cases: dict[str, NodeCase], chip: Chip, folder: Path) -> list[str]:
    """What became worse among the named cases."""
    table = read_table()
    now = {name: judge(cases[name], chip, folder) for name in names if name in cases}
    return worse({name: table[name] for name in names}, now)


@pytest.mark.commit
def test_a_spread_of_the_table_holds(cases: dict[str, NodeCase], chip: Chip, tmp_path: Path) -> None:
    table = read_table()
    passing = [name for name, outcome in table.items() if outcome.status == "pass"]
    refused = [name for name, outcome in table.items() if outcome.status == "refused"]
    names = spread(passing, PASSING_ALWAYS) + spread(refused, OTHERS_ALWAYS)
    assert rejudged(names, cases, chip, tmp_path) == []


@pytest.mark.nightly
def test_the_whole_table_holds(cases: dict[str, NodeCase], chip: Chip, tmp_path: Path) -> None:
    assert rejudged(list(read_table()), cases, chip, tmp_path) == []


@pytest.mark.commit
def test_the_table_is_about_the_installed_onnx(cases: dict[str, NodeCase]) -> None:
    assert sorted(read_table()) == sorted(cases)


def test_the_table_is_good_enough() -> None:
    counts = Counter(outcome.status for outcome in read_table().values())
    assert counts["pass"] >= LEAST_PASSING
    assert counts["crash"] == 0


@pytest.mark.commit
def test_a_wrong_value_is_a_mismatch(cases: dict[str, NodeCase], chip: Chip, tmp_path: Path) -> None:
    case = cases["test_add"]
    wrong = NodeCase(case.name, case.model, case.inputs, {n: v * 2 for n, v in case.expected.items() if v is not None})
    assert judge(case, chip, tmp_path).status == "pass"
    assert judge(wrong, chip, tmp_path).status == "mismatch"


def test_what_became_worse_is_named(tmp_path: Path) -> None:
    before = {"a": Outcome("pass"), "b": Outcome("refused", "no rule"), "c": Outcome("pass"), "d": Outcome("refused")}
    now = {"a": Outcome("refused", "no rule"), "b": Outcome("crash", "KeyError"), "d": Outcome("pass")}
    assert worse(before, now) == [
        "a: was pass, is refused (no rule)",
        "b: was refused, is crash (KeyError)",
        "c: was pass, is no longer run",
    ]
    write_table(before, tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv") == before
