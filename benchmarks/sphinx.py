"""SPHINX against the plain genetic algorithm from equal starts, list scheduling and the exact method.

    python benchmarks/sphinx.py [--json FILE] [--markdown FILE] [--seeds N] [--cluster tcp://HOST:PORT] [--tune]

Six networks on four scenarios (samples/scenarios), priced by rooflines. CPGA, the search of SPHINX, and the plain
genetic algorithm have the same decoder and budget, and of a seed the same first individuals: random ones, or the same
list schedules and shaken ones behind them (HEFT with other ranks; CPGA takes the first few of these where the plain one
takes all). The plain one's population and rates are the best for it on `TUNED_ON`, a network that is not among the six;
CPGA's were chosen on that one and on two of the IOS paper, inception_v3 and randwire_large. An evaluation is a makespan
of the whole network, however it came to be asked for. Where streams contend (the GPU of cpu_gpu), searches go by the
decoder's estimate; makespans are simulated where a search ends, and estimates where a budget is within one.

Keys of the JSON object: `host_cpu`, `python`, `budgets`, `seeds`, `load_average` and a list.

    rows                    one a network and scenario
      network, scenario, tasks, seeds, heft_ns, cpop_ns, peft_ns
      start_ns              the best of the list schedules that searches start from
      bound_ns, proven_ns   what nothing can be below, and the optimum where one is proven (else null)
      open                  whether the list schedules are not proven to hold the optimum
      starts                "random" and "listed": "plain" and "cpga" by budget, in its order, and how they compare
        plain, cpga         a row a budget: makespan_ns (median over seeds), spread_ns (between the quartiles),
                            worst_ns, gain (HEFT's makespan over the median), over_bound (the median over the bound)
        fewer               a row a budget: evaluations of the plain one until its last improvement over CPGA's until
                            the same makespan or less, `median` over seeds, `low` and `high` of its 95 % confidence
                            interval (bootstrap), and `reached`, the seeds whose target CPGA reached (0 where not)
        faster              the same at the largest budget in seconds of the processor, with all that comes before
      seeding               what list schedules alone are worth: "plain" and "cpga", evaluations from random starts
                            until the last improvement over those from list schedules until the same makespan
      without               `fewer` at the largest budget from list schedules of a CPGA without a part
      annealing_ns, random_ns     medians
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.lab.parallel_searches import dask_executor, processes
from benchmarks.lab.placement_searches import PLAIN, annealing, cpop, genetic, peft, random_search
from benchmarks.output import add_outputs, at_least_one, finish, table
from dsa_sched.placement.methods.exact import exact
from dsa_sched.placement.methods.list_scheduling import heft
from dsa_sched.placement.methods.registry import Method, Search
from dsa_sched.placement.methods.search_space import DecoderSpace, Rates
from dsa_sched.placement.methods.sphinx import CRITICAL, Sphinx, list_starts, sphinx
from dsa_sched.placement.model.from_onnx import task_graph_of
from dsa_sched.placement.model.pricing import priced
from dsa_sched.placement.model.problem import Problem, verify_problem
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

BUDGETS = (500, 1500, 5000)
EVALUATIONS = BUDGETS[-1]
STARTS = {"random": False, "listed": True}
LISTS: dict[str, Method] = {"heft": heft, "cpop": cpop, "peft": peft}
OTHERS: dict[str, Method] = {"annealing": annealing, "random": random_search}
MOST_EXACT = 200
"""Tasks that the exact method is asked about."""

VALUES = {
    "population": (15, 30, 60, 100, 200, 300),
    "crossover": (0.0, 0.3, 0.6, 0.9),
    "repeat": (0.0, 0.3, 0.6),
    "reprioritise": (0.1, 0.3, 0.5),
    "tournament": (1, 2, 4, 6),
}
"""What is tried in tuning; CPGA's bias is tried too."""

WITHOUT = {
    "segments": Sphinx(replace(CRITICAL, segment_share=0.0)),
    "bias": Sphinx(replace(CRITICAL, path_bias=0.0)),
    "pruning": Sphinx(prune=False),
}
"""CPGA without a part of it."""

LOOKS = (100, 300, 1000, 2000, EVALUATIONS)
"""CPGA is tuned for the mean of what it has after so many evaluations, the plain one for what it has at the end."""


