"""Copies as DMA descriptors, transfer and vector instructions: decoded again, they move exactly the bytes asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.neuralscale.emit.memory_map import address_of
from codegen.neuralscale.kernels.transfers import copy_instructions
from codegen.neuralscale.target import TARGET
from hw_models.cost import vector_cycles
from hw_models.errors import TargetError
from isched.hazards.verify_program import verify_program
from isched.program.program import Instr, Program, Region, Stream
from isched.program.target import MemoryCopy
from tests.chip_runs import compile_graph, stcp920
from tests.small_graphs import GraphBuilder

CHIP = stcp920()
Move = tuple[int, int, int]
"""Source address, destination address, bytes."""


def runs(region: Region) -> Iterator[tuple[int, int]]:
    """(address, bytes) of each row."""
    base = address_of(region.memory, region.offset_bytes)
    for row in range(region.rows):
        yield base + row * (region.stride_bytes if region.rows > 1 else 0), region.row_bytes


def wanted(copy: MemoryCopy) -> list[Move]:
    rows = zip(runs(copy.source), runs(copy.destination), strict=True)
    return [(source, destination, size) for (source, size), (destination, _) in rows]


def decoded(instr: Instr) -> list[Move]:
    """What an instruction moves, from its operands alone."""
    operands = dict(instr.operands)
    if instr.opcode == "dma.start":
        words = [operands[f"w{i}"] for i in range(len(operands) - 2)]
        return [move for i in range(0, len(words), 5) for move in descriptor(words[i : i + 5])]
    if instr.opcode in ("mov.l1.llb", "mov.llb.l1"):
        rows, columns = operands["mte_shape"] & 0xFFFF, operands["mte_shape"] >> 16
        row = 2 * columns
        stride = operands["mte_stride_llb"] or row
        assert 0 < rows <= 65_535
        assert 0 < columns <= 65_535
        assert row <= stride <= 65_534 or rows == 1 or operands["mte_stride_llb"] == 0
        inward = instr.opcode == "mov.l1.llb"
        source_step, destination_step = (stride, row) if inward else (row, stride)
        return [(operands["rs1"] + r * source_step, operands["rd"] + r * destination_step, row) for r in range(rows)]
    if instr.opcode == "mov.m":
        rows, columns = operands["shape_s1"] & 0xFFFF, operands["shape_s1"] >> 16
        steps = [operands[name] or 2 * columns for name in ("stride_s", "stride_d")]
        assert 0 < columns <= 65_535
        assert all(2 * columns <= step <= 65_534 for step in steps) or rows == 1 or steps == [2 * columns] * 2
        return [(operands["rs1"] + r * steps[0], operands["rd"] + r * steps[1], 2 * columns) for r in range(rows)]
    return []


def descriptor(words: list[int]) -> list[Move]:
    control, source, destination, shape, stride = words
    assert control >> 31 == 1
    if not control >> 29 & 1:
        return [(source, destination, control & 0x3F_FFFF or 1 << 22)]
    width = (shape & 0xFFFF) | (stride >> 24) << 16
    rows, step = shape >> 16, stride & 0xFF_FFFF
    assert width <= step
    assert 0 < width < 1 << 22
    return [(source + row * step, destination + row * width, width) for row in range(rows)]


def joined(moves: list[Move]) -> list[Move]:
    """Sorted by destination, neighbours that continue each other made one."""
    result: list[Move] = []
    for source, destination, size in sorted(moves, key=lambda move: move[1]):
        if result:
            before = result[-1]
            if before[0] + before[2] == source and before[1] + before[2] == destination:
                result[-1] = (before[0], before[1], before[2] + size)
                continue
        result.append((source, destination, size))
    return result


def check(copies: tuple[MemoryCopy, ...]) -> tuple[Instr, ...]:
    instrs = copy_instructions(copies, "layer", CHIP)
    assert joined([m for i in instrs for m in decoded(i)]) == joined([m for copy in copies for m in wanted(copy)])
    for side in ("reads", "writes"):
        told = [run for instr in instrs for region in getattr(instr, side) for run in runs(region)]
        meant = [run for copy in copies for run in runs(copy.source if side == "reads" else copy.destination)]
        assert joined([(a, a, n) for a, n in told]) == joined([(a, a, n) for a, n in meant])
    return instrs


def copy_of(way: tuple[str, str], offset: int, row_bytes: int, rows: int, gap: int, strided: str) -> MemoryCopy:
    """`strided` says which side has the gap."""
    pitch = row_bytes + gap if rows > 1 else 0
    dense = row_bytes if rows > 1 else 0
    source = Region(way[0], offset, row_bytes, rows, pitch if strided == "source" else dense)
    destination = Region(way[1], 64, row_bytes, rows, pitch if strided == "destination" else dense)
    return MemoryCopy(source, destination)


@given(
    st.sampled_from([("DDR", "LLB"), ("LLB", "DDR")]),
    st.integers(0, 1000),
    st.one_of(st.integers(1, 300), st.integers(60_000, 70_000)),
    st.integers(1, 200),
    st.integers(0, 500),
    st.sampled_from(["source", "destination"]),
)
def test_dma(way: tuple[str, str], offset: int, row: int, rows: int, gap: int, strided: str) -> None:
    check((copy_of(way, offset, row, min(rows, 3_000_000 // (row + gap) + 1), gap, strided),))


@given(
    st.booleans(),
    st.integers(0, 100),
    st.one_of(st.integers(1, 300), st.integers(32_000, 70_000)),
    st.integers(1, 200),
    st.integers(0, 500),
)
def test_between_llb_and_l1(inward: bool, offset: int, columns: int, rows: int, gap: int) -> None:
    way, strided = (("LLB", "L1"), "source") if inward else (("L1", "LLB"), "destination")
    check((copy_of(way, 2 * offset, 2 * columns, min(rows, 500_000 // columns + 1), 2 * gap, strided),))


@given(
    st.integers(0, 100),
    st.one_of(st.integers(1, 300), st.integers(32_000, 70_000)),
    st.integers(1, 200),
    st.integers(0, 500),
    st.one_of(st.integers(0, 500), st.integers(33_000, 40_000)),
)
def test_inside_l1(offset: int, columns: int, rows: int, gap: int, other_gap: int) -> None:
    rows = min(rows, 500_000 // columns + 1)
    row = 2 * columns
    source, destination = (
        Region("L1", start, row, rows, row + 2 * more if rows > 1 else 0)
        for start, more in ((2 * offset, gap), (1 << 24, other_gap))
    )
    instrs = check((MemoryCopy(source, destination),))
    assert {instr.engine for instr in instrs} == {"vector"}


def test_inside_l1_on_the_chip() -> None:
    """A matrix of 6 x 8 goes into columns 3 to 10 of one of 6 x 16, whose columns 1 to 8 come back."""
    builder = GraphBuilder("moved")
    x = builder.input("x", 6, 16)
    graph, constants = builder.build(builder.elementwise("relu", x))
    places = compile_graph(graph, constants, CHIP).program.placements
    into, out_of = (place.offset_bytes for place in places)
    size, wide = 6 * 32, 1 << 12
    moves = [
        MemoryCopy(Region("DDR", into, size), Region("LLB", 0, size)),
        MemoryCopy(Region("LLB", 0, size), Region("L1", wide, size)),
        MemoryCopy(Region("LLB", 0, 16, 6, 32), Region("L1", 0, 16, 6, 16)),
        MemoryCopy(Region("L1", 0, 16, 6, 16), Region("L1", wide + 6, 16, 6, 32)),
        MemoryCopy(Region("L1", wide + 2, 16, 6, 32), Region("L1", 0, 16, 6, 16)),
        MemoryCopy(Region("L1", 0, 6 * 16), Region("LLB", size, 6 * 16)),
        MemoryCopy(Region("LLB", size, 6 * 16), Region("DDR", out_of, 6 * 16)),
    ]
    instrs = [instr for copy in moves for instr in copy_instructions((copy,), "layer", CHIP)]
    within = [instr for instr in instrs if instr.engine == "vector"]
    assert [instr.cycles for instr in within] == [vector_cycles(CHIP, 48, "float16")] * 2
    # Nothing watches the DMA: a barrier makes sure that the LLB holds what it takes away.
    barrier = TARGET.synchronise("layer")
    last = max(n for n, instr in enumerate(instrs) if instr.starts)
    first = (*instrs[:last], barrier, *instrs[last:])
    streams = [Stream(core, first if core == 0 else (barrier,)) for core in range(CHIP.cores_per_cluster)]
    program = Program("moved", CHIP.name, 0, TARGET.barrier, places, tuple(streams))
    verify_program(program, CHIP)
    # Every pattern of bits must survive, those of denormals and NaNs too.
    bits = np.random.default_rng(0).integers(0, 1 << 16, (6, 16)).astype(np.uint16)
    bits[0, :4] = 0x7D01, 0xFFFF, 0x0001, 0x8000
    read = TARGET.address("DDR", out_of), 6 * 16
    files = TARGET.emit(program, graph, constants)
    stored = TARGET.run(files, {TARGET.address("DDR", into): bits.tobytes()}, (read,), 0).memory[read]
    bits[:, 3:11] = bits[:, :8].copy()
    np.testing.assert_array_equal(np.frombuffer(stored, np.uint16).reshape(6, 8), bits[:, 1:9])


def test_a_long_run_is_shared_by_both_engines_and_awaited() -> None:
    copy = MemoryCopy(Region("DDR", 0, 6 << 20), Region("LLB", 0, 6 << 20))
    instrs = check((copy,))
    assert [i.opcode for i in instrs] == ["dma.start", "dma.start", "dma.wait", "dma.wait"]
    assert {i.starts for i in instrs if i.starts} == {i.awaits for i in instrs if i.awaits} == {"dma0.0", "dma1.0"}


def test_an_odd_number_of_elements_is_shared_by_whole_elements() -> None:
    size = 31 * 31 * 31 * 3 * 2
    instrs = copy_instructions((MemoryCopy(Region("DDR", 0, size), Region("LLB", 4096, size)),), "l", CHIP)
    moves = [move for instr in instrs if instr.opcode == "dma.start" for move in decoded(instr)]
    assert len(moves) == CHIP.dma.engines_per_cluster
    assert all(number % 2 == 0 for move in moves for number in move)
    assert sum(count for _, _, count in moves) == size


def test_more_descriptors_than_the_store_holds_go_in_several_chains() -> None:
    rows = 400
    copy = MemoryCopy(Region("LLB", 0, 10, rows, 10), Region("DDR", 0, 10, rows, 30))
    instrs = check((copy,))
    chains = [(len(i.operands) - 2) // 5 for i in instrs if i.opcode == "dma.start"]
    assert sum(chains) == rows
    assert max(chains) <= CHIP.dma.max_descriptors // 2


def test_the_last_row_before_the_end_of_the_slice_goes_alone() -> None:
    """The chip's range check counts the gap behind the last row."""
    size = CHIP.memory("LLB").size_bytes
    copy = MemoryCopy(Region("LLB", size - 9 * 64 - 16, 16, 10, 64), Region("L1", 0, 16, 10, 16))
    instrs = check((copy,))
    assert [dict(i.operands)["mte_shape"] & 0xFFFF for i in instrs] == [9, 1]


def test_a_way_that_the_chip_does_not_have() -> None:
    with pytest.raises(TargetError, match=r"copies between DDR and LLB, LLB and L1 or inside L1.*DDR to L1"):
        copy_instructions((MemoryCopy(Region("DDR", 0, 8), Region("L1", 0, 8)),), "layer", CHIP)
