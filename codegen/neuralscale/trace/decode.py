"""Work of an NPU instruction, read from the registers and CSRs of the core that issues it.

    row of the instruction table, GPRs, CSRs --traced_instr--> Instr with regions and cycles

The converse of `issue`, written independently: the cycle model compares the compiler's description of an instruction
with that of its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codegen.neuralscale.emit.memory_map import LLB_BASE, LLB_END, LLB_SLICE_BYTES, address_of, memory_at
from codegen.neuralscale.instructions.arithmetic import FP16, TRANSFER_UNIT_BYTES
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.isa.csr import csr
from codegen.neuralscale.isa.row import Direction, Engine, InstructionRow
from codegen.neuralscale.simulator.core.hart import Hart
from codegen.neuralscale.simulator.core.operands import check_shape
from codegen.riscv.row import FieldKind
from hw_models.chip import Chip
from hw_models.cost import lookup_cycles, matrix_cycles, vector_cycles
from hw_models.errors import TargetError
from isched.program.program import Instr, Region
from partitioner.ir.graph import DTYPE_BYTES

ICMOV_ALL_BYTES = 524_288
"""Bytes that a length of 0 stands for."""

LOOKUP_BYTES = 1 << 17
"""Bytes of all entries that a 16-bit index can name, though the chip checks only the range of the first half."""

_REDUCTIONS = frozenset({"veacc.m", "veemacc.mm", "veemacc.mv", "veemacc.mf", "vemax.m", "vemin.m"})
_SOURCE_BYTES = {"veemul.x32.mv": 4, "veemul.x32.mf": 4, "vecvt.hf.x8.m": 1, "vecvt.hf.xu8.m": 1}
_TARGET_BYTES = {"veemul.x8.hf.mf": 1, "vecvt.x8.hf.m": 1}
_VECTOR_DTYPES = {DTYPE_BYTES[dtype]: dtype for dtype in ("int32", FP16.dtype, "int8")}
CSR_NUMBERS = {
    name: csr(name).number
    for name in (
        "shape_s1", "stride_d", "stride_s", "m_shape_s1", "m_shape_s2", "m_stride_d", "m_stride_s", "conv_FM_in",
        "conv_Depth_in", "conv_FM_out", "conv_Depth_out", "conv_S_kernel", "conv_kernel", "mte_shape", "mte_stride_llb",
        "mte_icdest",
    )
}  # fmt: skip
"""CSRs on which the meaning of an instruction depends."""


def region_at(memory: str, address: int, cluster: int) -> tuple[str, int]:
    """(memory, offset) in the terms of programs: the LLB counts from the start of the cluster's own part."""
    if LLB_BASE <= address < LLB_END:
        return memory, address - LLB_BASE - cluster * LLB_SLICE_BYTES
    return memory, address - (address_of(memory, 0) if memory in ("DDR", "L1", "IM") else 0)


@dataclass(frozen=True, slots=True)
class Issued:
    """An instruction at the moment of its issue."""

    hart: Hart
    row: InstructionRow
    word: int
    cluster: int

    def x(self, name: str) -> int:
        """The value of the GPR that a field names: rd, rs1 or rs2."""
        return int(self.hart.x[self.word >> {"rd": 7, "rs1": 15, "rs2": 20}[name] & 31])

    def halves(self, name: str) -> tuple[int, int]:
        """(low, high) 16-bit halves of a CSR."""
        value = int(self.hart.csr[CSR_NUMBERS[name]])
        return value & 0xFFFF, value >> 16

    def place(self, address: int) -> tuple[str, int]:
        """(memory, offset in bytes) of an address. Raises TargetError for an address in no memory."""
        memory = memory_at(address)
        if not memory:
            who = f"core {self.hart.hart_id} at {self.hart.pc:#x}"
            raise TargetError(who, needs=f"operands of {self.row.mnemonic} in a memory", has=f"{address:#x}")
        return region_at(memory, address, self.cluster)

    def matrix(
        self, address: int, rows: int, columns: int, stride: int = 0, item_bytes: int = FP16.item_bytes
    ) -> Region:
        """Region of a matrix. Raises Trap for an empty one, as the chip does."""
        check_shape(rows, columns)
        return MatrixPlace(*self.place(address), rows, columns, item_bytes, stride if rows > 1 else 0).region

    def has(self, name: str) -> bool:
        """Whether the instruction has a GPR operand of that name."""
        return any(field.name == name and field.kind is FieldKind.GPR for field in self.row.fields)

    @property
    def own(self) -> bool:
        """Whether an icmov stays on its core."""
        return self.halves("mte_icdest")[0] & 0x3F == self.hart.hart_id


