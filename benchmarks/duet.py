"""Networks with independent parts on two devices: `python benchmarks/duet.py [--json FILE] [--markdown FILE]`.

Each network of benchmarks/branching_networks.py is placed by DUET with the devices' own compilers in the loop, and then
really run: by the run-time on both devices, by one onnxruntime that has the same two cores, and as a whole on each
device alone. The one runtime comes first, since it needs no placement: with two threads that share each operator, and
in its parallel mode, where each of two threads may take an operator (since its version 1.14 none on a CPU does:
microsoft/onnxruntime#16158). All of that happens in turns, round by round, so that other work on the machine meets all
alike; times are the shortest of all rounds, and the ratio of medians stands beside them. An ordinary network of the
zoo, without parts worth a second device, shows what is lost.

Every scenario is two devices on one host: two cores through onnxruntime, one core through onnxruntime beside one
through TVM, and an optimising beside a plain onnxruntime. Keys of the JSON object: `host_cpu`, `python`, `cpus`,
`load_average` (at the start), `rounds`, and a list.

    rows                    one a network and scenario
      network, scenario, load_average
      sub_graphs, evaluations, search_seconds   of DUET; seconds with compiling and timing
      devices               device -> sub-graphs on it
      predicted_ms          makespan of the schedule
      measured_ms           shortest makespan that was run; with median_ms
      undisturbed_ms        shortest makespan if each task had taken only the processor's time that it really took: what
                            is left of measured_ms when other work on the machine is taken out
      one_runtime_ms        way -> shortest run by one onnxruntime on the same cores; with one_runtime_median_ms
      over_one_runtime      the better way of one runtime over measured, by the shortest: below 1, DUET loses; with
                            median_over_one_runtime
      alone_ms              device -> shortest run of the whole network; with alone_median_ms
      error                 measured over predicted, less 1; with undisturbed_error
      speedup               the better device alone over measured, by the shortest; with median_speedup, and
                            undisturbed_speedup by the processor's time of both
      speedups              device -> the same over each device alone
      largest_difference    of outputs against the first device alone, over the largest value
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import llvmlite.binding
import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.branching_networks import NETWORKS
from benchmarks.output import add_outputs, at_least_one, finish, keep, table
from dsa_sched.devices.device import Array, Device, Refused, drawn_feeds
from dsa_sched.devices.measuring import Profiler
from dsa_sched.devices.opening import open_devices
from dsa_sched.frontend.load import load_source
from dsa_sched.placement.methods.registry import Search, find_method
from dsa_sched.placement.model.from_onnx import TaskPart, task_model_of
from dsa_sched.placement.model.problem import Machine
from dsa_sched.placement.model.scenario import parse_scenario
from dsa_sched.placing.place import place
from hw_models.errors import UserError

Row = dict[str, Any]

SCENARIO = """
schema_version: 1
name: two
description: Two devices on one host
devices:
  - {{{}, name: {}}}
  - {{{}, name: {}}}
links:
  - {{between: [{}, {}], latency_us: 20, gigabytes_per_second: 5, measured: true}}
