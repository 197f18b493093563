"""Addresses, files to load and ranges to dump, as written on the command line.

    0x200000=in.bin,3:0xc0000000=w.bin  -->  loads        0x400000:0x100,1:0xc0400000:64  -->  dumps

CORE: in front of an address names the core whose private memory is meant; without it, core 0 sees the address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

# A comma starts the next load only where an address follows, so that file names may hold commas.
NEXT_LOAD = re.compile(r",(?=(?:\d+:)?(?:0[xX][0-9a-fA-F]+|\d+)=)")


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """Bytes of a file to put at an address before the start."""

    core: int | None
    address: int
    file: Path


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """Bytes to write to a file after the end."""

    core: int | None
    address: int
    size_bytes: int


class Loads(click.ParamType[tuple[MemoryFile, ...]]):
    """One `--load`: a list of `[CORE:]ADDRESS=FILE`."""

    name = "[CORE:]ADDRESS=FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[MemoryFile, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self._one(part, param, ctx) for part in NEXT_LOAD.split(value))

    def _one(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> MemoryFile:
        place, equals, file = text.partition("=")
        core, colon, address = place.rpartition(":")
        if not equals or not file:
            self.fail(f"{text!r} is not [CORE:]ADDRESS=FILE, for example 0x200000=input.bin", param, ctx)
        try:
            return MemoryFile(_number(core) if colon else None, _number(address), Path(file))
        except ValueError as error:
            self.fail(f"{text!r}: {error}", param, ctx)


class Dumps(click.ParamType[tuple[MemoryRange, ...]]):
    """One `--dump`: a list of `[CORE:]ADDRESS:BYTES`."""

    name = "[CORE:]ADDRESS:BYTES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[MemoryRange, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self._one(part, param, ctx) for part in value.split(","))

    def _one(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> MemoryRange:
        try:
            numbers = [_number(part) for part in text.split(":")]
        except ValueError as error:
            self.fail(f"{text!r}: {error}", param, ctx)
        if len(numbers) not in (2, 3) or numbers[-1] == 0:
            self.fail(f"{text!r} is not [CORE:]ADDRESS:BYTES, for example 0x400000:0x100", param, ctx)
        core = numbers[0] if len(numbers) == 3 else None
        return MemoryRange(core, numbers[-2], numbers[-1])


def _number(text: str) -> int:
    """A number as programs write addresses: 0x in front of hexadecimal, else decimal; not negative."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", text):
        return int(text, 16)
    if re.fullmatch(r"[0-9]{1,19}", text):
        return int(text)
    raise ValueError(f"{text!r} is not a number (hexadecimal numbers start with 0x)")


LOADS = Loads()
DUMPS = Dumps()
