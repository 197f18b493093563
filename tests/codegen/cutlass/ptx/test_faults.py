"""Everything undefined that the executor catches, by name, with kernel and line; and neighbours that are allowed."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from codegen.cutlass.ptx import (
    FaultKind,
    GlobalMemory,
    KernelFault,
    Module,
    PtxError,
    PtxLimits,
    UnsupportedPtx,
    launch,
    parameters,
    parse,
)
from tests.codegen.cutlass.ptx_text import kernel_text, run_text

SHARED = ".shared .align 16 .b8 tile[1024];"
WORDS = np.arange(256, dtype=np.uint32)
PLACE = "mov.u32 %r10, tile; shl.b32 %r11, %r3, 2; add.s32 %r12, %r10, %r11;"
"""%r12: the cell of this thread, %r10 the first one."""
OUT = "mul.wide.u32 %d10, %r0, 4; add.s64 %d11, %d1, %d10;"
"""%d11: the thread's place in the result."""
IN = "mul.wide.u32 %d10, %r0, 4; add.s64 %d12, %d0, %d10;"


def fault(body: str, *, threads: int = 64, shared: str = SHARED, limits: PtxLimits | None = None) -> KernelFault:
    """The fault that a body with one input of 256 words ends with."""
    with pytest.raises(KernelFault) as caught:
        run_text(body, [WORDS], ("<u4", (threads,)), threads=threads, variables=shared, limits=limits)
    assert caught.value.kernel == "k"
    assert caught.value.line > 0
    return caught.value


def works(body: str, *, threads: int = 64, shared: str = SHARED) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """The result of a body that is defined."""
    found, _ = run_text(body, [WORDS], ("<u4", (threads,)), threads=threads, variables=shared)
    return found


def line_of(body: str, word: str) -> int:
    """The line at which `word` stands first in the kernel's text."""
    text = kernel_text(body, 2, variables=SHARED)
    return text[: text.index(word)].count("\n") + 1


# --- shared memory


def test_a_read_of_what_another_warp_wrote_needs_a_barrier() -> None:
    write = f"{PLACE} {OUT}\n st.shared.u32 [%r12], %r3;\n"
    read = (
        "xor.b32 %r13, %r11, 128; add.s32 %r13, %r10, %r13;\n ld.shared.u32 %r14, [%r13];\n st.global.u32 [%d11], %r14;"
    )
    found = fault(write + read)
    assert found.kind is FaultKind.RACE
    assert found.line == line_of(write + read, "ld.shared")
    assert re.search(r"warp 0 reads shared memory at offset 128 with no barrier after the write by warp 1", str(found))
    np.testing.assert_array_equal(works(write + "bar.sync 0;\n" + read), np.arange(64) ^ 32)


def test_a_read_of_what_the_same_warp_wrote_needs_none() -> None:
    body = (
        f"{PLACE} {OUT} st.shared.u32 [%r12], %r3; xor.b32 %r13, %r11, 4; add.s32 %r13, %r10, %r13; "
        f"ld.shared.u32 %r14, [%r13]; st.global.u32 [%d11], %r14;"
    )
    np.testing.assert_array_equal(works(body), np.arange(64) ^ 1)


def test_a_write_over_what_another_warp_read_needs_a_barrier() -> None:
    start = (
        f"{PLACE} {OUT} st.shared.u32 [%r12], %r3; bar.sync 0; ld.shared.u32 %r14, [%r10]; st.global.u32 [%d11], %r14;"
    )
    end = "st.shared.u32 [%r12], 7;"
    found = fault(start + end)
    assert found.kind is FaultKind.RACE
    assert "warp 0 writes shared memory at offset 0 with no barrier after the read by warp 1" in str(found)
    assert (works(start + "bar.sync 0;" + end) == 0).all()


def test_two_warps_that_write_one_cell() -> None:
    assert fault(f"{PLACE} st.shared.u32 [%r10], %r3;").kind is FaultKind.RACE
    works(
        f"{PLACE} {OUT} setp.eq.s32 %p1, %r3, 40; @%p1 st.shared.u32 [%r10], %r3; bar.sync 0; "
        f"ld.shared.u32 %r4, [%r10]; st.global.u32 [%d11], %r4;"
    )


