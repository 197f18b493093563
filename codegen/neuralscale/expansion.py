"""One instruction of a program as machine instructions: what CSRs and registers must hold, then the instruction itself.

    Instr --Body.expand--> csrrw, li, ... , meconv.mm

A `Body` follows what the CSRs and registers of one core hold while its code is made, so that nothing is written twice;
starts of DMA chains and waits for them become stores and a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from codegen.neuralscale.assembler import load_immediate
from codegen.neuralscale.isa import Instruction, instruction, row
from codegen.neuralscale.isa_csr import csr
from codegen.neuralscale.isa_row import Kind
from codegen.neuralscale.memory_map import DMA_ENGINE_BASES, HARTS_PER_CLUSTER, in_cluster
from isched.program import Instr

__all__ = ["A0", "POLL_INSTRUCTIONS", "S10", "T0", "ZERO", "Body"]

ZERO, T0, A0, A1, A2, S10, S11 = 0, 5, 10, 11, 12, 26, 27
FT0 = 0
OPERAND_REGISTERS = {"rd": A0, "rs1": A1, "rs2": A2}
CORE_MAP = "mte_coremap"
"""One bit a core of all clusters; programs name the cores of theirs."""
DESCRIPTOR_STORE = 0x1000
DESCRIPTOR_BYTES = 24
DESCRIPTOR_WORDS = 5

POLL_INSTRUCTIONS = 3
"""Load, mask, branch: the loop that waits for a DMA channel."""


@dataclass(slots=True)
class Body:
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
            else:
                yield from self._set_csr(name, value << HARTS_PER_CLUSTER * self.cluster if name == CORE_MAP else value)
        assert all(f.kind in (Kind.GPR, Kind.FPR) for f in wanted.fields)
        yield instruction(instr.opcode, *(values[f.name] for f in wanted.fields))

    def _set_csr(self, name: str, value: int) -> Iterator[Instruction]:
        if self.csrs.get(name) != value:
            yield from self._set(T0, value)
            yield instruction("csrrw", ZERO, csr(name).number, T0 if value else ZERO)
            self.csrs[name] = value

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
