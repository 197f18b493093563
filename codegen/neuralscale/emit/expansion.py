"""One instruction of a program as machine instructions: writes of CSRs and registers, then the instruction itself.

    Instr --Body.expand--> csrrw, li, ... , meconv.mm

A `Body` tracks the contents of one core's CSRs and registers while its code is made, so that nothing is written twice.
Starts of DMA chains become stores, and waits for them become a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from codegen.neuralscale.asm.assembler import load_immediate
from codegen.neuralscale.emit.descriptors import DESCRIPTOR_BYTES, DESCRIPTOR_WORDS, linear_control
from codegen.neuralscale.emit.integer_loops import (
    INTEGER_PREFIX,
    LoopCode,
    descriptor_loop,
    loop_code,
    scatter_loop,
)
from codegen.neuralscale.emit.memory_map import DMA_ENGINE_BASES, HARTS_PER_CLUSTER, in_cluster
from codegen.neuralscale.isa.csr import csr
from codegen.neuralscale.isa.table import instruction, row
from codegen.riscv.codec import Instruction
from codegen.riscv.row import FieldKind
from isched.program.program import Instr

ZERO, T0, A0, A1, A2, S10, S11 = 0, 5, 10, 11, 12, 26, 27
FT0 = 0
OPERAND_REGISTERS = {"rd": A0, "rs1": A1, "rs2": A2}
SCALAR_FIELDS = {"fs1": "rs1", "fs2": "rs2"}
"""Scalar operands that a floating-point register holds, and the fields that name it."""
CORE_MAP = "mte_coremap"
"""Core map with one bit per core of all clusters; programs name the cores of their own cluster."""
DESCRIPTOR_STORE = 0x1000

POLL_INSTRUCTIONS = 3
"""Number of instructions of the loop that waits for a DMA channel: load, mask, branch."""


@dataclass(slots=True)
class Body:
    """Contents of one core's CSRs and registers while its code is made; None where they are unknown."""

    cluster: int
    csrs: dict[str, int] = field(default_factory=dict)
    registers: dict[int, int] = field(default_factory=dict)
    scalar_bits: int | None = None

    def expand(self, instr: Instr) -> list[Instruction]:
        """The machine instructions of one instruction, in order."""
        code: list[Instruction] = []
        match instr.opcode:
            case "dma.start":
                self._start_dma(code, dict(instr.operands))
            case "dma.wait":
                self._await_dma(code, dict(instr.operands))
            case "dma.gather":
                self._gather(code, dict(instr.operands))
            case "dma.scatter":
                self._scatter(code, dict(instr.operands))
            case opcode if opcode.startswith(INTEGER_PREFIX):
                code += loop_code(opcode, dict(instr.operands)).items
            case _:
                self._issue(code, instr)
        return code

    def _issue(self, code: list[Instruction], instr: Instr) -> None:
        """Write the CSRs and registers that differ from their contents, then the instruction itself."""
        fields = register_fields(instr.opcode)
        values: dict[str, int] = {}
        for name, value in instr.operands:
            register = OPERAND_REGISTERS.get(name)
            if register is not None:
                self._set(code, register, in_cluster(value, self.cluster))
                values[name] = register
            elif name in SCALAR_FIELDS:
                self._set_scalar(code, value)
                values[SCALAR_FIELDS[name]] = FT0
            else:
                self._set_csr(code, name, value << HARTS_PER_CLUSTER * self.cluster if name == CORE_MAP else value)
        code.append(instruction(instr.opcode, *[values[name] for name in fields]))

    def _set_csr(self, code: list[Instruction], name: str, value: int) -> None:
        if self.csrs.get(name) != value:
            self._set(code, T0, value)
            code.append(instruction("csrrw", ZERO, csr(name).number, T0 if value else ZERO))
            self.csrs[name] = value

    def _set(self, code: list[Instruction], register: int, value: int) -> None:
        if self.registers.get(register) == value:
            return
        if value:
            code += load_immediate(register, value)
        elif register != T0:
            code.append(instruction("addi", register, ZERO, 0))
        else:  # zero need not be loaded: ZERO holds it
            return
        self.registers[register] = value

    def _set_scalar(self, code: list[Instruction], bits: int) -> None:
        if self.scalar_bits != bits:
            self._set(code, T0, bits)
            code.append(instruction("fmv.w.x", FT0, T0 if bits else ZERO))
            self.scalar_bits = bits

    def _store(self, code: list[Instruction], value: int, offset: int, base: int) -> None:
        self._set(code, T0, value)
        code.append(instruction("sw", T0 if value else ZERO, offset, base))

    def _start_dma(self, code: list[Instruction], operands: dict[str, int]) -> None:
        """Write the chain of descriptors, then channel control, first descriptor and start."""
        engine, channel = DMA_ENGINE_BASES[self.cluster][operands["engine"]], operands["channel"]
        self._set(code, S10, engine)
        self._set(code, S11, descriptor_store(engine, channel))
        for position, word in enumerate(chain_words(operands, self.cluster)):
            self._store(code, word, 4 * position, S11)
        self._start_channel(code, channel)

    def _start_channel(self, code: list[Instruction], channel: int) -> None:
        """Channel control, first descriptor and start; S10 and S11 hold the engine and the chain."""
        self._store(code, 1, 0x000, S10)
        self._store(code, 0x8000_0000, 0x100 * (channel + 1), S10)
        code.append(instruction("sw", S11, 0x114 + 0x100 * channel, S10))
        self._store(code, 1 << channel, 0x004, S10)

    def _gather(self, code: list[Instruction], operands: dict[str, int]) -> int:
        """Write the loop that makes the chain from indices in memory; returns how many instructions run."""
        destination = in_cluster(operands["destination"], self.cluster)
        control = linear_control(operands["row_bytes"])
        given = {**operands, "destination": destination}
        return self._start_loop(code, operands, lambda store: descriptor_loop(given, store, control))

    def _scatter(self, code: list[Instruction], operands: dict[str, int]) -> int:
        """The same, for a chain that writes rows at indices."""
        given = {**operands, "source": in_cluster(operands["source"], self.cluster)}
        return self._start_loop(code, operands, lambda store: scatter_loop(given, store))

    def _start_loop(self, code: list[Instruction], operands: dict[str, int], loop_of: Callable[[int], LoopCode]) -> int:
        """Write a loop that makes a chain in a channel's store, and start the channel."""
        engine, channel = DMA_ENGINE_BASES[self.cluster][operands["engine"]], operands["channel"]
        self._set(code, S10, engine)
        self._set(code, S11, descriptor_store(engine, channel))
        loop = loop_of(self.registers[S11])
        code += loop.items
        self._start_channel(code, channel)
        return len(code) - len(loop.items) + loop.executed

    def count(self, instr: Instr) -> int:
        """Number of instructions that `expand` gives for anything but a wait, with its effect on the tracked contents
        of CSRs and registers. The cycle model counts programs more often than they are emitted, and counting should not
        create them."""
        if instr.opcode == "dma.start":
            return self._count_dma(dict(instr.operands))
        if instr.opcode == "dma.gather":
            return self._gather([], dict(instr.operands))
        if instr.opcode == "dma.scatter":
            return self._scatter([], dict(instr.operands))
        if instr.opcode.startswith(INTEGER_PREFIX):
            return loop_code(instr.opcode, dict(instr.operands)).executed
        csrs, registers = self.csrs, self.registers
        held = registers.get(T0)
        count = 1
        for name, value in instr.operands:
            register = OPERAND_REGISTERS.get(name)
            if register is not None:
                address = in_cluster(value, self.cluster)
                if registers.get(register) != address:
                    registers[register] = address
                    count += _immediate_instructions(address)
                continue
            if name in SCALAR_FIELDS:
                if self.scalar_bits == value:
                    continue
                self.scalar_bits = value
            else:
                if name == CORE_MAP:
                    value <<= HARTS_PER_CLUSTER * self.cluster
                if csrs.get(name) == value:
                    continue
                csrs[name] = value
            if value and held != value:
                held = registers[T0] = value
                count += _immediate_instructions(value)
            count += 1
        return count

    def _count_dma(self, operands: dict[str, int]) -> int:
        engine, channel = DMA_ENGINE_BASES[self.cluster][operands["engine"]], operands["channel"]
        code: list[Instruction] = []
        self._set(code, S10, engine)
        self._set(code, S11, descriptor_store(engine, channel))
        count = len(code)
        held = self.registers.get(T0)
        for word in (*chain_words(operands, self.cluster), 1, 0x8000_0000, 1 << channel):
            if word and word != held:
                count += _immediate_instructions(word)
                held = word
            count += 1
        self.registers[T0] = held or 0
        return count + 1  # the store of the first descriptor's address

    def _await_dma(self, code: list[Instruction], operands: dict[str, int]) -> None:
        """Poll the busy bit, then clear the done flag."""
        channel = operands["channel"]
        self._set(code, S10, DMA_ENGINE_BASES[self.cluster][operands["engine"]])
        code.append(instruction("lw", T0, 0x010, S10))
        code.append(instruction("andi", T0, T0, 1 << channel))
        code.append(instruction("bne", T0, ZERO, -8))
        self.registers.pop(T0, None)
        self._store(code, 1 << 2 * channel, 0x014, S10)


