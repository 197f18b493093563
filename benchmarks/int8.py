"""int8 next to fp16 on the stcp920: `python benchmarks/int8.py [--networks NAME...] [--check]`.

Quantises networks of the zoo by `dsa_sched.quantize` on drawn inputs, compiles both forms at level O3 scheduled (with
weights alone in int8: at the faster of O2 and O3), and prints the items per second of four clusters by the cycle model.
With `--check` the exit code is 1 where a goal is missed that is not among the known misses, and nothing is written;
otherwise table and JSON go to benchmarks/results/.

Keys of the JSON object: `goals` (name, wanted, found, met), and `rows`, one per network:

    network, batch          items per cluster
    fp16_cycles, int8_cycles, fp16_items_per_second, int8_items_per_second      of four clusters
    int8_vector_cycles, int8_matrix_cycles      work of the busiest core by engine
    layers, int8_layers, error      of the quantised network, against the one in floating point
    weights_only                    whether values stay in fp16
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

import onnx

import dsa_sched
from benchmarks.decoder_layer import decoder_layer
from benchmarks.output import table
from dsa_sched.api.results import TimingReport
from dsa_sched.io.atomic_write import write_whole

Row = dict[str, Any]

CASES: tuple[tuple[str, int], ...] = (
    ("resnet50", 16), ("squeezenet", 8), ("mobilenet_v2", 8), ("vit_b16-mini", 8), ("bert_base-mini", 8),
)  # fmt: skip
"""Networks, and items per cluster."""
DECODER = "decoder layer"
"""A layer shaped like those of Qwen3-0.6B, which makes one token."""
FIXED = frozenset(["vit_b16-mini", "bert_base-mini"])
"""Networks that write their batch into the file."""

WEIGHTS_ONLY = (DECODER, "resnet50")
"""Networks of one item whose weights alone are int8."""

PUBLISHED = 14_442
"""Images per second of ResNet-50 in int8 on the card, by its vendor."""
VECTOR_BOUND = (
    "the vector engine has four to seven passes behind each sum (scale, bias, bound, rounding, conversion; three more "
    "for a residual sum), and works alternately with the matrix engine"
)

CLUSTERS = 4
RESULTS = Path(__file__).parent / "results"
INPUTS = 2
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
    quantised = dsa_sched.quantize(
        source, calibrate="seeded", inputs=INPUTS, batch=batch if fixed else None, weights_only=weights_only
    )
    quantised.save(path)
    levels = ("O2", "O3") if weights_only else ("O3",)
    plain, small = _fastest(source, of_file, levels), _fastest(path, None if fixed else of_file, levels)
    cores = small.to_dict()["programs"][0]["cores"]
    busy = {each["name"]: each["busy_cycles"] / cores for each in small.to_dict()["programs"][0]["engines"]}
    report = quantised.to_dict()
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


def _fastest(source: str | Path, batch: int | None, levels: Sequence[str]) -> TimingReport:
    """The times of the fastest program."""
    programs = [dsa_sched.compile(source, chip="stcp920", level=level, batch=batch, schedule=True) for level in levels]
    return min(map(dsa_sched.time, programs), key=lambda found: found.cycles)


def goals_of(rows: Sequence[Row]) -> Iterator[Goal]:
    """What ResNet-50 at 16 images a cluster should reach: the figure that the vendor published, and 1.5 times fp16; and
    what a decoder layer should by weights alone, 1.8 times fp16."""
    for row in rows:
        times = row["int8_items_per_second"] / row["fp16_items_per_second"]
        if (row["network"], row["batch"]) == CASES[0]:
            yield Goal("resnet50 x 16, images/s (published)", PUBLISHED, row["int8_items_per_second"], VECTOR_BOUND)
            yield Goal("resnet50 x 16, times fp16 at O3", 1.5, times, VECTOR_BOUND)
        if row["network"] == DECODER:
            yield Goal(f"{DECODER}, weights alone, times fp16", 1.8, times)


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
        for network, batch in CASES:
            if options.networks is None or network in options.networks:
                rows.append(measured(network, batch, Path(folder)))
                print(f"{network} x {batch}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        for network in WEIGHTS_ONLY:
            if options.networks is None or network in options.networks:
                rows.append(measured(network, 1, Path(folder), weights_only=True))
                print(f"{network}, weights alone: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    goals = tuple(goals_of(rows))
    print(text(rows, goals))
    if options.check:
        return int(any(not goal.met and not goal.known for goal in goals))
    if options.networks is None:
        kept = {
            "goals": [{"name": g.name, "wanted": g.wanted, "found": g.found, "met": g.met} for g in goals],
            "rows": rows,
        }
        data = (json.dumps(kept, indent=1) + "\n").encode()
        write_whole(RESULTS / "int8.json", lambda file: file.write(data))
        page = f"# int8 next to fp16\n\nMade by `python benchmarks/int8.py`.\n\n{text(rows, goals)}\n"
        write_whole(RESULTS / "int8.md", lambda file: file.write(page.encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
