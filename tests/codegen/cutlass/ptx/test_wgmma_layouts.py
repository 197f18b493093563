"""Every layout that a wgmma descriptor can mean: matrices are laid out by the canonical layouts of CUTLASS's headers.

Those are written there (cute/atom/mma_traits_sm90_gmma.hpp) with T = 8 halves, 16 bytes, for a swizzle of w such units:

    MN-major  Swizzle o ((T, w, m), (8, k)) : ((1, T, LBO), (w T, SBO)), without swizzle ((1, T, SBO), (1 T, LBO))
    K-major   Swizzle o ((8, m), (T, 2))    : ((w T, SBO), (1, T)),      without swizzle ((1 T, SBO), (1, LBO))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.codegen.cutlass.ptx_text import run_text

Array: TypeAlias = NDArray[Any]

BASE = 1024
"""Where the executor's shared memory begins."""

CODE = {1: 0, 8: 1, 4: 2, 2: 3}
BITS = {1: 0, 2: 1, 4: 2, 8: 3}


@dataclass(frozen=True)
class Layout:
    """`wide` units are exchanged with each other (1: no swizzle); offsets in bytes."""

    wide: int
    k_major: bool
    leading: int
    stride: int

    def place(self, row: int, k: int) -> int:
        """The byte of an element, before the swizzle."""
        w = self.wide
        if self.k_major:
            (r, m), (t, u) = (row % 8, row // 8), (k % 8, k // 8)
            return r * 16 * w + m * self.stride + 2 * t + u * (self.leading if w == 1 else 16)
        t, i, m = row % 8, row // 8 % w, row // 8 // w
        far, down = (self.stride, self.leading) if w == 1 else (self.leading, self.stride)
        return 2 * t + 16 * i + m * far + k % 8 * 16 * w + k // 8 * down

    def swizzled(self, address: int) -> int:
        """Bits 7 and above, as many as the swizzle has, are added without carry to those from 4 on."""
        return address ^ (address >> 7 & (1 << BITS[self.wide]) - 1) << 4

    def descriptor(self, start: int) -> int:
        return (start & 0x3FFFF) >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | CODE[self.wide] << 62


def layout(wide: int, k_major: bool) -> Layout:
    """Offsets with room to spare, so that a mistaken one is seen."""
    if k_major:
        return Layout(wide, True, 2048 + 128 if wide == 1 else 16, 128 + 16 if wide == 1 else 128 * wide)
    if wide == 1:
        return Layout(1, False, 2048, 128)
    return Layout(wide, False, 2 * 128 * wide, 128 * wide)


def image(matrix: Array, how: Layout, start: int, memory: Array) -> None:
    """Puts a matrix of rows x 16 into the image of shared memory, from `start` on."""
    for row in range(matrix.shape[0]):
        for k in range(16):
            memory[(how.swizzled(start + how.place(row, k)) - BASE) // 2] = matrix[row, k]


def multiplied(a: Array, b: Array, left: Layout, right: Layout, sums: str, keep: int, sign: int) -> Array:
    """What wgmma makes of a (64 x 16) and b (n x 16), with sums that begin at 1."""
    n = b.shape[0]
    memory = np.zeros(16384, np.float16)
    starts = (BASE, BASE + 16384)
    image(a, left, starts[0], memory)
    image(b, right, starts[1], memory)
    count = n // 2 if sums == "f32" else n // 4
    names = [f"%f{k}" if sums == "f32" else f"%r{40 + k}" for k in range(count)]
    one = "0f3F800000" if sums == "f32" else "0x3C003C00"
    fill = "".join(f"mov.b32 {name}, {one};" for name in names)
    stores = "".join(f"st.global.b32 [%d11+{512 * k}], {name};" for k, name in enumerate(names))
    body = f"""mov.u32 %r10, tile; mul.wide.u32 %d10, %r3, 4; add.s64 %d11, %d1, %d10; add.s64 %d12, %d0, %d10;
    shl.b32 %r11, %r3, 2; add.s32 %r12, %r10, %r11; mov.u32 %r13, 0;
    $copy: ld.global.u32 %r14, [%d12]; st.shared.u32 [%r12], %r14; add.s64 %d12, %d12, 512; add.s32 %r12, %r12, 512;
    add.s32 %r13, %r13, 1; setp.lt.u32 %p1, %r13, 64; @%p1 bra $copy;
    fence.proxy.async; bar.sync 0; {fill}
    mov.u64 %d20, {left.descriptor(starts[0])}; mov.u64 %d21, {right.descriptor(starts[1])};
    mov.u32 %r15, {keep}; setp.ne.u32 %p2, %r15, 0; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{n}k16.{sums}.f16.f16 {{{", ".join(names)}}}, %d20, %d21, %p2,
        {sign}, 1, {int(not left.k_major)}, {int(not right.k_major)};
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; {stores}"""
    found, _ = run_text(
        body, [memory], ("<u4", (count, 128)), threads=128, variables=".shared .align 1024 .b8 tile[32768];"
    )
    if sums == "f32":
        parts = found.view(np.float32).reshape(
            n // 8, 2, 2, 4, 8, 4
        )  # column block, row half, pair, warp, row, pair of columns
        return parts.transpose(3, 1, 4, 0, 5, 2).reshape(64, n)
    halves = found.view(np.float16).reshape(n // 8, 2, 4, 8, 4, 2)
    return halves.transpose(2, 1, 3, 0, 4, 5).reshape(64, n).astype(np.float32)


@pytest.mark.parametrize("wide", [1, 2, 4, 8])
@pytest.mark.parametrize("a_k_major", [True, False])
@pytest.mark.parametrize("b_k_major", [True, False])
def test_every_layout(wide: int, a_k_major: bool, b_k_major: bool) -> None:
    rng = np.random.default_rng(wide)
    a, b = rng.standard_normal((64, 16)).astype(np.float16), rng.standard_normal((64, 16)).astype(np.float16)
    found = multiplied(a, b, layout(wide, a_k_major), layout(wide, b_k_major), "f32", 1, 1)
    exact = a.astype(np.float64) @ b.astype(np.float64).T + 1
    assert np.abs(found - exact).max() < 1e-5


@pytest.mark.parametrize("sums", ["f32", "f16"])
@pytest.mark.parametrize(("keep", "sign"), [(1, -1), (0, 1)])
def test_sums_and_signs(sums: str, keep: int, sign: int) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((64, 16)).astype(np.float16), rng.standard_normal((24, 16)).astype(np.float16)
    found = multiplied(a, b, layout(8, True), layout(4, True), sums, keep, sign)
    exact = sign * (a.astype(np.float64) @ b.astype(np.float64).T) + keep
    assert np.abs(found - exact).max() < (1e-5 if sums == "f32" else 1e-2)
