"""The accelerator's instructions: known words, fields there and back, refusals, text; and files of 64 bits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.gemmini.isa.operations import FUNCTIONS, OPERATIONS, RoccOperation, decoded, operands
from codegen.gemmini.isa.table import CODEC, ROWS, format_instruction, instruction
from codegen.riscv.codec import IsaError
from codegen.riscv.elf import read_elf
from codegen.riscv.elf_format import ELF32, ELF64, ElfError, ElfSymbol
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes

# From the published encoding: funct7, rs2 = a1, rs1 = a0, funct3 = 3, no rd, opcode.
KNOWN_WORDS = {"config": 0x00B5307B, "mvin": 0x04B5307B, "mvout": 0x06B5307B, "loop_conv_ws": 0x1EB5307B}
KNOWN_OPERANDS: dict[str, tuple[dict[str, float], int, int]] = {
    "config_ld": ({"state": 1, "pixels_per_row": 1, "block_rows": 64, "scale": 1.0, "stride": 256},
                  0x3F800000_0040_01_09, 256),
    "config_st": ({"activation": 1, "stride": 16, "scale": 0.5}, 0b110, 0x3F000000_00000010),
    "config_ex": ({"weight_stationary": 1, "a_stride": 2, "c_stride": 1}, 0x00000000_0002_00_04, 0x0001_0000_0000_0000),
    "mvin": ({"dram": 0x80100000, "row": 0xC0000010, "columns": 16, "rows": 8}, 0x80100000, 0x0008_0010_C000_0010),
}  # fmt: skip


def test_words_are_those_of_the_published_encoding() -> None:
    for name, word in KNOWN_WORDS.items():
        assert CODEC.encode(instruction(name, 10, 11)) == word
        assert CODEC.decode(word) == instruction(name, 10, 11)
    for name, (fields, first, second) in KNOWN_OPERANDS.items():
        assert operands(name, **fields) == (first, second), name


def test_no_two_rows_have_a_word_in_common() -> None:
    for number, one in enumerate(ROWS):
        for other in ROWS[:number]:
            both = one.mask & other.mask
            assert one.match & both != other.match & both, (one.mnemonic, other.mnemonic)


@pytest.mark.spread(8)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.mnemonic)
@given(data=st.data())
def test_fields_come_back(operation: RoccOperation, data: st.DataObject) -> None:
    fields = {
        bits.name: data.draw(
            st.floats(width=32, allow_nan=False) if bits.kind == "float32" else st.integers(0, (1 << bits.width) - 1)
        )
        for bits in (*operation.first, *operation.second)
    }
    found = decoded(FUNCTIONS[operation.function], *operands(operation.mnemonic, **fields))
    assert found is not None
    assert found.operation is operation
    assert dict(found.fields) == fields


def test_what_no_operand_can_hold_is_refused() -> None:
    with pytest.raises(IsaError, match="mvin: columns is 65536, which is no number of 16 bits"):
        operands("mvin", columns=65536)
    with pytest.raises(IsaError, match="mvin has the fields columns, dram, row, rows, not stride"):
        operands("mvin", stride=3)
    with pytest.raises(IsaError, match="no operation is called 'mvmid'"):
        operands("mvmid")
    assert decoded(126, 0, 0) is None


def test_text_names_the_fields_that_are_not_zero() -> None:
    text = str(decoded(FUNCTIONS["config"], *operands("config_st", activation=1, stride=16, scale=0.25)))
    assert text == "config_st activation=1 stride=16 scale=0.25"
    assert format_instruction(instruction("compute_preloaded", 10, 11)) == "compute_preloaded a0, a1"


def test_a_file_of_64_bits_comes_back_and_is_told_from_one_of_32() -> None:
    segments = [ElfSegment(".text", 0x1_8000_0000, (b"\x13\0\0\0",), SegmentFlags.READ_EXECUTE)]
    data = elf_bytes(0x1_8000_0000, segments, (ElfSymbol("tohost", 0x1_8000_0000, 4),), b"", ELF64)
    elf = read_elf(data, ELF64)
    assert (elf.entry, bytes(elf.segments[0].data)) == (0x1_8000_0000, b"\x13\0\0\0")
    assert elf.symbol("tohost") == ElfSymbol("tohost", 0x1_8000_0000, 4)
    with pytest.raises(ElfError, match=r"ELF class 2, needed is 1 \(32 bit\)"):
        read_elf(data, ELF32)
