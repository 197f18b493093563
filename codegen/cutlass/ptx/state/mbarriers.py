"""mbarrier objects: barriers in shared memory that count arrivals, phase after phase.

    init n: a phase is complete after n arrivals; the next one begins at once
    arrive: the warp's work so far is known to every warp that sees the phase complete
    cp.async.mbarrier.arrive: an arrival that happens when the thread's copies so far have landed
    arrive.expect_tx: an arrival, and this phase is not complete before that many bytes of bulk copies have landed
    test_wait, try_wait: whether a phase is complete; each try_wait fails once for an incomplete one, then waits

Copies that are waited for in this way land as late as possible: when nothing else can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.in_flight import AsyncCopies, BulkFlight
from codegen.cutlass.ptx.state.layout import OBJECT_BYTES
from codegen.cutlass.ptx.state.paths import Join, ThreadPath, ThreadPaths
from codegen.cutlass.ptx.state.scalars import Array
from codegen.cutlass.ptx.state.shared_memory import SharedMemory
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault

MOST_ARRIVALS: Final = (1 << 20) - 1
MOST_BYTES: Final = (1 << 20) - 1
"""Largest number of bytes that an object expects, or that have landed before they are expected."""


@dataclass(slots=True)
class _Object:
    """An mbarrier object. `known` holds the clocks of the arrivals in this phase, `done` those of the phase before;
    `born` is the time when it was made; `fenced` says whether bulk copies know it. `bytes_due` are expected in this
    phase and have not landed; those that landed before they were expected are negative."""

    expected: int
    pending: int
    maker: int
    born: int
    known: Array
    done: Array
    phase: int = 0
    bytes_due: int = 0
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A wait: each thread's object, the phase as parity or as an arrival's state, and the register of the answer."""

    addresses: Array
    phases: Array
    by_parity: bool
    answer: Array
    waits: bool


