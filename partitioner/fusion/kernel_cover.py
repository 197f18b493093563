"""The cover of least cost: each layer in one group, each group one kernel, all of them computable one after the other.

    layers 0, 1, 2, ...     the first that no group has yet: alone, or in a set that begins with it
    states at a layer       covered layers, groups that reach beyond it, the last group  --cheapest of each--> states

For every set of layers that are covered and groups that are still open only the cheapest way there goes on, which is
dynamic programming over chains, and over diamonds too, since a group may take some paths and leave others. It is exact
where a group takes as long whatever ran before; with a cache it is so for chains, in which only the group just before
matters. Where a network is so wide that there are more than `MOST_STATES`, those that save most go on.

Two groups may each be computable as one and yet need each other; so a state knows what depends on its open groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from partitioner.fusion.cache_hits import GroupWork, KernelRun, ValueReaders
from partitioner.fusion.kernel_sets import Dependences

MOST_STATES = 64


@dataclass(frozen=True, slots=True)
class _Open:
    """A group of which layers are still to come, and the layers that depend on it, also through other groups."""

    members: int
    after: int


@dataclass(frozen=True, slots=True)
class _State:
    """Layers that are covered, the groups in the order of their first layers, and the run of their kernels. `apart` is
    the time in seconds of the covered layers alone, from which the saving follows."""

    covered: int
    open: tuple[_Open, ...]
    run: KernelRun
    groups: tuple[GroupWork, ...]
    apart: float

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key: cheapest first, then the fewest groups."""
        return self.run.cost, len(self.groups)

    @property
    def lost(self) -> tuple[float, int]:
        """Sort key: seconds beyond those of all covered layers alone, which is comparable between different covers."""
        return self.run.cost - self.apart, len(self.groups)


Key: TypeAlias = tuple[object, ...]


def cheapest_covers(
    options: Sequence[Sequence[GroupWork]], among: Dependences, values: ValueReaders
) -> tuple[tuple[GroupWork, ...], ...]:
    """The ends of the search, the cheapest first. `options` are, for each layer, the groups that begin with it; the
    layer alone comes first among them if it may be alone. Empty where groups that have to be made cannot be made
    together."""
    alone = [works[0].cost() if works else 0.0 for works in options]
    states = [_State(0, (), KernelRun(values), (), 0.0)]
    for number, works in enumerate(options):
        kept: dict[Key, _State] = {}
        for state in states:
            for following in _next(state, number, works, among, alone):
                key = (following.covered, following.open, *following.run.context())
                if key not in kept or following.rank < kept[key].rank:
                    kept[key] = following
        states = list(kept.values())
        if len(states) > MOST_STATES:
            states = sorted(states, key=lambda state: state.lost)[:MOST_STATES]
    return tuple(state.groups for state in sorted(states, key=lambda state: state.rank))


def _next(
    state: _State, number: int, works: Sequence[GroupWork], among: Dependences, alone: Sequence[float]
) -> list[_State]:
    """The states that follow when layer `number` is covered, in each possible way."""
    if state.covered >> number & 1:
        return [_past(state, number)]
    found = []
    for work in works:
        if work.members & state.covered:
            continue
        opened = _opened(state.open, work.members, among)
        if opened is None:
            continue
        apart = state.apart + sum(alone[n] for n in _numbers(work.members))
        following = _State(state.covered | work.members, opened, state.run.then(work), (*state.groups, work), apart)
        found.append(_past(following, number))
    return found


def _past(state: _State, number: int) -> _State:
    """The state without open groups whose last layer is this one."""
    still = tuple(group for group in state.open if group.members >> number + 1)
    if len(still) == len(state.open):
        return state
    return _State(state.covered, still, state.run, state.groups, state.apart)


def _opened(opened: tuple[_Open, ...], members: int, among: Dependences) -> tuple[_Open, ...] | None:
    """Open groups with one more; None where the new group would need layers that depend on it."""
    after = among.after(members)
    changed = True
    while changed:
        grown = after
        for group in opened:
            if grown & group.members:
                grown |= group.after | group.members
        changed, after = grown != after, grown
    if after & members:
        return None
    if members & members - 1 == 0 and not opened:
        return opened
    before = tuple(
        _Open(group.members, group.after | after | members) if group.after & members else group for group in opened
    )
    return (*before, _Open(members, after))


def _numbers(mask: int) -> list[int]:
    return [number for number in range(mask.bit_length()) if mask >> number & 1]
