"""The instruction table: rows do not collide, encode and decode are inverse, known words, every refusal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.neuralscale.isa.csr import CSRS, csr, csr_by_number
from codegen.neuralscale.isa.npu import NPU_ROWS
from codegen.neuralscale.isa.row import Direction, Engine, InstructionRow
from codegen.neuralscale.isa.table import ROWS, decode, encode, instruction, row
from codegen.riscv.codec import Instruction, IsaError
from codegen.riscv.elf import read_elf
from codegen.riscv.row import Field, FieldKind

CORPUS = Path(__file__).parents[2] / "corpus" / "elf"

# Words from the published encoding, registers a0, a1, a2 (or fa0.. where a row has them): independent of the table.
KNOWN_WORDS = {
    ("veadd.mm", 10, 11, 12): 0x04C5857B,
    ("veadd.mv.dim_h", 10, 11, 12): 0x06C5A57B,
    ("veadd.mv.dim_w", 10, 11, 12): 0x06C5E57B,
    ("veacc.m.full", 10, 11): 0x0C05957B,
    ("veacc.m.dim_h", 10, 11): 0x0E05957B,
    ("veacc.m.dim_w", 10, 11): 0x0E05D57B,
    ("veemacc.mm.full", 10, 11, 12): 0x18C5857B,
    ("veemul.x32.mv", 10, 11, 12): 0x14C5E57B,
    ("mov.llb.l1", 10, 11): 0x2C15957B,
    ("mov.l1.llb", 10, 11): 0x2C25957B,
    ("mov.v.dim_w", 10, 11): 0x2E05E57B,
    ("icmov", 10, 11, 12): 0x34C5857B,
    ("sync",): 0x3800007B,
    ("memul.mm", 10, 11, 12): 0x64C5857B,
    ("memul.ts.mm", 10, 11, 12): 0x64C5C57B,
    ("meconv.mm", 10, 11, 12): 0x68C5857B,
    ("meconv.hf.x8.mm", 10, 11, 12): 0x6AC5C57B,
    ("vlepi.v", 4, 10, 11): 0xFEB5027B,
    ("vssepi.v.m", 4, 10, 11): 0xF8B5127B,
    ("flhw", 10, 11): 0x0005955B,
    ("fshw", 10, 11): 0x00A5C05B,
    ("lui", 5, 0xC0000): 0xC00002B7,
    ("addi", 5, 5, -1): 0xFFF28293,
    ("sw", 10, -4, 2): 0xFEA12E23,
    ("beq", 10, 11, -4096): 0x80B50063,
    ("jal", 1, 1048574): 0x7FFFF0EF,
    ("csrrw", 0, 0x408, 5): 0x40829073,
    ("fence", 15, 15): 0x0FF0000F,
    ("mret",): 0x30200073,
    ("fmadd.s", 1, 2, 3, 4, 7): 0x203170C3,
}

RESERVED_ROUNDING = {5, 6}


def field_values(field: Field) -> st.SearchStrategy[int]:
    values = st.integers(field.minimum // field.step, field.maximum // field.step).map(lambda value: value * field.step)
    edges = st.sampled_from((field.minimum, field.maximum, 0))
    drawn = values | edges
    return drawn.filter(lambda value: value not in RESERVED_ROUNDING) if field.kind is FieldKind.ROUNDING else drawn


@st.composite
def instructions(
    draw: Callable[[st.SearchStrategy[object]], object], rows: tuple[InstructionRow, ...] = ROWS
) -> Instruction:
    chosen = draw(st.sampled_from(rows))
    assert isinstance(chosen, InstructionRow)
    operands = []
    for field in chosen.fields:
        value = draw(field_values(field))
        assert isinstance(value, int)
        operands.append((field.name, value))
    return Instruction(chosen.mnemonic, tuple(operands))


@given(instructions())
def test_decode_inverts_encode(item: Instruction) -> None:
    assert decode(encode(item)) == item


@pytest.mark.parametrize("item", ROWS, ids=lambda item: item.mnemonic)
def test_every_row_round_trips_at_the_ends_of_its_fields(item: InstructionRow) -> None:
    for end in ("minimum", "maximum"):
        operands = tuple((field.name, getattr(field, end)) for field in item.fields)
        word = encode(Instruction(item.mnemonic, operands))
        assert word & item.mask == item.match
        assert decode(word) == Instruction(item.mnemonic, operands)


@given(st.integers(0, 0xFFFFFFFF))
def test_a_decoded_word_encodes_to_itself(word: int) -> None:
    found = decode(word)
    assert found is None or encode(found) == word


@given(st.integers(0, (1 << 25) - 1))
def test_a_decoded_npu_word_encodes_to_itself(high: int) -> None:
    word = high << 7 | 0x7B
    found = decode(word)
    assert found is None or encode(found) == word


def test_no_word_belongs_to_two_rows() -> None:
    for one, other in combinations(ROWS, 2):
        assert (one.match ^ other.match) & one.mask & other.mask, f"{one.mnemonic} and {other.mnemonic} share words"


def test_mnemonics_are_unique() -> None:
    assert len({item.mnemonic for item in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("text", "word"), KNOWN_WORDS.items(), ids=lambda value: str(value))
def test_known_words(text: tuple[str, *tuple[int, ...]], word: int) -> None:
    assert encode(instruction(*text)) == word


def test_the_npu_has_53_operations() -> None:
    """52 encodings of the vendor, and the transposed matrix multiplication that shares one."""
    assert len({item.family for item in NPU_ROWS}) == 53
    assert all(item.match & 0x7F == 0x7B for item in NPU_ROWS)


def test_engines_and_directions() -> None:
    assert row("meconv.mm").engine is Engine.MME
    assert row("mov.m").engine is Engine.VME
    assert row("mov.l1.llb").engine is Engine.MTE
    assert row("sync").engine is Engine.SYNC
    assert row("addi").engine is Engine.SCALAR
    assert row("veemacc.mv.dim_w").direction is Direction.DIM_W
    assert row("veemacc.mv.dim_w").family == "veemacc.mv"
    assert row("veacc.m.full").fields[0].kind is FieldKind.FPR


@pytest.mark.parametrize(
    "word",
    [
        pytest.param(0x00000000, id="zero word"),
        pytest.param(0xFFFFFFFF, id="all ones"),
        pytest.param(0x3800007B | 1 << 7, id="sync with a register"),
        pytest.param(0x2C30107B, id="mov with an unassigned sub-opcode"),
        pytest.param(0x0400207B, id="mv form without its dmc bit"),
        pytest.param(0x0000507B, id="unassigned funct7"),
        pytest.param(0x0010105B, id="flhw with an immediate"),
        pytest.param(0x00005053 | 0, id="fadd with reserved rounding"),
        pytest.param(0x40001013, id="slli with high bits"),
    ],
)
def test_unassigned_words_decode_to_none(word: int) -> None:
    assert decode(word) is None


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (Instruction("vefoo.mm"), "no instruction is called 'vefoo.mm'"),
        (Instruction("sync", (("rd", 0),)), "sync takes the operands (), got ('rd',)"),
        (Instruction("lui", (("rd", 1), ("imm", -1))), "lui: operand imm is -1, allowed are 0..1048575"),
        (instruction("addi", 1, 32, 0), "addi: operand rs1 is 32, allowed are 0..31"),
        (instruction("addi", 1, 2, 2048), "addi: operand imm is 2048, allowed are -2048..2047"),
        (instruction("beq", 1, 2, 3), "beq: operand target is 3, allowed are -4096..4094 in steps of 2"),
        (instruction("fadd.s", 1, 2, 3, 5), "fadd.s: rounding modes (5, 6) are reserved"),
        (
            Instruction("jal", (("target", 0), ("rd", 0))),
            "jal takes the operands ('rd', 'target'), got ('target', 'rd')",
        ),
    ],
)
def test_refusals_name_the_operand(item: Instruction, message: str) -> None:
    with pytest.raises(IsaError) as raised:
        encode(item)
    assert str(raised.value) == message


def test_instruction_refuses_a_wrong_number_of_values() -> None:
    with pytest.raises(IsaError, match=r"addi takes the operands \(rd, rs1, imm\), got 2 values"):
        instruction("addi", 1, 2)
    with pytest.raises(IsaError, match="no instruction is called 'nop'"):
        instruction("nop")


def test_operands_by_name() -> None:
    assert instruction("lw", 10, -8, 2)["imm"] == -8
    with pytest.raises(KeyError):
        instruction("lw", 10, -8, 2)["rs2"]


@pytest.mark.parametrize(
    ("match", "mask", "message"),
    [(0x80, 0x7F, "outside mask"), (0x7F, 0xFFFFFFFF, "lies over other bits"), (0, 0x7F, "neither fixed nor a field")],
)
def test_rows_must_cover_the_word_once(match: int, mask: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InstructionRow("toy", "NPU", "R", match, mask, row("lui").fields[:1], "toy")


def test_csrs_are_unique_and_rows_name_known_ones() -> None:
    assert len({item.number for item in CSRS}) == len({item.name for item in CSRS}) == len(CSRS)
    for item in ROWS:
        assert all(csr(name).name == name for name in item.csrs)
    found = csr_by_number(0x408)
    assert found is not None
    assert found.name == "conv_FM_in"
    assert csr_by_number(0x7FF) is None
    for register in CSRS:
        bits = [bit for field in register.fields for bit in range(field.low, field.high + 1)]
        assert len(set(bits)) == len(bits), f"fields of {register.name} overlap"


def test_csr_fields_pack_and_unpack() -> None:
    assert csr("conv_FM_in").pack((56, 28)) == 56 << 16 | 28
    assert csr("conv_kernel").pack((3, 5, 1, 2)) == 0x03050102
    assert csr("conv_kernel").unpack(0x03050102) == (3, 5, 1, 2)
    with pytest.raises(ValueError, match=r"CSR shape_s1: columns is 65536, allowed are 0\.\.65535"):
        csr("shape_s1").pack((65536, 1))
    with pytest.raises(ValueError, match="CSR shape_s1 has 2 fields, 1 values given"):
        csr("shape_s1").pack((1,))


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the program corpus is not in tests/corpus")
def test_corpus_code_decodes_and_encodes_to_itself() -> None:
    """Every executable word of the corpus that is an instruction; few are not (compressed code, planted bad words)."""
    known = unknown = 0
    for path in sorted(CORPUS.glob("*.elf")):
        for segment in read_elf(path.read_bytes()).segments:
            if not segment.executable:
                continue
            for offset in range(0, len(segment.data) - 3, 4):
                word = int.from_bytes(segment.data[offset : offset + 4], "little")
                found = decode(word)
                known, unknown = known + (found is not None), unknown + (found is None)
                assert found is None or encode(found) == word, path.name
    assert known > 1000
    assert unknown < known // 50
