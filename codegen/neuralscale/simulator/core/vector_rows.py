"""Encodings of the scalar core's vector unit (a subset of RVV 0.8: 16-bit elements, one register per group).

The compiler emits none of them; the simulator runs them so that other people's programs for the chip work. Rows have
the form of the instruction table of `codegen.neuralscale.isa.table`, which holds the post-increment accesses.
"""

from __future__ import annotations

from typing import Final

from codegen.neuralscale.isa.row import InstructionRow
from codegen.riscv.row import FPR, GPR, VR, Field, FieldKind

_VD = Field("vd", VR, ((0, 5, 7),))
_RD = Field("rd", GPR, ((0, 5, 7),))
_FD = Field("rd", FPR, ((0, 5, 7),))
_VS1 = Field("vs1", VR, ((0, 5, 15),))
_RS1 = Field("rs1", GPR, ((0, 5, 15),))
_FS1 = Field("rs1", FPR, ((0, 5, 15),))
_IMMEDIATE = Field("imm", FieldKind.IMM, ((0, 5, 15),))
_VS2 = Field("vs2", VR, ((0, 5, 20),))
_RS2 = Field("rs2", GPR, ((0, 5, 20),))
_VM = Field("vm", FieldKind.IMM, ((0, 1, 25),))
_VTYPE = Field("vtype", FieldKind.IMM, ((0, 11, 20),))

_LOAD, _STORE, _ARITHMETIC = 0x07, 0x27, 0x57
# funct3 of arithmetic: the kind of the first source.
_FVV, _MVV, _IVV, _IVI, _IVX, _FVF, _MVX = 1, 2, 0, 3, 4, 5, 6
_SOURCES: Final = {
    _FVV: ("vv", _VS1), _MVV: ("mm", _VS1), _IVV: ("vv", _VS1), _IVI: ("vi", _IMMEDIATE),
    _IVX: ("vx", _RS1), _FVF: ("vf", _FS1), _MVX: ("vx", _RS1),
}  # fmt: skip


def _row(mnemonic: str, match: int, fields: tuple[Field, ...]) -> InstructionRow:
    mask = 0xFFFF_FFFF & ~sum(field.word_mask for field in fields)
    return InstructionRow(mnemonic, "V", "R", match & mask, mask, fields, "vector unit")


def _accesses(mnemonic: str, opcode: int, funct3: int, high: int = 0) -> tuple[InstructionRow, ...]:
    """The contiguous, strided and indexed forms of a load or store: vle.v, vlse.v, vlxe.v."""
    word = high << 26 | funct3 << 12 | opcode
    start, end = mnemonic[:2], mnemonic[2:]
    return (
        _row(mnemonic, word, (_VD, _RS1, _VM)),
        _row(f"{start}s{end}", word | 2 << 26, (_VD, _RS1, _RS2, _VM)),
        _row(f"{start}x{end}", word | 3 << 26, (_VD, _RS1, _VS2, _VM)),
    )


def _forms(name: str, funct6: int, *kinds: int, suffix: str = "") -> tuple[InstructionRow, ...]:
    rows = []
    for kind in kinds:
        ending, source = _SOURCES[kind]
        word = funct6 << 26 | kind << 12 | _ARITHMETIC
        rows.append(_row(f"{name}.{suffix or ending}", word, (_VD, _VS2, source, _VM)))
    return tuple(rows)


def _unary(name: str, match: int, destination: Field = _VD, source: tuple[Field, ...] = (_VS2,)) -> InstructionRow:
    return _row(name, match | _ARITHMETIC, (destination, *source, _VM))


def _mask_logic(name: str, funct6: int) -> InstructionRow:
    return _row(f"{name}.mm", funct6 << 26 | 1 << 25 | _MVV << 12 | _ARITHMETIC, (_VD, _VS2, _VS1))


_BOTH = (_FVV, _FVF)
_MASK_LOGIC: Final = {
    "vmandnot": 0x18, "vmand": 0x19, "vmor": 0x1A, "vmxor": 0x1B,
    "vmornot": 0x1C, "vmnand": 0x1D, "vmnor": 0x1E, "vmxnor": 0x1F,
}  # fmt: skip

