"""Groups that the user asks for with `--force-group`, whether they save time or not.

"conv1,conv2:inverted_residual"  --names of layers or operators, a template-->  Forced(GroupWork)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hw_models.errors import ModelError
from partitioner.fusion.cache_hits import GroupWork
from partitioner.fusion.kernel_sets import bits, in_order
from partitioner.planners.kernel_offers import KernelOffers, narrowed

OPTION = "--force-group"
MOST_NAMED = 8


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
            raise ModelError(f"{OPTION} {text}", needs="layers that no other group has", has=f"{name}, in another one")
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
        has = "each of some needs what another makes"
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
        raise ModelError(who, needs="layers between which no other has to run", has=between)
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
