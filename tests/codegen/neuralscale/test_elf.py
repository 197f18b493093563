"""ELF files: what is written is read, other tools read it too, and no mutilated file does more than raise ElfError."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.riscv import elf_format as fmt
from codegen.riscv.elf import Elf, read_elf
from codegen.riscv.elf_format import ElfError, ElfSymbol, SymbolKind
from codegen.riscv.elf_note import MOST_NOTE_SECTIONS, note_bytes, read_note
from codegen.riscv.elf_writer import ElfSection, ElfSegment, SegmentFlags, elf_bytes, write_elf
from codegen.target import MadeFor

READELF = shutil.which("riscv64-unknown-elf-readelf") or shutil.which("readelf")
CORPUS = Path(__file__).parents[2] / "corpus" / "elf"

CODE = bytes.fromhex("13000000" * 3)
SEGMENTS = (
    ElfSegment(".text", 0x100000, (CODE, CODE), SegmentFlags.READ_EXECUTE),
    ElfSegment(".tohost", 0x100040, (bytes(16),), SegmentFlags.READ_WRITE),
    ElfSegment(".weights", 0x200002, (b"abc", bytearray(b"defg"), memoryview(b"hi")), SegmentFlags.READ),
    ElfSegment(".bss", 0x400000, (), SegmentFlags.READ_WRITE, 4096),
    ElfSegment(".data", 0xF8000000, (b"\x01",), SegmentFlags.READ_WRITE, 63),
)
SYMBOLS = (
    ElfSymbol("_start", 0x100000, 24, SymbolKind.FUNCTION),
    ElfSymbol("tohost", 0x100040, 8, SymbolKind.OBJECT),
    ElfSymbol("fromhost", 0x100048, 8, SymbolKind.OBJECT),
    ElfSymbol("conv1: größe", 0x100004),
    ElfSymbol("outside", 0xFFFFFFFF),
)


def sample() -> bytes:
    return elf_bytes(0x100000, SEGMENTS, SYMBOLS)


def content(elf: Elf) -> list[tuple[int, bytes, int, bool, bool]]:
    return [(s.address, bytes(s.data), s.memory_bytes, s.writable, s.executable) for s in elf.segments]


MADE_FOR = MadeFor("isa-v1", "größer", "ab" * 32, 8, 3)


def noted(note: bytes) -> bytes:
    return elf_bytes(0x100000, SEGMENTS, SYMBOLS, note)


def test_the_note_says_what_a_program_was_made_for() -> None:
    plain, elf = read_elf(sample()), read_elf(noted(note_bytes(MADE_FOR)))
    assert read_note(elf.note) == MADE_FOR
    assert (elf.entry, content(elf), elf.symbols) == (plain.entry, content(plain), plain.symbols)
    assert (plain.note, read_note(plain.note)) == (b"", None)
    assert noted(b"") == sample()


@pytest.mark.parametrize("note", [b"", note_bytes(MADE_FOR)])
def test_further_sections_are_neither_loaded_nor_looked_into(note: bytes) -> None:
    further = (ElfSection(".debug_line", b"\xff" * 5), ElfSection(".debug_info", b""))
    written = elf_bytes(0x100000, SEGMENTS, SYMBOLS, note, unloaded=further)
    assert b"\xff" * 5 in written
    plain, elf = read_elf(noted(note)), read_elf(written)
    assert (elf.entry, content(elf)) == (plain.entry, content(plain))
    assert (elf.symbols, elf.note) == (plain.symbols, plain.note)


@pytest.mark.skipif(READELF is None, reason="no readelf")
def test_others_see_the_note_and_load_the_same() -> None:
    """The note is a section that is not allocated, so that loaders, which go by program headers, never meet it."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(noted(note_bytes(MADE_FOR)))
        file.flush()
        said = subprocess.run([str(READELF), "-lSnW", file.name], capture_output=True, text=True, check=True)
    assert said.stderr == ""
    assert re.search(r"\.note\.dsa-sched +NOTE +00000000 \S+ \S+ 00 +0 +0 +4", said.stdout)
    assert " dsa-sched " in said.stdout
    assert re.findall(r"^  ([A-Z]+) +0x", said.stdout, re.MULTILINE) == ["LOAD"] * len(SEGMENTS)


def note_of(owner: bytes, content: bytes, kind: int = 1) -> bytes:
    def pad(data: bytes) -> bytes:
        return data + bytes(-len(data) % 4)

    return struct.pack("<III", len(owner), len(content), kind) + pad(owner) + pad(content)


OURS = note_bytes(MADE_FOR)


