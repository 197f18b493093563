"""SPHINX against the plain genetic algorithm, list scheduling and the exact method.

    python benchmarks/sphinx.py [--json FILE] [--markdown FILE] [--seeds N] [--cluster tcp://HOST:PORT] [--tune]

Six networks on four scenarios (samples/scenarios), priced by rooflines. CPGA, the search of SPHINX, and the plain
genetic algorithm have the same operators, decoder and budget; the plain one's population and rates are the best for it
on `TUNED_ON`, another network, and so are CPGA's (`--tune` finds them). The target of each seed is the plain one's
final makespan. Where streams contend (the GPU of cpu_gpu), both search by the decoder's estimate, and so are the
targets; the makespans of the table are simulated.

Keys of the JSON object: `host_cpu`, `python`, `evaluations`, `seeds`, and a list.

    rows                    one a network and scenario
      network, scenario, tasks, heft_ns, cpop_ns, peft_ns
      plain_ns, cpga_ns     medians of the final makespans; *_spread_ns between the quartiles, *_worst_ns the worst
      fewer                 evaluations until the plain one's last improvement over CPGA's until the same makespan or
                            less: median over seeds; fewer_low, fewer_high its 95 % confidence interval (bootstrap)
      faster                the same in seconds of the processor, with all that comes before the first evaluation
      reached               seeds whose target CPGA reached
      random_start          `fewer` of a CPGA that starts from random genes
      unbiased, unpruned    `fewer` of one that changes any task, and of one that searches the whole space
      plain_listed          `fewer` against a plain one that starts, as CPGA does, from list schedules
      annealing_ns, random_ns     medians
      gain                  HEFT's makespan over CPGA's median
      bound_ns, proven_ns   what nothing can be below, and the optimum where one is proven (else null)
      over_proven           CPGA's worst seed over the proven optimum
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.output import add_outputs, at_least_one, finish, table
from dsa_sched.placement.methods.parallel import dask_executor, processes
from dsa_sched.placement.methods.registry import Outcome, Search, find_method
from dsa_sched.placement.methods.search_space import Rates
from dsa_sched.placement.methods.searches import PLAIN
from dsa_sched.placement.methods.sphinx import CRITICAL
from dsa_sched.placement.model.from_onnx import task_graph_of
from dsa_sched.placement.model.pricing import priced
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.model.scenario import read_scenario
from dsa_sched.placement.schedule.bounds import lower_bound_ns
from dsa_sched.zoo import zoo_model

Row = dict[str, Any]

SAMPLES = Path(__file__).resolve().parents[1] / "samples" / "scenarios"

NETWORKS = ("resnet50", "densenet121", "inception_v1", "nasnet", "squeezenet", "unet")
TUNED_ON = "inception_v2"
SCENARIOS = ("cpu_gpu", "cpu_stcp920", "four_clusters", "big_little")
SEEDS = 30
FEW_SEEDS = 5
"""Of searches that are there for comparison."""

EVALUATIONS = 5000
MOST_EXACT = 200
"""Tasks that the exact method is asked about."""

VALUES = {
    "population": (15, 30, 60, 100, 200, 300),
    "cross": (0.0, 0.3, 0.6, 0.9),
    "again": (0.0, 0.3, 0.6),
    "hurry": (0.1, 0.3, 0.5),
    "rounds": (1, 2, 4, 6),
}
"""What is tried in tuning; CPGA's bias is tried too."""

WITHOUT = ("random_start", "unbiased", "unpruned")
"""CPGA without a part of it."""

LOOKS = (100, 300, 1000, 2000, EVALUATIONS)
"""CPGA is tuned for the mean of what it has after so many evaluations, the plain one for what it has at the end."""


@dataclass(frozen=True)
class Run:
    """One search on one problem."""

    network: str
    scenario: str
    problem: Problem
    method: str
    search: Search


@dataclass(frozen=True)
class Result:
    """What is kept of an outcome. `seconds` are of the processor, for the whole search."""

    makespan_ns: float
    bound_ns: float
    evaluations: int
    history: tuple[tuple[int, float], ...]
    seconds: float

    @property
    def found(self) -> tuple[int, float]:
        """When the last improvement came, and to what."""
        return self.history[-1]

    def best(self, evaluations: int) -> float:
        """The makespan after so many evaluations."""
        return min(makespan for count, makespan in self.history if count <= evaluations)

    def reached(self, target_ns: float) -> float:
        """Evaluations until so little, or infinite."""
        return next((count for count, makespan in self.history if makespan <= target_ns), math.inf)


