"""The matrix engine's instructions: legality in the chip's order, then the arithmetic of `mme` on views.

Results go only to IM, and right-hand operands come only from L1. Shapes come from the m_* and conv_* CSRs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.simulator.arithmetic import fp16, mme
from codegen.neuralscale.simulator.core import csr
from codegen.neuralscale.simulator.core.hart import Hart
from codegen.neuralscale.simulator.core.operands import (
    BAD_SHAPE,
    BAD_STRIDE,
    IM_ONLY,
    L1_ONLY,
    MatrixOperand,
    check_access,
    check_base,
    check_shape,
    check_source_stride,
    check_target_stride,
    check_vtype,
)
from codegen.neuralscale.simulator.engines.issued import IssuedInstruction
from codegen.neuralscale.simulator.memory.faults import SimulationFault, Trap
from codegen.neuralscale.simulator.memory.memory import L1

Product = Callable[[Any, Any, Hart], NDArray[Any]]


def _memul(issue: IssuedInstruction, source_item: int, target_item: int, product: Product, *, transposed: bool) -> None:
    hart = issue.hart
    shape_a, shape_b = int(hart.csr[csr.M_SHAPE_S1]), int(hart.csr[csr.M_SHAPE_S2])
    strides = int(hart.csr[csr.M_STRIDE_S])
    a = MatrixOperand(int(hart.x[issue.rs1]), shape_a & 0xFFFF, shape_a >> 16, source_item, strides & 0xFFFF)
    b = MatrixOperand(int(hart.x[issue.rs2]), shape_b & 0xFFFF, shape_b >> 16, source_item, strides >> 16)
    height, depth = (a.columns, a.rows) if transposed else (a.rows, a.columns)
    stride_d = int(hart.csr[csr.M_STRIDE_D]) & 0xFFFF
    target = MatrixOperand(int(hart.x[issue.rd]), height, b.columns, target_item, stride_d)
    check_base(a, b, target)
    check_shape(a.rows, a.columns)
    check_shape(b.rows, b.columns)
    if a.rows > 1:
        check_source_stride(a)
        check_target_stride(target)
    if b.rows > 1:
        check_source_stride(b)
    check_access(a)
    check_access(b, L1_ONLY)
    check_access(target, IM_ONLY)
    if transposed and target.stride & 1:  # A has one row, so no check has refused the stride, in fp16
        target = replace(target, stride=target.stride - 1)
    if depth != b.rows:
        return  # no trap and nothing written
    kind = np.int8 if source_item == 1 else None
    left, right = issue.operands.read(a, kind), issue.operands.read(b, kind)
    issue.operands.write(target, product(left.T if transposed else left, right, hart), a, b)


def _metr(issue: IssuedInstruction) -> None:
    hart = issue.hart
    shape = int(hart.csr[csr.M_SHAPE_S1])
    source = MatrixOperand(
        int(hart.x[issue.rs1]), shape & 0xFFFF, shape >> 16, 2, int(hart.csr[csr.M_STRIDE_S]) & 0xFFFF
    )
    stride_d = int(hart.csr[csr.M_STRIDE_D]) & 0xFFFF
    target = MatrixOperand(int(hart.x[issue.rd]), source.columns, source.rows, 2, stride_d)
    check_base(source, target)
    check_shape(source.rows, source.columns)
    if source.rows > 1:
        check_source_stride(source)
    if source.columns > 1:
        check_target_stride(target)
    check_access(source)
    check_access(target, IM_ONLY)
    issue.operands.write(target, mme.metr(issue.operands.read(source)), source)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The conv_* CSRs taken apart."""

    height: int
    width: int
    channels: int
    pixel_stride: int
    out_height: int
    out_width: int
    out_channels: int
    out_stride: int
    weight_stride: int
    kernel: tuple[int, int]
    stride: int
    dilation: int
    padding: tuple[int, int, int, int]


def _convolution(hart: Hart) -> _Convolution:
    def halves(number: int) -> tuple[int, int]:
        value = int(hart.csr[number])
        return value & 0xFFFF, value >> 16

    height, width = halves(csr.CONV_FM_IN)
    channels, pixel_stride = halves(csr.CONV_DEPTH_IN)
    out_height, out_width = halves(csr.CONV_FM_OUT)
    out_channels, out_stride = halves(csr.CONV_DEPTH_OUT)
    kernel, padding = int(hart.csr[csr.CONV_KERNEL]), int(hart.csr[csr.CONV_PADDING])
    return _Convolution(
        height, width, channels, pixel_stride, out_height, out_width, out_channels, out_stride,
        halves(csr.CONV_S_KERNEL)[0], (kernel >> 16 & 0xFF, kernel >> 24), kernel & 0xFF, kernel >> 8 & 0xFF,
        (padding >> 24, padding >> 16 & 0xFF, padding >> 8 & 0xFF, padding & 0xFF),
    )  # fmt: skip


