"""Code around that of the cores (entry, trap handler, end), and how many instructions all of it takes.

Every core is sent to its own code; those beyond the program's sleep. Core 0 ends the run by a store to `tohost`; a trap
ends it with the cause as exit code and leaves cause, pc, value and core in `trap_record`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from codegen.neuralscale.asm.assembler import (
    Branch,
    Far,
    Item,
    Label,
    branch,
    far_jump,
    item_bytes,
    load_address,
    load_immediate,
)
from codegen.neuralscale.emit.descriptors import linear_control
from codegen.neuralscale.emit.expansion import A0, POLL_INSTRUCTIONS, S10, T0, ZERO, Body
from codegen.neuralscale.emit.memory_map import CONTROL_BASE, HARTS_PER_CLUSTER, address_of
from codegen.neuralscale.isa.csr import csr
from codegen.neuralscale.isa.table import instruction
from hw_models.chip import Chip
from isched.program.program import Instr, Program
from isched.program.timed_ops import CoreIssue, IssueCost

MSTATUS_FS = 0x6000
TRAP_RECORD = CONTROL_BASE + 64

SAMPLE_BYTES = 0x1234
"""Bytes of a descriptor whose instructions are counted: sizes and addresses of most descriptors take as many."""


def code_bytes(items: Sequence[Item]) -> int:
    """Bytes of machine code of these items."""
    return sum(item_bytes(item) for item in items)


def start_up(cluster: int, cores: int) -> Iterator[Item]:
    """Code that sets the trap vector, switches floating point on, and sends each core to its code; cores beyond the
    program's sleep."""
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


def ending(core: int, label: str) -> list[Item]:
    """Code in which core 0 reports success, while the others sleep until it does."""
    items: list[Item] = [Label(label)] if label else []
    if core == 0:
        items += [instruction("addi", A0, ZERO, 0), far_jump("exit", T0)]
    else:
        items.append(far_jump("sleep", T0))
    return items


def _start_up_count(cluster: int, core: int) -> int:
    """Number of instructions from the entry to the code of the core at this place among the program's cores."""
    items = list(start_up(cluster, core + 1))
    jumps = [place for place, item in enumerate(items) if isinstance(item, Far) and item.mnemonic == "jalr"]
    skipped = len(jumps) - 1  # far jumps of the cores before, which the branch skips
    return sum(item_bytes(item) for item in items[: jumps[-1] + 1]) // 4 - 2 * skipped


def _ending_count(core: int) -> int:
    """Number of instructions from a core's end: core 0 runs to the store to `tohost`; the others go to sleep."""
    own = code_bytes(ending(core, "")) // 4
    if core:
        return own + 1
    items = list(start_up(0, 0))
    exit_code = items[next(place for place, item in enumerate(items) if item == Label("exit")) :]
    stored = next(place for place, item in enumerate(exit_code) if isinstance(item, Branch))
    return own + code_bytes(exit_code[:stored]) // 4


def issue_costs(program: Program, chip: Chip) -> tuple[CoreIssue, ...]:
    """For the cycle model, number of scalar instructions that each core runs before, for and after its instructions, in
    the order given: emission, only counted. It is the same for all chips of the instruction set."""
    del chip
    known: dict[int, IssueCost] = {}  # equal costs are one object, so that the cycle model looks at them once
    costs = []
    for number, stream in enumerate(program.streams):
        body = Body(program.cluster)
        issues = tuple(_issue_cost(instr, body, known) for instr in stream.instrs)
        costs.append(CoreIssue(_start_up_count(program.cluster, number), issues, _ending_count(stream.core)))
    return tuple(costs)


def _issue_cost(instr: Instr, body: Body, known: dict[int, IssueCost]) -> IssueCost:
    """The scalar instructions of one instruction. A wait issues with its first load; what follows its loop and the rest
    of one iteration count for the next instruction."""
    if instr.opcode != "dma.wait":
        before = body.count(instr)
        if before not in known:
            known[before] = IssueCost(before)
        return known[before]
    code = body.expand(instr)
    asks = next(place for place, word in enumerate(code) if word.mnemonic == "lw") + 1
    return IssueCost(asks, len(code) - asks, POLL_INSTRUCTIONS)


def dma_start_instructions(descriptors: int) -> int:
    """Number of scalar instructions that start a chain of this many linear descriptors and clear its flag after it."""
    one, two = _start_instructions(1), _start_instructions(2)
    wait = Instr("scalar", "dma.wait", (("engine", 0), ("channel", 0)))
    return one + (descriptors - 1) * (two - one) + len(Body(0).expand(wait)) - POLL_INSTRUCTIONS


def _start_instructions(descriptors: int) -> int:
    words: list[int] = []
    for number in range(1, descriptors + 1):
        addresses = (address_of(memory, number * SAMPLE_BYTES) for memory in ("DDR", "LLB"))
        words += [linear_control(SAMPLE_BYTES), *addresses, 0, 0]
    named = tuple((f"w{number}", word) for number, word in enumerate(words))
    return Body(0).count(Instr("dma", "dma.start", (("engine", 0), ("channel", 0), *named)))
