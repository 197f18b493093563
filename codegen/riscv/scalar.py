"""Rows of RISC-V: RV32IMAF, Zicsr and the machine-mode instructions, and what programs of ours use of RV64IMF.

Source: the RISC-V unprivileged and privileged specifications. The compressed extension has no rows: programs of this
compiler are not compressed.
"""

from __future__ import annotations

from codegen.riscv.row import FPR, GPR, Field, FieldKind, GnuForm, Row

_RD = Field("rd", GPR, ((0, 5, 7),))
_RS1 = Field("rs1", GPR, ((0, 5, 15),))
_RS2 = Field("rs2", GPR, ((0, 5, 20),))
_FRD = Field("rd", FPR, ((0, 5, 7),))
_FRS1 = Field("rs1", FPR, ((0, 5, 15),))
_FRS2 = Field("rs2", FPR, ((0, 5, 20),))
_FRS3 = Field("rs3", FPR, ((0, 5, 27),))
_IMM_I = Field("imm", FieldKind.IMM, ((0, 12, 20),), signed=True)
_IMM_S = Field("imm", FieldKind.IMM, ((0, 5, 7), (5, 7, 25)), signed=True)
_IMM_B = Field("target", FieldKind.TARGET, ((1, 4, 8), (5, 6, 25), (11, 1, 7), (12, 1, 31)), signed=True)
_IMM_U = Field("imm", FieldKind.UPPER, ((0, 20, 12),))
_IMM_J = Field("target", FieldKind.TARGET, ((1, 10, 21), (11, 1, 20), (12, 8, 12), (20, 1, 31)), signed=True)
_SHAMT = Field("shamt", FieldKind.IMM, ((0, 5, 20),))
_LONG_SHAMT = Field("shamt", FieldKind.IMM, ((0, 6, 20),))
_CSR = Field("csr", FieldKind.CSR, ((0, 12, 20),))
_UIMM = Field("uimm", FieldKind.IMM, ((0, 5, 15),))
_RM = Field("rm", FieldKind.ROUNDING, ((0, 3, 12),))
_PRED = Field("pred", FieldKind.ORDER, ((0, 4, 24),))
_SUCC = Field("succ", FieldKind.ORDER, ((0, 4, 20),))


def _row(
    mnemonic: str,
    extension: str,
    encoding: str,
    match: int,
    fields: tuple[Field, ...],
    meaning: str,
    syntax: str = "",
    *,
    family: str = "",
    csrs: tuple[str, ...] = (),
    gnu: GnuForm = GnuForm.MNEMONIC,
) -> Row:
    """A scalar row: every bit that is not in a field is fixed."""
    mask = 0xFFFFFFFF & ~sum(field.word_mask for field in fields)
    return Row(mnemonic, extension, encoding, match, mask, fields, meaning, syntax, csrs, family, gnu)


def _register(name: str, extension: str, funct7: int, funct3: int, meaning: str) -> Row:
    return _row(name, extension, "R", funct7 << 25 | funct3 << 12 | 0x33, (_RD, _RS1, _RS2), meaning)


def _immediate(name: str, funct3: int, meaning: str) -> Row:
    return _row(name, "I", "I", funct3 << 12 | 0x13, (_RD, _RS1, _IMM_I), meaning)


def _shift(name: str, funct7: int, funct3: int, meaning: str) -> Row:
    return _row(name, "I", "I", funct7 << 25 | funct3 << 12 | 0x13, (_RD, _RS1, _SHAMT), meaning)


def _long_shift(name: str, funct6: int, funct3: int, meaning: str) -> Row:
    return _row(name, "I", "I", funct6 << 26 | funct3 << 12 | 0x13, (_RD, _RS1, _LONG_SHAMT), meaning)


def _load(name: str, funct3: int, meaning: str) -> Row:
    return _row(name, "I", "I", funct3 << 12 | 0x03, (_RD, _IMM_I, _RS1), meaning, "rd, imm(rs1)")


def _store(name: str, funct3: int, meaning: str) -> Row:
    return _row(name, "I", "S", funct3 << 12 | 0x23, (_RS2, _IMM_S, _RS1), meaning, "rs2, imm(rs1)")


def _branch(name: str, funct3: int, condition: str) -> Row:
    meaning = f"if {condition}: pc += target"
    return _row(name, "I", "B", funct3 << 12 | 0x63, (_RS1, _RS2, _IMM_B), meaning)


def _csr(name: str, funct3: int, source: Field, meaning: str) -> Row:
    return _row(name, "Zicsr", "I", funct3 << 12 | 0x73, (_RD, _CSR, source), meaning)


