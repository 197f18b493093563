"""The cycle model: how long streams of instructions take on one cluster of a chip, for the scheduler and for ELFs.

    TimedStream of each core --time_streams--> Timeline

Rules, with all numbers from the chip file (docs/timing.md says which are assumptions): each core's scalar core runs in
order and takes `scalar_instruction_cycles` per instruction; it hands an instruction to its engine's queue when no
access in flight on the core conflicts with it (RAW, WAR, WAW) and the queue has a place, else it stalls; where queues
are reservation stations, the instruction waits there instead; a loop of more instructions than the queue has places
holds it until the loop is over; lines of code that its instruction cache lacks are fetched after the instructions that
they hold; queues are in order; a barrier first
waits for the core's own engines; a transfer shares its links and memories with all other transfers; waiting for a DMA
transfer is polling, and only the next reading of the flag sees the end.

The model is driven by events: its own time grows with the number of instructions.
"""

from __future__ import annotations

import heapq
from collections import deque
from math import ceil, inf

from hw_models.chip import Chip
from isched.program.program import Program
from isched.program.target import Timeable
from isched.program.timed_ops import IssueCost, LinkFlow, TimedOp, TimedStream, timed_streams
from isched.timing.contention import FETCH, Contention, Mover
from isched.timing.deadlock_report import end_of, refuse_deadlock, timeline_of
from isched.timing.engines import TOLERANCE, Motion, TimedCore, TimedJob, Touch, conflict, served_together, touched_by
from isched.timing.timeline import Timeline

# Events. At one moment, endings come before continuations.
_WORK_OVER, _MOTION, _FIXED_OVER, _READY = range(4)


def time_program(program: Program, chip: Chip, target: Timeable, clusters: int = 1, awaited: bool = False) -> Timeline:
    """The timeline of the program of one cluster, which must have been lowered for this chip."""
    return time_streams(timed_streams(program, chip, target.issue_costs(program, chip)), chip, clusters, awaited)


class EndedRun:
    """A finished run of one cluster, and its cycles."""

    def __init__(self, cores: list[TimedCore], now: float) -> None:
        self._cores, self._now = cores, now
        self.cycles = end_of(cores, now)

    def timeline(self, chip: Chip) -> Timeline:
        """The result of `time_program` for this run, without timing it again; `chip` is the one it was timed on."""
        return timeline_of(self._cores, chip, self._now)


def run_below(program: Program, chip: Chip, target: Timeable, limit_cycles: float = inf) -> EndedRun | None:
    """The finished run of one cluster if it takes fewer cycles than the limit, else None: a run that reaches the limit
    is stopped there, so that finding out that a program is slower than a known one costs little."""
    run = _Run(timed_streams(program, chip, target.issue_costs(program, chip)), chip, 1, awaited=False)
    if not run.ends_below(limit_cycles):
        return None
    ended = EndedRun(run.cores, run.now)
    return ended if ended.cycles < limit_cycles else None


def time_streams(streams: tuple[TimedStream, ...], chip: Chip, clusters: int = 1, awaited: bool = False) -> Timeline:
    """Time the streams of one cluster; `clusters` of them work alike at the same time.

    With `awaited` no core issues anything before all that it issued is over, including its DMA transfers: nothing on
    one core overlaps. This is the baseline for gains of instruction scheduling, not something that hardware does.
    Raises PlanError for a deadlock.
    """
    run = _Run(streams, chip, clusters, awaited)
    run.ends_below(inf)
    return timeline_of(run.cores, chip, run.now)


