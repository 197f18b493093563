"""Matrix instructions of a whole warp: ldmatrix, stmatrix, mma.sync.

A fragment is a matrix of 8 x 8 fp16 numbers, one register per thread: thread t holds row t/4, columns 2(t%4) and
2(t%4)+1. mma m16n8k16: A is 2 x 2 fragments (registers down first), B is 2 (stored by columns), C and D are 2 of 8 x 8
numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from codegen.cutlass.ptx.instructions.access import bound_addresses
from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.state.active import WARP, Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.scalars import Array
from codegen.cutlass.ptx.text.errors import UnsupportedPtx
from codegen.cutlass.ptx.text.module import Operand, PtxInstruction, Vector

HALVES: Final = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""Every fp16 number as f32, by its bits: reading a table takes half the time of converting."""


def vector(operand: Operand, counts: tuple[int, ...], instruction: PtxInstruction) -> Vector:
    """The operand as a vector of one of these lengths, without sinks. Raises UnsupportedPtx for operands that are not a
    vector of registers."""
    if not isinstance(operand, Vector) or len(operand.items) not in counts or None in operand.items:
        raise UnsupportedPtx(f"{instruction.opcode} is not executed with these operands")
    return operand


def by_warps(register: Array, warps: Array, active: Active) -> Array:
    """A register by warp, for the active warps: (warps, 32)."""
    rows: Array = register.reshape(-1, WARP)
    return rows if active.full else rows[warps]


def put_warps(target: Array, values: Array, warps: Array, active: Active) -> None:
    """Write (warps, 32) values into a register."""
    if active.full:
        target.reshape(-1, WARP)[...] = values
    else:
        target.reshape(-1, WARP)[warps] = values