def measured(run: Run) -> Result:
    began = time.process_time()
    outcome: Outcome = find_method(run.method)(run.problem, run.search)
    seconds = time.process_time() - began
    return Result(outcome.makespan_ns, outcome.bound_ns, outcome.evaluations, outcome.history, seconds)


def problems(networks: Sequence[str]) -> dict[tuple[str, str], Problem]:
    graphs = {name: task_graph_of(zoo_model(name)) for name in networks}
    scenarios = {name: read_scenario(SAMPLES / f"{name}.yaml") for name in SCENARIOS}
    return {(name, place): priced(graphs[name], scenarios[place]) for place in SCENARIOS for name in networks}


def spread(values: Sequence[float]) -> float:
    low, high = np.percentile(values, [25, 75])
    return float(high - low)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % confidence of the median, by 2000 resamples."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(np.array(values), (2000, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)


def fewer(plain: Sequence[Result], critical: Sequence[Result]) -> list[float]:
    """By seed, the ratio of evaluations; 0 where the target was not reached."""
    return [p.found[0] / c.reached(p.found[1]) for p, c in zip(plain, critical, strict=False)]


def searched(method: str, evaluations: int, seeds: int, **options: float) -> list[tuple[str, Search]]:
    return [(method, Search(seed, evaluations, options=options)) for seed in range(seeds)]


def plan(seeds: int) -> dict[str, list[tuple[str, Search]]]:
    """What is run on each problem, by the part that it plays."""
    few = min(seeds, FEW_SEEDS)
    return {
        "list": [(name, Search()) for name in ("heft", "cpop", "peft")],
        "plain": searched("ga", EVALUATIONS, seeds),
        "cpga": searched("sphinx", EVALUATIONS, seeds),
        "random_start": searched("sphinx", EVALUATIONS, few, listed=0),
        "unbiased": searched("sphinx", EVALUATIONS, few, bias=0),
        "unpruned": searched("sphinx", EVALUATIONS, few, prune=0),
        "plain_listed": searched("ga", EVALUATIONS, few, listed=1),
        "annealing": searched("annealing", EVALUATIONS, few),
        "random": searched("random", EVALUATIONS, few),
    }


def row_of(network: str, scenario: str, problem: Problem, found: dict[str, list[Result]], again: list[Result]) -> Row:
    """`again` are searches of CPGA that ended at the target of their seed."""
    plain, cpga = found["plain"], found["cpga"]
    ratios = fewer(plain, cpga)
    low, high = interval(ratios)
    # Until its last improvement, in proportion: the plain one prepares nothing.
    plain_seconds = [result.seconds * result.found[0] / result.evaluations for result in plain]
    speed = [
        before / after.seconds if math.isfinite(reached.reached(target.found[1])) else 0.0
        for before, after, reached, target in zip(plain_seconds, again, cpga, plain, strict=True)
    ]
    row: Row = {"network": network, "scenario": scenario, "tasks": len(problem.graph.tasks)}
    lists = zip(("heft", "cpop", "peft"), found["list"], strict=True)
    row |= {f"{name}_ns": result.makespan_ns for name, result in lists}
    for name in ("plain", "cpga"):
        finals = [result.makespan_ns for result in found[name]]
        row |= {
            f"{name}_ns": statistics.median(finals),
            f"{name}_spread_ns": spread(finals),
            f"{name}_worst_ns": max(finals),
        }
    row |= {
        "fewer": statistics.median(ratios),
        "fewer_low": low,
        "fewer_high": high,
        "faster": statistics.median(speed),
    }
    row["reached"] = sum(ratio > 0 for ratio in ratios)
    for name in WITHOUT:
        row[name] = statistics.median(fewer(plain, found[name]))
    row["plain_listed"] = statistics.median(fewer(found["plain_listed"], cpga))
    row |= {f"{name}_ns": statistics.median(r.makespan_ns for r in found[name]) for name in ("annealing", "random")}
    row["gain"] = row["heft_ns"] / row["cpga_ns"]
    exact = found.get("exact", [])
    row["bound_ns"] = max(lower_bound_ns(problem), *(result.bound_ns for result in (*cpga, *exact)))
    best = min(result.makespan_ns for result in (*cpga, *exact))
    row["proven_ns"] = best if best <= row["bound_ns"] else None
    row["over_proven"] = row["cpga_worst_ns"] / best if row["proven_ns"] is not None else None
    return row


