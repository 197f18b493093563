"""Emission: a program becomes one executable for all cores of a cluster, with its assembly and a source map.

    Program --each Instr--> CSR writes, addresses, the instruction --> items --> .text      constants --> .data

The entry sends every core to its own straight-line code. Values that a CSR or a register already holds are not written
again. Core 0 ends the run by a store to `tohost`; any trap ends it with the cause as exit code and leaves cause, pc,
value and core in `trap_record`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from codegen.neuralscale.assembler import (
    Branch,
    Comment,
    Far,
    Item,
    Label,
    assemble,
    branch,
    far_jump,
    item_bytes,
    load_address,
    load_immediate,
)
from codegen.neuralscale.elf_writer import Segment, SegmentFlags, Symbol, SymbolKind
from codegen.neuralscale.isa import Instruction, instruction, row
from codegen.neuralscale.isa_csr import csr
from codegen.neuralscale.isa_row import Kind
from codegen.neuralscale.memory_map import (
    CODE_BASE,
    CONTROL_BASE,
    DATA_BASE,
    DMA_ENGINE_BASES,
    HARTS_PER_CLUSTER,
    address_of,
    in_cluster,
)
from hw_models.errors import DoesNotFit
from isched.program import Instr, Program
from isched.timed import CoreIssue, Issue
from partitioner.graph import Constants, Graph

__all__ = ["Image", "SourceRange", "emit_image", "issue_costs"]

ZERO, T0, A0, A1, A2, S10, S11 = 0, 5, 10, 11, 12, 26, 27
FT0 = 0
OPERAND_REGISTERS = {"rd": A0, "rs1": A1, "rs2": A2}
DESCRIPTOR_STORE = 0x1000
DESCRIPTOR_BYTES = 24
DESCRIPTOR_WORDS = 5
MSTATUS_FS = 0x6000
TRAP_RECORD = CONTROL_BASE + 64
CONTROL_BYTES = 128


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Code addresses [start, end) of one core that serve one operator (empty name: start-up and end)."""

    start: int
    end: int
    core: int
    source: str


@dataclass(frozen=True, slots=True)
class Image:
    """Everything an executable holds. `items` are the code in order, labels and comments included."""

    items: tuple[Item, ...]
    entry: int
    segments: tuple[Segment, ...]
    symbols: tuple[Symbol, ...]
    source_map: tuple[SourceRange, ...]


def emit_image(program: Program, graph: Graph, constants: Constants) -> Image:
    """Machine code and data of one cluster. Raises DoesNotFit when the code overflows its space."""
    items: list[Item] = [
        _comment(f"{program.name} on {program.chip}, cluster {program.cluster}"),
        Label("_start"),
    ]
    items += _start_up(program.cluster, len(program.streams))
    pieces: list[tuple[str, int, str, int]] = [("_start", -1, "", _size(items))]
    for stream in program.streams:
        body = _Body(program.cluster)
        for number, (source, instrs) in enumerate(_runs(stream.instrs)):
            name = f"core{stream.core}.{number:04d}.{_label(source)}"
            code = [item for instr in instrs for item in body.expand(instr)]
            label = [Label(f"core{stream.core}"), Label(name)] if number == 0 else [Label(name)]
            items += [*label, _comment(source or "no operator"), *code]
            pieces.append((name, stream.core, source, _size(code)))
        ending = _ending(stream.core, f"core{stream.core}" if not stream.instrs else "")
        items += ending
        pieces.append((f"core{stream.core}.end", stream.core, "", _size(ending)))
    text = assemble(items, CODE_BASE)
    if CODE_BASE + len(text) > DATA_BASE:
        bound = DATA_BASE - CODE_BASE
        raise DoesNotFit(f"program {program.name}", demand_bytes=len(text), bound_bytes=bound, where="code space",
                         levers=("a smaller batch",))  # fmt: skip
    ranges, symbols = _map(pieces)
    control = Segment(".tohost", CONTROL_BASE, (), SegmentFlags.READ_WRITE, CONTROL_BYTES)
    text_segment = Segment(".text", CODE_BASE, (text,), SegmentFlags.READ_EXECUTE)
    return Image(tuple(items), CODE_BASE, (control, text_segment, *_data(program, graph, constants)), symbols, ranges)


