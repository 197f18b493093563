"""What must come before what: the freedom that a program leaves to whoever orders its instructions.

    Program --bytes that two instructions share--> pairs in their order
        inside a core                          --> earlier positions of its stream
        between cores, or a core and its DMA   --> a meeting between the two; both keep their side of it
        barriers that no such pair needs       --> dropped

Any order of the streams that keeps these pairs and every barrier that is not dropped leaves every byte of the program's
results as it is. Meetings (barriers, and instructions that cores do together) keep their order on every core, so no
core waits for ever. What a meeting orders is said in `isched.happens_before`; a pair takes a meeting without a barrier
that orders it, or else the last barrier between the two, so that one barrier serves many pairs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from hw_models.chip import Chip
from isched.conflicts import Conflicts, conflicts_of, conflicts_within
from isched.program import Instr, Program, Region

__all__ = ["CoreOrder", "Dependences", "dependences"]


Positions = dict[int, tuple[int, ...]]


LAG = 8
"""Meetings that may overtake a result on its way to a shared memory: some tiles' loads."""


@dataclass(frozen=True, slots=True)
class CoreOrder:
    """One stream: earlier positions that must be over before a position is issued (`inside` by the bytes of the core's
    own memories, `shared` by those of shared ones), or only issued before it (`order`). Positions of barriers that
    nothing needs are in `dropped` and in no list."""

    inside: Conflicts
    shared: Positions
    order: Positions
    dropped: frozenset[int]

    def over(self, position: int) -> tuple[int, ...]:
        """What must be over before the instruction at `position` is issued."""
        return self.inside.earlier[position] + self.shared.get(position, ())


Dependences = tuple[CoreOrder, ...]
"""One entry a stream of the program."""


def dependences(program: Program, chip: Chip) -> Dependences:
    """The order that the instructions of a program which `verify_program` accepts must keep.

    Time grows with the instructions and with the pairs of near ones that touch the same bytes.
    """
    shared = frozenset(memory.name for memory in chip.memories if memory.scope != "core")
    finder = _Finder(program, conflicts_within(program, chip))
    finder.read(shared)
    return finder.orders()


@dataclass(frozen=True, slots=True)
class _Touch:
    """An instruction that touches a shared memory; `end` is the position at which it is over (of a DMA transfer the
    wait). `meeting` is its number if all cores do it together, else -1; it stands for all that touch the same bytes."""

    core: int
    position: int
    end: int
    instr: Instr
    meeting: int


