"""Assembler: items to bytes, text to items and back, the same bytes from GNU binutils, every refusal."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lab.readers.assembly import parse_assembly, parse_instruction
from codegen.neuralscale.asm.assembler import (
    AssemblyError,
    Branch,
    Comment,
    Far,
    Item,
    Label,
    Word,
    assemble,
    branch,
    far_jump,
    label_addresses,
    load_address,
    load_immediate,
)
from codegen.neuralscale.asm.assembly_text import render
from codegen.neuralscale.asm.disassembler import disassemble, format_listing
from codegen.neuralscale.isa.syntax import format_instruction
from codegen.neuralscale.isa.table import ROWS, decode, instruction
from codegen.riscv.codec import Instruction, IsaError
from codegen.riscv.elf_format import ElfSymbol
from codegen.riscv.row import Field, FieldKind

GNU_AS = shutil.which("riscv64-unknown-elf-as")
GNU_OBJCOPY = shutil.which("riscv64-unknown-elf-objcopy")

SAMPLE: tuple[Item, ...] = (
    Label("_start"),
    Comment("shape of the operands, then one multiplication"),
    *load_immediate(5, 0x00400040),
    instruction("csrrw", 0, 0x404, 5),
    instruction("csrrwi", 0, 0x406, 0),
    instruction("memul.mm", 10, 11, 12),
    instruction("veacc.m.full", 10, 11),
    instruction("veadd.mf", 10, 11, 12),
    instruction("mov.f", 10, 11),
    instruction("sync"),
    Comment(""),
    load_address(5, "handler"),
    instruction("csrrw", 0, 0x305, 5),
    Label("loop"),
    instruction("lw", 6, 16, 26),
    branch("bne", 6, 0, "loop"),
    branch("jal", 1, "handler"),
    far_jump("_start", 5),
    far_jump("handler", 5, 1),
    Word(0),
    Label("handler"),
    instruction("mret"),
)


def words(code: bytes) -> list[int]:
    return [int.from_bytes(code[offset : offset + 4], "little") for offset in range(0, len(code), 4)]


def texts(items: Sequence[Item], base_address: int = 0) -> list[str]:
    return [line.text for line in disassemble(assemble(items, base_address), base_address)]


def edge_instructions() -> list[Item]:
    """Every row with its fields at both ends and in between; rounding modes and branch offsets that exist."""

    def values(field: Field) -> tuple[int, int, int]:
        middle = (3 * field.minimum + 5 * field.maximum) // 8
        ends = (field.minimum, field.maximum, middle)
        if field.kind is FieldKind.ROUNDING:
            return (0, 7, 4)
        # Targets stay multiples of 4: without compressed code, GNU as refuses others.
        return ends if field.kind is not FieldKind.TARGET else (ends[0] & ~3, ends[1] & ~3, ends[2] & ~3)

    return [
        Instruction(row.mnemonic, tuple((field.name, values(field)[index]) for field in row.fields))
        for row in ROWS
        for index in range(3)
    ]


def gnu_text_section(text: str, folder: Path) -> bytes:
    """The .text bytes that GNU binutils make of assembly text; skips the test where they are not installed."""
    if GNU_AS is None or GNU_OBJCOPY is None:
        pytest.skip("riscv64-unknown-elf-as and -objcopy are not installed")
    source, linked, raw = folder / "text.s", folder / "text.o", folder / "text.bin"
    source.write_text(text)
    subprocess.run(
        [GNU_AS, "-march=rv32imaf_zicsr", "-mabi=ilp32f", "--fatal-warnings", source, "-o", linked], check=True
    )
    subprocess.run([GNU_OBJCOPY, "-O", "binary", "--only-section=.text", linked, raw], check=True)
    return raw.read_bytes()


@pytest.mark.parametrize(
    "items", [pytest.param(SAMPLE, id="sample"), pytest.param(edge_instructions(), id="every row")]
)
def test_gnu_binutils_make_the_same_bytes(items: Sequence[Item], tmp_path: Path) -> None:
    assert gnu_text_section(render(items), tmp_path) == assemble(items, 0)


def test_gnu_binutils_take_far_and_near_targets(tmp_path: Path) -> None:
    """The longest branches and jumps, both ways, stay one instruction; far jumps cross a megabyte."""
    fill = instruction("addi", 0, 0, 0)
    items: list[Item] = [
        Label("start"),
        branch("beq", 1, 2, "near"),
        *[fill] * 1022,
        Label("near"),
        branch("bgeu", 1, 2, "start"),
        branch("jal", 0, "end"),
        far_jump("end", 5),
        far_jump("start", 5),
        *[fill] * 262138,
        Label("end"),
        branch("jal", 0, "near"),
        load_address(10, "start"),
        load_address(11, "end"),
    ]
    assert gnu_text_section(render(items), tmp_path) == assemble(items, 0)


def test_text_of_the_sample() -> None:
    assert render(SAMPLE) == (
        "    .option norvc\n"
        "    .option norelax\n"
        "    .text\n"
        "_start:\n"
        "    # shape of the operands, then one multiplication\n"
        "    lui t0, 0x400\n"
        "    addi t0, t0, 64\n"
        "    csrrw zero, 0x404, t0  # m_shape_s1\n"
        "    csrrwi zero, 0x406, 0  # m_stride_d\n"
        "    .insn r 0x7b, 0, 0x32, a0, a1, a2  # memul.mm a0, a1, a2\n"
        "    .insn r 0x7b, 1, 0x06, fa0, a1, x0  # veacc.m.full fa0, a1\n"
        "    .insn r 0x7b, 3, 0x02, a0, a1, fa2  # veadd.mf a0, a1, fa2\n"
        "    .insn r 0x7b, 3, 0x16, a0, fa1, x0  # mov.f a0, fa1\n"
        "    .insn r 0x7b, 0, 0x1c, x0, x0, x0  # sync\n"
        "    #\n"
        "    #far addi t0, t0, handler\n"
        "    auipc t0, 0x0\n"
        "    addi t0, t0, 44\n"
        "    csrrw zero, 0x305, t0  # mtvec\n"
        "loop:\n"
        "    lw t1, 16(s10)\n"
        "    bne t1, zero, loop\n"
        "    jal ra, handler\n"
        "    #far jalr zero, t0, _start\n"
        "    auipc t0, 0x0\n"
        "    jalr zero, -60(t0)\n"
        "    #far jalr ra, t0, handler\n"
        "    auipc t0, 0x0\n"
        "    jalr ra, 12(t0)\n"
        "    .4byte 0x00000000\n"
        "handler:\n"
        "    mret\n"
    )


def test_text_round_trips() -> None:
    assert parse_assembly(render(SAMPLE)) == SAMPLE
    every_row = tuple(edge_instructions())
    assert parse_assembly(render(every_row)) == every_row


@st.composite
def item_lists(draw: Callable[[st.SearchStrategy[object]], object]) -> tuple[Item, ...]:
    plain = st.sampled_from(edge_instructions())
    names = st.sampled_from(("a_label", ".L1", "layer3.conv$2", "end"))
    referring = st.builds(far_jump, names, st.integers(1, 31), st.integers(0, 31)) | st.builds(
        lambda name, register: branch("bltu", register, 0, name), names, st.integers(0, 31)
    )
    comments = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), max_size=20).map(
        lambda text: Comment(text.strip())
    )
    word = st.builds(Word, st.integers(0, 0xFFFFFFFF))
    items = draw(st.lists(plain | referring | comments | word, max_size=30))
    assert isinstance(items, list)
    labels = [Label(name) for name in ("a_label", ".L1", "layer3.conv$2", "end")]
    places = draw(st.lists(st.integers(0, 30), min_size=4, max_size=4))
    assert isinstance(places, list)
    for label, place in zip(labels, places, strict=True):
        items.insert(place, label)
    return tuple(items)


@given(item_lists())
@settings(max_examples=50)
@pytest.mark.commit
def test_any_items_round_trip_and_assemble_alike(items: tuple[Item, ...]) -> None:
    again = parse_assembly(render(items))
    assert again == items
    assert assemble(again, 0x100000) == assemble(items, 0x100000)


@given(st.integers(-(1 << 31), (1 << 32) - 1))
def test_load_immediate_gives_the_value(value: int) -> None:
    """Executed by hand: lui sets the upper bits, addi adds a signed number."""
    register = 0
    for item in load_immediate(7, value):
        imm = item["imm"]
        register = imm << 12 if item.mnemonic == "lui" else (register if item["rs1"] == 7 else 0) + imm
    assert register & 0xFFFFFFFF == value & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, ["addi t0, zero, 0"]),
        (-1, ["addi t0, zero, -1"]),
        (0xFFFFFFFF, ["addi t0, zero, -1"]),
        (2047, ["addi t0, zero, 2047"]),
        (2048, ["lui t0, 0x1", "addi t0, t0, -2048"]),
        (0xC0000000, ["lui t0, 0xc0000"]),
        (0x7FFFFFFF, ["lui t0, 0x80000", "addi t0, t0, -1"]),
    ],
)
def test_load_immediate_is_short(value: int, text: list[str]) -> None:
    assert [format_instruction(item) for item in load_immediate(5, value)] == text


def test_addresses_and_far_targets() -> None:
    addresses = label_addresses(SAMPLE, 0x100000)
    assert addresses == {"_start": 0x100000, "loop": 0x100030, "handler": 0x100050}
    code = words(assemble(SAMPLE, 0x100000))
    jump, low = decode(code[0x3C // 4]), decode(code[0x40 // 4])
    assert jump is not None
    assert low is not None
    assert 0x10003C + (jump["imm"] << 12) + low["imm"] == addresses["_start"]


@pytest.mark.parametrize("distance_words", [1, 511, 512, 513, 524287, 524288, 1 << 20])
def test_far_jumps_reach_any_distance(distance_words: int) -> None:
    items: list[Item] = [far_jump("end", 5), *[Word(0)] * distance_words, Label("end")]
    upper, low = (decode(word) for word in words(assemble(items, 0)[:8]))
    assert upper is not None
    assert low is not None
    assert ((upper["imm"] << 12) + low["imm"]) & 0xFFFFFFFF == 8 + 4 * distance_words


FILL = [instruction("addi", 0, 0, 0)]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([branch("jal", 0, "nowhere")], "label nowhere is not defined"),
        ([Label("a"), Label("a")], "label a is defined twice"),
        (
            [branch("beq", 1, 2, "end"), *FILL * 1024, Label("end")],
            "beq at 0x1000 cannot reach end at 0x2004: 4100 bytes away, allowed are -4096..4094; use a far jump",
        ),
        (
            [Label("top"), *FILL * 262145, branch("jal", 0, "top")],
            "jal at 0x101004 cannot reach top at 0x1000: -1048580 bytes away, allowed are -1048576..1048574; "
            "use a far jump",
        ),
        ([*FILL, instruction("addi", 0, 0, 4096)], "at 0x1004: addi: operand imm is 4096, allowed are -2048..2047"),
    ],
)
def test_refusals_of_items(items: list[Item], message: str) -> None:
    with pytest.raises(AssemblyError) as raised:
        assemble(items, 0x1000)
    assert str(raised.value) == message


@pytest.mark.parametrize("name", ["", "1", "a b", "a0", "x31", "f3", "zero", ".", "a:", "über", "a\nb"])
def test_refused_labels(name: str) -> None:
    with pytest.raises(AssemblyError, match="cannot be a label"):
        Label(name)


@pytest.mark.parametrize("text", ["two\nlines", " outer blank", "bell \a", "tab\tinside"])
def test_refused_comments(text: str) -> None:
    with pytest.raises(AssemblyError, match="cannot be a comment"):
        Comment(text)


def test_refused_values() -> None:
    with pytest.raises(AssemblyError, match="not a 32-bit word"):
        Word(1 << 32)
    with pytest.raises(AssemblyError, match="does not fit into a 32-bit register"):
        load_immediate(5, 1 << 32)
    with pytest.raises(AssemblyError, match="ends in jalr or addi, not in lw"):
        Far("lw", 1, 2, "a")
    with pytest.raises(AssemblyError, match="is not a branch to a label"):
        branch("addi", 1, 2, "a")
    with pytest.raises(AssemblyError, match="code cannot start at 0x2"):
        assemble([], 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vefoo.mm a0, a1, a2", "line 2: no instruction is called 'vefoo.mm'"),
        ("addi a0, a1", "line 2: addi is written `addi rd, rs1, imm`, got `addi a0, a1`"),
        ("lw a0, 4, a1", "line 2: lw is written `lw rd, imm(rs1)`, got `lw a0, 4, a1`"),
        ("addi a0, q1, 3", "line 2: 'q1' is no integer register"),
        ("addi a0, a1, three", "line 2: 'three' is no number"),
        ("addi a0, a1, 5000", "line 2: addi: operand imm is 5000, allowed are -2048..2047"),
        ("csrrw zero, no_csr, t0", "line 2: 'no_csr' is no control and status register"),
        ("jal ra, 17x", "line 2: '17x' cannot be a label"),
        (".globl main", "line 2: directive .globl is not known"),
        (".insn i 0x5b, 1, fa0, 0(a0)", "line 2: `.insn i 0x5b, 1, fa0, 0(a0)` has another form than"),
        (".insn r 0x7b, 0, 0x7b, a0, a1, a2", "line 2: 0xf6c5857b is no instruction"),
        (".insn r 0x7b, 0, 0x32, a0, a1, q2", "line 2: 'q2' is no register"),
        (
            ".insn r 0x7b, 0, 0x32, a0, a1, a2  # memul.mm a0, a1, a3",
            "line 2: the comment says `memul.mm a0, a1, a3`, the word is `memul.mm a0, a1, a2`",
        ),
        ("#far lw t0, t0, end", "line 2: a far item ends in jalr or addi, not in lw"),
        ("#far jalr t0, end", "line 2: `#far jalr t0, end` has another form than `#far jalr rd, base, label`"),
        ("#far jalr zero, t0, top\nauipc t0, 0x1\njalr zero, 0(t0)", "line 2: the two instructions after it do not"),
    ],
)
def test_refusals_of_text_give_the_line(text: str, message: str) -> None:
    with pytest.raises(AssemblyError) as raised:
        parse_assembly(f"top:\n{text}\n")
    assert str(raised.value).startswith(message)


@given(st.text(max_size=200) | st.lists(st.sampled_from(render(SAMPLE).split()), max_size=30).map(" ".join))
def test_no_text_breaks_the_parser(text: str) -> None:
    """Any other exception fails the test."""
    with contextlib.suppress(AssemblyError):
        parse_assembly(text)


def test_csrs_may_be_written_by_name() -> None:
    assert parse_instruction("csrrw zero, conv_FM_in, t0") == instruction("csrrw", 0, 0x408, 5)
    assert format_instruction(instruction("csrrw", 0, 0x7FF, 5)) == "csrrw zero, 0x7ff, t0"
    with pytest.raises(IsaError, match="operand csr is 4096"):
        parse_instruction("csrrw zero, 4096, t0")


def test_branches_keep_their_operands() -> None:
    assert branch("bltu", 5, 6, "x1_") == Branch("bltu", (("rs1", 5), ("rs2", 6)), "x1_")


def test_listing_with_symbols() -> None:
    symbols = [ElfSymbol("_start", 0x100000), ElfSymbol("handler", 0x100050), ElfSymbol("again", 0x100030)]
    listing = format_listing(disassemble(assemble(SAMPLE, 0x100000), 0x100000, symbols)).splitlines()
    assert listing[:2] == ["00100000 <_start>:", "00100000: 004002b7  lui t0, 0x400"]
    assert "0010000c: 40605073  csrrwi zero, m_stride_d, 0" in listing
    assert "00100010: 64c5857b  memul.mm a0, a1, a2" in listing
    assert "00100034: fe031ee3  bne t1, zero, 0x100030 <again>" in listing
    assert "0010004c: 00000000  .4byte 0x00000000" in listing
    assert listing[-2:] == ["00100050 <handler>:", "00100050: 30200073  mret"]
    assert texts([Word(0x12345678)]) == [".4byte 0x12345678"]


def test_what_is_jumped_to_has_a_label_in_the_listing() -> None:
    """By branches, jumps and pairs with auipc, forwards and backwards; not what lies outside, nor what looks alike."""
    code = """
    beq a0, a1, .+16
    auipc t0, 0
    jalr zero, 8(t0)
    jal ra, .+4096
    auipc t1, 0
    addi t0, t0, 4
    addi t1, t1, -16
    jal zero, .-28
    """
    parsed = [parse_instruction(line) for line in code.strip().splitlines()]
    base, symbols = 0x100000, [ElfSymbol("_start", 0x100000), ElfSymbol("far", 0x10100C)]
    listing = format_listing(disassemble(assemble(parsed, base), base, symbols)).splitlines()
    assert [line[:9] + line[18:].strip() if ">:" not in line else line for line in listing] == [
        "00100000 <_start>:",
        "00100000:beq a0, a1, 0x100010 <.L00100010>",
        "00100004:auipc t0, 0x0",
        "00100008:jalr zero, 8(t0)  # 0x10000c <.L0010000c>",
        "0010000c <.L0010000c>:",
        "0010000c:jal ra, 0x10100c <far>",
        "00100010 <.L00100010>:",
        "00100010:auipc t1, 0x0",
        "00100014:addi t0, t0, 4",
        "00100018:addi t1, t1, -16",
        "0010001c:jal zero, 0x100000 <_start>",
    ]
    assert texts([branch("jal", 0, "end"), Label("end")]) == ["jal zero, 0x4"]  # the end of the code is no place in it
    assert texts([]) == []


def test_the_labels_of_a_listing_are_the_code() -> None:
    """Put back into text, where the branches name them, they give the words again."""
    items = [item for item in SAMPLE if not isinstance(item, Word)]
    lines = list(disassemble(assemble(items, 0x1000), 0x1000))
    written: list[str] = []
    for line in lines:
        assert line.instruction is not None
        written += [f"{label.removeprefix('.')}:" for label in line.labels]
        name = re.search(r"0x[0-9a-f]+ <\.(L[0-9a-f]{8})>$", line.text)
        text = line.text if name is None else line.text[: name.start()] + name[1]
        written.append(text.partition("  # ")[0])
    assert words(assemble(parse_assembly("\n".join(written)), 0x1000)) == [line.word for line in lines]
    assert sum("L" in line for line in written) > 2
