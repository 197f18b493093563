"""`dsa-sched iss`: run an ELF file with memory loaded from files and dumped to files, like any other simulator.

    run_iss(elf, cores=8, loads=..., dumps=..., dump_path=DIR) -> exit code; DIR/0xADDRESS_0xBYTES.bin for each dump

The exit code is the guest's; 125 = instruction limit or deadlock, 126 = poison, race, trap without handler or another
fault of the program. Dumps are written only when the guest ended by itself, each file completely or not at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

from codegen.neuralscale.asm.elf_format import ElfError
from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.memory.faults import SimulationError
from codegen.neuralscale.simulator.memory.memory import check_range
from codegen.neuralscale.simulator.options import (
    DEFAULT_MAX_INSTRUCTIONS,
    CodeRange,
    InitialBytes,
    SimulationOptions,
    SimulationResult,
)
from codegen.target import FileLoad, MemoryDump
from hw_models.scratch import replace_file


class IssError(Exception):
    """A file, address or option that cannot be used, in one sentence."""


def dump_name(dump: MemoryDump) -> str:
    """`0xADDRESS_0xBYTES.bin`, lower-case hexadecimal without padding, after `CORE.` where a core is named."""
    core = "" if dump.core is None else f"{dump.core}."
    return f"{core}{dump.address:#x}_{dump.size_bytes:#x}.bin"


def run_iss(
    elf_path: Path,
    cores: int = 1,
    loads: Sequence[FileLoad] = (),
    dumps: Sequence[MemoryDump] = (),
    dump_path: Path | None = None,
    max_instructions: int | None = None,
    trace: Path | None = None,
    poison: bool = False,
    seed: int = 0,
    *,
    cluster: int = 0,
    source_map: tuple[CodeRange, ...] = (),
) -> int:
    """Run the program; its output and the reason of a failure go to stderr.

    Returns the exit code for the shell. Raises `IssError` before anything is written.
    """
    for dump in dumps:
        _check_dump(dump, cores)
    try:
        options = SimulationOptions(
            cores=cores,
            cluster=cluster,
            loads=tuple(InitialBytes(load.address, _contents(load.file, "load"), load.core) for load in loads),
            max_instructions=DEFAULT_MAX_INSTRUCTIONS if max_instructions is None else max_instructions,
            poison=poison,
            seed=seed,
            trace=trace,
            source_map=source_map,
        )
        if dumps:
            _make_folder(dump_path or Path())
        result = simulate(_contents(elf_path, "program"), options)
    except ElfError as error:
        raise IssError(f"{elf_path}: {error}") from None
    except SimulationError as error:
        raise IssError(str(error)) from None
    for line in result.console:
        print(line, file=sys.stderr)
    if result.fault is not None:
        print(f"{result.fault.kind}: {result.fault.message}", file=sys.stderr)
        return result.exit_code
    _write_dumps(result, dumps, dump_path or Path())
    # A shell sees eight bits; a code whose eight bits would show as success must not pass as one.
    return result.exit_code & 0xFF or (255 if result.exit_code else 0)


def _contents(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IssError(f"cannot read the {what} {path}: {error.strerror}") from None


def _check_dump(dump: MemoryDump, cores: int) -> None:
    if dump.core is not None and not 0 <= dump.core < cores:
        raise IssError(f"dump {dump_name(dump)}: there is no core {dump.core}, the run has {cores}")
    try:
        check_range(dump.address, dump.size_bytes, f"dump {dump_name(dump)}")
    except SimulationError as error:
        raise IssError(str(error)) from None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise IssError(f"cannot make the folder {folder} for dumps: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise IssError(f"cannot write dumps to {folder}: no permission")


def _fill(data: bytes, stream: IO[bytes]) -> None:
    stream.write(data)


def _write_dumps(result: SimulationResult, dumps: Sequence[MemoryDump], folder: Path) -> None:
    for dump in dumps:
        data = result.read(dump.address, dump.size_bytes, dump.core)
        target = folder / dump_name(dump)
        try:
            replace_file(target, partial(_fill, data))
        except OSError as error:
            raise IssError(f"cannot write the dump {target}: {error.strerror}") from None
