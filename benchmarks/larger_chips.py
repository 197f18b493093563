"""More of a chip is never slower: `python benchmarks/larger_chips.py [--chips N] [--jobs N] [--check]`.

Draws small networks and chips with less memory, bandwidth or cores than the stcp920 has, compiles each at level auto,
and again for the same chip with twice as much of one field, five fields per chip. A plan for the smaller chip is one
for the larger chip too, so the search should find none that is slower. With `--check` the exit code is 1 where one is,
and nothing is written. Everything goes through the public interface, without the build cache.

Keys of the JSON object: `seed`, and `rows`, one per network, chip and field that is doubled.

    case, network, batch
    factors               of each field over the stcp920's where it is not 1, in the smaller chip
    doubled               the field of which the larger chip has twice as much
    refusal               why one of the two has no program, else empty; then the rest is null
    cycles, larger_cycles              of the smaller and the larger chip's program, without the launch
    chosen, larger_chosen              the planner whose plan was the fastest
    seconds, larger_seconds            of the processor, to compile
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages that are not installed

import dsa_sched
from benchmarks.output import at_least_one, table
from dsa_sched.io.atomic_write import write_whole
from hw_models.chip import Chip
from hw_models.errors import UserError

Row = dict[str, Any]

CHIP = "stcp920"
SEED = 35
CHIPS = 8
DOUBLED_PER_CHIP = 5
"""Eight chips with five fields each are 40 points."""

NETWORKS = (
    "bert_base-mini",
    "convnext_t-mini",
    "efficientnet_b0-mini",
    "gpt2-mini",
    "mobilenet_v2-mini",
    "siamese-mini",
    "whisper_encoder-mini",
    "squeezenet",
)
BATCHES = (1, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class Field:
    """Something that a chip has more or less of: the paths of its numbers in the chip file, and the factors on them in
    a smaller chip. Twice as much of the largest is still what the instruction set can address."""

    paths: tuple[str, ...]
    factors: tuple[float, ...]


def _bandwidths(*parts: str) -> tuple[str, ...]:
    return tuple(f"{part}.bandwidth_bytes_per_cycle" for part in parts)


L1_SIZES = ("memories.L1.size_bytes", "memories.L1.buffers.data.size_bytes", "memories.L1.buffers.weights.size_bytes")
MAIN_WAYS = ("memories.DDR", "links.ddr_to_llb", "links.llb_to_ddr")
STAGING_WAYS = ("memories.LLB", "links.llb_to_l1", "links.l1_to_llb")
NETWORK_LINKS = ("links.llb_to_l1", "links.l1_to_llb")
LOCAL_WAYS = ("memories.L1", "links.im_to_l1", "links.l1_to_im", "links.l1_within")

FIELDS: Mapping[str, Field] = MappingProxyType({
    "cores": Field(("cores_per_cluster",), (1 / 8, 1 / 4, 1 / 2, 1 / 2)),
    "L1": Field(L1_SIZES, (1 / 64, 1 / 64, 1 / 32, 1 / 16, 1 / 4)),
    "LLB": Field(("memories.LLB.size_bytes",), (1 / 64, 1 / 32, 1 / 16, 1 / 4)),
    "IM": Field(("memories.IM.size_bytes",), (1 / 8, 1 / 4, 1 / 2)),
    "main memory's bandwidth": Field(_bandwidths(*MAIN_WAYS), (1 / 4, 1 / 2, 1, 2)),
    "LLB's bandwidth": Field(
        (*_bandwidths(*STAGING_WAYS), *(f"{link}.core_bandwidth_bytes_per_cycle" for link in NETWORK_LINKS)),
        (1 / 4, 1 / 2, 1),
    ),
    "exchanges' bandwidth": Field(_bandwidths("links.l1_to_l1"), (1 / 4, 1 / 2, 1)),
    "L1's bandwidth": Field(_bandwidths(*LOCAL_WAYS), (1 / 16, 1 / 4, 1)),
})  # fmt: skip

SLOWEST = 10
RESULTS = Path(__file__).parent / "results"


# Drawing


@dataclass(frozen=True, slots=True)
class Case:
    """A network with its batch, the factors on the fields of the smaller chip, and the fields to double."""

    network: str
    batch: int
    factors: Mapping[str, float]
    doubled: tuple[str, ...]


def drawn_case(seed: int, number: int) -> Case:
    """The case of that number. A field that is doubled is one of those of which the smaller chip may have less."""
    rng = random.Random(f"{seed} {number} larger")
    factors = {name: rng.choice(field.factors) for name, field in FIELDS.items()}
    doubled = tuple(sorted(rng.sample(sorted(FIELDS), DOUBLED_PER_CHIP)))
    return Case(NETWORKS[number % len(NETWORKS)], rng.choice(BATCHES), factors, doubled)


def chip_of(factors: Mapping[str, float]) -> Chip:
    """The stcp920 with these factors on its fields."""
    changes = {path: _times(_number(path), factor) for name, factor in factors.items() for path in FIELDS[name].paths}
    return dsa_sched.load_chip(CHIP, changes)


def _times(number: float, factor: float) -> float:
    return int(number * factor) if isinstance(number, int) else number * factor


@cache
def _number(path: str) -> float:
    """The number of the stcp920 at a path of its file."""
    place: Any = dsa_sched.load_chip(CHIP)
    for name in path.split("."):
        parts = {part.name: part for part in place} if isinstance(place, tuple) else {}
        place = parts[name] if parts else getattr(place, name)
    assert isinstance(place, int | float)
    return place


# Measuring


def measure_case(seed: int, number: int) -> list[Row]:
    """One row for each field that is doubled."""
    case = drawn_case(seed, number)
    rows = []
    try:
        before = _compiled(case, case.factors)
    except UserError as error:
        return [_row(case, number, name) | {"refusal": " ".join(str(error).split())} for name in case.doubled]
    for name in case.doubled:
        row = _row(case, number, name) | before
        try:
            after = _compiled(case, {**case.factors, name: 2 * case.factors[name]})
        except UserError as error:
            row["refusal"] = " ".join(str(error).split())
        else:
            row |= {f"larger_{key}": value for key, value in after.items()}
        rows.append(row)
    return rows


def _row(case: Case, number: int, doubled: str) -> Row:
    factors = {name: factor for name, factor in case.factors.items() if factor != 1}
    named = {"case": number, "network": case.network, "batch": case.batch, "factors": factors, "doubled": doubled}
    return named | {"refusal": ""}


def _compiled(case: Case, factors: Mapping[str, float]) -> Row:
    chip, began = chip_of(factors), time.process_time()
    artifact = dsa_sched.compile(case.network, chip, batch=case.batch, cache=False)
    seconds = time.process_time() - began
    cycles = dsa_sched.time(artifact, cache=False).cycles - chip.assumed.launch_cycles
    return {"cycles": cycles, "chosen": artifact.manifest.level, "seconds": round(seconds, 1)}


def measure(seed: int, chips: int, jobs: int) -> Row:
    """All figures; chips are measured by `jobs` processes."""
    rows: list[Row] = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for number, waiting in enumerate([pool.submit(measure_case, seed, number) for number in range(chips)], 1):
            rows += waiting.result()
            print(f"{number} of {chips} chips", file=sys.stderr, flush=True)
    return {"seed": seed, "rows": rows}


# Figures


def slowdown(row: Row) -> float:
    """Cycles of the larger chip over those of the smaller one; 1 where one has no program."""
    return 1.0 if row["refusal"] else float(row["larger_cycles"] / row["cycles"])


def complaints(found: Row) -> Iterator[str]:
    """Points at which the larger chip is slower or refuses what the smaller one takes."""
    for row in found["rows"]:
        if slowdown(row) > 1:
            yield (
                f"case {row['case']}, {row['network']}: with twice the {row['doubled']} "
                f"{row['larger_cycles']:,.0f} cycles, {slowdown(row):.3f} times the smaller chip's"
            )
        elif row["refusal"] and row.get("cycles"):
            yield f"case {row['case']}, {row['network']}: refused with twice the {row['doubled']}: {row['refusal']}"


def markdown(found: Row) -> str:
    rows = found["rows"]
    made = [row for row in rows if not row["refusal"]]
    slower = [row for row in made if slowdown(row) > 1]
    each = {name: [row for row in made if row["doubled"] == name] for name in FIELDS}
    parts = [
        "# More of a chip",
        "",
        f"`python benchmarks/larger_chips.py`, seed {found['seed']}: cycles at level auto, without the launch, for "
        f"chips with twice as much of one field over those without. {len(made)} points, {len(rows) - len(made)} more "
        f"refused; at {len(slower)} the larger chip is slower.",
        "",
        table(("doubled", "points", "least", "median", "most"), (_field_row(n, rows) for n, rows in each.items())),
        "",
        "## The slowest",
        "",
        table(("case", "network", "batch", "doubled", "cycles", "with more", "ratio", "chosen"), _slowest(made)),
        "",
        "## The chips",
        "",
        table(("case", "network", "of what the stcp920 has"), _chips(rows)),
        "",
    ]
    return "\n".join(parts)


def _field_row(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    ratios = sorted(map(slowdown, rows))
    if not ratios:
        return (name, "0", "", "", "")
    return name, str(len(rows)), *(f"{each:.3f}" for each in (ratios[0], ratios[len(ratios) // 2], ratios[-1]))


def _slowest(made: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for row in sorted(made, key=lambda row: -slowdown(row))[:SLOWEST]:
        named = str(row["case"]), row["network"], str(row["batch"]), row["doubled"]
        cycles = f"{row['cycles']:,.0f}", f"{row['larger_cycles']:,.0f}", f"{slowdown(row):.3f}"
        yield *named, *cycles, f"{row['chosen']}, then {row['larger_chosen']}"


def _chips(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for case, row in {row["case"]: row for row in rows}.items():
        yield str(case), row["network"], ", ".join(f"{name} {factor:g}" for name, factor in row["factors"].items())


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda stream: stream.write(text.encode()))


def main(words: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 1 where `--check` finds a larger chip that is slower."""
    parser = argparse.ArgumentParser(description="More of a chip is never slower.")
    parser.add_argument("--chips", type=at_least_one, default=CHIPS, metavar="N", help=f"smaller chips ({CHIPS})")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N")
    parser.add_argument("--jobs", type=at_least_one, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="for larger_chips.json and .md")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args(words)
    found = measure(options.seed, options.chips, options.jobs)
    if options.check:
        slower = list(complaints(found))
        print("\n".join(slower) or "no larger chip is slower")
        return int(bool(slower))
    _write(options.results / "larger_chips.json", json.dumps(found, indent=1) + "\n")
    _write(options.results / "larger_chips.md", markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
