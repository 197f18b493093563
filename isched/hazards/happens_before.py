"""Accesses that are over when an instruction begins, as far as the program itself forces it: a checker may rely on
these.

    streams --walked together, from rendezvous to rendezvous--> Steps, each with what it knows to be over

Time plays no part. An instruction begins after those before it on its own engine, and after all that its core waited
for: an access in flight to the same bytes (the published issue rule), a transfer that it awaited, a barrier. A barrier
passes all that its cores know to each of them. Where cores do an instruction together (`Instr.meets`), it begins when
all have come to it, so the earlier work of their engines is over for all of them; but the scalar cores know that only
later, when they wait for it. Nothing watches the DMA: its accesses must be awaited, or be known to be over when it
starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from hw_models.errors import PlanError
from isched.hazards.access_table import Flags, Vector
from isched.hazards.conflicts import Conflicts
from isched.program.program import Instr, Program

Known = npt.NDArray[np.int32]

NO_UNIT = -1


@dataclass(frozen=True, slots=True)
class SharedMemoryUnits:
    """Units that work in order and touch memory that cores share: each engine of each core, and its scalar core with
    the transfers that it starts (`scalar`)."""

    engines: tuple[str, ...]
    scalar: int

    @staticmethod
    def of(program: Program, shared: Sequence[Flags]) -> SharedMemoryUnits:
        """The engines that touch shared memories in this program, without background transfers; `shared` has a flag for
        each position of each stream that touches them."""
        engines = sorted(
            {
                instr.engine
                for stream, touching in zip(program.streams, shared, strict=True)
                for instr, touches in zip(stream.instrs, touching.tolist(), strict=True)
                if not instr.starts and (touches or instr.meets)
            }
        )
        return SharedMemoryUnits(tuple(engines), len(engines))

    def numbers(self, instrs: Sequence[Instr]) -> Vector:
        """The unit of each instruction; NO_UNIT for an engine that touches only its core's memories."""
        number = {engine: n for n, engine in enumerate(self.engines)}
        return np.array(
            [self.scalar if i.starts or i.awaits else number.get(i.engine, NO_UNIT) for i in instrs], np.int64
        )

    @property
    def count(self) -> int:
        return len(self.engines) + 1


@dataclass(frozen=True, slots=True)
class OrderedSteps:
    """The instructions of all units in one order that keeps the streams and the rendezvous; barriers and waits are not
    steps. Step n is position `index[n]` of stream `core[n]`; its own accesses are over for everyone who knows that
    `unit[n]` has reached `end[n]`.

    `over[knows[n]]` says what is over when the step begins: for each core (row) and unit (column) a position of the
    core's stream; all instructions of that unit before it are over. Steps that cores do together share it."""

    core: Vector
    index: Vector
    unit: Vector
    end: Vector
    knows: Vector
    over: Known

    def places(self, steps: Vector) -> tuple[list[int], list[int]]:
        """Streams and positions of some steps."""
        return self.core[steps].tolist(), self.index[steps].tolist()


def walk(program: Program, units: SharedMemoryUnits, conflicts: Sequence[Conflicts]) -> OrderedSteps:
    """The steps of all units. `conflicts` are those inside each core with instructions of these units, by
    `isched.hazards.conflicts`.

    Raises PlanError for a deadlock, or where a transfer is never awaited.
    """
    ends = [_ends(program, number) for number in range(len(program.streams))]
    rendezvous = _rendezvous(program)
    instrs = [instr for stream in program.streams for instr in stream.instrs]
    starts = np.cumsum([0, *(len(stream.instrs) for stream in program.streams)])
    unit = units.numbers(instrs)
    awaits = np.array([bool(instr.awaits) for instr in instrs], np.bool_)
    meets = np.array([program.is_rendezvous(instr) for instr in instrs], np.bool_)
    sizes = np.concatenate([np.diff(pairs.earlier.starts) for pairs in conflicts])
    earlier = np.concatenate([pairs.earlier.numbers for pairs in conflicts])
    core, index, knows, over = _walk(
        starts, unit, awaits, meets, np.concatenate(([0], np.cumsum(sizes))), earlier, *rendezvous, units.count,
        int(np.count_nonzero(unit >= 0)),
    )  # fmt: skip
    place = starts[core] + index
    over = over.reshape(len(over), len(program.streams), units.count)
    return OrderedSteps(core, index, unit[place], np.concatenate(ends)[place], knows, over)


