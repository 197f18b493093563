"""Work in flight: instructions on their way through the queues of a core, and the bytes that are moving right now.

    Job --issued--> queue --first in it--> fixed cycles --> bytes over links --> over

Part of the cycle model (`isched.timing.cycle_model`), which decides when each of these steps happens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from isched.program.program import Region
from isched.program.region_overlap import overlaps
from isched.program.timed_ops import TimedOp, TimedStream
from isched.timing.contention import Contention, Mover

TOLERANCE = 1e-6
"""Tolerance in cycles or bytes: rates are quotients, so a value this close counts as reached."""

Touch = tuple[str, int, int, bool, Region]
"""(memory, first byte, end, writes, region) of one access of an op."""


def touched_by(op: TimedOp) -> list[Touch]:
    """All that an op reads and writes."""
    touched: list[Touch] = [(r.memory, r.offset_bytes, r.end_bytes, False, r) for r in op.reads]
    return touched + [(w.memory, w.offset_bytes, w.end_bytes, True, w) for w in op.writes]


class TimedJob:
    """One op of one core in flight. `blocker` is the last thing its issue waited for; `together` are further jobs that
    its transfer serves; `held` says that its core goes on when it is over; `waiters` are the cores whose scalar core
    waits for it, with the reason, `followers` the jobs that wait for it in their queues, each for `missing` ones;
    `touched` are its accesses."""

    __slots__ = (
        "blocker", "core", "end", "flow", "followers", "held", "index", "issued", "missing", "moved_since", "op",
        "over", "ready", "stall", "start", "together", "touched", "waiters",
    )  # fmt: skip

    def __init__(self, core: int, index: int, op: TimedOp, ready: float) -> None:
        self.core, self.index, self.op = core, index, op
        self.ready = self.issued = self.start = self.end = ready
        self.over = self.held = False
        self.stall = ""
        self.blocker: TimedJob | None = None
        self.flow = 0
        self.moved_since = 0.0
        self.together: tuple[TimedJob, ...] = ()
        self.waiters: tuple[tuple[int, str], ...] = ()
        self.followers: tuple[TimedJob, ...] = ()
        self.missing = 0
        self.touched: list[Touch] = []


def conflict(touched: list[Touch], others: list[Touch]) -> bool:
    """Whether two ops of a core touch the same byte and one of them writes it."""
    for memory, low, high, write, region in touched:
        for its_memory, its_low, its_high, its_write, its_region in others:
            if (
                low < its_high
                and its_low < high
                and (write or its_write)
                and memory == its_memory
                and overlaps(region, its_region)
            ):
                return True
    return False


@dataclass(slots=True)
class TimedCore:
    """One scalar core and the queues of its engines. `lead` counts scalar instructions still to do before the next op,
    `blockers` the jobs it waits for. `fetched_lines` of instructions took it `fetch_cycles`."""

    stream: TimedStream
    position: int = 0
    lead: int = 0
    job: TimedJob | None = None
    blockers: int = 0
    scalar_cycles: float = 0.0
    fetched_lines: int = 0
    fetch_cycles: float = 0.0
    end: float = 0.0
    jobs: list[TimedJob] = field(default_factory=list)
    queues: dict[str, deque[TimedJob]] = field(default_factory=dict)


def served_together(here: list[TimedJob], broadcasts: frozenset[str]) -> list[TimedJob]:
    """One job per read: reads of the same bytes over a link that broadcasts are served by one job."""
    leaders: dict[object, TimedJob] = {}
    for job in here:
        alone = len(job.op.flows) != 1 or job.op.flows[0].link not in broadcasts
        leader = leaders.setdefault(id(job) if alone else (job.op.reads, job.op.flows), job)
        if leader is not job:
            leader.together += (job,)
    return list(leaders.values())


class Motion:
    """All bytes in motion. Rates change whenever a transfer starts or ends and are constant in between."""

    def __init__(self, contention: Contention, now: float) -> None:
        self._contention = contention
        self._now = now
        self._jobs: list[TimedJob] = []
        self._movers: list[Mover] = []
        self._left: list[float] = []
        self._rates: tuple[float, ...] = ()
        self.changed = False
        self.version = 0

    def start(self, now: float, mover: Mover, size_bytes: int, job: TimedJob) -> None:
        """Begin a transfer of `size_bytes`; call `next_end` when all transfers that begin at `now` have begun."""
        self._advance(now)
        self._jobs.append(job)
        self._movers.append(mover)
        self._left.append(float(size_bytes))
        self._rates = (*self._rates, 0.0)
        self.changed = True

    def ended(self, now: float) -> list[TimedJob]:
        """Remove and return the transfers that are over by `now`."""
        self._advance(now)
        over = [n for n, left in enumerate(self._left) if left <= TOLERANCE]
        if not over:
            return []
        jobs = [self._jobs[n] for n in over]
        keep = [n for n in range(len(self._left)) if n not in over]
        self._jobs = [self._jobs[n] for n in keep]
        self._movers = [self._movers[n] for n in keep]
        self._left = [self._left[n] for n in keep]
        self._rates = tuple(self._rates[n] for n in keep)
        self.changed = True
        return jobs

    def next_end(self) -> float | None:
        """Share the bandwidth anew; return the time at which the next transfer is over, None when nothing moves."""
        self.changed = False
        self.version += 1
        if not self._jobs:
            return None
        self._rates = self._contention.shares(tuple(self._movers))
        return self._now + min(left / rate for left, rate in zip(self._left, self._rates, strict=True))

    def _advance(self, now: float) -> None:
        elapsed = now - self._now
        if elapsed > 0.0:
            self._left = [left - rate * elapsed for left, rate in zip(self._left, self._rates, strict=True)]
        self._now = now
