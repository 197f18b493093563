"""Control and status registers: number, name, bit fields, access. The shapes and strides of NPU instructions live here.

Source: the vendor's public functional simulator and the CARRV 2021 paper for the NPU's own; the RISC-V specifications
for the rest. Which instructions read a register is declared in the instruction rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CsrField:
    """Bits `high`..`low` of a register; `meaning` names the unit."""

    high: int
    low: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Csr:
    """One register; fields from the highest bit down. A read-only one ignores or traps on writes, as `meaning` says."""

    number: int
    name: str
    meaning: str
    fields: tuple[CsrField, ...] = ()
    writable: bool = True

    def pack(self, values: tuple[int, ...]) -> int:
        """The register's word from one value per field, in the declared order. ValueError if one does not fit."""
        if len(values) != len(self.fields):
            raise ValueError(f"CSR {self.name} has {len(self.fields)} fields, {len(values)} values given")
        word = 0
        for field, value in zip(self.fields, values, strict=True):
            limit = (1 << (field.high - field.low + 1)) - 1
            if not 0 <= value <= limit:
                raise ValueError(f"CSR {self.name}: {field.meaning} is {value}, allowed are 0..{limit}")
            word |= value << field.low
        return word

    def unpack(self, word: int) -> tuple[int, ...]:
        """One value per field, in the declared order."""
        return tuple(word >> field.low & ((1 << (field.high - field.low + 1)) - 1) for field in self.fields)


def _halves(number: int, name: str, meaning: str, high: str, low: str) -> Csr:
    return Csr(number, name, meaning, (CsrField(31, 16, high), CsrField(15, 0, low)))


def _low_half(number: int, name: str, meaning: str, low: str) -> Csr:
    return Csr(number, name, meaning, (CsrField(15, 0, low),))


_NPU: tuple[Csr, ...] = (
    _halves(0x400, "shape_s1", "shape of rs1, vector engine", "columns", "rows"),
    _halves(0x401, "shape_s2", "shape of rs2; no instruction reads it", "columns", "rows"),
    _low_half(0x402, "stride_d", "row stride of rd, vector engine; 0 is dense", "rd, bytes"),
    _halves(0x403, "stride_s", "row strides of the sources, vector engine; 0 is dense", "rs2, bytes", "rs1, bytes"),
    _halves(0x404, "m_shape_s1", "shape of rs1, matrix multiplication and transpose", "columns", "rows"),
    _halves(0x405, "m_shape_s2", "shape of rs2, matrix multiplication", "columns", "rows"),
    _low_half(0x406, "m_stride_d", "row stride of rd, matrix engine; 0 is dense", "rd, bytes"),
    _halves(0x407, "m_stride_s", "row strides of the sources, matrix engine; 0 is dense", "rs2, bytes", "rs1, bytes"),
    _halves(0x408, "conv_FM_in", "input image", "width", "height"),
    _halves(0x409, "conv_Depth_in", "input channels; stride 0 is dense", "pixel stride, bytes", "channels"),
    _halves(0x40A, "conv_FM_out", "output image; must be what the other registers imply", "width", "height"),
    _halves(0x40B, "conv_Depth_out", "output channels; stride 0 is dense", "pixel stride, bytes", "channels"),
    _low_half(0x40C, "conv_S_kernel", "row stride of the weights; 0 is dense", "rs2, bytes"),
    Csr(
        0x40D,
        "conv_kernel",
        "kernel; dilation and stride hold for both axes",
        (CsrField(31, 24, "width"), CsrField(23, 16, "height"), CsrField(15, 8, "dilation"), CsrField(7, 0, "stride")),
    ),
    Csr(
        0x40E,
        "conv_padding",
        "rows and columns of zeros around the input",
        (CsrField(31, 24, "top"), CsrField(23, 16, "bottom"), CsrField(15, 8, "left"), CsrField(7, 0, "right")),
    ),
    Csr(0x410, "m_dequant_coeff", "factor of memul.hf.x8.mm", (CsrField(31, 0, "fp32 bits"),)),
    Csr(0x411, "conv_dequant_coeff", "factor of meconv.hf.x8.mm", (CsrField(31, 0, "fp32 bits"),)),
    Csr(0x41F, "ncp_busy", "engines at work; reads 0 on a model without time"),
    Csr(0x420, "mte_coremap", "cores that take part in pld", (CsrField(31, 0, "one bit per core"),)),
    Csr(0x421, "mte_icdest", "destination of icmov", (CsrField(19, 16, "chip"), CsrField(5, 0, "core"))),
    _halves(0x422, "mte_shape", "shape of a transfer, in 2-byte elements", "columns", "rows"),
    _low_half(0x423, "mte_stride_llb", "row stride on the LLB side; 0 is dense", "bytes"),
    Csr(0x424, "tid", "number of the core; writes are ignored", writable=False),
    Csr(0x425, "tmisc", "no effect on NPU instructions"),
    Csr(0x426, "tcsr", "no effect on NPU instructions"),
    Csr(0x7C6, "mhsp_ctl", "stack guard control"),
    Csr(0x7C7, "msp_bound", "stack guard bound"),
    Csr(0x7C8, "msp_base", "stack guard base"),
)

