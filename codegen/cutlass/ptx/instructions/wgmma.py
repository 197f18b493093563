"""wgmma: products of 64 x 16 by 16 x n of four warps together, from shared memory (A also from registers).

Descriptors must be the same in all threads; every read is checked like any other read of shared memory.

    64-bit descriptor: start >> 4 (bits 0-13), leading offset >> 4 (16-29), stride offset >> 4 (32-45), base (49-51),
    swizzle (62-63: 0 none, 1 of 128 bytes, 2 of 64, 3 of 32)

Matrices are read in units of 16 bytes. K-major: a unit is 8 numbers along K of one row; MN-major: 8 rows at one K. A
swizzle exchanges units within the 128 (64, 32) bytes of a row by the bits 7-9 (7-8, 7) of the address itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from codegen.cutlass.ptx.instructions.matrix import from_fragments, numbers, to_fragments, vector
from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.state.active import WARP, Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.in_flight import Sums
from codegen.cutlass.ptx.state.scalars import POISON, Array
from codegen.cutlass.ptx.state.shared_memory import SHARED_BASE
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault, UnsupportedPtx
from codegen.cutlass.ptx.text.module import Immediate, Operand, PtxInstruction, Register, Vector

GROUP: Final = 4
ROWS: Final = 64
WINDOW_BITS: Final = 18
UNITS_OF: Final = {0: 1, 1: 8, 2: 4, 3: 2}
"""Number of units in a row of each swizzle."""

K: Final = 16


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A decoded descriptor, in bytes; `swizzle` is the code."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @staticmethod
    def decode(bits: int) -> Descriptor:
        """Decode a descriptor. Raises KernelFault for a base offset, which the executor lacks."""
        if bits >> 49 & 7:
            raise KernelFault(
                FaultKind.INVALID, f"descriptor {bits:#x} has a base offset: matrices are aligned to 1024 bytes here"
            )
        return Descriptor((bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, bits >> 62)


def units(descriptor: Descriptor, rows: int, *, k_major: bool) -> Array:
    """Addresses of the units of a matrix of `rows` x 16 fp16 numbers: (rows, 2) if K-major, (rows / 8, 16) if
    MN-major."""
    wide = UNITS_OF[descriptor.swizzle]
    if k_major:
        row, unit = np.arange(rows)[:, None], np.arange(K // 8)[None, :]
        across = descriptor.leading if descriptor.swizzle == 0 else 16
        offsets = row // 8 * descriptor.stride + row % 8 * 16 * wide + unit * across
    else:
        unit, k = np.arange(rows // 8)[:, None], np.arange(K)[None, :]
        far, down = descriptor.leading, descriptor.stride
        if descriptor.swizzle == 0:
            far, down = down, far
        offsets = unit % wide * 16 + unit // wide * far + k % 8 * 16 * wide + k // 8 * down
    addresses: Array = descriptor.start + offsets
    swizzled: Array = addresses ^ (addresses >> 7 & wide - 1) << 4
    return swizzled


def _groups(active: Active, core: CtaBatch) -> Array:
    """Warps of each group, (groups, 4). Raises KernelFault where a group of four warps is not complete."""
    warps = active.whole_warps
    local = warps % core.warps_per_cta
    whole = warps.size % GROUP == 0 and bool((local.reshape(-1, GROUP) % GROUP == np.arange(GROUP)).all())
    if not whole:
        raise KernelFault(FaultKind.DIVERGENCE, "wgmma needs all four warps of a warp group, or none")
    return warps.reshape(-1, GROUP)


def _uniform(values: Array, groups: Array, what: str) -> Array:
    """One value per group. Raises KernelFault where threads of a group differ."""
    if values.size == 1:
        return np.broadcast_to(values, groups.shape[0])
    by_group = values.reshape(-1, WARP)[groups].reshape(groups.shape[0], -1)
    if (by_group != by_group[:, :1]).any():
        raise KernelFault(FaultKind.INVALID, f"{what} differs between the threads of a warp group")
    first: Array = by_group[:, 0]
    return first


def _descriptors(values: Array, groups: Array, what: str) -> Array:
    """One descriptor per group. Raises KernelFault where threads differ, and for fields that descriptors may not
    have."""
    found = _uniform(values, groups, what)
    for bits in np.unique(found):
        Descriptor.decode(int(bits))
    return found


def _flag(operand: Operand, instruction: PtxInstruction, allowed: tuple[int, ...]) -> int:
    if not isinstance(operand, Immediate) or operand.value not in allowed:
        raise UnsupportedPtx(f"{instruction.opcode} is not executed with these operands")
    return operand.value


def _from_shared(core: CtaBatch, descriptors: Array, groups: Array, rows: int, *, k_major: bool) -> Array:
    """Matrices (groups, rows, 16) f32 to which descriptors point. Raises KernelFault."""
    matrices = np.empty((groups.shape[0], rows, 16), np.float32)
    shared = core.shared
    for bits in np.unique(descriptors):
        chosen = np.flatnonzero(descriptors == bits)
        addresses = units(Descriptor.decode(int(bits)), rows, k_major=k_major) & (1 << WINDOW_BITS) - 1
        offsets = shared.check(addresses.reshape(-1) - SHARED_BASE, 16, "wgmma reads")
        places = offsets + shared.start_of_warps(groups[chosen, 0])[:, None]
        for warp in range(GROUP):
            readers = np.repeat(groups[chosen, warp], offsets.size)
            core.matrix.reads(shared.cells(places.reshape(-1), 16), readers)
        fp16 = shared.data.view(np.float16).reshape(-1, 8)[places // 16].reshape(chosen.size, *addresses.shape, 8)
        if k_major:
            matrices[chosen] = fp16.reshape(chosen.size, rows, 16)
        else:
            matrices[chosen] = fp16.transpose(0, 1, 3, 2).reshape(chosen.size, rows, 16)
    return matrices


def _mma_async(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    shapes = [word for word in form.modifiers if word.startswith("m64n")]
    need({"sync", "aligned"} <= set(form.modifiers) and len(shapes) == 1, instruction)
    need(form.types in (("f32", "f16", "f16"), ("f16", "f16", "f16")), instruction)
    columns = int(shapes[0][4:-3])
    single = form.types[0] == "f32"
    operands = instruction.operands
    in_registers = len(operands) > 1 and isinstance(operands[1], Vector)
    need(len(operands) == (7 if in_registers else 8), instruction)
    d = vector(operands[0], (columns // 2 if single else columns // 4,), instruction)
    targets = [core.registers.target(item, "f32" if single else "b32") for item in d.items]
    names = tuple(item.name for item in d.items if isinstance(item, Register))
    need(len(set(names)) == len(targets), instruction)
    left: list[Array] = []
    descriptor_a = np.zeros(1, np.uint64)
    if in_registers:
        left = [core.registers.source(item, "b32") for item in vector(operands[1], (4,), instruction).items]
    else:
        descriptor_a = core.registers.source(operands[1], "u64")
    descriptor_b = core.registers.source(operands[2], "u64")
    keep, negated = core.registers.predicate(operands[3])
    sign = _flag(operands[4], instruction, (1, -1)) * _flag(operands[5], instruction, (1, -1))
    turned = [_flag(operand, instruction, (0, 1)) for operand in operands[6:]]
    a_turned, b_turned = (0, turned[0]) if in_registers else (turned[0], turned[1])

    def step(active: Active) -> None:
        groups = _groups(active, core)
        warps = groups.reshape(-1)
        sums = core.matrix.of(names, targets, columns)
        start = _start(sums, warps, active, single=single)
        uniform_a = _descriptors(descriptor_a, groups, "the descriptor of A")
        uniform_b = _descriptors(descriptor_b, groups, "the descriptor of B")
        if in_registers:
            first = from_fragments(left, 2, warps, active).reshape(-1, ROWS, 16)
        else:
            first = _from_shared(core, uniform_a, groups, ROWS, k_major=not a_turned)
        second = _from_shared(core, uniform_b, groups, columns, k_major=not b_turned)
        product = np.matmul(first, second.transpose(0, 2, 1)) * np.float32(sign)
        added = _uniform(keep != negated, groups, "scale-d")
        start = np.where(np.repeat(added, GROUP)[:, None, None], start, np.float32(0))
        sums.values[warps] = start + product.reshape(-1, 16, columns)
        sums.flying[warps] = True
        sums.groups[warps] = core.matrix.committed[warps]
        for target in targets:
            target.view(np.uint8).reshape(-1, 4 * WARP)[warps] = POISON
        core.counts["macs"] += ROWS * 16 * columns * groups.shape[0]

    return step


def _start(sums: Sums, warps: Array, active: Active, *, single: bool) -> Array:
    """Sums (warps, 16, columns) to continue from: those in flight, or those in the registers."""
    flying = sums.flying[warps]
    if flying.all():
        values: Array = sums.values[warps]
        return values
    held = numbers(sums.registers, warps, active) if single else from_fragments(sums.registers, 2, warps, active)
    return np.where(flying[:, None, None], sums.values[warps], held)


def _wait(instruction: PtxInstruction, core: CtaBatch) -> Step:
    operands = instruction.operands
    need(len(operands) == 1 and isinstance(operands[0], Immediate) and operands[0].value >= 0, instruction)
    assert isinstance(operands[0], Immediate)
    newest = operands[0].value

    def step(active: Active) -> None:
        _groups(active, core)
        for sums, warps in core.matrix.landed(active, newest):
            values = sums.values[warps]
            if sums.registers[0].dtype == np.float32:
                parts = values.reshape(warps.size, 2, 8, len(sums.registers) // 4, 4, 2)
                for k, register in enumerate(sums.registers):
                    register.reshape(-1, WARP)[warps] = parts[:, k // 2 % 2, :, k // 4, :, k % 2].reshape(-1, WARP)
            else:
                for register, words in zip(sums.registers, to_fragments(values), strict=True):
                    register.reshape(-1, WARP)[warps] = words

    return step


def _build(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    need({"sync", "aligned"} <= set(form.modifiers), instruction)
    match form.modifiers[0]:
        case "mma_async":
            return _mma_async(instruction, form, core)
        case "commit_group":
            return core.matrix.commit
        case "wait_group":
            return _wait(instruction, core)
        case "fence":

            def fence(active: Active) -> None:
                _groups(active, core)

            return fence
    raise UnsupportedPtx(f"{instruction.opcode} is not executed")


SHAPES: Final = frozenset(f"m64n{columns}k16" for columns in range(8, 257, 8))

WGMMA: Final = (
    OpcodeRow(
        "wgmma",
        _build,
        SHAPES | {"mma_async", "commit_group", "wait_group", "fence", "sync", "aligned"},
        types=frozenset({"f16", "f32"}),
    ),
)
