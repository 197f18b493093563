"""Every kernel that a target offers for several layers of a network: all that planners choose from.

Graph, layers --sets that have a kernel--> (layers, kernel), ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from partitioner.context.plan_context import KernelContext
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer
from partitioner.planners.kernel_offers import KernelOffers

__all__ = ["Offer", "fused_offers"]


@dataclass(frozen=True, slots=True)
class Offer:
    """A kernel for `layers`, two or more, in execution order."""

    layers: tuple[Layer, ...]
    kernel: Kernel


def fused_offers(ctx: KernelContext) -> Iterator[Offer]:
    """By the first layer, all candidates of each set."""
    offers = KernelOffers(ctx)
    for members in offers.sets():
        work = offers.of(members)
        yield from (Offer(work.layers, kernel) for kernel in work.kernels)