def _float(name: str, funct7: int, funct3: int, fields: tuple[Field, ...], meaning: str, rs2: int = 0) -> Row:
    """An OP-FP row; with a rounding-mode field `funct3` is 0 and `frm` is read when the mode is dynamic."""
    csrs = ("frm",) if _RM in fields else ()
    return _row(name, "F", "R", funct7 << 25 | rs2 << 20 | funct3 << 12 | 0x53, fields, meaning, csrs=csrs)


def _fused(name: str, opcode: int, meaning: str) -> Row:
    return _row(name, "F", "R4", opcode, (_FRD, _FRS1, _FRS2, _FRS3, _RM), meaning, csrs=("frm",))


def _atomic(name: str, funct5: int, fields: tuple[Field, ...], meaning: str) -> tuple[Row, ...]:
    """The four orderings of one atomic; `family` is the mnemonic without the suffix."""
    syntax = ", ".join("(rs1)" if field is _RS1 else field.name for field in fields)
    return tuple(
        _row(
            name + suffix,
            "A",
            "R",
            funct5 << 27 | order << 25 | 0x202F,
            fields,
            meaning + extra,
            syntax,
            family=name,
        )
        for order, suffix, extra in (
            (0, "", ""),
            (1, ".rl", "; release"),
            (2, ".aq", "; acquire"),
            (3, ".aqrl", "; acquire and release"),
        )
    )


def _amo(name: str, funct5: int, result: str) -> tuple[Row, ...]:
    return _atomic(name, funct5, (_RD, _RS2, _RS1), f"rd = word at rs1; word at rs1 = {result}")


def _bare(name: str, extension: str, word: int, meaning: str, gnu: GnuForm = GnuForm.MNEMONIC) -> Row:
    return _row(name, extension, "I", word, (), meaning, gnu=gnu)


_RV32I: tuple[Row, ...] = (
    _row("lui", "I", "U", 0x37, (_RD, _IMM_U), "rd = imm << 12"),
    _row("auipc", "I", "U", 0x17, (_RD, _IMM_U), "rd = pc + (imm << 12)"),
    _row("jal", "I", "J", 0x6F, (_RD, _IMM_J), "rd = pc + 4; pc += target"),
    _row("jalr", "I", "I", 0x67, (_RD, _IMM_I, _RS1), "rd = pc + 4; pc = (rs1 + imm) & ~1", "rd, imm(rs1)"),
    _branch("beq", 0, "rs1 == rs2"),
    _branch("bne", 1, "rs1 != rs2"),
    _branch("blt", 4, "rs1 < rs2, signed"),
    _branch("bge", 5, "rs1 >= rs2, signed"),
    _branch("bltu", 6, "rs1 < rs2, unsigned"),
    _branch("bgeu", 7, "rs1 >= rs2, unsigned"),
    _load("lb", 0, "rd = byte at rs1 + imm, sign-extended"),
    _load("lh", 1, "rd = half-word at rs1 + imm, sign-extended"),
    _load("lw", 2, "rd = word at rs1 + imm"),
    _load("lbu", 4, "rd = byte at rs1 + imm, zero-extended"),
    _load("lhu", 5, "rd = half-word at rs1 + imm, zero-extended"),
    _store("sb", 0, "byte at rs1 + imm = rs2"),
    _store("sh", 1, "half-word at rs1 + imm = rs2"),
    _store("sw", 2, "word at rs1 + imm = rs2"),
    _immediate("addi", 0, "rd = rs1 + imm"),
    _immediate("slti", 2, "rd = rs1 < imm, signed"),
    _immediate("sltiu", 3, "rd = rs1 < imm, unsigned"),
    _immediate("xori", 4, "rd = rs1 ^ imm"),
    _immediate("ori", 6, "rd = rs1 | imm"),
    _immediate("andi", 7, "rd = rs1 & imm"),
    _shift("slli", 0x00, 1, "rd = rs1 << shamt"),
    _shift("srli", 0x00, 5, "rd = rs1 >> shamt, zeros shifted in"),
    _shift("srai", 0x20, 5, "rd = rs1 >> shamt, sign shifted in"),
    _register("add", "I", 0x00, 0, "rd = rs1 + rs2"),
    _register("sub", "I", 0x20, 0, "rd = rs1 - rs2"),
    _register("sll", "I", 0x00, 1, "rd = rs1 << (rs2 & 31)"),
    _register("slt", "I", 0x00, 2, "rd = rs1 < rs2, signed"),
    _register("sltu", "I", 0x00, 3, "rd = rs1 < rs2, unsigned"),
    _register("xor", "I", 0x00, 4, "rd = rs1 ^ rs2"),
    _register("srl", "I", 0x00, 5, "rd = rs1 >> (rs2 & 31), zeros shifted in"),
    _register("sra", "I", 0x20, 5, "rd = rs1 >> (rs2 & 31), sign shifted in"),
    _register("or", "I", 0x00, 6, "rd = rs1 | rs2"),
    _register("and", "I", 0x00, 7, "rd = rs1 & rs2"),
    _row("fence", "I", "I", 0x0F, (_PRED, _SUCC), "accesses in pred happen before accesses in succ"),
    _bare("fence.tso", "I", 0x8330000F, "as fence rw, rw, but stores need not precede later loads"),
    # GNU as wants the extension Zifencei named for this one.
    _bare("fence.i", "Zifencei", 0x0000100F, "later fetches see earlier stores", GnuForm.INSN_WORD),
    _bare("ecall", "I", 0x00000073, "trap, cause 11"),
    _bare("ebreak", "I", 0x00100073, "trap, cause 3"),
)