def gathered(executor: Any, runs: dict[Any, list[Run]]) -> dict[Any, list[Result]]:
    """All at once to the executor, so that no worker waits."""
    waiting = {key: [executor.submit(measured, run) for run in own] for key, own in runs.items()}
    found = {}
    for key, futures in waiting.items():
        found[key] = [future.result() for future in futures]
        print(f"{key}: {len(futures)} searches", file=sys.stderr, flush=True)
    return found


def rows(executor: Any, seeds: int, effort: float) -> list[Row]:
    """One a problem."""
    cases = problems(NETWORKS)
    parts = plan(seeds)
    runs = {
        (case, part): [Run(*case, problem, method, search) for method, search in searches]
        for case, problem in cases.items()
        for part, searches in parts.items()
    }
    small = [case for case, problem in cases.items() if len(problem.graph.tasks) <= MOST_EXACT]
    last = Search(options={"effort": effort})
    runs |= {(case, "exact"): [Run(*case, cases[case], "exact", last)] for case in small}
    found = gathered(executor, runs)
    targets = {
        case: [
            Run(*case, problem, "sphinx", replace(search, options={"enough_ns": result.found[1]}))
            for (_, search), result in zip(parts["cpga"], found[case, "plain"], strict=True)
        ]
        for case, problem in cases.items()
    }
    again = gathered(executor, targets)
    return [
        row_of(*case, problem, {part: own for (other, part), own in found.items() if other == case}, again[case])
        for case, problem in cases.items()
    ]


def tuned(executor: Any, method: str, first: Rates, seeds: int = 5) -> Rates:
    """The best rates on TUNED_ON, one after the other: least mean of logarithms of makespans."""
    cases = problems((TUNED_ON,))
    values = VALUES | ({"bias": (0.2, 0.4, 0.6, 0.8)} if first.bias else {})
    looks = LOOKS if first.bias else LOOKS[-1:]

    def score(rates: Rates) -> float:
        runs = [
            Run(network, scenario, problem, method, Search(seed, EVALUATIONS, options=asdict(rates)))
            for (network, scenario), problem in cases.items()
            for seed in range(seeds)
        ]
        found = [future.result() for future in [executor.submit(measured, run) for run in runs]]
        return float(np.mean([math.log(result.best(look)) for result in found for look in looks]))

    best, least = first, score(first)
    for name in values:
        for value in values[name]:
            rates = Rates(**(asdict(best) | {name: value}))
            if rates != best and (reached := score(rates)) < least:
                best, least = rates, reached
        print(f"{method}: {name}: {best}, {least:.6f}", file=sys.stderr, flush=True)
    return best