@dataclass(frozen=True)
class Run:
    """One search on one problem."""

    network: str
    scenario: str
    problem: Problem
    method: Method
    search: Search


@dataclass(frozen=True)
class Result:
    """What is kept of an outcome. `seconds` are of the processor, for the whole search."""

    makespan_ns: float
    bound_ns: float
    evaluations: int
    history: tuple[tuple[int, float], ...]
    seconds: float

    def found(self, budget: int) -> tuple[int, float]:
        """When, in so many evaluations, the last improvement came, and to what."""
        return max((count, makespan) for count, makespan in self.history if count <= budget)

    def best(self, budget: int) -> float:
        """The makespan after so many evaluations."""
        return self.makespan_ns if self.evaluations <= budget else self.found(budget)[1]

    def reached(self, target_ns: float) -> float:
        """Evaluations until so little, or infinite."""
        return next((count for count, makespan in self.history if makespan <= target_ns), math.inf)


def measured(run: Run) -> Result:
    began = time.process_time()
    verify_problem(run.problem)
    outcome = run.method(run.problem, run.search)
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


def fewer(plain: Sequence[Result], other: Sequence[Result], budget: int) -> list[float]:
    """By seed, the ratio of evaluations; 0 where the target was not reached."""
    ratios = []
    for before, after in zip(plain, other, strict=False):
        count, target_ns = before.found(budget)
        ratios.append(count / after.reached(target_ns))
    return ratios


def searched(method: Method, evaluations: int, seeds: int) -> list[tuple[Method, Search]]:
    return [(method, Search(seed, evaluations)) for seed in range(seeds)]


def plan(seeds: int) -> dict[str, list[tuple[Method, Search]]]:
    """What is run on each problem, by the part that it plays. The plain one does the same whatever its budget is; CPGA
    does not where it searches groups first, so each budget is a search of its own."""
    few = min(seeds, FEW_SEEDS)
    found = {"list": [(method, Search()) for method in LISTS.values()]}
    for start, listed in STARTS.items():
        found[f"plain {start}"] = searched(partial(genetic, listed=listed), EVALUATIONS, seeds)
        for budget in BUDGETS:
            found[f"cpga {start} {budget}"] = searched(partial(sphinx, how=Sphinx(listed=listed)), budget, seeds)
    for part, how in WITHOUT.items():
        found[f"without {part}"] = searched(partial(sphinx, how=how), EVALUATIONS, few)
    return found | {name: searched(method, EVALUATIONS, few) for name, method in OTHERS.items()}


def compared(plain: Sequence[Result], cpga: Sequence[Result], budget: int) -> Row:
    ratios = fewer(plain, cpga, budget)
    low, high = interval(ratios)
    return {"median": statistics.median(ratios), "low": low, "high": high, "reached": sum(r > 0 for r in ratios)}


def faster(plain: Sequence[Result], again: Sequence[Result]) -> float:
    """Processor seconds until the plain one's last improvement, in proportion as it prepares next to nothing, over
    those of a CPGA that ended there (`again`), with all that it prepares."""
    ratios = []
    for before, after in zip(plain, again, strict=True):
        count, target_ns = before.found(EVALUATIONS)
        seconds = before.seconds * count / before.evaluations
        ratios.append(seconds / after.seconds if math.isfinite(after.reached(target_ns)) else 0.0)
    return statistics.median(ratios)


def reached_by(results: Sequence[Result], budget: int, heft_ns: float, bound_ns: float) -> Row:
    """What one algorithm has after a budget."""
    finals = [result.best(budget) for result in results]
    middle = statistics.median(finals)
    return {
        "makespan_ns": middle,
        "spread_ns": spread(finals),
        "worst_ns": max(finals),
        "gain": heft_ns / middle,
        "over_bound": middle / bound_ns,
    }