_MACHINE: tuple[Row, ...] = (
    _bare("mret", "machine", 0x30200073, "pc = mepc; leave the trap"),
    _bare("wfi", "machine", 0x10500073, "wait until an interrupt is pending"),
    _csr("csrrw", 1, _RS1, "rd = csr; csr = rs1"),
    _csr("csrrs", 2, _RS1, "rd = csr; csr |= rs1"),
    _csr("csrrc", 3, _RS1, "rd = csr; csr &= ~rs1"),
    _csr("csrrwi", 5, _UIMM, "rd = csr; csr = uimm"),
    _csr("csrrsi", 6, _UIMM, "rd = csr; csr |= uimm"),
    _csr("csrrci", 7, _UIMM, "rd = csr; csr &= ~uimm"),
)

_RV32M: tuple[Row, ...] = (
    _register("mul", "M", 1, 0, "rd = low word of rs1 * rs2"),
    _register("mulh", "M", 1, 1, "rd = high word of rs1 * rs2, signed"),
    _register("mulhsu", "M", 1, 2, "rd = high word of rs1 * rs2, signed times unsigned"),
    _register("mulhu", "M", 1, 3, "rd = high word of rs1 * rs2, unsigned"),
    _register("div", "M", 1, 4, "rd = rs1 / rs2, signed, toward zero; -1 when rs2 is 0"),
    _register("divu", "M", 1, 5, "rd = rs1 / rs2, unsigned; all ones when rs2 is 0"),
    _register("rem", "M", 1, 6, "rd = rs1 - rs2 * (rs1 / rs2), signed; rs1 when rs2 is 0"),
    _register("remu", "M", 1, 7, "rd = rs1 modulo rs2, unsigned; rs1 when rs2 is 0"),
)

_RV32A: tuple[Row, ...] = (
    *_atomic("lr.w", 0x02, (_RD, _RS1), "rd = word at rs1; reserve it"),
    *_atomic("sc.w", 0x03, (_RD, _RS2, _RS1), "if still reserved: word at rs1 = rs2, rd = 0; else rd = 1"),
    *_amo("amoswap.w", 0x01, "rs2"),
    *_amo("amoadd.w", 0x00, "rd + rs2"),
    *_amo("amoxor.w", 0x04, "rd ^ rs2"),
    *_amo("amoand.w", 0x0C, "rd & rs2"),
    *_amo("amoor.w", 0x08, "rd | rs2"),
    *_amo("amomin.w", 0x10, "min(rd, rs2), signed"),
    *_amo("amomax.w", 0x14, "max(rd, rs2), signed"),
    *_amo("amominu.w", 0x18, "min(rd, rs2), unsigned"),
    *_amo("amomaxu.w", 0x1C, "max(rd, rs2), unsigned"),
)

