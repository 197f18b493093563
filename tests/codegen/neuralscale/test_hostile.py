"""What the simulator is hostile about: late data, transfers in flight, unwritten bytes. Each plant must be caught."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.options import InitialBytes, SimulationOptions, SimulationResult

Program = Callable[..., bytes]

RESULT = 0x40_0000
SOURCE = 0x20_0000
DATA = bytes(range(1, 65))

# 64 bytes from SOURCE to the address in a5, engine 0, channel 0.
START_DMA = f"""
  li s1, 0xc9f00000
  li s2, 0xc9f01000
  li t0, 0x80000040
  sw t0, 0(s2)
  li t0, {SOURCE}
  sw t0, 4(s2)
  sw a5, 8(s2)
  sw zero, 12(s2)
  sw zero, 16(s2)
  sw zero, 20(s2)
  sw s2, 276(s1)
  li t0, 1
  sw t0, 4(s1)
"""
WAIT_DMA = """
poll:
  lw t0, 16(s1)
  andi t0, t0, 1
  bne t0, zero, poll
"""
COPY_A_WORD = f"""
  lw t1, 0(a5)
  li t2, {RESULT}
  sw t1, 0(t2)
  li a0, 0
"""


def _kind(result: SimulationResult) -> str | None:
    return None if result.fault is None else result.fault.kind


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("poison", [False, True])
def test_dma_data_are_there_after_the_poll(program: Program, seed: int, poison: bool) -> None:
    elf = program(f"li a5, 0xf8000000\n{START_DMA}{WAIT_DMA}{COPY_A_WORD}", DATA)
    result = simulate(elf, SimulationOptions(seed=seed, poison=poison))
    assert _kind(result) is None
    assert result.read(RESULT, 4) == DATA[:4]
    assert dict(result.counts.moved_bytes) == {("DDR", "LLB"): 64}


def test_dma_data_are_not_there_before_the_poll(program: Program) -> None:
    elf = program(f"li a5, 0xf8000000\n{START_DMA}" + "addi zero, zero, 0\n" * 500 + COPY_A_WORD, DATA)
    assert simulate(elf, SimulationOptions()).read(RESULT, 4) == bytes(4)
    result = simulate(elf, SimulationOptions(poison=True))
    assert result.fault is not None
    assert result.fault.kind == "race"
    assert "lw t1, 0(a5): reads LLB 0xf8000000, the destination of a transfer still in flight" in result.fault.message


def test_busy_is_seen_before_completion(program: Program) -> None:
    text = f"""
      li a5, 0xf8000000
      {START_DMA}
      li a0, 0
    count:
      addi a0, a0, 1
      lw t0, 16(s1)
      bne t0, zero, count
    """
    polls = {simulate(program(text, DATA), SimulationOptions(seed=seed)).exit_code for seed in range(12)}
    assert polls == {1, 2, 3, 4}


def test_the_done_flag_completes_and_clears(program: Program) -> None:
    text = f"""
      li a5, 0xf8000000
      {START_DMA}
    wait:
      lw t1, 20(s1)
      beq t1, zero, wait
      sw t1, 20(s1)
      lw t2, 20(s1)
      slli a0, t2, 4
      or a0, a0, t1
    """
    assert simulate(program(text, DATA), SimulationOptions(poison=True)).exit_code == 1


def test_writing_the_source_of_a_dma_in_flight_is_a_race(program: Program) -> None:
    text = f"li a5, 0xf8000000\n{START_DMA}\nli t1, {SOURCE}\nsb zero, 5(t1)\n{WAIT_DMA}li a0, 0"
    result = simulate(program(text, DATA), SimulationOptions(poison=True))
    assert result.fault is not None
    assert result.fault.kind == "race"
    assert "writes DDR 0x200005, the source of a transfer still in flight" in result.fault.message


def test_reading_the_source_of_a_dma_in_flight_is_fine(program: Program) -> None:
    text = f"li a5, 0xf8000000\n{START_DMA}\nli t1, {SOURCE}\nlw t1, 8(t1)\n{WAIT_DMA}li a0, 0"
    assert _kind(simulate(program(text, DATA), SimulationOptions(poison=True))) is None


def test_two_transfers_may_share_a_source_but_not_a_destination(program: Program) -> None:
    second = """
      sw s2, 532(s1)
      li t0, 2
      sw t0, 4(s1)
    """
    shared = f"li a5, 0xf8000000\n{START_DMA}\nli t1, 0xf8000040\nsw t1, 8(s2)\n{second}"
    drain = "drain:\nlw t0, 16(s1)\nbne t0, zero, drain\nli a0, 0"
    assert _kind(simulate(program(shared + drain, DATA), SimulationOptions(poison=True))) is None
    clash = f"li a5, 0xf8000000\n{START_DMA}{second}"
    assert _kind(simulate(program(clash + drain, DATA), SimulationOptions(poison=True))) == "race"


def test_starting_a_busy_channel_is_a_race(program: Program) -> None:
    text = f"li a5, 0xf8000000\n{START_DMA}\nsw t0, 4(s1)\nli a0, 0"
    assert _kind(simulate(program(text, DATA), SimulationOptions())) == "race"


@pytest.mark.parametrize(
    ("source", "destination", "words"),
    [(0xC000_0000, RESULT, "source 0xc0000000"), (SOURCE, 0xE000_0000, "destination 0xe0000000")],
)
def test_dma_reaches_ddr_and_llb_only(program: Program, source: int, destination: int, words: str) -> None:
    text = f"li a5, {destination}\n{START_DMA}".replace(f"li t0, {SOURCE}", f"li t0, {source}")
    result = simulate(program(text + "li a0, 0", DATA), SimulationOptions())
    assert result.fault is not None
    assert result.fault.kind == "range"
    assert words in result.fault.message


def test_a_chain_that_never_ends_is_a_fault(program: Program) -> None:
    text = f"li a5, 0xf8000000\n{START_DMA}".replace("sw zero, 20(s2)", "sw s2, 20(s2)")
    result = simulate(program(text + "li a0, 0", DATA), SimulationOptions())
    assert result.fault is not None
    assert "chain never ends" in result.fault.message


ICMOV = """
  csrrs s5, tid, zero
  li a0, 0xc0001000
  li a1, 0xc0000000
  li a2, 64
  bne s5, zero, receiver
  li t0, 1
  csrrw zero, mte_icdest, t0
  icmov a0, a1, a2
