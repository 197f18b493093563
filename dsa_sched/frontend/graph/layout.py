"""Layouts: which ONNX axis each device axis of a value holds.

    feature maps of convolutions and pools      as wanted        axes (0, 2, 3, 1) for channels last
    values that a view shares with one          the order in which the view moves nothing
    everything else                             as in the file   axes (0, 1, 2, 3)

Values that meet in an element-wise operator, a concatenation or another operator that does not care share one layout,
so that a chain of feature maps has no transposes inside; where layouts have to differ, `build.py` shows the transpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod

from dsa_sched.frontend.network.network import Value
from dsa_sched.frontend.network.operation import Operation
from partitioner.ir.regions import matching_runs
from partitioner.ir.wants import AxisOrder

Axes = tuple[int, ...]

FEATURE_MAP_KINDS = frozenset(["conv", "max_pool", "average_pool", "lrn", "scale_shift", "resize"])
"""Operators along ONNX axis 1, or along all axes from 2 on: the target decides the order of their feature maps."""
ROW_MAJOR_KINDS = frozenset(["matmul", "gather", "attend"])
FREE_KINDS = frozenset(["view", "transpose"])
"""Kinds whose output may have another layout than their input. Kinds in none of these sets are agnostic."""


def channels_last(rank: int) -> Axes:
    return (0, *range(2, rank), 1) if rank > 2 else row_major(rank)


def row_major(rank: int) -> Axes:
    return tuple(range(rank))


def assign_layouts(
    operations: Sequence[Operation],
    inputs: Sequence[str],
    values: Mapping[str, Value],
    constants: frozenset[str],
    feature_maps: AxisOrder,
) -> dict[str, Axes]:
    """Axes of every computed value. Deterministic; one pass forward and back over views until nothing changes."""
    order = channels_last if feature_maps == "channels_last" else row_major
    groups = _Groups()
    names = list(dict.fromkeys(chain(inputs, *(op.inputs + op.outputs for op in operations))))
    computed = [name for name in names if name not in constants]
    for operation in operations:
        if operation.kind in FREE_KINDS | ROW_MAJOR_KINDS:
            continue
        alike = [name for name in (*operation.inputs, *operation.outputs) if name not in constants]
        for name in alike[1:]:
            if len(values[name].shape) == len(values[alike[0]].shape):
                groups.unite(alike[0], name)
    layouts: dict[str, Axes] = {}
    for operation in operations:
        if operation.kind in FEATURE_MAP_KINDS:
            for name in (operation.inputs[0], *operation.outputs):
                layouts[groups.root(name)] = order(len(values[name].shape))
    _spread_over_views(operations, values, groups, layouts)
    return {name: layouts.get(groups.root(name), row_major(len(values[name].shape))) for name in computed}


class _Groups:
    """Union-find over value names; the root is the name that came first."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        while (parent := self._parent.get(name, name)) != name:
            name = parent
        return name

    def unite(self, a: str, b: str) -> None:
        first, second = self.root(a), self.root(b)
        if first != second:
            self._parent[second] = first


def _spread_over_views(
    operations: Sequence[Operation], values: Mapping[str, Value], groups: _Groups, layouts: dict[str, Axes]
) -> None:
    """Give a value next to a view the layout that moves no data, where nothing else has decided."""
    views = [operation for operation in operations if operation.kind == "view"]
    changed = True
    while changed:
        changed = False
        for view in views:
            pair = (view.inputs[0], view.outputs[0])
            for known, open_ in (pair, pair[::-1]):
                axes, shape = layouts.get(groups.root(known)), values[open_].shape
                if axes is None or groups.root(open_) in layouts or len(shape) < 3:
                    continue
                derived = view_axes(values[known].shape, axes, shape)
                if derived is not None and keeps_order(values[known].shape, axes, shape, derived):
                    layouts[groups.root(open_)] = derived
                    changed = True


def view_axes(shape: tuple[int, ...], axes: Axes, target: tuple[int, ...]) -> Axes | None:
    """The layout of `target` in which a reshape from `shape` with `axes` moves nothing, or None.

    Axes of both shapes are matched in runs of equal product; runs keep the order that `axes` gives them.
    """
    runs = matching_runs(shape, target)
    if runs is None:
        return None
    owner = {source: run for run, (sources, _) in enumerate(runs) for source in sources}
    order = list(dict.fromkeys(owner[axis] for axis in axes if axis in owner))
    order += [run for run in range(len(runs)) if run not in order]
    result = tuple(axis for run in order for axis in runs[run][1])
    return result if sorted(result) == list(range(len(target))) else None


def keeps_order(shape: tuple[int, ...], axes: Axes, target: tuple[int, ...], target_axes: Axes) -> bool:
    """True when a reshape between two values laid out like this leaves every element at its linear place."""
    return prod(shape) == prod(target) and _steps(shape, axes) == _steps(target, target_axes)


def _steps(shape: tuple[int, ...], axes: Axes) -> list[tuple[int, int]]:
    """(extent, step in the file's linear order) of the device axes, outermost first, in the one shortest form.

    Unit axes do not count, and two axes whose steps continue each other are one; equal lists mean equal orders.
    """
    steps: list[tuple[int, int]] = []
    for axis in axes:
        extent, step = shape[axis], prod(shape[axis + 1 :])
        if extent == 1:
            continue
        if steps and steps[-1][1] == extent * step:
            steps[-1] = (steps[-1][0] * extent, step)
        else:
            steps.append((extent, step))
    return steps
