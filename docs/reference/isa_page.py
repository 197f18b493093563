"""The documentation page of the instruction set, written from the table of rows and the table of CSRs.

python docs/reference/isa_page.py > docs/neuralscale-isa.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codegen.neuralscale.isa.csr import CSRS, Csr
from codegen.neuralscale.isa.npu import NPU_ROWS
from codegen.neuralscale.isa.row import Engine, InstructionRow
from codegen.neuralscale.isa.scalar import SCALAR_ROWS
from codegen.neuralscale.isa.table import ROWS
from codegen.riscv.row import FieldKind

_INTRODUCTION = """\
# NeuralScale NPU v1: instructions and registers

Written from the tables in `codegen/neuralscale/isa/`; do not edit. To renew it:
`python docs/reference/isa_page.py > docs/neuralscale-isa.md`.

The matrices of NPU instructions lie in memory: integer registers hold byte addresses, CSRs hold shapes and strides, a
floating-point register holds the scalar of an `mf` form. All NPU instructions share opcode 0x7b and the R format:

    31    26  25   24  20  19  15   14   13  12   11   7   6     0
    funct6 | dmc |  rs2  |  rs1  |  dm  | form |   rd   | 1111011

`dim_h` works down the columns (a vector has one element per column), `dim_w` along the rows (one element per row),
`full` over all elements. GNU `as` knows none of these mnemonics, so assembly text has `.insn r` and the mnemonic as a
comment. `match` is the word with all operands zero, `mask` the bits that are fixed. Registers are named as in
`rd` (integer), `f:rd` (floating point) and `v:rd` (vector).
"""

_CSR_NOTE = """\
The NPU's own are zero at reset, except `tid`. `name.*` in the last column stands for every instruction of that
beginning.
"""

_ENGINES = (
    (Engine.VME, "Vector engine (VME)"),
    (Engine.MME, "Matrix engine (MME)"),
    (Engine.MTE, "Transfer engine (MTE)"),
    (Engine.SYNC, "Synchronisation"),
    (Engine.SCALAR, "Vector unit of the scalar core"),
)
_EXTENSIONS = (
    ("I", "RV32I"),
    ("Zifencei", "Zifencei"),
    ("machine", "Machine mode"),
    ("Zicsr", "Zicsr"),
    ("M", "RV32M"),
    ("A", "RV32A"),
    ("F", "RV32F"),
    ("NPU", "Half-precision access"),
)
_PREFIXES = {FieldKind.FPR: "f:", FieldKind.VR: "v:"}


def isa_page() -> str:
    """The whole page as Markdown."""
    npu = (
        section
        for engine, title in _ENGINES
        for section in _rows_section(title, [row for row in NPU_ROWS if row.engine is engine])
    )
    scalar = (
        section
        for extension, title in _EXTENSIONS
        for section in _rows_section(title, [row for row in SCALAR_ROWS if row.extension == extension])
    )
    return "\n".join((_INTRODUCTION, *npu, *scalar, *_csr_section()))


def _rows_section(title: str, rows: Sequence[InstructionRow]) -> Iterable[str]:
    """A heading and a table; the column of CSRs appears only where a row reads any."""
    heads = ["instruction", "match", "mask", "meaning"]
    cells = [[_written(row), f"{row.match:#010x}", f"{row.mask:#010x}", row.meaning] for row in rows]
    if any(row.csrs for row in rows):
        heads.append("reads CSRs")
        for row, line in zip(rows, cells, strict=True):
            line.append(", ".join(row.csrs))
    yield f"## {title}\n"
    yield _table(heads, cells)


def _written(row: InstructionRow) -> str:
    """The mnemonic and its operands, with a mark on those in other register files."""
    prefixes = {field.name: _PREFIXES.get(field.kind, "") for field in row.fields}
    syntax = re.sub(r"\w+", lambda match: prefixes.get(match[0], "") + match[0], row.syntax)
    return f"`{row.mnemonic} {syntax}".rstrip() + "`"


def _csr_section() -> Iterable[str]:
    users: dict[str, list[str]] = {}
    for row in ROWS:
        for name in row.csrs:
            families = users.setdefault(name, [])
            if row.family not in families:
                families.append(row.family)
    yield "## Control and status registers\n"
    yield _CSR_NOTE
    yield _table(
        ["number", "name", "access", "fields", "meaning", "read by"],
        [
            [
                f"{register.number:#05x}",
                f"`{register.name}`",
                "read, write" if register.writable else "read",
                _fields(register),
                register.meaning,
                _read_by(users.get(register.name, [])),
            ]
            for register in CSRS
        ],
    )


def _fields(register: Csr) -> str:
    return "; ".join(f"[{field.high}:{field.low}] {field.meaning}" for field in register.fields)


def _read_by(families: Sequence[str]) -> str:
    """The operations; `stem.*` where every operation of a stem reads the register and there are several."""
    written: dict[str, None] = {}
    for family in families:
        stem = family.partition(".")[0]
        whole = {row.family for row in ROWS if row.family.partition(".")[0] == stem}
        written[f"{stem}.*" if len(whole) > 1 and whole <= set(families) else family] = None
    return ", ".join(written)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    rows = [heads, ["---"] * len(heads), *escaped]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    sys.stdout.write(isa_page())
