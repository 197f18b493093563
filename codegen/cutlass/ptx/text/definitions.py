"""Static checks of registers before a kernel runs: reads of unwritten registers, and missing wgmma fences.

undefined   registers that an instruction reads and that no path from the entry writes before
unfenced    wgmma whose registers something else may have written since the last wgmma.fence
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from codegen.cutlass.ptx.text.errors import PtxError
from codegen.cutlass.ptx.text.flow import EXIT, Block
from codegen.cutlass.ptx.text.module import AddressOperand, Operand, PtxInstruction, Register, Vector

Place: TypeAlias = tuple[int, int]
"""A block's number and the instruction's index in it; the block's end comes after its steps."""

MOST_FACTS: Final = 1_000_000_000
"""Largest product of blocks and registers: 125 MB of bits."""
MOST_VISITS: Final = 64
"""Largest average number of visits per block."""
NO_RESULT: Final = frozenset({
    "st", "stmatrix", "cp", "bra", "brx", "ret", "exit", "fence", "membar", "prefetch", "prefetchu", "trap",
    "nanosleep",
})  # fmt: skip


def results(instruction: PtxInstruction) -> tuple[str, ...]:
    """Names of the registers that the instruction writes."""
    parts = instruction.parts
    if parts[0] in NO_RESULT or not instruction.operands:
        return ()
    if parts[0] in ("bar", "barrier") and "red" not in parts:
        return ()
    if parts[0] == "wgmma" and parts[1] != "mma_async":
        return ()
    first = instruction.operands[0]
    return () if isinstance(first, AddressOperand) else tuple(_names(first))


def sources(instruction: PtxInstruction) -> tuple[str, ...]:
    """Names of the registers that the instruction reads, without the sums that wgmma continues from and the sources of
    moves."""
    written = bool(results(instruction))
    first = instruction.operands[0] if instruction.operands else None
    read = instruction.operands[1:] if written and not isinstance(first, AddressOperand) else instruction.operands
    names = [name for operand in read for name in _names(operand)]
    if instruction.guard is not None:
        names.append(instruction.guard.name)
    return tuple(names)


def _names(operand: Operand) -> Iterator[str]:
    match operand:
        case Register(name, kind) if kind != "sreg":
            yield name
        case AddressOperand(Register(name)):
            yield name
        case Vector(items):
            for item in items:
                yield from _names(item)


def _lines(block: Block) -> tuple[PtxInstruction, ...]:
    return block.steps if block.end is None else (*block.steps, block.end)


def _bits(names: Iterable[str], numbers: dict[str, int]) -> int:
    """A set of registers as bits; `numbers` grows."""
    found = 0
    for name in names:
        found |= 1 << numbers.setdefault(name, len(numbers))
    return found


def _forward(blocks: tuple[Block, ...], start: int, after: Callable[[Block, int], int]) -> dict[int, int]:
    """Facts that may hold at the start of each block: the union over all paths to it. Raises PtxError for control flow
    that is too tangled to follow."""
    into: dict[int, int] = {0: start}
    work, steps = deque((0,)), 0
    while work:
        number = work.popleft()
        out = after(blocks[number], into[number])
        steps += 1
        if steps > MOST_VISITS * len(blocks):
            raise PtxError(f"the control flow between its {len(blocks)} blocks is too complex to analyse")
        for successor in blocks[number].successors:
            if successor != EXIT and (successor not in into or out & ~into[successor]):
                into[successor] = into.get(successor, 0) | out
                work.append(successor)
    return into


def undefined(blocks: tuple[Block, ...]) -> Mapping[Place, str]:
    """The first register that each place reads and that no instruction can have written. Moves may copy anything.

    Raises PtxError for kernels that are too large or too tangled.
    """
    numbers: dict[str, int] = {}
    written = {block.number: _bits((n for line in _lines(block) for n in results(line)), numbers) for block in blocks}
    if len(blocks) * len(numbers) > MOST_FACTS:
        raise PtxError(f"{len(blocks)} blocks with {len(numbers)} registers are too many")
    into = _forward(blocks, 0, lambda block, known: known | written[block.number])
    found: dict[Place, str] = {}
    for number, known in into.items():
        for k, line in enumerate(_lines(blocks[number])):
            if line.parts[0] != "mov":
                absent = (n for n in sources(line) if n not in numbers or not known >> numbers[n] & 1)
                missing = next(absent, None)
                if missing is not None:
                    found[number, k] = missing
            known |= _bits(results(line), numbers)
    return found


def _is_product(line: PtxInstruction) -> bool:
    return line.parts[:2] == ("wgmma", "mma_async") and len(line.operands) > 1


def _touched(line: PtxInstruction) -> tuple[str, ...]:
    """Registers of a product that must be fenced: sums, and A where it lies in registers."""
    first, second = line.operands[0], line.operands[1]
    return (*_names(first), *(_names(second) if isinstance(second, Vector) else ()))


def unfenced(blocks: tuple[Block, ...]) -> frozenset[Place]:
    """Places of products that are not fenced on every path. Raises PtxError for kernels that are too tangled."""
    numbers: dict[str, int] = {}
    products = 0
    for block in blocks:
        for line in block.steps:
            if _is_product(line):
                products |= _bits(_touched(line), numbers)
    if not products:
        return frozenset()

    def after(line: PtxInstruction, dirty: int) -> int:
        if line.parts[:2] == ("wgmma", "fence"):
            return 0
        return dirty if _is_product(line) else dirty | _bits((n for n in results(line) if n in numbers), numbers)

    def through(block: Block, dirty: int) -> int:
        for line in _lines(block):
            dirty = after(line, dirty)
        return dirty

    found = set()
    for number, dirty in _forward(blocks, products, through).items():
        for k, line in enumerate(_lines(blocks[number])):
            if _is_product(line) and dirty & _bits(_touched(line), numbers):
                found.add((number, k))
            dirty = after(line, dirty)
    return frozenset(found)
