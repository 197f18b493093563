"""Rows of the NPU: the custom instructions of opcode 0x7b, with one row per direction variant.

Source: the vendor's public functional simulator and the CARRV 2021 paper on NeuralScale, restated; the 53 operations
are 78 rows here, because a variant with another operand kind or meaning is another instruction.

    31    26  25   24  20  19  15   14   13  12   11   7   6     0
    funct6 | dmc |  rs2  |  rs1  |  dm  | form |   rd   | 1111011
"""

from __future__ import annotations

from codegen.neuralscale.isa.row import Direction, Engine, InstructionRow
from codegen.riscv.row import FPR, GPR, VR, Field, GnuForm

NPU_OPCODE = 0x7B

_RD = Field("rd", GPR, ((0, 5, 7),))
_RS1 = Field("rs1", GPR, ((0, 5, 15),))
_RS2 = Field("rs2", GPR, ((0, 5, 20),))
_FRD = Field("rd", FPR, ((0, 5, 7),))
_FRS1 = Field("rs1", FPR, ((0, 5, 15),))
_FRS2 = Field("rs2", FPR, ((0, 5, 20),))
_VRD = Field("rd", VR, ((0, 5, 7),))

_MM = (_RD, _RS1, _RS2)
_MF = (_RD, _RS1, _FRS2)
_M = (_RD, _RS1)

_VME_CSRS = ("shape_s1", "stride_d", "stride_s")
_DENSE_CSRS = ("shape_s1", "stride_s")  # full and dim_h reductions: the result has no stride
_MEMUL_CSRS = ("m_shape_s1", "m_shape_s2", "m_stride_d", "m_stride_s")
_METR_CSRS = ("m_shape_s1", "m_stride_d", "m_stride_s")
_MECONV_CSRS = (
    "conv_FM_in",
    "conv_Depth_in",
    "conv_FM_out",
    "conv_Depth_out",
    "conv_S_kernel",
    "conv_kernel",
    "conv_padding",
)
_MTE_CSRS = ("mte_shape", "mte_stride_llb")

# funct3 = dm << 2 | form
_FORM_MM, _FORM_M, _FORM_MV, _FORM_MF = 0, 1, 2, 3
_DM = 4


def _npu(
    mnemonic: str,
    engine: Engine,
    funct7: int,
    funct3: int,
    fields: tuple[Field, ...],
    csrs: tuple[str, ...],
    meaning: str,
    *,
    rs2: int = 0,
    family: str = "",
    direction: Direction = Direction.NONE,
    syntax: str = "",
) -> InstructionRow:
    """One row; `rs2` is the fixed sub-opcode where rs2 is not an operand. Every bit outside the fields is fixed."""
    return InstructionRow(
        mnemonic=mnemonic,
        extension="NPU",
        encoding="R",
        match=funct7 << 25 | rs2 << 20 | funct3 << 12 | NPU_OPCODE,
        mask=0xFFFFFFFF & ~sum(field.word_mask for field in fields),
        fields=fields,
        engine=engine,
        meaning=meaning,
        syntax=syntax,
        csrs=csrs,
        family=family,
        direction=direction,
        gnu=GnuForm.INSN_R,
    )


def _vme(
    mnemonic: str, funct7: int, funct3: int, fields: tuple[Field, ...], meaning: str, rs2: int = 0
) -> InstructionRow:
    return _npu(mnemonic, Engine.VME, funct7, funct3, fields, _VME_CSRS, meaning, rs2=rs2)


def _directed(
    family: str,
    direction: Direction,
    funct7: int,
    funct3: int,
    fields: tuple[Field, ...],
    meaning: str,
    csrs: tuple[str, ...] = _VME_CSRS,
    *,
    suffix: str = "",
) -> InstructionRow:
    """One direction of a vector or reduction form, named `family.direction` and the suffix."""
    name = f"{family}.{direction.value}{suffix}"
    return _npu(name, Engine.VME, funct7, funct3, fields, csrs, meaning, family=family, direction=direction)