POLL_INSTRUCTIONS = 3
"""Load, mask, branch: the loop that waits for a DMA channel."""


def issue_costs(program: Program) -> tuple[CoreIssue, ...]:
    """How many scalar instructions each core runs before, for and after its instructions, in the order given."""
    costs = []
    for number, stream in enumerate(program.streams):
        body = _Body(program.cluster)
        issues = tuple(_issue_cost(instr, body) for instr in stream.instrs)
        costs.append(CoreIssue(_start_up_count(program.cluster, number), issues, _ending_count(stream.core)))
    return tuple(costs)


def _issue_cost(instr: Instr, body: _Body) -> Issue:
    """A wait issues with its first load; what follows its loop and the rest of one turn belong to what comes next."""
    if instr.opcode == "dma.start":
        return Issue(body.count_dma(dict(instr.operands)))
    code = list(body.expand(instr))
    if instr.opcode != "dma.wait":
        meets = dict(instr.operands)["mte_coremap"] if instr.opcode == "pld" else 0
        return Issue(len(code), meets=meets)
    asks = next(place for place, word in enumerate(code) if word.mnemonic == "lw") + 1
    return Issue(asks, len(code) - asks, POLL_INSTRUCTIONS)


def _start_up_count(cluster: int, core: int) -> int:
    """Instructions from the entry to the code of the core at this place among the program's."""
    items = list(_start_up(cluster, core + 1))
    jumps = [place for place, item in enumerate(items) if isinstance(item, Far) and item.mnemonic == "jalr"]
    skipped = len(jumps) - 1  # far jumps of the cores before, which the branch goes around
    return sum(item_bytes(item) for item in items[: jumps[-1] + 1]) // 4 - 2 * skipped


def _ending_count(core: int) -> int:
    """Core 0 runs from its end to the store to `tohost`; the others go to sleep."""
    own = _size(_ending(core, "")) // 4
    if core:
        return own + 1
    items = list(_start_up(0, 0))
    exit_code = items[next(place for place, item in enumerate(items) if item == Label("exit")) :]
    stored = next(place for place, item in enumerate(exit_code) if isinstance(item, Branch))
    return own + _size(exit_code[:stored]) // 4


def _size(items: Sequence[Item]) -> int:
    return sum(item_bytes(item) for item in items)


def _comment(text: str) -> Comment:
    """Names of a model may hold any character; those that are not printed are escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return Comment(shown.strip())


def _label(source: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.$]", "_", source)[:80] or "_"


def _map(pieces: list[tuple[str, int, str, int]]) -> tuple[tuple[SourceRange, ...], tuple[Symbol, ...]]:
    """Source ranges and symbols of consecutive pieces of code (name, core, operator, bytes)."""
    address = CODE_BASE
    ranges: list[SourceRange] = []
    symbols = [
        Symbol("tohost", CONTROL_BASE, 8, SymbolKind.OBJECT),
        Symbol("fromhost", CONTROL_BASE + 8, 8, SymbolKind.OBJECT),
        Symbol("trap_record", TRAP_RECORD, 16, SymbolKind.OBJECT),
    ]
    for name, core, source, size in pieces:
        ranges.append(SourceRange(address, address + size, core, source))
        symbols.append(Symbol(name, address, size, SymbolKind.FUNCTION))
        address += size
    return tuple(ranges), tuple(symbols)


def _runs(instrs: tuple[Instr, ...]) -> Iterator[tuple[str, list[Instr]]]:
    """Consecutive instructions of one operator."""
    run: list[Instr] = []
    for instr in instrs:
        if run and run[0].source != instr.source:
            yield run[0].source, run
            run = []
        run.append(instr)
    if run:
        yield run[0].source, run


def _start_up(cluster: int, cores: int) -> Iterator[Item]:
    """Trap vector, floating point on, each core to its code; cores beyond the program's sleep."""
    yield load_address(T0, "trap")
    yield instruction("csrrw", ZERO, csr("mtvec").number, T0)
    yield from load_immediate(T0, MSTATUS_FS)
    yield instruction("csrrs", ZERO, csr("mstatus").number, T0)
    for core in range(cores):
        yield from load_immediate(T0, HARTS_PER_CLUSTER * cluster + core)
        yield branch("bne", A0, T0, f"not{core}")
        yield far_jump(f"core{core}", T0)
        yield Label(f"not{core}")
    yield Label("sleep")
    yield instruction("wfi")
    yield branch("jal", ZERO, "sleep")
    yield Label("trap")
    yield from load_immediate(S10, TRAP_RECORD)
    for position, name in enumerate(("mcause", "mepc", "mtval", "mhartid")):
        yield instruction("csrrs", A0 + position, csr(name).number, ZERO)
        yield instruction("sw", A0 + position, 4 * position, S10)
    yield Label("exit")
    yield instruction("slli", A0, A0, 1)
    yield instruction("ori", A0, A0, 1)
    yield from load_immediate(T0, CONTROL_BASE)
    yield instruction("sw", ZERO, 4, T0)
    yield instruction("sw", A0, 0, T0)
    yield branch("jal", ZERO, "sleep")


