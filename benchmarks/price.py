"""The cost model next to the cycle model: `python benchmarks/price.py [--count N] [--jobs N] [--check]`.

Draws pairs of a network and a chip (`benchmarks/lab/drawn_cases.py`), plans each at some levels and lowers the plans,
two of three pairs scheduled. For each plan, the cycles that level auto expects of it are divided by those that the
cycle model finds, both without the launch. Plans of one pair whose cycles differ by more than 15 % should be in the
same order by both. Of some pairs, level auto at effort fast is compiled next to O0, O1 and O2, all scheduled, and next
to auto at normal effort. With `--check` the exit code is 1 where a goal is missed; nothing is written.

Keys of the JSON object: `seed`, `count`, `summary` (what the goals are about), and two lists.

    plans                   one per network, chip and level
      case, network, features, level, scheduled, refusal
      expected_cycles, serial_cycles, overlapped_cycles      by the cost model, without the launch
      cycles                by the cycle model, without the launch
      path                  cycles of the critical path by cause
      busy                  cycles of work by engine, of the busiest core
    efforts                 one per pair of a network and a chip
      case, network, features, refusal
      fast_cycles, fast_seconds, normal_cycles, normal_seconds      seconds of the processor, the model loaded before
      level_cycles          of O0, O1 and O2 where they have a plan
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

from benchmarks.lab.drawn_cases import DrawnCase, drawn_case, small_team_chip
from benchmarks.output import at_least_one, table
from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import Model, load_model
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.pipeline.driver import compile_graph
from dsa_sched.search.candidates import Config, costed
from dsa_sched.stages.compilation import CompileOptions, Lowered
from dsa_sched.stages.targets import judge_of
from dsa_sched.stages.tile_stages import Planned, lower_below
from hw_models.chip import Chip
from hw_models.errors import UserError
from isched.timing.critical_path import critical_cycles
from partitioner.context.plan_context import Context
from partitioner.cost.traffic import plan_traffic
from partitioner.planners.levels import LEVELS, Auto, planner_of
from partitioner.planners.registry import make_plan

Row = dict[str, Any]

SEED = 35
COUNT = 200
LEVELS_PER_CASE = 4
EFFORT_SHARE = 4
"""Number of pairs of a network and a chip of which one is compiled at efforts fast and normal."""
SCHEDULED_OF = 3
"""Number of pairs of which one is lowered in the plan's own order."""

LEAST_RATIO, MOST_RATIO, RATIO_SHARE = 0.7, 1.4, 0.9
CLEAR_DIFFERENCE, ORDER_SHARE = 0.15, 0.95
FAST_SHARE = 0.4
BASE_LEVELS = ("O0", "O1", "O2")
RESULTS = Path(__file__).parent / "results"
WORST = 10


# Measuring


def case_of(seed: int, number: int) -> DrawnCase:
    """The case of that number; the first one is a chip that a small team once brought."""
    if number == 0:
        return DrawnCase("bert_base-mini", "bert_base-mini", None, small_team_chip(), ("small team",))
    return drawn_case(seed, number)


def measure_plans(seed: int, number: int, count: int) -> list[Row]:
    """The cost of the plans of `count` levels of one case, and the cycles of their programs."""
    case = case_of(seed, number)
    scheduled = number % SCHEDULED_OF != SCHEDULED_OF - 1
    levels = random.Random(f"{seed} {number} levels").sample(LEVELS, count)
    model = load_model(case.network, {}, case.batch, judge_of(case.chip, TARGET))
    return [_plan_row(case, number, level, scheduled, model) for level in sorted(levels)]


def _plan_row(case: DrawnCase, number: int, level: str, scheduled: bool, model: Model) -> Row:
    row = _named(case, number) | {"level": level, "scheduled": scheduled}
    chip, planner = case.chip, planner_of(level)
    options = CompileOptions(planner, schedule=scheduled)
    ctx = Context(model.graph, model.constants, chip, TARGET)
    launch = chip.assumed.launch_cycles
    try:
        candidate = costed(ctx, Config(planner), make_plan(ctx, planner), options)
        found = lower_below(Planned(model, ctx, candidate.plan), options, lambda _step: None)
    except UserError as error:
        return row | {"refusal": " ".join(str(error).split())}
    assert found is not None  # no run reaches an infinite limit
    _, run = found
    busy = plan_traffic(candidate.plan, candidate.plain, ctx).busy()
    return row | {
        "expected_cycles": candidate.expected_cycles - launch,
        "serial_cycles": candidate.cost.serial_cycles - launch,
        "overlapped_cycles": candidate.cost.overlapped_cycles - launch,
        "cycles": run.cycles - launch,
        "path": critical_cycles(run.timeline(chip)),
        "busy": dict(sorted(busy.items(), key=lambda item: -item[1])),
    }


