"""Ways that part and meet again, names of all memories, and instructions that only hint."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.cutlass.ptx import FaultKind, GlobalMemory, KernelFault, launch, parameters, parse
from tests.codegen.cutlass.ptx_text import kernel_text, run_text

OUT = "mul.wide.u32 %d10, %r0, 4; add.s64 %d11, %d0, %d10;"


def words(body: str, threads: int = 64, variables: str = "", blocks: int = 1, seed: int = 0) -> list[int]:
    """%r21 of each thread."""
    text = f"{OUT} {body} st.global.u32 [%d11], %r21;"
    found, _ = run_text(
        text, [], ("<u4", (threads * blocks,)), threads=threads, variables=variables, blocks=blocks, seed=seed
    )
    return [int(value) for value in found]


def collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@pytest.mark.parametrize("seed", range(3))
def test_loops_of_different_lengths_meet_before_a_shuffle(seed: int) -> None:
    """Each thread counts its own steps; then all of a warp add them up together."""
    body = """add.s32 %r20, %r0, 1; mov.u32 %r21, 0;
    $loop: setp.le.u32 %p1, %r20, 1; @%p1 bra $done; add.s32 %r21, %r21, 1; and.b32 %r22, %r20, 1;
    setp.eq.u32 %p2, %r22, 0; @%p2 bra $even; mad.lo.s32 %r20, %r20, 3, 1; bra $loop;
    $even: shr.u32 %r20, %r20, 1; bra $loop;
    $done: redux.sync.add.u32 %r21, %r21, -1;"""
    own = np.array([collatz(n + 1) for n in range(128)]).reshape(4, 32)
    assert words(body, 64, blocks=2, seed=seed) == np.repeat(own.sum(axis=1), 32).tolist()


def test_threads_that_leave_a_loop_in_the_middle_meet_the_others_behind_it() -> None:
    body = """mov.u32 %r20, 0; mov.u32 %r21, 0;
    $loop: setp.eq.u32 %p1, %r20, %r3; @%p1 bra $early; add.s32 %r20, %r20, 3;
    setp.lt.u32 %p2, %r20, 50; @%p2 bra $loop;
    mov.u32 %r21, 7; bra $end; $early: mov.u32 %r21, 1; $end: shfl.sync.idx.b32 %r22, %r21, 3, 31, -1;
    add.s32 %r21, %r21, %r22;"""
    own = [1 if t % 3 == 0 and t < 50 else 7 for t in range(64)]
    assert words(body) == [own[t] + own[t // 32 * 32 + 3] for t in range(64)]


def test_a_branch_by_index() -> None:
    body = """and.b32 %r20, %r3, 3; $table: .branchtargets $a, $b, $c, $a; brx.idx %r20, $table;
    $a: mov.u32 %r21, 10; bra $end; $b: mov.u32 %r21, 20; bra $end; $c: mov.u32 %r21, 30; $end: bar.sync 0;"""
    assert words(body) == [[10, 20, 30, 10][t % 4] for t in range(64)]
    with pytest.raises(KernelFault, match="index 4 of 4 targets"):
        words(body.replace("3; $table", "7; $table"))


def test_a_barrier_with_a_guard() -> None:
    body = "setp.lt.u32 %p1, %r3, 64; @%p1 bar.sync 1, 64; mov.u32 %r21, 5; bar.sync 0;"
    assert words(body, 96) == [5] * 96
    with pytest.raises(KernelFault) as caught:
        words(body.replace("%r3, 64;", "%r3, 48;"), 96)
    assert caught.value.kind is FaultKind.DIVERGENCE


def test_early_ends_of_some_threads() -> None:
    found = words("mov.u32 %r21, 1; and.b32 %r20, %r3, 1; setp.eq.u32 %p1, %r20, 1; @%p1 exit; mov.u32 %r21, 2;")
    assert found == [2 if t % 2 == 0 else 0xFFFF_FFFF for t in range(64)]


def test_scopes_have_their_own_registers_and_labels() -> None:
    body = """mov.u32 %r21, 1; { .reg .b32 %r21; .reg .pred p; mov.u32 %r21, 50; setp.eq.u32 p, %r21, 50;
    @p bra inner; mov.u32 %r21, 9; inner: mov.u32 %r20, %r21; }
    { .reg .pred p; setp.eq.u32 p, %r20, 50; @p add.s32 %r21, %r21, 1; }"""
    assert words(body) == [2] * 64


def test_variables_of_the_module() -> None:
    variables = """.const .align 4 .b32 table[4] = {5, -1, 0x10, 7}; .global .align 4 .b8 bytes[8] = {1, 2, 3, 4};
    .global .f32 number = 0f3F800000; .global .align 4 .b32 count;"""
    body = """mov.u64 %d20, table; and.b32 %r20, %r3, 3; mul.wide.u32 %d21, %r20, 4; add.s64 %d20, %d20, %d21;
    ld.const.s32 %r21, [%d20]; ld.const.u32 %r22, [table+8]; add.s32 %r21, %r21, %r22; ld.global.u32 %r23, [bytes];
    ld.global.u32 %r24, [bytes+4]; add.s32 %r21, %r21, %r23; add.s32 %r21, %r21, %r24; ld.global.u32 %r25, [count];
    add.s32 %r21, %r21, %r25; ld.global.f32 %f1, [number]; cvt.rzi.s32.f32 %r26, %f1; add.s32 %r21, %r21, %r26;"""
    assert words(body, 32, variables) == [
        ([5, -1, 16, 7][t % 4] + 16 + 0x04030201 + 1) & 0xFFFF_FFFF for t in range(32)
    ]


def test_a_variable_keeps_its_value_from_launch_to_launch() -> None:
    text = kernel_text(
        ("ld.global.u32 %r5, [count]; add.s32 %r5, %r5, 1; bar.sync 0; st.global.u32 [count], %r5; "
"st.global.u32 [%d0], %r5;"),
        1, variables=".global .align 4 .u32 count;",
    )  # fmt: skip
    module, memory = parse(text), GlobalMemory()
    place = memory.allocate(4)
    for expected in (1, 2, 3):
        launch(module, "k", (1, 1, 1), (32, 1, 1), parameters(module.kernels["k"], place), memory)
        assert int(memory.load(place, np.uint32, (1,))[0]) == expected
    other = parse(text)
    launch(other, "k", (1, 1, 1), (32, 1, 1), parameters(other.kernels["k"], place), memory)
    assert int(memory.load(place, np.uint32, (1,))[0]) == 1


def test_parameters_by_every_kind_of_address() -> None:
    body = """mov.u64 %d20, p0; ld.param.u64 %d21, [%d20]; cvta.param.u64 %d22, %d20; ld.u64 %d23, [%d22];
    sub.s64 %d21, %d21, %d23; cvt.u32.u64 %r21, %d21;"""
    assert words(body) == [0] * 64
    with pytest.raises(KernelFault, match="8 bytes at offset 8 of 8 bytes of parameters"):
        words(body.replace("[%d20]", "[%d20+8]"))


def test_special_registers() -> None:
    body = ("mov.u32 %r20, %laneid; mov.u32 %r22, %warpid; mad.lo.s32 %r21, %r22, 100, %r20; mov.u32 "
"%r23, %nctaid.x; mad.lo.s32 %r21, %r23, 10000, %r21; mov.u32 %r24, %lanemask_lt; popc.b32 "
"%r24, %r24; sub.s32 %r24, %r24, %r20; add.s32 %r21, %r21, %r24;")  # fmt: skip
    assert words(body, 64, blocks=2) == [20_000 + t % 64 // 32 * 100 + t % 32 for t in range(128)]


def test_a_grid_of_three_dimensions() -> None:
    text = kernel_text(
        """mov.u32 %r5, %ctaid.z; mov.u32 %r6, %nctaid.y; mov.u32 %r7, %ctaid.y; mad.lo.s32 %r8, %r5, %r6, %r7;
        mov.u32 %r9, %nctaid.x; mad.lo.s32 %r8, %r8, %r9, %r1; mov.u32 %r10, %tid.z; mov.u32 %r11, %ntid.y;
        mov.u32 %r12, %tid.y; mad.lo.s32 %r13, %r10, %r11, %r12; mad.lo.s32 %r13, %r13, %r2, %r3;
        mad.lo.s32 %r14, %r8, 40, %r13; mul.wide.u32 %d10, %r14, 4;
        add.s64 %d11, %d0, %d10; st.global.u32 [%d11], %r14;""",
        1,
    )
    module, memory = parse(text), GlobalMemory()
    place = memory.allocate(4 * 24 * 40)
    launch(module, "k", (2, 3, 4), (5, 4, 2), parameters(module.kernels["k"], place), memory, seed=5)
    assert memory.load(place, np.uint32, (960,)).tolist() == list(range(960))


def test_hints_change_nothing() -> None:
    body = """createpolicy.fractional.L2::evict_first.b64 %d20, 0f3F800000; prefetch.global.L2 [%d11]; nanosleep 20;
    membar.gl; fence.acq_rel.gpu; fence.proxy.async; griddepcontrol.wait; setmaxnreg.inc.sync.aligned.u32 96;
    bar.warp.sync -1; barrier.sync.aligned 0; mov.u32 %r20, 4; st.global.cs.u32 [%d11], %r20; .pragma "nounroll";
    ld.global.L1::no_allocate.L2::cache_hint.u32 %r21, [%d11], %d20;"""
    assert words(body) == [4] * 64
