"""Checks of a program, always run: every read was written, every hazard between cores or with DMA is ordered.

    Program --isched.happens_before--> instructions with what is over when they begin --> accesses, one by one

Two accesses to the same bytes of a shared memory, one of them a write, must be ordered by the program itself: by a
barrier, by an instruction that the cores do together, or by a transfer that was awaited. So must an access of a core
and a DMA transfer of its own. Inside a core the hardware orders the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.happens_before import Step, walk
from isched.overlap import overlaps
from isched.program import Program, Region

__all__ = ["verify_program"]

INITIALISED = ("input", "constant", "probe")
"""Placements that hold data before the program starts."""

PAGE_BYTES = 1 << 13
"""Accesses in flight to shared memories are looked up by pages."""


def verify_program(program: Program, chip: Chip) -> None:
    """Bounds, alignment, engines that may not touch a memory, reads of unwritten bytes, races between cores and with
    DMA, equal barriers. Raises PlanError naming core, instruction and operator."""
    counts = {sum(i.opcode == program.barrier for i in stream.instrs) for stream in program.streams}
    if len(counts) > 1:
        raise PlanError(f"program {program.name}", needs="as many barriers on every core", has=str(sorted(counts)))
    shared = frozenset(memory.name for memory in chip.memories if memory.scope != "core")
    written, rules, recent = _Written(program, chip), _Rules.of(chip), _Recent()
    for step in walk(program, shared):
        instr = step.instr
        for region, write in (*((r, False) for r in instr.reads), *((w, True) for w in instr.writes)):
            if problem := rules[region.memory].problem(instr.engine, region, write):
                raise PlanError(_who(program, step), needs=problem, has=str(region))
            if region.memory in shared:
                _refuse_race(program, recent, step, region, write)
        for region in instr.reads:
            if not written.whole(region, step.core):
                raise PlanError(
                    _who(program, step),
                    needs="data that something wrote before",
                    has=f"unwritten bytes in {region}",
                )
        for region in instr.writes:
            written.mark(region, step.core)


def _who(program: Program, step: Step) -> str:
    served = step.instr.source or "no operator"
    core = program.streams[step.core].core
    return f"program {program.name}, core {core}, instruction {step.index} ({step.instr.opcode} of {served})"


def _refuse_race(program: Program, recent: _Recent, step: Step, region: Region, write: bool) -> None:
    """An access must come behind all earlier ones that it could disturb; then it is one of the recent ones itself."""
    for other in recent.near(region, write):
        before = other.step
        if before is step or not overlaps(region, other.region):
            continue
        watched = before.core == step.core and not before.instr.starts and not step.instr.starts
        if watched or step.knows.knows(before.core, before.unit, before.end):
            continue
        if before.instr.starts and before.core == step.core:
            needs = f"transfer {before.instr.starts} to be awaited before {region}"
        else:
            needs = "a barrier between accesses of two cores, or of a core and its DMA"
        raise PlanError(
            _who(program, step),
            needs=needs,
            has=f"core {program.streams[before.core].core} {before.instr.opcode} ({before.instr.source}) at "
            f"{other.region}, not known to be over",
        )
    recent.add(_Access(step, region, write))


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    step: Step
    region: Region
    write: bool


class _Recent:
    """Accesses to shared memories that later ones may still race with, by page. A write without gaps ends those that
    it covers: what is behind the write is behind them."""

    def __init__(self) -> None:
        self.pages: dict[tuple[str, int, bool], list[_Access]] = {}

    def near(self, region: Region, write: bool) -> Iterator[_Access]:
        """Accesses in the pages that a region touches, those that write and, for a write, those that read."""
        for kind in (True, False) if write else (True,):
            pages = [self.pages[key] for key in self._keys(region, kind) if key in self.pages]
            yield from pages[0] if len(pages) == 1 else dict.fromkeys(chain.from_iterable(pages))

    def add(self, access: _Access) -> None:
        region = access.region
        if access.write and (region.rows == 1 or region.stride_bytes == region.row_bytes):
            for key in (*self._keys(region, True), *self._keys(region, False)):
                if page := self.pages.get(key):
                    self.pages[key] = [other for other in page if not _covers(region, other.region)]
        for key in self._keys(region, access.write):
            self.pages.setdefault(key, []).append(access)

    @staticmethod
    def _keys(region: Region, write: bool) -> list[tuple[str, int, bool]]:
        pages = range(region.offset_bytes // PAGE_BYTES, (region.end_bytes - 1) // PAGE_BYTES + 1)
        return [(region.memory, page, write) for page in pages]


def _covers(outer: Region, inner: Region) -> bool:
    return outer.offset_bytes <= inner.offset_bytes and inner.end_bytes <= outer.end_bytes


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


class _Written:
    """Which bytes hold data, of each core's memories and of the shared ones."""

    def __init__(self, program: Program, chip: Chip) -> None:
        self.chip = chip
        self.private = {memory.name for memory in chip.memories if memory.scope == "core"}
        self.maps: dict[tuple[str, int], npt.NDArray[np.bool_]] = {}
        for placement in program.placements:
            if placement.kind in INITIALISED:
                self.mark(Region(placement.memory, placement.offset_bytes, placement.size_bytes), -1)

    def mark(self, region: Region, core: int) -> None:
        self._view(region, core)[...] = True

    def whole(self, region: Region, core: int) -> bool:
        return bool(self._view(region, core).all())

    def _view(self, region: Region, core: int) -> npt.NDArray[np.bool_]:
        key = (region.memory, core if region.memory in self.private else -1)
        if key not in self.maps:
            self.maps[key] = np.zeros(self.chip.memory(region.memory).size_bytes, np.bool_)
        flat = self.maps[key][region.offset_bytes : region.end_bytes]
        if region.rows == 1:
            return flat
        shape, strides = (region.rows, region.row_bytes), (region.stride_bytes, 1)
        return np.lib.stride_tricks.as_strided(flat, shape, strides)