def traced_instr(issued: Issued, chip: Chip) -> Instr:
    """The instruction with the regions that it reads and writes. Raises TargetError for operands outside all
    memories."""
    family = issued.row.family
    if issued.row.engine is Engine.VME:
        return _vector(issued, chip)
    for prefix, make in _BY_FAMILY:
        if family.startswith(prefix):
            return make(issued, chip)
    raise TargetError(
        f"instruction {issued.row.mnemonic}", needs="to be known to the cycle model", has="no rule for it"
    )


def _vector(issued: Issued, chip: Chip) -> Instr:
    name = issued.row.mnemonic
    rows, columns = issued.halves("shape_s1")
    first, second = issued.halves("stride_s")
    source_bytes, target_bytes = (table.get(name, FP16.item_bytes) for table in (_SOURCE_BYTES, _TARGET_BYTES))
    reads: list[Region] = []
    if issued.has("rs1"):
        if issued.row.family == "mov.v":
            reads.append(_applied(issued, issued.x("rs1"), rows, columns))
        else:
            reads.append(issued.matrix(issued.x("rs1"), rows, columns, first, source_bytes))
    if issued.has("rs2"):
        reads.append(_second(issued, rows, columns, second))
    writes: tuple[Region, ...] = ()
    if issued.row.family in _REDUCTIONS:
        if issued.row.direction is Direction.DIM_H:
            writes = (issued.matrix(issued.x("rd"), 1, columns),)
        elif issued.row.direction is Direction.DIM_W:
            writes = (issued.matrix(issued.x("rd"), rows, 1, issued.halves("stride_d")[0]),)
    else:
        writes = (issued.matrix(issued.x("rd"), rows, columns, issued.halves("stride_d")[0], target_bytes),)
    price = lookup_cycles if name == "velut.m" else vector_cycles
    cycles = price(chip, rows * columns, _VECTOR_DTYPES[min(source_bytes, target_bytes, key=_rarest)])
    return Instr("vector", name, (), tuple(reads), writes, cycles)


def _rarest(item_bytes: int) -> bool:
    """The type other than fp16, which decides the rate."""
    return item_bytes == FP16.item_bytes


def _second(issued: Issued, rows: int, columns: int, stride: int) -> Region:
    """Region of rs2: a matrix, a vector, or a table."""
    address, family = issued.x("rs2"), issued.row.family
    if family == "velut.m":
        return Region(*issued.place(address), LOOKUP_BYTES)
    if family.endswith(".mm"):
        return issued.matrix(address, rows, columns, stride)
    if family == "veemacc.mv":  # the vector runs along the summed axis
        return issued.matrix(address, 1, rows if issued.row.direction is Direction.DIM_H else columns)
    return _applied(issued, address, rows, columns)


def _applied(issued: Issued, address: int, rows: int, columns: int) -> Region:
    """Region of a dense vector with one element per column (dim_h) or per row (dim_w)."""
    return issued.matrix(address, 1, columns if issued.row.direction is Direction.DIM_H else rows)