def measure_efforts(seed: int, number: int) -> list[Row]:
    """Level auto at two efforts, and the first levels as a user can ask for them, all scheduled."""
    case = case_of(seed, number)
    model = load_model(case.network, {}, case.batch, judge_of(case.chip, TARGET))
    row = _named(case, number)
    levels: dict[str, float] = {}
    for level in BASE_LEVELS:
        try:
            levels[level] = _compiled(model, case.chip, CompileOptions(planner_of(level), schedule=True))[0]
        except UserError:
            continue
    try:
        fast_cycles, fast_seconds = _compiled(model, case.chip, CompileOptions(Auto(), effort="fast"))
        normal_cycles, normal_seconds = _compiled(model, case.chip, CompileOptions(Auto()))
    except UserError as error:
        return [row | {"refusal": " ".join(str(error).split())}]
    return [row | {
        "fast_cycles": fast_cycles, "fast_seconds": fast_seconds, "normal_cycles": normal_cycles,
        "normal_seconds": normal_seconds, "level_cycles": levels,
    }]  # fmt: skip


def _compiled(model: Model, chip: Chip, options: CompileOptions) -> tuple[float, float]:
    """Cycles of the program, and the seconds of the processor that compiling took."""
    began = time.process_time()
    made = compile_graph(model, chip, TARGET, options).made
    assert isinstance(made, Lowered)
    assert made.cycles is not None
    return made.cycles, time.process_time() - began


def _named(case: DrawnCase, number: int) -> Row:
    return {"case": number, "network": case.name, "features": list(case.features), "refusal": ""}


