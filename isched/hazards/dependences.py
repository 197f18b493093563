"""Dependences: the order that a scheduler of a program's instructions must keep, and so the freedom that it has.

    Program --bytes that two instructions share--> pairs in their order
        inside a core                          --> earlier positions of its stream
        between cores, or a core and its DMA   --> a rendezvous between the two; both keep their side of it
        barriers that no such pair needs       --> dropped

Any order of the streams that keeps these pairs and every barrier that is not dropped leaves every byte of the program's
results unchanged. Rendezvous (barriers, and instructions that cores do together) keep their order on every core, so
there is no deadlock. `isched.hazards.happens_before` says what a rendezvous orders. A pair takes a rendezvous that
orders it and is not a barrier, or else one of the barriers between the two, chosen so that each serves many pairs.

Rendezvous of only some cores keep their order like all others, but no pair is ordered by them: programs that need that
are refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import njit

from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.hazards.access_table import Flags, Table, Touches, Vector
from isched.hazards.conflicts import Conflicts, Earlier, conflicts_of, conflicts_within
from isched.hazards.happens_before import transfer_ends
from isched.program.program import Program

LAG = 8
"""Number of rendezvous that may overtake a result on its way to a shared memory: the loads of some tiles."""

NEVER = 1 << 62
"""A position that no stream has, also used as the number of an engine that takes part in no rendezvous."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of positions of a stream, ascending, each once: `earlier[n]` comes before `later[n]`."""

    later: Vector
    earlier: Vector

    @staticmethod
    def of(later: Vector, earlier: Vector) -> Pairs:
        """Sorted pairs without repetition, from pairs in any order."""
        base = int(earlier.max(initial=0)) + 1
        found = np.sort(later * base + earlier)
        found = found[np.diff(found, prepend=-1) != 0]
        return Pairs(found // base, found % base)


@dataclass(frozen=True, slots=True)
class CoreOrder:
    """Order to keep in one stream: earlier positions that must be over before a position is issued (`inside` by the
    bytes of the core's own memories, `shared` by those of shared ones), or only issued before it (`ordered`). Positions
    of barriers that nothing needs are in `dropped` and in no pair."""

    inside: Conflicts
    shared: Pairs
    ordered: Pairs
    dropped: frozenset[int]


Dependences = tuple[CoreOrder, ...]
"""One entry per stream of the program."""


def dependences(program: Program, chip: Chip) -> Dependences:
    """The order that the instructions of a program must keep; `verify_program` must accept the program.

    Time grows with the instructions and with the pairs of near ones that touch the same bytes. Raises PlanError where
    neither a rendezvous of all cores nor a wait of the core itself orders two accesses to the same bytes.
    """
    touches = Touches.of(program)
    rendezvous = _FullRendezvous.of(program)
    inside = conflicts_within(program, touches, chip)
    finder = _Finder(program, rendezvous, inside, _shared_touches(program, touches, rendezvous, chip))
    finder.read()
    return finder.orders()


@dataclass(frozen=True)
class _FullRendezvous:
    """Rendezvous of all cores, numbered in their order, which is the same on each core: `places[core, number]` is a
    position, `engines[number]` the number of the engine (-1 for a barrier), `barriers` the numbers of the barriers.
    Rendezvous of only some cores have no number."""

    names: Mapping[str, int]
    places: Table
    engines: Vector
    barriers: Vector

    @staticmethod
    def of(program: Program) -> _FullRendezvous:
        places = [
            [place for place, instr in enumerate(stream.instrs) if program.is_full_rendezvous(instr)]
            for stream in program.streams
        ]
        names: dict[str, int] = {}
        first = program.streams[0].instrs
        engines = [
            -1 if program.is_barrier(first[place]) else names.setdefault(first[place].engine, len(names))
            for place in places[0]
        ]
        numbers = np.array(engines, np.int64)
        return _FullRendezvous(names, np.array(places, np.int64), numbers, np.flatnonzero(numbers < 0))


@dataclass(frozen=True)
class _Shared:
    """Instructions that touch shared memories, in an order that follows the rendezvous of all cores: core by core those
    between two rendezvous, then the rendezvous itself. An instruction is over at position `end` (a DMA transfer at its
    wait). `rendezvous` is its number if all cores do it together, else -1; such an entry stands for all cores that
    touch the same bytes. `earlier` are the entries that it conflicts with."""

    core: Vector
    position: Vector
    end: Vector
    rendezvous: Vector
    engine: Vector
    starts: Flags
    writes: Flags
    earlier: Earlier


def _shared_touches(program: Program, touches: Touches, rendezvous: _FullRendezvous, chip: Chip) -> _Shared:
    shared = frozenset(memory.name for memory in chip.memories if memory.scope != "core")
    kinds = touches.kinds(shared)
    found = [np.flatnonzero(kinds[lists]) for lists in touches.streams]
    core = np.repeat(np.arange(len(found)), [len(positions) for positions in found])
    position = np.concatenate(found)
    lists = np.concatenate([lists[own] for lists, own in zip(touches.streams, found, strict=True)])
    number = np.concatenate([np.searchsorted(own, p) for own, p in zip(rendezvous.places, found, strict=True)])
    met = number < rendezvous.places.shape[1]
    met[met] = rendezvous.places[core[met], number[met]] == position[met]
    order = np.lexsort((position, core, met, number))
    order = order[_first_of_each(met[order], number[order], kinds[lists[order]])]
    core, position, met, number = core[order], position[order], met[order], number[order]
    instrs = [program.streams[c].instrs[p] for c, p in zip(core.tolist(), position.tolist(), strict=True)]
    starts = np.array([bool(instr.starts) for instr in instrs], np.bool_)
    end = position.copy()
    ends = [transfer_ends(stream.instrs) for stream in program.streams]
    end[starts] = [ends[core[n]][int(position[n])] for n in np.flatnonzero(starts)]
    return _Shared(
        core,
        position,
        end,
        np.where(met & np.array([instr.meets != 0 for instr in instrs], np.bool_), number, -1),
        np.array([rendezvous.names.get(instr.engine, NEVER) for instr in instrs], np.int64),
        starts,
        np.array([bool(instr.writes) for instr in instrs], np.bool_),
        conflicts_of(touches.accesses(lists[order], shared)),
    )


def _first_of_each(met: Flags, number: Vector, kinds: Vector) -> Flags:
    """Flags of the entries that stand for others: in one rendezvous the first of those that touch the same bytes; every
    other entry stands for itself."""
    who = number[met] * (int(kinds.max(initial=0)) + 1) + kinds[met]
    chosen = ~met
    chosen[np.flatnonzero(met)[np.unique(who, return_index=True)[1]]] = True
    return chosen


class _Finder:
    """Collects pairs of all cores."""

    def __init__(
        self, program: Program, rendezvous: _FullRendezvous, inside: list[Conflicts], touched: _Shared
    ) -> None:
        self.program = program
        self.rendezvous = rendezvous
        self.inside = inside
        self.touched = touched
        self.shared: list[list[tuple[Vector, Vector]]] = [[] for _ in inside]
        self.order: list[list[tuple[Vector, Vector]]] = [[] for _ in inside]
        self.waits: dict[int, dict[str, list[tuple[int, int]]]] = {}
        nothing = np.zeros(0, np.int64)
        self.between = (nothing, nothing, nothing, nothing)
        """(first and last barrier that could order two touches, the touches)."""

    def read(self) -> None:
        """Note what orders each pair of touches."""
        touched = self.touched
        first, then = touched.earlier.numbers, touched.earlier.later
        alone = (touched.rendezvous[first] < 0) & (touched.rendezvous[then] < 0)
        same = alone & (touched.core[first] == touched.core[then])
        awaited = same & touched.starts[first]
        self._add(self.order, then[awaited], touched.position[then[awaited]], touched.end[first[awaited]])
        watched = same & ~awaited & ~touched.starts[then]
        self._add(self.shared, then[watched], touched.position[then[watched]], touched.position[first[watched]])
        left = ~awaited & ~watched & (alone | (touched.rendezvous[first] != touched.rendezvous[then]))
        first, then = first[left], then[left]
        left = ~self._by_rendezvous(first, then)
        self._by_barrier(first[left], then[left])

    def _add(self, found: list[list[tuple[Vector, Vector]]], touches: Vector, later: Vector, earlier: Vector) -> None:
        """Add the pairs of positions of the cores of some touches."""
        cores = self.touched.core[touches]
        for core, pairs in enumerate(found):
            mine = cores == core
            pairs.append((later[mine], earlier[mine]))

    def _by_rendezvous(self, first: Vector, then: Vector) -> Flags:
        """Order pairs of touches by a rendezvous that is not a barrier, where there is one that orders them."""
        touched, places = self.touched, self.rendezvous.places
        proofs = np.stack([self._proofs(core, conflicts.earlier) for core, conflicts in enumerate(self.inside)])
        low = np.where(touched.rendezvous >= 0, touched.rendezvous, self._rendezvous_until(touched.end))
        high = np.where(touched.rendezvous >= 0, touched.rendezvous, self._rendezvous_before(touched.position))
        lag = np.where(touched.writes & ~touched.starts & (touched.rendezvous < 0), LAG, 0)
        met = _rendezvous_between(
            first, then, low, high, lag, touched.starts, touched.engine, touched.core, touched.position,
            self.rendezvous.engines, proofs,
        )  # fmt: skip
        some: Flags = met >= 0
        first, then, met = first[some], then[some], met[some]
        starts = touched.starts[then]
        behind, by = then[starts], met[starts]
        self._add(self.order, behind, touched.position[behind], proofs[touched.core[behind], by])
        joins = ~starts & (touched.rendezvous[then] != met)
        behind, by = then[joins], met[joins]
        self._add(self.order, behind, touched.position[behind], places[touched.core[behind], by])
        joins = touched.rendezvous[first] != met
        ahead, by = first[joins], met[joins]
        self._add(self.order, ahead, places[touched.core[ahead], by], touched.end[ahead])
        return some

    def _rendezvous_until(self, positions: Vector) -> Vector:
        """For each touch the last rendezvous at or before a position of its core; -1 for none."""
        return self._searched(positions, "right") - 1

    def _rendezvous_before(self, positions: Vector) -> Vector:
        """For each touch the last rendezvous before a position of its core; -1 for none."""
        return self._searched(positions, "left") - 1

    def _searched(self, positions: Vector, side: Literal["left", "right"]) -> Vector:
        found = np.empty(len(positions), np.int64)
        for core, places in enumerate(self.rendezvous.places):
            mine = self.touched.core == core
            found[mine] = np.searchsorted(places, positions[mine], side)
        return found

    def _proofs(self, core: int, inside: Earlier) -> Vector:
        """For each rendezvous that is not a barrier, the first position whose issue proves that it is over on this
        core."""
        places = self.rendezvous.places[core]
        numbers = np.full(len(inside.starts), -1, np.int64)
        numbers[places] = np.where(self.rendezvous.engines >= 0, np.arange(len(places)), -1)
        proved = numbers[inside.numbers]
        some = proved >= 0
        proofs = np.full(len(places), NEVER, np.int64)
        np.minimum.at(proofs, proved[some], inside.later[some])
        return proofs

    def _by_barrier(self, first: Vector, then: Vector) -> None:
        """Order the pairs that no other rendezvous orders: by barriers, or else by the waits of the core."""
        low = self._rendezvous_until(self.touched.end)[first] + 1
        high = self._rendezvous_before(self.touched.position)[then]
        lowest = np.searchsorted(self.rendezvous.barriers, low, "left")
        highest = np.searchsorted(self.rendezvous.barriers, high, "right") - 1
        some = lowest <= highest
        self.between = (lowest[some], highest[some], first[some], then[some])
        for ahead, behind in zip(first[~some].tolist(), then[~some].tolist(), strict=True):
            self._by_waiting(ahead, behind)

    def _by_waiting(self, first: int, then: int) -> None:
        """Order an engine's access and a DMA transfer of one core by a wait of the core between them. Raises PlanError
        where no wait proves the order, or where the two belong to different cores."""
        core, place = int(self.touched.core[first]), int(self.touched.position[first])
        behind, start = int(self.touched.core[then]), int(self.touched.position[then])
        waits = self._waits(core).get(self.program.streams[core].instrs[place].engine, [])
        found = bisect_left(waits, place, key=lambda wait: wait[1])
        if core != behind or found == len(waits) or waits[found][0] > start:
            needs = "what touches the same bytes ordered by a barrier, or by what all cores do together"
            raise PlanError(self.program.who(behind, start), needs=needs, has=self.program.who(core, place))
        position, other = waits[found]
        self.order[core].append((np.array([start], np.int64), np.array([position], np.int64)))
        if other != place:
            self.order[core].append((np.array([other], np.int64), np.array([place], np.int64)))

    def _waits(self, core: int) -> dict[str, list[tuple[int, int]]]:
        """Pairs (position, earlier one) for each engine, ascending in both: issuing the position proves that the
        earlier one is over."""
        if core in self.waits:
            return self.waits[core]
        instrs = self.program.streams[core].instrs
        waits = self.waits[core] = {}
        earlier = self.inside[core].earlier
        for position, other in zip(earlier.later.tolist(), earlier.numbers.tolist(), strict=True):
            known = waits.setdefault(instrs[other].engine, [])
            if not known or known[-1][1] < other:
                known.append((position, other))
        return waits

    def orders(self) -> Dependences:
        """The order to keep on each core, with as few barriers as the pairs between cores need."""
        touched, places, barriers = self.touched, self.rendezvous.places, self.rendezvous.barriers
        low, high, first, then = self.between
        kept: list[int] = []
        for highest, lowest in np.unique(np.stack((high, low), axis=1), axis=0).tolist():
            if not kept or kept[-1] < lowest:
                kept.append(highest)
        number = barriers[np.array(kept, np.int64)[np.searchsorted(kept, low)]] if kept else low
        self._add(self.order, first, places[touched.core[first], number], touched.end[first])
        self._add(self.order, then, touched.position[then], places[touched.core[then], number])
        dropped = np.delete(barriers, kept)
        return tuple(self._core(core, places[core, dropped]) for core in range(len(places)))

    def _core(self, core: int, dropped: Vector) -> CoreOrder:
        """The pairs of one core, with those that keep rendezvous and transfers of one channel in their order."""
        gone = frozenset(dropped.tolist())
        order = [*self.order[core], *_in_order(self.program, core, gone)]
        return CoreOrder(self.inside[core], _joined(self.shared[core]), _joined(order), gone)


def _in_order(program: Program, core: int, gone: frozenset[int]) -> Iterator[tuple[Vector, Vector]]:
    """Neighbours among the rendezvous of a core, and among the starts and waits of each of its channels."""
    rendezvous: list[int] = []
    channels: dict[str, list[int]] = {}
    for position, instr in enumerate(program.streams[core].instrs):
        if program.is_rendezvous(instr) and position not in gone:
            rendezvous.append(position)
        if token := instr.starts or instr.awaits:
            channels.setdefault(token, []).append(position)
    for chain in (rendezvous, *channels.values()):
        places = np.array(chain, np.int64)
        yield places[1:], places[:-1]


def _joined(found: Sequence[tuple[Vector, Vector]]) -> Pairs:
    nothing = np.zeros(0, np.int64)
    later, earlier = zip(*found, strict=True) if found else ((nothing,), (nothing,))
    return Pairs.of(np.concatenate(later), np.concatenate(earlier))


@njit(cache=True)
def _rendezvous_between(
    firsts: Vector,
    thens: Vector,
    low: Vector,
    high: Vector,
    lag: Vector,
    starts: Flags,
    engine: Vector,
    core: Vector,
    position: Vector,
    engines: Vector,
    proofs: Table,
) -> Vector:  # pragma: no cover - compiled
    """For each pair of touches, a rendezvous that orders it and is not a barrier; -1 for none.

    The next loads should not have to wait for the end of a tile, so the order is proved a few rendezvous later (`lag`)
    if possible, and else as late as possible."""
    found = np.full(len(firsts), -1, np.int64)
    for pair in range(len(firsts)):
        first, then = firsts[pair], thens[pair]
        begin, end = low[first] + 1, high[then] + 1
        middle = min(begin + lag[first], max(begin, end))
        for step in range(end - begin):
            number = middle + step if middle + step < end else end - 1 - step
            if engines[number] < 0 or not (starts[first] or engine[first] == engines[number]):
                continue
            if starts[then]:
                if proofs[core[then], number] >= position[then]:
                    continue
            elif engine[then] != engines[number]:
                continue
            found[pair] = number
            break
    return found