def row_of(case: tuple[str, str], problem: Problem, found: dict[str, list[Result]], bound_ns: float) -> Row:
    """`again` are searches of CPGA from list schedules that ended at the target of their seed. No schedule takes less
    than `bound_ns`."""
    network, scenario = case
    row: Row = {"network": network, "scenario": scenario, "tasks": len(problem.graph.tasks)}
    row["seeds"] = len(found["plain listed"])
    lists = zip(LISTS, found["list"], strict=True)
    row |= {f"{name}_ns": result.makespan_ns for name, result in lists}
    everything = [result for results in found.values() for result in results]
    row["bound_ns"] = max(bound_ns, lower_bound_ns(problem), *(result.bound_ns for result in everything))
    best = min(result.makespan_ns for result in everything)
    row["proven_ns"] = best if best <= row["bound_ns"] else None
    space = DecoderSpace.of(problem)
    row["start_ns"] = int(space.decoder.evaluate(*list_starts(space))[0].min())
    row["open"] = row["proven_ns"] is None or row["start_ns"] > row["proven_ns"]
    row["starts"] = {}
    for start in STARTS:
        plain = found[f"plain {start}"]
        cpga = {budget: found[f"cpga {start} {budget}"] for budget in BUDGETS}
        row["starts"][start] = {
            "plain": [reached_by(plain, budget, row["heft_ns"], row["bound_ns"]) for budget in BUDGETS],
            "cpga": [reached_by(own, budget, row["heft_ns"], row["bound_ns"]) for budget, own in cpga.items()],
            "fewer": [compared(plain, own, budget) for budget, own in cpga.items()],
        }
    row["starts"]["listed"]["faster"] = faster(found["plain listed"], found["again"])
    row["seeding"] = {
        "plain": statistics.median(fewer(found["plain random"], found["plain listed"], EVALUATIONS)),
        "cpga": statistics.median(
            fewer(found[f"cpga random {EVALUATIONS}"], found[f"cpga listed {EVALUATIONS}"], EVALUATIONS)
        ),
    }
    row["without"] = {
        part: statistics.median(fewer(found["plain listed"], found[f"without {part}"], EVALUATIONS)) for part in WITHOUT
    }
    row |= {f"{name}_ns": statistics.median(r.makespan_ns for r in found[name]) for name in OTHERS}
    return row


def gathered(executor: Any, runs: dict[Any, list[Run]]) -> dict[Any, list[Result]]:
    """All at once to the executor, so that no worker waits."""
    waiting = {key: [executor.submit(measured, run) for run in own] for key, own in runs.items()}
    found = {}
    for key, futures in waiting.items():
        found[key] = [future.result() for future in futures]
        print(f"{key}: {len(futures)} searches", file=sys.stderr, flush=True)
    return found


def proven_before(path: Path | None) -> Callable[[tuple[str, str], dict[str, float]], float]:
    """Of a case, the bound that an earlier run of this benchmark proved; 0 where that has none, or where a list
    schedule of it differs: then it was of another problem."""
    known = [] if path is None else json.loads(path.read_text())["rows"]

    def bound_ns(case: tuple[str, str], own: dict[str, float]) -> float:
        equal = [row for row in known if (row["network"], row["scenario"]) == case and own.items() <= row.items()]
        return max((float(row["bound_ns"]) for row in equal), default=0.0)

    return bound_ns


def rows(
    executor: Any,
    networks: Sequence[str],
    seeds: int,
    effort: float,
    proven: Callable[[tuple[str, str], dict[str, float]], float],
) -> list[Row]:
    """One a problem. The exact method is asked where no bound is reached, and none is known from before."""
    cases = problems(networks)
    parts = plan(seeds)
    runs = {
        (case, part): [Run(*case, problem, method, search) for method, search in searches]
        for case, problem in cases.items()
        for part, searches in parts.items()
    }
    found = gathered(executor, runs)
    later = {
        (case, "again"): [
            Run(*case, problem, sphinx, replace(search, options={"enough_ns": result.found(EVALUATIONS)[1]}))
            for (_, search), result in zip(
                parts[f"cpga listed {EVALUATIONS}"], found[case, "plain listed"], strict=True
            )
        ]
        for case, problem in cases.items()
    }
    last = Search(options={"effort": effort})
    bounds = {
        case: proven(case, {f"{result_of}_ns": found[case, "list"][n].makespan_ns for n, result_of in enumerate(LISTS)})
        for case in cases
    }
    for case, problem in cases.items():
        best = min(result.makespan_ns for (other, _), own in found.items() if other == case for result in own)
        if len(problem.graph.tasks) <= MOST_EXACT and not bounds[case] and best > lower_bound_ns(problem):
            later[case, "exact"] = [Run(*case, problem, exact, last)]
    found |= gathered(executor, later)
    return [
        row_of(case, problem, {part: own for (other, part), own in found.items() if other == case}, bounds[case])
        for case, problem in cases.items()
    ]