@pytest.mark.parametrize(
    "note",
    [
        note_of(b"GNU\0", b"id", 3) + OURS,
        note_of(b"dsa-sched\0", b"{}", 2) + OURS,
        note_of(b"", b"") + OURS,
    ],
    ids=["GNU", "another type", "empty"],
)
def test_notes_of_others_are_passed_over(note: bytes) -> None:
    assert read_note(read_elf(noted(note)).note) == MADE_FOR


@pytest.mark.parametrize(("others", "found"), [(MOST_NOTE_SECTIONS - 1, MADE_FOR), (MOST_NOTE_SECTIONS, None)])
def test_so_many_sections_of_notes_are_looked_at(others: int, found: MadeFor | None) -> None:
    """Headers cost a stranger forty bytes each, and may all name the same long section."""
    data = bytearray(noted(OURS))
    empty, our_place = len(data), bytes(data).index(OURS)
    data += bytes(4092)
    table = len(data)
    for place, size in (*((empty, 4092) for _ in range(others)), (our_place, len(OURS))):
        data += struct.pack("<10I", 0, 7, 0, 0, place, size, 0, 0, 4, 0)
    struct.pack_into("<I", data, 32, table)
    struct.pack_into("<H", data, 48, others + 1)
    assert read_note(read_elf(bytes(data)).note) == found


@pytest.mark.parametrize(
    "note",
    [
        b"\0" * 4, b"\0" * 4092, OURS + bytes(4096), b"\xff" * 64, struct.pack("<III", 2**32 - 1, 10, 1) + bytes(64),
        note_of(b"dsa-sched", b"{}"),
    ],
    ids=["short", "zeros", "long", "ones", "owner beyond the end", "owner without its zero"],
)  # fmt: skip
def test_what_is_no_note_of_ours_is_none(note: bytes) -> None:
    assert read_elf(noted(note)).note == b""


FIELDS = {"isa": "i", "chip": "c", "chip_hash": "h", "cores": 8, "cluster": 0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "is not JSON"),
        (b"[" * 4000, "is not JSON"),
        (b"\xff{}", "is not JSON"),
        (b"[1]", "has other fields than isa, chip, chip_hash, cores, cluster"),
        (b"{}", "has other fields than isa"),
        (json.dumps({**FIELDS, "chip": "c" * 257}).encode(), "chip is not a text of at most 256 printable characters"),
        (json.dumps({**FIELDS, "chip": "\x1b[31m"}).encode(), "chip is not a text"),
        (json.dumps({**FIELDS, "isa": 3}).encode(), "isa is not a text"),
        (json.dumps({**FIELDS, "cores": 0}).encode(), "cores is not a number from 1 to 65535"),
        (json.dumps({**FIELDS, "cores": True}).encode(), "cores is not a number"),
        (json.dumps({**FIELDS, "cluster": 10**30}).encode(), "cluster is not a number from 0 to 65535"),
    ],
)
def test_a_note_that_we_would_not_write_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(ElfError, match="the note that names its chip") as raised:
        read_note(read_elf(noted(note_of(b"dsa-sched\0", text))).note)
    assert said in str(raised.value)


def test_what_is_written_is_read() -> None:
    elf = read_elf(sample())
    assert elf.entry == 0x100000
    assert elf.symbols == SYMBOLS
    assert content(elf) == [
        (0x100000, CODE + CODE, 24, False, True),
        (0x100040, bytes(16), 16, True, False),
        (0x200002, b"abcdefghi", 9, False, False),
        (0x400000, b"", 4096, True, False),
        (0xF8000000, b"\x01", 64, True, False),
    ]


def test_symbols_by_name() -> None:
    elf = read_elf(sample())
    assert elf.symbol("tohost") == SYMBOLS[1]
    assert elf.symbol("absent") is None


def test_segments_are_views_of_the_file() -> None:
    data = bytearray(sample())
    segment = read_elf(data).segments[2]
    data[data.index(b"abcdefghi")] = ord("z")
    assert bytes(segment.data[:3]) == b"zbc"
    assert segment.data.readonly


def test_equal_input_gives_equal_bytes_and_streams_the_same() -> None:
    stream = io.BytesIO()
    write_elf(stream, 0x100000, SEGMENTS, SYMBOLS)
    assert stream.getvalue() == sample() == sample()


