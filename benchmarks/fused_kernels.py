"""Every kernel that a target offers for several layers of a network: what planners choose from, and more.

Graph, layers --sets that grow along their readers--> target.kernels --> (layers, kernel), ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from partitioner.context.plan_context import KernelContext
from partitioner.fusion.kernel_sets import bits, dependences_of, in_order
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer

__all__ = ["MOST_LAYERS", "Offer", "fused_offers"]

MOST_LAYERS = 5
"""Of a set: none of the families takes more."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A kernel for `layers`, two or more, in execution order."""

    layers: tuple[Layer, ...]
    kernel: Kernel

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(op for layer in self.layers for op in layer.ops)


def fused_offers(ctx: KernelContext, most_layers: int = MOST_LAYERS) -> Iterator[Offer]:
    """By the first layer, then by the size of the set. Sets of which nothing leads back into them are tried, whether
    or not a part of them has a kernel, up to `most_layers`; layers that only rename a value are in none."""
    groups = [(layer,) for layer in ctx.layers]
    among = dependences_of(ctx.graph, groups)
    for start, (first,) in enumerate(groups):
        if first.is_view(ctx.graph):
            continue
        waiting, seen = [1 << start], {1 << start}
        for members in waiting:
            for reader in among.next_readers(members):
                grown = members | 1 << reader
                if grown in seen or groups[reader][0].is_view(ctx.graph):
                    continue
                seen.add(grown)
                if grown.bit_count() < most_layers:
                    waiting.append(grown)
                chosen = [groups[number] for number in bits(grown)]
                layers = tuple(layer for (layer,) in in_order(ctx.graph, chosen))
                for kernel in ctx.target.kernels(ctx.graph, layers, ctx.chip):
                    yield Offer(layers, kernel)
