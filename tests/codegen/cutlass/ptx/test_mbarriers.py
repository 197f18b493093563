"""mbarriers: who may go on when, what they order, and every misuse that is caught."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ptx_cases.products import wgmma_error
from codegen.cutlass.ptx import FaultKind, KernelFault, PtxLimits, UnsupportedPtx, parse
from tests.codegen.cutlass.ptx_text import Array, run_text

SHARED = ".shared .align 16 .b8 tile[1024];\n.shared .align 8 .b64 full;\n.shared .align 8 .b64 empty;"
WORDS = np.arange(100, 356, dtype=np.uint32)
MAKE = """
    setp.eq.u32 %p1, %r3, 0; mov.u32 %r20, full; mov.u32 %r21, empty;
    @%p1 mbarrier.init.shared::cta.b64 [%r20], {full}; @%p1 mbarrier.init.shared::cta.b64 [%r21], {empty};
    @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;
    mov.u32 %r10, tile; shl.b32 %r11, %r3, 2; add.s32 %r12, %r10, %r11; setp.lt.u32 %p2, %r3, 32;
    mul.wide.u32 %d10, %r0, 4; add.s64 %d11, %d1, %d10; add.s64 %d12, %d0, %d10; mov.u32 %r9, 0;
"""
"""%r20, %r21: the objects; %r12: the thread's own cell; %p2: warp 0; %d11, %d12: its places in result and input."""
OTHER = "xor.b32 %r13, %r11, 128; add.s32 %r13, %r10, %r13;"
"""%r13: the cell of the same lane of the other warp."""


def wait(address: str, phase: str, name: str, form: str = "try_wait.parity") -> str:
    """Asks until the phase is complete."""
    return f"{name}: mbarrier.{form}.shared::cta.b64 %p5, [{address}], {phase}; @!%p5 bra {name};\n"


def run(body: str, *, full: int = 32, empty: int = 32, threads: int = 64, blocks: int = 1, seed: int = 0) -> Array:
    """One word a thread."""
    found, _ = run_text(
        MAKE.format(full=full, empty=empty) + body, [WORDS], ("<u4", (threads * blocks,)),
        threads=threads, blocks=blocks, variables=SHARED, seed=seed, limits=PtxLimits(max_steps=20_000),
    )  # fmt: skip
    return found


def fault(body: str, *, full: int = 32, threads: int = 64, seed: int = 0) -> KernelFault:
    """What a body ends with."""
    with pytest.raises(KernelFault) as caught:
        run(body, full=full, threads=threads, seed=seed)
    assert caught.value.kernel == "k"
    assert caught.value.line > 0
    return caught.value


GIVE = "@!%p2 bra $take; st.shared.u32 [%r12], %r3; mbarrier.arrive.shared::cta.b64 _, [%r20]; bra $end; $take:\n"
TAKE = f"{OTHER} ld.shared.u32 %r9, [%r13]; $end: st.global.u32 [%d11], %r9;"
HANDED = [*([0] * 32), *range(32)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["try_wait.parity", "test_wait.parity", "try_wait.parity.acquire.cta"])
def test_whoever_sees_a_phase_complete_sees_what_was_written_before(form: str, seed: int) -> None:
    found = run(GIVE + wait("%r20", "0", "$ask", form) + TAKE, blocks=3, seed=seed)
    np.testing.assert_array_equal(found, HANDED * 3)


def test_a_read_without_asking_races() -> None:
    found = [fault(GIVE + TAKE, seed=seed) for seed in range(6)]
    assert {one.kind for one in found} <= {FaultKind.RACE, FaultKind.UNINITIALISED}


def test_the_first_answer_is_no_so_that_it_must_be_heeded() -> None:
    late = "mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r20], 0;"
    kinds = []
    for seed in range(8):
        try:
            np.testing.assert_array_equal(run(GIVE + late + TAKE, seed=seed), HANDED)  # warp 0 came first
        except KernelFault as found:
            kinds.append(found.kind)
    assert set(kinds) == {FaultKind.UNINITIALISED}


