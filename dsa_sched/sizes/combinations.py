"""Combinations of sizes, and the shapes of inputs that each of them means.

    --sizes batch=1,8 --sizes sequence=1,64, dimensions of the inputs  -->  Combination(sizes, shapes, batch), ...

An axis is a symbolic dimension of the file, by its name. One that is called batch and is none is the leading dimension
of every input, as for `--batch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import onnx

from dsa_sched.frontend.network.shapes import declared_dims, initializer_names
from dsa_sched.stages.compile_options import CompileOptions
from hw_models.errors import ModelError

BATCH = "batch"
MOST_COMBINATIONS = 64
"""Largest number of programs of one artifact."""

AxisSizes = Mapping[str, Sequence[int]]
"""The sizes of each axis by its name."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A size for each axis, and the inputs' shapes that they mean: `shapes` by name, and where it is a batch, the
    leading dimension of every input."""

    sizes: tuple[tuple[str, int], ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    batch: int | None

    @property
    def name(self) -> str:
        """`batch=1,sequence=64`."""
        return combination_name(dict(self.sizes))

    def options(self, options: CompileOptions) -> CompileOptions:
        """The options of a compilation for these sizes alone."""
        return replace(options, shapes=self.shapes, batch=self.batch)


def combination_name(sizes: Mapping[str, int]) -> str:
    """`batch=1,sequence=64`."""
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())


def checked_sizes(sizes: AxisSizes) -> dict[str, tuple[int, ...]]:
    """The sizes of each axis in order, each once. Raises ModelError for none, and for more combinations than there may
    be."""
    found = {axis: tuple(sorted(set(listed))) for axis, listed in sizes.items()}
    for axis, listed in found.items():
        if not listed or listed[0] < 1:
            raise ModelError(f"--sizes {axis}", needs="sizes of at least 1", has=", ".join(map(str, listed)) or "none")
    if not found or prod(map(len, found.values())) > MOST_COMBINATIONS:
        count = prod(map(len, found.values())) if found else 0
        raise ModelError("--sizes", needs=f"1 to {MOST_COMBINATIONS} combinations of sizes", has=str(count))
    return found


def input_axes(model: onnx.ModelProto, axes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The axis of each dimension of each input, empty where its extent is fixed. Raises ModelError for an axis that no
    input has."""
    declared = _declared(model)
    found: dict[str, list[str]] = {
        name: [dim if isinstance(dim, str) and dim in axes else "" for dim in dims] for name, dims in declared.items()
    }
    symbols = dict.fromkeys(dim for dims in declared.values() for dim in dims if isinstance(dim, str) and dim != "?")
    for axis in axes:
        if axis in symbols:
            continue
        flat = [name for name, dims in declared.items() if not dims]
        if axis != BATCH or flat or not declared:
            known = ", ".join(dict.fromkeys((*symbols, *(() if flat else (BATCH,)))))
            raise ModelError(
                f"--sizes {axis}",
                needs="a symbolic dimension of an input" + ("" if flat else ", or the batch"),
                has=known or "none: all dimensions are fixed",
            )
        for own in found.values():
            own[0] = BATCH
    return {name: tuple(own) for name, own in found.items()}


def combinations_of(
    model: onnx.ModelProto, sizes: Mapping[str, tuple[int, ...]], options: CompileOptions
) -> tuple[Combination, ...]:
    """All combinations, those of the largest sizes first; a batch that stays open is 1. Raises ModelError for an axis
    that no input has, for another dimension of an input that stays open, and for a shape or a batch that is given
    besides and says otherwise."""
    axes, declared = input_axes(model, tuple(sizes)), _declared(model)
    if options.batch is None and (open_batch := _leading(declared)) not in sizes:
        declared = {name: [1 if dim == open_batch else dim for dim in dims] for name, dims in declared.items()}
    if BATCH in sizes and options.batch is not None:
        raise ModelError(f"--batch {options.batch}", needs="the batch once", has=f"--sizes {BATCH}, too")
    given = dict(options.shapes)
    led = BATCH in sizes and all(own and own[0] == BATCH and BATCH not in own[1:] for own in axes.values())
    return tuple(
        _combination(dict(zip(sizes, chosen, strict=True)), axes, declared, given, options.batch, led)
        for chosen in product(*(tuple(reversed(listed)) for listed in sizes.values()))
    )


def _combination(
    chosen: dict[str, int],
    axes: Mapping[str, tuple[str, ...]],
    declared: Mapping[str, list[int | str]],
    given: Mapping[str, tuple[int, ...]],
    batch: int | None,
    led: bool,
) -> Combination:
    """`led` says that all inputs begin with the batch, which level auto may then divide."""
    shapes = dict(given)
    for name, dims in declared.items():
        own = axes[name]
        if name in given and len(given[name]) == len(dims):
            dims = [*given[name]]
        elif batch is not None and dims:
            dims = [batch, *dims[1:]]
        extents = [chosen[axis] if axis else dim for axis, dim in zip(own, dims, strict=True)]
        for axis, extent in zip(own, given.get(name, ()), strict=False):
            if axis and extent != chosen[axis]:
                raise ModelError(f"--shape {name}", needs=f"the sizes of {axis} in --sizes alone", has=str(extent))
        only_batch = led and not any(own[1:]) and all(isinstance(dim, int) for dim in extents[1:])
        if (any(own) or name in given) and not only_batch:
            shapes[name] = _static(name, extents, chosen)
    return Combination(tuple(chosen.items()), tuple(shapes.items()), chosen[BATCH] if led else batch)


def _static(name: str, extents: Sequence[int | str], chosen: Mapping[str, int]) -> tuple[int, ...]:
    left = [str(extent) for extent in extents if not isinstance(extent, int)]
    if left:
        raise ModelError(
            f"input {name} [{', '.join(map(str, extents))}]",
            needs=f"a size for each dimension, next to those of {', '.join(chosen)}",
            has=f"{', '.join(left)} left open",
            change=f"give --sizes {left[0]}=N" if left[0] != "?" else f"give --shape {name}=...",
        )
    return tuple(int(extent) for extent in extents)


def _leading(declared: Mapping[str, list[int | str]]) -> str:
    """The symbolic dimension with which all inputs begin; empty where they do not."""
    first = {dims[0] if dims else 0 for dims in declared.values()}
    (name,) = first if len(first) == 1 else ("",)
    return name if isinstance(name, str) else ""


def _declared(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    constants = initializer_names(model)
    return {item.name: declared_dims(item) for item in model.graph.input if item.name not in constants}
