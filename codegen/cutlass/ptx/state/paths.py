"""Threads that run together, and the joins where diverged threads meet again.

    ThreadPath   active threads at a block, on their way to a join
    Join         the block at which the threads of a divergent branch meet; it continues when all of them are there

Warps of one path run in lockstep only because that is fast. Where some warps wait at a barrier for others that wait
at the join, `free` lets the complete warps continue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.cutlass.ptx.state.active import WARP, Active
from codegen.cutlass.ptx.state.scalars import Array


@dataclass(slots=True, eq=False)
class Join:
    """A meeting point. `pending` counts the paths and joins on their way here; `arrived` is a mask of the threads
    that are here."""

    block: int
    parent: Join | None
    pending: int
    arrived: Array


@dataclass(slots=True, eq=False)
class ThreadPath:
    """Threads that continue at `block`."""

    active: Active
    block: int
    join: Join


class ThreadPaths:
    """The paths that can run. `live` is the mask of threads that have not finished, changed in place."""

    def __init__(self, live: Array, choices: np.random.Generator) -> None:
        self.live = live
        self.ready: list[ThreadPath] = []
        self._choices = choices

    def start(self, end: int) -> None:
        """Start all threads at the entry."""
        root = Join(end, None, 1, np.zeros_like(self.live))
        self.ready = [ThreadPath(Active(self.live.copy(), self.live), 0, root)]

    def next(self) -> ThreadPath | None:
        """A random path that can run; None where there is none."""
        if not self.ready:
            return None
        if len(self.ready) == 1:
            return self.ready.pop()
        return self.ready.pop(int(self._choices.integers(len(self.ready))))

    def part(self, path: ThreadPath, sides: list[tuple[Array, int]], meets: int) -> None:
        """Send the threads of `path` to several blocks; they meet at block `meets`."""
        join = self.meet(path.join, meets, len(sides))
        self.ready += [ThreadPath(Active(mask, self.live), block, join) for mask, block in sides]

    def meet(self, join: Join, block: int, count: int) -> Join:
        """A join of `count` paths at `block`, which replaces one path that was on its way to `join`."""
        if join.block == block:
            join.pending += count - 1
            return join
        return Join(block, join, count, np.zeros_like(self.live))

    def arrive(self, path: ThreadPath) -> None:
        """Record that a path is at its join."""
        path.join.arrived |= path.active.mask
        self.leave(path.join)

    def leave(self, join: Join) -> None:
        """Record that one of those on their way has arrived or finished."""
        current: Join | None = join
        while current is not None:
            current.pending -= 1
            if current.pending:
                return
            current.arrived &= self.live
            if current.parent is not None and current.arrived.any():
                self.ready.append(ThreadPath(Active(current.arrived, self.live), current.block, current.parent))
                return
            current = current.parent

    def free(self, waiting: list[tuple[Array, Join]]) -> bool:
        """Let complete warps continue from joins at which others are missing that wait at a barrier; return whether any
        could."""
        below: dict[int, tuple[Join, Array]] = {}
        for mask, join in waiting:
            current: Join | None = join
            held = mask
            while current is not None:
                _, known = below.setdefault(id(current), (current, np.zeros_like(self.live)))
                known |= held
                held = held | current.arrived
                current = current.parent
        freed = False
        for join, missing in below.values():
            if join.parent is None or not join.arrived.any():
                continue
            stays = np.repeat(missing.reshape(-1, WARP).any(axis=1), WARP)
            going = join.arrived & ~stays
            if going.any():
                join.arrived = join.arrived & stays
                join.parent.pending += 1
                self.ready.append(ThreadPath(Active(going, self.live), join.block, join.parent))
                freed = True
        return freed
