"""What warps and warp groups do together, each by itself: shuffles, votes, matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen.cutlass.ptx import FaultKind, GlobalMemory, KernelFault, Module, UnsupportedPtx, launch, parameters, parse
from tests.codegen.cutlass.ptx_text import run_text

Array: TypeAlias = NDArray[Any]

LANE = np.arange(64) % 32
PLACE = "mul.wide.u32 %d10, %r0, 4; add.s64 %d11, %d0, %d10; add.s64 %d12, %d1, %d10;"
VALUES = np.random.default_rng(1).integers(0, 1 << 32, 64, np.uint64).astype(np.uint32)


def on_words(body: str, values: Array = VALUES) -> Array:
    """%r20 in, %r21 out, for 64 threads."""
    text = f"{PLACE} ld.global.u32 %r20, [%d11]; {body} st.global.u32 [%d12], %r21;"
    return run_text(text, [values], ("<u4", (64,)), threads=64)[0]


def shuffled(mode: str, lane: Array, b: Array, width: int) -> tuple[Array, Array]:
    """Source lane and whether it is within the segment, as CUDA's __shfl functions describe them."""
    segment = lane // width * width
    match mode:
        case "idx":
            return segment + b % width, np.ones(lane.size, np.bool_)
        case "up":
            inside = lane - b >= segment
            return np.where(inside, lane - b, lane), inside
        case "down":
            inside = lane + b < segment + width
            return np.where(inside, lane + b, lane), inside
    inside = (lane ^ b) < segment + width
    return np.where(inside, lane ^ b, lane), inside


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(mode: str, width: int) -> None:
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    for distance in (0, 1, 3, 5, 17):
        found = on_words(f"shfl.sync.{mode}.b32 %r21|%p1, %r20, {distance}, {clamp}, -1; @!%p1 add.s32 %r21, %r21, 1;")
        source, inside = shuffled(mode, LANE, np.full(64, distance), width)
        expected = VALUES.reshape(2, 32)[np.arange(64) // 32, source] + np.where(inside, 0, 1).astype(np.uint32)
        np.testing.assert_array_equal(found, expected)


def test_a_shuffle_from_a_lane_of_each_threads_choice() -> None:
    found = on_words("xor.b32 %r22, %r3, 21; add.s32 %r22, %r22, 7; shfl.sync.idx.b32 %r21, %r20, %r22, 31, -1;")
    np.testing.assert_array_equal(found, VALUES.reshape(2, 32)[np.arange(64) // 32, ((np.arange(64) ^ 21) + 7) % 32])


def ballots(odd: Array) -> Array:
    """Each warp's votes as bits, for each of its threads."""
    return np.repeat([sum(int(b) << k for k, b in enumerate(warp)) for warp in odd], 32)


VOTES: list[tuple[str, Callable[[Array], Array]]] = [
    ("vote.sync.ballot.b32 %r21, %p1, -1;", ballots),
    ("vote.sync.any.pred %p2, %p1, -1; selp.u32 %r21, 1, 0, %p2;", lambda odd: np.repeat(odd.any(axis=1), 32)),
    ("vote.sync.all.pred %p2, %p1, -1; selp.u32 %r21, 1, 0, %p2;", lambda odd: np.repeat(odd.all(axis=1), 32)),
    ("vote.sync.all.pred %p2, !%p1, -1; selp.u32 %r21, 1, 0, %p2;", lambda odd: np.repeat((~odd).all(axis=1), 32)),
    ("vote.sync.uni.pred %p2, %p1, -1; selp.u32 %r21, 1, 0, %p2;",
     lambda odd: np.repeat(odd.all(axis=1) | (~odd).all(axis=1), 32)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "rule"), VOTES, ids=[body for body, _ in VOTES])
@pytest.mark.parametrize("threshold", [0, 1, 1 << 31, (1 << 32) - 1])
def test_votes(body: str, rule: Callable[[Array], Array], threshold: int) -> None:
    found = on_words(f"setp.hi.u32 %p1, %r20, {threshold}; {body}")
    np.testing.assert_array_equal(found, rule((threshold < VALUES).reshape(2, 32)).astype(np.uint32))


@pytest.mark.parametrize(("operation", "function"), [("add", np.add), ("min", np.minimum), ("max", np.maximum)])
@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_reductions(operation: str, function: Any, kind: str) -> None:
    found = on_words(f"redux.sync.{operation}.{kind} %r21, %r20, -1;")
    typed = VALUES.view(np.int32) if kind == "s32" else VALUES
    expected = np.repeat(function.reduce(typed.reshape(2, 32), axis=1, dtype=typed.dtype), 32)
    np.testing.assert_array_equal(found, expected.view(np.uint32))


def test_one_is_elected_and_masks_say_who_is_here() -> None:
    found = on_words("elect.sync _|%p1, -1; selp.u32 %r21, 1, 0, %p1;")
    np.testing.assert_array_equal(found, LANE == 0)
    body = "mov.u32 %r21, 0; setp.lt.u32 %p1, %r3, 9; @%p1 bra $a; activemask.b32 %r21; $a: add.s32 %r21, %r21, 0;"
    found = on_words(body)
    np.testing.assert_array_equal(
        found, np.where(np.arange(64) < 9, 0, np.where(np.arange(64) < 32, 0xFFFFFE00, 0xFFFFFFFF))
    )


def test_a_vote_at_a_barrier() -> None:
    for operation, expected in (("and", 0), ("or", 1)):
        body = f"setp.eq.u32 %p1, %r3, 40; bar.red.{operation}.pred %p2, 0, %p1; selp.u32 %r21, 1, 0, %p2;"
        assert (on_words(body) == expected).all()
    assert (on_words("setp.lt.u32 %p1, %r3, 40; bar.red.popc.u32 %r21, 0, %p1;") == 40).all()
    parted = "setp.lt.u32 %p3, %r3, 32; @%p3 bra $a; mov.u32 %r20, 0; $a: setp.lt.u32 %p1, %r3, 40; "
    body = parted + (
        "@%p3 bra $b; bar.red.popc.u32 %r21, 3, 64, %p1; bra $c; $b: bar.red.popc.u32 %r21, 3, 64, "
        "%p1; $c: mov.u32 %r9, 0;"
    )
    assert (on_words(body) == 40).all()


# --- matrices; a fragment's thread t holds row t / 4, columns 2 (t % 4) and 2 (t % 4) + 1


def fragments(matrix: Array) -> Array:
    """(8, 8) halves as 32 words."""
    return np.ascontiguousarray(matrix.reshape(8, 8)).view(np.uint32).reshape(32)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_matrices_come_from_and_go_to_shared_memory(count: int, turned: bool) -> None:
    rng = np.random.default_rng(2)
    matrices = rng.integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    trans = ".trans" if turned else ""
    registers = ", ".join(f"%r{40 + k}" for k in range(count))
    copies = "".join(f"st.global.u32 [%d12+{128 * k}], %r{40 + k};" for k in range(count))
    body = f"""{PLACE} mov.u32 %r30, tile; shl.b32 %r31, %r3, 4; add.s32 %r32, %r30, %r31;
        mul.wide.u32 %d20, %r31, 1; add.s64 %d20, %d20, %d0;
        ld.global.v4.u32 {{%r33, %r34, %r35, %r36}}, [%d20]; st.shared.v4.u32 [%r32], {{%r33, %r34, %r35, %r36}};
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r32]; {copies}
        stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r32+512], {{{registers}}};
        setp.ge.u32 %p1, %r3, {8 * count}; @%p1 ret;
        ld.shared.v4.u32 {{%r33, %r34, %r35, %r36}}, [%r32+512]; add.s64 %d20, %d1, 512;
        mul.wide.u32 %d21, %r31, 1; add.s64 %d20, %d20, %d21;
        st.global.v4.u32 [%d20], {{%r33, %r34, %r35, %r36}};"""
    found, _ = run_text(body, [matrices], ("<u4", (256,)), threads=32, variables=".shared .align 16 .b8 tile[1024];")
    for k in range(count):
        expected = fragments(matrices[k].T if turned else matrices[k])
        np.testing.assert_array_equal(found[32 * k : 32 * k + 32], expected)
    np.testing.assert_array_equal(found[128 : 128 + 32 * count].view(np.uint16), matrices[:count].reshape(-1))


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("sums", ["f32", "f16"])
def test_mma(depth: int, sums: str) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((16, depth)).astype(np.float16), rng.standard_normal((depth, 8)).astype(np.float16)
    c = rng.standard_normal((16, 8)).astype(np.float16)
    left = [fragments(a[8 * i : 8 * i + 8, 8 * j : 8 * j + 8]) for j in range(depth // 8) for i in range(2)]
    right = [fragments(b[8 * i : 8 * i + 8].T) for i in range(depth // 8)]
    if sums == "f32":
        wide = c.astype(np.float32).reshape(2, 8, 4, 2)
        start = [np.ascontiguousarray(wide[i, :, :, j]).view(np.uint32).reshape(32) for i in range(2) for j in range(2)]
    else:
        start = [fragments(c[8 * i : 8 * i + 8]) for i in range(2)]
    words = np.stack([*left, *right, *start])
    loads = "".join(f"ld.global.u32 %r{40 + k}, [%d11+{128 * k}];" for k in range(len(words)))

    def group(first: int, count: int) -> str:
        return "{" + ", ".join(f"%r{40 + first + k}" for k in range(count)) + "}"

    n, m, r = len(left), len(right), len(start)
    moves, regs = "", [group(0, n), group(n, m), group(n + m, r)]
    if sums == "f32":
        moves = "".join(f"mov.b32 %f{k}, %r{40 + n + m + k};" for k in range(4))
        regs[2] = "{%f0, %f1, %f2, %f3}"
    result = "{%f4, %f5, %f6, %f7}" if sums == "f32" else "{%r70, %r71}"
    names = [f"%f{4 + k}" for k in range(4)] if sums == "f32" else ["%r70", "%r71"]
    stores = "".join(f"st.global.b32 [%d12+{128 * k}], {name};" for k, name in enumerate(names))
    body = (
        f"{PLACE} {loads} {moves} mma.sync.aligned.m16n8k{depth}.row.col.{sums}.f16.f16.{sums} "
        f"{result}, {regs[0]}, {regs[1]}, {regs[2]}; {stores}"
    )
    found, done = run_text(body, [words], ("<u4", (r, 32)), threads=32)
    exact = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    if sums == "f32":
        product = found.view(np.float32).reshape(2, 2, 8, 4).transpose(0, 2, 3, 1).reshape(16, 8)
    else:
        product = found.view(np.float16).reshape(16, 8).astype(np.float32)
    magnitude = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) + np.abs(c).astype(np.float64)
    allowed = depth * 2.0**-23 * magnitude + (2.0**-11 * np.abs(exact) if sums == "f16" else 0)
    assert (np.abs(product - exact) <= allowed).all()
    assert done.macs == 16 * 8 * depth


# --- asynchronous products: what may be left out of the kernel, and is noticed


def product(text: str, kernel: str = "gemm_kk", k: int = 200) -> tuple[Array, Array]:
    """What a changed text computes, and what it should."""
    module: Module = parse(text)
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((128, k)).astype(np.float16), rng.standard_normal((k, 64)).astype(np.float16)
    memory = GlobalMemory()
    places = [memory.allocate(a), memory.allocate(np.ascontiguousarray(b.T)), memory.allocate(128 * 64 * 2)]
    given = parameters(module.kernels[kernel], *places, 128, 64, k)
    launch(module, kernel, (1, 1, 1), (256, 1, 1), given, memory, shared_bytes=2 * 192 * 128)
    exact: Array = a.astype(np.float64) @ b.astype(np.float64)
    return memory.load(places[2], np.float16, (128, 64)), exact


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("dropped", "kernel", "kind"),
    [
        ("wgmma.fence.sync.aligned;", "gemm_kk", FaultKind.FENCE),
        ("fence.proxy.async.shared::cta;", "gemm_kk", FaultKind.FENCE),
        ("cp.async.wait_group 0;", "gemm_kk", FaultKind.IN_FLIGHT),
        ("bar.sync \t0;", "gemm_kk", FaultKind.RACE),
        ("wgmma.wait_group.sync.aligned 0;", "gemm_rk", FaultKind.IN_FLIGHT),
        ("wgmma.commit_group.sync.aligned;", "gemm_kk", FaultKind.IN_FLIGHT),
    ],
)
@pytest.mark.commit
def test_what_an_asynchronous_product_needs(gemm_ptx: str, dropped: str, kernel: str, kind: FaultKind) -> None:
    assert dropped in gemm_ptx
    found, exact = product(gemm_ptx, kernel)
    assert np.abs(found - exact).max() < 0.05
    with pytest.raises(KernelFault) as caught:
        product(gemm_ptx.replace(dropped, ""), kernel)
    assert caught.value.kind is kind


@pytest.mark.parametrize("dropped", ["wgmma.wait_group.sync.aligned 0;", "wgmma.commit_group.sync.aligned;"])
def test_sums_are_nan_until_they_are_waited_for(gemm_ptx: str, dropped: str) -> None:
    """With one step of K nothing is written over what the product reads."""
    assert np.isnan(product(gemm_ptx.replace(dropped, ""), "gemm_kk", 64)[0]).all()


def test_part_of_a_warp_group_and_descriptors_that_differ() -> None:
    sums = "{" + ", ".join(f"%f{k}" for k in range(4)) + "}"
    start = "".join(f"mov.f32 %f{k}, 0f00000000;" for k in range(4)) + "mov.u64 %d20, 64; mov.u64 %d21, {b};"
    text = (
        "wgmma.fence.sync.aligned; setp.eq.u32 %p1, %r3, %r3; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        + sums
        + ", %d20, %d21, %p1, 1, 1, 0, 0;"
    )

    def kind(body: str, threads: int) -> FaultKind:
        with pytest.raises(KernelFault) as caught:
            run_text(body, [], ("<u4", (4,)), threads=threads, variables=".shared .align 1024 .b8 tile[4096];")
        return caught.value.kind

    body = start.replace("{b}", "64") + text
    assert kind(body, 128) is FaultKind.UNINITIALISED
    assert kind(body, 64) is FaultKind.DIVERGENCE
    assert kind(start.replace("mov.u64 %d21, {b};", "mul.wide.u32 %d21, %r3, 8;") + text, 128) is FaultKind.INVALID
    assert kind(start.replace("{b}", "0x2000000000040") + text, 128) is FaultKind.INVALID
    assert kind(start.replace("{b}", "0x3FFF") + text, 128) in (FaultKind.OUT_OF_BOUNDS, FaultKind.UNINITIALISED)
    with pytest.raises(UnsupportedPtx, match="m64n12k16"):
        run_text(body.replace("m64n8k16", "m64n12k16"), [], ("<u4", (4,)), threads=128)