def test_what_is_written_after_the_arrival_is_not_ordered() -> None:
    late = GIVE.replace("_, [%r20]; bra $end;", "_, [%r20]; st.shared.u32 [%r12], %r3; bra $end;")
    assert fault(late + wait("%r20", "0", "$ask") + TAKE).kind is FaultKind.RACE


def test_the_phase_before_the_first_counts_as_complete() -> None:
    found = run(wait("%r20", "1", "$ask") + "st.global.u32 [%d11], 7;")
    assert (found == 7).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_ring_of_one_stage_goes_round(seed: int) -> None:
    """Warp 0 fills, warp 1 empties; the parity of each wait changes from round to round."""
    body = f"""
    mov.u32 %r30, 0; mov.u32 %r31, 0; mov.u32 %r32, 1; @!%p2 bra $consumer;
    $fill: {wait("%r21", "%r32", "$e")} add.s32 %r33, %r3, %r30; st.shared.u32 [%r12], %r33;
    mbarrier.arrive.shared::cta.b64 _, [%r20]; xor.b32 %r32, %r32, 1; add.s32 %r30, %r30, 1;
    setp.lt.u32 %p3, %r30, 5; @%p3 bra $fill; bra $end;
    $consumer: {OTHER}
    $drain: {wait("%r20", "%r31", "$f")} ld.shared.u32 %r33, [%r13]; add.s32 %r9, %r9, %r33;
    mbarrier.arrive.shared::cta.b64 _, [%r21]; xor.b32 %r31, %r31, 1; add.s32 %r30, %r30, 1;
    setp.lt.u32 %p3, %r30, 5; @%p3 bra $drain;
    $end: st.global.u32 [%d11], %r9;"""
    np.testing.assert_array_equal(run(body, seed=seed), [0] * 32 + [5 * lane + 10 for lane in range(32)])
    hasty = body.replace(wait("%r21", "%r32", "$e"), "")
    assert fault(hasty, seed=seed).kind in (FaultKind.RACE, FaultKind.DEADLOCK)  # or a phase is passed by unseen


def test_the_state_of_an_arrival_names_its_phase() -> None:
    give = GIVE.replace("_, [%r20]; bra $end;", f"%d20, [%r20]; {wait('%r20', '%d20', '$own', 'try_wait')} bra $end;")
    np.testing.assert_array_equal(run(give + wait("%r20", "0", "$ask") + TAKE), HANDED)
    late = "mbarrier.arrive.shared::cta.b64 %d20, [%r20]; " * 3 + wait("%r20", "%d21", "$ask", "try_wait")
    found = fault("mov.u64 %d21, 0; bar.sync 0;" + late, full=64)
    assert found.kind is FaultKind.INVALID
    assert "is in phase 3 and asked for phase 0" in str(found)


def test_arrivals_may_be_several_at_once_and_dropped() -> None:
    one = "setp.eq.u32 %p3, %r3, 0; @%p3 mbarrier.arrive.shared::cta.b64 _, [%r20], 31;"
    last = "setp.eq.u32 %p4, %r3, 40; @%p4 mbarrier.arrive_drop.shared::cta.b64 _, [%r20];"
    again = "@%p3 mbarrier.arrive.shared::cta.b64 _, [%r20], 31;"  # without the one that was dropped
    body = one + last + wait("%r20", "0", "$a") + "bar.sync 0;" + again + wait("%r20", "1", "$b")
    assert (run(body + "st.global.u32 [%d11], 7;") == 7).all()


def test_waiting_for_arrivals_that_never_come_is_a_deadlock() -> None:
    found = fault(GIVE + wait("%r20", "0", "$ask") + TAKE, full=33)
    assert found.kind is FaultKind.DEADLOCK
    assert "32 threads wait for 1 arrivals at the mbarrier at offset 1024 of shared memory that never happen" in str(
        found
    )
    asked = fault(GIVE + wait("%r20", "0", "$ask", "test_wait.parity") + TAKE, full=33)
    assert asked.kind is FaultKind.ENDLESS