def transfer_ends(instrs: Sequence[Instr]) -> dict[int, int]:
    """The position of the wait that ends each started background transfer; -1 where it is started again before any
    wait, and no entry where nothing waits."""
    ahead: dict[str, int] = {}
    ends: dict[int, int] = {}
    for position in range(len(instrs) - 1, -1, -1):
        instr = instrs[position]
        if instr.awaits:
            ahead[instr.awaits] = position
        if instr.starts:
            if instr.starts in ahead:
                ends[position] = ahead[instr.starts]
            ahead[instr.starts] = -1
    return ends


def _ends(program: Program, number: int) -> Vector:
    """For each position of a stream, the position after which its accesses are over; for a transfer, that of the wait
    for it."""
    instrs = program.streams[number].instrs
    ends = np.arange(1, len(instrs) + 1)
    waits = transfer_ends(instrs)
    for position, instr in enumerate(instrs):
        if not instr.starts:
            continue
        who = program.who(number, position)
        wait = waits.get(position)
        if wait is None:
            raise PlanError(who, needs="every background transfer awaited before the end", has=instr.starts)
        if wait < 0:
            raise PlanError(who, needs=f"transfer {instr.starts} to be awaited before it starts again")
        ends[position] = wait + 1
    return ends


def _rendezvous(program: Program) -> tuple[Vector, Vector, Flags]:
    """Rendezvous in an order in which the cores can do them: the streams from `starts[n]` to `starts[n + 1]` take part
    in rendezvous n; the flag says whether it is a barrier. Raises PlanError for a deadlock."""
    places = [
        [place for place, instr in enumerate(stream.instrs) if program.is_rendezvous(instr)]
        for stream in program.streams
    ]
    numbers = {stream.core: n for n, stream in enumerate(program.streams)}
    at = [0] * len(places)
    starts, taking_part, barriers = [0], list[int](), list[bool]()
    while waiting := [n for n, own in enumerate(places) if at[n] < len(own)]:
        here = {n: program.streams[n].instrs[places[n][at[n]]] for n in waiting}
        for instr in here.values():
            members = _members(program, instr, numbers)
            if all(n in here and _same(here[n], instr) for n in members):
                break
        else:
            raise _stuck(program, waiting[0], places[waiting[0]][at[waiting[0]]])
        for n in members:
            at[n] += 1
        taking_part += members
        starts.append(len(taking_part))
        barriers.append(program.is_barrier(instr))
    return np.array(starts, np.int64), np.array(taking_part, np.int64), np.array(barriers, np.bool_)


def _members(program: Program, instr: Instr, numbers: dict[int, int]) -> list[int]:
    """The streams that take part in a rendezvous; `numbers` maps cores to streams."""
    if program.is_barrier(instr):
        return list(range(len(numbers)))
    return [numbers[n] for n in range(instr.meets.bit_length()) if instr.meets >> n & 1 and n in numbers]


def _same(a: Instr, b: Instr) -> bool:
    return a.opcode == b.opcode and a.meets == b.meets


def _stuck(program: Program, number: int, position: int) -> PlanError:
    return PlanError(
        program.who(number, position),
        needs="the same number of barriers on every core, and the same order of what cores do together",
        has="a deadlock: cores that wait for each other",
    )