def from_fragments(registers: list[Array], down: int, warps: Array, active: Active) -> Array:
    """(warps, 8 down, 8 across) f32 from registers of fp16 pairs; fragments down first, then to the right."""
    words = np.empty((warps.size, down, 8, len(registers) // down, 4), np.uint32)
    for k, register in enumerate(registers):
        words[:, k % down, :, k // down] = by_warps(register, warps, active).reshape(-1, 8, 4)
    return HALVES.take(words.view(np.uint16)).reshape(warps.size, 8 * down, -1)


def numbers(registers: list[Array], warps: Array, active: Active) -> Array:
    """(warps, 16, 8 n) from 4 n registers of f32: left and right number of a pair in the upper, then in the lower
    rows."""
    values = np.empty((warps.size, 2, 8, len(registers) // 4, 4, 2), np.float32)
    for k, register in enumerate(registers):
        values[:, k // 2 % 2, :, k // 4, :, k % 2] = by_warps(register, warps, active).reshape(-1, 8, 4)
    return values.reshape(warps.size, 16, -1)


def put_numbers(targets: list[Array], values: Array, warps: Array, active: Active) -> None:
    """Write (warps, 16, 8 n) f32 into 4 n registers, the converse of `numbers`."""
    parts = values.reshape(warps.size, 2, 8, len(targets) // 4, 4, 2)
    for k, target in enumerate(targets):
        put_warps(target, parts[:, k // 2 % 2, :, k // 4, :, k % 2].reshape(-1, WARP), warps, active)


def to_fragments(values: Array) -> list[Array]:
    """(warps, 16, 8 n) f32 rounded to fp16: 2 n registers of (warps, 32) 32-bit words."""
    fp16 = values.astype(np.float16).reshape(values.shape[0], 2, 8, -1, 8)
    words = np.ascontiguousarray(fp16.transpose(3, 1, 0, 2, 4)).view(np.uint32)
    return list(words.reshape(-1, values.shape[0], WARP))


def _count(instruction: PtxInstruction, form: OpcodeForm) -> int:
    counts = [int(word[1]) for word in form.modifiers if word in ("x1", "x2", "x4")]
    needed = {"sync", "aligned", "m8n8"}
    need(len(counts) == 1 and needed <= set(form.modifiers) and form.types == ("b16",), instruction)
    return counts[0]


def _row_addresses(addresses: Array, active: Active, warps: Array, count: int) -> tuple[Array, Array]:
    """Addresses of the 8 `count` rows of each warp, from its first threads, and those threads."""
    lanes = (warps[:, None] * WARP + np.arange(8 * count)).reshape(-1)
    given = np.zeros(active.mask.size, addresses.dtype)
    given[active.lanes] = addresses
    return given[lanes], lanes


def _transposed(rows: Array) -> Array:
    """Matrices of 8 x 8 elements of 16 bits, a row in four numbers of 32 bits, with rows and columns exchanged."""
    return np.ascontiguousarray(rows.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)).view(np.uint32)


def _ldmatrix(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    count = _count(instruction, form)
    need(len(instruction.operands) == 2, instruction)
    targets = [
        core.registers.target(item, "b32") for item in vector(instruction.operands[0], (count,), instruction).items
    ]
    where = bound_addresses(instruction.operands[1], core)
    turned = "trans" in form.modifiers

    def step(active: Active) -> None:
        warps = active.whole_warps
        addresses, lanes = _row_addresses(where(active), active, warps, count)
        rows = core.shared.gather_lanes(addresses, lanes, np.dtype(np.uint32), 4)
        if turned:
            rows = _transposed(rows)
        words = rows.reshape(warps.size, count, WARP)
        for k, target in enumerate(targets):
            put_warps(target, words[:, k], warps, active)

    return step


def _stmatrix(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    count = _count(instruction, form)
    need(len(instruction.operands) == 2, instruction)
    sources = [
        core.registers.source(item, "b32") for item in vector(instruction.operands[1], (count,), instruction).items
    ]
    where = bound_addresses(instruction.operands[0], core)
    turned = "trans" in form.modifiers

    def step(active: Active) -> None:
        warps = active.whole_warps
        addresses, lanes = _row_addresses(where(active), active, warps, count)
        words = np.empty((warps.size, count, WARP), np.uint32)
        for k, source in enumerate(sources):
            words[:, k] = by_warps(source, warps, active)
        if turned:
            words = _transposed(words)
        core.shared.scatter_lanes(addresses, lanes, words.reshape(-1, 4))

    return step


def _mma(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    shape = [word for word in form.modifiers if word in ("m16n8k16", "m16n8k8")]
    needed = {"sync", "aligned", "row", "col"}
    need(len(shape) == 1 and needed <= set(form.modifiers) and len(instruction.operands) == 4, instruction)
    if form.types not in (("f32", "f16", "f16", "f32"), ("f16", "f16", "f16", "f16")):
        raise UnsupportedPtx(f"{instruction.opcode} is not executed: only fp16 operands with sums of one type are")
    steps = 2 if shape[0] == "m16n8k16" else 1
    single = form.types[0] == "f32"
    results = 4 if single else 2
    d, a, b, c = (
        vector(operand, (count,), instruction)
        for operand, count in zip(instruction.operands, (results, 2 * steps, steps, results), strict=True)
    )
    kind = "f32" if single else "b32"
    targets = [core.registers.target(item, kind) for item in d.items]
    left = [core.registers.source(item, "b32") for item in a.items]
    right = [core.registers.source(item, "b32") for item in b.items]
    start = [core.registers.source(item, kind) for item in c.items]
    macs = 16 * 8 * 8 * steps

    def step(active: Active) -> None:
        warps = active.whole_warps
        first = from_fragments(left, 2, warps, active)
        second = from_fragments(right, 1, warps, active)
        product = np.matmul(first, second.transpose(0, 2, 1))
        core.counts["macs"] += macs * warps.size
        if single:
            product += numbers(start, warps, active)
            put_numbers(targets, product, warps, active)
            return
        product += from_fragments(start, 2, warps, active)
        for target, words in zip(targets, to_fragments(product), strict=True):
            put_warps(target, words, warps, active)

    return step


LAYOUT: Final = frozenset({"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"})

MATRIX: Final = (
    OpcodeRow("ldmatrix", _ldmatrix, LAYOUT, types=frozenset({"b16"})),
    OpcodeRow("stmatrix", _stmatrix, LAYOUT, types=frozenset({"b16"})),
    OpcodeRow(
        "mma",
        _mma,
        frozenset({"sync", "aligned", "m16n8k16", "m16n8k8", "row", "col"}),
        types=frozenset({"f16", "f32"}),
    ),
)