def measure(seed: int, count: int, jobs: int) -> Row:
    """All figures; pairs of a network and a chip are measured by `jobs` processes."""
    cases = -(-count // LEVELS_PER_CASE)
    plans, efforts = [], []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        of_plans = [
            pool.submit(measure_plans, seed, number, min(LEVELS_PER_CASE, count - number * LEVELS_PER_CASE))
            for number in range(cases)
        ]
        of_efforts = [pool.submit(measure_efforts, seed, number) for number in range(0, cases, EFFORT_SHARE)]
        for number, waiting in enumerate(of_plans, 1):
            plans += waiting.result()
            print(f"{number} of {cases} pairs of a network and a chip", file=sys.stderr, flush=True)
        for number, waiting in enumerate(of_efforts, 1):
            efforts += waiting.result()
            print(f"{number} of {len(of_efforts)} pairs at two efforts", file=sys.stderr, flush=True)
    return {"seed": seed, "count": count, "summary": summary(plans, efforts), "plans": plans, "efforts": efforts}


# Figures


def ratio(row: Row) -> float:
    return float(row["expected_cycles"] / row["cycles"])


def within(rows: Sequence[Row]) -> float:
    """Share of plans whose ratio is one that the goal allows."""
    return _share(rows, lambda row: LEAST_RATIO <= ratio(row) <= MOST_RATIO)


def clear_pairs(rows: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """Plans of the same network and chip whose cycles differ clearly, the faster one first."""
    for one, other in combinations(sorted(rows, key=lambda row: row["cycles"]), 2):
        same = one["case"] == other["case"]
        if same and other["cycles"] > (1 + CLEAR_DIFFERENCE) * one["cycles"]:
            yield one, other


def summary(plans: Sequence[Row], efforts: Sequence[Row]) -> Row:
    """What the goals are about."""
    made, tried = _made(plans), _made(efforts)
    pairs = list(clear_pairs(made))
    seconds = sum(row["normal_seconds"] for row in tried)
    return {
        "plans": len(made),
        "within": within(made),
        "pairs": len(pairs),
        "ordered": _share(pairs, lambda pair: pair[0]["expected_cycles"] < pair[1]["expected_cycles"]),
        "efforts": len(tried),
        "fast_never_slower": _share(tried, lambda row: slowdown(row) <= 1),
        "fast_seconds_share": sum(row["fast_seconds"] for row in tried) / seconds if seconds else 0.0,
    }


def slowdown(row: Row) -> float:
    """Cycles at effort fast over those of the fastest of the first levels; 1 where none of these has a plan."""
    return float(row["fast_cycles"] / min(row["level_cycles"].values(), default=row["fast_cycles"]))


def complaints(found: Row) -> Iterator[str]:
    """Goals that are missed."""
    said = found["summary"]
    if said["within"] < RATIO_SHARE:
        yield f"{said['within']:.0%} of the ratios lie within {LEAST_RATIO} to {MOST_RATIO}, wanted {RATIO_SHARE:.0%}"
    if said["ordered"] < ORDER_SHARE:
        yield f"{said['ordered']:.0%} of the clear pairs are in the right order, wanted {ORDER_SHARE:.0%}"
    for row in _made(found["efforts"]):
        if slowdown(row) > 1:
            against = f"{slowdown(row):.2f} times the cycles of the best of O0 to O2"
            yield f"case {row['case']}, {row['network']}: effort fast takes {against}"
    if said["fast_seconds_share"] > FAST_SHARE:
        yield f"effort fast takes {said['fast_seconds_share']:.0%} of normal's time, wanted {FAST_SHARE:.0%}"


def _made(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not row["refusal"]]


def _share(items: Sequence[Any], holds: Callable[[Any], bool]) -> float:
    return sum(map(holds, items)) / len(items) if items else 1.0


# Tables


def markdown(found: Row) -> str:
    made, said = _made(found["plans"]), found["summary"]
    refused = len(found["plans"]) - len(made)
    parts = [
        "# The cost model next to the cycle model",
        "",
        f"`python benchmarks/price.py`, seed {found['seed']}: cycles that level auto expects of a plan over those of "
        f"its program by the cycle model, without the launch. {len(made)} plans, {refused} more refused.",
        "",
        table(("", "measured", "goal"), _goals(said)),
        "",
        "## Ratios",
        "",
        table(("plans", "number", "10 %", "25 %", "50 %", "75 %", "90 %", "within", "in order"), _ratio_rows(made)),
        "",
        "## The worst plans",
        "",
        "Shares are of the critical path by the cycle model, and of the work of all engines as the plan has it.",
        "",
        table(("case", "network", "level", "features", "ratio", "cycles", "critical path", "work"), _worst(made)),
        "",
        "## Effort fast",
        "",
        "Cycles over the fastest of O0, O1 and O2, and over auto at normal effort, all scheduled; processor seconds.",
        "",
        table(("case", "network", "features", "over O0 to O2", "over normal", "seconds", "of normal"), _efforts(found)),
        "",
    ]
    return "\n".join(parts)


def _goals(said: Row) -> list[tuple[str, str, str]]:
    return [
        (f"ratios within {LEAST_RATIO} to {MOST_RATIO}", f"{said['within']:.1%}", f"{RATIO_SHARE:.0%}"),
        (f"clear pairs ({said['pairs']}) in order", f"{said['ordered']:.1%}", f"{ORDER_SHARE:.0%}"),
        (f"effort fast not slower than O0 to O2 (of {said['efforts']})", f"{said['fast_never_slower']:.0%}", "100%"),
        ("effort fast, share of normal's time", f"{said['fast_seconds_share']:.0%}", f"at most {FAST_SHARE:.0%}"),
    ]


def _ratio_rows(made: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    yield _ratio_row("all", made)
    for scheduled in (True, False):
        yield _ratio_row("scheduled" if scheduled else "as planned", [r for r in made if r["scheduled"] == scheduled])
    for level in LEVELS:
        yield _ratio_row(level, [row for row in made if row["level"] == level])
    for feature in sorted({name for row in made for name in row["features"]}):
        yield _ratio_row(feature, [row for row in made if feature in row["features"]])
    yield _ratio_row("no odd feature", [row for row in made if not row["features"]])


def _ratio_row(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    if not rows:
        return (name, "0", *[""] * 7)
    ratios = sorted(map(ratio, rows))
    percentiles = (f"{ratios[round(share * (len(ratios) - 1))]:.2f}" for share in (0.1, 0.25, 0.5, 0.75, 0.9))
    ordered = _share(list(clear_pairs(rows)), lambda pair: pair[0]["expected_cycles"] < pair[1]["expected_cycles"])
    return name, str(len(rows)), *percentiles, f"{within(rows):.0%}", f"{ordered:.0%}"


def _worst(made: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for row in sorted(made, key=lambda row: -max(ratio(row), 1 / max(ratio(row), 1e-9)))[:WORST]:
        level = f"{row['level']}{', scheduled' if row['scheduled'] else ''}"
        features = ", ".join(row["features"])
        shares = (_shares(row["path"]), _shares(row["busy"]))
        yield str(row["case"]), row["network"], level, features, f"{ratio(row):.2f}", f"{row['cycles']:,.0f}", *shares


def _shares(cycles: Mapping[str, float]) -> str:
    total = sum(cycles.values())
    return ", ".join(f"{name} {spent / total:.0%}" for name, spent in list(cycles.items())[:3] if spent)


def _efforts(found: Row) -> Iterator[tuple[str, ...]]:
    for row in found["efforts"]:
        named = (str(row["case"]), row["network"], ", ".join(row["features"]))
        if row["refusal"]:
            yield *named, "refused", "", "", ""
            continue
        normal = row["fast_cycles"] / row["normal_cycles"]
        share = row["fast_seconds"] / row["normal_seconds"]
        yield *named, f"{slowdown(row):.2f}", f"{normal:.2f}", f"{row['fast_seconds']:.1f}", f"{share:.0%}"


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda stream: stream.write(text.encode()))


def main(words: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 1 where `--check` finds a goal missed."""
    parser = argparse.ArgumentParser(description="The cost model next to the cycle model.")
    parser.add_argument("--count", type=at_least_one, default=COUNT, metavar="N", help="plans (200)")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N")
    parser.add_argument("--jobs", type=at_least_one, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="for price.json and price.md")
    parser.add_argument("--check", action="store_true", help="compare with the goals and write nothing")
    options = parser.parse_args(words)
    found = measure(options.seed, options.count, options.jobs)
    missed = list(complaints(found))
    if options.check:
        print("\n".join(missed) or "all goals are met")
        return int(bool(missed))
    _write(options.results / "price.json", json.dumps(found, indent=1) + "\n")
    _write(options.results / "price.md", markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
