"""`dsa-sched disasm`: the listing of a program's code."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dsa_sched.commands.files import read_bytes


@click.command(short_help="Print the machine code of a program.")
@click.argument("file", metavar="PROGRAM.elf", type=click.Path(path_type=Path))
def disasm(file: Path) -> None:
    """Print the code of PROGRAM.elf: address, word, instruction.

    \b
    dsa-sched disasm mine.out/cluster0/program.elf

    Labels are the symbols of the program and, as `.L` and the address, all other targets of branches and jumps. A
    symbol of this compiler, `cores.NNNN.OPERATOR`, is where the text that all cores share goes on to an operator;
    `coreC.NNNN.OPERATOR` is the same of a core C that has a text of its own.
    """
    from codegen.target import Disassembles
    from dsa_sched.analysis.executable_target import executable_target

    data = read_bytes(file, "a program")
    target, _ = executable_target(file, data, Disassembles)  # type: ignore[type-abstract]  # asked, not made
    sys.stdout.writelines(f"{line}\n" for line in target.disassemble(data))
