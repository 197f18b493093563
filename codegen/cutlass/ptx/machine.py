"""Execute one batch of CTAs: decode a kernel's blocks once per batch size, then run path after path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from codegen.cutlass.ptx.instructions.mbarrier_operations import bound_question
from codegen.cutlass.ptx.instructions.rows import Step
from codegen.cutlass.ptx.instructions.table import decode, guarded
from codegen.cutlass.ptx.state.active import WARP, Active
from codegen.cutlass.ptx.state.barriers import CtaBarriers, Vote
from codegen.cutlass.ptx.state.core import CtaBatch, PtxRegisters
from codegen.cutlass.ptx.state.global_memory import GlobalMemory
from codegen.cutlass.ptx.state.in_flight import AsyncCopies, MatrixGroups
from codegen.cutlass.ptx.state.layout import SymbolLayout, cell_bytes
from codegen.cutlass.ptx.state.mbarriers import MBarriers, Question
from codegen.cutlass.ptx.state.paths import ThreadPath, ThreadPaths
from codegen.cutlass.ptx.state.scalars import POISON, Array
from codegen.cutlass.ptx.state.shared_memory import SharedMemory
from codegen.cutlass.ptx.state.special import Geometry, Special
from codegen.cutlass.ptx.text.definitions import undefined, unfenced
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault, PtxError, PtxLimits, UnsupportedPtx
from codegen.cutlass.ptx.text.flow import EXIT, Block, blocks_of
from codegen.cutlass.ptx.text.module import PtxInstruction, PtxKernel, Vector

BARRIER_WORDS: Final = frozenset({"sync", "red", "aligned", "cta", "and", "or", "popc", "pred", "u32"})


@dataclass(frozen=True, slots=True)
class _Code:
    """A block ready to run; `lines` are the lines of its instructions, including the end."""

    block: Block
    steps: tuple[Step, ...]
    lines: tuple[PtxInstruction, ...]


@dataclass(frozen=True, slots=True)
class _Wait:
    """The operands of a barrier."""

    number: Array
    count: Array | None
    vote: Vote | None


@dataclass(slots=True)
class PtxMachine:
    """A machine that runs `ctas` CTAs of `geometry` together. `run` may be called many times; only the CTAs' numbers
    change."""

    kernel: PtxKernel
    geometry: Geometry
    ctas: int
    layout: SymbolLayout
    parameters: Array
    memory: GlobalMemory
    limits: PtxLimits
    choices: np.random.Generator
    proxy_fences: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    _run: set[int] = field(default_factory=set)
    _code: tuple[_Code, ...] = ()
    _waits: dict[int, _Wait] = field(default_factory=dict)
    _questions: dict[int, Callable[[Active], Question]] = field(default_factory=dict)
    _core: CtaBatch = field(init=False)
    _special: Special = field(init=False)
    _shared: SharedMemory = field(init=False)
    _paths: ThreadPaths = field(init=False)
    _barriers: CtaBarriers = field(init=False)
    _mbarriers: MBarriers = field(init=False)
    _live: Array = field(init=False)

    def __post_init__(self) -> None:
        threads = self.ctas * self.geometry.warps * WARP
        with self._place(0):
            blocks = blocks_of(self.kernel)
            self._special = Special(self.geometry, self.ctas, self.layout)
            registers = PtxRegisters(self.kernel.registers, threads, self._special.registers)
        proxies = self.proxy_fences and any(
            line.parts[0] == "wgmma" or "bulk" in line.parts for block in blocks for line in block.steps
        )
        self._shared = SharedMemory(
            self.ctas, self.geometry.warps, self.layout.shared_bytes, cell_bytes(self.kernel), proxies=proxies,
        )  # fmt: skip
        self._live = np.zeros(threads, np.bool_)
        self._paths = ThreadPaths(self._live, self.choices)
        self._barriers = CtaBarriers(self.ctas, self.geometry.warps, self._shared.order, self._paths)
        copies = AsyncCopies(threads, self._shared)
        self._mbarriers = MBarriers(self._shared, copies, self._paths, self.choices)
        local = np.full((threads, -(-self.layout.local_bytes // 16) * 16), POISON, np.uint8)
        self._core = CtaBatch(
            threads, self.geometry.warps, registers, self.memory, self._shared, local, self.layout.local_bytes,
            self.parameters, copies, MatrixGroups(threads // WARP, self._shared),
            self._barriers, self._mbarriers, self.layout.symbols, self.counts,
        )  # fmt: skip
        self._decode(blocks)

    def _decode(self, blocks: tuple[Block, ...]) -> None:
        with self._place(0):
            unwritten, bare = undefined(blocks), unfenced(blocks)
        code = []
        for block in blocks:
            lines = block.steps if block.end is None else (*block.steps, block.end)
            steps = []
            for k, line in enumerate(block.steps):
                with self._place(line.line):
                    step = decode(line, self._core)
                wrong = None
                if (block.number, k) in unwritten:
                    name = unwritten[block.number, k]
                    wrong = KernelFault(FaultKind.UNINITIALISED, f"reads {name}, which nothing has written")
                elif (block.number, k) in bare:
                    wrong = KernelFault(
                        FaultKind.FENCE, "a product's registers were written since the last wgmma.fence"
                    )
                if wrong is not None:
                    guard = line.guard
                    own = guard is not None and guard.name == unwritten.get((block.number, k))
                    step = _fails(wrong) if own else guarded(line, _fails(wrong), self._core)
                steps.append(step)
            code.append(_Code(block, tuple(steps), lines))
            if block.end is not None and block.end.parts[0] in ("bar", "barrier"):
                with self._place(block.end.line):
                    self._waits[block.number] = self._wait(block.end)
            if block.end is not None and block.end.parts[0] == "mbarrier":
                with self._place(block.end.line):
                    self._questions[block.number] = bound_question(block.end, self._core)
        self._code = tuple(code)

    def _wait(self, line: PtxInstruction) -> _Wait:
        """The operands of bar.sync a {, b} or bar.red p, a {, b}, q."""
        words = set(line.parts[1:])
        if not words <= BARRIER_WORDS or not words & {"sync", "red"}:
            raise UnsupportedPtx(f"{line.opcode} is not executed")
        registers, operands = self._core.registers, line.operands
        if "red" not in words:
            if len(operands) not in (1, 2):
                raise UnsupportedPtx(f"{line.opcode} is not executed with these operands")
            numbers = [registers.source(operand, "u32") for operand in operands]
            return _Wait(numbers[0], numbers[1] if len(numbers) == 2 else None, None)
        if len(operands) not in (3, 4) or isinstance(operands[0], Vector):
            raise UnsupportedPtx(f"{line.opcode} is not executed with these operands")
        operation = next((word for word in ("and", "or", "popc") if word in words), "")
        if not operation:
            raise UnsupportedPtx(f"{line.opcode} does not say which reduction")
        target = registers.target(operands[0], "u32" if operation == "popc" else "pred")
        predicate, negated = registers.predicate(operands[-1])
        numbers = [registers.source(operand, "u32") for operand in operands[1:-1]]
        vote = Vote(predicate, negated, operation, target)
        return _Wait(numbers[0], numbers[1] if len(numbers) == 2 else None, vote)

    @contextmanager
    def _place(self, line: int) -> Iterator[None]:
        try:
            yield
        except PtxError as error:
            raise type(error)(error.reason, kernel=self.kernel.name, line=error.line or line) from None

    def run(self, numbers: Sequence[int]) -> None:
        """Execute the CTAs of these linear numbers, at most `ctas`. Raises KernelFault with kernel and line."""
        core = self._core
        core.registers.clear()
        core.local.fill(POISON)
        self._shared.clear()
        core.copies.clear()
        core.matrix.clear()
        self._barriers.clear()
        self._mbarriers.clear()
        self._special.place(numbers, self._live)
        self._paths.start(EXIT)
        steps = 0
        with np.errstate(all="ignore"):
            while True:
                path = self._paths.next()
                if path is not None:
                    steps = self._advance(path, steps)
                elif not self._unblock():
                    break
        if line := self._mbarriers.unfinished():
            raise KernelFault(
                FaultKind.IN_FLIGHT,
                "the block has ended before a bulk copy has landed",
                kernel=self.kernel.name,
                line=line,
            )
        self.counts["steps"] += steps

    def _unblock(self) -> bool:
        """Try to continue where nothing can run: whether something can again, False where all threads have ended.
        Raises KernelFault."""
        held = [(waiting.mask, waiting.join) for waiting in self._barriers.waiting] + self._mbarriers.held()
        if not held:
            return False
        self._barriers.recheck()
        if self._paths.ready:
            return True
        landed = self._mbarriers.arriving
        if landed:
            self._land()
        freed = not self._paths.ready and self._paths.free(held)
        if not (self._mbarriers.resume_polling() or landed or freed or self._paths.ready):
            raise self._deadlock()
        return True

    def _land(self) -> None:
        try:
            self._mbarriers.land()
        except KernelFault as fault:
            raise KernelFault(fault.kind, fault.finding, kernel=self.kernel.name, line=fault.line) from None

    def lines(self) -> frozenset[int]:
        """Lines of the text in executed blocks."""
        return frozenset(line.line for number in self._run for line in self._code[number].lines)

    def _deadlock(self) -> KernelFault:
        if not self._barriers.waiting:
            text, line = self._mbarriers.deadlock()
            return KernelFault(FaultKind.DEADLOCK, text, kernel=self.kernel.name, line=line)
        waiting = self._barriers.waiting[0]
        number = int(waiting.numbers[waiting.numbers >= 0][0])
        return KernelFault(
            FaultKind.DEADLOCK,
            f"{int(waiting.mask.sum())} threads wait at barrier {number} for others that never arrive",
            kernel=self.kernel.name,
            line=waiting.line,
        )

    def _advance(self, path: ThreadPath, steps: int) -> int:
        """Run a path until it diverges, waits, meets others or ends; return the number of instructions so far."""
        active, number = path.active, path.block
        while number != path.join.block:
            if number == EXIT:
                self._finish(ThreadPath(active, number, path.join))
                return steps
            code = self._code[number]
            steps += len(code.lines)
            if steps > self.limits.max_steps:
                line = code.lines[-1].line if code.lines else self.kernel.line
                raise KernelFault(
                    FaultKind.ENDLESS,
                    f"more than {self.limits.max_steps} instructions in one batch of blocks: an endless loop?",
                    kernel=self.kernel.name,
                    line=line,
                )
            self._execute(code, active)
            end = code.block.end
            if end is None or (end.guard is None and end.parts[0] == "bra"):
                number = code.block.successors[0]
                continue
            following = self._end(code, end, ThreadPath(active, number, path.join))
            if following is None:
                return steps
            active, number = following
        self._paths.arrive(ThreadPath(active, number, path.join))
        return steps

    def _execute(self, code: _Code, active: Active) -> None:
        k = 0
        try:
            for k, step in enumerate(code.steps):  # noqa: B007
                step(active)
        except KernelFault as fault:
            line = code.lines[k]
            raise fault.at(self.kernel.name, line.line, line.opcode) from None
        self._run.add(code.block.number)

    def _end(self, code: _Code, end: PtxInstruction, path: ThreadPath) -> tuple[Active, int] | None:
        """Execute a guarded branch, a return or a barrier; return where the path continues, if it stays whole."""
        active, block = path.active, code.block
        rest: Active | None = None
        if end.guard is not None:
            predicate, negated = self._core.registers.predicate(end.guard)
            chosen, rest = active.where(predicate, negated), active.where(predicate, not negated)
            if not chosen.mask.any():
                return active, block.successors[-1]
            if rest.mask.any():
                return self._part(end, block, path, chosen, rest)
        try:
            match end.parts[0]:
                case "bra":
                    return active, block.successors[0]
                case "brx":
                    return self._switch(end, block, path)
                case "ret" | "exit":
                    self._finish(path)
                    return None
        except KernelFault as fault:
            raise fault.at(self.kernel.name, end.line, end.opcode) from None
        return self._sync(end, block, path)

    def _sync(self, end: PtxInstruction, block: Block, path: ThreadPath) -> tuple[Active, int] | None:
        """Let the threads of a path arrive at a barrier, or ask an mbarrier; return where those continue that need
        not wait."""
        after = block.successors[-1]
        try:
            if end.parts[0] == "mbarrier":
                question = self._questions[block.number](path.active)
                going = self._mbarriers.ask(path, question, block.number, after, end.line)
                return (going, after) if going is not None else None
            wait = self._waits[block.number]
            self._barriers.sync(path, wait.number, wait.count, wait.vote, after, end.line)
        except KernelFault as fault:
            raise fault.at(self.kernel.name, end.line, end.opcode) from None
        return None

    def _part(
        self, end: PtxInstruction, block: Block, path: ThreadPath, chosen: Active, rest: Active
    ) -> tuple[Active, int] | None:
        match end.parts[0]:
            case "bra":
                taken, after = block.successors
                self._paths.part(path, [(chosen.mask, taken), (rest.mask, after)], block.meets)
                return None
            case "ret" | "exit":
                self._live[chosen.mask] = False
                return Active(rest.mask, self._live), block.successors[-1]
        after = block.successors[-1]
        join = self._paths.meet(path.join, after, 2)
        self._paths.ready.append(ThreadPath(rest, after, join))
        going = self._sync(end, block, ThreadPath(chosen, block.number, join))
        if going is not None:
            self._paths.ready.append(ThreadPath(going[0], going[1], join))
        return None

    def _switch(self, end: PtxInstruction, block: Block, path: ThreadPath) -> tuple[Active, int] | None:
        """Execute brx.idx, which sends each thread to the target of its index."""
        index = np.broadcast_to(self._core.registers.source(end.operands[0], "u32"), path.active.mask.size)
        sides = []
        for value in np.unique(index[path.active.lanes]).tolist():
            if value >= len(block.successors):
                raise KernelFault(FaultKind.INVALID, f"index {value} of {len(block.successors)} targets")
            sides.append((path.active.mask & (index == value), block.successors[value]))
        if len(sides) == 1:
            return path.active, sides[0][1]
        self._paths.part(path, sides, block.meets)
        return None

    def _finish(self, path: ThreadPath) -> None:
        """End the threads of a path."""
        self._live[path.active.mask] = False
        self._paths.leave(path.join)


def _fails(fault: KernelFault) -> Step:
    def step(active: Active) -> None:
        del active
        raise fault

    return step
