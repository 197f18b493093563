"""A placement run on its devices, compared with the prediction and with onnxruntime on the whole model.

Profiler + Outcome --runs--> Executed(measured schedule, makespans, difference of outputs)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_sched.devices.device import drawn_feeds
from dsa_sched.devices.measuring import Profiler
from dsa_sched.devices.onnxruntime_device import OnnxruntimeCpu
from dsa_sched.placement.methods.registry import Outcome
from dsa_sched.placement.schedule.schedule import Schedule

RUNS = 9
"""Number of timed runs, after one that is not counted."""


@dataclass(frozen=True)
class Executed:
    """`schedule` is that of the run of median length; `makespans_ns` are of all. `accounted`: times are partly those
    that simulated devices account for. `difference` is the largest of any output from onnxruntime on the whole model,
    over the largest number in that output; 0 when they are equal to the bit."""

    predicted: Schedule
    schedule: Schedule
    makespans_ns: tuple[float, ...]
    accounted: bool
    difference: float


def execute(profiler: Profiler, outcome: Outcome) -> Executed:
    """Run on drawn inputs, `RUNS` times. Raises PlacementError naming the device and task that failed."""
    whole = profiler.tasks.whole
    feeds = drawn_feeds(whole)
    with profiler.executor(outcome.problem, outcome.placement) as executor:
        executor.run(feeds)
        runs = sorted((executor.run(feeds) for _ in range(RUNS)), key=lambda run: run.makespan_ns)
    device = OnnxruntimeCpu("reference")
    reference = device.run(device.compile(whole), feeds)
    middle = runs[len(runs) // 2]
    difference = 0.0
    for name, wanted in reference.items():
        got = np.asarray(middle.outputs[name], np.float64)
        largest = float(np.abs(wanted).max(initial=0)) or 1.0
        difference = max(difference, float(np.abs(got - wanted).max(initial=0)) / largest)
    return Executed(
        outcome.schedule, middle.schedule, tuple(run.makespan_ns for run in runs), middle.accounted, difference
    )
