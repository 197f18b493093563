"""The benchmark on a small network: its rows, that the vendor's example holds, and sums beside the cycle model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.graphturbo.figures import CONFIGURATIONS, Configuration
from benchmarks.graphturbo.fit import TOLERANCE
from benchmarks.graphturbo.measure import BEYOND, VARIANTS
from benchmarks.graphturbo.settings import EXAMPLE, LIMITS, chip_of, documented, example_of
from benchmarks.graphturbo.tables import markdown
from benchmarks.graphturbo_paper import Json, measure
from hw_models.loading import load_chip
from tests.small_models import classifier, save

CHIP = load_chip("stcp920")
KEYS = {
    "configuration", "variant", "parameters", "predicted_per_second", "published_per_second", "lower_bound_seconds",
    "predicted_seconds", "compile_seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A classifier with invented published figures; all but one variant have some."""
    path = save(classifier("n"), tmp_path_factory.mktemp("graphturbo") / "classifier.onnx")
    configuration = Configuration(
        name="Z",
        network=str(path),
        tvm_batch=2,
        batch=8,
        tvm_per_second=50_000,
        speedups={"astitch": 1.5, "l1": 3, "ordering": 8, "full": 10},
        tensors={"TVM": (7, 0, 0), "GraphTurbo": (1, 0, 9)},
        compile_seconds={"full": 5},
        matrix_percent={"12x12": 50},
        not_explained={"astitch": "invented"},
    )
    return measure([configuration], CHIP)


def test_every_variant_has_a_row_of_both_kinds(figures: Json) -> None:
    rows = {(row["variant"], row["parameters"]): row for row in figures["rows"]}
    assert set(rows) == {(variant, kind) for variant in (*VARIANTS, BEYOND) for kind in ("documented", "fitted")}
    for row in rows.values():
        assert set(row) >= KEYS
        assert 0 < row["lower_bound_seconds"] <= row["predicted_seconds"]
        batch = 2 if row["variant"] == "tvm" else 8
        assert row["predicted_per_second"] == pytest.approx(4 * batch / row["predicted_seconds"])
        assert (row["compile_seconds"] is not None) == (row["variant"] == "full")
    assert rows["l1", "fitted"]["published_per_second"] == 150_000
    assert rows["llb", "fitted"]["published_per_second"] is None
    json.dumps(figures)


def test_full_is_not_slower_than_with_every_step_awaited(figures: Json) -> None:
    for gain in figures["gains"]:
        assert gain["gain"] == gain["serial_seconds"] / gain["full_seconds"] > 1
        assert gain["serial_seconds"] >= gain["asynchronous_seconds"]


def test_the_sums_that_the_fit_uses_are_those_of_the_clock(figures: Json) -> None:
    assert len(figures["checks"]) == 5
    for check in figures["checks"]:
        assert check["sum_cycles"] == pytest.approx(check["clock_cycles"], rel=0.05)


def test_the_chosen_setting_is_in_the_range(figures: Json) -> None:
    fit = figures["fit"]
    assert fit["best_error"] <= fit["error"] <= fit["best_error"] + TOLERANCE
    assert 1 <= fit["within"] <= fit["settings"]
    for number in fit["numbers"]:
        assert number["limits"][0] <= number["range"][0] <= number["fitted"] <= number["range"][1]
        assert number["range"][1] <= number["limits"][1]
    for row in figures["rows"]:
        if row["parameters"] == "fitted":
            low, high = row["range_per_second"]
            assert low * 0.98 <= row["predicted_per_second"] <= high * 1.02


def test_the_tables_hold_every_row_and_what_is_not_explained(figures: Json) -> None:
    text = markdown(figures)
    assert "## Throughput, documented numbers" in text
    assert "## Throughput, fitted numbers" in text
    assert text.count("not explained: invented") == 2
    for row in figures["rows"]:
        assert f"| {row['predicted_per_second']:,.0f} |" in text


def test_the_vendors_example_holds_at_both_ends_of_every_limit() -> None:
    home = documented(CHIP)
    for name, limit in LIMITS.items():
        for value in (min(limit.values), max(limit.values)):
            assert dict(example_of(chip_of(home.changed({name: value}), CHIP))) == dict(EXAMPLE)
        assert getattr(home, name) in limit.values


def test_published_throughput_follows_from_the_speedups() -> None:
    resnet, densenet = CONFIGURATIONS[:2]
    assert resnet.per_second("full") == pytest.approx(8_480, abs=1)
    assert densenet.per_second("full") == pytest.approx(8_308, abs=1)
    assert (resnet.batch_of("tvm"), resnet.batch_of("full")) == (2, 16)
    assert densenet.per_second("invented") is None


def test_results_are_of_the_published_configurations() -> None:
    """What is in the repository was made from these configurations and this chip."""
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "graphturbo_paper.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert {row["configuration"] for row in rows} == {configuration.network for configuration in CONFIGURATIONS}
    assert {row["variant"] for row in rows} == {*VARIANTS, BEYOND}
