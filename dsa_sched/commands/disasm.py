"""`dsa-sched disasm`: the listing of a program's code."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dsa_sched.commands.files import read_bytes
from hw_models.errors import TargetError

__all__ = ["disasm"]


@click.command(short_help="Print the machine code of a program.")
@click.argument("file", metavar="PROGRAM.elf", type=click.Path(path_type=Path))
def disasm(file: Path) -> None:
    """Print the code of PROGRAM.elf: address, word, instruction.

    \b
    dsa-sched disasm mine.out/cluster0/program.elf

    Labels are the symbols (in programs of this compiler `coreC.NNNN.OPERATOR`, where core C begins to work for an
    operator) and, as `.L` and the address, all else that branches and jumps lead to.
    """
    from codegen.neuralscale.asm.disassembler import disassemble_elf
    from codegen.neuralscale.asm.elf import ElfError, read_elf

    data = read_bytes(file, "a program")
    try:
        elf = read_elf(data)
    except ElfError as error:
        raise TargetError(str(file), needs="a static executable for this chip", has=str(error)) from None
    sys.stdout.writelines(f"{line}\n" for line in disassemble_elf(elf))
