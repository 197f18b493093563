"""The vector engine's instructions: legality in the chip's order, then the arithmetic of `vme` on views.

Shapes and strides come from `shape_s1`, `stride_s`, `stride_d`. Of the direction field {dmc, dm} only dm selects:
0 down the columns ("h"), 1 along the rows ("w"); reductions with both bits 0 give one fp32 in an FPR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.simulator.arithmetic import fp16, vme
from codegen.neuralscale.simulator.core.operands import (
    MatrixOperand,
    check_access,
    check_base,
    check_shape,
    check_source_stride,
    check_target_stride,
    check_vtype,
)
from codegen.neuralscale.simulator.engines.issued import IssuedInstruction
from codegen.neuralscale.simulator.memory.faults import SimulationFault
from codegen.neuralscale.simulator.memory.memory import IM, L1, window_of

_TABLE_BYTES: Final = 0x1_0000


Execute = Callable[[IssuedInstruction], None]
Fp16Bits = NDArray[np.uint16]


def _checked(
    issue: IssuedInstruction, source: MatrixOperand, target: MatrixOperand, between: tuple[MatrixOperand, ...] = ()
) -> None:
    """Run the checks shared by the forms with one matrix source; `between` are further sources, without stride."""
    check_base(source, *between, target)
    check_shape(issue.columns, issue.rows)
    if issue.rows > 1:
        check_source_stride(source)
        check_target_stride(target)
    check_access(source)
    for matrix in between:
        check_access(matrix)


def _mm(compute: Callable[[Fp16Bits, Fp16Bits], Fp16Bits]) -> Execute:
    def execute(issue: IssuedInstruction) -> None:
        first, second, target = issue.source(), issue.second(), issue.target()
        check_base(first, second, target)
        check_shape(issue.columns, issue.rows)
        if issue.rows > 1:
            check_source_stride(first)
            check_source_stride(second)
            check_target_stride(target)
        check_access(first)
        check_access(second)
        check_access(target)
        issue.operands.fill(target, compute, first, second)

    return execute


def _mv(compute: Callable[[Any, Fp16Bits], Fp16Bits], item: int = 2) -> Execute:
    def execute(issue: IssuedInstruction) -> None:
        source, target = issue.source(item), issue.target()
        address = int(issue.hart.x[issue.rs2])
        vector = issue.vector(address, per_row=bool(issue.dm))
        _checked(issue, source, target, (vector,))
        check_access(target)
        # The int32 form computes with `columns` elements although it has dm = 1.
        used = vector if item == 2 else issue.vector(address, per_row=False)
        issue.operands.fill(target, compute, source, used)

    return execute


def _mf(compute: Callable[[Any, np.uint16], NDArray[Any]], source_item: int = 2, target_item: int = 2) -> Execute:
    def execute(issue: IssuedInstruction) -> None:
        source, target = issue.source(source_item), issue.target(target_item)
        _checked(issue, source, target)
        check_access(target)
        scalar = issue.scalar(issue.rs2)
        issue.operands.fill(target, lambda values: compute(values, scalar), source)

    return execute


def _m(compute: Callable[[Any], NDArray[Any]], source_item: int = 2, target_item: int = 2) -> Execute:
    def execute(issue: IssuedInstruction) -> None:
        source, target = issue.source(source_item), issue.target(target_item)
        _checked(issue, source, target)
        # With a stride, the chip's model measures the destination's last row in source elements.
        size = target.stride * (issue.rows - 1) + issue.columns * source_item if target.stride else None
        check_access(target, size_bytes=size)
        kind = np.int8 if compute is vme.hf_from_x8 else None
        issue.operands.fill(target, compute, source, dtype=kind)

    return execute


Direction = Literal["h", "w", "full"]


def _reduce(
    issue: IssuedInstruction,
    sources: tuple[MatrixOperand, ...],
    strided: int,
    compute: Callable[[Direction], Fp16Bits],
    *,
    full: bool,
) -> None:
    """Check and run a reduction; the first `strided` sources have a stride to check."""
    target = issue.target()
    check_base(*sources, *(() if full else (target,)))
    check_shape(issue.columns, issue.rows)
    if issue.rows > 1:
        for source in sources[:strided]:
            check_source_stride(source)
        if issue.dm and not full:
            check_target_stride(MatrixOperand(target.address, issue.rows, 1, 2, issue.stride_d))
    for source in sources:
        check_access(source)
    if full:
        issue.hart.set_f32(issue.rd, fp16.to_f32_bits(int(compute("full")[0])))
        return
    if issue.dm:
        check_access(target, size_bytes=issue.rows * 2)
        result = MatrixOperand(target.address, issue.rows, 1, 2, issue.stride_d)
        _stay_inside(result)
        issue.operands.write(result, compute("w")[:, None], *sources)
    else:
        result = MatrixOperand(target.address, 1, issue.columns)
        check_access(result)
        issue.operands.write(result, compute("h")[None, :], *sources)


def _stay_inside(result: MatrixOperand) -> None:
    """Check that a strided column of results stays inside: the chip checks it as if it were contiguous, and no memory
    lies past the end."""
    end = result.address + result.pitch * (result.rows - 1) + 2
    memory = next(window for window in (L1, IM) if window.holds(result.address))
    if end > memory.base + memory.size_bytes:
        raise SimulationFault("range", f"writes results past the end of {memory.name}, up to {end:#x}")


def _reduce_m(compute: Callable[[Fp16Bits, Direction], Fp16Bits]) -> Execute:
    def execute(issue: IssuedInstruction) -> None:
        source = issue.source()
        full = not issue.dm and not issue.dmc
        _reduce(issue, (source,), 1, lambda direction: compute(issue.operands.read(source), direction), full=full)

    return execute


def _veemacc_mm(issue: IssuedInstruction) -> None:
    first, second = issue.source(), issue.second()

    def compute(direction: Direction) -> Fp16Bits:
        return vme.multiply_accumulate(issue.operands.read(first), issue.operands.read(second), direction)

    _reduce(issue, (first, second), 2, compute, full=not issue.dm and not issue.dmc)


def _veemacc_mv(issue: IssuedInstruction) -> None:
    source = issue.source()
    vector = issue.vector(int(issue.hart.x[issue.rs2]), per_row=not issue.dm)  # the opposite direction from elsewhere

    def compute(direction: Direction) -> Fp16Bits:
        return vme.multiply_accumulate(issue.operands.read(source), issue.operands.read(vector), direction)

    _reduce(issue, (source, vector), 1, compute, full=False)


def _veemacc_mf(issue: IssuedInstruction) -> None:
    source = issue.source()

    def compute(direction: Direction) -> Fp16Bits:
        return vme.multiply_accumulate(issue.operands.read(source), issue.scalar(issue.rs2), direction)

    _reduce(issue, (source,), 1, compute, full=False)


def _velut(issue: IssuedInstruction) -> None:
    source, target = issue.source(), issue.target()
    table = MatrixOperand(int(issue.hart.x[issue.rs2]), 1, _TABLE_BYTES // 2)
    _checked(issue, source, target, (table,))
    check_access(target)
    indices = issue.operands.read(source)
    reach = table.address + 2 * int(indices.max()) + 2
    memory = window_of(table.address)
    if memory is None or reach > memory.base + memory.size_bytes:
        raise SimulationFault("range", f"velut.m reads its table up to {reach:#x}, past the end of its memory")
    values = issue.operands.lookup(table.address, indices)
    issue.operands.write(target, values, source)


def _mov_f(issue: IssuedInstruction) -> None:
    target = issue.target()
    check_base(target)
    check_shape(issue.columns, issue.rows)
    if issue.rows > 1:
        check_target_stride(target)
    check_access(target)
    issue.operands.write(target, issue.scalar(issue.rs1))


def _mov_v(issue: IssuedInstruction) -> None:
    source = issue.vector(int(issue.hart.x[issue.rs1]), per_row=bool(issue.dm))
    target = issue.target()
    check_base(source, target)
    check_shape(issue.columns, issue.rows)
    if issue.rows > 1:
        check_target_stride(target)
    check_access(source)
    check_access(target)
    issue.operands.fill(target, np.copy, source)


def _binary_forms(mnemonic: str, operation: vme.Operation) -> dict[str, Execute]:
    def compute(a: Fp16Bits, b: Fp16Bits | np.uint16) -> Fp16Bits:
        return vme.binary(operation, a, b)

    return {f"{mnemonic}.mm": _mm(compute), f"{mnemonic}.mv": _mv(compute), f"{mnemonic}.mf": _mf(compute)}


VECTOR: Final[dict[str, Execute]] = {
    **_binary_forms("veadd", "add"),
    **_binary_forms("vesub", "sub"),
    **_binary_forms("veemul", "mul"),
    **_binary_forms("vemax", "max"),
    **_binary_forms("vemin", "min"),
    "velkrelu.mf": _mf(vme.leaky_relu_mf),
    "velkrelu.mv": _mv(vme.leaky_relu_mv),
    "veacc.m": _reduce_m(vme.accumulate),
    "vemax.m": _reduce_m(vme.maximum),
    "vemin.m": _reduce_m(vme.minimum),
    "veemacc.mm": _veemacc_mm,
    "veemacc.mv": _veemacc_mv,
    "veemacc.mf": _veemacc_mf,
    "veemul.x32.mv": _mv(vme.mul_x32, item=4),
    "veemul.x32.mf": _mf(vme.mul_x32, source_item=4),
    "veemul.x8.hf.mf": _mf(vme.mul_x8_hf, target_item=1),
    "vecvt.hf.x8.m": _m(vme.hf_from_x8, source_item=1),
    "vecvt.hf.xu8.m": _m(vme.hf_from_xu8, source_item=1),
    "vecvt.x8.hf.m": _m(vme.x8_from_hf, target_item=1),
    "veexp.m": _m(vme.exp),
    "vesqrt.m": _m(vme.sqrt),
    "verecip.m": _m(vme.recip),
    "velut.m": _velut,
    "mov.m": _m(np.copy),
    "mov.f": _mov_f,
    "mov.v": _mov_v,
}
"""Implementation of each vector-engine instruction, by mnemonic. The vtype check comes before all of them."""


def execute_vector(mnemonic: str, issue: IssuedInstruction) -> None:
    """Run one vector-engine instruction. Raises `Trap` or `SimulationFault`."""
    check_vtype(issue.hart)
    VECTOR[mnemonic](issue)
