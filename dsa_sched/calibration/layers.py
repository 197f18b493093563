"""Measured cycles of a network's layers beside those of the cycle model.

    RunTimes, layer,repetition,counter,cycles --compared--> LayerCycles of each part that was measured

Layers are the parts by which the run is told: stages, groups or operators. Cycles of a part are those of the critical
path in it, so that those of all parts add up to the run without its launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsa_sched.analysis.run_times import ProgramTimes, RunTimes
from dsa_sched.calibration.counters import read_counters

COLUMN, COUNTER = "layer", "cycles"

LAUNCH, WHOLE = "launch", "whole run"
"""Names of the launch, and of a pass with its launch, next to those of layers."""


@dataclass(frozen=True, slots=True)
class LayerCycles:
    """A layer, the launch or the whole run: `model` cycles, and the measured ones at the 10th, 50th and 90th percentile
    of the repetitions."""

    layer: str
    model: float
    repetitions: int
    low: float
    median: float
    high: float

    @property
    def error(self) -> float:
        """Share by which the cycles of the model differ from the median of the measured ones."""
        return self.model / self.median - 1.0


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """The measured layers in the order of the run, and how many were not measured."""

    layers: tuple[LayerCycles, ...]
    unmeasured: int

    @property
    def together(self) -> LayerCycles | None:
        """All measured layers together, without the launch and the whole run; None where no layer was measured."""
        found = [each for each in self.layers if each.layer not in (LAUNCH, WHOLE)]
        if not found:
            return None
        sums = [sum(getattr(each, name) for each in found) for name in ("model", "low", "median", "high")]
        return LayerCycles("measured layers", sums[0], min(each.repetitions for each in found), *sums[1:])


def compared(times: RunTimes, counters: Path) -> LayerComparison:
    """Measured cycles of the slowest program's layers in one pass. Raises CountersError for a file that cannot be used
    and for a layer that the run does not have."""
    program = max(times.programs, key=lambda each: each.cycles)
    model = _model(program)
    counts = read_counters(counters, dict.fromkeys(model, (COUNTER,)), COLUMN)
    layers = []
    for name, cycles in model.items():
        measured = counts.cycles.get((name, COUNTER))
        if measured is not None:
            low, median, high = (float(each) for each in np.percentile(measured, (10, 50, 90)))
            layers.append(LayerCycles(name, cycles, len(measured), low, median, high))
    return LayerComparison(tuple(layers), len(model) - len(layers))


def _model(program: ProgramTimes) -> dict[str, float]:
    """Cycles of the cycle model by name, in the order of the run."""
    layers = {part.part: part.cycles for part in program.parts}
    return {LAUNCH: program.launch_cycles, **layers, WHOLE: program.cycles}
