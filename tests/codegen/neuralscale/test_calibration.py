"""Micro-benchmarks: programs for any chip of the family, which run on the simulator and depend on what they isolate."""

from __future__ import annotations

import json

import pytest

from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.options import SimulationOptions
from codegen.target import Benchmark
from dsa_sched.calibration.emitted import Calibration, calibration_of
from dsa_sched.calibration.prediction import Predictor
from dsa_sched.stages.targets import generator_of, has_code
from hw_models.chip import Chip
from hw_models.chip_numbers import number_at, with_numbers
from hw_models.errors import ChipError
from hw_models.loading import load_chip, parse_chip
from tests.drawn_chips import drawn_chip, rename_memories

SOME = ("launch", "matrix_pixels_65", "transfer_cores_start", "dma_in_chain", "barrier")


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return calibration_of(load_chip("stcp920"))


def runs(benchmark: Benchmark) -> None:
    for files in benchmark.files:
        options = SimulationOptions(cores=files.cores, cluster=files.cluster)
        done = simulate(files.files[files.executable], options)
        assert done.fault is None, (benchmark.name, done.fault)
        assert done.exit_code == 0, benchmark.name


def test_benchmarks_run_on_the_simulator(calibration: Calibration) -> None:
    for benchmark in calibration.benchmarks:
        if benchmark.name in SOME:
            runs(benchmark)


@pytest.mark.nightly
def test_every_benchmark_runs_on_the_simulator(calibration: Calibration) -> None:
    for benchmark in calibration.benchmarks:
        runs(benchmark)


def test_names_differ_and_numbers_are_those_of_the_chip(calibration: Calibration) -> None:
    assert len({each.name for each in calibration.benchmarks}) == len(calibration.benchmarks) >= 60
    assert len(calibration.numbers) >= 30
    assert all(number_at(calibration.chip, path) >= 0 for path in calibration.numbers)


def test_programs_do_not_depend_on_what_is_fitted(calibration: Calibration) -> None:
    other = {path: number_at(calibration.chip, path) + 1 for path in calibration.numbers if "cycle" in path}
    assert len(other) > 20
    assert calibration_of(with_numbers(calibration.chip, other)).programs == calibration.programs


def suited(seeds: range) -> list[Chip]:
    found = []
    for seed in seeds:
        try:
            chip = parse_chip(json.dumps(drawn_chip(seed)), f"drawn{seed}")
        except ChipError:
            continue
        if has_code(chip):
            found.append(chip)
    return found


def times_everything(chip: Chip) -> None:
    """Trace and time each benchmark: a program that leaves a memory, or takes a way that is not there, is refused."""
    made = calibration_of(chip)
    predictor = Predictor(chip, made.target, ())
    for benchmark in made.benchmarks:
        assert all(cycles > 0 for cycles in predictor.cycles(benchmark, ()).values()), benchmark.name


def test_a_smaller_chip_has_benchmarks() -> None:
    chips = suited(range(12))
    assert chips
    times_everything(chips[0])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(0, 60, 12))
def test_chips_of_the_family_have_benchmarks(seed: int) -> None:
    for chip in suited(range(seed, seed + 12)):
        times_everything(chip)


def test_a_chip_names_its_own_memories() -> None:
    fields = json.loads(load_chip("stcp920").model_dump_json())
    rename_memories(fields, {"DDR": "dram", "LLB": "shared", "L1": "scratchpad", "IM": "sums"})
    made = calibration_of(parse_chip(json.dumps(fields), "renamed"))
    assert {path for path in made.numbers if path.startswith("memories")} == {
        "memories.dram.bandwidth_bytes_per_cycle",
        "memories.shared.bandwidth_bytes_per_cycle",
    }
    assert all(number_at(made.chip, path) >= 0 for path in made.numbers)
    (chosen,) = (each for each in made.benchmarks if each.name == "dma_in_32768")
    assert Predictor(made.chip, made.target, made.numbers).cycles(
        chosen, tuple(number_at(made.chip, path) for path in made.numbers)
    )
    assert generator_of(made.chip) is not None