def test_a_missing_arrival_leaves_barriers_and_mbarriers_stuck() -> None:
    assert fault("@%p2 bra $b; " + wait("%r20", "0", "$ask") + "$b: bar.sync 0;").kind is FaultKind.DEADLOCK


# --- copies that arrive

COPY = "@!%p2 bra $take; cp.async.ca.shared.global [%r12], [%d12], 4; {arrive} bra $end; $take:\n"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "arrive",
    [
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r20];",
        "cp.async.mbarrier.arrive.shared.b64 [%r20]; mbarrier.arrive.shared::cta.b64 _, [%r20];",
        "cvt.u64.u32 %d20, %r20; cvta.shared.u64 %d20, %d20; cp.async.mbarrier.arrive.noinc.b64 [%d20];",
    ],
)
def test_copies_arrive_when_they_have_landed(arrive: str, seed: int) -> None:
    body = COPY.format(arrive=arrive) + wait("%r20", "0", "$ask") + TAKE
    np.testing.assert_array_equal(run(body, seed=seed), [*([0] * 32), *range(100, 132)])


def test_copies_that_arrived_in_different_phases_may_land_in_any_order() -> None:
    body = f"""@!%p2 bra $take; cp.async.ca.shared.global [%r12], [%d12], 4;
    cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r20];
    cp.async.ca.shared.global [%r12+512], [%d12+4], 4; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r21]; bra $end;
    $take: {wait("%r20", "0", "$a")} {OTHER} ld.shared.u32 %r9, [%r13]; {wait("%r21", "0", "$b")}
    ld.shared.u32 %r14, [%r13+512]; add.s32 %r9, %r9, %r14; $end: st.global.u32 [%d11], %r9;"""
    for seed in range(6):
        np.testing.assert_array_equal(run(body, seed=seed), [0] * 32 + [201 + 2 * lane for lane in range(32)])
    early = body.replace(wait("%r21", "0", "$b"), "")
    kinds = {fault(early, seed=seed).kind for seed in range(6)}
    assert kinds <= {FaultKind.IN_FLIGHT, FaultKind.RACE}


def test_an_arrival_without_the_copies_does_not_wait_for_them() -> None:
    body = COPY.format(arrive="mbarrier.arrive.shared::cta.b64 _, [%r20];") + wait("%r20", "0", "$ask") + TAKE
    assert fault(body).kind is FaultKind.IN_FLIGHT


def test_an_arrival_that_is_counted_twice_never_completes() -> None:
    body = COPY.format(arrive="cp.async.mbarrier.arrive.shared::cta.b64 [%r20];") + wait("%r20", "0", "$ask") + TAKE
    assert fault(body).kind is FaultKind.DEADLOCK


def test_stores_after_the_arrival_of_copies_are_not_ordered_by_it() -> None:
    arrive = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r20]; st.shared.u32 [%r12+512], %r3;"
    body = COPY.format(arrive=arrive) + wait("%r20", "0", "$ask") + TAKE.replace("[%r13]", "[%r13+512]")
    assert fault(body).kind is FaultKind.RACE


def test_an_object_that_copies_are_on_their_way_to_must_stay() -> None:
    arrive = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r20]; setp.eq.u32 %p4, %r3, 0; "
    arrive += "@%p4 mbarrier.inval.shared::cta.b64 [%r20];"
    found = fault(COPY.format(arrive=arrive) + wait("%r21", "0", "$ask") + TAKE)
    assert found.kind is FaultKind.INVALID
    assert "is gone while copies are on their way to it" in str(found)