def test_buffers_are_not_copied() -> None:
    """The writer hands the caller's own buffers to the stream."""

    class Recorder(io.RawIOBase):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[object] = []

        def write(self, data: object, /) -> int:
            self.seen.append(data)
            return 0

    weights = memoryview(bytes(1 << 16))
    recorder = Recorder()
    text = ElfSegment(".text", 0, (CODE,), SegmentFlags.READ_EXECUTE)
    write_elf(recorder, 0, (text, ElfSegment(".weights", 64, (weights,), SegmentFlags.READ)))  # type: ignore[arg-type]
    assert any(chunk is weights for chunk in recorder.seen)


def test_offsets_keep_the_alignment_of_addresses() -> None:
    data = sample()
    offset, count = struct.unpack_from("<I", data, 28)[0], struct.unpack_from("<H", data, 44)[0]
    for _, start, address, _, _, _, _, align in fmt.ELF32.program.iter_unpack(data[offset : offset + 32 * count]):
        assert start % align == address % align


@pytest.mark.skipif(READELF is None, reason="readelf is not installed")
def test_binutils_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.elf"
    path.write_bytes(sample())
    assert READELF is not None
    finished = subprocess.run([READELF, "-a", "-W", path], capture_output=True, encoding="latin-1", check=True)
    assert finished.stderr == ""
    lines = [" ".join(line.split()) for line in finished.stdout.splitlines()]
    assert any(line.startswith("Flags: 0x2, single-float ABI") for line in lines)
    assert any(".bss NOBITS 00400000" in line for line in lines)
    assert any(line.endswith("00100040 8 OBJECT GLOBAL DEFAULT 2 tohost") for line in lines)
    assert any(line.endswith("ffffffff 0 NOTYPE GLOBAL DEFAULT ABS outside") for line in lines)


@pytest.mark.parametrize(
    ("entry", "segments", "symbols", "message"),
    [
        (0x200002, SEGMENTS, (), "the entry 0x200002 lies in no executable segment"),
        (
            0x100000,
            (*SEGMENTS, ElfSegment(".more", 0x100010, (b"x",), SegmentFlags.READ)),
            (),
            "segment .more at 0x100010 overlaps segment .text, which ends at 0x100018",
        ),
        (
            0x100000,
            (*SEGMENTS, ElfSegment(".end", 0xFFFFFFFF, (b"xy",), SegmentFlags.READ)),
            (),
            "segment .end: 2 bytes at 0xffffffff leave the 32-bit address space",
        ),
        (
            0x100000,
            SEGMENTS,
            (SYMBOLS[0], SYMBOLS[0]),
            "symbol name '_start' is empty, has a zero byte, or occurs twice",
        ),
        (
            0x100000,
            SEGMENTS,
            (ElfSymbol("far", 1 << 32),),
            "symbol far: address 0x100000000 or size is not a 32-bit number",
        ),
        (0x100000, SEGMENTS, (ElfSymbol("n" * 4096, 0),), f"symbol name '{'n' * 40}'... has 4096 bytes or more"),
    ],
)
def test_refusals_of_the_writer(
    entry: int, segments: tuple[ElfSegment, ...], symbols: tuple[ElfSymbol, ...], message: str
) -> None:
    with pytest.raises(ElfError) as raised:
        elf_bytes(entry, segments, symbols)
    assert str(raised.value) == message


def patched(*changes: tuple[int, str, int]) -> bytes:
    """The sample with (offset, struct code, value) changes."""
    data = bytearray(sample())
    for offset, code, value in changes:
        struct.pack_into(f"<{code}", data, offset, value)
    return bytes(data)