def test_neighbours_in_a_word_do_not_race_where_halves_are_written() -> None:
    body = (
        "mov.u32 %r10, tile; shl.b32 %r11, %r3, 6; and.b32 %r11, %r11, 2047; shr.u32 %r12, %r3, 5; "
        "shl.b32 %r12, %r12, 1;"
    )
    body += f"and.b32 %r13, %r3, 31; shl.b32 %r13, %r13, 2; add.s32 %r13, %r13, %r12; add.s32 %r13, %r13, %r10; {OUT}"
    body += "cvt.u16.u32 %h1, %r3; st.shared.u16 [%r13], %h1; ld.shared.u16 %r14, [%r13]; st.global.u32 [%d11], %r14;"
    np.testing.assert_array_equal(works(body), np.arange(64))


def test_a_barrier_of_some_warps_orders_only_those() -> None:
    write = f"{PLACE} {OUT} setp.lt.u32 %p1, %r3, 32; @%p1 st.shared.u32 [%r12], %r3;"
    read = (
        "setp.ge.u32 %p2, %r3, {first}; and.b32 %r13, %r11, 124; add.s32 %r13, %r13, %r10; @%p2 "
        "ld.shared.u32 %r14, [%r13]; @!%p2 mov.u32 %r14, 9; st.global.u32 [%d11], %r14;"
    )
    pair = "setp.lt.u32 %p3, %r3, 64; @!%p3 bra $skip; bar.sync 1, 64; $skip: "
    ordered = write + pair + read.replace("{first}", "32") + ""
    found = fault(ordered, threads=96)
    assert found.kind is FaultKind.RACE
    assert "warp 2 reads" in str(found)
    good = ordered.replace("setp.ge.u32 %p2, %r3, 32;", "setp.lt.u32 %p2, %r3, 64;")
    np.testing.assert_array_equal(works(good, threads=96), [*range(32), *range(32), *([9] * 32)])


def test_shared_memory_that_nobody_wrote() -> None:
    found = fault(f"{PLACE} ld.shared.u32 %r13, [%r12];")
    assert found.kind is FaultKind.UNINITIALISED
    assert "which nobody has written" in str(found)


def test_outside_of_shared_memory() -> None:
    found = fault(f"{PLACE} st.shared.u32 [%r12+1020], %r3;")
    assert found.kind is FaultKind.OUT_OF_BOUNDS
    assert "writes 4 bytes at offset 1024 of 1024 bytes of shared memory" in str(found)
    assert fault("mov.u32 %r4, 0; st.shared.u32 [%r4], %r4;").kind is FaultKind.OUT_OF_BOUNDS


# --- global memory


def test_outside_of_an_allocation() -> None:
    found = fault(f"{IN} ld.global.u32 %r10, [%d12+800];")
    assert found.kind is FaultKind.OUT_OF_BOUNDS
    assert "reads 4 bytes at 0x7f" in str(found)
    assert "1024 bytes into input 0 of 1024 bytes" in str(found)
    assert fault(f"{IN} ld.global.u32 %r10, [%d12+-4];").kind is FaultKind.OUT_OF_BOUNDS
    assert fault("mov.u64 %d3, 0; ld.global.u32 %r10, [%d3];").kind is FaultKind.OUT_OF_BOUNDS
    assert fault("ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d0+1020];").kind in (
        FaultKind.OUT_OF_BOUNDS,
        FaultKind.MISALIGNED,
    )


def test_misaligned() -> None:
    found = fault("ld.global.u32 %r10, [%d0+2];")
    assert found.kind is FaultKind.MISALIGNED
    assert fault("ld.global.v2.u32 {%r10, %r11}, [%d0+4];").kind is FaultKind.MISALIGNED
    assert fault(f"{PLACE} st.shared.u32 [%r12+2], %r3;").kind is FaultKind.MISALIGNED
    nothing_read = f"{PLACE} cp.async.ca.shared.global [%r12], [%d0+2], 4, 0; cp.async.wait_all;"
    assert fault(nothing_read).kind is FaultKind.MISALIGNED


