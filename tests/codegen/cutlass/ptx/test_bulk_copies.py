"""Bulk copies whose bytes are counted at mbarriers: what they order, and every misuse that is caught."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ptx_mutants
from benchmarks.ptx_cases.products import stream_error
from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.ptx import FaultKind, KernelFault, PtxLimits, UnsupportedPtx, parse
from tests.codegen.cutlass.ptx_text import Array, run_text

SHARED = ".shared .align 16 .b8 tile[1024];\n.shared .align 8 .b64 full;\n.shared .align 16 .b8 rest[256];"
WORDS = np.arange(100, 356, dtype=np.uint32)
MAKE = """
    setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r3, 32; mov.u32 %r20, full; mov.u32 %r10, tile; mov.u32 %r9, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r20], 1;
    @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;
    shl.b32 %r11, %r3, 2; add.s32 %r12, %r10, %r11; mul.wide.u32 %d10, %r0, 4; add.s64 %d11, %d1, %d10;
"""
"""%r20: the object; %r12: the thread's own cell; %p1, %p2: the first threads of both warps; %d11: its result."""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d0], 256, [%r20];"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], 256;"
START = f"@%p1 {EXPECT} @%p1 {COPY}"
WAIT = "$ask: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r20], 0; @!%p5 bra $ask;"
READ = "ld.shared.u32 %r9, [%r12]; st.global.u32 [%d11], %r9;"


def run(body: str, seed: int = 0) -> Array:
    """One word for each of 64 threads."""
    found, _ = run_text(
        MAKE + body, [WORDS], ("<u4", (64,)), threads=64, variables=SHARED, seed=seed,
        limits=PtxLimits(max_steps=20_000),
    )  # fmt: skip
    return found


def fault(body: str, seed: int = 0) -> KernelFault:
    """What a body ends with."""
    with pytest.raises(KernelFault) as caught:
        run(body, seed)
    assert caught.value.line > 0
    return caught.value


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "start",
    [
        START,
        f"@%p1 {COPY} @%p1 {EXPECT}",  # bytes may be there before they are expected
        f"@%p1 {EXPECT} bar.sync 0; @%p2 {COPY}",
        START.replace("shared::cluster.global", "shared::cta.global"),
    ],
)
def test_whoever_sees_the_bytes_complete_sees_the_copy(start: str, seed: int) -> None:
    np.testing.assert_array_equal(run(start + WAIT + READ, seed), WORDS[:64])


def test_a_phase_waits_for_all_of_its_copies() -> None:
    halves = f"@%p1 {EXPECT}"
    for part in (128, 0):
        halves += f"@%p1 {COPY}".replace("[%r10], [%d0], 256", f"[%r10+{part}], [%d0+{part}], 128")
    for seed in range(4):
        np.testing.assert_array_equal(run(halves + WAIT + READ, seed), WORDS[:64])


