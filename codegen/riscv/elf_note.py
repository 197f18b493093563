"""Note in an executable that says for which chip it was made, so that a user who runs it elsewhere can be told.

    MadeFor(chip, cores, cluster)  -- note_bytes -->  section .note.dsa-sched  -- read_note -->  MadeFor

One ELF note of the owner `dsa-sched` and type 1 in a section that no loader loads; its content is a line of JSON. Files
of other tools have none; the content of an untrusted note is bounded and checked.
"""

from __future__ import annotations

import json
from struct import Struct

from codegen.riscv.elf_format import ElfError
from codegen.target import MadeFor

NOTE_SECTION = ".note.dsa-sched"
MOST_NOTE_BYTES = 4096
"""Largest size of a section with our note, in bytes; longer ones are skipped."""

MOST_NOTE_SECTIONS = 64
"""Largest number of note sections that are read; linkers leave a handful, but sixty thousand might name the same
bytes."""

_OWNER = b"dsa-sched\0"
_TYPE = 1
_HEADER = Struct("<III")
_TEXTS = {"isa": 64, "chip": 256, "chip_hash": 128}
_NUMBERS = {"cores": (1, 1 << 16), "cluster": (0, 1 << 16)}
"""Text fields with their greatest length; number fields with the first number allowed and the first too large."""


def note_bytes(made_for: MadeFor) -> bytes:
    """The content of the section."""
    fields = {name: getattr(made_for, name) for name in (*_TEXTS, *_NUMBERS)}
    text = json.dumps(fields).encode() + b"\n"
    return _HEADER.pack(len(_OWNER), len(text), _TYPE) + _padded(_OWNER) + _padded(text)


def find_note(section: memoryview) -> bytes:
    """The content of our note in a section of notes; empty where there is none. Reading ends where a section is cut
    short."""
    place = 0
    while place + _HEADER.size <= len(section):
        owner_bytes, content_bytes, kind = _HEADER.unpack_from(section, place)
        content = place + _HEADER.size + _aligned(owner_bytes)
        owner = bytes(section[place + _HEADER.size : place + _HEADER.size + min(owner_bytes, len(_OWNER))])
        if owner_bytes == len(_OWNER) and owner == _OWNER and kind == _TYPE:
            return bytes(section[content : content + content_bytes])
        place = content + _aligned(content_bytes)
    return b""


def read_note(content: bytes) -> MadeFor | None:
    """Parse the content of our note; None without content. Raises ElfError for content that we would not write."""
    if not content:
        return None
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        raise ElfError("the note that names its chip is not JSON") from None
    if not isinstance(fields, dict) or set(fields) != {*_TEXTS, *_NUMBERS}:
        raise ElfError(f"the note that names its chip has other fields than {', '.join((*_TEXTS, *_NUMBERS))}")
    for name, most in _TEXTS.items():
        if not isinstance(fields[name], str) or len(fields[name]) > most or not fields[name].isprintable():
            raise ElfError(f"the note that names its chip: {name} is not a text of at most {most} printable characters")
    for name, (least, end) in _NUMBERS.items():
        if type(fields[name]) is not int or not least <= fields[name] < end:
            raise ElfError(f"the note that names its chip: {name} is not a number from {least} to {end - 1}")
    return MadeFor(**fields)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // 4) * 4


def _padded(data: bytes) -> bytes:
    return data.ljust(_aligned(len(data)), b"\0")
