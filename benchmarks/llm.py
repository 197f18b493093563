"""Language models on the stcp920: `python benchmarks/llm.py [--cases TEXT] [--check]`.

Compiles one layer of published decoders, by itself, from states to states, for one new token behind 128, 512 and 2,048
rows of cache, and for 128 and 512 tokens at once into a cache of 1,024 rows; and what follows the layers, from a state
to the next token. Each is compiled at the levels below, and the fastest program by the cycle model counts. Weights are
in fp16, or in int8 with a scale per column (`dsa_sched.quantize(..., weights_only=True)`).

The bound of a step is the time in which the main memory gives the weights in their stored type and the rows of the
caches once, that of many tokens the larger of this and the time of all multiply-adds. Cycles are counted without the
launch. With `--check` the exit code is 1 where a goal is missed that is not among the known misses, and nothing is
written; otherwise table and JSON go to benchmarks/results/.

Keys of the JSON object: `goals` (name, wanted, found, met), `rows`, one per case:

    case, network, rows, cached, weights        new tokens, rows of cache, fp16 or int8
    level                                       of the fastest program
    cycles, bound_cycles, bound                 without the launch; `bound` is what binds, a memory or an engine
    main_read_bytes, main_written_bytes         of the program
    tokens_per_second                           of all layers and what follows them, on one cluster; null for one part
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages that are not installed

import numpy as np
import onnx
from onnx import helper, numpy_helper

import dsa_sched
from benchmarks.output import table
from dsa_sched.artifact.format import Artifact
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.zoo.drawn_networks import drawn_model
from dsa_sched.zoo.topologies.decoder import GEMMA, LLAMA, QWEN, DecoderShape, head_topology, layers_topology
from hw_models.errors import size_text
from hw_models.routes import main_memory
from partitioner.cost.roofline import network_floors

Row = dict[str, Any]

CHIP = "stcp920"
LEVELS = {"layer": ("O2", "streamed"), "head": ("O2",)}
"""Levels at which each part is compiled, scheduled; a single product has the same plan at both."""
RESULTS = Path(__file__).parent / "results"
JSON = RESULTS / "llm.json"
NETWORKS: Mapping[str, DecoderShape] = {shape.name: shape for shape in (QWEN, LLAMA, GEMMA)}
CACHED = (128, 512, 2048)
FIRST, FIRST_CACHED = (128, 512), 1024
HEAD, LAYER = "head", "layer"
STEP_SHARE, FIRST_SHARE, INT8_TIMES = 0.95, 0.85, 1.8
KNOWN: Mapping[str, str] = {
    "share of the bound: qwen3_0_6b layer, 128 tokens behind 1,024, fp16": (
        "small operators between products leave the DMA idle; new rows of caches go through the main memory twice"
    ),
    "share of the bound: qwen3_0_6b layer, 512 tokens behind 1,024, fp16": (
        "states, masks and new rows of caches make it 48.8 MB, 1.37 times what the bound counts; during attention, "
        "queries and results leave no room for weights that come next"
    ),
    "int8 weights over fp16: qwen3_0_6b, 2,048 rows cached": "caches stay in fp16, so that bytes allow 1.71",
}
"""Goals that are missed, and why."""


@dataclass(frozen=True, slots=True)
class Case:
    """A part of a network: `rows` new tokens behind `cached` rows. A head has no caches."""

    network: str
    part: str
    rows: int
    cached: int
    weights: str = "fp16"

    def __str__(self) -> str:
        what = f"{self.rows} token{'s' if self.rows > 1 else ''}" + (f" behind {self.cached:,}" if self.cached else "")
        return f"{self.network} {self.part}, {what}, {self.weights}"


def cases() -> Iterator[Case]:
    for weights in ("fp16", "int8"):
        yield from (Case(QWEN.name, LAYER, 1, cached, weights) for cached in CACHED)
        yield Case(QWEN.name, HEAD, 1, 0, weights)
    yield from (Case(QWEN.name, LAYER, rows, FIRST_CACHED) for rows in FIRST)
    yield from (Case(shape.name, LAYER, 1, 512) for shape in (LLAMA, GEMMA))


def model_of(case: Case) -> onnx.ModelProto:
    """One layer, or the head, with drawn weights. A cache has room for the cached rows, the new ones among them, as
    its last step finds it."""
    room = case.cached or 64
    shape = replace(NETWORKS[case.network], layers=1, room=room, window=0, dtype=np.float32)
    if NETWORKS[case.network].window:  # the layers that see all of the cache, and results that are normed
        shape = replace(shape, window=2 * room)
    topology = head_topology(shape) if case.part == HEAD else layers_topology(shape)
    model = drawn_model(case.network, topology)
    if case.weights == "int8":
        extents = {"states": (1, case.rows, shape.width)}
        outputs = [*model.graph.output]
        if case.part == HEAD:  # errors are measured at numbers
            wide = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, (1, case.rows, shape.words))
            model.graph.output.append(wide)
        model = dsa_sched.quantize(model, weights_only=True, inputs=1, shape=extents).model
        del model.graph.output[len(outputs) :]
    return model


def stored_bytes(model: onnx.ModelProto) -> int:
    """Bytes of the factors of products, of scales and of caches as the chip stores them."""
    named = {item.name: item for item in model.graph.initializer}
    read = [name for node in model.graph.node if node.op_type in ("MatMul", "DequantizeLinear") for name in node.input]
    size: int = 0
    for name in dict.fromkeys(read):
        if name in named:
            array = numpy_helper.to_array(named[name])
            size += array.size * (1 if array.dtype.itemsize == 1 else 2)
    caches = [item for item in model.graph.input if item.name.startswith("past.")]
    return int(size + sum(2 * prod(d.dim_value or 1 for d in item.type.tensor_type.shape.dim) for item in caches))


def bounds_of(model: onnx.ModelProto, artifact: Artifact) -> dict[str, float]:
    """Cycles below which no program is, by what binds."""
    main = main_memory(artifact.chip)
    rate = next(link.bandwidth_bytes_per_cycle for link in artifact.chip.links if link.source == main)
    floors = {floor.name: floor.cycles for floor in network_floors(artifact.graph, artifact.chip) if floor.name != main}
    return {main: stored_bytes(model) / rate, **floors}


def measured(case: Case) -> Row:
    """A case at its fastest level."""
    model = model_of(case)
    shape = {"states": (1, case.rows, NETWORKS[case.network].width)}
    made = [
        dsa_sched.compile(model, chip=CHIP, level=level, shape=shape, schedule=True, cache=False)
        for level in LEVELS[case.part]
    ]
    artifact = min(made, key=cycles_of)
    bounds = bounds_of(model, artifact)
    binding = max(bounds, key=lambda name: bounds[name])
    figures = artifact.manifest.figures
    assert figures is not None
    return {
        "case": str(case), "network": case.network, "part": case.part, "rows": case.rows, "cached": case.cached,
        "weights": case.weights, "level": artifact.manifest.level, "cycles": cycles_of(artifact),
        "bound_cycles": bounds[binding], "bound": binding, "main_read_bytes": figures.main_read_bytes,
        "main_written_bytes": figures.main_written_bytes, "tokens_per_second": None,
    }  # fmt: skip


def cycles_of(artifact: Artifact) -> float:
    """Cycles without the launch."""
    (program,) = dsa_sched.time(artifact).times.programs
    return program.cycles - program.launch_cycles


def with_rates(rows: Iterable[Row], clock_hz: int) -> list[Row]:
    """Rows of a step whose network's head is known, with the tokens per second of all layers and the head."""
    made = list(rows)
    heads = {(row["network"], row["weights"]): row["cycles"] for row in made if row["part"] == HEAD}
    for row in made:
        head = heads.get((row["network"], row["weights"]))
        if row["part"] == LAYER and row["rows"] == 1 and head is not None:
            row["tokens_per_second"] = clock_hz / (NETWORKS[row["network"]].layers * row["cycles"] + head)
    return made


