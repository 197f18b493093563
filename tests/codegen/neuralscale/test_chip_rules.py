"""Rules of the chip's scalar core, vector unit and operands that no program of the corpus depends on.

Each expectation was observed on the vendor's simulator, running a program of ours with the same instructions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.options import InitialBytes, SimulationOptions, SimulationResult

Program = Callable[..., bytes]

RESULT = 0x40_0000
L1 = 0xC000_0000
IM = 0xC040_0000
OUT = 0xC000_0100

VL8 = "li t0, 8\n.word 0x0042f057\n"
LOAD_V1 = f"li a1, {L1}\n.word 0x0205f087\n"
LOAD_V2 = f"li a1, {L1 + 16}\n.word 0x0205f107\n"
STORE_V3 = f"li a1, {OUT}\n.word 0x0205f1a7\n"


def _run(program: Program, text: str, l1: Sequence[int] = (), *, address: int = L1) -> SimulationResult:
    data = np.array(l1, np.uint16).tobytes()
    loads = (InitialBytes(address, data, core=0),) if data else ()
    result = simulate(program(text), SimulationOptions(loads=loads, max_instructions=100_000))
    assert result.fault is None, result.fault
    return result


def _halves(result: SimulationResult, address: int, count: int) -> list[int]:
    data = result.read(address, 2 * count, None if address < L1 else 0)
    return list(struct.unpack(f"<{count}H", data))


def _word(result: SimulationResult) -> int:
    return int.from_bytes(result.read(RESULT, 4), "little")


def _vector(program: Program, word: int, v1: Sequence[int], v2: Sequence[int] = (0,) * 8) -> list[int]:
    """v3 after `word` on vs2 = v1 and vs1 = v2, eight elements."""
    text = VL8 + LOAD_V1 + LOAD_V2 + f".word {word}\n" + STORE_V3 + "li a0, 0\n"
    return _halves(_run(program, text, (*v1, *v2)), OUT, 8)


BITS_A, BITS_B = (1, 1, 0, 0, 3, 2, 1, 0), (1, 0, 1, 0, 1, 1, 2, 2)


@pytest.mark.parametrize(
    ("funct", "expected"),
    [
        (0x62, [0, 1, 0, 0, 0, 0, 1, 0]),  # vs2 and not vs1
        (0x66, [1, 0, 0, 0, 1, 0, 0, 0]),
        (0x6A, [1, 1, 1, 0, 1, 1, 1, 0]),
        (0x6E, [0, 1, 1, 0, 0, 1, 1, 0]),
        (0x72, [1, 1, 0, 1, 1, 0, 1, 1]),  # vs2 or not vs1
        (0x76, [0, 1, 1, 1, 0, 1, 1, 1]),
        (0x7A, [0, 0, 0, 1, 0, 0, 0, 1]),
        (0x7E, [1, 0, 0, 1, 1, 0, 0, 1]),
    ],
)
def test_mask_logic_looks_at_bit_0(program: Program, funct: int, expected: list[int]) -> None:
    assert _vector(program, funct << 24 | 0x0011_21D7, BITS_A, BITS_B) == expected


@pytest.mark.parametrize(
    ("word", "bits", "expected"),
    [
        (0x5210_A1D7, (0, 2, 1, 0, 1, 0, 0, 0), [1, 1, 0, 0, 0, 0, 0, 0]),  # vmsbf
        (0x5211_21D7, (0, 2, 1, 0, 1, 0, 0, 0), [0, 0, 1, 0, 0, 0, 0, 0]),  # vmsof
        (0x5211_A1D7, (0, 2, 1, 0, 1, 0, 0, 0), [1, 1, 1, 0, 0, 0, 0, 0]),  # vmsif
        (0x5211_21D7, (0,) * 8, [1] * 8),  # no set bit: all ones, a defect of the chip's model
        (0x5218_21D7, (1, 0, 1, 1, 0, 2, 1, 1), [0, 1, 1, 2, 3, 3, 3, 4]),  # viota
    ],
)
def test_marks_around_the_first_set_bit(
    program: Program, word: int, bits: tuple[int, ...], expected: list[int]
) -> None:
    assert _vector(program, word, bits) == expected


def test_compress_packs_the_chosen_elements(program: Program) -> None:
    assert _vector(program, 0x5E11_21D7, range(10, 18), (0, 1, 0, 0, 1, 1, 2, 0))[:3] == [11, 14, 15]


@pytest.mark.parametrize(
    ("word", "v1", "v2", "expected"),
    [
        (0x1211_11D7, (0x8000, 0), (0, 0x8000), [0x8000, 0x8000]),  # vfmin knows -0 < +0
        (0x1A11_11D7, (0x8000, 0), (0, 0x8000), [0, 0]),
        (0x2211_11D7, (0x8000, 0x8000, 0xFE12, 0x3C00), (0, 0xBC00, 0, 0xBC00), [0x8000, 0, 0xFE12, 0xBC00]),
        (0x8A11_91D7, (0x0803, 0x7FFF, 0xF7FF, 0xFFFF), (), [0x6801, 0x77FF, 0xE800, 0xBC00]),  # vfcvt.f.x truncates
        (0x8A11_11D7, (0xFFFF, 0x0803), (), [0x7BFF, 0x6801]),
        (0x8E18_11D7, (0xFC00, 0x8001, 0x7C01, 0x7E00), (), [1, 4, 0x100, 0x200]),
    ],
)
def test_arithmetic_that_differs_from_the_vector_engine(
    program: Program, word: int, v1: tuple[int, ...], v2: tuple[int, ...], expected: list[int]
) -> None:
    def eight(values: tuple[int, ...]) -> tuple[int, ...]:
        return values + (0,) * (8 - len(values))

    assert _vector(program, word, eight(v1), eight(v2))[: len(expected)] == expected


@pytest.mark.parametrize(("word", "expected"), [(0x1E11_11D7, 0x4000), (0x1611_11D7, 0x3C00)])
def test_extremum_reductions_pass_over_nan(program: Program, word: int, expected: int) -> None:
    assert _vector(program, word, (0x7E00, 0x4000, 0x3C00, 0x7C01, *(0x3E00,) * 4), (0x3E00,) * 8)[0] == expected


def test_a_negative_slide_down_moves_up(program: Program) -> None:
    text = VL8 + LOAD_V1 + "li a2, -1\n.word 0x3e1641d7\n" + STORE_V3 + "li a0, 0\n"
    assert _halves(_run(program, text, range(1, 9)), OUT, 8) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_indexed_and_strided_accesses(program: Program) -> None:
    # v2 holds byte offsets; vlxe.v v3 from L1, vsxe.v of v1 to OUT.
    text = f"{VL8}{LOAD_V1}{LOAD_V2}li a1, {L1}\n.word 0x0e25f187\nli a1, {OUT}\n.word 0x0e25f0a7\n"
    text += f"li a1, {OUT + 64}\n.word 0x0205f1a7\nli a1, {OUT + 128}\nli a2, 4\n.word 0x0ac5f0a7\nli a0, 0\n"
    offsets = (14, 12, 10, 8, 6, 4, 2, 0)
    result = _run(program, text, (*range(1, 9), *offsets))
    assert _halves(result, OUT, 8) == [8, 7, 6, 5, 4, 3, 2, 1]
    assert _halves(result, OUT + 64, 8) == [8, 7, 6, 5, 4, 3, 2, 1]
    assert _halves(result, OUT + 128, 16)[::2] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_an_odd_index_traps(program: Program) -> None:
    text = f"{VL8}{LOAD_V2}li a1, {L1}\n.word 0x0e25f187\nli a0, 0\n"
    assert _run(program, text, (*(0,) * 8, 0, 2, 3, 4, 5, 6, 7, 8)).exit_code == 0x2E


def test_nothing_happens_when_vl_is_0(program: Program) -> None:
    # vlepi.v does not advance, vpopc.m does not write its register.
    text = f"li t0, 0\n.word 0x0042f057\nli a1, {L1}\nli a2, 6\n.word 0xfec580fb\nli a3, 7\n.word 0x421826d7\n"
    text += f"li t1, {RESULT}\nsub a1, a1, a3\nsw a1, 0(t1)\nli a0, 0\n"
    assert _word(_run(program, text)) == L1 - 7


def _vme(word: int, shape: int, target: int, source: int, second: int, strides: int = 0) -> str:
    text = f"li t0, {shape}\ncsrrw zero, shape_s1, t0\ncsrrw zero, stride_d, zero\nli t0, {strides}\n"
    return (
        text + f"csrrw zero, stride_s, t0\nli a0, {target}\nli a1, {source}\nli a2, {second}\n.word {word}\nli a0, 0\n"
    )


MOV_M = 0x2C05_957B
VEADD_MV_W = 0x06C5_E57B
VEADD_MM = 0x04C5_857B


def test_an_overlapping_move_smears(program: Program) -> None:
    result = _run(program, _vme(MOV_M, 6 << 16 | 1, L1 + 2, L1, 0), (1, 2, 3, 4, 5, 6, 7))
    assert _halves(result, L1, 7) == [1] * 7


def test_a_vector_of_rows_is_taken_column_by_column(program: Program) -> None:
    one, two = 0x3C00, 0x4000
    # 2 x 2 onto itself; the vector is its second and its third element.
    result = _run(program, _vme(VEADD_MV_W, 2 << 16 | 2, L1, L1, L1 + 2), (one, one, one, one))
    # Column 0 is added to (1, 1), which makes the third element 2; then column 1 to (1, 2).
    assert _halves(result, L1, 4) == [two, two, two, 0x4200]


def test_one_byte_elements_may_end_a_byte_past_the_memory(program: Program) -> None:
    end = IM + 0x4_0000
    to_x8 = 0x3025_957B
    assert _run(program, _vme(to_x8, 5 << 16 | 1, end - 4, L1, 0), (0,) * 5).exit_code == 0
    assert _run(program, _vme(to_x8, 5 << 16 | 1, end - 3, L1, 0), (0,) * 5).exit_code == 0x35


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("li a1, 0xc0000002\namoadd.w a2, zero, (a1)", 6),
        ("li a1, 0xc0000002\nsc.w a2, zero, (a1)", 6),
        ("li a1, 0xc2000000\namoadd.w a2, zero, (a1)", 7),
        ("li a1, 0xc2000002\namoadd.w a2, zero, (a1)", 6),
        ("li a1, 0xc2000000\nsc.w a2, zero, (a1)", 7),
        ("li a1, 0xc2000000\nlr.w a2, (a1)", 5),
        ("li a1, 0xc0601000\nsw zero, 0(a1)", 7),  # boot ROM
        ("li a1, 0xc0450000\nlw a2, 0(a1)", 5),  # behind the timer registers
        ("li a1, 0xc07f400c\nlw a2, 0(a1)", 5),  # empty queue of the mailbox
    ],
)
def test_atomics_and_registers_fault(program: Program, text: str, cause: int) -> None:
    assert _run(program, text + "\nli a0, 0\n").exit_code == cause


def test_a_failing_sc_gives_1(program: Program) -> None:
    text = f"li a1, {L1}\nli a2, 9\nsc.w a3, a2, (a1)\nli t1, {RESULT}\nsw a3, 0(t1)\nlw a0, 0(a1)\n"
    result = _run(program, text)
    assert (result.exit_code, _word(result)) == (0, 1)


@pytest.mark.parametrize(("text", "counted"), [("sync", 1), ("addi zero, zero, 0", 2), (f".word {VEADD_MM}", 2)])
def test_instret_leaves_out_what_runs_beside_the_core(program: Program, text: str, counted: int) -> None:
    setup = f"li t0, 65537\ncsrrw zero, shape_s1, t0\nli a0, {OUT}\nli a1, {L1}\nli a2, {L1}\n"
    text = setup + f"csrrs s3, minstret, zero\n{text}\ncsrrs s4, minstret, zero\nsub a0, s4, s3\n"
    assert _run(program, text).exit_code == counted


def test_sie_shows_only_delegated_interrupts(program: Program) -> None:
    text = f"li t0, -1\ncsrrw zero, 0x304, t0\ncsrrs t1, 0x104, zero\nli t2, {RESULT}\nsw t1, 0(t2)\n"
    text += "csrrw zero, 0x303, t0\ncsrrs a0, 0x104, zero\nsrli a0, a0, 5\n"
    result = _run(program, text)
    assert (result.exit_code, _word(result)) == (0x222 >> 5, 0)