def _ending(core: int, label: str) -> list[Item]:
    """Core 0 reports success; the others sleep until it does."""
    items: list[Item] = [Label(label)] if label else []
    if core == 0:
        items += [instruction("addi", A0, ZERO, 0), far_jump("exit", T0)]
    else:
        items.append(far_jump("sleep", T0))
    return items


@dataclass(slots=True)
class _Body:
    """What CSRs and registers of one core hold while its code is made; None is not known."""

    cluster: int
    csrs: dict[str, int] = field(default_factory=dict)
    registers: dict[int, int] = field(default_factory=dict)
    scalar_bits: int | None = None

    def expand(self, instr: Instr) -> Iterator[Instruction]:
        match instr.opcode:
            case "dma.start":
                yield from self._start_dma(dict(instr.operands))
            case "dma.wait":
                yield from self._await_dma(dict(instr.operands))
            case _:
                yield from self._issue(instr)

    def _issue(self, instr: Instr) -> Iterator[Instruction]:
        """CSRs and registers that differ from what they hold, then the instruction itself."""
        wanted = row(instr.opcode)
        values: dict[str, int] = {}
        for name, value in instr.operands:
            if name in OPERAND_REGISTERS:
                yield from self._set(OPERAND_REGISTERS[name], in_cluster(value, self.cluster))
                values[name] = OPERAND_REGISTERS[name]
            elif name in ("fs1", "fs2"):
                yield from self._set_scalar(value)
                values[name[1:].replace("s", "rs")] = FT0
            elif self.csrs.get(name) != value:
                yield from self._set(T0, value)
                yield instruction("csrrw", ZERO, csr(name).number, T0 if value else ZERO)
                self.csrs[name] = value
        assert all(f.kind in (Kind.GPR, Kind.FPR) for f in wanted.fields)
        yield instruction(instr.opcode, *(values[f.name] for f in wanted.fields))

    def _set(self, register: int, value: int) -> Iterator[Instruction]:
        if value and self.registers.get(register) != value:
            yield from load_immediate(register, value)
            self.registers[register] = value
        elif not value and register != T0 and self.registers.get(register) != 0:
            yield instruction("addi", register, ZERO, 0)
            self.registers[register] = 0

    def _set_scalar(self, bits: int) -> Iterator[Instruction]:
        if self.scalar_bits != bits:
            yield from self._set(T0, bits)
            yield instruction("fmv.w.x", FT0, T0 if bits else ZERO)
            self.scalar_bits = bits

    def _store(self, value: int, offset: int, base: int) -> Iterator[Instruction]:
        yield from self._set(T0, value)
        yield instruction("sw", T0 if value else ZERO, offset, base)

    def _start_dma(self, operands: dict[str, int]) -> Iterator[Instruction]:
        """Write the chain of descriptors, then channel control, first descriptor and start."""
        engine, channel = DMA_ENGINE_BASES[self.cluster][operands["engine"]], operands["channel"]
        yield from self._set(S10, engine)
        yield from self._set(S11, _descriptor_store(engine, channel))
        for position, word in enumerate(self._chain(operands)):
            yield from self._store(word, 4 * position, S11)
        yield from self._store(1, 0x000, S10)
        yield from self._store(0x8000_0000, 0x100 * (channel + 1), S10)
        yield instruction("sw", S11, 0x114 + 0x100 * channel, S10)
        yield from self._store(1 << channel, 0x004, S10)

    def count_dma(self, operands: dict[str, int]) -> int:
        """How many instructions `expand` gives for a start, and the same effect on what registers hold: chains are
        most of a program's instructions, and counting them should not make them."""
        engine, channel = DMA_ENGINE_BASES[self.cluster][operands["engine"]], operands["channel"]
        count = sum(1 for _ in self._set(S10, engine))
        count += sum(1 for _ in self._set(S11, _descriptor_store(engine, channel)))
        held = self.registers.get(T0)
        for word in (*self._chain(operands), 1, 0x8000_0000, 1 << channel):
            if word and word != held:
                count += _immediate_instructions(word)
                held = word
            count += 1
        self.registers[T0] = held or 0
        return count + 1  # the store of the first descriptor's address

    def _chain(self, operands: dict[str, int]) -> Iterator[int]:
        """The words of all descriptors, with addresses of this cluster and links to the next."""
        engine, channel = DMA_ENGINE_BASES[self.cluster][operands["engine"]], operands["channel"]
        store = _descriptor_store(engine, channel)
        words = [operands[f"w{i}"] for i in range(len(operands) - 2)]
        count = len(words) // DESCRIPTOR_WORDS
        for number in range(count):
            link = store + DESCRIPTOR_BYTES * (number + 1) if number + 1 < count else 0
            control, source, destination, *shape = words[DESCRIPTOR_WORDS * number : DESCRIPTOR_WORDS * (number + 1)]
            yield control
            yield in_cluster(source, self.cluster)
            yield in_cluster(destination, self.cluster)
            yield from shape
            yield link

    def _await_dma(self, operands: dict[str, int]) -> Iterator[Instruction]:
        """Poll the busy bit, then clear the done flag."""
        channel = operands["channel"]
        yield from self._set(S10, DMA_ENGINE_BASES[self.cluster][operands["engine"]])
        yield instruction("lw", T0, 0x010, S10)
        yield instruction("andi", T0, T0, 1 << channel)
        yield instruction("bne", T0, ZERO, -8)
        self.registers.pop(T0, None)
        yield from self._store(1 << 2 * channel, 0x014, S10)