"""

ONNXRUNTIME, PLAIN, TVM = "kind: onnxruntime", "kind: onnxruntime, optimise: false", "kind: tvm"
SCENARIOS = {
    "two cores": (ONNXRUNTIME, "core0", ONNXRUNTIME, "core1"),
    "onnxruntime + TVM": (ONNXRUNTIME, "ort", TVM, "tvm"),
    "optimised + plain": (ONNXRUNTIME, "ort", PLAIN, "plain"),
}

TWO_THREADS, PARALLEL = "two threads", "parallel mode"
"""The ways of one onnxruntime on two cores: both threads share each operator, or each takes one that is ready."""

LONG_ENOUGH_MS = 5000
"""A device that has run that long alone is not run again."""

NO_GAIN = "squeezenet"
"""An ordinary network: a row of layers, with branches that are over before another device has heard of them."""


def model_of(network: str) -> onnx.ModelProto:
    return NETWORKS[network]() if network in NETWORKS else load_source(network)


def measure(network: str, scenario: str, rounds: int) -> Row:
    """Place one network, run it, and run it on each device alone."""
    first, first_name, second, second_name = SCENARIOS[scenario]
    text = SCENARIO.format(first, first_name, second, second_name, first_name, second_name)
    described = parse_scenario(text, scenario)
    devices = open_devices(described)
    tasks = task_model_of(model_of(network))
    profiler = Profiler(tasks, described, devices)
    began = time.perf_counter()
    found = place(profiler.problem(), {"duet": find_method("duet")}, Search())
    outcome = profiler.confirmed(found.best)
    searched = time.perf_counter() - began
    feeds = drawn_feeds(tasks.whole)
    runners = {device.name: runner(device, tasks.whole, feeds) for device in devices if device is not None}
    alone = {name: run for name, run in runners.items() if run is not None}
    one_runtime = {way: one_runner(tasks.whole, feeds, way) for way in (TWO_THREADS, PARALLEL)}
    together: list[float] = []
    undisturbed: list[float] = []
    apart: dict[str, list[float]] = {name: [] for name in alone}
    apart_worked: dict[str, list[float]] = {name: [] for name in alone}
    one: dict[str, list[float]] = {way: [] for way in one_runtime}
    with profiler.executor(outcome.problem, outcome.placement) as workers:
        for _ in range(rounds):
            execution = workers.run(feeds)
            together.append(execution.makespan_ns / 1e6)
            undisturbed.append(workers.undisturbed_ns(execution) / 1e6)
            for name, run in alone.items():
                if sum(apart[name]) < LONG_ENOUGH_MS:
                    worked = time.thread_time()
                    apart[name].append(timed_ms(run))
                    apart_worked[name].append(1e3 * (time.thread_time() - worked))
            for way, whole_run in one_runtime.items():
                one[way].append(timed_ms(whole_run))
    predicted = outcome.makespan_ns / 1e6
    best, best_median = min(map(min, apart.values())), min(map(median, apart.values()))
    work = [task.name for task in outcome.problem.graph.tasks if not task.is_end]
    return {
        "network": network,
        "scenario": scenario,
        "load_average": os.getloadavg()[0],
        "sub_graphs": len(work),
        "evaluations": outcome.evaluations,
        "search_seconds": searched,
        "devices": {m.name: _tasks_on(m, work, outcome.schedule.run_of) for m in outcome.problem.machines},
        "predicted_ms": predicted,
        "measured_ms": min(together),
        "median_ms": median(together),
        "undisturbed_ms": min(undisturbed),
        "one_runtime_ms": {way: min(times) for way, times in one.items()},
        "one_runtime_median_ms": {way: median(times) for way, times in one.items()},
        "over_one_runtime": min(map(min, one.values())) / min(together),
        "median_over_one_runtime": min(map(median, one.values())) / median(together),
        "alone_ms": {name: min(times) for name, times in apart.items()},
        "alone_median_ms": {name: median(times) for name, times in apart.items()},
        "error": min(together) / predicted - 1,
        "undisturbed_error": min(undisturbed) / predicted - 1,
        "speedup": best / min(together),
        "undisturbed_speedup": min(map(min, apart_worked.values())) / min(undisturbed),
        "median_speedup": best_median / median(together),
        "speedups": {name: min(times) / min(together) for name, times in apart.items()},
        "largest_difference": _difference(execution.outputs, alone[first_name]()),
    }


def _tasks_on(machine: Machine, work: list[str], run_of: Any) -> int:
    return sum(run_of[name].machine == machine.name for name in work)


def runner(device: Device, whole: TaskPart, feeds: dict[str, Array]) -> Callable[[], dict[str, Array]] | None:
    """The whole network on one device; None where it refuses it."""
    try:
        compiled = device.compile(whole)
    except Refused:
        return None
    run = device.run
    run(compiled, feeds)
    return lambda: run(compiled, feeds)


def one_runner(whole: TaskPart, feeds: dict[str, Array], way: str) -> Callable[[], object]:
    """The whole network by one onnxruntime on two cores. Its threads wait busily, which is its default, but not after a
    run, when they would disturb the next one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.intra_op_num_threads, options.inter_op_num_threads = (2, 1) if way == TWO_THREADS else (1, 2)
    modes = onnxruntime.ExecutionMode
    options.execution_mode = modes.ORT_SEQUENTIAL if way == TWO_THREADS else modes.ORT_PARALLEL
    session = onnxruntime.InferenceSession(whole.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted, given = list(whole.outputs), {name: feeds[name] for name in whole.inputs}
    session.run(wanted, given)
    return lambda: session.run(wanted, given)


def timed_ms(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def _difference(found: Any, expected: dict[str, Array]) -> float:
    apart = (np.abs(found[name] - array).max() / max(1e-9, np.abs(array).max()) for name, array in expected.items())
    return float(max(apart))


HEADINGS = (
    "network", "devices", "sub-graphs", "predicted", "measured", "error", "median", "error", "undisturbed",
    "two threads", "parallel mode", "over one runtime", "by medians",
    "alone", "over alone", "by medians", "undisturbed", "difference",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    """One row of the table."""
    parts = " + ".join(str(count) for count in row["devices"].values())
    times = [f"{row['predicted_ms']:.2f}"]
    for kind in ("measured_ms", "median_ms"):
        times += [f"{row[kind]:.2f}", f"{100 * (row[kind] / row['predicted_ms'] - 1):+.0f} %"]
    undisturbed = f"{row['undisturbed_ms']:.2f} ({100 * row['undisturbed_error']:+.0f} %)"
    one = (f"{row['one_runtime_ms'][way]:.2f}" for way in (TWO_THREADS, PARALLEL))
    over_one = (f"{row[key]:.2f}" for key in ("over_one_runtime", "median_over_one_runtime"))
    alone = ", ".join(f"{name} {ms:.2f}" for name, ms in row["alone_ms"].items())
    over_alone = (f"{row[key]:.2f}" for key in ("speedup", "median_speedup", "undisturbed_speedup"))
    last = f"{row['largest_difference']:.0e}"
    return row["network"], row["scenario"], parts, *times, undisturbed, *one, *over_one, alone, *over_alone, last


def summary(rows: Sequence[Row]) -> str:
    """Where two devices win and lose against one runtime on the same cores, by the shortest runs."""
    ratios = {f"{row['network']} on {row['scenario']} {row['over_one_runtime']:.2f}": row for row in rows}
    lost = [said for said, row in ratios.items() if row["over_one_runtime"] < 1]
    won = [said for said, row in ratios.items() if row["over_one_runtime"] >= 1]
    return (
        f"Against the better way of one onnxruntime on the same two cores, DUET loses in {len(lost)} of {len(rows)}"
        f" rows ({', '.join(lost) or 'none'}) and is at least as fast in {len(won)} ({', '.join(won) or 'none'})."
    )


def markdown(figures: Row) -> str:
    """What the columns are, where DUET loses, and the table."""
    rows = figures["rows"]
    loads = [row["load_average"] for row in rows]
    return "\n".join(
        (
            "# DUET on two devices",
            "",
            f"`python benchmarks/duet.py`, {figures['host_cpu']}, {figures['cpus']} CPUs, Python {figures['python']}, "
            f"load {figures['load_average']:.1f} at the start and {min(loads):.1f} to {max(loads):.1f} before the "
            f"rows, {figures['rounds']} rounds. Times in ms, the shortest of all rounds, and the median where it says "
            "so. "
            "`two threads` and `parallel mode` are one onnxruntime on the same two cores, whole and without placement: "
            "`over one runtime` is the faster of them over what DUET took, below 1 where DUET loses. `alone` is the "
            "whole network compiled for one device of one core, `over alone` the better of these over what DUET took. "
            "`undisturbed` is the makespan with the time alone that each task took of the processor; `sub-graphs` are "
            "those on the first and on the second device.",
            "",
            summary(rows),
            "",
            table(HEADINGS, map(cells, rows)),
            "",
        )
    )


def measure_all(networks: Iterable[str], scenarios: Iterable[str], rounds: int) -> Iterable[Row]:
    wanted = tuple(scenarios)
    for network in networks:
        for scenario in wanted:
            yield measure(network, scenario, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description="Networks with independent parts on two devices at a time.")
    add_outputs(parser)
    parser.add_argument("--network", action="append", metavar="NAME", help="only this network; may be repeated")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only this pair of devices")
    parser.add_argument("--rounds", type=at_least_one, default=60, metavar="N", help="runs of each kind (default: 60)")
    options = parser.parse_args()
    figures: Row = {"host_cpu": llvmlite.binding.get_host_cpu_name(), "python": platform.python_version()}
    figures |= {"cpus": os.cpu_count() or 0, "load_average": os.getloadavg()[0], "rounds": options.rounds, "rows": []}
    networks = options.network or (*NETWORKS, NO_GAIN)
    try:
        for row in measure_all(networks, options.scenario or tuple(SCENARIOS), options.rounds):
            figures["rows"].append(row)
            keep(options, figures)
    except UserError as error:
        parser.error(str(error))
    finish(options, figures, markdown(figures))


if __name__ == "__main__":
    main()