VECTOR_ROWS: tuple[InstructionRow, ...] = (
    _row("vsetvl", 0x8000_7057, (_RD, _RS1, _RS2)),
    _row("vsetvli", 0x0000_7057, (_RD, _RS1, _VTYPE)),
    *_accesses("vlb.v", _LOAD, 0, 4),
    *_accesses("vlbu.v", _LOAD, 0),
    *_accesses("vlh.v", _LOAD, 5, 4),
    *_accesses("vlhu.v", _LOAD, 5),
    *_accesses("vle.v", _LOAD, 7),
    *_accesses("vsh.v", _STORE, 5),
    *_accesses("vse.v", _STORE, 7),
    *_forms("vfadd", 0x00, *_BOTH),
    *_forms("vfsub", 0x02, *_BOTH),
    *_forms("vfrsub", 0x27, _FVF),
    *_forms("vfmul", 0x24, *_BOTH),
    *_forms("vfdiv", 0x20, *_BOTH),
    *_forms("vfrdiv", 0x21, _FVF),
    *_forms("vfmin", 0x04, *_BOTH),
    *_forms("vfmax", 0x06, *_BOTH),
    *_forms("vfsgnj", 0x08, *_BOTH),
    *_forms("vfsgnjn", 0x09, *_BOTH),
    *_forms("vfsgnjx", 0x0A, *_BOTH),
    *_forms("vfmadd", 0x28, *_BOTH),
    *_forms("vfnmadd", 0x29, *_BOTH),
    *_forms("vfmsub", 0x2A, *_BOTH),
    *_forms("vfnmsub", 0x2B, *_BOTH),
    *_forms("vfmacc", 0x2C, *_BOTH),
    *_forms("vfnmacc", 0x2D, *_BOTH),
    *_forms("vfmsac", 0x2E, *_BOTH),
    *_forms("vfnmsac", 0x2F, *_BOTH),
    *_forms("vmfeq", 0x18, *_BOTH),
    *_forms("vmfle", 0x19, *_BOTH),
    *_forms("vmflt", 0x1B, *_BOTH),
    *_forms("vmfne", 0x1C, *_BOTH),
    *_forms("vmfgt", 0x1D, *_BOTH),
    *_forms("vmfge", 0x1F, *_BOTH),
    *_forms("vfredsum", 0x01, _FVV, suffix="vs"),
    *_forms("vfredosum", 0x03, _FVV, suffix="vs"),
    *_forms("vfredmin", 0x05, _FVV, suffix="vs"),
    *_forms("vfredmax", 0x07, _FVV, suffix="vs"),
    *_forms("vslideup", 0x0E, _IVX, _IVI),
    *_forms("vslide1up", 0x0E, _MVX),
    *_forms("vslidedown", 0x0F, _IVX, _IVI),
    *_forms("vslide1down", 0x0F, _MVX),
    *_forms("vrgather", 0x0C, _IVV, _IVX, _IVI),
    *(_mask_logic(name, funct6) for name, funct6 in _MASK_LOGIC.items()),
    _unary("vfsqrt.v", 0x8C00_1000),
    _unary("vfexp.v", 0x8C00_9000),
    _unary("vfclass.v", 0x8C08_1000),
    _unary("vfcvt.f.x.v", 0x8801_9000),
    _unary("vfcvt.f.xu.v", 0x8801_1000),
    _unary("vpopc.m", 0x4008_2000, _RD),
    _unary("vfirst.m", 0x4008_A000, _RD),
    _unary("vmsbf.m", 0x5000_A000),
    _unary("vmsof.m", 0x5001_2000),
    _unary("vmsif.m", 0x5001_A000),
    _unary("viota.m", 0x5008_2000),
    _row("vcompress.vm", 0x5E00_2057, (_VD, _VS2, _VS1)),
    _row("vext.x.v", 0x3200_2057, (_RD, _VS2, _RS1)),
    _row("vfmerge.vfm", 0x5C00_5057, (_VD, _VS2, _FS1)),
    _row("vfmv.v.f", 0x5E00_5057, (_VD, _FS1)),
    _row("vfmv.f.s", 0x4200_1057, (_FD, _VS2)),
    _row("vfmv.s.f", 0x4200_5057, (_VD, _FS1)),
    _row("vmv.s.x", 0x3600_6057, (_VD, _RS1)),
    _unary("vid.v", 0x5008_A000, source=()),
)
"""Every modelled instruction of the vector unit except the post-increment accesses."""
