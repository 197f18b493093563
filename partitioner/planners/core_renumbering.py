"""Core binding, at last: layers that find each other's values in place move to other cores together.

    layers bound one by one --values found in place--> runs of layers --cores exchanged for the whole run--> bindings

A layer alone stays where its neighbours are, even where all of them lie on other cores than what is around them: any
one that moved would lose what it finds in place. As a whole they can go where most of what they read, or of what reads
them, already is; what they cost does not change by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from partitioner.ir.regions import box_size, common
from partitioner.ir.value_lifetimes import WaitingValue
from partitioner.planners.core_assignment import assign
from partitioner.planners.core_binding import Binder, LayerBinding


def renumbered(binder: Binder, bound: Mapping[int, LayerBinding]) -> dict[int, LayerBinding]:
    """The bindings with the cores of each run of layers exchanged wherever that saves cycles, the last run first."""
    found = dict(bound)
    values = [
        value
        for value in binder.values.values()
        if value.made in bound and binder.may_stay(value, bound[value.made].boxes)
    ]
    for run in _runs(binder, found, values):
        crossing = [value for value in values if len({layer in run for layer in (value.made, *value.readers)}) > 1]
        if not crossing:
            continue
        moved = {**found, **_on_cores(found, run, assign(_affinity(binder, found, run, crossing)))}
        if _saved(binder, moved, crossing) > _saved(binder, found, crossing):
            found = moved
    return found


def _runs(binder: Binder, bound: Mapping[int, LayerBinding], values: Iterable[WaitingValue]) -> list[frozenset[int]]:
    """Layers of which each finds a value of another in place, or is so found; the last layers first."""
    runs = {layer: {layer} for layer in bound}
    for value in values:
        boxes = bound[value.made].boxes
        for reader, _, need in binder.needs(value, bound):
            if runs[reader] is not runs[value.made] and not binder.transfers.moved(value.name, boxes, need):
                runs[value.made] |= runs[reader]
                for layer in runs[reader]:
                    runs[layer] = runs[value.made]
    return sorted({frozenset(run) for run in runs.values()}, key=max, reverse=True)


def _affinity(
    binder: Binder, bound: Mapping[int, LayerBinding], run: frozenset[int], values: Iterable[WaitingValue]
) -> list[list[int]]:
    """By the core that a piece is on now and the one to which it may go, the elements that it would find in place."""
    cores = binder.ctx.chip.cores_per_cluster
    table = [[0] * cores for _ in range(cores)]
    for value in values:
        for reader, _, need in binder.needs(value, bound):
            if (value.made in run) == (reader in run):
                continue
            for maker, held in bound[value.made].boxes.items():
                for taker, wanted in need.items():
                    own, other = (maker, taker) if value.made in run else (taker, maker)
                    table[own][other] += box_size(common(held, wanted))
    return table


def _on_cores(
    bound: Mapping[int, LayerBinding], run: frozenset[int], cores: tuple[int, ...]
) -> dict[int, LayerBinding]:
    """The layers of a run, what was on core `i` on core `cores[i]`."""
    return {
        layer: LayerBinding(at.pieces, {cores[core]: box for core, box in at.boxes.items()}, at.cycles)
        for layer, at in bound.items()
        if layer in run
    }


def _saved(binder: Binder, bound: Mapping[int, LayerBinding], values: Iterable[WaitingValue]) -> float:
    return sum(binder.closeness(value, bound).cycles for value in values)
