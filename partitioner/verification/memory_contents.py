"""Contents of one memory while a layout is walked: disjoint runs of bytes, and what was written there.

    write(run, what) --> what it overwrites is gone;   find(tensor, place) --> what lies there, or who overwrote it

A run that is overwritten in part is gone as a whole: nothing may live on bytes that something else uses.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from partitioner.ir.regions import Box, holds
from partitioner.tiling.buffer_aliasing import run_offset


@dataclass(slots=True)
class Written:
    """A dense `box` of a tensor from byte `low` up to `high`, of which the boxes `filled` were written; `tensor` is ""
    for workspace. Events with the same `phase` happen at the same time."""

    low: int
    high: int
    tensor: str
    box: Box
    filled: tuple[Box, ...]
    writer: str
    phase: int


@dataclass(slots=True)
class Contents:
    """One memory of one core, or a shared one. Runs are kept in the order of their bytes."""

    lows: list[int] = field(default_factory=list)
    runs: list[Written] = field(default_factory=list)
    by_tensor: dict[str, list[Written]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    """For each tensor, what last overwrote a run of it."""

    def write(self, written: Written) -> Written | None:
        """Write data where they lie; return what was written there at the same time, if anything was."""
        low, high = written.low, written.high
        if low >= high:
            return None
        first = bisect_left(self.lows, low)
        if first and self.runs[first - 1].high > low:
            first -= 1
        last = bisect_left(self.lows, high, first)
        clash: Written | None = None
        for run in self.runs[first:last]:
            if run.phase == written.phase:
                clash = run
            if run.tensor:
                self.by_tensor[run.tensor].remove(run)
                self.lost[run.tensor] = written.writer
        self.lows[first:last] = [low]
        self.runs[first:last] = [written]
        if written.tensor:
            self.by_tensor.setdefault(written.tensor, []).append(written)
        return clash

    def find(self, tensor: str, box: Box, offset_bytes: int, item_bytes: int) -> Written | None:
        """The run that holds a dense `box` of the tensor from `offset_bytes` on."""
        for run in self.by_tensor.get(tensor, ()):
            if run.low == offset_bytes and run.box == box:
                return run
        for run in self.by_tensor.get(tensor, ()):
            start = run_offset(run.box, box) if run.low <= offset_bytes < run.high and holds(run.box, box) else None
            if start is not None and run.low + start * item_bytes == offset_bytes:
                return run
        return None