def test_what_nobody_wrote_to_global_memory_is_nan() -> None:
    found, _ = run_text("", [], ("<f4", (8,)), threads=32)
    assert np.isnan(found).all()
    found, _ = run_text("", [], ("<f2", (8,)), threads=32)
    assert np.isnan(found).all()


def test_generic_addresses_reach_every_memory() -> None:
    body = (
        f"{PLACE} {OUT} cvta.global.u64 %d20, %d11; cvt.u64.u32 %d21, %r12; cvta.shared.u64 %d22, "
        f"%d21; st.u32 [%d22], %r3; ld.u32 %r13, [%d22]; add.s32 %r13, %r13, 1; st.u32 [%d20], %r13;"
        f" cvta.to.shared.u64 %d23, %d22; ld.shared.u32 %r14, [%d23];"
    )
    np.testing.assert_array_equal(works(body), np.arange(1, 65))
    assert fault("mov.u64 %d3, 0xF00000000000000; ld.u32 %r10, [%d3];").kind is FaultKind.OUT_OF_BOUNDS


def test_local_memory_is_each_threads_own() -> None:
    body = (
        f"{OUT} .local .align 8 .b8 own[16]; mov.u64 %d20, own; st.local.u32 [%d20+4], %r3; "
        f"cvta.local.u64 %d21, %d20; ld.u32 %r13, [%d21+4]; st.global.u32 [%d11], %r13;"
    )
    np.testing.assert_array_equal(works(body), np.arange(64))
    assert fault(body.replace("own+4", "own").replace("[%d20+4]", "[%d20+16]")).kind is FaultKind.OUT_OF_BOUNDS


# --- registers


def test_a_register_that_nothing_wrote() -> None:
    found = fault("add.s32 %r50, %r51, 1;")
    assert found.kind is FaultKind.UNINITIALISED
    assert "reads %r51, which nothing has written" in str(found)
    works("setp.eq.s32 %p1, %r3, 3; @%p1 bra $a; mov.u32 %r51, 1; $a: add.s32 %r50, %r51, 1;")
    works("setp.eq.s32 %p1, %r3, 500; @%p1 add.s32 %r50, %r51, 1;")
    assert fault("@%p1 add.s32 %r50, %r3, 1;").kind is FaultKind.UNINITIALISED


# --- asynchronous copies

COPY = f"{PLACE} {IN} {OUT} cp.async.ca.shared.global [%r12], [%d12], 4;"
READ = "ld.shared.u32 %r14, [%r12]; st.global.u32 [%d11], %r14;"


def test_a_copy_lands_at_its_wait() -> None:
    np.testing.assert_array_equal(works(f"{COPY} cp.async.wait_all; {READ}"), WORDS[:64])
    np.testing.assert_array_equal(works(f"{COPY} cp.async.commit_group; cp.async.wait_group 0; {READ}"), WORDS[:64])
    np.testing.assert_array_equal(
        works(f"{COPY} cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1; {READ}"), WORDS[:64]
    )


@pytest.mark.parametrize(
    "between",
    [
        "",
        "bar.sync 0;",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
        "cp.async.commit_group; cp.async.wait_group 1;",
    ],
)
def test_a_copy_that_is_not_waited_for(between: str) -> None:
    found = fault(f"{COPY} {between} {READ}")
    assert found.kind is FaultKind.IN_FLIGHT
    assert "where a cp.async of warp 0 lands only at its wait" in str(found)
    assert fault(f"{COPY} {between} st.shared.u32 [%r12], %r3;").kind is FaultKind.IN_FLIGHT


def test_a_copy_is_seen_by_other_warps_after_a_barrier_only() -> None:
    other = "xor.b32 %r13, %r11, 128; add.s32 %r13, %r10, %r13; ld.shared.u32 %r14, [%r13]; st.global.u32 [%d11], %r14;"
    assert fault(f"{COPY} cp.async.wait_all; {other}").kind is FaultKind.RACE
    assert fault(f"{COPY} bar.sync 0; cp.async.wait_all; {other}").kind is FaultKind.RACE
    np.testing.assert_array_equal(
        works(f"{COPY} cp.async.wait_all; bar.sync 0; {other}"), WORDS[:64].reshape(2, 32)[::-1].reshape(-1)
    )


