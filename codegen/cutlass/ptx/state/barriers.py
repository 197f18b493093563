"""Barriers of CTAs: bar.sync, bar.red and bar.arrive; 16 per CTA, for all its warps or for a number of threads.

A waiting path is set aside until the barriers of its CTAs are complete; part of it may continue before the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.cutlass.ptx.state.active import WARP, Active
from codegen.cutlass.ptx.state.ordering import Ordering
from codegen.cutlass.ptx.state.paths import Join, ThreadPath, ThreadPaths
from codegen.cutlass.ptx.state.scalars import Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault

BARRIERS = 16


@dataclass(frozen=True, slots=True)
class Vote:
    """bar.red: `put` receives `reduce` of the participants' predicates, one value per thread."""

    predicate: Array
    negated: bool
    operation: str
    target: Array

    def result(self, votes: Array) -> int:
        """Result for all participants."""
        match self.operation:
            case "and":
                return int(votes.all())
            case "or":
                return int(votes.any())
        return int(votes.sum())


@dataclass(slots=True)
class _Waiting:
    """Threads at a barrier: `numbers` holds the barrier of each warp; they continue at `block`."""

    mask: Array
    numbers: Array
    block: int
    join: Join
    vote: Vote | None
    line: int


class CtaBarriers:
    """Barriers of `ctas` CTAs with `warps` warps each."""

    def __init__(self, ctas: int, warps: int, order: Ordering, paths: ThreadPaths) -> None:
        self._warps, self._order, self._paths = warps, order, paths
        self._here = np.zeros((ctas, BARRIERS, warps), np.bool_)
        self._needed = np.full((ctas, BARRIERS), -1, np.int64)
        self._ballots = np.zeros(ctas * warps * WARP, np.bool_)
        self.waiting: list[_Waiting] = []

    def clear(self) -> None:
        """Reset for the next batch of CTAs."""
        self._here.fill(False)
        self._needed.fill(-1)
        self.waiting.clear()

    def sync(
        self, path: ThreadPath, number: Array, count: Array | None, vote: Vote | None, block: int, line: int
    ) -> None:
        """Let a path arrive at bar.sync or bar.red; it or parts of it become ready when they may continue. Raises
        KernelFault."""
        active = path.active
        warps = active.warps
        numbers = self._numbers(number, warps)
        if vote is not None:
            votes = np.broadcast_to(vote.predicate ^ vote.negated, active.mask.size)
            np.copyto(self._ballots, votes, where=active.mask)
        if self._all_here(active, warps, numbers, count):
            ctas = np.unique(warps // self._warps)
            for cta in ctas.tolist() if vote is not None else ():
                self._give(vote, active.mask, cta, active.mask)
            self._order.all_meet(ctas)
            self._paths.ready.append(ThreadPath(active, block, path.join))
            return
        by_warp = np.full(self._paths.live.size // WARP, -1, np.int64)
        by_warp[warps] = numbers
        self.waiting.append(_Waiting(active.mask, by_warp, block, path.join, vote, line))
        self._enter(warps, numbers, self._counts(count, warps))

    def arrive(self, active: Active, number: Array, count: Array) -> None:
        """Let warps arrive at bar.arrive, where they do not wait. Raises KernelFault."""
        warps = active.warps
        self._enter(warps, self._numbers(number, warps), self._counts(count, warps))

    def recheck(self) -> None:
        """Check again after threads have finished: barriers of all running warps may be complete now."""
        if self.waiting:
            self._complete({(int(c), int(b)) for c, b in np.argwhere(self._here.any(axis=2))})

    def _all_here(self, active: Active, warps: Array, numbers: Array, count: Array | None) -> bool:
        """Whether all running warps of these CTAs arrive together, at one barrier at which no other has arrived
        before."""
        if (numbers != numbers[0]).any():
            return False
        ctas = np.unique(warps // self._warps)
        if self._here[ctas, numbers[0]].any():
            return False
        if count is not None and (self._counts(count, warps) != self._warps * WARP).any():
            return False
        if active.whole:
            return True
        threads = self._warps * WARP
        return bool((self._paths.live.reshape(-1, threads)[ctas] == active.mask.reshape(-1, threads)[ctas]).all())

    def _numbers(self, number: Array, warps: Array) -> Array:
        """The barrier number of each warp."""
        found = self._uniform(number, warps, "the number of the barrier")
        if (found >= BARRIERS).any():
            raise KernelFault(FaultKind.INVALID, f"barrier {int(found.max())}: there are {BARRIERS}")
        return found

    def _counts(self, count: Array | None, warps: Array) -> Array:
        """Number of threads that complete each warp's barrier; 0 stands for all running threads."""
        if count is None:
            return np.zeros(warps.size, np.int64)
        found = self._uniform(count, warps, "the number of threads at a barrier")
        if (found % WARP != 0).any() or (found == 0).any() or (found > self._warps * WARP).any():
            raise KernelFault(
                FaultKind.INVALID, f"a barrier of {int(found[0])} threads, in CTAs of {self._warps} warps"
            )
        return found

    @staticmethod
    def _uniform(values: Array, warps: Array, what: str) -> Array:
        if values.size == 1:
            return np.full(warps.size, int(values[0]), np.int64)
        by_warp = values.reshape(-1, WARP)[warps]
        if (by_warp != by_warp[:, :1]).any():
            raise KernelFault(FaultKind.INVALID, f"{what} differs between the threads of a warp")
        return by_warp[:, 0].astype(np.int64)

    def _enter(self, warps: Array, numbers: Array, counts: Array) -> None:
        touched = set()
        for cta, number in {(int(w) // self._warps, int(n)) for w, n in zip(warps, numbers, strict=True)}:
            chosen = (warps // self._warps == cta) & (numbers == number)
            own, needed = warps[chosen], set(counts[chosen].tolist())
            local = own % self._warps
            here = self._here[cta, number]
            if here.any():
                needed.add(int(self._needed[cta, number]))
            if len(needed) > 1:
                raise KernelFault(
                    FaultKind.INVALID, f"warps come to barrier {number} with different numbers of threads"
                )
            if here[local].any():
                raise KernelFault(
                    FaultKind.INVALID, f"a warp comes to barrier {number} a second time before it is complete"
                )
            self._needed[cta, number] = needed.pop()
            self._order.arrive(cta, number, own)
            here[local] = True
            touched.add((cta, number))
        self._complete(touched)

    def _complete(self, touched: set[tuple[int, int]]) -> None:
        """Release the threads at those of the `touched` barriers that are complete."""
        running = np.asarray(self._paths.live.reshape(self._here.shape[0], self._warps, WARP).any(axis=2))
        done = []
        for cta, number in sorted(touched):
            here, needed = self._here[cta, number], int(self._needed[cta, number])
            if needed == 0 and not (running[cta] & ~here).any():
                done.append((cta, number))
            elif needed and int(here.sum()) * WARP >= needed:
                if int(here.sum()) * WARP > needed:
                    raise KernelFault(
                        FaultKind.INVALID, f"{int(here.sum()) * WARP} threads at barrier {number} of {needed}"
                    )
                done.append((cta, number))
        if done:
            self._release(done)

    def _release(self, done: list[tuple[int, int]]) -> None:
        left = []
        live = self._paths.live
        for waiting in self.waiting:
            going = np.zeros(waiting.mask.size, np.bool_)
            for cta, number in done:
                warps = np.arange(cta * self._warps, (cta + 1) * self._warps)
                mine = warps[waiting.numbers[warps] == number]
                if mine.size:
                    self._order.acquire(cta, number, mine)
                    going.reshape(-1, WARP)[mine] = True
            going &= waiting.mask
            if not going.any():
                left.append(waiting)
                continue
            for cta, number in done:
                here = np.zeros_like(going).reshape(-1, self._warps, WARP)
                here[cta] = self._here[cta, number][:, None]
                self._give(waiting.vote, going & here.reshape(-1), cta, here.reshape(-1) & live)
            if not np.array_equal(going, waiting.mask):
                waiting.mask = waiting.mask & ~going
                waiting.numbers = np.where(going.reshape(-1, WARP).any(axis=1), -1, waiting.numbers)
                waiting.join.pending += 1
                left.append(waiting)
            self._paths.ready.append(ThreadPath(Active(going, live), waiting.block, waiting.join))
        self.waiting = left
        for cta, number in done:
            self._here[cta, number] = False
            self._needed[cta, number] = -1
            self._order.reset(cta, number)

    def _give(self, vote: Vote | None, going: Array, cta: int, voters: Array) -> None:
        """Give the result of bar.red among `voters` to the threads of a CTA that continue."""
        if vote is None:
            return
        own = slice(cta * self._warps * WARP, (cta + 1) * self._warps * WARP)
        vote.target[own][going[own]] = vote.result(self._ballots[own][voters[own]])