def tuned(executor: Any, name: str, method: Callable[[Rates], Method], first: Rates, seeds: int = 5) -> Rates:
    """The best rates on TUNED_ON, one after the other: least mean of logarithms of makespans."""
    cases = problems((TUNED_ON,))
    values = VALUES | ({"path_bias": (0.2, 0.4, 0.6, 0.8)} if first.path_bias else {})
    looks = LOOKS if first.path_bias else LOOKS[-1:]

    def score(rates: Rates) -> float:
        runs = [
            Run(network, scenario, problem, method(rates), Search(seed, EVALUATIONS))
            for (network, scenario), problem in cases.items()
            for seed in range(seeds)
        ]
        found = [future.result() for future in [executor.submit(measured, run) for run in runs]]
        return float(np.mean([math.log(result.found(look)[1]) for result in found for look in looks]))

    best, least = first, score(first)
    for rate in values:
        for value in values[rate]:
            rates = Rates(**(asdict(best) | {rate: value}))
            if rates != best and (reached := score(rates)) < least:
                best, least = rates, reached
        print(f"{name}: {rate}: {best}, {least:.6f}", file=sys.stderr, flush=True)
    return best


def percent(over: float) -> str:
    return f"{100 * (over - 1):.2f} %"


def compared_table(found: Sequence[Row], start: str) -> str:
    """`fewer` by budget, and what both have at the largest one."""
    lines = []
    for row in found:
        own = row["starts"][start]
        said = [
            f"{one['median']:.1f} ({one['low']:.1f} to {one['high']:.1f}), {one['reached']}" for one in own["fewer"]
        ]
        last = own["plain"][-1], own["cpga"][-1]
        names = (row["network"], row["scenario"], str(row["tasks"]), str(row["seeds"]), "yes" if row["open"] else "no")
        lines.append((*names, *said, *(f"{one['gain']:.3f}" for one in last)))
    budgets = (f"fewer at {budget:,}" for budget in BUDGETS)
    return table(("network", "scenario", "tasks", "seeds", "open", *budgets, "gain plain", "gain CPGA"), lines)


def distance_table(found: Sequence[Row], start: str) -> str:
    """How far both are from the optimum, or from the bound, at each budget."""
    lines = []
    for row in found:
        own = row["starts"][start]
        said = [percent(own[name][place]["over_bound"]) for place in range(len(BUDGETS)) for name in ("plain", "cpga")]
        worst = percent(own["cpga"][-1]["worst_ns"] / row["bound_ns"])
        kind = "optimum" if row["proven_ns"] is not None else "bound"
        lines.append((row["network"], row["scenario"], kind, percent(row["start_ns"] / row["bound_ns"]), *said, worst))
    budgets = (f"{name} {budget:,}" for budget in BUDGETS for name in ("plain", "CPGA"))
    return table(("network", "scenario", "above the", "at the start", *budgets, "worst seed of CPGA"), lines)


def headline(found: Sequence[Row]) -> str:
    """Medians over cases, a row a start and what it is counted over."""
    lines = []
    for start in STARTS:
        for name, own in (("open", [row for row in found if row["open"]]), ("all", found)):
            if own:
                middle = [
                    statistics.median(row["starts"][start]["fewer"][place]["median"] for row in own)
                    for place in range(len(BUDGETS))
                ]
                last = [row["starts"][start]["fewer"][-1]["median"] for row in own]
                named = f"both from {'list schedules' if STARTS[start] else 'random genes'}, {name} cases ({len(own)})"
                ends = f"{min(last):.1f}", f"{max(last):.1f}", str(sum(ratio >= 23.6 for ratio in last))
                lines.append((named, *(f"{ratio:.1f}" for ratio in middle), *ends))
    seeding = [[row["seeding"][name] for row in found] for name in ("plain", "cpga")]
    for name, ratios in zip(("plain", "CPGA"), seeding, strict=True):
        ends = f"{min(ratios):.1f}", f"{max(ratios):.1f}", ""
        said = f"seeding alone: {name} from list schedules against {name} from random genes, all cases"
        lines.append((said, "", "", f"{statistics.median(ratios):.1f}", *ends))
    budgets = (f"fewer at {budget:,}" for budget in BUDGETS)
    return table(("median over cases", *budgets, "least", "most", "cases from 23.6 on"), lines)