def _meconv(issue: IssuedInstruction, source_item: int, target_item: int, compute: Callable[..., NDArray[Any]]) -> None:
    hart = issue.hart
    c = _convolution(hart)
    taps = c.kernel[0] * c.kernel[1] * c.channels
    image = MatrixOperand(int(hart.x[issue.rs1]), c.height * c.width, c.channels, source_item, c.pixel_stride)
    weights = MatrixOperand(int(hart.x[issue.rs2]), taps, c.out_channels, source_item, c.weight_stride)
    pixels = c.out_height * c.out_width
    target = MatrixOperand(int(hart.x[issue.rd]), pixels, c.out_channels, target_item, c.out_stride)
    check_base(image, weights, target)
    check_shape(c.height, c.width)
    check_shape(c.out_height, c.out_width)
    check_shape(c.channels, c.out_channels)
    check_shape(*c.kernel)
    if c.stride == 0 or c.dilation == 0:
        raise Trap(BAD_SHAPE)
    check_source_stride(image)
    # The chip checks only the low byte of the weight stride here, which does not change whether it is odd.
    if c.weight_stride & (source_item - 1):
        raise Trap(BAD_STRIDE, weights.address)
    check_target_stride(target)
    check_access(image)
    short_stride = c.weight_stride & 0xFF
    reach = MatrixOperand(weights.address, taps, c.out_channels, source_item, short_stride)
    check_access(reach, L1_ONLY)
    check_access(target, IM_ONLY)
    if not L1.holds(weights.address, weights.pitch * (taps - 1) + weights.row_bytes):
        raise SimulationFault("range", f"reads weights past the end of L1 with row stride {c.weight_stride}")
    top, bottom, left, right = c.padding
    expected = (
        mme.output_size(c.height, top + bottom, c.kernel[0], c.stride, c.dilation),
        mme.output_size(c.width, left + right, c.kernel[1], c.stride, c.dilation),
    )
    if expected != (c.out_height, c.out_width):
        raise SimulationFault(
            "range",
            f"conv_FM_out is {c.out_height} x {c.out_width}, the convolution gives {expected[0]} x {expected[1]}",
        )
    kind = np.int8 if source_item == 1 else None
    _check_pixels(issue, image, c)
    x = issue.operands.view(image, kind).reshape(c.height, c.width, c.channels)
    w = issue.operands.read(weights, kind)
    coefficient = fp16.from_f32(int(hart.csr[csr.CONV_DEQUANT_COEFF]))
    extra = (coefficient,) if compute is mme.meconv_hf_x8 else ()
    out = compute(x, w, c.kernel, c.stride, c.dilation, c.padding, *extra)
    issue.operands.write(target, out.reshape(pixels, c.out_channels), image, weights)


def _check_pixels(issue: IssuedInstruction, image: MatrixOperand, c: _Convolution) -> None:
    """Check the pixels under a tap, which are the only ones read; strides may skip some."""
    rows = _touched(c.height, c.out_height, c.kernel[0], c.stride, c.dilation, c.padding[0])
    columns = _touched(c.width, c.out_width, c.kernel[1], c.stride, c.dilation, c.padding[2])
    if len(rows) == c.height and len(columns) == c.width:
        issue.operands.check(image)
        return
    step = columns[1] - columns[0] if len(columns) > 1 else 1
    even = columns == list(range(columns[0], columns[-1] + 1, step)) if columns else True
    for row in rows:
        first = image.address + row * c.width * image.pitch
        for column in columns[:1] if even else columns:
            count = len(columns) if even else 1
            address = first + column * image.pitch
            issue.operands.check(MatrixOperand(address, count, c.channels, image.item, step * image.pitch))


def _touched(size: int, out: int, kernel: int, stride: int, dilation: int, before: int) -> list[int]:
    taps = {o * stride + k * dilation - before for o in range(out) for k in range(kernel)}
    return sorted(tap for tap in taps if 0 <= tap < size)


def _memul_coefficient(hart: Hart) -> int:
    return int(fp16.from_f32(int(hart.csr[csr.M_DEQUANT_COEFF])))


MATRIX: Final[dict[str, Callable[[IssuedInstruction], None]]] = {
    "memul.mm": lambda issue: _memul(issue, 2, 2, lambda a, b, _: mme.memul(a, b), transposed=bool(issue.dm)),
    "memul.ts.mm": lambda issue: _memul(issue, 2, 2, lambda a, b, _: mme.memul(a, b), transposed=True),
    "memul.x8.mm": lambda issue: _memul(issue, 1, 4, lambda a, b, _: mme.memul_x8(a, b), transposed=False),
    "memul.hf.x8.mm": lambda issue: _memul(
        issue, 1, 2, lambda a, b, hart: mme.memul_hf_x8(a, b, _memul_coefficient(hart)), transposed=False
    ),
    "meconv.mm": lambda issue: _meconv(issue, 2, 2, mme.meconv),
    "meconv.x8.mm": lambda issue: _meconv(issue, 1, 4, mme.meconv_x8),
    "meconv.hf.x8.mm": lambda issue: _meconv(issue, 1, 2, mme.meconv_hf_x8),
    "metr.m": _metr,
}
"""Implementation of each matrix-engine instruction, by mnemonic."""


def execute_matrix(mnemonic: str, issue: IssuedInstruction) -> None:
    """Run one matrix-engine instruction. Raises `Trap` or `SimulationFault`."""
    check_vtype(issue.hart)
    MATRIX[mnemonic](issue)
