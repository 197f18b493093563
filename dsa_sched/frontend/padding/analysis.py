"""Which operators of a file rows of padding along an axis would change, and what its inputs and outputs need.

    the file at two numbers of rows --operator by operator--> AxisPadding, and the operators that are refused

What holds: as long as rows of padding come after all others, the rows of every value before them are those that the
file makes without padding (`values.py`). That follows from rows that are computed from themselves, from earlier ones
(causal), or from all of them under a mask whose numbers hide the padding. An operator of which this does not follow is
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from dsa_sched.frontend.network.network import Network
from dsa_sched.frontend.padding.case import Case, Sizes
from dsa_sched.frontend.padding.constants import constant_value
from dsa_sched.frontend.padding.linear import Counting, LinearNumber
from dsa_sched.frontend.padding.rules import judged
from dsa_sched.frontend.padding.values import Extent, Meets, Number, Padded, Region, Rest, Stale
from hw_models.errors import ModelError

INTEGERS = (2, 3, 4, 5, 6, 7, 12, 13)


@dataclass(frozen=True, slots=True)
class PaddingRefusal:
    """A node that rows of padding would change, with the reason as a clause."""

    name: str
    op_type: str
    reason: str

    def __str__(self) -> str:
        return f"{self.op_type} {self.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class AxisPadding:
    """What padding along an axis needs: the dimensions of inputs and outputs that have rows, how much each input grows
    with a row of padding, outputs that are caches with rows of padding in them, numbers that must not be positive
    (`within`), and numbers that must not be so with rows of padding counted (`inside`).
    """

    axis: str
    inputs: Mapping[str, Mapping[int, Extent]]
    outputs: Mapping[str, Mapping[int, Extent]]
    counts: Mapping[str, int]
    caches: Mapping[str, Stale]
    within: tuple[LinearNumber, ...]
    inside: tuple[LinearNumber, ...]
    refused: tuple[PaddingRefusal, ...]


def axis_padding(sizes: Sizes, fills: Mapping[str, float]) -> AxisPadding:
    """The analysis, for inputs whose rows of padding have these numbers (others may have any)."""
    few, many = sizes.networks
    known: dict[str, Padded | str] = dict(_inputs(sizes, fills))
    inputs = {name: value.extents for name, value in known.items() if isinstance(value, Padded)}
    counting, refused = Counting(), list[PaddingRefusal]()
    within, inside = list[LinearNumber](), list[LinearNumber]()
    structure = _structure(sizes)
    if structure:
        return AxisPadding(sizes.axis, inputs, {}, {}, {}, (), (), structure)
    for name, array in many.constants.items():
        known[name] = constant_value(few.constants[sizes.twins.get(name, name)], array, sizes)
    for node in many.nodes:
        try:
            found = judged(Case(node, sizes, known, counting, within, inside))
        except Meets as problem:
            refused.append(PaddingRefusal(node.name, node.op_type, str(problem)))
            found = tuple(_assumed(sizes, name) for name in node.outputs)
        known |= dict(zip(node.outputs, found, strict=False))
    outputs = {name: known.get(name, Padded()) for name in many.outputs}
    for name, value in outputs.items():
        if isinstance(value, Padded) and value.number is not None:
            counting.require_same(value.number.base, f"output {name}")
    counts, broken = counting.solved()
    types = {node.name: node.op_type for node in many.nodes}
    refused += [
        PaddingRefusal(name, types.get(name, ""), "it computes with the number of rows, which padding changes")
        for name in broken
        if name not in {refusal.name for refusal in refused}
    ]
    caches, lost = _caches(many, outputs)
    return AxisPadding(
        sizes.axis,
        inputs,
        {name: value.extents for name, value in outputs.items() if isinstance(value, Padded)},
        counts,
        caches,
        tuple(dict.fromkeys(within)),
        tuple(dict.fromkeys(inside)),
        (*refused, *lost),
    )


def _inputs(sizes: Sizes, fills: Mapping[str, float]) -> Iterator[tuple[str, Padded]]:
    for name in sizes.networks[1].inputs:
        few, many = sizes.shapes(name)
        extents = {dim: Extent() for dim in range(len(many)) if few[dim] != many[dim]}
        facts: dict[Region, float] = {Rest(dim): fills[name] for dim in extents} if name in fills else {}
        whole = sizes.networks[1].values[name].dtype in INTEGERS and not extents
        whole = whole and (len(many) < 2 or prod(many) == 1)
        yield name, Padded(extents, facts, Number(LinearNumber.of_input(name)) if whole else None)


def _structure(sizes: Sizes) -> tuple[PaddingRefusal, ...]:
    """A refusal where the file computes something else with another number of rows."""
    few, many = sizes.networks
    for node, other in zip(many.nodes, few.nodes, strict=False):
        if node != other.renamed({own: name for name, own in sizes.twins.items()}):
            return (
                PaddingRefusal(
                    node.name, node.op_type, "with another number of rows, the file has another operator here"
                ),
            )
    named = {sizes.twins.get(name, name) for name in many.constants}
    if len(few.nodes) == len(many.nodes) and few.constants.keys() == named:
        return ()
    return (PaddingRefusal(many.name, "the file", "with another number of rows, it has other operators"),)


def _assumed(sizes: Sizes, name: str) -> Padded:
    """The rows of a refused operator's result as its shapes say, so that what follows is judged by itself."""
    if not name:
        return Padded()
    try:
        few, many = sizes.shapes(name)
    except ModelError:
        return Padded()
    least = sizes.rows[1]
    dims = [dim for dim in range(min(len(few), len(many))) if few[dim] != many[dim]]
    found = {dim: Extent(more=many[dim] - least) for dim in dims}
    return Padded({dim: e for dim, e in found.items() if sizes.fits(e, (few[dim], many[dim]))})


def _caches(many: Network, outputs: Mapping[str, Padded | str]) -> tuple[dict[str, Stale], tuple[PaddingRefusal, ...]]:
    """Outputs that are caches which are written and nothing else, and refusals of all others with rows of padding."""
    caches, lost = dict[str, Stale](), list[PaddingRefusal]()
    for name, value in outputs.items():
        if isinstance(value, Padded) and value.stale is not None:
            if value.stale.source in many.inputs:
                caches[name] = value.stale
            else:
                lost.append(PaddingRefusal(name, "output", "it has a cache's rows of padding"))
    return caches, tuple(lost)