@dataclass(slots=True)
class _Suspended:
    """Threads that try again at `block` when their object's phase is complete; they continue at `after`."""

    mask: Array
    places: Array
    block: int
    after: int
    join: Join
    line: int


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Arrivals by copies: these threads arrive when their copies up to `serial` have landed."""

    lanes: Array
    serial: int
    counts: tuple[tuple[int, Array, Array], ...]
    line: int


@dataclass(frozen=True, slots=True)
class _Transaction:
    """A bulk copy on its way; its bytes are counted at the object of `place`, and whoever sees the phase complete sees
    the work `known`."""

    place: int
    flight: BulkFlight
    known: Array
    line: int


@dataclass(slots=True)
class MBarriers:
    """The mbarriers of a batch of CTAs. `choices` draws which copies land first."""

    shared: SharedMemory
    copies: AsyncCopies
    paths: ThreadPaths
    choices: np.random.Generator
    suspended: list[_Suspended] = field(default_factory=list)
    polling: list[ThreadPath] = field(default_factory=list)
    _objects: dict[int, _Object] = field(default_factory=dict)
    _arrivals: list[_Arrival | _Transaction] = field(default_factory=list)
    _tried: dict[int, Array] = field(default_factory=dict)

    def clear(self) -> None:
        """Reset for the next batch of CTAs."""
        for one in (self.suspended, self.polling, self._objects, self._arrivals, self._tried):
            one.clear()

    # --- objects

    def init(self, active: Active, addresses: Array, counts: Array) -> None:
        """Make objects. Raises KernelFault for one that is there already, counts outside of 1 to 2^20 - 1, and
        races."""
        lanes = active.lanes
        places = self.shared.places(addresses, lanes, OBJECT_BYTES, "makes an mbarrier of")
        if (counts == 0).any() or (counts > MOST_ARRIVALS).any():
            raise KernelFault(
                FaultKind.INVALID, f"an mbarrier of {int(counts.max())} arrivals: 1 to {MOST_ARRIVALS} are possible"
            )
        for place, chosen in _by_place(places):
            if place in self._objects:
                raise KernelFault(
                    FaultKind.INVALID, f"{self._name(place)} is made a second time without mbarrier.inval"
                )
            born = self.shared.order.take(self.shared.cells(places[chosen], OBJECT_BYTES), lanes[chosen] >> 5)
            count, warps = int(counts[chosen][0]), self.shared.order.warps
            known, done = np.zeros(warps, np.int32), np.zeros(warps, np.int32)
            self._objects[place] = _Object(count, count, int(lanes[chosen][0] >> 5), born, known, done)

    def invalidate(self, active: Active, addresses: Array) -> None:
        """Turn the memory of objects into plain memory again. Raises KernelFault where there is no object."""
        for place, warps, _ in self._objects_at(active, addresses):
            del self._objects[place]
            self.shared.order.give(self.shared.cells(np.full(warps.size, place), OBJECT_BYTES), warps)

    def fence(self, warps: Array) -> None:
        """Make objects that these warps have made known to bulk copies."""
        for one in self._objects.values():
            one.fenced |= one.maker in warps

    def arrive(
        self,
        active: Active,
        addresses: Array,
        counts: Array,
        *,
        drop: bool = False,
        expected_bytes: Array | None = None,
    ) -> Array:
        """Let the active threads arrive, `counts` times each, after their phase expects `expected_bytes` more; return
        the phases (n,) in which they arrive. Raises KernelFault."""
        lanes = active.lanes
        phases = np.zeros(lanes.size, np.uint64)
        completed = set()
        for place, warps, chosen in self._objects_at(active, addresses):
            one = self._objects[place]
            phases[chosen] = one.phase
            own = counts[chosen]
            if (own == 0).any() or (own > one.expected).any():
                raise KernelFault(
                    FaultKind.INVALID,
                    f"{int(own.max())} arrivals of one thread at {self._name(place)}, which expects {one.expected}",
                )
            if expected_bytes is not None:
                self._expect(place, int(expected_bytes[chosen].astype(np.int64).sum()))
            if drop:
                one.expected -= int(own.sum())
                if one.expected < 0:
                    raise KernelFault(FaultKind.INVALID, f"{self._name(place)} expects no arrivals any more")
            by_warp = np.bincount(np.searchsorted(warps, lanes[chosen] >> 5), own).astype(np.int64)
            if self._count(place, by_warp, self.shared.order.publish(warps)):
                completed.add(place)
        self._wake(completed)
        return phases

    def arrive_by_copies(self, active: Active, addresses: Array, line: int, *, counted: bool) -> None:
        """Let the active threads arrive when their copies so far have landed; if not `counted`, this phase expects one
        arrival more. Raises KernelFault."""
        counts = []
        for place, warps, chosen in self._objects_at(active, addresses):
            one = self._objects[place]
            if not counted:
                one.pending += chosen.size
                if one.pending > MOST_ARRIVALS:
                    raise KernelFault(
                        FaultKind.INVALID, f"{self._name(place)} waits for more than {MOST_ARRIVALS} arrivals"
                    )
            by_warp = np.bincount(np.searchsorted(warps, active.lanes[chosen] >> 5))
            counts.append((place, by_warp, self.shared.order.publish(warps)))
        self._arrivals.append(_Arrival(active.lanes, self.copies.issued, tuple(counts), line))

    def _expect(self, place: int, count: int) -> None:
        one = self._objects[place]
        one.bytes_due += count
        if abs(one.bytes_due) > MOST_BYTES:
            raise KernelFault(
                FaultKind.INVALID,
                f"{self._name(place)} has {one.bytes_due} bytes to wait for, of {MOST_BYTES} possible",
            )

    def copy_bulk(self, active: Active, to: Array, rows: list[Array], addresses: Array, line: int) -> None:
        """Let each active thread start a bulk copy of its rows (n, 16) of uint8 to a shared address `to`, whose bytes
        are counted at the object of its address. Raises KernelFault."""
        for place, warps, chosen in self._objects_at(active, addresses):
            if not self._objects[place].fenced:
                raise KernelFault(
                    FaultKind.FENCE,
                    f"a bulk copy uses {self._name(place)}, and the warp that made it executed neither "
                    f"fence.mbarrier_init nor fence.proxy.async since",
                )
            for k in chosen.tolist():
                lane = int(active.lanes[k])
                flight = self.copies.issue_bulk(int(to[k]), lane, rows[k])
                known = self.shared.order.publish(np.array([lane >> 5]))[0]
                self._arrivals.append(_Transaction(place, flight, known, line))
            del warps

    @property
    def arriving(self) -> bool:
        """Whether copies are on their way to an arrival, or to a count of bytes."""
        return bool(self._arrivals)

    def unfinished(self) -> int:
        """Line of a bulk copy that is still on its way; 0 where there is none."""
        return next((one.line for one in self._arrivals if isinstance(one, _Transaction)), 0)

    def land(self) -> None:
        """Land the copies of one instruction's arrivals, drawn at random. Raises KernelFault with the line."""
        one = self._arrivals.pop(int(self.choices.integers(len(self._arrivals))))
        if isinstance(one, _Transaction):
            self._land_bulk(one)
            return
        self.copies.land_until(one.lanes, one.serial)
        completed = set()
        for place, by_warp, known in one.counts:
            self._is_there(place, one.line)
            if self._count(place, by_warp, known):
                completed.add(place)
        self._wake(completed)

    def _land_bulk(self, one: _Transaction) -> None:
        self._is_there(one.place, one.line)
        self.copies.land_bulk(one.flight)
        found = self._objects[one.place]
        self._expect(one.place, -one.flight.rows.size)
        np.maximum(found.known, one.known, out=found.known)
        if self._completes(found):
            self._wake({one.place})

    def _is_there(self, place: int, line: int) -> None:
        if place not in self._objects:
            raise KernelFault(
                FaultKind.INVALID, f"{self._name(place)} is gone while copies are on their way to it", line=line
            )

    def _count(self, place: int, by_warp: Array, known: Array) -> bool:
        """Count arrivals of warps (n,) with their knowledge (n, warps of a CTA); return whether a phase is complete.
        Raises KernelFault for more arrivals than expected."""
        one = self._objects[place]
        if by_warp.sum() <= one.pending:
            return self._counted(place, int(by_warp.sum()), known.max(axis=0))
        completed = False  # some arrive in the next phase already: in any order
        for warp in self.choices.permutation(by_warp.size).tolist():
            completed |= self._counted(place, int(by_warp[warp]), known[warp])
        return completed

    def _counted(self, place: int, arrivals: int, known: Array) -> bool:
        one, completed = self._objects[place], False
        while arrivals:
            now = min(arrivals, one.pending)
            if not now:
                raise KernelFault(FaultKind.INVALID, f"{self._name(place)} expects no arrivals any more")
            np.maximum(one.known, known, out=one.known)
            one.pending -= now
            arrivals -= now
            completed |= self._completes(one)
        return completed

    @staticmethod
    def _completes(one: _Object) -> bool:
        """Begin the next phase if nothing more is expected in this one; return whether it is so."""
        if one.pending or one.bytes_due:
            return False
        one.done, one.known = one.known, np.zeros_like(one.known)
        one.pending = one.expected
        one.phase += 1
        return True

    # --- waits

    def ask(self, path: ThreadPath, question: Question, block: int, after: int, line: int) -> Active | None:
        """Answer a wait; return the threads that continue to `after` at once, None where the path was set aside.
        Raises KernelFault."""
        active, lanes = path.active, path.active.lanes
        done = np.zeros(lanes.size, np.bool_)
        places = np.zeros(lanes.size, np.int64)
        for place, warps, chosen in self._objects_at(active, question.addresses):
            done[chosen] = self._complete(place, question.phases[chosen], by_parity=question.by_parity)
            places[chosen] = place
            if done[chosen].any():
                self.shared.order.learn(warps, self._objects[place].done)
        keys = 2 * places + (question.phases & np.uint64(1)).astype(np.int64) + 1
        tried = self._tried.setdefault(block, np.zeros(active.mask.size, np.int64))
        stays = ~done & (tried[lanes] == keys) if question.waits else np.zeros_like(done)
        tried[lanes] = np.where(done, 0, keys)
        question.answer[lanes[~stays]] = done[~stays]
        if not stays.any():
            if question.waits or done.all():
                return active
            self.polling.append(ThreadPath(active, after, path.join))
            return None
        held = np.zeros_like(active.mask)
        held[lanes[stays]] = True
        by_thread = np.full(active.mask.size, -1, np.int64)
        by_thread[lanes] = places
        join = path.join
        if not stays.all():
            join = self.paths.meet(join, after, 2)
            self.paths.ready.append(ThreadPath(Active(active.mask & ~held, self.paths.live), after, join))
        self.suspended.append(_Suspended(held, by_thread, block, after, join, line))
        return None

    def held(self) -> list[tuple[Array, Join]]:
        """Threads that wait, and their joins."""
        return [(one.mask, one.join) for one in self.suspended] + [(s.active.mask, s.join) for s in self.polling]

    def resume_polling(self) -> bool:
        """Let the threads continue that ask without waiting; return whether there are any."""
        self.paths.ready += self.polling
        found = bool(self.polling)
        self.polling.clear()
        return found

    def deadlock(self) -> tuple[str, int]:
        """The waiting threads and their objects in words, and the line."""
        one = self.suspended[0]
        place = int(one.places[one.mask][0])
        found = self._objects.get(place)
        missing = f"{found.pending if found else 0} arrivals"
        if found and found.bytes_due:
            missing += f" and {found.bytes_due} bytes"
        return (
            f"{int(one.mask.sum())} threads wait for {missing} at {self._name(place)} that never happen",
            one.line,
        )

    def _complete(self, place: int, phases: Array, *, by_parity: bool) -> Array:
        now = self._objects[place].phase
        if by_parity:
            return np.asarray((phases & np.uint64(1)) != np.uint64(now & 1))
        if ((phases != now) & (phases != now - 1)).any():
            raise KernelFault(
                FaultKind.INVALID, f"{self._name(place)} is in phase {now} and asked for phase {int(phases.min())}"
            )
        return np.asarray(phases != now)

    def _wake(self, completed: set[int]) -> None:
        """Let the threads try again that wait for these objects."""
        if not completed:
            return
        left = []
        for one in self.suspended:
            going = one.mask & np.isin(one.places, list(completed))
            if not going.any():
                left.append(one)
                continue
            if not np.array_equal(going, one.mask):
                one.join = self.paths.meet(one.join, one.after, 2)
                one.mask = one.mask & ~going
                left.append(one)
            self.paths.ready.append(ThreadPath(Active(going, self.paths.live), one.block, one.join))
        self.suspended = left

    def _objects_at(self, active: Active, addresses: Array) -> Iterator[tuple[int, Array, Array]]:
        """Place, warps and threads (among the active ones) of each object. Raises KernelFault where there is none."""
        lanes = active.lanes
        places = self.shared.places(addresses, lanes, OBJECT_BYTES, "uses an mbarrier of")
        for place, chosen in _by_place(places):
            warps = np.unique(lanes[chosen] >> 5)
            if place not in self._objects:
                raise KernelFault(FaultKind.UNINITIALISED, f"{self._name(place)} was not made by mbarrier.init")
            one = self._objects[place]
            self.shared.order.sees(warps, one.maker, one.born, self._name(place))
            yield place, warps, chosen

    def _name(self, place: int) -> str:
        return f"the mbarrier at offset {self.shared.offset(place)} of shared memory"


def _by_place(places: Array) -> Iterator[tuple[int, Array]]:
    found, member = np.unique(places, return_inverse=True)
    for k, place in enumerate(found.tolist()):
        yield place, np.flatnonzero(member == k)