# --- misuse


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ("mbarrier.arrive.shared.b64 _, [%r10];", FaultKind.UNINITIALISED, "was not made by mbarrier.init"),
        ("st.shared.u64 [%r20], %d0;", FaultKind.INVALID, "writes shared memory at offset 1024, which is an mbarrier"),
        ("ld.shared.u64 %d20, [%r20];", FaultKind.INVALID, "reads shared memory at offset 1024, which is an mbarrier"),
        ("@%p1 mbarrier.init.shared.b64 [%r20], 1;", FaultKind.INVALID, "is made a second time without mbarrier.inval"),
        ("@%p1 mbarrier.init.shared.b64 [%r10], 0;", FaultKind.INVALID, "an mbarrier of 0 arrivals: 1 to 1048575"),
        ("@%p1 mbarrier.init.shared.b64 [%r10+4], 1;", FaultKind.MISALIGNED, "makes an mbarrier of 8 bytes"),
        ("mbarrier.arrive.shared.b64 _, [%r20], 0;", FaultKind.INVALID, "0 arrivals of one thread at the mbarrier"),
        ("mbarrier.arrive.shared.b64 _, [%r20], -1;", FaultKind.INVALID, "of shared memory, which expects 32"),
        ("mbarrier.arrive.shared.b64 _, [%r20+8192];", FaultKind.OUT_OF_BOUNDS, "uses an mbarrier of 8 bytes"),
        ("mbarrier.arrive.b64 _, [%d0];", FaultKind.OUT_OF_BOUNDS, "an mbarrier outside of shared memory"),
        ("mapa.shared::cluster.u32 %r22, %r20, 1;", FaultKind.INVALID, "CTA 1 of a cluster of one"),
        ("mbarrier.arrive_drop.shared.b64 _, [%r20];", FaultKind.INVALID, "expects no arrivals any more"),
    ],
)  # fmt: skip
def test_misuse_is_caught(body: str, kind: FaultKind, said: str) -> None:
    found = fault(body)
    assert found.kind is kind
    assert said in str(found)


def test_an_object_is_used_only_after_a_barrier() -> None:
    found = fault(
        "setp.eq.u32 %p3, %r3, 32; @%p3 mbarrier.init.shared.b64 [%r10], 64; mbarrier.arrive.shared.b64 _, [%r10];"
    )
    assert found.kind is FaultKind.RACE
    assert "warp 0 uses the mbarrier at offset 0 of shared memory with no barrier after warp 1 made it" in str(found)


def test_memory_of_an_object_that_was_given_up_is_plain_again() -> None:
    body = "@%p1 mbarrier.inval.shared.b64 [%r20]; bar.sync 0; setp.eq.u32 %p3, %r3, 40; @%p3 st.shared.u32 [%r20], 9;"
    body += "bar.sync 0; ld.shared.u32 %r9, [%r20]; st.global.u32 [%d11], %r9;"
    assert (run(body) == 9).all()


@pytest.mark.parametrize(
    "line",
    [
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r20], 64;",
        "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r20], 64;",
        "mbarrier.arrive.noComplete.shared.b64 %d20, [%r20], 1;",
        "mbarrier.pending_count.b64 %r9, %d20;",
        "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r10], 64;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r10], 64;",
    ],
)
def test_other_transactions_and_copies_are_refused_by_name(line: str) -> None:
    with pytest.raises(UnsupportedPtx, match=line.split(" ", maxsplit=1)[0]) as caught:
        run(line)
    assert caught.value.line > 0


def test_waiting_for_bulk_copies_of_which_there_are_none() -> None:
    body = "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;"
    assert (run(body + "st.global.u32 [%d11], 7;") == 7).all()


# --- matrix products


def test_readers_may_fence_what_they_see_as_well_as_writers(gemm_ptx: str) -> None:
    """fence.proxy.async behind the barrier in the place of before it: on the way from the write to the product."""
    fence = "fence.proxy.async.shared::cta;"
    lines = gemm_ptx.splitlines()
    for k, line in enumerate(lines):
        if line.strip() == fence:
            barrier = next(j for j in range(k, k + 4) if lines[j].strip().startswith("bar.sync"))
            lines[k], lines[barrier] = "", f"{lines[barrier]} {fence}"
    error, _ = wgmma_error(parse("\n".join(lines)), "gemm_kk", (136, 72, 200))
    assert error <= 1
