"""What every kernel and network takes, written down before it is measured: `python benchmarks/gpu/predict.py`.

    network x batch x level x chip --plan--> kernels with their floors, and their sum with launches

A floor is the least that memories and units at the rates of the chip file take. Where the chip file has measured rates
of kinds of kernels, a time is expected too, with how far off it would be if all kernels were off as half of those that
were measured: a measurement beyond that proves it wrong. Measured tables show them beside. Keys of the JSON object,
written to benchmarks/results/gpu_predicted.json or `--json FILE`:

    floors     says that they are floors, of what
    rows       one a network, batch, level and chip; O3 where it fuses something
      network, batch, level, chip
      floor_ms           kernels and launches, one after the other; launch_ms of it
      expected_ms        what that is expected to take, error_ms its limit on both sides; the floor and 0 where nothing
                         of the chip was measured
      kernels            by group: floor of its kernel in ms, what binds it (a memory or unit), launches, kernel
      over_o0            floor of O0 over that of O3
    left_out   networks that have no plan yet, with the reason
    study      one a subject, batch, chip and way of the case study (`study.py`), not where networks are named
      subject, batch, chip, way
      floor_ms, launch_ms, launches
      layers_over_it     floor of one kernel a layer over this one
      fused              groups of several layers with their kernels
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package that is not installed

from benchmarks.gpu.floors import floor_ms, floors_of, is_fused
from benchmarks.gpu.networks import BATCHES, LEVELS, NETWORKS, batches_of, loaded, name_of
from benchmarks.gpu.store import expected_ms
from benchmarks.gpu.study import SUBJECTS
from benchmarks.gpu.study_floors import study_rows
from benchmarks.output import add_outputs, at_least_one, finish, keep, table
from codegen.target import GroupTarget
from dsa_sched.frontend import Model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import plan_kernels
from dsa_sched.stages.targets import judge_of, target_of
from hw_models.chip import Chip
from hw_models.errors import TargetError, UserError
from hw_models.loading import load_chip
from partitioner.planners.levels import planner_or_auto

Row = dict[str, Any]

CHIPS = ("h200", "h100", "a100")
RESULT = Path(__file__).resolve().parents[1] / "results" / "gpu_predicted.json"
SAID = "floors by the chip files, and what is expected by measured rates of kinds of kernels, in milliseconds"


def predicted(
    networks: Sequence[str], batches: Sequence[int], chips: Sequence[str], said: Callable[[str], None]
) -> Iterator[Row]:
    """Rows, or what was left out: these have a `reason`."""
    opened = [(chip, _target(chip)) for chip in map(load_chip, chips)]
    for network in networks:
        for batch in batches_of(network, tuple(batches)):
            said(f"{network}, batch {batch}")
            try:
                # the targets of all GPUs take the same operators, so one graph serves all
                model = loaded(network, batch, judge_of(*opened[0]))
                for chip, target in opened:
                    yield from _rows(model, name_of(network), batch, chip, target)
            except UserError as error:
                yield {"network": network, "batch": batch, "reason": str(error)}


def _target(chip: Chip) -> GroupTarget:
    target = target_of(chip)
    if not isinstance(target, GroupTarget):
        raise TargetError(f"chip {chip.name}", needs="a GPU", has=f"a chip of kind {chip.kind}")
    return target


def _rows(model: Model, network: str, batch: int, chip: Chip, target: GroupTarget) -> Iterator[Row]:
    plain = 0.0
    for level in LEVELS:
        plan = plan_kernels(model, chip, target, CompileOptions(planner_or_auto(level), batch)).plan
        if level != "O0" and not is_fused(plan, model.graph):
            continue
        kernels = floors_of(plan, model.graph, target, chip)
        whole = floor_ms(kernels)
        plain = plain or whole
        yield {
            "network": network,
            "batch": batch,
            "level": level,
            "chip": chip.name,
            "floor_ms": _short(whole),
            "launch_ms": _short(sum(kernel["launch_ms"] for kernel in kernels.values())),
            **dict(zip(("expected_ms", "error_ms"), map(_short, expected_ms(kernels)), strict=True)),
            "over_o0": _short(plain / whole),
            "kernels": {name: _line(kernel) for name, kernel in kernels.items()},
        }


def _line(kernel: Row) -> str:
    return f"{_short(kernel['floor_ms'])} ms, {kernel['binds']}, {kernel['launches']} launches, {kernel['kernel']}"


def _short(number: float) -> float:
    return float(f"{number:.5g}")


def markdown(figures: Row) -> str:
    rows = [
        (row["chip"], row["network"], str(row["batch"]), row["level"], f"{row['floor_ms']:.4f}",
         f"{row['launch_ms']:.4f}", f"{row['expected_ms']:.4f} ± {row['error_ms']:.4f}", str(len(row["kernels"])),
         f"{row['over_o0']:.2f}")
        for row in figures["rows"]
    ]  # fmt: skip
    headings = ("chip", "network", "batch", "level", "floor ms", "launches ms", "expected ms", "kernels", "O0 over it")
    left = [f"Left out: {row['network']}, batch {row['batch']}: {row['reason']}" for row in figures["left_out"]]
    return "\n\n".join(("# Floors on GPUs", f"{SAID[0].upper()}{SAID[1:]}.", table(headings, rows), *left, ""))


def main() -> int:
    parser = argparse.ArgumentParser(description="Floors of kernels and networks on GPUs.")
    add_outputs(parser)
    parser.add_argument("--network", action="append", metavar="NAME", help="of the zoo, or a file; may be repeated")
    parser.add_argument("--batch", action="append", type=at_least_one, metavar="N", help="may be repeated")
    parser.add_argument("--chip", action="append", metavar="CHIP", help=f"may be repeated (default {', '.join(CHIPS)})")
    options = parser.parse_args()
    options.json = options.json or RESULT
    figures: Row = {"floors": SAID, "rows": [], "left_out": [], "study": []}

    def said(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    try:
        rows = predicted(
            options.network or NETWORKS, options.batch or BATCHES, options.chip or CHIPS, said
        )  # fmt: skip
        for row in rows:
            figures["left_out" if "reason" in row else "rows"].append(row)
            keep(options, figures)
        for row in study_rows((), (), said) if options.network else study_rows(SUBJECTS, options.chip or CHIPS, said):
            figures["study"].append(row)
            keep(options, figures)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finish(options, figures, markdown(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
