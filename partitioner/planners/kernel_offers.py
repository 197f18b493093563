"""Kernels that a target offers for the layers of a network, and the groups that the user asks for with `--force-group`.

sets of layers, a bit each      --target.kernels, once each-->  GroupWork: candidates, what they move
"conv1,conv2:inverted_residual" --names, a template-->          Forced(GroupWork)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hw_models.errors import ModelError, PlanError
from partitioner.context.plan_context import KernelContext
from partitioner.fusion.cache_hits import GroupWork, KernelRun, ValueReaders, run_of, shared_cache
from partitioner.fusion.kernel_sets import Dependences, bits, dependences_of, in_order, sets_from
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer

OPTION = "--force-group"
MOST_NAMED = 8


class KernelOffers:
    """The offers of one compilation."""

    def __init__(self, ctx: KernelContext) -> None:
        self.ctx = ctx
        self.layers = ctx.layers
        self.values = ValueReaders(ctx.graph, ctx.layers)
        self.cache = shared_cache(ctx.chip)
        self.views = sum(1 << number for number, layer in enumerate(ctx.layers) if layer.is_view(ctx.graph))
        self._known: dict[int, GroupWork] = {}
        self._numbers = {layer: number for number, layer in enumerate(ctx.layers)}

    @cached_property
    def among(self) -> Dependences:
        """Dependences among the layers."""
        return dependences_of(self.ctx.graph, [(layer,) for layer in self.layers])

    def of(self, members: int) -> GroupWork:
        """The layers whose bits are set, with all kernels for them together; none for a view."""
        if members not in self._known:
            layers = tuple(self.layers[number] for number in bits(members))
            self._known[members] = self._work(layers, members)
        return self._known[members]

    def alone(self, number: int) -> GroupWork:
        """The work of one layer. Raises PlanError where it has no kernel and is not a view."""
        work = self.of(1 << number)
        if not work.kernels and not self.views >> number & 1:
            layer = self.layers[number]
            raise PlanError(
                f"layer {layer.name}",
                needs=f"a kernel of {self.ctx.target.name} for {', '.join(layer.ops)}",
                has="none that the target offers, although it accepts the operators one by one",
            )
        return work

    def sets(self, excluded: int = 0) -> Iterator[int]:
        """Sets of several layers that have a kernel, without views and the layers of `excluded`, ordered by their first
        layer."""
        for number in range(len(self.layers)):
            if not (excluded | self.views) >> number & 1:
                yield from sets_from(
                    number, self.among, excluded | self.views, lambda members: bool(self.of(members).kernels)
                )

    def merged_sets(self) -> tuple[GroupWork, ...]:
        """Sets of several layers that were asked for and have a kernel, ordered by their layers."""
        found = (work for members, work in self._known.items() if members & members - 1 and work.kernels)
        return tuple(sorted(found, key=lambda work: tuple(bits(work.members))))

    def run(self, works: Iterable[GroupWork]) -> KernelRun:
        """Groups that cover the network, in an order of execution."""
        by_layers = {work.layers: work for work in sorted(works, key=lambda work: next(bits(work.members)))}
        return run_of(self.values, (by_layers[layers] for layers in in_order(self.ctx.graph, list(by_layers))))

    def chosen(self, layers: tuple[Layer, ...], kernel: str) -> GroupWork:
        """Layers with the one kernel of this text. Raises PlanError where the target does not offer it."""
        work = self.containing(layers)
        found = tuple(candidate for candidate in work.kernels if candidate.text == kernel)
        if not found:
            raise PlanError(f"group {layers[0].name}", needs=f"a kernel of {self.ctx.target.name}", has=kernel)
        return narrowed(work, found)

    def containing(self, layers: tuple[Layer, ...]) -> GroupWork:
        """These layers, with all kernels for them. Raises PlanError for a layer that the graph does not have."""
        if odd := [layer.name for layer in layers if layer not in self._numbers]:
            raise PlanError(f"group {layers[0].name}", needs=f"layers of {self.ctx.graph.name}", has=odd[0])
        return self.of(sum(1 << self._numbers[layer] for layer in layers))

    def _work(self, layers: tuple[Layer, ...], members: int) -> GroupWork:
        graph, inside = self.ctx.graph, {name for layer in layers for name in layer.ops}
        if members & self.views:
            return GroupWork(layers, members, (), frozenset(), self.values, self.cache)
        kernels = self.ctx.target.kernels(graph, layers, self.ctx.chip)
        leaving = frozenset(
            layer.output
            for layer in layers
            if layer.output in graph.outputs or any(op.name not in inside for op in graph.consumers[layer.output])
        )
        return GroupWork(layers, members, kernels, leaving, self.values, self.cache)


def narrowed(work: GroupWork, kernels: tuple[Kernel, ...]) -> GroupWork:
    """The layers of `work` with fewer candidates."""
    return replace(work, kernels=kernels, _best={})


@dataclass(frozen=True, slots=True)
class Forced:
    """One group, with the kernels that may compute it; `text` is the user's own."""

    text: str
    work: GroupWork