"""
RECEIVER = f"""
receiver:
  lw t1, 0(a0)
  li t2, {RESULT}
  sw t1, 0(t2)
  sync
  wfi
"""


@pytest.mark.parametrize("seed", range(5))
def test_icmov_data_arrive_with_the_next_barrier(program: Program, seed: int) -> None:
    text = f"{ICMOV}\nsync\nsync\nli a0, 0\njal zero, exit\n" + RECEIVER.replace("lw", "sync\nlw", 1)
    loads = (InitialBytes(0xC000_0000, DATA, 0),)
    result = simulate(program(text), SimulationOptions(cores=2, loads=loads, seed=seed, poison=True))
    assert _kind(result) is None
    assert result.read(RESULT, 4) == DATA[:4]
    assert dict(result.counts.moved_bytes) == {("L1", "L1"): 64}


@pytest.mark.parametrize("seed", range(5))
def test_icmov_data_are_not_there_before_it(program: Program, seed: int) -> None:
    text = f"{ICMOV}\nsync\nli a0, 0\njal zero, exit\n{RECEIVER}"
    loads = (InitialBytes(0xC000_0000, DATA, 0), InitialBytes(0xC000_1000, b"old!" * 16, 1))
    result = simulate(program(text), SimulationOptions(cores=2, loads=loads, seed=seed))
    assert result.read(RESULT, 4) == b"old!"


def test_overwriting_what_icmov_still_sends_is_a_race(program: Program) -> None:
    text = f"{ICMOV}\nsw zero, 0(a1)\nsync\nli a0, 0\njal zero, exit\n" + RECEIVER.replace("lw", "sync\nlw", 1)
    result = simulate(
        program(text), SimulationOptions(cores=2, loads=(InitialBytes(0xC000_0000, DATA, 0),), poison=True)
    )
    assert _kind(result) == "race"


VEADD = """
  li t0, {shape}
  csrrw zero, shape_s1, t0
  li t0, {strides}
  csrrw zero, stride_s, t0
  csrrw zero, stride_d, zero
  li a0, 0xc0004000
  li a1, 0xc0000000
  li a2, 0xc0002000
  veadd.mm a0, a1, a2
  li a0, 0
