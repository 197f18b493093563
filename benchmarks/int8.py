"""int8 next to fp16 on the stcp920: `python benchmarks/int8.py [--networks NAME...] [--check]`.

Quantises networks of the zoo by `dsa_sched.quantize` on drawn inputs, compiles both forms at level O3 scheduled, and
prints the items per second of four clusters by the cycle model. With `--check` the exit code is 1 where a goal is
missed that is not among the known misses, and nothing is written; otherwise table and JSON go to benchmarks/results/.

Keys of the JSON object: `goals` (name, wanted, found, met), and `rows`, one per network:

    network, batch          items per cluster
    fp16_cycles, int8_cycles, fp16_items_per_second, int8_items_per_second      of four clusters
    int8_vector_cycles, int8_matrix_cycles      work of the busiest core by engine
    layers, int8_layers, error      of the quantised network, against the one in floating point
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

import dsa_sched
from benchmarks.output import table
from dsa_sched.io.atomic_write import write_whole

Row = dict[str, Any]

CASES: tuple[tuple[str, int], ...] = (
    ("resnet50", 16), ("squeezenet", 8), ("mobilenet_v2", 8), ("vit_b16-mini", 8), ("bert_base-mini", 8),
)  # fmt: skip
"""Networks, and items per cluster."""
FIXED = frozenset(["vit_b16-mini", "bert_base-mini"])
"""Networks that write their batch into the file."""

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


def measured(network: str, batch: int, folder: Path) -> Row:
    """Both forms of a network, compiled and timed."""
    fixed = network in FIXED  # the written file keeps the batch of the calibration
    quantised = dsa_sched.quantize(network, calibrate="seeded", inputs=INPUTS, batch=batch if fixed else None)
    path = folder / f"{network}.onnx"
    quantised.save(path)
    plain, small = (
        dsa_sched.time(dsa_sched.compile(source, chip="stcp920", level="O3", batch=of_source, schedule=True))
        for source, of_source in ((network, batch), (path, None if fixed else batch))
    )
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
    }


def goals_of(rows: Sequence[Row]) -> tuple[Goal, ...]:
    """What ResNet-50 at 16 images a cluster should reach: the figure that the vendor published, and 1.5 times fp16."""
    found = [row for row in rows if (row["network"], row["batch"]) == CASES[0]]
    if not found:
        return ()
    (row,) = found
    times = row["int8_items_per_second"] / row["fp16_items_per_second"]
    return (
        Goal("resnet50 x 16, images/s (published)", PUBLISHED, row["int8_items_per_second"], VECTOR_BOUND),
        Goal("resnet50 x 16, times fp16 at O3", 1.5, times, VECTOR_BOUND),
    )


def text(rows: Sequence[Row], goals: Sequence[Goal]) -> str:
    """The table, the goals, and why some are missed."""
    cells = [
        [
            row["network"],
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
    goals = goals_of(rows)
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
