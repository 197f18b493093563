"""The benchmark on a small network: its rows, that the vendor's example holds, sums beside the cycle model, and what
the program decides by itself: marks, goals, what a fit does not identify."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.graphturbo.figures import CONFIGURATIONS, Configuration, Layers
from benchmarks.graphturbo.fit import CLOSE, fit
from benchmarks.graphturbo.goals import complaints, goal_lines
from benchmarks.graphturbo.launches import TvmPlans
from benchmarks.graphturbo.measure import AWAITED, compiled, run
from benchmarks.graphturbo.published import TABLE_1
from benchmarks.graphturbo.readings import Readings
from benchmarks.graphturbo.rows import (
    FAVOURABLE,
    FIT_ENDS,
    FITTED,
    FITTED_TO,
    MID_RANGE,
    Json,
    Wanted,
    fit_of,
    key_of,
    measure,
    wanted,
)
from benchmarks.graphturbo.settings import (
    EXAMPLE,
    LIMITS,
    PIN_DDR_BYTES,
    chip_of,
    costs_at,
    example_of,
    favourable,
    mid_range,
)
from benchmarks.graphturbo.sums import Part, Sums, read_sums
from benchmarks.graphturbo.tables import markdown
from benchmarks.graphturbo_paper import measure_all, read, to_measure
from dsa_sched.zoo.topologies.bert import bert_base_topology
from hw_models.loading import load_chip
from tests.small_models import classifier, save

CHIP = load_chip("stcp920")
HOME = favourable(CHIP)
SPEEDUPS = {"astitch": 1.5, "l1": 3.0, "ordering": 8.0, "full": 10.0}
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "graphturbo_paper.json"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Configuration:
    """A classifier with invented published figures; all but two variants have some."""
    path = save(classifier("n"), tmp_path_factory.mktemp("graphturbo") / "classifier.onnx")
    return Configuration(
        name="Z",
        network=str(path),
        tvm_batch=2,
        batch=8,
        tvm_per_second=50_000,
        speedups=SPEEDUPS,
        goal_per_second=1.0,
        variants=("tvm", "astitch", "llb", "l1", "ordering", "full", "beyond", "auto"),
        tensors={"TVM": (7, 0, 0), "GraphTurbo": (1, 0, 9)},
        compile_seconds={"full": 5},
        matrix_percent={"12x12": 50},
        not_explained={"astitch": "invented"},
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results") / "rows.json"


@pytest.fixture(scope="module")
def rows(small: Configuration, results: Path) -> list[Json]:
    found: list[Json] = []
    measure_all(wanted([small]), found, CHIP, results=results, first=small)
    return found


@pytest.fixture(scope="module")
def readings(rows: list[Json], small: Configuration) -> Readings:
    return Readings(rows, CHIP, [small], small)


@pytest.mark.commit
def test_every_variant_has_a_row_with_every_column(rows: list[Json], small: Configuration) -> None:
    by_variant = {row["variant"]: row for row in rows if row["batch"] == small.batch_of(row["variant"])}
    assert set(by_variant) == set(small.variants)
    assert len(rows) == len(small.variants) + 1  # the TVM plan at the larger batch, too
    for variant, row in by_variant.items():
        columns = {FAVOURABLE, MID_RANGE, *(f"DDR {rate}" for rate in PIN_DDR_BYTES)}
        columns |= {FITTED} if variant in ("astitch", "llb", "full") else set()
        columns |= set(FIT_ENDS) if variant not in AWAITED else set()
        assert set(row["runs"]) == columns, variant
        run = row["runs"][FAVOURABLE]
        assert 0 < row["floor_cycles"]["27.0"] <= run["cycles"]
        assert 0 < run["bound_cycles"] <= run["cycles"]
        assert row["runs"][MID_RANGE]["cycles"] > run["cycles"]
        assert row["runs"]["DDR 34.1"]["cycles"] <= row["runs"]["DDR 29.9"]["cycles"] <= run["cycles"]


@pytest.mark.commit
def test_rows_come_back_from_their_file(rows: list[Json], results: Path, small: Configuration) -> None:
    assert sorted(map(key_of, read(results))) == sorted(map(key_of, rows))
    known = fit_of(rows, CHIP, small)
    assert known is not None
    assert to_measure(read(results), wanted([small]), known, None, small) == []


def test_rows_of_older_sources_are_taken_again_where_asked(rows: list[Json], small: Configuration) -> None:
    known, asked = fit_of(rows, CHIP, small), wanted([small])
    assert to_measure(rows, asked, known, rows[0]["sources"], small) == []
    again = to_measure(rows, asked, known, "of another day", small)
    assert len(again) == len(asked)
    assert [one.variant for one in again[:3]] == list(FITTED_TO)


def test_rows_that_had_another_fit_are_taken_again_with_the_others(rows: list[Json], small: Configuration) -> None:
    known, asked = fit_of(rows, CHIP, small), wanted([small])
    before = [{**row, "fit": row["fit"] and "another"} for row in rows]
    assert to_measure(before, asked, known, None, small) == []
    again = {key_of(row) for row in before if row["fit"]}
    assert {one.key for one in to_measure(before, asked, known, rows[0]["sources"], small)} == again


@pytest.mark.commit
def test_the_fit_is_that_of_the_rows_of_the_same_run(rows: list[Json], small: Configuration, tmp_path: Path) -> None:
    """Not that of the rows which they replace."""
    known = fit_of(rows, CHIP, small)
    assert known is not None
    old = [{**row, "sources": "old", "fit": "old", "sums": longer(row["sums"])} for row in rows]
    before = fit_of(old, CHIP, small)
    assert before is not None
    assert before.digest != known.digest
    asked = [one for one in wanted([small]) if one.variant in (*FITTED_TO, "full")]
    measure_all(asked, old, CHIP, tmp_path / "rows.json", renew=True, first=small)
    made = {key_of(row): row["fit"] for row in old if row["sources"] != "old"}
    seen = {(small.label, variant, small.batch_of(variant)) for variant in FITTED_TO}
    assert made == {one.key: None if one.key in seen else known.digest for one in asked}


def longer(sums: Json) -> Json:
    """Sums of a run that takes much more of what no number of the chip changes."""
    return {**sums, "other_cycles": 3 * sums["other_cycles"] + 100_000}


def test_what_the_fit_has_not_seen_and_few_layers_lack_something(rows: list[Json], small: Configuration) -> None:
    known, asked = fit_of(rows, CHIP, small), wanted([small])
    assert {row["variant"] for row in rows if row["fit"] is None} == set(FITTED_TO)
    before = [{**row, "fit": None} for row in rows]
    again = {one.key for one in to_measure(before, asked, known, None, small)}
    assert again == {one.key for one in asked if one.variant not in FITTED_TO or one.key[1:] == ("tvm", 8)}
    few = [{**rows[0], "compiled_layers": 2}, *rows[1:]]
    assert [one.key for one in to_measure(few, asked, known, None, small)] == [key_of(rows[0])]
    layered = replace(small, layers=Layers(4, bert_base_topology))
    assert to_measure(few, [replace(one, configuration=layered, few=True) for one in asked], known, None, layered) == []


def test_full_is_not_slower_than_with_every_step_awaited(readings: Readings, small: Configuration) -> None:
    serial, full = readings.row(small, "ordering"), readings.row(small, "full")
    assert serial is not None
    assert full is not None
    gain = readings.gain(small)
    assert gain is not None
    assert gain > 1
    cycles = serial["runs"][FAVOURABLE]
    assert gain == cycles["cycles"] / full["runs"][FAVOURABLE]["cycles"]
    assert cycles["cycles"] >= cycles["asynchronous_cycles"]


def test_the_sums_that_the_fit_uses_are_those_of_the_clock(rows: list[Json], small: Configuration) -> None:
    known = fit_of(rows, CHIP, small)
    assert known is not None
    for row in rows:
        sums = read_sums(row["sums"])
        assert sums is not None
        if row["variant"] in AWAITED:
            assert sums.cycles(HOME) == pytest.approx(row["runs"][FAVOURABLE]["cycles"], rel=0.02)
        if row["variant"] in ("astitch", "llb"):
            assert sums.cycles(known.chosen) == pytest.approx(row["runs"][FITTED]["cycles"], rel=0.05)


@pytest.mark.spread(6)
@pytest.mark.parametrize("variant", ["tvm", "ordering"])
@pytest.mark.parametrize("name", sorted(LIMITS))
def test_a_sum_follows_each_number_as_the_clock_does(small: Configuration, variant: str, name: str) -> None:
    made = compiled(small, variant, 2, small.network, CHIP)
    there = HOME.changed({name: LIMITS[name].values[1]})
    assert made.sums.cycles(there) == pytest.approx(run(made, there).cycles, rel=0.05)


def test_the_chosen_setting_is_in_the_range(rows: list[Json], readings: Readings, small: Configuration) -> None:
    known = fit_of(rows, CHIP, small)
    assert known is not None
    assert known.best_error <= known.chosen_error <= known.best_error + CLOSE
    for name, limit in LIMITS.items():
        low, high = known.values_within(name)
        assert min(limit.values) <= low <= getattr(known.chosen, name) <= high <= max(limit.values)
    for row in rows:
        within = readings.range_of_fit(row)
        assert within is not None
        assert 0 < within[0] <= within[1]
        fitted = readings.per_second(row, FITTED)
        if fitted is not None and row["variant"] in AWAITED:
            assert within[0] * 0.95 <= fitted <= within[1] * 1.05


def test_the_tables_hold_every_row_and_what_was_not_run(rows: list[Json], small: Configuration) -> None:
    text = markdown(rows, CHIP, rows[0]["sources"], [small], small)
    assert "most favourable value that documents allow" in text
    assert "not explained: invented" in text
    assert "rows were not run" not in text
    for row in rows:
        assert f"{Readings(rows, CHIP).predicted(row):,.0f}" in text
    without = [row for row in rows if row["variant"] != "auto"]
    text = markdown(without, CHIP, "another", [small], small)
    assert f"1 rows were not run: {small.label} (auto 8)" in text
    assert f"{len(without)} are of older sources" in text


def test_refusals_are_rows_with_their_reason(small: Configuration, tmp_path: Path) -> None:
    missing = replace(small, network=str(tmp_path / "none.onnx"))
    row = measure(Wanted(missing, "tvm", 2), CHIP, None, "sources", tmp_path)
    assert "none.onnx" in row["refusal"]
    assert "none.onnx" in markdown([row], CHIP, "sources", [missing], missing).split("## Refused")[1]
    (line,) = complaints([{**row, "variant": "auto", "batch": 8}], [missing], CHIP)
    assert line.startswith(f"{missing.label}, 8 a cluster, auto: refused: ")


@pytest.fixture(scope="module")
def encoder() -> Configuration:
    """Narrow texts, so that it is quick; the layers are those of BERT-base."""
    return Configuration(
        "Y", "bert_base", 1, 1, 10.0, {}, length=16, layers=Layers(4, bert_base_topology), variants=("llb",)
    )


@pytest.mark.nightly
def test_layers_that_were_not_compiled_take_what_the_second_took(encoder: Configuration, tmp_path: Path) -> None:
    row = measure(Wanted(encoder, "llb", 1, few=True), CHIP, None, "sources", tmp_path)
    assert row["compiled_layers"] == 2
    short = replace(encoder, layers=Layers(2, bert_base_topology))
    whole = measure(Wanted(short, "llb", 1, few=True), CHIP, None, "", tmp_path)
    more = row["runs"][FAVOURABLE]["cycles"] - whole["runs"][FAVOURABLE]["cycles"]
    four, two = (read_sums(found["sums"]) for found in (row, whole))
    assert four is not None
    assert two is not None
    assert four.cycles(HOME) - two.cycles(HOME) == pytest.approx(more, rel=0.02)
    assert "from 2 layers" in markdown([row], CHIP, "sources", [encoder])
    assert "from 2 layers" in "\n".join(goal_lines([row], [encoder], CHIP))


def shown(
    configuration: Configuration, variant: str, cycles: float, floors: tuple[float, float] = (100.0, 80.0)
) -> Json:
    """A row of which only a time and floors are known."""
    floor_cycles = {"27.0": floors[0], "29.9": floors[0], "34.1": floors[1]}
    key = {"configuration": configuration.label, "variant": variant, "batch": configuration.batch_of(variant)}
    runs = {FAVOURABLE: {"cycles": cycles, "bound_cycles": cycles, "engine_cycles": cycles}}
    return {**key, "refusal": "", "compiled_layers": None, "floor_cycles": floor_cycles, "runs": runs}


NO_REASONS: Mapping[str, str] = {}
RATE = 4e9
"""Items a second of one item a cycle on four clusters."""


@pytest.mark.parametrize(
    ("published_cycles", "mark"),
    [
        (101.0, ""),
        (100.0, ""),
        (90.0, "published figure above the bound of the chip, not with 34.1 bytes a cycle of DDR"),
        (79.0, "published figure above the bound of the chip, at every rate of the DDR"),
    ],
)
def test_a_published_row_above_the_bound_is_marked(published_cycles: float, mark: str) -> None:
    configuration = Configuration("Z", "z", 1, 1, RATE / published_cycles, {"full": 1.0})
    row = shown(configuration, "full", 200.0)
    assert Readings([row], CHIP, [configuration]).above_bound(row) == mark
    (line,) = goal_lines([row], [configuration], CHIP)
    assert mark in line
    assert ("above the bound" in line) == bool(mark)


def test_a_goal_that_is_missed_and_one_without_a_row_are_told() -> None:
    configuration = Configuration("Z", "z", 1, 1, RATE / 300, {"full": 1.5}, goal_per_second=RATE / 200)
    assert list(complaints([shown(configuration, "auto", 200.0)], [configuration], CHIP)) == []
    (line,) = complaints([shown(configuration, "auto", 250.0)], [configuration], CHIP)
    assert line == "z, 1 a cluster, auto: 16,000,000 items/s of 20,000,000, -20%"
    (line,) = complaints([shown(configuration, "full", 100.0)], [configuration], CHIP)
    assert line == "z, 1 a cluster, auto: no row; run without --kept, of 20,000,000 items/s"


def test_every_row_is_told_with_published_error_bound_and_share() -> None:
    configuration = Configuration("Z", "z", 1, 1, RATE / 300, {"full": 1.5})
    (line,) = goal_lines([shown(configuration, "full", 250.0)], [configuration], CHIP)
    assert line == (
        "z, 1 a cluster, full: 16,000,000 items/s, published 20,000,000 (-20%), bound 40,000,000, 40% of it"
    )


def tvm_plan(number: int, not_explained: Mapping[str, str] = NO_REASONS) -> tuple[Configuration, Json]:
    """What takes a million cycles in 5 kernels here, and was published with more of them, each launched in 30 us."""
    kernels = 10 * (number + 1)
    published = RATE / (1_000_000 + 30_000 * kernels)
    tensors = {"TVM": (kernels, 0, 0)}
    configuration = Configuration("Z", f"z{number}", 1, 1, published, {}, tensors=tensors, not_explained=not_explained)
    return configuration, {**shown(configuration, "tvm", 1_000_000 + 5 * 20_000), "launches": 5}


def test_one_launch_cost_is_fitted_to_all_tvm_plans_with_their_published_kernels() -> None:
    networks, near = map(list, zip(*map(tvm_plan, range(6)), strict=True))
    plans = TvmPlans(Readings(near, CHIP, networks))
    assert plans.launch_cycles == 30_000
    assert plans.error(30_000) == pytest.approx(0)
    assert plans.per_second(near[0], 20_000) == pytest.approx(RATE / 1_100_000)  # with the row's own kernels
    first = next(goal_lines(near, networks, CHIP))
    assert first.endswith("with the published 10 kernels at 30 us a launch 3,077 (+0%)")


def test_six_tvm_plans_are_to_be_near_what_was_published() -> None:
    networks, near = map(list, zip(*map(tvm_plan, range(6)), strict=True))
    assert list(complaints(near, networks, CHIP)) == []
    far = [*near[:5], {**near[5], **shown(networks[5], "tvm", 4_000_000)}]
    (line,) = complaints(far, networks, CHIP)
    assert line == "tvm: 5 configurations within 35% of what was published (z0, z1, z2, z3, z4), at least 6"
    assert list(complaints(far[:5], networks[:5], CHIP)) == []


def test_what_no_model_explains_enters_no_fit_of_the_launch() -> None:
    networks, rows = map(list, zip(*map(tvm_plan, range(5)), tvm_plan(5, {"tvm": "invented"}), strict=True))
    rows[5] = {**rows[5], **shown(networks[5], "tvm", 400_000_000)}
    plans = TvmPlans(Readings(rows, CHIP, networks))
    assert plans.launch_cycles == 30_000
    assert plans.within() == ["z0", "z1", "z2", "z3", "z4"]


def sums(fixed_cycles: float, of_numbers: Mapping[str, float]) -> Sums:
    """A run that takes so much for each unit of a number."""
    parts = tuple(
        Part((name,), tuple(cycles * value for value in LIMITS[name].values)) for name, cycles in of_numbers.items()
    )
    return Sums(1, 0, 0.0, 0.0, fixed_cycles, parts)


def test_a_fit_tells_what_it_does_not_identify() -> None:
    """Only the fill matters to the row, which wants it to be 10; barriers are on no chain."""
    row = sums(1_000.0, {"fill_cycles": 50.0})
    found = fit([(row, RATE / 1_500)], CHIP, HOME)
    assert found.best_error == pytest.approx(0)
    assert found.chosen == HOME.changed({"fill_cycles": 10})
    assert set(found.unidentified()) == set(LIMITS) - {"fill_cycles"}
    assert found.values_within("fill_cycles") == (10, 10)
    assert found.error_with_only(["sync_cycles"]) == pytest.approx(found.home_error)


def test_numbers_that_stand_for_each_other_are_not_identified() -> None:
    """One row cannot say whether fills or barriers take the time."""
    row = sums(1_000.0, {"fill_cycles": 50.0, "sync_cycles": 1.0})
    found = fit([(row, RATE / 1_500)], CHIP, HOME)
    assert "sync_cycles" not in found.unidentified()  # 1,000 cycles are too many, with any fill
    assert "fill_cycles" not in found.unidentified()
    assert found.error_with_only(["fill_cycles"]) == pytest.approx(0)
    assert found.error_with_only(["sync_cycles"]) == pytest.approx(0)
    assert found.values_within("fill_cycles") == (0, 10)


def test_more_layers_take_what_one_more_took() -> None:
    one, two = sums(100.0, {"sync_cycles": 1.0}), sums(150.0, {"sync_cycles": 3.0})
    there = HOME.changed({"sync_cycles": 130})
    assert two.extended(one, 10).cycles(there) == 150 + 10 * 50 + 130 * (3 + 10 * 2)
    assert two.extended(one, 0) == two


def test_sums_of_other_limits_are_not_read() -> None:
    found = sums(100.0, {"sync_cycles": 1.0})
    assert read_sums(json.loads(json.dumps(found.as_json()))) == found
    text = json.dumps(found.as_json())
    assert read_sums(json.loads(text.replace("1000.0", "1000.0, 2000.0"))) is None
    assert read_sums(json.loads(text.replace("sync_cycles", "never"))) is None


def test_mid_range_is_the_middle_of_every_limit_but_readings() -> None:
    middle = mid_range(CHIP)
    assert (middle.fill_cycles, middle.row_cycles, middle.descriptor_cycles) == (10, 0.5, 33)
    assert (middle.vector_elements, middle.scalar_cycles, middle.miss_cycles) == (40, 4.5, 242)
    assert (middle.array_pixels, middle.launch_cycles, middle.ddr_bytes) == (64, 20_000, 27.0)


def test_sums_in_order_and_special_functions_have_rates_of_their_own() -> None:
    there = HOME.changed({"accumulate_elements": 1, "special_elements": 4})
    operands = {"shape_s1": 64 << 16 | 10}  # 640 elements
    assert costs_at(there, CHIP)("veadd.mm", operands) == 10 + 640 / 64
    assert costs_at(there, CHIP)("veacc.m", operands) == 10 + 640
    for special in ("veexp.m", "vesqrt.m", "verecip.m", "velut.m"):
        assert costs_at(there, CHIP)(special, operands) == 10 + 640 / 4
    slow = there.changed({"vector_elements": 16, "special_elements": 64})
    assert costs_at(slow, CHIP)("veexp.m", operands) == 10 + 640 / 16


def test_the_vendors_example_holds_at_both_ends_of_every_limit() -> None:
    for setting in (mid_range(CHIP), HOME):
        for name, limit in LIMITS.items():
            for value in (min(limit.values), max(limit.values)):
                assert dict(example_of(chip_of(setting.changed({name: value}), CHIP))) == dict(EXAMPLE)
            assert getattr(HOME, name) == limit.values[0]


def test_published_throughput_follows_from_the_speedups() -> None:
    by_label = {(one.label, one.batch): one for one in CONFIGURATIONS}
    assert len(by_label) == len(CONFIGURATIONS) == 12
    published = {
        ("resnet50", 16): 8_480, ("bert_base 128", 8): 4_050, ("bert_base 256", 4): 2_682, ("bert_large 384", 2): 280,
        ("bert_base 512", 2): 2_349, ("bert_base 128", 16): 2_716, ("dlrm", 256): 480_770, ("mobilenet_v2", 32): 11_724,
        ("vit_b16", 8): 1_000, ("vit_b16_384", 8): 1_000, ("densenet121", 8): 8_308, ("conformer_m", 3): 729,
    }  # fmt: skip
    for key, configuration in by_label.items():
        assert configuration.per_second("full") == pytest.approx(published[key], abs=1)
    resnet = CONFIGURATIONS[0]
    assert (resnet.batch_of("tvm"), resnet.batch_of("full")) == (2, 16)
    assert resnet.per_second("invented") is None


def test_all_that_was_published_is_wanted() -> None:
    keys = {one.key for one in wanted()}
    assert {("resnet50", "full", batch) for batch in (1, 2, 4, 8, 16)} <= keys
    assert {("bert_base 128", variant, batch) for variant in ("full", "auto") for batch in TABLE_1} <= keys
    for configuration in CONFIGURATIONS:
        assert (configuration.label, "auto", configuration.batch) in keys


def test_results_are_of_the_published_configurations() -> None:
    """What is in the repository was made from these configurations and these limits; a fit is among it."""
    found = read(RESULTS)
    keys = {one.key for one in wanted()}
    assert found
    assert {key_of(row) for row in found} <= keys
    assert fit_of(found, CHIP) is not None
    assert all(read_sums(row["sums"]) is not None for row in found if not row["refusal"])
