"""What issuing each instruction of a program costs, and the work that it is: from the streams that it carries.

Program, Chip --code of each stream, counted--> CoreIssue for the cycle model
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codegen.gemmini.emit.core_code import counted_code
from codegen.gemmini.emit.executable import end_code, start_code
from codegen.gemmini.isa import matrix_loops
from codegen.gemmini.isa.convolution_loops import convolution_loop
from codegen.gemmini.isa.geometry import geometry_of
from codegen.gemmini.isa.matrix_loops import MatrixLoop, matrix_loop
from codegen.gemmini.isa.operations import ACCUMULATOR as SUMS
from codegen.gemmini.isa.operations import FULL_WIDTH, FUNCTIONS, GARBAGE, Decoded, decoded
from codegen.gemmini.isa.unrolled import AcceleratorLoop, Instructions, LoopPlaces, Part, unrolled
from codegen.gemmini.streams.instructions import BARRIER
from codegen.gemmini.streams.pieces import MOVES_IN
from codegen.gemmini.streams.streams import Do, Item, Loop, Unrolled, stream_of
from codegen.gemmini.timing.issued_loops import (
    COMPUTE,
    LEAST_BLOCK_CYCLES,
    IssuedLoop,
    core_work,
    extra_cycles,
    is_accelerated,
    loop_work,
)
from codegen.gemmini.timing.unrolled_work import MoveSettings, beat_bytes, part_work
from hw_models.chip import Chip
from isched.program.program import Instr, Program
from isched.program.timed_ops import CoreIssue, IssueCost


def issue_costs(program: Program, chip: Chip) -> tuple[CoreIssue, ...]:
    """The core's instructions before the first, for each, and after the last instruction of the program's stream."""
    start, end = len(start_code()) - _handler_length(), _ending()
    return tuple(
        CoreIssue(start, tuple(map(_Issuing(program, chip).cost, stream.instrs)), end) for stream in program.streams
    )


def asked_loop(operations: Sequence[Decoded], dim: int) -> AcceleratorLoop:
    """The loop of the accelerator's own that operations ask for."""
    over_matrices = operations[-1].operation.mnemonic == matrix_loops.LOOP
    return matrix_loop(operations, dim) if over_matrices else convolution_loop(operations)


def loop_cycles(loop: AcceleratorLoop, chip: Chip) -> tuple[float, float, float]:
    """Cycles of the controllers for a loop that repeats one row of what is added, when nothing else moves: of moving
    in, of the array, of moving out."""
    issuing = _Issuing(Program("", chip.name, 0, BARRIER, (), ()), chip, MoveSettings([1, 1, 0], [0, 0, 0]))
    issuing.begin(loop)
    cycles = {}
    for part, instructions in issuing.parts.items():
        work = loop_work(issuing.part(part), chip) if len(instructions) else None
        moved = sum(flow.size_bytes for flow in work.flows) if work else 0
        cycles[part] = work.cycles + moved / beat_bytes(chip) if work else 0.0
    return cycles["added"] + cycles["load"], cycles["compute"], cycles["store"]


def _handler_length() -> int:
    """Instructions of the start that only run where the core traps."""
    code = start_code()
    jump = next(place for place, each in enumerate(code) if each.mnemonic == "jal")
    return len(code) - jump - 1


def _ending() -> int:
    """Instructions after the last one of the program; the last one of all waits."""
    return len(end_code()) - 1


