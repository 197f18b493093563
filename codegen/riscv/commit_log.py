"""The log of committed instructions, in the form of RISC-V's public simulator (Spike, `--log-commits`).

    core   0: 3 0x00100004 (0x0002a583) x11 0x00000029 mem 0x00200000

Core, privilege level (3: machine), address, word; then each register and CSR that was written with its value, the
address of a load, and the address of a store with what was stored. What an accelerator's instruction does to memory is
not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.riscv.codec import Instruction
from codegen.riscv.row import FieldKind, Row

MACHINE_LEVEL = 3

LOADS = frozenset({"lb", "lbu", "lh", "lhu", "lw", "lwu", "ld", "flw", "flhw", "lr.w"})
STORED_BYTES = {"sb": 1, "sh": 2, "sw": 4, "sd": 8, "fsw": 4, "fshw": 2}
ATOMIC, STORE_CONDITIONAL, ATOMIC_BYTES = "amo", "sc.w", 4
CSR_WRITES = ("csrrw", "csrrwi")
"""Instructions that write their CSR whatever their operand is."""

CSR_CHANGES = ("csrrs", "csrrc", "csrrsi", "csrrci")
"""Instructions that write their CSR unless their operand is x0 or 0."""


@dataclass(frozen=True, slots=True)
class Touched:
    """What an instruction reads and writes, as far as its word and the registers before it tell: the register that it
    writes (`x` or `f` and its number), its CSR, the address that it loads from, and the address and size that it stores
    to, with the value where a register has it."""

    register: tuple[str, int] | None = None
    csr: int | None = None
    loaded: int | None = None
    stored: tuple[int, int] | None = None
    value: int | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """An instruction where it was fetched: the core, its address, its word as it lies in memory and the bytes of it;
    `xlen` and `flen` are the bits of the core's registers."""

    core: int
    pc: int
    word: int
    size_bytes: int
    xlen: int
    flen: int


def touched(row: Row, made: Instruction, x: Sequence[int], f: Sequence[int], xlen: int) -> Touched:
    """What a scalar instruction is about to read and write, by the values of the registers before it, as bits."""
    fields, operands = {field.name: field.kind for field in row.fields}, dict(made.operands)
    kind = {FieldKind.GPR: "x", FieldKind.FPR: "f"}.get(fields.get("rd", FieldKind.IMM))
    register = (kind, operands["rd"]) if kind is not None and (kind, operands["rd"]) != ("x", 0) else None
    csr = operands.get("csr")
    if row.family in CSR_CHANGES and not operands.get("rs1", operands.get("uimm", 0)):
        csr = None
    address = None
    if "rs1" in operands and fields["rs1"] is FieldKind.GPR:
        address = (x[operands["rs1"]] + operands.get("imm", 0)) & (1 << xlen) - 1
    if address is None:
        return Touched(register, csr)
    if row.family in LOADS:
        return Touched(register, csr, address)
    if row.family in STORED_BYTES:
        size = STORED_BYTES[row.family]
        source = (f if fields["rs2"] is FieldKind.FPR else x)[operands["rs2"]]
        value = None if row.family == "fshw" else source & (1 << 8 * size) - 1
        return Touched(register, csr, None, (address, size), value)
    if row.family.startswith(ATOMIC):
        return Touched(register, csr, address, (address, ATOMIC_BYTES))
    if row.family == STORE_CONDITIONAL:
        return Touched(register, csr, None, (address, ATOMIC_BYTES))
    return Touched(register, csr)


def commit_line(
    fetch: Fetch,
    found: Touched,
    registers: Sequence[tuple[str, int, int]],
    read: Callable[[int, int], int],
) -> str:
    """The line of an instruction that has run. `registers` are names (x5, c768_mstatus), values and bits of the
    registers that it wrote; `read` gives the bytes of memory at an address as a number."""
    texts = [f"core{fetch.core:4}: {MACHINE_LEVEL} {_hex(fetch.pc, fetch.xlen)}"]
    texts.append(f" ({_hex(fetch.word, 8 * fetch.size_bytes)})")
    texts += [f" {name:<3} {_hex(value, bits)}" for name, value, bits in registers]
    if found.loaded is not None:
        texts.append(f" mem {_hex(found.loaded, fetch.xlen)}")
    if found.stored is not None:
        address, size = found.stored
        value = read(address, size) if found.value is None else found.value
        texts.append(f" mem {_hex(address, fetch.xlen)} {_hex(value, 8 * size)}")
    return "".join(texts)


def csr_name(number: int, name: str) -> str:
    """A CSR as the log calls it, such as c768_mstatus."""
    return f"c{number}_{name or 'unknown'}"


def _hex(value: int, bits: int) -> str:
    return f"{value & (1 << bits) - 1:#0{bits // 4 + 2}x}"