@dataclass(frozen=True, slots=True)
class Goal:
    """What was wanted and what was found; larger is better."""

    name: str
    wanted: float
    found: float

    @property
    def met(self) -> bool:
        return self.found >= self.wanted

    @property
    def known(self) -> str:
        """Why it is missed, if that is known."""
        return KNOWN.get(self.name, "")


def goals_of(rows: Sequence[Row]) -> Iterator[Goal]:
    for row in rows:
        wanted = FIRST_SHARE if row["rows"] > 1 else STEP_SHARE
        if row["weights"] == "fp16":
            yield Goal(f"share of the bound: {row['case']}", wanted, row["bound_cycles"] / row["cycles"])
    rated = [row for row in rows if row["tokens_per_second"]]
    rates = {(row["network"], row["cached"], row["weights"]): row["tokens_per_second"] for row in rated}
    for (network, cached, weights), rate in rates.items():
        other = rates.get((network, cached, "fp16"))
        if weights == "int8" and other:
            yield Goal(f"int8 weights over fp16: {network}, {cached:,} rows cached", INT8_TIMES, rate / other)


def text(rows: Sequence[Row], goals: Sequence[Goal]) -> str:
    """The tables."""
    headings = ("case", "level", "cycles", "bound", "share", "read", "written", "tokens/s")
    lines = [
        (
            row["case"], row["level"], f"{row['cycles']:,.0f}", f"{row['bound_cycles']:,.0f} ({row['bound']})",
            f"{row['bound_cycles'] / row['cycles']:.1%}", size_text(row["main_read_bytes"]),
            size_text(row["main_written_bytes"]),
            f"{row['tokens_per_second']:,.1f}" if row["tokens_per_second"] else "",
        )
        for row in rows
    ]  # fmt: skip
    met = [(g.name, f"{g.wanted:g}", f"{g.found:.3f}", "met" if g.met else f"missed: {g.known}") for g in goals]
    return "\n\n".join([table(headings, lines), table(("goal", "wanted", "found", ""), met)])


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--cases", metavar="TEXT", default="", help="only cases whose names have this text; write nothing"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed; write nothing")
    options = parser.parse_args(arguments)
    began, found = time.perf_counter(), list[Row]()
    for case in cases():
        if options.cases in str(case):
            found.append(measured(case))
            print(f"{case}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    rows = with_rates(found, dsa_sched.load_chip(CHIP).clock_hz)
    goals = tuple(goals_of(rows))
    said = text(rows, goals)
    print(said)
    if options.check:
        return int(any(not goal.met and not goal.known for goal in goals))
    if not options.cases:
        told = [{"name": g.name, "wanted": g.wanted, "found": g.found, "met": g.met} for g in goals]
        data = (json.dumps({"goals": told, "rows": rows}, indent=1) + "\n").encode()
        write_whole(JSON, lambda file: file.write(data))
        page = f"# Language models\n\nMade by `python benchmarks/llm.py`.\n\n{said}\n"
        write_whole(RESULTS / "llm.md", lambda file: file.write(page.encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