def summary(found: Sequence[Row]) -> str:
    """What else the tables come to, in sentences."""
    own = [row for row in found if row["open"]] or found
    proven = [row for row in found if row["proven_ns"] is not None]
    without = ", ".join(f"{part} {statistics.median(row['without'][part] for row in own):.1f}" for part in WITHOUT)
    gains = sorted(found, key=lambda row: -row["starts"]["listed"]["cpga"][-1]["gain"])[:5]
    named = ", ".join(
        f"{row['network']} on {row['scenario']} {row['starts']['listed']['cpga'][-1]['gain']:.2f}" for row in gains
    )
    speed = [row["starts"]["listed"]["faster"] for row in own]
    worst = max((row["starts"]["listed"]["cpga"][-1]["worst_ns"] / row["proven_ns"] for row in proven), default=1.0)
    calm = [row["starts"]["listed"]["cpga"][-1]["worst_ns"] <= row["heft_ns"] for row in found]
    return (
        f"From list schedules, open cases, {EVALUATIONS:,} evaluations: in processor seconds"
        f" {statistics.median(speed):.1f} times faster in the median ({min(speed):.1f} to {max(speed):.1f}).\n"
        f"The same, `fewer` of a CPGA without a part: {without}.\n"
        f"Never worse than HEFT: {'yes' if all(calm) else 'no'}. Proven in {len(proven)} cases; the worst seed there is"
        f" {percent(worst)} above the optimum.\n"
        f"Most gained over HEFT: {named}.\n"
    )


def markdown(figures: Row) -> str:
    """What the columns are, the tables and what they come to."""
    found = figures["rows"]
    parts = [
        "# SPHINX on several devices",
        f"`python benchmarks/sphinx.py`, {figures['host_cpu']}, Python {figures['python']}, up to {figures['seeds']} "
        "seeds. Prices are rooflines. CPGA and the plain genetic algorithm begin with the same individuals, random ones"
        " or list schedules. `fewer`: evaluations of the plain one until its last improvement within the budget over"
        " those of CPGA until the same makespan, median over seeds, with a 95 % confidence interval and the seeds whose"
        " target CPGA reached. A case is `open` where the list schedules are not proven to hold the optimum: elsewhere,"
        " both are done before they search. An evaluation is a makespan of the whole network.",
        headline(found),
        summary(found).rstrip(),
        "Below, `gain` is HEFT's makespan over the median at the largest budget; distances are medians over seeds.",
    ]
    for start, listed in STARTS.items():
        parts.append(f"## Both from {'list schedules' if listed else 'random genes'}")
        parts += [compared_table(found, start), distance_table(found, start)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_outputs(parser)
    parser.add_argument("--network", action="append", metavar="NAME", help="only this network; may be repeated")
    parser.add_argument("--seeds", type=at_least_one, default=SEEDS)
    parser.add_argument("--effort", type=float, default=3.0, help="deterministic time of the exact method")
    parser.add_argument("--bounds", type=Path, metavar="FILE", help="take bounds from the JSON file of an earlier run")
    parser.add_argument("--cluster", help="address of a Dask scheduler; processes of this machine without it")
    parser.add_argument("--workers", type=at_least_one)
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    figures: Row = {"host_cpu": llvmlite.binding.get_host_cpu_name(), "python": platform.python_version()}
    figures["load_average"] = os.getloadavg()[0]
    with dask_executor(given.cluster) if given.cluster else processes(given.workers) as executor:
        if given.tune:
            print(tuned(executor, "plain", lambda rates: partial(genetic, rates=rates), PLAIN))
            print(tuned(executor, "cpga", lambda rates: partial(sphinx, how=Sphinx(rates)), CRITICAL))
            return
        found = rows(executor, given.network or NETWORKS, given.seeds, given.effort, proven_before(given.bounds))
    figures |= {"budgets": list(BUDGETS), "seeds": given.seeds, "rows": found}
    finish(given, figures, markdown(figures))


if __name__ == "__main__":
    main()