def forced_sets(texts: Sequence[str], offers: KernelOffers) -> tuple[Forced, ...]:
    """The groups that `A,B,C` or `A,B,C:FAMILY` name, in order. Raises ModelError for names that the network does not
    have, for layers that no kernel computes together, for a layer in two groups, and for groups that need each other.
    """
    found: list[Forced] = []
    taken = 0
    for text in texts:
        forced = _forced(text, offers)
        if both := taken & forced.work.members:
            name = offers.layers[next(bits(both))].name
            raise ModelError(
                f"{OPTION} {text}", needs="layers that are in no other group", has=f"{name}, which another group has"
            )
        taken |= forced.work.members
        found.append(forced)
    _require_order(found, offers)
    return tuple(found)


def _require_order(found: Sequence[Forced], offers: KernelOffers) -> None:
    """Refuse groups that need each other, though each alone can be made."""
    inside = sum(forced.work.members for forced in found)
    alone = [(layer,) for number, layer in enumerate(offers.layers) if not inside >> number & 1]
    groups = [*(forced.work.layers for forced in found), *alone]
    if len(in_order(offers.ctx.graph, groups)) < len(groups):
        has = "groups that need each other's results"
        raise ModelError(OPTION, needs="groups that can run one after the other", has=has, change="leave one out")


def _forced(text: str, offers: KernelOffers) -> Forced:
    numbers = {name: number for number, layer in enumerate(offers.layers) for name in (*layer.ops, layer.name)}
    names, family = text, ""
    if any(name not in numbers for name in text.split(",")) and ":" in text:
        names, _, family = text.rpartition(":")
    who, members = f"{OPTION} {text}", 0
    for name in names.split(","):
        if name not in numbers:
            needs = f"layers or operators of {offers.ctx.graph.name}: A,B or A,B:FAMILY"
            raise ModelError(who, needs=needs, has=name or "an empty name", change="`explain` lists the layers")
        if offers.views >> numbers[name] & 1:
            raise ModelError(who, needs="layers that kernels compute", has=f"{name}, another name for the same bytes")
        members |= 1 << numbers[name]
    if between := _between(members, offers):
        raise ModelError(who, needs="layers with no other layer between them", has=between)
    work = offers.of(members)
    fitting = tuple(kernel for kernel in work.kernels if not family or kernel.template == family)
    if not fitting:
        raise ModelError(
            who,
            needs=f"a kernel of {offers.ctx.target.name} for {', '.join(layer.name for layer in work.layers)} together",
            has=_offered(work, family),
        )
    return Forced(text, narrowed(work, fitting))


def _between(members: int, offers: KernelOffers) -> str:
    """Names of layers that depend on some of a set and on which others of it depend."""
    inner = list(bits(offers.among.between(members)))
    more = ["and more"] if len(inner) > MOST_NAMED else []
    return ", ".join([*(offers.layers[number].name for number in inner[:MOST_NAMED]), *more])


def _offered(work: GroupWork, family: str) -> str:
    if work.kernels:
        return f"no {family}, but {', '.join(dict.fromkeys(kernel.template for kernel in work.kernels))}"
    return "none that the target offers"