class _Run:
    """One run; cores are identified by their position in `streams`."""

    def __init__(self, streams: tuple[TimedStream, ...], chip: Chip, clusters: int, awaited: bool) -> None:
        self.chip = chip
        self.awaited = awaited
        self.tick = chip.assumed.scalar_instruction_cycles
        self.depths: dict[str, int] = {}
        cache = chip.instruction_cache
        self.line_bytes = cache.line_bytes if cache is not None and cache.miss_cycles else 0
        self.fetches: dict[int, TimedOp] = {}
        self.cores = [TimedCore(stream) for stream in streams]
        self.broadcasts = frozenset(link.name for link in chip.links if link.broadcast)
        # By identity of an op's reads and writes: most are the same few objects, and cores meet the same ones.
        self.touched: dict[tuple[int, int], list[Touch]] = {}
        self.conflicts: dict[tuple[int, int], bool] = {}
        self.members: dict[str, int] = {}
        for op in (op for stream in streams for op in stream.ops if op.rendezvous):
            self.members[op.rendezvous] = self.members.get(op.rendezvous, 0) + 1
        self.arrived: dict[str, list[TimedJob]] = {}
        self.channels: dict[str, deque[TimedJob]] = {}
        self.started: dict[str, TimedJob] = {}
        self.expected: dict[str, list[int]] = {}
        self.now = chip.assumed.launch_cycles
        self.motion = Motion(Contention(chip, clusters), self.now)
        self.events: list[tuple[float, int, int, TimedJob | None, int]] = []
        self.sequence = 0

    def ends_below(self, limit_cycles: float) -> bool:
        """Run to the end or until the limit is reached; return whether the run ended."""
        for number in range(len(self.cores)):
            self._walk(number, self.now)
        while self.now < limit_cycles:
            if self.motion.changed and (not self.events or self.events[0][0] > self.now):
                end = self.motion.next_end()
                if end is not None:
                    self._at(end, _MOTION, None, self.motion.version)
            if not self.events:
                break
            self.now, kind, _, job, number = heapq.heappop(self.events)
            if kind == _READY:
                self._reach(number)
            elif kind == _MOTION:
                if number == self.motion.version:
                    for moved in self.motion.ended(self.now):
                        self._moved(moved)
                    self.motion.changed = True
            elif job is not None and kind == _FIXED_OVER:
                self._move(job)
            elif job is not None:
                self._finish(job)
        else:
            return False
        refuse_deadlock(self.cores)
        return True

    def _at(self, time: float, kind: int, job: TimedJob | None, number: int) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (time, kind, self.sequence, job, number))

    # The scalar core

    def _walk(self, number: int, time: float) -> None:
        """Run the scalar instructions from `time` on, up to the next op or to the end."""
        core = self.cores[number]
        last = core.position == len(core.stream.ops)
        count = core.lead + (core.stream.end if last else core.stream.ops[core.position].issue.before)
        cycles = count * self.tick
        core.scalar_cycles += cycles
        missed = core.stream.end_missed if last else core.stream.ops[core.position].issue.missed
        if last:
            core.job, core.end = None, time + cycles
        else:
            op = core.stream.ops[core.position]
            core.job = TimedJob(number, core.position, op, time + cycles)
            core.job.touched = self._touched(op)
            core.jobs.append(core.job)
            core.lead, core.position = op.issue.after, core.position + 1
        if missed:
            core.fetched_lines += missed
        if missed and self.line_bytes:
            # The lines of these instructions are fetched together, after them.
            self._at(time + cycles, _FIXED_OVER, TimedJob(number, -1, self._fetching(missed), time + cycles), number)
        elif not last:
            self._at(time + cycles, _READY, core.job, number)

    def _fetching(self, lines: int) -> TimedOp:
        found = self.fetches.get(lines)
        if found is None:
            flows = (LinkFlow(FETCH, lines * self.line_bytes),)
            found = self.fetches[lines] = TimedOp("scalar", FETCH, IssueCost(0), flows=flows)
        return found

    def _fetched(self, fetch: TimedJob) -> None:
        """Go on when the instructions up to the next op, or to the end, have been fetched."""
        core = self.cores[fetch.core]
        core.fetch_cycles += self.now - fetch.ready
        if core.job is None:
            core.end = self.now
        else:
            core.job.ready = core.job.issued = core.job.start = core.job.end = self.now
            self._reach(fetch.core)

    def _reach(self, number: int) -> None:
        """Handle an op that the scalar core has reached: issue it, or find out what it waits for."""
        core = self.cores[number]
        job = core.job
        assert job is not None  # a core has an op here
        blockers = self._asked(number, job.op) if job.op.awaits else self._blockers(core, job)
        for other, reason in blockers.items():
            other.waiters += ((number, reason),)
        core.blockers += len(blockers)
        if not core.blockers:
            self._issue(core, job)

    def _blockers(self, core: TimedCore, job: TimedJob) -> dict[TimedJob, str]:
        """Jobs of the core that must be over before the op issues."""
        barrier = bool(job.op.rendezvous) and not job.op.unit
        blockers: dict[TimedJob, str] = {}
        if self.awaited:
            mine = (other for queue in self.channels.values() for other in queue if other.core == job.core)
            blockers |= dict.fromkeys((*mine, *(other for queue in core.queues.values() for other in queue)), "awaited")
            return blockers
        known, touched = self.conflicts, job.touched
        wanted = id(touched)
        for queue in core.queues.values():
            for other in queue:
                if barrier:
                    blockers[other] = "drain"
                    continue
                key = (wanted, id(other.touched))
                conflicting = known.get(key)
                if conflicting is None:
                    conflicting = known[key] = conflict(touched, other.touched)
                if conflicting and job.op.issue.stationed:
                    other.followers += (job,)
                    job.missing += 1
                elif conflicting:
                    blockers[other] = "conflict"
        full = core.queues.get(job.op.unit)
        if full and sum(other.op.issue.entries for other in full) >= self._depth(job.op.unit):
            blockers.setdefault(full[0], "queue")
        return blockers

    def _depth(self, unit: str) -> int:
        found = self.depths.get(unit)
        if found is None:
            found = self.depths[unit] = self.chip.queue_depth(unit)
        return found

    def _holds(self, op: TimedOp) -> bool:
        """Whether the scalar core goes on issuing an op until it is over: it is a loop of more instructions than find
        places in its queue."""
        return op.issue.entries > 1 and not op.starts and op.issue.entries > self._depth(op.unit)

    def _touched(self, op: TimedOp) -> list[Touch]:
        key = (id(op.reads), id(op.writes))
        found = self.touched.get(key)
        if found is None:
            found = self.touched[key] = touched_by(op)
        return found

    def _asked(self, number: int, op: TimedOp) -> dict[TimedJob, str]:
        """Awaited transfers that are not over; one that nobody has started yet blocks from its start on."""
        blockers: dict[TimedJob, str] = {}
        for token in op.awaits:
            job = self.started.get(token)
            if job is None:
                self.expected.setdefault(token, []).append(number)
                self.cores[number].blockers += 1
            elif not job.over:
                blockers[job] = "transfer"
        return blockers

    def _unblock(self, number: int, reason: str, by: TimedJob) -> None:
        core = self.cores[number]
        core.blockers -= 1
        job = core.job
        if core.blockers or job is None:
            return
        job.stall, job.blocker = reason, by
        if job.op.awaits:
            job.issued = self._next_question(job)
            job.start = job.end = job.issued
            job.over = True
            self._walk(number, job.issued)
        else:
            self._issue(core, job)

    def _next_question(self, job: TimedJob) -> float:
        """Time of the next reading of the flag: the polling loop is `period` instructions long; the first reading was
        at `ready`."""
        period = job.op.issue.period * self.tick
        if period <= 0.0:
            return self.now
        return max(self.now, job.ready + ceil((self.now - job.ready) / period - TOLERANCE) * period)

    def _issue(self, core: TimedCore, job: TimedJob) -> None:
        op = job.op
        job.issued = job.start = self.now
        if op.unit:
            queues = self.channels if op.starts else core.queues
            queue = queues.get(op.unit)
            if queue is None:
                queue = queues[op.unit] = deque()
            queue.append(job)
            if op.starts:
                self.started[op.starts] = job
                job.waiters += tuple((number, "transfer") for number in self.expected.pop(op.starts, ()))
            job.held = self._holds(op)
            if len(queue) == 1:
                self._begin(job)
            if not job.held:
                self._walk(job.core, self.now)
        elif op.rendezvous:
            here = self.arrived.setdefault(op.rendezvous, [])
            here.append(job)
            if len(here) == self.members[op.rendezvous]:
                self._release(here)
        else:
            job.end, job.over = self.now + op.cycles, True
            self._walk(job.core, job.end)

    def _release(self, here: list[TimedJob]) -> None:
        """Release a barrier when the last core has reached it."""
        end = self.now + self.chip.assumed.sync_cycles
        for job in here:
            if job.start < self.now:
                job.blocker = here[-1]
            job.end, job.over = end, True
            self._walk(job.core, end)

    # Engines

    def _begin(self, job: TimedJob) -> None:
        """Begin a job that is the first of its queue and whose unit is free, unless it waits there."""
        if job.missing:
            return
        job.start = self.now
        if job.op.rendezvous:
            here = self.arrived.setdefault(job.op.rendezvous, [])
            here.append(job)
            if len(here) < self.members[job.op.rendezvous]:
                return
            for other in here:
                other.start = self.now
            for leader in served_together(here, self.broadcasts):
                self._at(self.now + leader.op.cycles, _FIXED_OVER, leader, 0)
        else:
            self._at(self.now + job.op.cycles, _FIXED_OVER if job.op.flows else _WORK_OVER, job, 0)

    def _move(self, job: TimedJob) -> None:
        """Begin to move the bytes of a job after its fixed part."""
        if not job.op.flows:
            self._finish(job)
            return
        if job.flow == 0:
            job.moved_since = self.now
        flow = job.op.flows[job.flow]
        cores = () if job.op.starts else (job.core, *(other.core for other in job.together))
        self.motion.start(self.now, Mover(flow.link, cores), flow.size_bytes, job)

    def _moved(self, job: TimedJob) -> None:
        """End one flow; a job ends at a whole cycle of movement."""
        job.flow += 1
        if job.flow < len(job.op.flows):
            self._move(job)
        else:
            end = job.moved_since + ceil(self.now - job.moved_since - TOLERANCE)
            self._at(max(self.now, end), _WORK_OVER, job, 0)

    def _finish(self, leader: TimedJob) -> None:
        if leader.op.opcode == FETCH:
            self._fetched(leader)
            return
        for job in (leader, *leader.together):
            job.over, job.end = True, self.now
            queue = self.channels[job.op.unit] if job.op.starts else self.cores[job.core].queues[job.op.unit]
            queue.popleft()
            if queue:
                self._begin(queue[0])
            for follower in job.followers:
                follower.missing -= 1
                waiting = self.cores[follower.core].queues.get(follower.op.unit)
                if not follower.missing and waiting and waiting[0] is follower:
                    follower.blocker = job
                    self._begin(follower)
            for number, reason in job.waiters:
                self._unblock(number, reason, job)
            if job.held:
                self._walk(job.core, self.now)
