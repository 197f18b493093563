"""IOS beside its published figures: `python benchmarks/ios.py [--json FILE] [--markdown FILE] [--network NAME]...
[--file FILE] [--quick] [--measure DEVICE]`.

    networks of the paper --explore--> search spaces, counted beside the published ones
                          --a model of a V100, search_stages--> latencies, speed-ups beside the measured ones

Counts are exact and must be equal. Latencies here are a MODEL (`benchmarks.lab.ios.gpu`, a roofline with occupancy
from public numbers, fitted to nothing); the published ones were measured on a V100. What may be compared are ratios.
With `--file`, the networks of a file of the same schema, of which nothing is published. With `--measure cuda`, stages
are timed on an NVIDIA GPU through onnxruntime and its CUDA provider as the search asks for them, in single and half
precision; with `--measure cpu`, on cores of the host, in single precision. Every operator is a run of its own there,
awaited by the host, which the authors' runtime does not do; merged operators are not timed.

Keys of the JSON object: `host_cpu`, `python`, `costs` (where latencies come from), and lists.

    rows                one a network and pruning
      network, operators, r, s (null when unpruned)
      largest_block, width, transitions, schedules      of the part with the most transitions
      published_transitions, published_schedules        null where there are none
      total_states, total_transitions, endings          of all parts; distinct stages that were priced
      seconds                                           processor time to explore, price and solve all parts
    latencies           one a network, precision and batch
      network, precision, batch, milliseconds           by method
      speed_up            of ios-both over sequential and greedy; published, difference (modelled less published)
    pruning             one a network, r and s
      milliseconds, over_best, published_over_best, seconds, published_seconds
    specialised         one a network, precision, batch that stages are found for (made_for) and batch that runs (at)
      milliseconds        of these stages; over_own: over those of the stages found for the batch that runs;
                          published_over_own: Inception V3 in single precision, else null
    measured            with `--measure`, one a network, precision and batch
      network, device, streams, precision, batch, stages (that were timed), seconds
      milliseconds      by method: sums over stages timed alone; speed_up as above
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import llvmlite.binding

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.lab.ios.gpu import V100, V100_HALF, Gpu, gpu_problem
from benchmarks.lab.ios.network import Network
from benchmarks.lab.ios.onnx_file import onnx_model
from benchmarks.lab.ios.schema import load_network, read_networks
from benchmarks.lab.ios.space_counts import schedule_count, width
from benchmarks.lab.ios.stage_times import StageTimes
from benchmarks.lab.ios.tasks import task_graph, task_parts
from benchmarks.output import add_outputs, finish, table
from dsa_sched.devices.cuda_device import CudaGpu
from dsa_sched.devices.device import Device
from dsa_sched.devices.onnxruntime_device import OnnxruntimeCpu
from dsa_sched.placement.ios.blocks import successors_within
from dsa_sched.placement.ios.costs import StageContention, stage_prices
from dsa_sched.placement.ios.search import BOTH, MERGE, PARALLEL, StageSearch, search_stages
from dsa_sched.placement.ios.space import SearchLimits, StateSpace, closures, explore
from dsa_sched.placement.ios.stages import GREEDY_STREAMS, greedy_stages, placed, sequential_stages
from dsa_sched.placement.methods.ios_limits import MOST_TRANSITIONS
from dsa_sched.placement.methods.registry import Search, find_method, finished
from dsa_sched.placement.model.from_onnx import task_model_of
from hw_models.errors import PlacementError, UserError

Row = dict[str, Any]

NETWORKS = ("inception_v3", "randwire_large", "nasnet_large", "squeezenet")

PAPER = (3, 8)
PRUNING = ((1, 3), (1, 8), (2, 3), (2, 8), (3, 3), PAPER)
BATCHES = (1, 16, 32, 64, 128)
PRECISIONS = {"FP32": V100, "FP16": V100_HALF}

COUNTS = {
    "squeezenet": (51, 131),
    "inception_v3": (4871, 3757392),
    "randwire_large": (1170663, 91973106270886052032664),
    "nasnet_large": (307841, 7150961274600),
}
"""Transitions and schedules of the largest block without pruning: table 1 of the paper, to the last digit by the code
of its authors."""

MEASURED = {
    "inception_v3": {"sequential": 6.51, "greedy": 4.62, "ios-merge": 5.39, "ios": 4.11, "ios-both": 4.03},
    "randwire_large": {"sequential": 8.49, "greedy": 6.27, "ios-merge": 8.54, "ios": 6.02, "ios-both": 6.02},
    "nasnet_large": {"sequential": 22.95, "greedy": 16.78, "ios-merge": 22.94, "ios": 16.04, "ios-both": 16.04},
    "squeezenet": {"sequential": 0.86, "greedy": 0.98, "ios-merge": 0.74, "ios": 0.82, "ios-both": 0.73},
}
"""Milliseconds at batch 1 on a V100 in FP32, as published."""

MEASURED_BATCHES = {1: (6.20, 3.94), 16: (17.95, 15.17), 32: (30.54, 27.00), 64: (55.67, 51.11), 128: (108.55, 102.74)}
"""Batch -> sequential and IOS, Inception V3."""

MEASURED_PRUNING = {
    "inception_v3": {(1, 3): (5, 4.22), (1, 8): (7, 4.06), (2, 3): (17, 4.02), (2, 8): (25, 3.99), (3, 3): (29, 3.99),
                     (3, 8): (43, 3.96)},
    "nasnet_large": {(1, 3): (137, 17.54), (1, 8): (492, 16.54), (2, 3): (360, 16.85), (2, 8): (2648, 16.09),
                     (3, 3): (641, 16.73), (3, 8): (3412, 15.91)},
}  # fmt: skip
"""(r, s) -> seconds of the search, which measures stages on the GPU, and milliseconds of what it finds."""

MEASURED_SPECIALISED = {
    1: {1: 4.04, 32: 29.21, 128: 105.87},
    32: {1: 4.45, 32: 27.62, 128: 103.58},
    128: {1: 4.58, 32: 27.85, 128: 102.96},
}
"""Batch that the schedule is for -> batch at which it runs -> ms, Inception V3."""


def spaces(network: Network, limits: SearchLimits) -> Iterator[tuple[tuple[int, ...], Any, StateSpace]]:
    """Every part with its closures and search space."""
    graph = task_graph(network)
    for part in task_parts(network):
        closure = closures(successors_within(graph, part))
        space = explore(closure, limits)
        if space is None:
            raise PlacementError(f"network {network.name}", needs=f"at most {MOST_TRANSITIONS:,} transitions a part")
        yield part, closure, space


def count(name: str, network: Network, r: int | None, s: int | None) -> Row:
    """One row of the table of search spaces; solved with the table of costs of the model."""
    problem = gpu_problem(network)
    costs = StageContention(problem, 0)
    found = []
    begin = time.process_time()
    for part, closure, space in spaces(network, SearchLimits(r, s, MOST_TRANSITIONS)):
        space.best(stage_prices(costs, part, closure, space.endings, space.concurrent))
        found.append((space, closure))
    seconds = time.process_time() - begin
    largest, closure = max(found, key=lambda item: item[0].transitions)
    published = COUNTS.get(name, (None, None)) if (r, s) == (None, None) else (None, None)
    return {
        "network": name,
        "operators": len(network.operators),
        "r": r,
        "s": s,
        "largest_block": largest.operators,
        "width": width(closure),
        "transitions": largest.transitions,
        "schedules": schedule_count(largest),
        "published_transitions": published[0],
        "published_schedules": published[1],
        "total_states": sum(len(space.states) for space, _ in found),
        "total_transitions": sum(space.transitions for space, _ in found),
        "endings": sum(len(space.endings) for space, _ in found),
        "seconds": round(seconds, 4),
    }


def search(network: Network, batch: int, gpu: Gpu, limits: SearchLimits, kind: Any = BOTH) -> tuple[StageSearch, float]:
    """What is found for the parts of the network, and the milliseconds that the simulator says of it."""
    problem = gpu_problem(network, batch, gpu)
    found = search_stages(problem, StageContention(problem, 0), task_parts(network), gpu.streams, kind, limits)
    made, placement = placed(problem, 0, found.stages)
    return found, finished(kind.name, made, placement).makespan_ns / 1e6


def latency(name: str, network: Network, precision: str, batch: int) -> Row:
    """All methods, and the speed-ups of IOS beside the published ones."""
    gpu = PRECISIONS[precision]
    problem = gpu_problem(network, batch, gpu)
    times = {method: find_method(method)(problem, Search()).makespan_ns / 1e6 for method in ("sequential", "greedy")}
    for kind in (MERGE, PARALLEL, BOTH):
        times[kind.name] = search(network, batch, gpu, SearchLimits(*PAPER), kind)[1]
    measured = MEASURED.get(name, {}) if (precision, batch) == ("FP32", 1) else {}
    if not measured and (name, precision) == ("inception_v3", "FP32") and batch in MEASURED_BATCHES:
        measured = dict(zip(("sequential", "ios-both"), MEASURED_BATCHES[batch], strict=True))
    speed_up = {}
    for baseline in ("sequential", "greedy"):
        modelled = times[baseline] / times["ios-both"]
        published = measured[baseline] / measured["ios-both"] if baseline in measured else None
        difference = modelled - published if published is not None else None
        speed_up[baseline] = {"modelled": modelled, "published": published, "difference": difference}
    return {
        "network": name,
        "precision": precision,
        "batch": batch,
        "milliseconds": times,
        "published_milliseconds": measured or None,
        "speed_up": speed_up,
    }


def pruned(name: str, network: Network) -> Iterator[Row]:
    """Each (r, s) of the paper, at batch 1, over the best of them."""
    found = []
    for r, s in PRUNING:
        begin = time.process_time()
        _, milliseconds = search(network, 1, V100, SearchLimits(r, s))
        found.append((r, s, milliseconds, time.process_time() - begin))
    best = min(milliseconds for _, _, milliseconds, _ in found)
    measured = MEASURED_PRUNING.get(name, {})
    best_measured = min((milliseconds for _, milliseconds in measured.values()), default=0.0)
    for r, s, milliseconds, seconds in found:
        published = measured.get((r, s))
        yield {
            "network": name,
            "r": r,
            "s": s,
            "milliseconds": milliseconds,
            "over_best": milliseconds / best,
            "published_over_best": published[1] / best_measured if published else None,
            "seconds": seconds,
            "published_seconds": published[0] if published else None,
        }


def specialised(name: str, network: Network, precision: str) -> Iterator[Row]:
    """Stages found for one batch, at another."""
    gpu = PRECISIONS[precision]
    stages = {batch: search(network, batch, gpu, SearchLimits(*PAPER))[0].stages for batch in MEASURED_SPECIALISED}
    times = {}
    for made_for, at in product(stages, stages):
        problem = gpu_problem(network, at, gpu)
        made, placement = placed(problem, 0, stages[made_for])
        times[made_for, at] = finished("ios-both", made, placement).makespan_ns / 1e6
    is_published = (name, precision) == ("inception_v3", "FP32")
    for made_for, at in product(stages, stages):
        published = MEASURED_SPECIALISED[made_for][at] / MEASURED_SPECIALISED[at][at]
        yield {
            "network": name,
            "precision": precision,
            "made_for": made_for,
            "at": at,
            "milliseconds": times[made_for, at],
            "over_own": times[made_for, at] / times[at, at],
            "published_over_own": published if is_published else None,
        }


def opened(device: str) -> tuple[Device, int]:
    """The device, and how many streams are tried on it: a core each, or what the greedy baseline takes at most."""
    if device == "cuda":
        return CudaGpu("cuda"), GREEDY_STREAMS
    return OnnxruntimeCpu("cpu", threads=1), os.cpu_count() or 1


def timed(name: str, network: Network, device: str, precision: str, batch: int) -> Row:
    """Stages timed where they run: sequential, greedy and IOS with concurrent stages.

    A search picks the stages that happened to be timed fast, so what it found and the baselines are timed once more.
    """
    begin = time.perf_counter()
    model = replace(
        task_model_of(onnx_model(network, batch=batch, half=precision == "FP16")), graph=task_graph(network)
    )
    where, streams = opened(device)
    costs = StageTimes(model, where, streams)
    problem, parts = gpu_problem(network, batch), task_parts(network)
    whole = tuple(task for part in parts for task in part)
    found = search_stages(problem, costs, parts, streams, PARALLEL, SearchLimits(*PAPER))
    baselines = {
        "sequential": sequential_stages(whole),
        "greedy": [stage for part in parts for stage in greedy_stages(problem.graph, part, streams)],
    }
    costs.close()
    again = StageTimes(model, where, streams)
    times = {
        method: sum(map(again.stage_ns, stages)) / 1e6 for method, stages in {**baselines, "ios": found.stages}.items()
    }
    again.close()
    return {
        "network": name,
        "device": device,
        "streams": streams,
        "precision": precision,
        "batch": batch,
        "stages": len(costs.times),
        "seconds": round(time.perf_counter() - begin, 1),
        "milliseconds": times,
        "speed_up": {baseline: times[baseline] / times["ios"] for baseline in baselines},
    }


def timed_rows(networks: dict[str, Network], device: str, *, quick: bool) -> Iterator[Row]:
    for precision in PRECISIONS if device == "cuda" else ("FP32",):
        for batch in BATCHES[:1] if quick else BATCHES:
            for name, network in networks.items():
                yield timed(name, network, device, precision, batch)


def measure(networks: dict[str, Network], device: str | None, *, quick: bool) -> Row:
    """All lists of the JSON object."""
    count("warm-up", load_network("squeezenet"), *PAPER)  # compiles the loops
    figures: Row = {"host_cpu": llvmlite.binding.get_host_cpu_name(), "python": platform.python_version()}
    figures["costs"] = gpu_problem(load_network("squeezenet")).costs.source
    prunings: Sequence[tuple[int | None, int | None]] = ((None, None), *((PAPER,) if quick else PRUNING))
    figures["rows"] = [count(name, network, *limits) for limits in prunings for name, network in networks.items()]
    figures["latencies"] = [
        latency(name, network, precision, batch)
        for precision, batch in product(PRECISIONS, BATCHES[:1] if quick else BATCHES)
        for name, network in networks.items()
    ]
    studied = [] if quick else [name for name in networks if name in MEASURED_PRUNING]
    figures["pruning"] = [row for name in studied for row in pruned(name, networks[name])]
    figures["specialised"] = [
        row
        for name, network in networks.items()
        for precision in (() if quick else PRECISIONS)
        for row in specialised(name, network, precision)
    ]
    figures["measured"] = list(timed_rows(networks, device, quick=quick)) if device is not None else []
    return figures


MODEL_LINE = """**These latencies are modelled, not measured**: {}. It has public numbers of a V100 and two round ones
(4 us a launch, 4 us a barrier of streams), fitted to nothing. The published ones were measured on a V100 with cuDNN
7.6. Speed-ups are of IOS with both kinds of stages, r = 3, s = 8; the difference is modelled less published."""


SPECIALISED_LINE = """What it costs to run stages that were found for another batch: modelled latency at a batch
(column) of the stages found for one (row), over that of the stages found for the batch itself. The diagonal is 1.
Published are times of Inception V3 on a V100 in FP32, up to 1.134; there the model gives at most a tenth of that
penalty: work fills its GPU from 16 images on, and the launches and barriers that it counts weigh little beside it."""


def markdown(figures: Row) -> str:
    """The tables for a reader."""
    counted = [
        (
            row["network"],
            str(row["operators"]),
            _pruning(row),
            str(row["largest_block"]),
            str(row["width"]),
            f"{row['transitions']:,}",
            f"{row['schedules']:,}",
            _equal(row),
            f"{row['total_states']:,}",
            f"{row['total_transitions']:,}",
            f"{row['seconds']:.2f}",
        )
        for row in figures["rows"]
    ]
    parts = [
        "# IOS",
        "Made by `python benchmarks/ios.py`. Published figures: Ding et al., MLSys 2021, and the repository of its"
        " authors.",
        "## Search space",
        "Concurrent stages, exit operators included; of the part with the most transitions, and of all parts. Seconds"
        " of one core, to explore, price and solve.",
        table(("network", "operators", "r, s", "block", "width", "transitions", "schedules", "published", "all states",
                "all transitions", "s"), counted),
        "## Latency",
        MODEL_LINE.format(figures["costs"]),
        *_latency_tables(figures["latencies"]),
    ]  # fmt: skip
    if figures["pruning"]:
        parts += ["## Pruning", "Batch 1, over the least of the network's rows; seconds of the search, which published"
                  " ones spend on measuring.", _pruning_table(figures["pruning"])]  # fmt: skip
    if figures["specialised"]:
        parts += ["## Schedules for other batches", SPECIALISED_LINE, _specialised_table(figures["specialised"])]
    if figures["measured"]:
        parts += ["## Measured", "Sums of milliseconds of stages, each timed alone.", _timed_table(figures["measured"])]
    return "\n\n".join(parts) + "\n"


def _pruning(row: Row) -> str:
    return "none" if row["r"] is None else f"{row['r']}, {row['s']}"


def _equal(row: Row) -> str:
    if row["published_transitions"] is None:
        return ""
    published = row["published_transitions"], row["published_schedules"]
    return "equal" if published == (row["transitions"], row["schedules"]) else f"{published[0]:,} / {published[1]:,}"


def _latency_tables(rows: Sequence[Row]) -> Iterator[str]:
    for precision in PRECISIONS:
        own = [row for row in rows if row["precision"] == precision]
        cells = [
            (
                row["network"],
                str(row["batch"]),
                *(f"{time:.3f}" for time in row["milliseconds"].values()),
                *(cell for speed_up in row["speed_up"].values() for cell in _speed_up(speed_up)),
            )
            for row in own
        ]
        for batch in dict.fromkeys(row["batch"] for row in own):
            cells.append(("geometric mean", str(batch), *[""] * 5, *_means([r for r in own if r["batch"] == batch])))
        methods = ("sequential", "greedy", "merge", "parallel", "both")
        ratios = ("over sequential", "published", "difference", "over greedy", "published", "difference")
        yield f"### {precision}: modelled ms, and the speed-ups of both"
        yield table(("network", "batch", *methods, *ratios), cells)


def _speed_up(found: Row) -> tuple[str, str, str]:
    if found["published"] is None:
        return f"{found['modelled']:.2f}", "", ""
    return f"{found['modelled']:.2f}", f"{found['published']:.2f}", f"{found['difference']:+.2f}"


def _means(rows: Sequence[Row]) -> Iterator[str]:
    for baseline in ("sequential", "greedy"):
        found = [row["speed_up"][baseline] for row in rows]
        modelled = _mean(one["modelled"] for one in found)
        if any(one["published"] is None for one in found):
            yield from (f"{modelled:.2f}", "", "")
        else:
            published = _mean(one["published"] for one in found)
            yield from (f"{modelled:.2f}", f"{published:.2f}", f"{modelled - published:+.2f}")


def _mean(numbers: Iterable[float]) -> float:
    """The geometric one."""
    found = list(numbers)
    return prod(found) ** (1 / len(found))


def _pruning_table(rows: Sequence[Row]) -> str:
    cells = [
        (
            row["network"],
            _pruning(row),
            f"{row['milliseconds']:.3f}",
            f"{row['over_best']:.3f}",
            f"{row['published_over_best']:.3f}",
            f"{row['over_best'] - row['published_over_best']:+.3f}",
            f"{row['seconds']:.2f}",
            str(row["published_seconds"]),
        )
        for row in rows
    ]
    headings = ("network", "r, s", "modelled ms", "over best", "published", "difference", "s", "published s")
    return table(headings, cells)


def _specialised_table(rows: Sequence[Row]) -> str:
    """A row a batch that stages are found for, a column a batch at which they run; published ones below modelled."""
    batches = tuple(dict.fromkeys(row["at"] for row in rows))
    cells = []
    for name, precision in dict.fromkeys((row["network"], row["precision"]) for row in rows):
        own = [row for row in rows if (row["network"], row["precision"]) == (name, precision)]
        for key, kind in (("over_own", "modelled"), ("published_over_own", "published")):
            if own[0][key] is None:
                continue
            for made_for in batches:
                ratios = [f"{row[key]:.3f}" for row in own if row["made_for"] == made_for]
                cells.append((name, precision, kind, str(made_for), *ratios))
    return table(("network", "precision", "", "made for", *(f"at {batch}" for batch in batches)), cells)


def _timed_table(rows: Sequence[Row]) -> str:
    cells = [
        (
            row["network"],
            row["device"],
            str(row["streams"]),
            row["precision"],
            str(row["batch"]),
            *(f"{time:.3f}" for time in row["milliseconds"].values()),
            *(f"{ratio:.2f}" for ratio in row["speed_up"].values()),
            str(row["stages"]),
            f"{row['seconds']:.0f}",
        )
        for row in rows
    ]
    methods = ("sequential", "greedy", "parallel", "over sequential", "over greedy")
    return table(("network", "device", "streams", "precision", "batch", *methods, "stages timed", "s"), cells)


def main() -> None:
    parser = argparse.ArgumentParser(description="IOS beside its published figures.")
    add_outputs(parser)
    parser.add_argument("--network", action="append", choices=NETWORKS, help="these networks only")
    parser.add_argument("--file", type=Path, metavar="FILE", help="networks of a file of the same schema instead")
    parser.add_argument("--measure", choices=("cpu", "cuda"), help="time stages on this device too")
    parser.add_argument("--quick", action="store_true", help="batch 1 and two prunings only")
    options = parser.parse_args()
    try:
        networks = {name: load_network(name) for name in options.network or NETWORKS}
        if options.file is not None:  # of the user's own nothing is published, whatever they are called
            networks = {f"{options.file.name}: {name}": own for name, own in read_networks(options.file).items()}
        figures = measure(networks, options.measure, quick=options.quick)
    except UserError as error:
        parser.error(str(error))
    finish(options, figures, markdown(figures))


if __name__ == "__main__":
    main()
