"""The masks between the scores of an attention and its softmax, put together as an Attention has them.

    Softmax(Reshape(Where(c, Reshape(scores + bias), fill)))  -->  a value to add, or is_causal, or a condition and fill

Constants are added up; those of zeros go, and a triangle of minus infinities above the diagonal is `is_causal`. If a
constant condition fills scores with a number below all fp16 numbers, minus infinity is added instead, where every row
keeps something: the weights are the same. Other choices stay unchanged: rows that are masked as a whole depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from dsa_sched.frontend.decomposition.attention import FILL, KEPT
from dsa_sched.frontend.decomposition.attention_bias import hiding
from dsa_sched.frontend.network.chain import Chain, Settings, Shape
from dsa_sched.frontend.network.network import Array, Network, Node
from dsa_sched.frontend.network.queries import is_computed, made_for, number_of
from dsa_sched.frontend.network.traced import TracedArray

MOST_MASKS = 5
"""Largest number of masks and views between scores and their softmax."""

MOST_ELEMENTS = 2**27
"""Largest number of elements of a mask that is written out."""


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """A value added to scores of the shape `at`; or, with a `fill`, the condition by which they become that number,
    where it is not `kept`."""

    name: str
    at: Shape
    fill: float | None = None
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Masks:
    """The scores below all masks, their shape, and the masks, the last one first."""

    scores: str
    shape: Shape
    masks: tuple[AttentionMask, ...] = ()


MaskWriter = Callable[[Chain], tuple[str, Settings]]
"""Writes all masks as the input of one Attention, whose name it returns (empty for none), with its settings."""


def masks_above(network: Network, name: str, is_scores: Callable[[str], bool], steps: int = MOST_MASKS) -> Masks | None:
    """The masks between a value and the scores that it is made of; None where it is made of none. What lies between
    serves nothing else."""
    if is_scores(name):
        return Masks(name, network.shape(name))
    node = made_for(network, name, "Add", "Where", "Reshape")
    at = network.known_shape(name)
    if node is None or at is None or steps == 0:
        return None
    for operand, mask in _below(network, node, at):
        found = masks_above(network, operand, is_scores, steps - 1)
        if found is not None:
            return Masks(found.scores, found.shape, (*((mask,) if mask else ()), *found.masks))
    return None


def _below(network: Network, node: Node, at: Shape) -> Iterator[tuple[str, AttentionMask | None]]:
    """Possible scores below a node, each with its mask."""
    first, *others = node.inputs
    if node.op_type == "Reshape":
        if is_computed(network, first) and (network.known_shape(first) or ())[-2:] == at[-2:]:
            yield first, None
        return
    if node.op_type == "Add":
        pairs = [(name, AttentionMask(other, at)) for name, other in ((first, others[0]), (others[0], first))]
    else:
        fills = [number_of(network, name) for name in others]
        pairs = [
            (others[1 - i], AttentionMask(first, at, fill, kept=i == 1))
            for i, fill in enumerate(fills)
            if fill is not None
        ]
    for name, mask in pairs:
        spread = network.known_shape(mask.name)
        if is_computed(network, name) and network.shape(name) == at and spread is not None and len(spread) <= len(at):
            yield name, mask


def heads_of(masks: Masks, shape: Shape) -> Shape:
    """The scores as (batch, head, row, column): those of the softmax where they are of four axes, else those that a
    mask meets; without any, all leading axes are heads."""
    if len(shape) == 4:
        return shape
    of_masks = (mask.at for mask in masks.masks if len(mask.at) == 4)
    return next(of_masks, (1, *shape))


def put_together(network: Network, masks: Masks, by_head: Shape) -> MaskWriter | None:
    """None where they cannot be one."""
    constants: list[TracedArray] = []
    computed: list[str] = []
    choice: AttentionMask | None = None
    for mask in masks.masks:
        known = _added(network, mask) if mask.name in network.constants else None
        if known is not None:
            spread = _spread(known, mask.at, by_head)
            if spread is None:
                return None
            constants.append(spread)
        elif not _meets(network, mask, by_head):
            return None
        elif mask.fill is None:
            computed.append(mask.name)
        elif choice is None:
            choice = mask
        else:
            return None
    if choice is not None:
        name, settings = choice.name, ((FILL, float(choice.fill or 0.0)), (KEPT, int(choice.kept)))
        return None if constants or computed else lambda _chain: (name, settings)
    return lambda chain: _sum(chain, constants, computed, by_head)


def _added(network: Network, mask: AttentionMask) -> TracedArray | None:
    """Numbers to add for a constant mask, or for what a constant condition hides; None where adding is not
    equivalent.
    """
    condition, fill = network.constants[mask.name], mask.fill
    if fill is None:
        return network.traced(mask.name)
    if condition.dtype != np.bool_ or fill > -network.rounding.largest:
        return None
    wide = np.broadcast_to(condition, (*condition.shape[:-1], mask.at[-1]))
    keeps_some = (wide == mask.kept).any(-1).all()
    if fill != -inf and not keeps_some:
        return None
    return hiding(network.traced(mask.name), kept=mask.kept)


def _meets(network: Network, mask: AttentionMask, by_head: Shape) -> bool:
    """Whether the mask spreads over (batch, head, row, column) as it does where it is."""
    own = network.shape(mask.name)
    ahead = own[: max(0, len(own) - 2)]
    return (prod(ahead) == 1 and len(own) <= 4) or mask.at == by_head or (1, *mask.at) == by_head


def _spread(mask: TracedArray, at: Shape, by_head: Shape) -> TracedArray | None:
    """A constant that meets scores of the shape `at`, for those by head: its leading axes in two."""
    if at == by_head or (1, *at) == by_head:
        return mask
    own = (1,) * (len(at) - len(mask.shape)) + mask.shape
    last = own[-2:]
    if prod(own[:-2]) == 1:
        return mask.reshape(*last)
    cut = next((cut for cut in range(len(at) - 1) if prod(at[:cut]) == by_head[0]), None)
    if cut is None or prod(at[cut:-2]) != by_head[1]:
        return None
    batch, heads = (
        extents if any(extent > 1 for extent in found) else found
        for extents, found in ((at[:cut], own[:cut]), (at[cut:-2], own[cut:-2]))
    )
    wide, shape = (*batch, *heads, *last), (prod(batch), prod(heads), *last)
    if prod(shape) > MOST_ELEMENTS:
        return None
    return mask.reshape(*own).broadcast(*wide).reshape(*shape)


def _sum(
    chain: Chain, constants: Sequence[TracedArray], computed: Sequence[str], by_head: Shape
) -> tuple[str, Settings]:
    """The name of the sum of all masks, and whether they are causal too."""
    settings: Settings = ()
    total: TracedArray | None = None
    for constant in constants:
        if _is_causal(constant.array, by_head):
            settings = (("is_causal", 1),)
        elif constant.array.any():
            total = constant if total is None else total + constant
    names = [*computed, *((chain.store(total),) if total is not None else ())]
    mask = names[0] if names else ""
    for name in names[1:]:
        mask = chain.add("Add", mask, name)
    return mask, settings


def _is_causal(array: Array, by_head: Shape) -> bool:
    """Whether it hides from each row what comes after it, and nothing else. Finite elements stay numbers."""
    rows, columns = by_head[-2:]
    if array.shape[-2:] != (rows, columns) or array.size != rows * columns or columns == 1:
        return False
    matrix = np.asarray(array.reshape(rows, columns), np.float64)
    kept = np.tril(np.ones((rows, columns), np.bool_))
    return bool((matrix[kept] == 0).all() and (matrix[~kept] == -inf).all())