class _Finder:
    """Collects pairs of all cores. Meetings of all cores are numbered in their order, which is the same on each."""

    def __init__(self, program: Program, inside: list[Conflicts]) -> None:
        self.program = program
        self.inside = inside
        self.shared: list[dict[int, set[int]]] = [defaultdict(set) for _ in inside]
        self.order: list[dict[int, set[int]]] = [defaultdict(set) for _ in inside]
        everyone = sum(1 << stream.core for stream in program.streams)
        self.places = [
            [p for p, i in enumerate(stream.instrs) if i.opcode == program.barrier or i.meets == everyone]
            for stream in program.streams
        ]
        first = program.streams[0].instrs
        self.barriers = [n for n, p in enumerate(self.places[0]) if first[p].opcode == program.barrier]
        self.engine = {n: first[p].engine for n, p in enumerate(self.places[0]) if n not in set(self.barriers)}
        self.proofs = [self._proofs(core, pairs.earlier) for core, pairs in enumerate(inside)]
        self.waits: dict[int, dict[str, list[tuple[int, int]]]] = {}
        self.between: list[tuple[int, int, _Touch, _Touch]] = []
        """(first and last barrier that could order two touches, the touches)."""

    def _proofs(self, core: int, inside: Sequence[tuple[int, ...]]) -> dict[int, int]:
        """For each meeting without a barrier the first position whose issue proves that it is over on this core."""
        numbers = {place: n for n, place in enumerate(self.places[core]) if n in self.engine}
        proofs: dict[int, int] = {}
        for position, earlier in enumerate(inside):
            for other in earlier:
                if other in numbers:
                    proofs.setdefault(numbers[other], position)
        return proofs

    def _waits(self, core: int) -> dict[str, list[tuple[int, int]]]:
        """For each engine (position, earlier one): issuing the one proves the other over, ascending in both."""
        if core in self.waits:
            return self.waits[core]
        instrs = self.program.streams[core].instrs
        waits = self.waits[core] = {}
        for position, earlier in enumerate(self.inside[core].earlier):
            for other in earlier:
                known = waits.setdefault(instrs[other].engine, [])
                if not known or known[-1][1] < other:
                    known.append((position, other))
        return waits

    def read(self, shared: frozenset[str]) -> None:
        """Go through all streams, from one meeting to the next, and note which touches depend on which."""
        touches = list(self._touches(shared))
        regions = [
            (
                tuple(region for region in touch.instr.reads if region.memory in shared),
                tuple(region for region in touch.instr.writes if region.memory in shared),
            )
            for touch in touches
        ]
        for touch, earlier in zip(touches, conflicts_of(regions), strict=True):
            for number in earlier:
                self._pair(touches[number], touch)

    def _touches(self, shared: frozenset[str]) -> Iterator[_Touch]:
        """In an order in which what a meeting orders comes in its order: what is between two meetings core by core,
        then the meeting itself."""
        streams = self.program.streams
        begins = [0] * len(streams)
        for number in range(len(self.places[0]) + 1):
            last = number == len(self.places[0])
            ends = [len(s.instrs) if last else self.places[core][number] for core, s in enumerate(streams)]
            spans = [range(begin, end) for begin, end in zip(begins, ends, strict=True)]
            for core, span in enumerate(spans):
                for position in span:
                    instr = streams[core].instrs[position]
                    if any(r.memory in shared for r in (*instr.reads, *instr.writes)):
                        yield self._touch(core, position, streams[core].instrs)
            if not last:
                yield from self._together(ends, shared)
            begins = [end + 1 for end in ends]

    def _together(self, positions: list[int], shared: frozenset[str]) -> Iterator[_Touch]:
        """The touches of one meeting: of each core whose bytes no core before it touches."""
        seen: set[tuple[tuple[Region, ...], ...]] = set()
        for core, position in enumerate(positions):
            instr = self.program.streams[core].instrs[position]
            touched = tuple(tuple(r for r in regions if r.memory in shared) for regions in (instr.reads, instr.writes))
            if any(touched) and touched not in seen:
                seen.add(touched)
                yield self._touch(core, position, self.program.streams[core].instrs)

    def _touch(self, core: int, position: int, instrs: Sequence[Instr]) -> _Touch:
        instr = instrs[position]
        end = position
        if instr.starts:
            end = next(p for p in range(position + 1, len(instrs)) if instrs[p].awaits == instr.starts)
        meeting = -1
        if instr.meets:
            number = bisect_left(self.places[core], position)
            meeting = number if self.places[core][number : number + 1] == [position] else -1
        return _Touch(core, position, end, instr, meeting)

    def _pair(self, first: _Touch, then: _Touch) -> None:
        """`then` touches what `first` did before it."""
        alone = first.meeting < 0 and then.meeting < 0
        if alone and first.core == then.core:
            if first.instr.starts:
                self.order[then.core][then.position].add(first.end)
                return
            if not then.instr.starts:
                self.shared[then.core][then.position].add(first.position)
                return
        elif first.meeting == then.meeting and not alone:
            return
        if self._by_meeting(first, then):
            return
        low = bisect_right(self.places[first.core], first.end)
        high = bisect_left(self.places[then.core], then.position) - 1
        barriers = (bisect_left(self.barriers, low), bisect_right(self.barriers, high) - 1)
        if barriers[0] <= barriers[1]:
            self.between.append((*barriers, first, then))
        else:
            self._by_waiting(first, then)

    def _by_waiting(self, first: _Touch, then: _Touch) -> None:
        """Order an engine's access and a DMA transfer of one core by what the core waits for between them: nothing else
        is left in a program that was verified."""
        waits = self._waits(first.core)[first.instr.engine]
        position, other = waits[bisect_left(waits, first.position, key=lambda wait: wait[1])]
        self.order[then.core][then.position].add(position)
        if other != first.position:
            self.order[first.core][other].add(first.position)

    def _by_meeting(self, first: _Touch, then: _Touch) -> bool:
        """Order two touches by a meeting without a barrier, if there is one."""
        low = first.meeting if first.meeting >= 0 else bisect_right(self.places[first.core], first.end) - 1
        high = then.meeting if then.meeting >= 0 else bisect_left(self.places[then.core], then.position) - 1
        numbers = range(low + 1, high + 1)
        # The next loads should not have to come behind what finishes a tile, so its order is proved a few later.
        lag = LAG if first.instr.writes and not first.instr.starts and first.meeting < 0 else 0
        for number in chain(numbers[lag:], reversed(numbers[:lag])):
            engine = self.engine.get(number)
            if engine is None or not (first.instr.starts or first.instr.engine == engine):
                continue
            if then.instr.starts:
                proof = self.proofs[then.core].get(number, then.position)
                if proof >= then.position:
                    continue
                self.order[then.core][then.position].add(proof)
            elif then.instr.engine != engine:
                continue
            elif then.meeting != number:
                self.order[then.core][then.position].add(self.places[then.core][number])
            if first.meeting != number:
                place = self.places[first.core][number]
                self.order[first.core][place].add(first.end)
            return True
        return False

    def orders(self) -> Dependences:
        """Everything that was found, with as few barriers as the pairs between cores need."""
        kept: list[int] = []
        for low, high, _, _ in sorted(self.between, key=lambda pair: pair[1]):
            if not kept or kept[-1] < low:
                kept.append(high)
        for low, _, first, then in self.between:
            number = self.barriers[kept[bisect_left(kept, low)]]
            self.order[first.core][self.places[first.core][number]].add(first.end)
            self.order[then.core][then.position].add(self.places[then.core][number])
        dropped = {self.barriers[n] for n in range(len(self.barriers))} - {self.barriers[n] for n in kept}
        return tuple(self._core(core, dropped) for core in range(len(self.places)))

    def _core(self, core: int, dropped: set[int]) -> CoreOrder:
        """The pairs of one core, with those that keep meetings and transfers of one channel in their order."""
        gone = frozenset(self.places[core][n] for n in dropped)
        order = self.order[core]
        meeting = -1
        channel: dict[str, int] = {}
        for position, instr in enumerate(self.program.streams[core].instrs):
            if position in gone:
                continue
            if instr.meets or instr.opcode == self.program.barrier:
                if meeting >= 0:
                    order[position].add(meeting)
                meeting = position
            if token := instr.starts or instr.awaits:
                if token in channel:
                    order[position].add(channel[token])
                channel[token] = position
        return CoreOrder(self.inside[core], _frozen(self.shared[core]), _frozen(order), gone)


def _frozen(found: dict[int, set[int]]) -> Positions:
    return {position: tuple(sorted(earlier)) for position, earlier in found.items()}
