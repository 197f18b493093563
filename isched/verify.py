"""Checks of a program, always run: every read was written, every hazard between cores or with DMA is ordered.

Between two barriers the cores run in any order. So within one such epoch no core may touch what another writes, and
what an epoch reads must have been written in an earlier one or by the core itself. Background transfers count as
writing from their start until they are awaited; none may be open at a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.overlap import overlaps
from isched.program import Instr, Program, Region

__all__ = ["verify_program"]

INITIALISED = ("input", "constant", "probe")
"""Placements that hold data before the program starts."""


@dataclass(frozen=True, slots=True)
class _Access:
    core: int
    index: int
    instr: Instr
    region: Region
    write: bool


def verify_program(program: Program, chip: Chip) -> None:
    """Bounds, alignment, engines that may not touch a memory, reads of unwritten bytes, races between cores and with
    DMA, equal barriers. Raises PlanError naming core, instruction and operator."""
    counts = {sum(i.opcode == program.barrier for i in stream.instrs) for stream in program.streams}
    if len(counts) > 1:
        raise PlanError(f"program {program.name}", needs="as many barriers on every core", has=str(sorted(counts)))
    written = _Written(program, chip)
    rules = _Rules.of(chip)
    epochs = [_epochs(program, stream.instrs) for stream in program.streams]
    for number in range(len(epochs[0]) if epochs else 0):
        shared: list[_Access] = []
        for core, per_core in enumerate(epochs):
            shared += _check_epoch(program, rules, written, core, per_core[number])
        _refuse_races(program, shared)
        written.publish()


@dataclass(frozen=True, slots=True)
class _Rules:
    """What one memory allows."""

    name: str
    size_bytes: int
    alignment_bytes: int
    read_by: frozenset[str]
    written_by: frozenset[str]

    @staticmethod
    def of(chip: Chip) -> dict[str, _Rules]:
        return {
            m.name: _Rules(m.name, m.size_bytes, m.alignment_bytes, frozenset(m.read_by), frozenset(m.written_by))
            for m in chip.memories
        }

    def problem(self, engine: str, region: Region, write: bool) -> str:
        """What an access would need to be allowed; empty when it is."""
        if region.offset_bytes < 0 or region.end_bytes > self.size_bytes:
            return f"addresses inside {self.name} ({self.size_bytes} bytes)"
        if (region.offset_bytes | region.stride_bytes) % self.alignment_bytes:
            return f"addresses and strides of {self.name} at multiples of {self.alignment_bytes} bytes"
        allowed = self.written_by if write else self.read_by
        if engine not in allowed:
            return f"an engine that may {'write' if write else 'read'} {self.name}: {', '.join(sorted(allowed))}"
        return ""


def _epochs(program: Program, instrs: tuple[Instr, ...]) -> list[list[tuple[int, Instr]]]:
    """Numbered instructions between barriers."""
    epochs: list[list[tuple[int, Instr]]] = [[]]
    for index, instr in enumerate(instrs):
        if instr.opcode == program.barrier:
            epochs.append([])
        else:
            epochs[-1].append((index, instr))
    return epochs


class _Written:
    """Which bytes hold data. Writes to shared memories become visible to other cores at the next barrier."""

    def __init__(self, program: Program, chip: Chip) -> None:
        self.chip = chip
        self.private = {memory.name for memory in chip.memories if memory.scope == "core"}
        self.maps: dict[tuple[str, int], npt.NDArray[np.bool_]] = {}
        self.pending: list[Region] = []
        for placement in program.placements:
            if placement.kind in INITIALISED:
                self.mark(Region(placement.memory, placement.offset_bytes, placement.size_bytes), -1)

    def mark(self, region: Region, core: int) -> None:
        self._view(region, core)[...] = True

    def whole(self, region: Region, core: int) -> bool:
        return bool(self._view(region, core).all())

    def publish(self) -> None:
        for region in self.pending:
            self.mark(region, -1)
        self.pending.clear()

    def _view(self, region: Region, core: int) -> npt.NDArray[np.bool_]:
        key = (region.memory, core if region.memory in self.private else -1)
        if key not in self.maps:
            self.maps[key] = np.zeros(self.chip.memory(region.memory).size_bytes, np.bool_)
        flat = self.maps[key][region.offset_bytes : region.end_bytes]
        if region.rows == 1:
            return flat
        shape, strides = (region.rows, region.row_bytes), (region.stride_bytes, 1)
        return np.lib.stride_tricks.as_strided(flat, shape, strides)


def _check_epoch(
    program: Program, rules: dict[str, _Rules], written: _Written, core: int, instrs: list[tuple[int, Instr]]
) -> Iterator[_Access]:
    """Check one core's instructions between two barriers; yield its accesses to shared memories."""
    mine: list[Region] = []
    open_transfers: set[str] = set()
    in_flight: list[tuple[str, Region, bool]] = []
    for index, instr in instrs:
        served = instr.source or "no operator"
        who = f"program {program.name}, core {core}, instruction {index} ({instr.opcode} of {served})"
        if instr.awaits:
            in_flight = [entry for entry in in_flight if entry[0] != instr.awaits]
            open_transfers.discard(instr.awaits)
        for region, write in (*((r, False) for r in instr.reads), *((w, True) for w in instr.writes)):
            if problem := rules[region.memory].problem(instr.engine, region, write):
                raise PlanError(who, needs=problem, has=str(region))
            for token, other, other_writes in in_flight:
                if token != instr.starts and (write or other_writes) and overlaps(region, other):
                    raise PlanError(
                        who, needs=f"transfer {token} to be awaited before {region}", has=f"{other} in flight"
                    )
            if not write and not written.whole(region, core) and not _covered(region, mine, written, core):
                raise PlanError(who, needs="data that something wrote before", has=f"unwritten bytes in {region}")
            if region.memory not in written.private:
                yield _Access(core, index, instr, region, write)
                if write:
                    mine.append(region)
                    written.pending.append(region)
            elif write:
                written.mark(region, core)
        if instr.starts:
            if instr.starts in open_transfers:
                raise PlanError(who, needs=f"transfer {instr.starts} to be awaited before it starts again")
            open_transfers.add(instr.starts)
            in_flight += [(instr.starts, r, False) for r in instr.reads] + [
                (instr.starts, w, True) for w in instr.writes
            ]
    if open_transfers:
        raise PlanError(
            f"program {program.name}, core {core}",
            needs="every background transfer awaited before the next barrier",
            has=", ".join(sorted(open_transfers)),
        )


def _covered(region: Region, mine: list[Region], written: _Written, core: int) -> bool:
    """True when this core's own writes of the epoch, with what was there before, cover a region."""
    for own in mine:
        if overlaps(own, region):
            written.mark(own, core)  # its own core sees it; others are kept off by the race check
    return written.whole(region, core)


def _refuse_races(program: Program, accesses: list[_Access]) -> None:
    """No two cores touch the same bytes of a shared memory in one epoch when one of them writes."""
    active: list[_Access] = []
    for access in sorted(accesses, key=lambda a: (a.region.memory, a.region.offset_bytes)):
        active = [
            a
            for a in active
            if a.region.memory == access.region.memory and a.region.end_bytes > access.region.offset_bytes
        ]
        for other in active:
            if other.core != access.core and (other.write or access.write) and overlaps(other.region, access.region):
                raise PlanError(
                    f"program {program.name}",
                    needs="a barrier between accesses of two cores",
                    has=f"core {other.core} {other.instr.opcode} ({other.instr.source}) and core {access.core} "
                    f"{access.instr.opcode} ({access.instr.source}) at {access.region}",
                )
        active.append(access)