PROGRAMS = fmt.ELF32.header.size
SECTIONS = struct.unpack_from("<I", sample(), 32)[0]
SYMTAB = SECTIONS + 40 * (len(SEGMENTS) + 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an ELF file: 0 bytes, the header alone has 52"),
        (sample()[:51], "not an ELF file: 51 bytes"),
        (b"MZ" + bytes(98), "not an ELF file: it does not start with"),
        (patched((4, "B", 2)), "ELF class 2, needed is 1 (32 bit)"),
        (patched((5, "B", 2)), "ELF data encoding 2, needed is 1 (little-endian)"),
        (patched((6, "B", 9)), "ELF version 9, needed is 1"),
        (patched((16, "H", 1)), "ELF type 1, needed is 2 (static executable; link it first)"),
        (patched((18, "H", 62)), "ELF machine 62, needed is 243 (RISC-V)"),
        (patched((44, "H", 0)), "the file has no program headers"),
        (patched((44, "H", 5000)), "5000 program headers, at most 4096 are read"),
        (patched((44, "H", 4000)), "program headers: bytes 52 to 128052 lie past the end of the file"),
        (patched((42, "H", 56)), "program headers: entries have 56 bytes, 32 are needed"),
        (patched((28, "I", 0xFFFFFFFF)), "program headers: bytes 4294967295 to"),
        (patched((PROGRAMS, "I", 3)), "the file needs a dynamic linker"),
        (patched((PROGRAMS + 4, "I", 1 << 30)), "program header 0: bytes 1073741824 to 1073741848 lie past"),
        (patched((PROGRAMS + 16, "I", 25)), "program header 0: 25 bytes in the file for 24 bytes of memory"),
        (patched((PROGRAMS + 20, "I", 0x60)), "segment 1 at 0x100040 overlaps segment 0, which ends at 0x100060"),
        (patched((PROGRAMS + 20, "I", 0xFFFFFFFF)), "segment 0: 4294967295 bytes at 0x100000 leave the 32-bit"),
        (patched((32, "I", 0xFFFFFFF0)), "section headers: bytes 4294967280 to"),
        (patched((48, "H", 65535)), "section headers: bytes"),
        (patched((46, "H", 64)), "section headers: entries have 64 bytes, 40 are needed"),
        (patched((SYMTAB + 16, "I", 1 << 31)), "symbol table: bytes 2147483648 to"),
        (patched((SYMTAB + 20, "I", 17)), "the symbol table has 17 bytes, not a multiple of 16"),
        (patched((SYMTAB + 24, "I", 99)), "the symbol table names section 99 for its strings"),
        (patched((SYMTAB + 36, "I", 24)), "symbol table: entries have 24 bytes, 16 are needed"),
        (patched((SYMTAB + 40 + 20, "I", 0xFFFFFF)), "symbol names: bytes"),
        (patched((SYMTAB + 40 + 20, "I", 5)), "symbol name at 1: not ended inside its table"),
    ],
)
def test_the_reader_says_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(ElfError) as raised:
        read_elf(data)
    assert str(raised.value).startswith(message)


def test_every_truncation_is_refused_or_harmless() -> None:
    whole = sample()
    for size in range(len(whole)):
        with pytest.raises(ElfError):
            read_elf(whole[:size])


@st.composite
def mutilated(draw: st.DrawFn) -> bytes:
    """The sample with bytes and whole header words replaced, cut or extended."""
    data = bytearray(sample())
    tables = st.integers(0, SECTIONS + 40 * 9) | st.integers(0, 52 + 32 * 5) | st.integers(SECTIONS, len(data) - 1)
    for offset, value in draw(st.lists(st.tuples(tables, st.integers(0, 255)), max_size=8)):
        data[offset % len(data)] = value
    words = st.sampled_from((0, 1, 2, 3, 16, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFF0, len(data), len(data) - 4))
    for offset, value in draw(st.lists(st.tuples(tables, words | st.integers(0, 0xFFFFFFFF)), max_size=4)):
        struct.pack_into("<I", data, min(offset & ~3, len(data) - 4), value)
    size = draw(st.integers(0, len(data)) | st.just(len(data)))
    return bytes(data[:size])


@given(mutilated())
@settings(max_examples=500)
@pytest.mark.commit
def test_only_elf_error_escapes(data: bytes) -> None:
    with contextlib.suppress(ElfError):
        elf = read_elf(data)
        assert all(0 <= s.address <= s.address + s.memory_bytes <= 1 << 32 for s in elf.segments)
        assert all(len(s.data) <= s.memory_bytes for s in elf.segments)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ElfError):
        read_elf(data)


def test_names_in_total_are_bounded() -> None:
    """Many symbols that share one long name would multiply the size of the file."""
    long_name = "n" * 4000
    data = bytearray(
        elf_bytes(0x100000, SEGMENTS, (ElfSymbol(long_name, 0), *(ElfSymbol(f"s{i}", 0) for i in range(20000))))
    )
    section_offset = struct.unpack_from("<I", data, 32)[0]
    start, size = struct.unpack_from("<II", data, section_offset + 40 * (len(SEGMENTS) + 1) + 16)
    for offset in range(start + 16, start + size, 16):
        struct.pack_into("<I", data, offset, 1)
    with pytest.raises(ElfError, match="names too long in total"):
        read_elf(data)


def corpus_files() -> Iterator[Path]:
    return iter(sorted(CORPUS.glob("*.elf")))


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the program corpus is not in tests/corpus")
def test_files_of_another_linker_are_read() -> None:
    count = 0
    for path in corpus_files():
        elf = read_elf(path.read_bytes())
        assert elf.symbol("tohost") is not None, path.name
        assert any(s.executable and s.address <= elf.entry < s.address + s.memory_bytes for s in elf.segments)
        count += 1
    assert count > 100
