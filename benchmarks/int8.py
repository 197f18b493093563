"""int8 next to fp16 on the stcp920: `python benchmarks/int8.py [--networks NAME...] [--check]`.

Quantises networks of the zoo by `dsa_sched.quantize` on drawn inputs, compiles both forms at level O3 scheduled (with
weights alone in int8: at the faster of O2 and O3), and prints the items per second of four clusters by the cycle model.
With `--check` the exit code is 1 where a goal is missed that is not among the known misses, and nothing is written;
otherwise table and JSON go to benchmarks/results/, where `--networks` replaces rows and leaves the others. BERT-base
takes longer than all others and is compiled only by its name.

Keys of the JSON object: `goals` (name, wanted, found, met), `rows`, one per network, and `curve`, of vit_b16-mini:

    network, batch          items per cluster
    fp16_cycles, int8_cycles, fp16_items_per_second, int8_items_per_second      of four clusters
    int8_vector_cycles, int8_matrix_cycles      work of the busiest core by engine
    layers, int8_layers, error      of the quantised network, against the one in floating point
    weights_only                    whether values stay in fp16

    layers                          that can be quantised
    onnxruntime                     error at the outputs if onnxruntime quantises all operators, symmetric int8
    steps                           (layers in fp16, error) as `quantize --search` finds them
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

import onnx

import dsa_sched
from benchmarks.decoder_layer import decoder_layer
from benchmarks.output import table
from benchmarks.quantised_styles import quantised
from dsa_sched.api.results import TimingReport
from dsa_sched.frontend.load import read_source
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.quantisation.errors import OutputErrors
from dsa_sched.quantisation.inputs import SEEDED, calibration_inputs

Row = dict[str, Any]

CASES: tuple[tuple[str, int], ...] = (
    ("resnet50", 16), ("squeezenet", 8), ("mobilenet_v2", 8), ("vit_b16-mini", 8), ("bert_base-mini", 8),
)  # fmt: skip
"""Networks, and items per cluster."""
NAMED = (("bert_base", 4),)
"""Networks that are compiled only by their names, and items per cluster."""
SHAPES = {"bert_base": dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (4, 128))}
"""Shapes of inputs that a file leaves open."""
DECODER = "decoder layer"
"""A layer shaped like those of Qwen3-0.6B, which makes one token."""
FIXED = frozenset(["vit_b16-mini", "bert_base-mini", "bert_base"])
"""Networks that write their batch into the file."""

WEIGHTS_ONLY = (DECODER, "resnet50")
"""Networks of one item whose weights alone are int8."""

PUBLISHED = 14_442
"""Images per second of ResNet-50 in int8 on the card, by its vendor."""
BERT_BOUND = 9_856
"""Sequences per second of BERT-base with 128 words that the matrix engines of the card allow in int8."""
CURVE = "vit_b16-mini"
QUARTER = 4
VECTOR_BOUND = (
    "the vector engine has four to seven passes behind each sum (scale, bias, bound, rounding, conversion; three more "
    "for a residual sum), and works alternately with the matrix engine"
)

FOUR_SEQUENCES = (
    "a bound, not a goal: norms, softmax and functions are computed in fp16, and the matrix engine waits for them; in "
    "fp16 O3 has no good plan for four sequences, level auto makes 4,811 per second of eight"
)
FLAT = (
    "the weights are drawn, and all layers err alike: over four inputs the best of all 8,568 sets of five layers "
    "leaves 0.54 of the error"
)

CLUSTERS = 4
RESULTS = Path(__file__).parent / "results"
JSON = RESULTS / "int8.json"
INPUTS, CURVE_INPUTS = 2, 8
HEAD = ("network", "batch", "fp16 items/s", "int8 items/s", "times", "vector", "matrix", "int8 layers", "error")


@dataclass(frozen=True, slots=True)
class Goal:
    """`known` says why it is missed where it is known to be."""

    name: str
    wanted: float
    found: float
    known: str = ""

    @property
    def met(self) -> bool:
        return self.found >= self.wanted


def measured(network: str, batch: int, folder: Path, weights_only: bool = False) -> Row:
    """Both forms of a network, compiled and timed."""
    fixed = network in FIXED  # the written file keeps the batch of the calibration
    path, source, of_file = folder / "quantised.onnx", network, batch if network != DECODER else None
    if network == DECODER:
        source = str(folder / "plain.onnx")
        onnx.save(decoder_layer(), source)
    shape = SHAPES.get(network, {})
    kept = batch if fixed and not shape else None
    int8 = dsa_sched.quantize(
        source, calibrate=SEEDED, inputs=INPUTS, batch=kept, shape=shape, weights_only=weights_only
    )
    int8.save(path)
    levels = ("O2", "O3") if weights_only else ("O3",)
    plain = _fastest(source, None if shape else of_file, levels, shape)
    small = _fastest(path, None if fixed else of_file, levels, {})
    cores = small.to_dict()["programs"][0]["cores"]
    busy = {each["name"]: each["busy_cycles"] / cores for each in small.to_dict()["programs"][0]["engines"]}
    report = int8.to_dict()
    return {
        "network": network,
        "batch": batch,
        "fp16_cycles": plain.cycles,
        "int8_cycles": small.cycles,
        "fp16_items_per_second": CLUSTERS * (plain.items_per_second or 0.0),
        "int8_items_per_second": CLUSTERS * (small.items_per_second or 0.0),
        "int8_vector_cycles": busy.get("vector", 0.0),
        "int8_matrix_cycles": busy.get("matrix", 0.0),
        "layers": len(report["layers"]),
        "int8_layers": sum(not layer["in_float"] for layer in report["layers"]),
        "error": report["relative_l2"],
        "weights_only": weights_only,
    }


def _fastest(
    source: str | Path, batch: int | None, levels: Sequence[str], shape: Mapping[str, tuple[int, ...]]
) -> TimingReport:
    """The times of the fastest program."""
    programs = [
        dsa_sched.compile(source, chip="stcp920", level=level, batch=batch, shape=shape, schedule=True)
        for level in levels
    ]
    return min(map(dsa_sched.time, programs), key=lambda found: found.cycles)


def goals_of(rows: Sequence[Row]) -> Iterator[Goal]:
    """What ResNet-50 at 16 images a cluster should reach: the figure that the vendor published, and 1.5 times fp16; and
    what a decoder layer should by weights alone, 1.8 times fp16."""
    for row in rows:
        times = row["int8_items_per_second"] / row["fp16_items_per_second"]
        if (row["network"], row["batch"]) == CASES[0]:
            yield Goal("resnet50 x 16, images/s (published)", PUBLISHED, row["int8_items_per_second"], VECTOR_BOUND)
            yield Goal("resnet50 x 16, times fp16 at O3", 1.5, times, VECTOR_BOUND)
        if row["network"] == NAMED[0][0]:
            yield Goal(
                f"bert_base x {row['batch']}, sequences/s (bound)",
                BERT_BOUND,
                row["int8_items_per_second"],
                FOUR_SEQUENCES,
            )
        if row["network"] == DECODER:
            yield Goal(f"{DECODER}, weights alone, times fp16", 1.8, times)


def curve_of(network: str) -> Row:
    """The error at the outputs by the number of layers in fp16, as a search with a bound of a third finds it."""
    model = read_source(network, {}, None, {}, known="standard").model
    inputs = calibration_inputs(model, SEEDED, CURVE_INPUTS, 0)
    with tempfile.TemporaryDirectory() as folder:
        theirs = OutputErrors(model, inputs).of(onnx.load(quantised(network, "symmetric", Path(folder))))
    plain = dsa_sched.quantize(network, calibrate=SEEDED, inputs=CURVE_INPUTS)
    search = dsa_sched.quantize(network, calibrate=SEEDED, inputs=CURVE_INPUTS, bound=plain.relative_l2 / 3).to_dict()[
        "search"
    ]
    steps = [(step["float_layers"], step["error"]) for step in search["curve"]]
    return {"layers": len(plain.to_dict()["layers"]), "onnxruntime": theirs, "steps": steps}


def curve_goals(curve: Row) -> Iterator[Goal]:
    """What a quarter of the layers in fp16 should do to the error: make it half as large."""
    quarter = curve["layers"] // QUARTER
    at_quarter = min(error for count, error in curve["steps"] if count <= quarter)
    plain = curve["steps"][0][1]
    yield Goal(f"{CURVE}, {quarter} of {curve['layers']} layers in fp16, times less error", 2, plain / at_quarter, FLAT)
    yield Goal("the same next to onnxruntime's int8", 2, curve["onnxruntime"] / at_quarter)


def curve_text(curve: Row) -> str:
    """The curve as a table."""
    cells = [[str(count), f"{error:.2e}"] for count, error in curve["steps"]]
    head = (f"layers of {curve['layers']} in fp16", "error")
    said = f"{CURVE} by `--search`; with every operator quantised by onnxruntime: {curve['onnxruntime']:.2e}."
    return f"{said}\n\n{table(head, cells)}"


def text(rows: Sequence[Row], goals: Sequence[Goal]) -> str:
    """The table, the goals, and why some are missed."""
    cells = [
        [
            row["network"] + ", weights alone" * row["weights_only"],
            str(row["batch"]),
            f"{row['fp16_items_per_second']:,.0f}",
            f"{row['int8_items_per_second']:,.0f}",
            f"{row['int8_items_per_second'] / row['fp16_items_per_second']:.2f}",
            f"{row['int8_vector_cycles'] / row['int8_cycles']:.0%}",
            f"{row['int8_matrix_cycles'] / row['int8_cycles']:.0%}",
            f"{row['int8_layers']} of {row['layers']}",
            f"{row['error']:.1e}",
        ]
        for row in rows
    ]
    said = [
        f"* {goal.name}: {goal.found:,.4g} of {goal.wanted:,.4g}{'' if goal.met else f', missed: {goal.known}'}"
        for goal in goals
    ]
    return "\n".join([table(HEAD, cells), "", *said])


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="some of the networks")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed; write nothing")
    options = parser.parse_args(arguments)
    began, rows = time.perf_counter(), list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        for network, batch in (*CASES, *NAMED):
            if network in (options.networks or dict(CASES)):
                rows.append(measured(network, batch, Path(folder)))
                print(f"{network} x {batch}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        for network in WEIGHTS_ONLY:
            if options.networks is None or network in options.networks:
                rows.append(measured(network, 1, Path(folder), weights_only=True))
                print(f"{network}, weights alone: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    kept = json.loads(JSON.read_text(encoding="utf-8")) if options.networks and not options.check else {}
    curve = kept.get("curve") if options.networks and CURVE not in options.networks else curve_of(CURVE)
    rows = merged(kept.get("rows", []), rows)
    goals = (*goals_of(rows), *(curve_goals(curve) if curve else ()))
    said = "\n\n".join([text(rows, goals), *([curve_text(curve)] if curve else [])])
    print(said)
    if options.check:
        return int(any(not goal.met and not goal.known for goal in goals))
    made = {
        "goals": [{"name": g.name, "wanted": g.wanted, "found": g.found, "met": g.met} for g in goals],
        "rows": rows,
        "curve": curve,
    }
    data = (json.dumps(made, indent=1) + "\n").encode()
    write_whole(JSON, lambda file: file.write(data))
    page = f"# int8 next to fp16\n\nMade by `python benchmarks/int8.py`.\n\n{said}\n"
    write_whole(RESULTS / "int8.md", lambda file: file.write(page.encode()))
    return 0


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """New rows in place of old ones, in the order of the table."""
    rows = {(row["network"], row["weights_only"]): row for row in (*old, *new)}
    cases = [(network, False) for network, _ in (*CASES, *NAMED)] + [(network, True) for network in WEIGHTS_ONLY]
    return [rows[case] for case in cases if case in rows]


if __name__ == "__main__":
    sys.exit(main())