def test_a_copy_fills_up_with_zeros_and_reads_no_more_than_asked_for() -> None:
    body = (
        (
            f"{PLACE} {OUT} shl.b32 %r20, %r3, 4; add.s32 %r20, %r20, %r10; and.b32 %r21, %r3, 1; "
            f"shl.b32 %r21, %r21, 3; cp.async.cg.shared.global [%r20], [%d0+1008], 16, %r21; "
            f"cp.async.wait_all; ld.shared.v4.u32 {{%r22, %r23, %r24, %r25}}, [%r20]; add.s32 %r22, "
            f"%r22, %r23; add.s32 %r22, %r22, %r24; st.global.u32 [%d11], %r22;"
        )
        .replace("{{", "{")
        .replace("}}", "}")
    )
    np.testing.assert_array_equal(works(body), np.tile([0, 252 + 253], 32))
    beyond = body.replace("[%d0+1008]", "[%d0+1024]")
    assert fault(beyond).kind is FaultKind.OUT_OF_BOUNDS
    assert (works(beyond.replace("and.b32 %r21, %r3, 1;", "mov.u32 %r21, 0;")) == 0).all()


# --- warps and barriers


def test_a_collective_of_a_divergent_warp() -> None:
    part = "setp.lt.u32 %p1, %r3, 16; @%p1 bra $a; "
    for collective in ("bar.sync 0;", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r20}, [%r10];"):
        found = fault(f"{PLACE} st.shared.u32 [%r12], %r3; {part} {collective} $a: mov.u32 %r21, 0;", threads=32)
        assert found.kind is FaultKind.DIVERGENCE
        assert "16 of the 32 running threads of a warp execute this" in str(found)
    found = fault(f"{part} shfl.sync.idx.b32 %r20, %r3, 0, 31, -1; $a: mov.u32 %r21, 0;", threads=32)
    assert found.kind is FaultKind.DIVERGENCE
    works(f"{part} shfl.sync.idx.b32 %r20, %r3, 31, 31, 0xFFFF0000; $a: mov.u32 %r21, 0;", threads=32)
    works(f"{part} mov.u32 %r20, 1; $a: bar.sync 0;", threads=32)


def test_a_barrier_that_not_all_come_to() -> None:
    body = "setp.lt.u32 %p1, %r3, 32; @%p1 bra $a; bar.sync 1, 64; bra $b; $a: bar.sync 2, 64; $b: mov.u32 %r9, 0;"
    found = fault(body)
    assert found.kind is FaultKind.DEADLOCK
    assert "32 threads wait at barrier" in str(found)
    works(body.replace("bar.sync 2", "bar.sync 1"))


def test_barriers_with_wrong_numbers() -> None:
    assert fault("bar.sync 16;").kind is FaultKind.INVALID
    assert fault("bar.sync 0, 33;").kind is FaultKind.INVALID
    assert fault("bar.sync %r3;").kind is FaultKind.INVALID
    assert fault("bar.sync 0, 32;").kind in (FaultKind.INVALID, FaultKind.DEADLOCK)


def test_finished_threads_do_not_hold_up_a_barrier() -> None:
    body = f"{OUT} setp.ge.u32 %p1, %r3, 32; @%p1 ret; bar.sync 0; st.global.u32 [%d11], %r3;"
    assert (works(body)[:32] == np.arange(32)).all()


def test_an_arrival_without_waiting_does_not_order_what_comes_after() -> None:
    write = f"{PLACE} {OUT} setp.ge.u32 %p1, %r3, 32; @%p1 bra $consumer;"
    producer = "{before} bar.arrive 1, 64; {after} bra $end;"
    consumer = (
        "$consumer: bar.sync 1, 64; ld.shared.u32 %r13, [%r12+-128]; st.global.u32 [%d11], %r13; $end: mov.u32 %r9, 0;"
    )
    store = "st.shared.u32 [%r12], %r3;"
    good = works(write + producer.format(before=store, after="") + consumer)
    np.testing.assert_array_equal(good[32:], np.arange(32))
    assert fault(write + producer.format(before="", after=store) + consumer).kind in (
        FaultKind.RACE,
        FaultKind.UNINITIALISED,
    )
    assert fault(write + producer.format(before=store, after=store) + consumer).kind is FaultKind.RACE


