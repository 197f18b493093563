"""Transformers of one, two and four layers: `auto` is slower than no level, with or without a schedule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.driver import compile_graph
from dsa_sched.search.candidates import CONFIGS
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.targets import judge_of
from dsa_sched.stages.tile_stages import plan_tiles
from dsa_sched.zoo.drawn_networks import drawn_model
from dsa_sched.zoo.topologies.bert import BASE_MINI, topology
from hw_models.chip import Chip
from hw_models.errors import UserError
from isched.timing.cycle_model import time_program
from partitioner.planners.levels import Auto, Streamed
from tests.chip_runs import small_chip, stcp920

NAME = "bert_base-mini"


def encoder(layers: int, items: int, chip: Chip, folder: Path) -> Model:
    file = folder / f"{layers}.onnx"
    onnx.save(drawn_model(NAME, topology(replace(BASE_MINI, layers=layers))), file)
    return load_model(file, {}, items, judge_of(chip, TARGET))


def cycles_of(found: Compilation) -> float:
    return time_program(found.program, found.chip, TARGET).cycles


def spent_by_level(model: Model, chip: Chip) -> dict[str, float]:
    """Cycles of every configuration, scheduled and not; of those that have a program."""
    spent: dict[str, float] = {}
    for config in CONFIGS:
        for schedule in (True,) if config.ahead else (True, False):
            try:
                found = compile_graph(model, chip, TARGET, replace(config.of(CompileOptions()), schedule=schedule))
            except UserError:
                continue
            spent[f"{config}, {'scheduled' if schedule else 'as it is'}"] = cycles_of(found)
    return spent


def kept_by_layer(layers: int, chip: Chip, folder: Path) -> list[set[str]]:
    """Values of each encoder layer that stay in the cores' memories, by their names in the layer."""
    plan = plan_tiles(encoder(layers, 8, chip, folder), chip, TARGET, Streamed()).plan
    kept = [decision.subject for decision in plan.decisions if decision.verdict == "kept in L1"]
    prefixes = [f"layer{number}." for number in range(layers)]
    return [{name.removeprefix(prefix) for name in kept if name.startswith(prefix)} for prefix in prefixes]


@pytest.mark.parametrize("data_kib", [12, 16])
@pytest.mark.commit
def test_layers_of_a_deep_encoder_keep_what_those_of_a_shallow_one_keep(data_kib: int, tmp_path: Path) -> None:
    """Each layer has values for which no room is found; that it has more of them in all is no reason to keep none."""
    chip = small_chip(4, data_bytes=data_kib << 10, weights_bytes=8 << 10, llb_bytes=1 << 20)
    (_, shallow, *_), (_, *deep, _) = (kept_by_layer(layers, chip, tmp_path) for layers in (4, 12))
    assert shallow
    assert deep == [shallow] * 10


@pytest.mark.nightly
@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_auto_is_never_slower_than_a_level(layers: int, scarce: bool, tmp_path: Path) -> None:
    chip = small_chip(4, data_bytes=48 << 10, weights_bytes=16 << 10, llb_bytes=256 << 10) if scarce else stcp920()
    model = encoder(layers, 8, chip, tmp_path)
    auto = cycles_of(compile_graph(model, chip, TARGET, CompileOptions(Auto())))
    spent = spent_by_level(model, chip)
    assert len(spent) >= len(CONFIGS)
    assert {config: cycles for config, cycles in spent.items() if cycles < auto} == {}
    for config, cycles in spent.items():
        if config.endswith("scheduled"):
            assert cycles <= spent.get(config.replace("scheduled", "as it is"), cycles)