_RV32F: tuple[Row, ...] = (
    _row("flw", "F", "I", 0x2007, (_FRD, _IMM_I, _RS1), "rd = fp32 at rs1 + imm", "rd, imm(rs1)"),
    _row("fsw", "F", "S", 0x2027, (_FRS2, _IMM_S, _RS1), "fp32 at rs1 + imm = rs2", "rs2, imm(rs1)"),
    _fused("fmadd.s", 0x43, "rd = rs1 * rs2 + rs3, one rounding"),
    _fused("fmsub.s", 0x47, "rd = rs1 * rs2 - rs3, one rounding"),
    _fused("fnmsub.s", 0x4B, "rd = -(rs1 * rs2) + rs3, one rounding"),
    _fused("fnmadd.s", 0x4F, "rd = -(rs1 * rs2) - rs3, one rounding"),
    _float("fadd.s", 0x00, 0, (_FRD, _FRS1, _FRS2, _RM), "rd = rs1 + rs2"),
    _float("fsub.s", 0x04, 0, (_FRD, _FRS1, _FRS2, _RM), "rd = rs1 - rs2"),
    _float("fmul.s", 0x08, 0, (_FRD, _FRS1, _FRS2, _RM), "rd = rs1 * rs2"),
    _float("fdiv.s", 0x0C, 0, (_FRD, _FRS1, _FRS2, _RM), "rd = rs1 / rs2"),
    _float("fsqrt.s", 0x2C, 0, (_FRD, _FRS1, _RM), "rd = square root of rs1"),
    _float("fsgnj.s", 0x10, 0, (_FRD, _FRS1, _FRS2), "rd = rs1 with the sign of rs2"),
    _float("fsgnjn.s", 0x10, 1, (_FRD, _FRS1, _FRS2), "rd = rs1 with the opposite sign of rs2"),
    _float("fsgnjx.s", 0x10, 2, (_FRD, _FRS1, _FRS2), "rd = rs1 with its sign flipped where rs2 is negative"),
    _float("fmin.s", 0x14, 0, (_FRD, _FRS1, _FRS2), "rd = the smaller; the other one when one is NaN"),
    _float("fmax.s", 0x14, 1, (_FRD, _FRS1, _FRS2), "rd = the larger; the other one when one is NaN"),
    _float("feq.s", 0x50, 2, (_RD, _FRS1, _FRS2), "rd = rs1 == rs2; 0 with NaN"),
    _float("flt.s", 0x50, 1, (_RD, _FRS1, _FRS2), "rd = rs1 < rs2; 0 with NaN"),
    _float("fle.s", 0x50, 0, (_RD, _FRS1, _FRS2), "rd = rs1 <= rs2; 0 with NaN"),
    _float("fclass.s", 0x70, 1, (_RD, _FRS1), "rd = one bit for the class of rs1"),
    _float("fcvt.w.s", 0x60, 0, (_RD, _FRS1, _RM), "rd = rs1 as int32, saturated"),
    _float("fcvt.wu.s", 0x60, 0, (_RD, _FRS1, _RM), "rd = rs1 as uint32, saturated", rs2=1),
    _float("fcvt.s.w", 0x68, 0, (_FRD, _RS1, _RM), "rd = int32 rs1 as fp32"),
    _float("fcvt.s.wu", 0x68, 0, (_FRD, _RS1, _RM), "rd = uint32 rs1 as fp32", rs2=1),
    _float("fmv.x.w", 0x70, 0, (_RD, _FRS1), "rd = bits of rs1"),
    _float("fmv.w.x", 0x78, 0, (_FRD, _RS1), "rd = fp32 with the bits rs1"),
)

RV32_ROWS: tuple[Row, ...] = (*_RV32I, *_MACHINE, *_RV32M, *_RV32A, *_RV32F)
"""Every scalar instruction of a 32-bit core, by extension."""

_SHORT_SHIFTS = ("slli", "srli", "srai")
_RV64I: tuple[Row, ...] = (
    *(row for row in _RV32I if row.mnemonic not in _SHORT_SHIFTS),
    _long_shift("slli", 0x00, 1, "rd = rs1 << shamt"),
    _long_shift("srli", 0x00, 5, "rd = rs1 >> shamt, zeros shifted in"),
    _long_shift("srai", 0x10, 5, "rd = rs1 >> shamt, sign shifted in"),
    _load("lwu", 6, "rd = word at rs1 + imm, zero-extended"),
    _load("ld", 3, "rd = double word at rs1 + imm"),
    _store("sd", 3, "double word at rs1 + imm = rs2"),
    _row("addiw", "I", "I", 0x1B, (_RD, _RS1, _IMM_I), "rd = low word of rs1 + imm, sign-extended"),
    _row("addw", "I", "R", 0x3B, (_RD, _RS1, _RS2), "rd = low word of rs1 + rs2, sign-extended"),
    _row("subw", "I", "R", 0x4000003B, (_RD, _RS1, _RS2), "rd = low word of rs1 - rs2, sign-extended"),
)

RV64_ROWS: tuple[Row, ...] = (*_RV64I, *_MACHINE, *_RV32M, *_RV32F)
"""Scalar instructions of a 64-bit core that programs of this compiler may have: no atomics."""