# --- what ends without an answer


def test_an_endless_loop() -> None:
    body = "$again:\n add.s32 %r9, %r3, 1;\n bra $again;"
    start = time.monotonic()
    found = fault(body, limits=PtxLimits(max_steps=10_000))
    assert time.monotonic() - start < 5
    assert found.kind is FaultKind.ENDLESS
    assert found.line == line_of(body, "bra $again")
    assert "an endless loop?" in str(found)


def test_a_trap() -> None:
    assert fault("setp.eq.s32 %p1, %r3, 5; @%p1 trap;").kind is FaultKind.TRAP
    works("setp.eq.s32 %p1, %r3, 500; @%p1 trap;")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%r1];", "opcode tex.2d.v4.f32.f32 is not executed"),
        ("atom.global.add.u32 %r9, [%d0], 1;", "opcode atom.global.add.u32 is not executed"),
        ("add.rz.f64 %g1, %g2, %g3;", "add.rz.f64 is not executed"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r9}, {%r9}, {%r9}, {%r9};", "mma.sync.aligned.m16n8k32"),
        ("mad.sat.f32 %f1, %f2, %f3, %f4;", "mad.sat.f32: .sat is not executed"),
        ("add.s32 %r9, %r9;", "add.s32 is not executed with these operands"),
        ("mov.u32 %r9, %clock;", "special register %clock is not known"),
        ("mov.u64 %d9, nowhere;", "the name nowhere is not known"),
        ("call.uni (%r9), f, (%r9);", "opcode call.uni is not executed"),
        ("cvt.rs.f16.f32 %h1, %f1;", "cvt.rs.f16.f32: .rs is not executed"),
        ("cvt.rz.f32.s64 %f1, %d0;", "cvt.rz.f32.s64 is not executed: 64-bit numbers are only rounded to nearest"),
        ("cvt.rz.f32.f16 %f1, %h1;", "cvt.rz.f32.f16 is not executed with this rounding"),
        ("mbarrier.expect_tx.shared.b64 [%r9], 1;", "mbarrier.expect_tx.shared.b64 is not executed"),
        ("setp.lt.s32 %r9, %r1, %r2;", "a register of type b32 where pred is needed"),
        ("shfl.sync.sync.b32 %r9, %r9, 0, 31, -1;", "shfl.sync.sync.b32 is not executed"),
        ("vote.sync.sync.b32 %r9, %p1, -1;", "vote.sync.sync.b32 is not executed"),
        ("redux.sync.sync.u32 %r9, %r9, -1;", "redux.sync.sync.u32 is not executed"),
        ("activemask.b32;", "activemask.b32 is not executed"),
        ("createpolicy.fractional.b64;", "createpolicy.fractional.b64 is not executed"),
        ("setp.lt.lt.s32 %p1, %r1, %r2, %r3;", "setp.lt.lt.s32 is not executed"),
        ("cvt.u32.pred %r9, %p1;", "cvt.u32.pred is not executed"),
        ("selp.f16x2 %r9, %r1, %r2, %p1;", "type f16x2 is not executed here"),
        ("bar.red.pred %p1, 0, %p2;", "bar.red.pred does not say which reduction"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1};", "is not executed with these operands"),
        ("add.u64 %d9, %r1, %d0;", "a register of type b32 is too small for u64"),
    ],
)  # fmt: skip
def test_what_the_executor_lacks_is_refused_by_name_and_line(line: str, said: str) -> None:
    """Also where no thread would come to it: a kernel is decoded as a whole."""
    body = f"bra $end;\n{line}\n$end: mov.u32 %r9, 0;"
    with pytest.raises(PtxError, match=re.escape(said)) as caught:
        works(body)
    assert not isinstance(caught.value, KernelFault)
    assert caught.value.kernel == "k"
    assert caught.value.line == line_of(body, line)