def _vector(
    family: str, funct7: int, meaning: str, fields: tuple[Field, ...] = _MM
) -> tuple[InstructionRow, InstructionRow]:
    """`mv` forms: a vector of `columns` elements for every row (dim_h), or of `rows` elements, one per row (dim_w)."""
    return (
        _directed(
            family, Direction.DIM_H, funct7, _FORM_MV, fields, f"{meaning}; the vector has one element per column"
        ),
        _directed(
            family, Direction.DIM_W, funct7, _DM | _FORM_MV, fields, f"{meaning}; the vector has one element per row"
        ),
    )


def _reduction(family: str, funct7: int, form: int, fields: tuple[Field, ...], what: str) -> tuple[InstructionRow, ...]:
    """Full, dim_h and dim_w reductions. Only dm selects the direction once it is set, so dmc = 0 with dm = 1 is a
    second encoding of dim_w, which a paper on the chip prints; we decode it and never emit it."""
    full, down, along = (f"{where}: {what}" for where in ("all elements", "down each column", "along each row"))
    return (
        _directed(family, Direction.FULL, funct7, form, (_FRD, *fields[1:]), f"{full}; fp32 into rd", _DENSE_CSRS),
        _directed(family, Direction.DIM_H, funct7 | 1, form, fields, down, _DENSE_CSRS),
        _directed(family, Direction.DIM_W, funct7 | 1, _DM | form, fields, along),
        _directed(family, Direction.DIM_W, funct7, _DM | form, fields, f"{along} (second encoding)", suffix=".dmc0"),
    )


def _memul(mnemonic: str, funct7: int, funct3: int, meaning: str, extra: tuple[str, ...] = ()) -> InstructionRow:
    return _npu(mnemonic, Engine.MME, funct7, funct3, _MM, _MEMUL_CSRS + extra, meaning)


def _meconv(mnemonic: str, funct7: int, funct3: int, meaning: str, extra: tuple[str, ...] = ()) -> InstructionRow:
    return _npu(mnemonic, Engine.MME, funct7, funct3, _MM, _MECONV_CSRS + extra, meaning)


def _vector_unit(family: str, funct6: int, funct3: int, meaning: str) -> tuple[InstructionRow, InstructionRow]:
    """Post-increment accesses of the scalar core's vector unit, unmasked and masked by v0."""
    fields = (_VRD, _RS1, _RS2)
    syntax = "rd, (rs1), rs2"
    return (
        _npu(family, Engine.SCALAR, funct6 << 1 | 1, funct3, fields, ("vl", "vtype"), meaning, syntax=syntax),
        _npu(
            f"{family}.m",
            Engine.SCALAR,
            funct6 << 1,
            funct3,
            fields,
            ("vl", "vtype"),
            f"{meaning}; where v0 is set",
            family=family,
            syntax=syntax,
        ),
    )