def _immediate_instructions(value: int) -> int:
    """How many instructions `load_immediate` gives."""
    low = ((value & 0xFFF) ^ 0x800) - 0x800
    return 2 if low and (value - low) & 0xFFFF_F000 else 1


def _descriptor_store(engine: int, channel: int) -> int:
    """Where a channel's descriptors lie: each has half of its engine's store."""
    return engine + DESCRIPTOR_STORE + (DESCRIPTOR_STORE // 2 if channel else 0)


def _data(program: Program, graph: Graph, constants: Constants) -> Iterator[Segment]:
    """Constants, each at its place; gaps of alignment are zeros, so that they make one segment."""
    placed = sorted((p for p in program.placements if p.kind == "constant"), key=lambda p: p.offset_bytes)
    buffers: list[bytes | memoryview] = []
    start = end = 0
    for placement in placed:
        array = np.ascontiguousarray(constants[graph.by_name[placement.tensor].constant])
        if not buffers:
            start = end = placement.offset_bytes
        buffers.append(bytes(placement.offset_bytes - end))
        buffers.append(array.reshape(-1).view(np.uint8).data)
        end = placement.offset_bytes + placement.size_bytes
    if buffers:
        yield Segment(".data", address_of("DDR", start), tuple(buffers), SegmentFlags.READ)