@dataclass(slots=True)
class _Issuing:
    """What is configured while the stream of a core is gone through."""

    program: Program
    chip: Chip
    moves: MoveSettings = field(default_factory=lambda: MoveSettings([0, 0, 0], [0, 0, 0]))
    b_rows: int = 0
    loop: AcceleratorLoop | None = None
    parts: Mapping[Part, Instructions] = field(default_factory=dict)
    """The last loop of the accelerator's own, and what it does."""

    dim: int = field(init=False)
    beat: int = field(init=False)

    def __post_init__(self) -> None:
        self.dim, self.beat = geometry_of(self.chip).dim, beat_bytes(self.chip)

    def cost(self, instr: Instr) -> IssueCost:
        if self.program.is_barrier(instr):
            return IssueCost(1)
        stream = stream_of(instr.operands)
        code = counted_code(stream)
        if isinstance(stream[-1], Unrolled):
            if len(stream) > 1:
                self.begin(asked_loop([_named(do) for do, _ in _done(stream)], self.dim))
            work = loop_work(self.part(stream[-1].part), self.chip)
            return IssueCost(code.executed.total(), work=work, stationed=True)
        own = Counter({name: count for name, count in code.executed.items() if not is_accelerated(name)})
        extra = sum(count * extra_cycles(name, self.chip) for name, count in own.items())
        if not any(is_accelerated(name) for name in code.executed):
            count = own.total()
            return IssueCost(0, entries=count, work=core_work(count, extra, self.chip))
        places = [n for n, each in enumerate(code.instructions) if is_accelerated(each.mnemonic)]
        before, after = places[0], len(code.instructions) - places[-1] - 1
        tick = self.chip.assumed.scalar_instruction_cycles
        segment = self._loop(stream, code.executed.total() - own.total(), tick * (own.total() - before - after))
        work = loop_work(segment, self.chip)
        return IssueCost(before + 1, after, entries=segment.instructions, work=work, stationed=True)

    def _loop(self, stream: Sequence[Item], instructions: int, issued: float) -> IssuedLoop:
        sums: Counter[str] = Counter()
        does, to_sums = "", False
        for do, times in _done(stream):
            found = _named(do)
            fields = dict(found.fields)
            match found.operation.mnemonic:
                case "config_ld":
                    state = int(fields["state"])
                    self.moves.strides[state], self.moves.narrow[state] = int(fields["stride"]), int(fields["shrunk"])
                    does = does or "config_ld"
                case "config_ex":
                    does = does or "config_ex"
                case "config_st":
                    does, outputs = "mvout", int(fields["pool_out_rows"]) * int(fields["pool_out_columns"])
                    more = outputs * (int(fields["pool_size"]) ** 2 - 1)
                    self.moves.pool = (outputs, more) if fields["pool_stride"] else (0, 0)
                case "preload":
                    does, self.b_rows = COMPUTE, int(fields["b_rows"]) if fields["b_row"] != GARBAGE else 1
                case "compute_preloaded" | "compute_accumulated":
                    does = COMPUTE
                    sums["array"] += times * self._block(found)
                case name:
                    does, to_sums = name, bool(int(fields["row"]) & SUMS)
                    for what, number in self._moved(found).items():
                        sums[what] += times * number
        return IssuedLoop(does, instructions, issued, sums["requests"], sums["moved"], sums["beats"], sums["rows"],
                       sums["array"], to_sums)  # fmt: skip

    def begin(self, loop: AcceleratorLoop) -> None:
        """Go on with a loop of the accelerator's own."""
        self.loop, self.parts = loop, unrolled(loop, geometry_of(self.chip), LoopPlaces())

    def part(self, part: Part) -> IssuedLoop:
        """What a part of that loop is."""
        whole = isinstance(self.loop, MatrixLoop) and (self.loop.turned_a or self.loop.turned_b)
        return part_work(part, self.parts[part], self.moves, whole, self.chip)

    def _block(self, found: Decoded) -> int:
        fields = dict(found.fields)
        if fields["d_row"] != GARBAGE:
            return self.dim
        b_rows = self.b_rows if found.operation.mnemonic == "compute_preloaded" else 1
        return max(int(fields["a_rows"]), b_rows, LEAST_BLOCK_CYCLES)

    def _moved(self, found: Decoded) -> dict[str, int]:
        """Requests, bytes, beats and rows of one instruction that moves."""
        fields = {name: int(value) for name, value in found.fields}
        rows, columns, blocks, more = fields["rows"], fields["columns"], -(-fields["columns"] // self.dim), 0
        state = MOVES_IN.get(found.operation.mnemonic)
        if state is None:
            size, repeated = columns * (4 if fields["row"] & FULL_WIDTH else 1), 0
            rows, more = self.moves.pool if self.moves.pool[0] else (rows, 0)
        elif not fields["dram"]:
            return {"rows": rows * blocks}
        else:
            size = columns * (4 if fields["row"] & SUMS and not self.moves.narrow[state] else 1)
            repeated = 0 if self.moves.strides[state] else rows - 1
        found_rows = self._rows(rows, columns, size // columns if columns else 1, repeated)
        return {**found_rows, "rows": found_rows["rows"] + more}

    def _rows(self, rows: int, columns: int, item_bytes: int, repeated: int) -> dict[str, int]:
        """Requests, bytes and beats of rows, and local rows that are `repeated`."""
        moved, size = rows - repeated, columns * item_bytes
        requests = moved * -(-size // self.chip.dma.max_linear_bytes)
        return {"requests": requests, "moved": moved * size, "beats": moved * -(-size // self.beat),
                "rows": repeated * -(-columns // self.dim)}  # fmt: skip


def _named(do: Do) -> Decoded:
    """The operation that is done; the stream was made from operations. Raises AssertionError."""
    found = decoded(FUNCTIONS[do.function], do.first.value, do.second.value)
    assert found is not None
    return found


def _done(stream: Sequence[Item], times: int = 1) -> Iterator[tuple[Do, int]]:
    """Each operation of a stream, with how often it is done."""
    for item in stream:
        if isinstance(item, Loop):
            yield from _done(item.body, times * item.count)
        elif isinstance(item, Do):
            yield item, times