def test_launches_that_cannot_be(simple: Module) -> None:
    memory = GlobalMemory()
    kernel = simple.kernels["relu_add"]
    given = parameters(kernel, 0, 0, 0, 0)
    for name, grid, block, params, said in (
        ("relu", (1, 1, 1), (32, 1, 1), given, "the module has no kernel relu; it has .*relu_add"),
        ("relu_add", (0, 1, 1), (32, 1, 1), given, "a launch of"),
        ("relu_add", (1, 1, 1), (2048, 1, 1), given, "launched with 2048 threads per block, at most 1024"),
        ("relu_add", (1 << 13, 1 << 13, 1), (32, 1, 1), given, "blocks, at most"),
        ("relu_add", (1, 1, 1), (32, 1, 1), given[:-1], "needs 28 bytes of parameters, has 27"),
    ):
        with pytest.raises(PtxError, match=said):
            launch(simple, name, grid, block, params, memory)
    with pytest.raises(PtxError, match="bytes of shared memory, has 232448"):
        launch(simple, "softmax", (1, 1, 1), (32, 1, 1), bytes(20), memory, shared_bytes=1 << 20)
    with pytest.raises(PtxError, match="has 4 parameters, 1 are given"):
        parameters(kernel, 1)
    with pytest.raises(PtxError, match="has 8 bytes, 3 are given"):
        parameters(kernel, b"abc", 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".visible .entry k() { add.s32", "the text ends in the middle"),
        ("\n\n ~", "line 3: '~' does not begin a token of PTX"),
        (".version 8.0\n.address_size 32", "addresses of 64 bits are needed"),
        (".visible .entry k() { @%q1 ret; }", "%q1 guards an instruction and is not a predicate"),
        (".visible .entry k() { .reg .b32 %r<3>; bra $x; }", "label $x is not defined"),
        (".visible .entry k() { .reg .b32 %r<3>; mov.b32 %r1, {}; }", "a vector without elements"),
        (".visible .entry k() { $x: $x: ret; }", "label $x is defined twice"),
        (".shared .align 3 .b8 x[4];", "an alignment of 3 bytes is not a power of two"),
        (".global .b8 x[99999999999];", "has 99999999999 bytes"),
        (".visible .entry k(.param .b8 p[99999]) { ret; }", "parameters need 99999 bytes"),
        (".visible .entry k() " + "{" * 80, "nested more than 64 deep"),
        (".visible .entry k() { .reg .b128 %q<2>; mov.b128 %q1, %q1; ret; }", "registers of 128 bits"),
        (
            ".visible .entry k() { .reg .b32 %r<3>; add.s32 %r3, %r1, %r2; }",
            "special register %r3|a result of this form",
        ),
    ],
)
def test_text_that_is_not_ptx(text: str, said: str) -> None:
    with pytest.raises(PtxError, match=said.replace("$", r"\$")):
        launch(parse(text), "k", (1, 1, 1), (32, 1, 1), b"", GlobalMemory())


def test_bounds_on_what_text_may_ask_for() -> None:
    with pytest.raises(PtxError, match="at most 10 are read"):
        parse(" " * 11, PtxLimits(max_text_bytes=10))
    many = ".visible .entry k() { .reg .b32 %r<9999>; " + " ".join(f"mov.u32 %r{k}, 0;" for k in range(50)) + " ret; }"
    with pytest.raises(PtxError, match="more than 40 instructions"):
        parse(many, PtxLimits(max_instructions=40))
    with pytest.raises(PtxError, match="more than 20 registers are used"):
        parse(many, PtxLimits(max_registers=20))
    wide = ".visible .entry k() { .reg .b32 %r<9>; mov.b32 {" + "%r1," * 300 + "%r1}, %r1; }"
    with pytest.raises(PtxError, match="a vector of more than 256"):
        parse(wide)
    with pytest.raises(PtxError, match="global memory"):
        GlobalMemory(PtxLimits(max_global_bytes=1 << 20)).allocate(1 << 21)
    with pytest.raises(UnsupportedPtx, match=r"local memory|registers of"):
        launch(
            parse(".visible .entry k() { .reg .b128 %q; mov.b128 %q, %q; }"),
            "k",
            (1, 1, 1),
            (32, 1, 1),
            b"",
            GlobalMemory(),
        )
    own = ".visible .entry k() { .local .b8 own[100000]; ret; }"
    with pytest.raises(PtxError, match="needs 100000 bytes of local memory per thread"):
        launch(parse(own), "k", (1, 1, 1), (32, 1, 1), b"", GlobalMemory())
