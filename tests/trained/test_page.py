"""benchmarks/results/trained.md has the table of the last run of the benchmark, with all networks that there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.trained import markdown, with_table, worst
from tests.trained.network import Network
from tests.trained.results import rows
from tests.trained.table import NETWORKS

PAGE = (Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "trained.md").read_text(encoding="utf-8")
CONVOLUTIONAL, RECURRENT = 3.0, 4.0
"""Times the error of storage that need no remark."""

LEAST_NETWORKS, LEAST_KINDS = 8, 4


def test_the_page_has_the_table_of_the_last_run() -> None:
    assert with_table(PAGE, markdown(list(rows().values()))) == PAGE
    assert tuple(rows()) == tuple(network.name for network in NETWORKS)


@pytest.mark.parametrize("network", [pytest.param(network, id=network.name) for network in NETWORKS])
def test_the_last_run_found_what_is_expected(network: Network) -> None:
    row = rows()[network.name]
    assert bool(row["refused"]) == bool(network.refused)
    if network.refused or network.wrong:
        assert row["refused"] is None or network.refused in row["refused"]
        return
    assert row["equal"]
    name = worst(row)
    error, stored = row["errors"][name], row["stored"][name]
    assert network.remark or error <= (RECURRENT if network.recurrent else CONVOLUTIONAL) * stored


def test_enough_networks_of_enough_kinds_are_right() -> None:
    right = [row for row in rows().values() if row.get("equal")]
    assert len(right) >= LEAST_NETWORKS
    assert len({row["kind"] for row in right}) >= LEAST_KINDS


def test_a_row_says_what_is_refused_and_what_is_no_number() -> None:
    common: dict[str, Any] = {
        "network": "n", "kind": "k", "package": "p", "version": "1", "licence": "MIT", "fed": "tones", "remark": "why",
        "operators": {"Conv": 2}, "refused": None, "equal": False, "errors": {"y": None, "z": 0.5},
        "stored": {"y": 1e-3, "z": 1e-3}, "summed": {"y": 2e-3, "z": 1e-3}, "range_left": True,
    }  # fmt: skip
    made = markdown([common, common | {"refused": "Conv a|b: too long"}]).splitlines()
    cells = ("n", "k", "p 1", "MIT", "Conv", "tones", "**different**", "not a number", "1.0e-03 (range of float32)")
    assert made[2] == f"| {' | '.join(cells)} | 2.0e-03 | - | why |"
    assert made[3].endswith("| tones | - | - | - | - | - | refused: Conv a b: too long |")
