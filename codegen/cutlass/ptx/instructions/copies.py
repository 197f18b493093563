"""cp.async and its groups: copies from global to shared memory, with zeros after the requested bytes; and bulk copies,
whose bytes are counted at an mbarrier."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from codegen.cutlass.ptx.instructions.access import bound_addresses, nothing, take
from codegen.cutlass.ptx.instructions.mbarrier_operations import bound_addresses_in_shared
from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.scalars import DTYPES, Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault, UnsupportedPtx
from codegen.cutlass.ptx.text.module import Immediate, PtxInstruction, Register


def _cp(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """cp.async and its groups."""
    words, operands = form.modifiers, instruction.operands
    need(bool(words) and words[0] == "async", instruction)
    match words[1:]:
        case ("commit_group",):
            return core.copies.commit
        case ("wait_all",):
            return partial(core.copies.wait, newest=None)
        case ("wait_group",):
            need(len(operands) == 1 and isinstance(operands[0], Immediate) and operands[0].value >= 0, instruction)
            assert isinstance(operands[0], Immediate)
            return partial(core.copies.wait, newest=operands[0].value)
        case ("bulk", "commit_group") | ("bulk", "wait_group") | ("bulk", "wait_group", "read"):
            return nothing  # bulk copies that are in groups are refused, so there are none to wait for
        case ("bulk", "shared::cluster" | "shared::cta", "global", "mbarrier::complete_tx::bytes"):
            return _bulk(instruction, core)
        case ("mbarrier", "arrive", *rest):
            return _arrive(instruction, tuple(rest), core)
        case ("ca" | "cg", "shared" | "shared::cta", "global"):
            need(len(operands) in (3, 4) and isinstance(operands[2], Immediate), instruction)
            return _issue(instruction, words[1], core)
    raise UnsupportedPtx(f"{instruction.opcode} is not executed")


def _arrive(instruction: PtxInstruction, words: tuple[str, ...], core: CtaBatch) -> Step:
    """cp.async.mbarrier.arrive{.noinc}{.shared}.b64: an arrival when the thread's copies so far have landed."""
    need(len(instruction.operands) == 1, instruction)
    spaces = tuple(word for word in words if word != "noinc")
    where = bound_addresses_in_shared(instruction.operands[0], spaces, core)
    return lambda active: core.mbarriers.arrive_by_copies(
        active, where(active), instruction.line, counted="noinc" in words
    )


def _bulk(instruction: PtxInstruction, core: CtaBatch) -> Step:
    """cp.async.bulk.shared.global.mbarrier::complete_tx::bytes [to], [from], bytes, [mbarrier]."""
    need(len(instruction.operands) == 4, instruction)
    to, origin, _, barrier = instruction.operands
    where, source = bound_addresses(to, core), bound_addresses(origin, core)
    size = core.registers.source(instruction.operands[2], "u32")
    object_of = bound_addresses_in_shared(barrier, ("shared",), core)

    def step(active: Active) -> None:
        targets, origins, sizes = where(active), source(active), take(size, active).astype(np.int64)
        if (sizes % BULK_UNIT != 0).any() or (sizes == 0).any():
            raise KernelFault(
                FaultKind.INVALID, f"a bulk copy of {int(sizes[0])} bytes: it must be a multiple of {BULK_UNIT}, not 0"
            )
        if ((targets.astype(np.uint64) | origins) % np.uint64(BULK_UNIT) != 0).any():
            raise KernelFault(FaultKind.MISALIGNED, f"a bulk copy from or to an address that no {BULK_UNIT} divides")
        units = [np.arange(0, count, BULK_UNIT).astype(np.uint64) for count in sizes]
        rows = [
            core.memory.gather(start + offsets, DTYPES["b32"], 4).view(np.uint8)
            for start, offsets in zip(origins, units, strict=True)
        ]
        core.mbarriers.copy_bulk(active, targets, rows, object_of(active), instruction.line)

    return step


def _issue(instruction: PtxInstruction, cache: str, core: CtaBatch) -> Step:
    to, origin = (bound_addresses(operand, core) for operand in instruction.operands[:2])
    size = instruction.operands[2]
    assert isinstance(size, Immediate)
    width = size.value
    need(width == 16 or (cache == "ca" and width in (4, 8)), instruction)
    fill: Array | None = None
    skip: tuple[Array, bool] | None = None
    if len(instruction.operands) == 4:
        last = instruction.operands[3]
        if isinstance(last, Register) and last.type == "pred":
            skip = core.registers.predicate(last)
        else:
            fill = core.registers.source(last, "u32")

    def step(active: Active) -> None:
        lanes = active.lanes
        sizes = np.full(lanes.size, width, np.int64) if fill is None else take(fill, active).astype(np.int64)
        if skip is not None:
            sizes = np.where(take(skip[0], active) != skip[1], 0, sizes)
        if (sizes > width).any():
            raise KernelFault(FaultKind.INVALID, f"a copy of {width} bytes reads {int(sizes.max())}")
        core.copies.issue(to(active), lanes, _copied(core, origin(active), sizes, width))

    return step


def _copied(core: CtaBatch, addresses: Array, sizes: Array, width: int) -> Array:
    """Copied bytes (n, width): as many as requested, followed by zeros."""
    if (addresses & np.uint64(width - 1)).any():
        raise KernelFault(
            FaultKind.MISALIGNED, f"cp.async copies {width} bytes from an address that is not a multiple of it"
        )
    if bool((sizes == width).all()):
        return core.memory.gather(addresses, DTYPES["b32"], width // 4).view(np.uint8)
    rows = np.zeros((sizes.size, width), np.uint8)
    for size in np.unique(sizes[sizes > 0]):
        chosen = np.flatnonzero(sizes == size)
        if size == width:
            rows[chosen] = core.memory.gather(addresses[chosen], DTYPES["b32"], width // 4).view(np.uint8)
            continue
        for byte in range(int(size)):
            rows[chosen, byte] = core.memory.gather(addresses[chosen] + np.uint64(byte), DTYPES["b8"], 1)[:, 0]
    return rows


BULK_UNIT: Final = 16
"""Bytes that size and addresses of a bulk copy are multiples of."""

ASYNC: Final = frozenset({
    "async", "commit_group", "wait_all", "wait_group", "ca", "cg", "shared", "shared::cta", "global",
    "mbarrier", "arrive", "noinc", "bulk", "read", "shared::cluster", "mbarrier::complete_tx::bytes",
})  # fmt: skip

COPIES: Final = (OpcodeRow("cp", _cp, ASYNC, frozenset({"*"})),)
