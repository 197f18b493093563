"""Floors of the case study: every way to compute each subject, by the chip files, before anything is measured.

subjects x batches x chips --ways (study.py)--> rows: floor, launches, what is fused, layers over it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.chosen_kernels import gpu_target
from benchmarks.gpu.floors import floor_ms, floors_of
from benchmarks.gpu.study import Subject, Way, studied_model, ways
from dsa_sched.stages.targets import target_of
from hw_models.loading import load_chip

__all__ = ["LAYERS", "Row", "study_rows"]

Row = dict[str, Any]
LAYERS = "layers"


def study_rows(
    subjects: Sequence[Subject], chips: Sequence[str], said: Callable[[str], None], forced: Sequence[str] = ()
) -> Iterator[Row]:
    """One a subject, batch, chip and way; with `forced`, groups as `--force-group` takes them, one way more each.
    Raises UserError."""
    for name in chips:
        chip = load_chip(name)
        target = gpu_target(target_of(chip), chip)
        for subject in subjects:
            for batch in subject.batches:
                said(f"{subject.name}, batch {batch}, {chip.name}")
                model = studied_model(subject.name, batch, chip, target)
                found = {}
                for way in ways(model, subject, batch, chip, target, forced):
                    kernels = floors_of(way.planned.plan, model.graph, target, way.planned.context.chip)
                    found[way.name] = floor_ms(kernels)
                    launch_ms = sum(kernel["launch_ms"] for kernel in kernels.values())
                    yield {
                        "subject": subject.name,
                        "batch": batch,
                        "chip": chip.name,
                        "way": way.name,
                        "floor_ms": _short(found[way.name]),
                        "launch_ms": _short(launch_ms),
                        "launches": sum(kernel["launches"] for kernel in kernels.values()),
                        "layers_over_it": _short(found[LAYERS] / found[way.name]) if LAYERS in found else None,
                        "fused": _fused(way),
                    }


def _fused(way: Way) -> dict[str, str]:
    """Groups of several layers, by their names, with their kernels."""
    graph = way.planned.model.graph
    return {
        ",".join(layer.name for layer in group.layers): group.kernel
        for group in way.planned.plan.groups
        if sum(not layer.is_view(graph) for layer in group.layers) > 1
    }


def _short(number: float) -> float:
    return float(f"{number:.5g}")