COLUMNS = (
    "network", "scenario", "tasks", "HEFT ms", "plain ms", "CPGA ms", "gain", "fewer", "interval", "faster", "reached",
    "spread plain", "spread CPGA", "random start", "unbiased", "unpruned", "plain listed", "over bound",
    "worst over proven",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    def spread_of(name: str) -> str:
        return f"{100 * row[f'{name}_spread_ns'] / row[f'{name}_ns']:.2f} %"

    over = row["over_proven"]
    return (
        row["network"],
        row["scenario"],
        str(row["tasks"]),
        *(f"{row[key] / 1e6:.3f}" for key in ("heft_ns", "plain_ns", "cpga_ns")),
        f"{row['gain']:.3f}",
        f"{row['fewer']:.1f}",
        f"{row['fewer_low']:.1f} to {row['fewer_high']:.1f}",
        f"{row['faster']:.1f}",
        str(row["reached"]),
        spread_of("plain"),
        spread_of("cpga"),
        *(f"{row[name]:.1f}" for name in WITHOUT),
        f"{row['plain_listed']:.1f}" if row["plain_listed"] else "not reached",
        f"{row['cpga_ns'] / row['bound_ns']:.3f}",
        "" if over is None else f"{over:.4f}",
    )


def summary(found: Sequence[Row]) -> str:
    """What the table comes to, in sentences."""
    open_rows = [row for row in found if row["proven_ns"] is None or row["plain_ns"] > row["proven_ns"]]
    proven = [row for row in found if row["proven_ns"] is not None]
    ratios = [row["fewer"] for row in found]
    calm = [row["cpga_spread_ns"] <= row["plain_spread_ns"] for row in found]
    calmer = [row["cpga_spread_ns"] < row["plain_spread_ns"] for row in found]
    best = sorted(found, key=lambda row: -row["gain"])[:5]

    def middle(name: str) -> str:
        return f"{statistics.median(row[name] for row in found):.1f}"

    without = ", ".join(f"{name.replace('_', ' ')} {middle(name)} times fewer" for name in WITHOUT)
    named = ", ".join(f"{row['network']} on {row['scenario']} {row['gain']:.2f}" for row in best)
    return (
        f"Median over {len(found)} cases of the median over seeds: {statistics.median(ratios):.1f} times fewer"
        f" evaluations, {statistics.median(row['faster'] for row in found):.1f} times faster;"
        f" least {min(ratios):.1f}.\n"
        f"{without}; against a plain one from list schedules {middle('plain_listed')}.\n"
        f"At least 23.6 times fewer in {sum(ratio >= 23.6 for ratio in ratios)}, 35.5 in"
        f" {sum(ratio >= 35.5 for ratio in ratios)} cases.\n"
        f"The plain one misses the optimum, or nothing is proven, in {len(open_rows)} cases.\n"
        f"Spread over seeds smaller in {sum(calmer)} cases, larger in {len(calm) - sum(calm)}, none at all in the"
        f" rest.\n"
        f"Never worse than HEFT: {all(row['cpga_worst_ns'] <= row['heft_ns'] for row in found)}.\n"
        f"Proven in {len(proven)} cases; the worst seed there is {max(row['over_proven'] for row in proven):.4f} of the"
        f" optimum.\n"
        f"Most gained over HEFT: {named}.\n"
    )


def markdown(figures: Row) -> str:
    """What the columns are, the table and what it comes to."""
    return (
        "# SPHINX on several devices\n\n"
        f"`python benchmarks/sphinx.py`, {figures['host_cpu']}, Python {figures['python']}, {figures['seeds']} seeds, "
        f"{figures['evaluations']:,} evaluations a search. Medians over seeds; prices are rooflines. `gain`: HEFT's "
        "makespan over CPGA's. `fewer`: evaluations of the plain genetic algorithm until its last improvement over "
        "those of CPGA until the same makespan, with a 95 % confidence interval; `faster`: the same in seconds of the "
        "processor; `reached`: seeds whose target CPGA reached. Spreads are between the quartiles. `random start`, "
        "`unbiased`, `unpruned`: `fewer` of a CPGA without that part; `plain listed`: against a plain one that starts "
        "at the same list schedules, and whether CPGA reaches what that found.\n\n"
        f"{table(COLUMNS, map(cells, figures['rows']))}\n\n{summary(figures['rows'])}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_outputs(parser)
    parser.add_argument("--seeds", type=at_least_one, default=SEEDS)
    parser.add_argument("--effort", type=float, default=3.0, help="deterministic time of the exact method")
    parser.add_argument("--cluster", help="address of a Dask scheduler; processes of this machine without it")
    parser.add_argument("--workers", type=at_least_one)
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    with dask_executor(given.cluster) if given.cluster else processes(given.workers) as executor:
        if given.tune:
            print(tuned(executor, "ga", PLAIN))
            print(tuned(executor, "sphinx", CRITICAL))
            return
        found = rows(executor, given.seeds, given.effort)
    figures: Row = {"host_cpu": llvmlite.binding.get_host_cpu_name(), "python": platform.python_version()}
    figures |= {"evaluations": EVALUATIONS, "seeds": given.seeds, "rows": found}
    finish(given, figures, markdown(figures))


if __name__ == "__main__":
    main()
