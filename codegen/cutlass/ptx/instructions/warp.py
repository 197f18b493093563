"""Instructions of the threads of a warp together: shuffles, votes, reductions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.state.active import WARP, Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.scalars import DTYPES, Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault, UnsupportedPtx
from codegen.cutlass.ptx.text.module import Operand, PtxInstruction, Vector

LANE: Final = np.arange(WARP)


def members(active: Active, mask: Array) -> Array:
    """Check a member mask: all threads that it names are here, and all name the same mask. Return the active threads.

    Raises KernelFault where a thread that the mask names runs elsewhere or not at all, or is not named itself.
    """
    lanes = active.lanes
    named = np.broadcast_to(mask, active.mask.size) if mask.size == 1 else mask
    by_warp = active.mask.reshape(-1, WARP)
    here = (by_warp.astype(np.uint32) << LANE.astype(np.uint32)).sum(axis=1, dtype=np.uint32)
    masks, present = named[lanes], here[lanes >> 5]
    missing = masks & ~present
    if missing.any():
        k = int(np.flatnonzero(missing)[0])
        raise KernelFault(
            FaultKind.DIVERGENCE,
            f"the mask {int(masks[k]):#010x} names threads that are not here, which are {int(present[k]):#010x}",
        )
    if (masks >> (lanes & 31).astype(np.uint32) & 1 == 0).any():
        raise KernelFault(FaultKind.DIVERGENCE, "a thread executes this that its own mask does not name")
    return lanes


def _sync_mask(operand: Operand, core: CtaBatch) -> Array:
    return core.registers.source(operand, "u32")


def _shfl(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    operands = instruction.operands
    need(len(operands) == 5 and len(form.modifiers) == 2 and form.modifiers[0] == "sync", instruction)
    mode = form.modifiers[1]
    need(mode in ("idx", "up", "down", "bfly"), instruction)
    first, second = operands[0], None
    if isinstance(first, Vector):
        need(first.pair, instruction)
        first, second = first.items
    target = core.registers.target(first, "b32") if first is not None else None
    found = core.registers.target(second, "pred") if second is not None else None
    value, other, clamp = (core.registers.source(operand, "u32") for operand in operands[1:4])
    mask = _sync_mask(operands[4], core)

    def step(active: Active) -> None:
        lanes = members(active, mask)
        lane = lanes & 31
        b = (other if other.size == 1 else other[lanes]).astype(np.int64) & 31
        c = (clamp if clamp.size == 1 else clamp[lanes]).astype(np.int64)
        limit, segment = c & 31, c >> 8 & 31
        highest = (lane & segment) | (limit & ~segment)
        lowest = lane & segment
        match mode:
            case "idx":
                source = lowest | (b & ~segment)
                inside = source <= highest
            case "up":
                source = lane - b
                inside = source >= highest
            case "down":
                source = lane + b
                inside = source <= highest
            case _:
                source = lane ^ b
                inside = source <= highest
        source = np.where(inside, source, lane) + (lanes & ~31)
        outside = ~active.mask[source]
        if outside.any():
            raise KernelFault(FaultKind.DIVERGENCE, "a shuffle reads a thread that does not execute it")
        result = np.broadcast_to(value, active.mask.size)[source] if value.size == 1 else value[source]
        if target is not None:
            active.put(target, result)
        if found is not None:
            active.put(found, inside)

    return step


def _vote(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    need(len(instruction.operands) == 3 and len(form.modifiers) == 2 and form.modifiers[0] == "sync", instruction)
    mode = form.modifiers[1]
    need(mode in ("any", "all", "uni", "ballot"), instruction)
    target = core.registers.target(instruction.operands[0], "b32" if mode == "ballot" else "pred")
    predicate, negated = core.registers.predicate(instruction.operands[1])
    mask = _sync_mask(instruction.operands[2], core)

    def step(active: Active) -> None:
        lanes = members(active, mask)
        votes = np.zeros(active.mask.size, np.bool_)
        votes[lanes] = (predicate if predicate.size == 1 else predicate[lanes]) != negated
        bits = (votes.reshape(-1, WARP).astype(np.uint32) << LANE.astype(np.uint32)).sum(axis=1, dtype=np.uint32)
        named = mask if mask.size == 1 else mask[lanes]
        yes = bits[lanes >> 5] & named
        match mode:
            case "ballot":
                active.put(target, yes)
            case "any":
                active.put(target, yes != 0)
            case "all":
                active.put(target, yes == named)
            case _:
                active.put(target, (yes == 0) | (yes == named))

    return step


REDUCE: Final[dict[str, Any]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _redux(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    need(len(instruction.operands) == 3 and len(form.modifiers) == 2 and len(form.types) == 1, instruction)
    need(form.modifiers[0] == "sync" and form.modifiers[1] in REDUCE, instruction)
    function = REDUCE[form.modifiers[1]]
    kind = form.types[0]
    target = core.registers.target(instruction.operands[0], kind)
    source = core.registers.source(instruction.operands[1], kind)
    mask = _sync_mask(instruction.operands[2], core)

    def step(active: Active) -> None:
        lanes = members(active, mask)
        values = np.broadcast_to(source, active.mask.size)[lanes]
        keys = (lanes >> 5).astype(np.uint64) << np.uint64(32) | np.broadcast_to(mask, active.mask.size)[lanes]
        groups, member = np.unique(keys, return_inverse=True)
        result = np.empty(groups.size, DTYPES[kind])
        for group in range(groups.size):
            result[group] = function.reduce(values[member == group], dtype=DTYPES[kind])
        active.put(target, result[member])

    return step


def _activemask(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    del form
    need(len(instruction.operands) == 1, instruction)
    target = core.registers.target(instruction.operands[0], "b32")

    def step(active: Active) -> None:
        bits = active.mask.reshape(-1, WARP).astype(np.uint32) << LANE.astype(np.uint32)
        active.put(target, np.repeat(bits.sum(axis=1, dtype=np.uint32), WARP)[active.lanes])

    return step


def _elect(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """Elect the lowest thread of the mask."""
    need(form.modifiers == ("sync",) and len(instruction.operands) == 2, instruction)
    pair = instruction.operands[0]
    if not isinstance(pair, Vector) or not pair.pair:
        raise UnsupportedPtx(f"{instruction.opcode} is not executed with these operands")
    target = core.registers.target(pair.items[0], "b32") if pair.items[0] is not None else None
    chosen = core.registers.target(pair.items[1], "pred")
    mask = _sync_mask(instruction.operands[1], core)

    def step(active: Active) -> None:
        lanes = members(active, mask)
        named = np.broadcast_to(mask, active.mask.size)[lanes]
        leader = np.bitwise_count((named & -named.astype(np.int64)) - 1).astype(np.int64)
        if target is not None:
            active.put(target, leader)
        active.put(chosen, leader == (lanes & 31))

    return step


WARPS: Final = (
    OpcodeRow("shfl", _shfl, frozenset({"sync", "idx", "up", "down", "bfly"}), types=frozenset({"b32"})),
    OpcodeRow("vote", _vote, frozenset({"sync", "any", "all", "uni", "ballot"})),
    OpcodeRow("redux", _redux, frozenset({"sync", *REDUCE}), types=frozenset({"u32", "s32", "b32"})),
    OpcodeRow("activemask", _activemask, types=frozenset({"b32"})),
    OpcodeRow("elect", _elect, frozenset({"sync"})),
)