def test_a_read_without_a_wait_meets_a_copy_in_flight() -> None:
    assert {fault(START + "bar.sync 0;" + READ, seed).kind for seed in range(4)} == {FaultKind.IN_FLIGHT}
    assert {fault(START + READ, seed).kind for seed in range(4)} <= {
        FaultKind.IN_FLIGHT, FaultKind.RACE, FaultKind.UNINITIALISED,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("expect", "kind", "said"),
    [
        ("mbarrier.arrive.shared::cta.b64 _, [%r20];", FaultKind.IN_FLIGHT, "lands only at its wait"),
        (EXPECT.replace("256", "512"), FaultKind.DEADLOCK, "64 threads wait for 0 arrivals and 256 bytes"),
        (EXPECT.replace("256", "128"), FaultKind.DEADLOCK, "0 arrivals and -128 bytes"),
        ("nanosleep.u32 1;", FaultKind.DEADLOCK, "1 arrivals and -256 bytes"),
    ],
)
def test_wrong_counts(expect: str, kind: FaultKind, said: str) -> None:
    found = fault(f"@%p1 {expect} @%p1 {COPY}" + WAIT + READ)
    assert found.kind is kind
    assert said in str(found)


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (COPY.replace("256", "200"), FaultKind.INVALID, "a bulk copy of 200 bytes: it must be a multiple of 16, not 0"),
        (COPY.replace("256", "0"), FaultKind.INVALID, "a bulk copy of 0 bytes"),
        (COPY.replace("[%r10]", "[%r10+4]"), FaultKind.MISALIGNED, "from or to an address that no 16 divides"),
        (COPY.replace("[%d0]", "[%d0+8]"), FaultKind.MISALIGNED, "from or to an address that no 16 divides"),
        (COPY.replace("256", "2048"), FaultKind.OUT_OF_BOUNDS, "reads 16 bytes at"),
        (COPY.replace("[%r10]", "[%r10+1200]"), FaultKind.OUT_OF_BOUNDS, "a bulk copy writes"),
        (COPY.replace("[%r20]", "[%r10]"), FaultKind.UNINITIALISED, "was not made by mbarrier.init"),
        (COPY.replace("[%r10]", "[%r20-240]"), FaultKind.INVALID, "which is an mbarrier"),
        (COPY, FaultKind.IN_FLIGHT, "the block has ended before a bulk copy has landed"),
        (COPY + "@%p1 mbarrier.inval.shared::cta.b64 [%r20];", FaultKind.IN_FLIGHT, "has ended before a bulk copy"),
        (EXPECT.replace("256", "-16"), FaultKind.INVALID, "bytes to wait for, of 1048575 possible"),
        (EXPECT + f"@%p1 {EXPECT}", FaultKind.INVALID, "expects no arrivals any more"),
    ],
)  # fmt: skip
def test_misuse_is_caught(body: str, kind: FaultKind, said: str) -> None:
    found = fault(f"@%p1 {body}")
    assert found.kind is kind
    assert said in str(found)


def test_what_a_warp_wrote_is_fenced_before_a_copy_overwrites_it() -> None:
    write, fence = "st.shared.u32 [%r12], 5;", "fence.proxy.async.shared::cta;"
    found = fault(write + "bar.sync 0;" + START + WAIT + READ)
    assert found.kind is FaultKind.FENCE
    assert "is overwritten by a bulk copy without fence.proxy.async in between" in str(found)
    for body in (write + fence + "bar.sync 0;", write + "bar.sync 0;" + fence):
        np.testing.assert_array_equal(run(body + START + WAIT + READ), WORDS[:64])
    assert fault(write + fence + START + WAIT + READ).kind is FaultKind.RACE


def test_a_copy_must_know_its_object() -> None:
    body = """@%p1 mbarrier.init.shared::cta.b64 [%r10+768], 1; bar.sync 0; add.s32 %r20, %r10, 768;"""
    found = fault(body + START + WAIT + READ)
    assert found.kind is FaultKind.FENCE
    assert "executed neither fence.mbarrier_init nor fence.proxy.async since" in str(found)
    fenced = body.replace("bar.sync", "fence.proxy.async; bar.sync")
    np.testing.assert_array_equal(run(fenced + START + WAIT + READ), WORDS[:64])


@pytest.mark.parametrize(
    "line",
    [
        COPY.replace("[%r20];", "[%r20], %d0;").replace("bytes", "bytes.L2::cache_hint"),
        COPY.replace("[%r20];", "[%r20], %h1;").replace("bytes", "bytes.multicast::cluster"),
        COPY.replace(".mbarrier::complete_tx::bytes", ""),
    ],
)
def test_other_forms_are_refused(line: str) -> None:
    with pytest.raises(UnsupportedPtx):
        run(line)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("chunks", [1, 3, 8])
def test_stages_that_a_thread_fills(chunks: int, seed: int, compiler: Compiler) -> None:
    module = parse(compiler.ptx(ptx_mutants.stream_source(), "90", name="stream.cu"))
    error, _ = stream_error(module, 2, chunks, seed)
    assert error <= 1