def _memul(issued: Issued, chip: Chip) -> Instr:
    name = issued.row.mnemonic
    a_rows, a_columns = issued.halves("m_shape_s1")
    b_rows, b_columns = issued.halves("m_shape_s2")
    first, second = issued.halves("m_stride_s")
    item, out, dtype = _matrix_types(name)
    height, depth = (a_columns, a_rows) if name == "memul.ts.mm" else (a_rows, a_columns)
    reads = (
        issued.matrix(issued.x("rs1"), a_rows, a_columns, first, item),
        issued.matrix(issued.x("rs2"), b_rows, b_columns, second, item),
    )
    writes = (issued.matrix(issued.x("rd"), height, b_columns, issued.halves("m_stride_d")[0], out),)
    return Instr("matrix", name, (), reads, writes, matrix_cycles(chip, height, b_columns, depth, dtype))


def _meconv(issued: Issued, chip: Chip) -> Instr:
    name = issued.row.mnemonic
    height, width = issued.halves("conv_FM_in")
    channels, pixel_stride = issued.halves("conv_Depth_in")
    out_height, out_width = issued.halves("conv_FM_out")
    out_channels, out_stride = issued.halves("conv_Depth_out")
    kernel = issued.halves("conv_kernel")[1]
    item, out, dtype = _matrix_types(name)
    depth, pixels = (kernel & 0xFF) * (kernel >> 8) * channels, out_height * out_width
    reads = (
        issued.matrix(issued.x("rs1"), height * width, channels, pixel_stride, item),
        issued.matrix(issued.x("rs2"), depth, out_channels, issued.halves("conv_S_kernel")[0], item),
    )
    writes = (issued.matrix(issued.x("rd"), pixels, out_channels, out_stride, out),)
    return Instr("matrix", name, (), reads, writes, matrix_cycles(chip, pixels, out_channels, depth, dtype))


def _matrix_types(name: str) -> tuple[int, int, str]:
    """(bytes of a source element, bytes of a result, type that decides the rate)."""
    if ".x8" not in name:
        return FP16.item_bytes, FP16.sum_bytes, FP16.dtype
    return DTYPE_BYTES["int8"], DTYPE_BYTES[FP16.dtype if ".hf." in name else "int32"], "int8"


def _metr(issued: Issued, chip: Chip) -> Instr:
    rows, columns = issued.halves("m_shape_s1")
    reads = (issued.matrix(issued.x("rs1"), rows, columns, issued.halves("m_stride_s")[0]),)
    writes = (issued.matrix(issued.x("rd"), columns, rows, issued.halves("m_stride_d")[0]),)
    return Instr("matrix", "metr.m", (), reads, writes, vector_cycles(chip, rows * columns, FP16.dtype))


def _inward(issued: Issued, chip: Chip) -> Instr:
    """The instruction for mov.l1.llb and pld."""
    del chip
    rows, columns = issued.halves("mte_shape")
    there = issued.matrix(issued.x("rs1"), rows, columns, issued.halves("mte_stride_llb")[0])
    here = Region(*issued.place(issued.x("rd")), rows * columns * TRANSFER_UNIT_BYTES)
    return Instr("transfer", issued.row.mnemonic, (), (there,), (here,))


def _outward(issued: Issued, chip: Chip) -> Instr:
    """The instruction for mov.llb.l1."""
    del chip
    rows, columns = issued.halves("mte_shape")
    here = Region(*issued.place(issued.x("rs1")), rows * columns * TRANSFER_UNIT_BYTES)
    there = issued.matrix(issued.x("rd"), rows, columns, issued.halves("mte_stride_llb")[0])
    return Instr("transfer", issued.row.mnemonic, (), (here,), (there,))


def _icmov(issued: Issued, chip: Chip) -> Instr:
    del chip
    size = issued.x("rs2") or ICMOV_ALL_BYTES
    here, there = (Region(*issued.place(issued.x(name)), size) for name in ("rs1", "rd"))
    return Instr("transfer", "icmov", (), (here,), (there,))


_BY_FAMILY: tuple[tuple[str, Callable[[Issued, Chip], Instr]], ...] = (
    ("memul", _memul),
    ("meconv", _meconv),
    ("metr", _metr),
    ("mov.l1.llb", _inward),
    ("pld", _inward),
    ("mov.llb.l1", _outward),
    ("icmov", _icmov),
)
"""Rules by the first letters of a family."""
