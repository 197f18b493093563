"""Two compilations share nothing: what one found out dies with it, and none is told by the one before it."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
from pathlib import Path
from weakref import ref

import onnx
import pytest

from codegen.neuralscale.target import TARGET
from codegen.target import TileTarget
from dsa_sched.frontend import Model
from dsa_sched.pipeline.driver import compile_plan
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.tile_stages import Planned
from hw_models.chip import Chip
from partitioner.context.plan_context import Context
from partitioner.ir.target import TileWork
from partitioner.planners.levels import LEVELS, planner_of, planner_or_auto
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip, stcp920
from tests.small_graphs import GraphBuilder

ROOT = Path(__file__).resolve().parents[2]
CHIPS = {"large": stcp920(), "small": small_chip(cores=3, data_bytes=48 << 10)}


FRESH = """import sys
from tests.dsa_sched import test_context as here
print(here.digest(here.compiled(here.network(), here.CHIPS[sys.argv[1]], "O3")[0]))"""


def network() -> Model:
    b = GraphBuilder("shared")
    x = b.conv(b.input("x", 6, 12, 12, 16), 48)
    y = b.elementwise("add", b.elementwise("relu", b.conv(x, 48)), x)
    graph, constants = b.build(b.pool("max_pool", b.conv(y, 32), (3, 3), 2, (1, 1, 1, 1)))
    return Model(graph, dict(constants), onnx.ModelProto(), (), "")


def compiled(model: Model, chip: Chip, level: str) -> tuple[Compilation, ref[Context[TileTarget]]]:
    ctx: Context[TileTarget] = Context(model.graph, model.constants, chip, TARGET)
    planned = Planned(model, ctx, make_plan(ctx, planner_of(level)))
    return compile_plan(planned, CompileOptions(planner_or_auto(level), schedule=True)), ref(ctx)


def digest(compilation: Compilation) -> str:
    files = compilation.files
    texts = (str(compilation.plan).encode(), str(compilation.program).encode(), files.files[files.executable])
    return hashlib.sha256(b"\n".join(texts)).hexdigest()


def works() -> int:
    gc.collect()
    return sum(type(thing) is TileWork for thing in gc.get_objects())


@pytest.mark.spread(1)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.commit
def test_what_a_compilation_found_out_dies_with_its_context(level: str) -> None:
    """The model and all that was made of it stay, and hold neither the context nor work of a tile."""
    before = works()
    model = network()
    made, context = compiled(model, CHIPS["small"], level)
    assert works() == before
    assert context() is None
    assert digest(made)


def test_contexts_of_one_graph_share_nothing() -> None:
    model = network()
    first, second = (Context(model.graph, model.constants, chip, TARGET) for chip in CHIPS.values())
    layer, box = first.layers[0], tuple((0, n) for n in model.graph.by_name[first.layers[0].output].shape)
    assert first.work(layer, box) is first.work(layer, box)
    assert first.work(layer, box) is not second.work(layer, box)
    assert first.memo(dict) is first.memo(dict)
    assert first.memo(dict) is not second.memo(dict)


@pytest.mark.nightly
def test_one_graph_for_two_chips_is_what_fresh_processes_make() -> None:
    model = network()
    here = {name: digest(compiled(model, CHIPS[name], "O3")[0]) for name in (*CHIPS, *reversed(CHIPS))}
    assert here["large"] != here["small"]
    for name, expected in here.items():
        fresh = subprocess.run(
            [sys.executable, "-c", FRESH, name], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert fresh.stdout.strip() == expected
