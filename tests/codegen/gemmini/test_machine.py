"""The simulator: arithmetic against numpy, faults with their instruction, and drawn programs.

The hashes of drawn programs are those of the memory that the generator's functional model leaves when it executes the
same files on the public RISC-V simulator, with its rounding macro replaced by the C library's `rintf`; see
docs/gemmini.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pytest

from codegen.gemmini.emit.core_code import constant, stream_code
from codegen.gemmini.emit.executable import end_code, host_segment, host_symbols, start_code
from codegen.gemmini.isa.geometry import BASE, ArrayGeometry, geometry_symbol
from codegen.gemmini.isa.operations import ACCUMULATE, ACCUMULATOR, FULL_WIDTH, GARBAGE
from codegen.gemmini.isa.table import CODEC, instruction
from codegen.gemmini.simulator.machine import MachineError, MachineResult, simulate
from codegen.gemmini.streams.streams import Elements, Item, Loop, Operand, looped, once, operands_of, stream_of
from codegen.riscv.codec import Instruction
from codegen.riscv.elf_format import ELF64, ElfSymbol, SymbolKind
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes
from tests.codegen.gemmini.drawn_programs import drawn_program

IN, OUT = BASE + 0x10000, BASE + 0x20000


def executable(code: Sequence[Instruction], symbols: Sequence[ElfSymbol] = ()) -> bytes:
    text = b"".join(CODEC.encode(word).to_bytes(4, "little") for word in code)
    segments = (ElfSegment(".text", BASE, (text,), SegmentFlags.READ_EXECUTE), host_segment())
    return elf_bytes(BASE, segments, (*host_symbols(), *symbols), b"", ELF64)


def ran(items: Sequence[Item], data: bytes = b"") -> MachineResult:
    return simulate(executable([*start_code(), *stream_code(items), *end_code()]), {IN: data} if data else {})


def named(geometry: ArrayGeometry) -> ElfSymbol:
    """The symbol of a program for an array of that geometry."""
    return ElfSymbol(geometry_symbol(geometry), BASE, 0, SymbolKind.OBJECT)


CONFIGURED = (
    once("config_ld", state=0, pixels_per_row=1, block_rows=16, scale=1.0, stride=16),
    once("config_ex", weight_stationary=1, a_stride=1, c_stride=1),
    once("config_st", stride=16, scale=1.0),
)


@pytest.mark.commit
def test_a_product_with_what_is_in_the_accumulator() -> None:
    random = np.random.default_rng(1)
    a, b = random.integers(-128, 128, (2, 16, 16)).astype(np.int8)
    bias = random.integers(-(1 << 20), 1 << 20, (16, 16)).astype(np.int32)
    items = (
        *CONFIGURED,
        once("config_ld", state=2, pixels_per_row=1, scale=1.0, stride=64),
        once("mvin", dram=IN, row=0, columns=16, rows=16),
        once("mvin", dram=IN + 256, row=16, columns=16, rows=16),
        once("mvin3", dram=IN + 512, row=ACCUMULATOR, columns=16, rows=16),
        once("preload", b_row=16, b_columns=16, b_rows=16, c_row=ACCUMULATOR + ACCUMULATE, c_columns=16, c_rows=16),
        once("compute_preloaded", a_row=0, a_columns=16, a_rows=16, d_row=GARBAGE, d_columns=16, d_rows=16),
        once("config_st", stride=64, scale=1.0),
        once("mvout", dram=OUT, row=ACCUMULATOR + FULL_WIDTH, columns=16, rows=16),
        once("config_st", activation=1, stride=16, scale=0.0003),
        once("mvout", dram=OUT + 1024, row=ACCUMULATOR, columns=16, rows=16),
    )
    result = ran(items, a.tobytes() + b.tobytes() + bias.tobytes())
    assert result.fault == ""
    sums = bias + a.astype(np.int32) @ b.astype(np.int32)
    assert np.array_equal(np.frombuffer(result.read(OUT, 1024), np.int32).reshape(16, 16), sums)
    scaled = np.clip(np.rint(sums.astype(np.float32) * np.float32(0.0003)), -128, 127)
    assert np.array_equal(np.frombuffer(result.read(OUT + 1024, 256), np.int8).reshape(16, 16), np.maximum(scaled, 0))
    assert (result.counts["mvin"], result.counts["compute_preloaded"], result.loaded_bytes) == (2, 1, 1536)


def test_moving_in_scales_with_ties_to_even_and_bounds() -> None:
    data = np.array([1, 3, 5, -1, -3, 127, -128, 0], np.int8)
    config = once("config_ld", state=1, pixels_per_row=1, scale=0.5, stride=16)
    doubled = once("config_ld", state=1, pixels_per_row=1, scale=2.0, stride=16)
    result = ran((
        *CONFIGURED, config, once("mvin2", dram=IN, row=0, columns=8, rows=1),
        doubled, once("mvin2", dram=IN, row=1, columns=8, rows=1), once("mvout", dram=OUT, row=0, columns=8, rows=2),
    ), data.tobytes())  # fmt: skip
    assert list(np.frombuffer(result.read(OUT, 8), np.int8)) == [0, 2, 2, 0, -2, 64, -64, 0]
    assert list(np.frombuffer(result.read(OUT + 16, 8), np.int8)) == [2, 6, 10, -2, -6, 127, -128, 0]


MOVED = once("mvin", dram=IN, row=0, columns=16, rows=16)
FAULTS = {
    "unwritten": (once("mvin", dram=IN + 512, row=0, columns=16, rows=1), "the bytes from 0x80010200 on were not"),
    "outside": (once("mvin", dram=0x1000, row=0, columns=16, rows=1), "0x1000 is not memory"),
    "no row": (once("mvin", dram=IN, row=16_380, columns=16, rows=16), "local row 16384 does not exist"),
    "unwritten row": (once("mvout", dram=OUT, row=40, columns=1, rows=1), "local row 40 has elements that were not"),
    "nothing to add to": (once("mvin", dram=IN, row=ACCUMULATOR + ACCUMULATE, columns=4, rows=1), "local row 0 has"),
    "no factor": (once("compute_preloaded", a_row=GARBAGE), "the left factor is no block"),
    "too long": (once("config_ld", state=3), "the fields contradict each other"),
    "transposes": (once("config_ex", weight_stationary=1, transpose_a=1, transpose_b=1), "contradict each other"),
    "norms": (once("config_norm"), "this is not simulated"),
    "function": (once("config_st", activation=3), "this is not simulated"),
    "loops": (once("loop_conv_ws"), "were not all set since the loop before"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_names_place_and_instruction(name: str) -> None:
    item, said = FAULTS[name]
    result = ran((*CONFIGURED, MOVED, item), bytes(512))
    assert said in result.fault
    assert result.fault.startswith(f"pc {result.pc:#x}, ")
    assert result.exit_code == 126


def test_a_segment_larger_than_memory_is_refused_before_it_is_made() -> None:
    huge = ElfSegment(".zeros", BASE + (1 << 20), (b"",), SegmentFlags.READ_WRITE, zero_bytes=1 << 60)
    code = ElfSegment(".text", BASE, (bytes(4),), SegmentFlags.READ_EXECUTE)
    with pytest.raises(MachineError, match="are not memory"):
        simulate(elf_bytes(BASE, (code, huge), host_symbols(), b"", ELF64), {})


def test_the_core_takes_no_odd_addresses() -> None:
    code = [*start_code(), *constant(5, IN + 2), instruction("lw", 6, 0, 5), *end_code()]
    assert "lw t1, 0(t0): 0x80010002 is no multiple of the bytes" in simulate(executable(code), {IN: bytes(8)}).fault


def test_floating_point_is_off_until_a_program_turns_it_on() -> None:
    code = [*constant(5, BASE), instruction("fmv.w.x", 0, 5), *end_code()]
    assert simulate(executable(code), {}).fault.endswith("fmv.w.x ft0, t0: floating point is off: the program has not "
                                                         "turned it on")  # fmt: skip


VALUES = (0, 1, -1, 2047, 2048, -2048, -2049, 0x7FFFFFFF, 0x80000000, -(1 << 31), 0x800 << 20,
          -(1 << 63), (1 << 63) - 1, 0x0010_0010_8000_0010, 0xFFFF_0000_FFFF_F800)  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_constants_of_64_bits(value: int) -> None:
    code = [*start_code(), *constant(5, value), *constant(6, OUT), instruction("sd", 5, 0, 6), *end_code()]
    result = simulate(executable(code), {})
    assert int.from_bytes(result.read(OUT, 8), "little") == value & (1 << 64) - 1


LEAST = -(1 << 63)
QUOTIENTS = {(7, 2): (3, 1), (-7, 2): (-3, -1), (7, -2): (-3, 1), (-7, -2): (3, -1), (-6, 3): (-2, 0), (5, 0): (-1, 5),
             (-5, 0): (-1, -5), (LEAST, -1): (LEAST, 0), (LEAST, 1): (LEAST, 0), (1, LEAST): (0, 1)}  # fmt: skip


@pytest.mark.parametrize("numbers", QUOTIENTS)
def test_divisions_are_toward_zero(numbers: tuple[int, int]) -> None:
    dividend, divisor = (list(constant(5 + place, number)) for place, number in enumerate(numbers))
    made = [instruction("div", 7, 5, 6), instruction("rem", 8, 5, 6), *constant(9, OUT)]
    stored = [instruction("sd", 7, 0, 9), instruction("sd", 8, 8, 9)]
    result = simulate(executable([*start_code(), *dividend, *divisor, *made, *stored, *end_code()]), {})
    assert tuple(np.frombuffer(result.read(OUT, 16), np.int64)) == QUOTIENTS[numbers]


def test_loops_of_the_core_are_those_of_the_stream() -> None:
    """Three loops around a move each way and an element, whose steps are small, large and negative."""
    random = np.random.default_rng(2)
    data = random.integers(-128, 128, 3 * 4 * 16 * 5, np.int8)
    steps = ({"dram": 320, "row": 1000}, {"dram": 80, "row": 7}, {"dram": 16, "row": 50})
    element = Elements((0x40000000,), (("int8", Operand(IN + 959, (-320, -80, -1))),), (("multiply", 0, 1),),
                       ("float32", Operand(OUT, (1280, 320, 4))))  # fmt: skip
    moves = Loop(3, (Loop(4, (Loop(5, (looped("mvin", steps, dram=IN, row=3, columns=16, rows=1),)),)),))
    out = Loop(3, (Loop(4, (Loop(5, (looped("mvout", steps, dram=OUT + 8192, row=3, columns=16, rows=1),)),)),))
    stream = (*CONFIGURED, moves, out, Loop(3, (Loop(4, (Loop(80, (element,)),)),)))
    assert stream_of(operands_of(stream)) == stream
    result = ran(stream, data.tobytes())
    assert result.fault == ""
    assert result.read(OUT + 8192, 960) == data.tobytes()
    assert np.array_equal(np.frombuffer(result.read(OUT, 3840), np.float32), 2.0 * data[::-1].astype(np.float32))


@pytest.mark.parametrize(("numbers", "more"), [(12, 0), (12, 1100)])
def test_a_loop_with_many_constants_and_a_body_beyond_the_reach_of_a_branch(numbers: int, more: int) -> None:
    body = [
        looped("mvout", [{"dram": 0x10001 * (k + 1)}], dram=OUT + 16 * k, row=0, columns=16, rows=1)
        for k in range(numbers)
    ]
    same = looped("mvout", [{}], dram=OUT + 0x8000, row=0, columns=16, rows=1)
    result = ran((*CONFIGURED, MOVED, Loop(2, (*body, *[same] * more))), bytes(range(256)))
    assert result.fault == ""
    assert result.counts["mvout"] == 2 * (numbers + more)
    for k in range(numbers):
        assert result.read(OUT + 16 * k + 0x10001 * (k + 1), 16) == bytes(range(16))


WITNESSED = {
    0: "2b43480aa5609ae4",
    1: "74e4125eb5e0c061",
    2: "a9c6df73c2125497",
    3: "3f294fc3eccc1f43",
    4: "dcc5a76a0eb1a034",
    5: "c9153359b513bb79",
}


@pytest.mark.parametrize("seed", range(6))
def test_drawn_programs_leave_the_memory_that_the_functional_model_leaves(seed: int) -> None:
    program = drawn_program(seed)
    result = simulate(program.executable, program.loads, poison=False)
    assert result.fault == ""
    left = sha256(b"".join(result.read(*part) for part in program.ranges)).hexdigest()
    assert left[:16] == WITNESSED[seed]
