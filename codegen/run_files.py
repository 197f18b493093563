"""Files around a simulator's run of any program: what is loaded, what is dumped, and the exit code for a shell.

FileLoad --contents--> bytes        MemoryDump, bytes --write_dump--> DIR/0xADDRESS_0xBYTES.bin
"""

from __future__ import annotations

import os
from pathlib import Path

from codegen.target import MemoryDump
from hw_models.errors import TargetError
from hw_models.scratch import replace_file


def dump_name(dump: MemoryDump) -> str:
    """`0xADDRESS_0xBYTES.bin`, lower-case hexadecimal without padding, after `CORE.` where a core is named."""
    core = "" if dump.core is None else f"{dump.core}."
    return f"{core}{dump.address:#x}_{dump.size_bytes:#x}.bin"


def contents(path: Path, what: str) -> bytes:
    """The bytes of a file, which errors call a `what`. Raises TargetError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise TargetError(f"cannot read the {what} {path}: {error.strerror}") from None


def make_dump_folder(folder: Path) -> None:
    """Make the folder for dumps, before a run that may be long. Raises TargetError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TargetError(f"cannot make the folder {folder} for dumps: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise TargetError(f"cannot write dumps to {folder}: no permission")


def write_dump(folder: Path, dump: MemoryDump, data: bytes) -> None:
    """Write a dump, completely or not at all. Raises TargetError."""
    path = folder / dump_name(dump)
    try:
        replace_file(path, lambda stream: stream.write(data))
    except OSError as error:
        raise TargetError(f"cannot write the dump {path}: {error.strerror}") from None


def shell_code(exit_code: int) -> int:
    """The exit code that a shell sees: eight bits, of which a code that is not 0 never shows as success."""
    return exit_code & 0xFF or (255 if exit_code else 0)
