"""The registers of a RISC-V core as GDB's target description, by GDB's own numbers and names of features."""

from __future__ import annotations

from collections.abc import Iterable

from codegen.riscv.gdb.server import FIRST_CSR, FIRST_FLOAT
from codegen.riscv.syntax import FPR_NAMES, GPR_NAMES

FLOAT_CSRS = ("fflags", "frm", "fcsr")
POINTERS = {"ra": "code_ptr", "sp": "data_ptr", "gp": "data_ptr", "tp": "data_ptr"}


def target_description(bits: int, csrs: Iterable[tuple[int, str]]) -> str:
    """The description as XML: x0 to x31 and pc, f0 to f31, and CSRs by number and name."""
    known = tuple(csrs)
    integers = [_register(name, bits, number, POINTERS.get(name, "int")) for number, name in enumerate(GPR_NAMES)]
    integers.append(_register("pc", bits, len(GPR_NAMES), "code_ptr"))
    floats = [_register(name, 32, FIRST_FLOAT + number, "ieee_single") for number, name in enumerate(FPR_NAMES)]
    floats += [_register(name, 32, FIRST_CSR + number, "int") for number, name in known if name in FLOAT_CSRS]
    others = [_register(name, bits, FIRST_CSR + number, "int") for number, name in known if name not in FLOAT_CSRS]
    return (
        '<?xml version="1.0"?>\n<!DOCTYPE target SYSTEM "gdb-target.dtd">\n<target version="1.0">\n'
        f"<architecture>riscv:rv{bits}</architecture>\n"
        + _feature("org.gnu.gdb.riscv.cpu", integers)
        + _feature("org.gnu.gdb.riscv.fpu", floats)
        + _feature("org.gnu.gdb.riscv.csr", others)
        + "</target>\n"
    )


def _feature(name: str, registers: list[str]) -> str:
    return f'<feature name="{name}">\n' + "".join(registers) + "</feature>\n"


def _register(name: str, bits: int, number: int, kind: str) -> str:
    return f'<reg name="{name}" bitsize="{bits}" type="{kind}" regnum="{number}"/>\n'
