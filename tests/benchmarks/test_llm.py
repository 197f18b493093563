"""The benchmark of language models: what its bounds count, and which goals its rows have."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.llm import HEAD, LAYER, Case, cases, goals_of, model_of, stored_bytes, with_rates

NETWORK = "gemma3_270m"
WIDTH, QUERIES, KEYS, INNER = 640, 1024, 256, 2048
FACTORS = WIDTH * (QUERIES + 2 * KEYS) + QUERIES * WIDTH + 3 * WIDTH * INNER


def row(part: str, weights: str, cycles: float, bound: float, rows: int = 1) -> dict[str, Any]:
    return {
        "case": f"{part} {rows} {weights}", "network": NETWORK, "part": part, "rows": rows, "cached": 512,
        "weights": weights, "cycles": cycles, "bound_cycles": bound, "tokens_per_second": None,
    }  # fmt: skip


def test_weights_and_caches_are_counted_once() -> None:
    caches = 2 * 512 * KEYS
    assert stored_bytes(model_of(Case(NETWORK, LAYER, 1, 512))) == 2 * (FACTORS + caches)


def test_weights_in_int8_take_a_byte_and_a_scale_per_column() -> None:
    columns = QUERIES + 2 * KEYS + WIDTH + 2 * INNER + WIDTH
    found = stored_bytes(model_of(Case(NETWORK, LAYER, 1, 128, "int8")))
    assert found == pytest.approx(FACTORS + 2 * columns + 4 * 128 * KEYS, rel=0.01)


def test_a_rate_is_that_of_all_layers_and_the_head() -> None:
    rows = with_rates([row(LAYER, "fp16", 100, 98), row(HEAD, "fp16", 1000, 990)], 1_000_000)
    assert rows[0]["tokens_per_second"] == pytest.approx(1_000_000 / (18 * 100 + 1000))
    assert rows[1]["tokens_per_second"] is None


def test_goals_are_shares_of_bounds_and_rates_of_int8() -> None:
    rows = [row(LAYER, "fp16", 100, 96), row(LAYER, "int8", 50, 45), row(LAYER, "fp16", 100, 80, rows=128)]
    rows[0]["tokens_per_second"], rows[1]["tokens_per_second"] = 10.0, 17.0
    assert [(goal.wanted, round(goal.found, 3), goal.met) for goal in goals_of(rows)] == [
        (0.95, 0.96, True), (0.85, 0.8, False), (1.8, 1.7, False),
    ]  # fmt: skip


def test_cases_have_names_of_their_own() -> None:
    names = [str(case) for case in cases()]
    assert len(names) == len(set(names))