def chain_words(operands: Mapping[str, int], cluster: int) -> Iterator[int]:
    """Words of all descriptors of a `dma.start`, with addresses of a cluster and links to the next descriptor."""
    store = descriptor_store(DMA_ENGINE_BASES[cluster][operands["engine"]], operands["channel"])
    words = [operands[f"w{i}"] for i in range(len(operands) - 2)]
    count = len(words) // DESCRIPTOR_WORDS
    for number in range(count):
        link = store + DESCRIPTOR_BYTES * (number + 1) if number + 1 < count else 0
        control, source, destination, *shape = words[DESCRIPTOR_WORDS * number : DESCRIPTOR_WORDS * (number + 1)]
        yield control
        yield in_cluster(source, cluster)
        yield in_cluster(destination, cluster)
        yield from shape
        yield link


@cache
def register_fields(opcode: str) -> tuple[str, ...]:
    """Operands of an instruction that its word holds; all of them are registers."""
    fields = row(opcode).fields
    assert all(f.kind in (FieldKind.GPR, FieldKind.FPR) for f in fields)
    return tuple(f.name for f in fields)


def _immediate_instructions(value: int) -> int:
    """Number of instructions that `load_immediate` gives."""
    low = ((value & 0xFFF) ^ 0x800) - 0x800
    return 2 if low and (value - low) & 0xFFFF_F000 else 1


def descriptor_store(engine: int, channel: int) -> int:
    """Address of a channel's descriptors: each channel has half of its engine's store."""
    return engine + DESCRIPTOR_STORE + (DESCRIPTOR_STORE // 2 if channel else 0)