_ELEMENTWISE: tuple[InstructionRow, ...] = (
    _vme("veadd.mm", 0x02, _FORM_MM, _MM, "rd = rs1 + rs2"),
    *_vector("veadd.mv", 0x03, "rd = rs1 + rs2"),
    _vme("veadd.mf", 0x02, _FORM_MF, _MF, "rd = rs1 + rs2"),
    _vme("vesub.mm", 0x04, _FORM_MM, _MM, "rd = rs1 - rs2"),
    *_vector("vesub.mv", 0x05, "rd = rs1 - rs2"),
    _vme("vesub.mf", 0x04, _FORM_MF, _MF, "rd = rs1 - rs2"),
    _vme("veemul.mm", 0x0A, _FORM_MM, _MM, "rd = rs1 * rs2"),
    *_vector("veemul.mv", 0x0B, "rd = rs1 * rs2"),
    _vme("veemul.mf", 0x0A, _FORM_MF, _MF, "rd = rs1 * rs2"),
    _vme("vemax.mm", 0x0E, _FORM_MM, _MM, "rd = the larger of rs1, rs2; rs2 when equal; 0x7c01 with any NaN"),
    *_vector("vemax.mv", 0x0F, "rd = the larger of rs1, rs2; rs2 when equal; 0x7c01 with any NaN"),
    _vme("vemax.mf", 0x0E, _FORM_MF, _MF, "rd = the larger of rs1, rs2; rs2 when equal; 0x7c01 with any NaN"),
    _vme("vemin.mm", 0x10, _FORM_MM, _MM, "rd = the smaller of rs1, rs2; rs2 when equal; 0x7c01 with any NaN"),
    *_vector("vemin.mv", 0x11, "rd = the smaller of rs1, rs2; rs2 when equal; 0x7c01 with any NaN"),
    _vme("vemin.mf", 0x10, _FORM_MF, _MF, "rd = the smaller of rs1, rs2; rs2 when equal; 0x7c01 with any NaN"),
    _vme("velkrelu.mf", 0x12, _FORM_MF, _MF, "rd = rs1 * rs2 where rs1 <= 0, else rs1"),
    *_vector("velkrelu.mv", 0x13, "rd = rs1 * rs2 where rs1 < 0, else rs1"),
    _vme("velut.m", 0x14, _FORM_M, _MM, "rd = entry of the table at rs2, indexed by the uint16 words of rs1"),
    _vme("veexp.m", 0x20, _FORM_M, _M, "rd = exp(rs1), approximate"),
    _vme("vesqrt.m", 0x22, _FORM_M, _M, "rd = square root of rs1, approximate"),
    _vme("verecip.m", 0x24, _FORM_M, _M, "rd = 1 / rs1, approximate"),
)

_CONVERSIONS: tuple[InstructionRow, ...] = (
    _npu(
        "veemul.x32.mv",
        Engine.VME,
        0x0A,
        _DM | _FORM_MV,
        _MM,
        _VME_CSRS,
        "rd = int32 rs1 * fp16 rs2, one rounding; the vector has one element per column",
        direction=Direction.DIM_H,
    ),
    _vme("veemul.x32.mf", 0x0A, _DM | _FORM_MF, _MF, "rd = int32 rs1 * fp16 rs2, one rounding"),
    _vme(
        "veemul.x8.hf.mf", 0x0B, _FORM_MF, _MF, "rd = int8 of fp16 rs1 * rs2: rounded, truncated, saturated; NaN is 0"
    ),
    _vme("vecvt.hf.x8.m", 0x18, _FORM_M, _M, "rd = fp16 of int8 rs1, exact"),
    _vme("vecvt.hf.xu8.m", 0x18, _FORM_M, _M, "rd = fp16 of uint8 rs1, exact", rs2=1),
    _vme("vecvt.x8.hf.m", 0x18, _FORM_M, _M, "rd = int8 of fp16 rs1, truncated, saturated; NaN is 0", rs2=2),
)

_REDUCTIONS: tuple[InstructionRow, ...] = (
    *_reduction("veacc.m", 0x06, _FORM_M, _M, "sum of rs1 in order"),
    *_reduction("veemacc.mm", 0x0C, _FORM_MM, _MM, "sum of rs1 * rs2 in order"),
    _directed(
        "veemacc.mv",
        Direction.DIM_H,
        0x0D,
        _FORM_MV,
        _MM,
        "down each column: sum of rs1 * rs2 in order; the vector has one element per row",
        _DENSE_CSRS,
    ),
    _directed(
        "veemacc.mv",
        Direction.DIM_W,
        0x0D,
        _DM | _FORM_MV,
        _MM,
        "along each row: sum of rs1 * rs2 in order; the vector has one element per column",
    ),
    _directed(
        "veemacc.mf", Direction.DIM_H, 0x0D, _FORM_MF, _MF, "down each column: sum of rs1 * rs2 in order", _DENSE_CSRS
    ),
    _directed("veemacc.mf", Direction.DIM_W, 0x0D, _DM | _FORM_MF, _MF, "along each row: sum of rs1 * rs2 in order"),
    *_reduction("vemax.m", 0x0E, _FORM_M, _M, "maximum of rs1; 0x7c01 with any NaN; -0 is below +0"),
    *_reduction("vemin.m", 0x10, _FORM_M, _M, "minimum of rs1; 0x7c01 with any NaN; -0 is below +0"),
)