"""
ONES = np.full(64, 0x3C00, "<u2").tobytes()


def _two_loads(first: bytes, second: bytes) -> tuple[InitialBytes, InitialBytes]:
    return InitialBytes(0xC000_0000, first), InitialBytes(0xC000_2000, second)


def test_an_operand_that_nothing_wrote_is_named(program: Program) -> None:
    elf = program(VEADD.format(shape=0x0008_0004, strides=0))
    whole = simulate(elf, SimulationOptions(poison=True, loads=_two_loads(ONES[:64], ONES[:64])))
    assert _kind(whole) is None
    assert whole.read(0xC000_4000, 2) == b"\x00\x40"
    short = simulate(elf, SimulationOptions(poison=True, loads=_two_loads(ONES[:64], ONES[:62])))
    assert short.fault is not None
    assert short.fault.kind == "poison"
    assert "veadd.mm a0, a1, a2: reads L1 0xc000203e of core 0, which nothing has written" in short.fault.message


def test_the_gaps_of_a_strided_operand_are_not_read(program: Program) -> None:
    elf = program(VEADD.format(shape=0x0002_0003, strides=0x0000_0010))
    rows = tuple(InitialBytes(0xC000_0000 + 16 * row, ONES[:4]) for row in range(3))
    result = simulate(elf, SimulationOptions(poison=True, loads=(*rows, InitialBytes(0xC000_2000, ONES[:12]))))
    assert _kind(result) is None


def test_results_count_as_written(program: Program) -> None:
    chained = VEADD.replace("li a0, 0\n", "veadd.mm a2, a0, a1\nli a0, 0\n")
    elf = program(chained.format(shape=0x0008_0004, strides=0))
    assert _kind(simulate(elf, SimulationOptions(poison=True, loads=_two_loads(ONES[:64], ONES[:64])))) is None


@pytest.mark.parametrize(
    ("target", "strides", "kind"),
    [
        (0xC000_0000, 0x0010_0010, None),  # in place
        (0xC000_0002, 0x0010_0010, "overlap"),  # one element further
        (0xC000_0008, 0x0010_0010, None),  # between the rows
        (0xC000_0000, 0x0000_0010, "overlap"),  # another stride
    ],
)
def test_results_may_overlap_a_source_only_element_by_element(
    program: Program, target: int, strides: int, kind: str | None
) -> None:
    text = VEADD.format(shape=0x0004_0004, strides=strides & 0xFFFF).replace("0xc0004000", str(target))
    text = text.replace("csrrw zero, stride_d, zero", f"li t0, {strides >> 16}\ncsrrw zero, stride_d, t0")
    result = simulate(program(text), SimulationOptions(poison=True, loads=_two_loads(ONES, ONES)))
    assert _kind(result) == kind


MECONV = """
  li t0, 0x00040004
  csrrw zero, conv_FM_in, t0
  li t0, 0x00000002
  csrrw zero, conv_Depth_in, t0
  li t0, 0x00020002
  csrrw zero, conv_FM_out, t0
  li t0, 0x00000002
  csrrw zero, conv_Depth_out, t0
  csrrw zero, conv_S_kernel, zero
  li t0, 0x01010102
  csrrw zero, conv_kernel, t0
  csrrw zero, conv_padding, zero
  li a0, 0xc0400000
  li a1, 0xc0000000
  li a2, 0xc0002000
  meconv.mm a0, a1, a2
  li a0, 0
"""


def test_a_strided_convolution_reads_only_the_pixels_it_uses(program: Program) -> None:
    used = tuple(InitialBytes(0xC000_0000 + 4 * (4 * y + x), ONES[:4]) for y in (0, 2) for x in (0, 2))
    weights = InitialBytes(0xC000_2000, ONES[:8])
    assert _kind(simulate(program(MECONV), SimulationOptions(poison=True, loads=(*used, weights)))) is None
    result = simulate(program(MECONV), SimulationOptions(poison=True, loads=(*used[:3], weights)))
    assert result.fault is not None
    assert "reads L1 0xc0000028 of core 0" in result.fault.message


def test_a_wrong_output_shape_is_a_fault(program: Program) -> None:
    elf = program(MECONV.replace("li t0, 0x00020002", "li t0, 0x00020003"))
    result = simulate(elf, SimulationOptions())
    assert result.fault is not None
    assert "conv_FM_out is 3 x 2, the convolution gives 2 x 2" in result.fault.message


@pytest.mark.parametrize("size", ["lw t2, 0(t1)", "lh t2, 2(t1)", "lbu t2, 3(t1)", "flw fa0, 0(t1)", "flhw fa0, (t1)"])
def test_scalar_reads_of_unwritten_bytes(program: Program, size: str) -> None:
    text = f"li t1, {SOURCE}\n{size}\nli a0, 0"
    assert _kind(simulate(program(text), SimulationOptions(poison=True))) == "poison"
    assert _kind(simulate(program(text), SimulationOptions())) is None
    assert _kind(simulate(program(text, DATA), SimulationOptions(poison=True))) is None


def test_one_written_byte_does_not_make_a_word(program: Program) -> None:
    text = "li t1, 0x500000\nsb zero, 1(t1)\nlbu t2, 1(t1)\n{}\nli a0, 0"
    assert _kind(simulate(program(text.format("addi zero, zero, 0")), SimulationOptions(poison=True))) is None
    assert _kind(simulate(program(text.format("lw t2, 0(t1)")), SimulationOptions(poison=True))) == "poison"
    assert _kind(simulate(program(text.format("lh t2, 0(t1)")), SimulationOptions(poison=True))) == "poison"


def test_running_unwritten_memory_is_named(program: Program) -> None:
    result = simulate(program("li t1, 0x500000\njalr zero, 0(t1)"), SimulationOptions(poison=True))
    assert result.fault is not None
    assert (result.fault.kind, result.exit_code) == ("poison", 126)
    assert "executes bytes that nothing has written" in result.fault.message


def test_dumps_of_unwritten_bytes_are_nan_patterns(program: Program) -> None:
    result = simulate(program("li a0, 0"), SimulationOptions(poison=True))
    assert np.isnan(np.frombuffer(result.read(RESULT, 64), "<f2")).all()
    assert simulate(program("li a0, 0"), SimulationOptions()).read(RESULT, 64) == bytes(64)
