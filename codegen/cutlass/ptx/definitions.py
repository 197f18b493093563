"""What is known of registers before a kernel runs: reads of what nobody can have written, missing wgmma fences.

undefined   registers that an instruction reads and that no path from the entry writes before
unfenced    wgmma whose registers something else may have written since the last wgmma.fence
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from codegen.cutlass.ptx.flow import EXIT, Block
from codegen.cutlass.ptx.module import Address, Instruction, Operand, Register, Vector

__all__ = ["Place", "undefined", "unfenced"]

Place: TypeAlias = tuple[int, int]
"""A block's number and the instruction's place in it; the block's end comes after its steps."""

NO_RESULT: Final = frozenset({
    "st", "stmatrix", "cp", "bra", "brx", "ret", "exit", "fence", "membar", "prefetch", "prefetchu", "trap",
    "nanosleep",
})  # fmt: skip


def results(instruction: Instruction) -> tuple[str, ...]:
    """Names of the registers that it writes."""
    parts = instruction.parts
    if parts[0] in NO_RESULT or not instruction.operands:
        return ()
    if parts[0] in ("bar", "barrier") and "red" not in parts:
        return ()
    if parts[0] == "wgmma" and parts[1] != "mma_async":
        return ()
    return tuple(_names(instruction.operands[0]))


def sources(instruction: Instruction) -> tuple[str, ...]:
    """Names of the registers that it reads; sums that wgmma goes on from are not among them, nor are moves' sources."""
    written = bool(results(instruction))
    first = instruction.operands[0] if instruction.operands else None
    read = instruction.operands[1:] if written and not isinstance(first, Address) else instruction.operands
    names = [name for operand in read for name in _names(operand)]
    if instruction.guard is not None:
        names.append(instruction.guard.name)
    return tuple(names)


def _names(operand: Operand) -> Iterator[str]:
    match operand:
        case Register(name, kind) if kind != "sreg":
            yield name
        case Address(Register(name)):
            yield name
        case Vector(items):
            for item in items:
                yield from _names(item)


def _lines(block: Block) -> tuple[Instruction, ...]:
    return block.steps if block.end is None else (*block.steps, block.end)


def undefined(blocks: tuple[Block, ...]) -> Mapping[Place, str]:
    """By place, the first register read there that nothing can have written."""
    into: dict[int, frozenset[str]] = {0: frozenset()}
    written = {block.number: frozenset(n for line in _lines(block) for n in results(line)) for block in blocks}
    work = [0]
    while work:
        number = work.pop()
        out = into[number] | written[number]
        for successor in blocks[number].successors:
            if successor == EXIT:
                continue
            known = into.get(successor)
            if known is None or not out <= known:
                into[successor] = out if known is None else known | out
                work.append(successor)
    found: dict[Place, str] = {}
    for number, known in into.items():
        have = set(known)
        for k, line in enumerate(_lines(blocks[number])):
            missing = next((name for name in sources(line) if name not in have), None)
            if missing is not None and line.parts[0] != "mov":
                found[number, k] = missing
            have.update(results(line))
    return found


def _is_product(line: Instruction) -> bool:
    return line.parts[:2] == ("wgmma", "mma_async")


def _touched(line: Instruction) -> tuple[str, ...]:
    """Registers of a product that must be fenced: sums, and A where it lies in registers."""
    first, second = line.operands[0], line.operands[1]
    return (*_names(first), *(_names(second) if isinstance(second, Vector) else ()))


def unfenced(blocks: tuple[Block, ...]) -> frozenset[Place]:
    """Places of products that are not fenced on every path."""
    products = {name for block in blocks for line in block.steps if _is_product(line) for name in _touched(line)}
    if not products:
        return frozenset()
    into: dict[int, frozenset[str]] = {0: frozenset(products)}
    work = [0]
    while work:
        number = work.pop()
        out = into[number]
        for line in _lines(blocks[number]):
            out = _after(line, out, products)
        for successor in blocks[number].successors:
            known = into.get(successor)
            if successor != EXIT and (known is None or not out <= known):
                into[successor] = out | (known or frozenset())
                work.append(successor)
    found = set()
    for number, dirty in into.items():
        for k, line in enumerate(_lines(blocks[number])):
            if _is_product(line) and dirty.intersection(_touched(line)):
                found.add((number, k))
            dirty = _after(line, dirty, products)
    return frozenset(found)


def _after(line: Instruction, dirty: frozenset[str], products: set[str]) -> frozenset[str]:
    if line.parts[:2] == ("wgmma", "fence"):
        return frozenset()
    if _is_product(line):
        return dirty
    return dirty | products.intersection(results(line))