_MATRIX: tuple[InstructionRow, ...] = (
    _npu("metr.m", Engine.MME, 0x30, _FORM_M, _M, _METR_CSRS, "rd = transpose of rs1; rd in IM"),
    _memul("memul.mm", 0x32, _FORM_MM, "rd = rs1 x rs2 in fp16, two accumulators (even and odd k); rd in IM"),
    _memul("memul.ts.mm", 0x32, _DM | _FORM_MM, "as memul.mm, with rs1 stored transposed"),
    _memul("memul.x8.mm", 0x33, _FORM_MM, "rd = rs1 x rs2, int8 into int32, exact; rd in IM"),
    _memul(
        "memul.hf.x8.mm",
        0x33,
        _DM | _FORM_MM,
        "rd = (rs1 x rs2 in int32) * coefficient as fp16; rd in IM",
        ("m_dequant_coeff",),
    ),
    _meconv("meconv.mm", 0x34, _FORM_MM, "rd = convolution of the NHWC image rs1 with the weights rs2; rd in IM"),
    _meconv("meconv.x8.mm", 0x35, _FORM_MM, "as meconv.mm, int8 into int32, exact"),
    _meconv(
        "meconv.hf.x8.mm",
        0x35,
        _DM | _FORM_MM,
        "as meconv.x8.mm, then * coefficient as fp16",
        ("conv_dequant_coeff",),
    ),
)

_MOVES: tuple[InstructionRow, ...] = (
    _vme("mov.m", 0x16, _FORM_M, _M, "rd = rs1, L1 or IM on both sides, strided on both sides"),
    *_vector("mov.v", 0x17, "rd = vector rs1, repeated", _M),
    _vme("mov.f", 0x16, _FORM_MF, (_RD, _FRS1), "rd = scalar rs1, repeated"),
    _npu("mov.llb.l1", Engine.MTE, 0x16, _FORM_M, _M, _MTE_CSRS, "LLB at rd, strided = L1 at rs1, dense", rs2=1),
    _npu("mov.l1.llb", Engine.MTE, 0x16, _FORM_M, _M, _MTE_CSRS, "L1 at rd, dense = LLB at rs1, strided", rs2=2),
    _npu(
        "icmov",
        Engine.MTE,
        0x1A,
        _FORM_MM,
        _MM,
        ("mte_icdest",),
        "L1 at rd of another core = own L1 at rs1, rs2 bytes (0: 524,288); visible after the next sync",
    ),
    _npu(
        "pld",
        Engine.MTE,
        0x1E,
        _FORM_M,
        _M,
        (*_MTE_CSRS, "mte_coremap"),
        "wait for every core of the map, then L1 at rd, dense = LLB at rs1, strided",
    ),
    _npu("sync", Engine.SYNC, 0x1C, _FORM_MM, (), (), "wait until every core of the group has arrived"),
)

_VECTOR_UNIT: tuple[InstructionRow, ...] = (
    *_vector_unit("vlepi.v", 0x3F, 0, "vector rd = vl elements at rs1; rs1 += rs2"),
    *_vector_unit("vlsepi.v", 0x3F, 1, "vector rd = vl elements at rs1, rs2 bytes apart; rs1 += vl * rs2"),
    *_vector_unit("vsepi.v", 0x3E, 0, "vl elements at rs1 = vector rd; rs1 += rs2"),
    *_vector_unit("vssepi.v", 0x3E, 1, "vl elements at rs1, rs2 bytes apart = vector rd; rs1 += vl * rs2"),
)

NPU_ROWS: tuple[InstructionRow, ...] = (*_ELEMENTWISE, *_CONVERSIONS, *_REDUCTIONS, *_MATRIX, *_MOVES, *_VECTOR_UNIT)
"""Every instruction of opcode 0x7b, by kind."""