@njit(cache=True, nogil=True)
def _walk(
    starts: Vector,
    unit: Vector,
    awaits: Flags,
    meets: Flags,
    conflict_starts: Vector,
    conflicts: Vector,
    rendezvous_starts: Vector,
    rendezvous_cores: Vector,
    barriers: Flags,
    units: int,
    most: int,
) -> tuple[Vector, Vector, Vector, Known]:  # pragma: no cover - compiled
    """Steps as (core, position, row of what they know), and the rows. The streams lie one after the other; stream c has
    the entries from `starts[c]` to `starts[c + 1]`."""
    cores = len(starts) - 1
    size = cores * units
    # What the scalar cores know. An engine knows what its scalar core knew at issue, and its own earlier work.
    scalar = np.zeros((cores, size), np.int32)
    engines = np.zeros((cores * units, size), np.int32)
    # By core and unit: the scalar core knows that everything before this position is over.
    known_until = np.zeros((cores, units), np.int64)
    row_of = np.zeros(len(unit), np.int32)
    core_of, index_of, knows = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    over = np.zeros((most, size), np.int32)
    steps = rows = 0
    here = np.zeros(cores, np.int64)
    for rendezvous in range(len(rendezvous_starts)):
        for core in range(cores):
            while here[core] < starts[core + 1] - starts[core] and not meets[starts[core] + here[core]]:
                index = here[core]
                place = starts[core] + index
                here[core] += 1
                if awaits[place]:
                    scalar[core, core * units + units - 1] = index + 1
                    continue
                if unit[place] < units - 1:
                    _wait(core, place, starts, unit, conflict_starts, conflicts, known_until, row_of, over, scalar)
                if unit[place] < 0:
                    continue
                _raise(over[rows], scalar[core])
                if unit[place] < units - 1:
                    mine = engines[core * units + unit[place]]
                    _raise(over[rows], mine)
                    _raise(mine, over[rows])
                    mine[core * units + unit[place]] = index + 1
                    row_of[place] = rows
                core_of[steps], index_of[steps], knows[steps] = core, index, rows
                steps, rows = steps + 1, rows + 1
        if rendezvous == len(rendezvous_starts) - 1:
            break
        begin, end = rendezvous_starts[rendezvous], rendezvous_starts[rendezvous + 1]
        if barriers[rendezvous]:
            # Each core arrives when its engines are done; then all know what each knew. Open transfers stay open.
            known = np.zeros(size, np.int32)
            for core in range(cores):
                _raise(known, scalar[core])
                for number in range(units):
                    _raise(known, engines[core * units + number])
            for core in range(cores):
                for number in range(units - 1):
                    known[core * units + number] = here[core]
            for core in range(cores):
                _raise(scalar[core], known)
                for number in range(units):
                    _raise(engines[core * units + number], known)
                    known_until[core, number] = here[core]
                here[core] += 1
            continue
        # It begins when it is first in the queues of all its cores.
        for member in range(begin, end):
            core = rendezvous_cores[member]
            place = starts[core] + here[core]
            _wait(core, place, starts, unit, conflict_starts, conflicts, known_until, row_of, over, scalar)
            _raise(over[rows], scalar[core])
            _raise(over[rows], engines[core * units + unit[place]])
        for member in range(begin, end):
            core = rendezvous_cores[member]
            over[rows, core * units + unit[starts[core] + here[core]]] = here[core]
        for member in range(begin, end):
            core, index = rendezvous_cores[member], here[rendezvous_cores[member]]
            place = starts[core] + index
            mine = engines[core * units + unit[place]]
            _raise(mine, over[rows])
            mine[core * units + unit[place]] = index + 1
            row_of[place] = rows
            core_of[steps], index_of[steps], knows[steps] = core, index, rows
            steps += 1
            here[core] = index + 1
        rows += 1
    return core_of[:steps], index_of[:steps], knows[:steps], over[:rows]


@njit(cache=True, nogil=True)
def _raise(known: Known, by: Known) -> None:  # pragma: no cover - compiled
    """Add to `known` everything that `by` knows to be over."""
    for number in range(len(known)):
        if by[number] > known[number]:
            known[number] = by[number]


@njit(cache=True, nogil=True)
def _wait(
    core: int,
    place: int,
    starts: Vector,
    unit: Vector,
    conflict_starts: Vector,
    conflicts: Vector,
    known_until: Vector,
    row_of: Vector,
    over: Known,
    scalar: Known,
) -> None:  # pragma: no cover - compiled
    """Make the scalar core wait for accesses in flight to the same bytes, and so for all before them on the same
    engine; then it knows what these knew."""
    for number in range(conflict_starts[place + 1] - 1, conflict_starts[place] - 1, -1):
        index = conflicts[number]
        earlier = starts[core] + index
        engine = unit[earlier]
        if engine < 0 or index < known_until[core, engine]:
            continue
        _raise(scalar[core], over[row_of[earlier]])
        scalar[core, len(known_until[core]) * core + engine] = index + 1
        known_until[core, engine] = index + 1
