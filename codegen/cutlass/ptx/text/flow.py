"""Control flow of a kernel: basic blocks, and the blocks where diverged threads meet again.

A block ends at a branch, at a return, before a label, and after an instruction at which a warp may have to wait for
others (a barrier). Threads that diverge at a branch run separately until its immediate post-dominator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.cutlass.ptx.text.errors import PtxError, UnsupportedPtx
from codegen.cutlass.ptx.text.module import CodeLabel, PtxInstruction, PtxKernel, Register, SymbolOperand

EXIT = -1
"""Block number of the end of every thread."""

ENDS = frozenset({"bra", "brx", "ret", "exit"})
MOST_PASSES = 64
WAITS = frozenset({"bar", "barrier"})


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block. `steps` are its instructions without the branch; `end` is the branch, return or barrier, None
    where it falls through.

    `successors` are block numbers: (fall-through,), (taken, fall-through) of a guarded branch, the targets of a
    `brx.idx`; EXIT is the end. `meets` is the immediate post-dominator.
    """

    number: int
    steps: tuple[PtxInstruction, ...]
    end: PtxInstruction | None
    successors: tuple[int, ...]
    meets: int = EXIT


def waits(instruction: PtxInstruction) -> bool:
    """Whether a warp may have to wait for others here (`bar.warp` waits within a warp only)."""
    parts = instruction.parts
    if parts[0] == "mbarrier":
        return parts[1:2] in (("test_wait",), ("try_wait",))
    return parts[0] in WAITS and "warp" not in parts and "arrive" not in parts


def blocks_of(kernel: PtxKernel) -> tuple[Block, ...]:
    """The blocks in the order of the text, the first one being the entry. Raises PtxError for unknown labels."""
    pieces, labels = _pieces(kernel)
    tables = {mark.name: mark for mark in kernel.body if isinstance(mark, CodeLabel) and mark.targets}
    found = []
    for number, piece in enumerate(pieces):
        after = number + 1 if number + 1 < len(pieces) else EXIT
        last = piece[-1] if piece else None
        if last is None or not (last.parts[0] in ENDS or waits(last)):
            found.append(Block(number, tuple(piece), None, (after,)))
            continue
        successors = _successors(last, after, labels, tables, kernel.name)
        found.append(Block(number, tuple(piece[:-1]), last, successors))
    meets = _post_dominators([block.successors for block in found])
    return tuple(Block(block.number, block.steps, block.end, block.successors, meets[block.number]) for block in found)


def _pieces(kernel: PtxKernel) -> tuple[list[list[PtxInstruction]], dict[str, int]]:
    """Straight pieces of the body, and the piece at which each label points."""
    pieces: list[list[PtxInstruction]] = [[]]
    labels: dict[str, int] = {}
    for item in kernel.body:
        if isinstance(item, CodeLabel):
            if item.targets:
                continue
            if pieces[-1]:
                pieces.append([])
            if item.name in labels:
                raise PtxError(f"label {item.name} is defined twice", kernel=kernel.name, line=item.line)
            labels[item.name] = len(pieces) - 1
            continue
        if item.parts[0] == "mbarrier" and waits(item) and pieces[-1]:
            pieces.append([])  # a block of its own, since a thread that waits there asks again
        pieces[-1].append(item)
        if item.parts[0] in ENDS or waits(item):
            pieces.append([])
    return pieces, labels


def _successors(
    last: PtxInstruction, after: int, labels: dict[str, int], tables: dict[str, CodeLabel], kernel: str
) -> tuple[int, ...]:
    def place(name: str) -> int:
        known = _visible(name, labels)
        if known is None:
            raise PtxError(f"label {name.split('@')[0]} is not defined", kernel=kernel, line=last.line)
        return labels[known]

    match last.parts[0], last.operands:
        case "bra", (SymbolOperand(name),):
            return (place(name), after) if last.guard else (place(name),)
        case "brx", (Register(), SymbolOperand(name)) if (
            last.guard is None and (known := _visible(name, tables)) is not None
        ):
            return tuple(place(target) for target in tables[known].targets)
        case "ret" | "exit", ():
            return (EXIT, after) if last.guard else (EXIT,)
        case (("bar" | "barrier" | "mbarrier"), _):
            return (after,)
    raise UnsupportedPtx(f"{last.opcode} is not executed with these operands", kernel=kernel, line=last.line)


def _visible(name: str, known: Mapping[str, object]) -> str | None:
    """The name in the innermost scope that has it: `x@1@4`, then `x@1`, then `x`."""
    while name not in known:
        name, at, _ = name.rpartition("@")
        if not at:
            return None
    return name


def _post_dominators(successors: list[tuple[int, ...]]) -> list[int]:
    """The immediate post-dominator of each block; EXIT for blocks from which only the end is reached."""
    order = _leaving_order(successors)
    place = {block: k for k, block in enumerate(order)}
    immediate: dict[int, int] = {EXIT: EXIT}
    changed, passes = True, 0
    while changed:
        changed, passes = False, passes + 1
        if passes > MOST_PASSES:
            raise PtxError(f"the control flow between its {len(successors)} blocks is too complex to analyse")
        for block in order:
            known = [s for s in successors[block] if s in immediate]
            if not known:
                continue
            meet = known[0]
            for other in known[1:]:
                meet = _common(meet, other, immediate, place)
            if immediate.get(block) != meet:
                immediate[block] = meet
                changed = True
    return [immediate.get(block, EXIT) for block in range(len(successors))]


def _common(a: int, b: int, immediate: dict[int, int], place: dict[int, int]) -> int:
    """The nearest block that post-dominates both; blocks nearer to the end have smaller places."""

    def rank(block: int) -> int:
        return -1 if block == EXIT else place[block]

    while a != b:
        if rank(a) > rank(b):
            a = immediate[a]
        else:
            b = immediate[b]
    return a


def _leaving_order(successors: list[tuple[int, ...]]) -> list[int]:
    """Reverse post-order of the reversed graph from the end: each block comes after its successors, loops aside."""
    backward: dict[int, list[int]] = {}
    for block, targets in enumerate(successors):
        for target in targets:
            backward.setdefault(target, []).append(block)
    seen, done = {EXIT}, []
    stack = [(EXIT, iter(backward.get(EXIT, ())))]
    while stack:
        block, rest = stack[-1]
        for nearer in rest:
            if nearer not in seen:
                seen.add(nearer)
                stack.append((nearer, iter(backward.get(nearer, ()))))
                break
        else:
            stack.pop()
            done.append(block)
    return [block for block in reversed(done) if block != EXIT]