_STANDARD: tuple[Csr, ...] = (
    Csr(0x001, "fflags", "accrued floating-point exceptions", (CsrField(4, 0, "NV DZ OF UF NX"),)),
    Csr(0x002, "frm", "dynamic rounding mode of scalar floating point", (CsrField(2, 0, "mode"),)),
    Csr(0x003, "fcsr", "frm and fflags", (CsrField(7, 5, "frm"), CsrField(4, 0, "fflags"))),
    Csr(0x008, "vstart", "first element of the vector unit"),
    Csr(0x300, "mstatus", "machine status; FS (14..13) must not be 0 before scalar floating point"),
    Csr(0x301, "misa", "supported extensions"),
    Csr(0x304, "mie", "interrupt enable"),
    Csr(0x305, "mtvec", "address of the trap handler"),
    Csr(0x340, "mscratch", "scratch of the trap handler"),
    Csr(0x341, "mepc", "pc of the trapping instruction"),
    Csr(0x342, "mcause", "cause of the trap"),
    Csr(0x343, "mtval", "address or word of the trap"),
    Csr(0x344, "mip", "interrupts pending"),
    Csr(0xB00, "mcycle", "cycles, low word"),
    Csr(0xB02, "minstret", "instructions retired, low word"),
    Csr(0xB80, "mcycleh", "cycles, high word"),
    Csr(0xB82, "minstreth", "instructions retired, high word"),
    Csr(0xC00, "cycle", "mcycle, read-only", writable=False),
    Csr(0xC02, "instret", "minstret, read-only", writable=False),
    Csr(0xC20, "vl", "elements of a vector", writable=False),
    Csr(0xC21, "vtype", "element width of a vector", writable=False),
    Csr(0xC22, "vlenb", "bytes of a vector register", writable=False),
    Csr(0xC80, "cycleh", "mcycleh, read-only", writable=False),
    Csr(0xC82, "instreth", "minstreth, read-only", writable=False),
    Csr(0xF11, "mvendorid", "vendor", writable=False),
    Csr(0xF12, "marchid", "architecture", writable=False),
    Csr(0xF13, "mimpid", "implementation", writable=False),
    Csr(0xF14, "mhartid", "number of the core", writable=False),
)

CSRS: tuple[Csr, ...] = (*_NPU, *_STANDARD)
"""Every register that is known by name, the NPU's own first."""

_BY_NAME = {register.name: register for register in CSRS}
_BY_NUMBER = {register.number: register for register in CSRS}


def csr(name: str) -> Csr:
    """The register of that name; KeyError if there is none."""
    return _BY_NAME[name]


def csr_by_number(number: int) -> Csr | None:
    """The register of that number, or None when it has no name here."""
    return _BY_NUMBER.get(number)
