"""Instructions from operands: one method per form, which fills in addresses, CSRs, regions and cycles together.

    issue.binary("veadd", d, a, b)  -->  Instr(veadd.mm, rd rs1 rs2 shape_s1 stride_d stride_s, reads a b, writes d)

The regions that an instruction reads and writes and the values of its CSRs are derived from the same `MatrixPlace`
objects, so they cannot disagree. Extents and strides beyond the 16-bit fields are cut into several instructions here,
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.neuralscale.emit.memory_map import address_of
from codegen.neuralscale.instructions.arithmetic import TRANSFER_UNIT_BYTES, Arithmetic, conversion_cycles, immediate
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.program import Instr, Region

MAX_EXTENT = 65_535
MAX_STRIDE_BYTES = 65_534


@dataclass(frozen=True, slots=True)
class MatrixPlace:
    """`rows` x `columns` elements in a memory of the core; rows lie `stride_bytes` apart, 0 means densely."""

    memory: str
    offset_bytes: int
    rows: int
    columns: int
    item_bytes: int
    stride_bytes: int = 0

    @property
    def row_bytes(self) -> int:
        return self.columns * self.item_bytes

    @property
    def pitch_bytes(self) -> int:
        return self.stride_bytes or self.row_bytes

    @property
    def dense(self) -> bool:
        return self.rows == 1 or self.pitch_bytes == self.row_bytes

    @property
    def region(self) -> Region:
        if self.dense:
            return Region(self.memory, self.offset_bytes, self.rows * self.row_bytes)
        return Region(self.memory, self.offset_bytes, self.row_bytes, self.rows, self.pitch_bytes)

    @property
    def address(self) -> int:
        return address_of(self.memory, self.offset_bytes)

    @property
    def stride_field(self) -> int:
        """Value of the stride CSR: 0 where rows are dense or there is only one."""
        return 0 if self.dense else self.stride_bytes

    @property
    def in_units(self) -> MatrixPlace:
        """These dense elements, which must be whole 16-bit units, as one row of units."""
        units, rest = divmod(self.rows * self.row_bytes, TRANSFER_UNIT_BYTES)
        assert not rest  # templates cut int8 at even places
        return MatrixPlace(self.memory, self.offset_bytes, 1, units, TRANSFER_UNIT_BYTES)

    def part(self, row: int, rows: int, column: int = 0, columns: int = 0) -> MatrixPlace:
        """The part with `rows` rows from `row` and `columns` columns (0 for all) from `column`."""
        offset = self.offset_bytes + row * self.pitch_bytes + column * self.item_bytes
        return MatrixPlace(self.memory, offset, rows, columns or self.columns, self.item_bytes, self.pitch_bytes)

    def reshaped(self, rows: int, columns: int) -> MatrixPlace:
        """These dense elements as a matrix of another shape; rows of -1 means as many as there are."""
        assert self.dense  # a gap between rows cannot be seen in another shape
        if rows < 0:
            rows = self.rows * self.columns // columns
        return replace(self, rows=rows, columns=columns, stride_bytes=0)


@dataclass(frozen=True, slots=True)
class Convolution:
    """The shape of one `meconv`: image and output in pixels, padding as (top, bottom, left, right)."""

    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel: tuple[int, int]
    stride: int
    dilation: int
    padding: tuple[int, int, int, int]

    @property
    def reduction(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.channels


@dataclass(frozen=True, slots=True)
class InstructionBuilder:
    """A builder of instructions of one layer (`source`) for one chip, on elements of one arithmetic."""

    chip: Chip
    source: str
    arithmetic: Arithmetic

    def binary(self, op: str, d: MatrixPlace, a: MatrixPlace, b: MatrixPlace) -> Iterator[Instr]:
        """`op`.mm: element-wise over two matrices of the shape of `d`."""
        for dd, aa, bb in _cut((d, a, b)):
            yield self._vector(f"{op}.mm", dd, aa, (("rs2", bb.address),), (bb.region,), bb.stride_field)

    def unary(self, op: str, d: MatrixPlace, a: MatrixPlace) -> Iterator[Instr]:
        """`op` element by element: veexp.m, vesqrt.m, verecip.m, mov.m."""
        for dd, aa in _cut((d, a)):
            yield self._vector(op, dd, aa)

    def lookup(self, d: MatrixPlace, a: MatrixPlace, table: MatrixPlace) -> Iterator[Instr]:
        """velut.m: the entry of `table`, which has 65,536, at the index that each 16-bit element of `a` holds."""
        for dd, aa in _cut((d, a)):
            instr = self._vector("velut.m", dd, aa, (("rs2", table.address),), (table.region,))
            yield replace(instr, cycles=self.arithmetic.lookup_cycles(self.chip, dd.rows * dd.columns))

    def scalar(self, op: str, d: MatrixPlace, a: MatrixPlace, value: float) -> Iterator[Instr]:
        """`op`.mf: a matrix and one scalar."""
        for dd, aa in _cut((d, a)):
            yield self._vector(f"{op}.mf", dd, aa, (("fs2", immediate(value)),))

    def rescale(self, d: MatrixPlace, sums: MatrixPlace, scales: MatrixPlace) -> Iterator[Instr]:
        """veemul.x32.mv: d = integer sums times a number per column; `scales` is a dense vector.

        The chip checks the range of the vector as if it had an element per row: rows are cut where that would leave the
        memory."""
        size_bytes = self.chip.memory(scales.memory).size_bytes
        for whole, part, column in _cut_rows_and_columns(d, sums):
            vector = scales.part(0, 1, column, whole.columns)
            most = max(1, (size_bytes - vector.offset_bytes) // vector.item_bytes)
            for row in range(0, whole.rows, most):
                dd, aa = (m.part(row, min(most, whole.rows - row)) for m in (whole, part))
                instr = self._vector("veemul.x32.mv", dd, aa, (("rs2", vector.address),), (vector.region,))
                yield replace(instr, cycles=self.arithmetic.scaling_cycles(self.chip, dd.rows * dd.columns))

    def widen(self, d: MatrixPlace, a: MatrixPlace) -> Iterator[Instr]:
        """vecvt.hf.x8.m: int8 elements as fp16."""
        for dd, aa in _cut((d, a)):
            yield self._conversion("vecvt.hf.x8.m", dd, aa)

    def narrow(self, d: MatrixPlace, a: MatrixPlace) -> Iterator[Instr]:
        """vecvt.x8.hf.m: fp16 elements as int8, truncated toward zero and saturated.

        The chip checks the range of a last row of a destination with a pitch as if its elements were fp16: near the end
        of the memory that row goes alone."""
        for dd, aa in _cut((d, a)):
            size_bytes = self.chip.memory(dd.memory).size_bytes
            reach = dd.offset_bytes + (dd.rows - 1) * dd.pitch_bytes + dd.columns * aa.item_bytes
            if dd.dense or reach <= size_bytes:
                yield self._conversion("vecvt.x8.hf.m", dd, aa)
                continue
            for row, rows in ((0, dd.rows - 1), (dd.rows - 1, 1)):
                yield self._conversion("vecvt.x8.hf.m", dd.part(row, rows), aa.part(row, rows))

    def _conversion(self, opcode: str, d: MatrixPlace, a: MatrixPlace) -> Instr:
        return replace(self._vector(opcode, d, a), cycles=conversion_cycles(self.chip, d.rows * d.columns))

    def fill(self, d: MatrixPlace, value: float) -> Iterator[Instr]:
        """mov.f: every element of `d` becomes `value`."""
        for (dd,) in _cut((d,)):
            operands = (("rd", dd.address), ("fs1", immediate(value)), *self._shape(dd), ("stride_d", dd.stride_field))
            yield Instr("vector", "mov.f", operands, (), (dd.region,), self._passes(dd), self.source)

    def by_column(self, op: str, d: MatrixPlace, a: MatrixPlace, vector: MatrixPlace) -> Iterator[Instr]:
        """`op`.mv dim_h: a vector with one element per column, applied to every row."""
        for dd, aa, column in _cut_rows_and_columns(d, a):
            part = vector.part(0, 1, column, dd.columns)
            yield self._vector(f"{op}.mv.dim_h", dd, aa, (("rs2", part.address),), (part.region,))

    def by_row(self, op: str, d: MatrixPlace, a: MatrixPlace, vector: MatrixPlace) -> Iterator[Instr]:
        """`op`.mv dim_w: a dense vector with one element per row, applied to every column."""
        row = 0
        for dd, aa, column in _cut_rows_and_columns(d, a):
            part = vector.part(0, 1, row, dd.rows)
            yield self._vector(f"{op}.mv.dim_w", dd, aa, (("rs2", part.address),), (part.region,))
            row = row if column + dd.columns < d.columns else row + dd.rows

    def reduce_rows(self, op: str, d: MatrixPlace, a: MatrixPlace) -> Iterator[Instr]:
        """`op`.m dim_w: one result per row of `a`; `d` is a column, its stride is `stride_d`. For `veemacc` the result
        is the sum of the row's squares: `a` is both operands."""
        for row in range(0, a.rows, MAX_EXTENT):
            rows = min(MAX_EXTENT, a.rows - row)
            dd, aa = d.part(row, rows), a.part(row, rows)
            yield self._reduction(op, "dim_w", dd, aa, dd.stride_field)

    def reduce_columns(self, op: str, d: MatrixPlace, a: MatrixPlace) -> Iterator[Instr]:
        """`op`.m dim_h: one result per column of `a`, with operands as in `reduce_rows`; `d` is a dense row."""
        for column in range(0, a.columns, MAX_EXTENT):
            columns = min(MAX_EXTENT, a.columns - column)
            dd, aa = d.part(0, 1, column, columns), a.part(0, a.rows, column, columns)
            yield self._reduction(op, "dim_h", dd, aa, 0)

    def _reduction(self, op: str, direction: str, d: MatrixPlace, a: MatrixPlace, stride_d: int) -> Instr:
        squares = op == "veemacc"
        second = (("rs2", a.address),) if squares else ()
        stride_s = self._pair(a.stride_field if squares else 0, a.stride_field)
        strides = (("stride_d", stride_d), ("stride_s", stride_s))
        operands = (("rd", d.address), ("rs1", a.address), *second, *self._shape(a), *strides)
        opcode = f"{op}.{'mm' if squares else 'm'}.{direction}"
        reads = (a.region, a.region) if squares else (a.region,)
        return Instr("vector", opcode, operands, reads, (d.region,), self._passes(a), self.source)

    def memul(
        self, d: MatrixPlace, a: MatrixPlace, b: MatrixPlace, *, turned: bool = False, factor: float | None = None
    ) -> Instr:
        """d = a b; `d` in IM, `b` in L1. With `turned`, `a` is stored transposed: a column for each row of d (fp16
        only). Sums of int8 are multiplied by a `factor` where there is one, else left as they are."""
        operands = (
            ("rd", d.address),
            ("rs1", a.address),
            ("rs2", b.address),
            ("m_shape_s1", self._pair(a.columns, a.rows)),
            ("m_shape_s2", self._pair(b.columns, b.rows)),
            ("m_stride_d", d.stride_field),
            ("m_stride_s", self._pair(b.stride_field, a.stride_field)),
            *(() if factor is None else (("m_dequant_coeff", immediate(factor)),)),
        )
        cycles = self.arithmetic.matrix_cycles(self.chip, d.rows, b.columns, b.rows)
        opcode = "memul.ts.mm" if turned else f"memul{self._product_form}"
        return Instr("matrix", opcode, operands, (a.region, b.region), (d.region,), cycles, self.source)

    def transpose(self, d: MatrixPlace, a: MatrixPlace) -> Instr:
        """d = a transposed; `d` in IM."""
        operands = (
            ("rd", d.address),
            ("rs1", a.address),
            ("m_shape_s1", self._pair(a.columns, a.rows)),
            ("m_stride_d", d.stride_field),
            ("m_stride_s", a.stride_field),
        )
        cycles = self._passes(a)
        return Instr("matrix", "metr.m", operands, (a.region,), (d.region,), cycles, self.source)

    def meconv(
        self,
        shape: Convolution,
        d: MatrixPlace,
        image: MatrixPlace,
        weights: MatrixPlace,
        factor: float | None = None,
    ) -> Instr:
        """meconv of one image: `image` has a row per pixel, `weights` one per (kh, kw, channel), `d` one per output
        pixel. `factor` as for `memul`."""
        top, bottom, left, right = shape.padding
        operands = (
            ("rd", d.address),
            ("rs1", image.address),
            ("rs2", weights.address),
            ("conv_FM_in", self._pair(shape.width, shape.height)),
            ("conv_Depth_in", self._pair(image.stride_field, shape.channels)),
            ("conv_FM_out", self._pair(shape.out_width, shape.out_height)),
            ("conv_Depth_out", self._pair(d.stride_field, shape.out_channels)),
            ("conv_S_kernel", weights.stride_field),
            ("conv_kernel", shape.kernel[1] << 24 | shape.kernel[0] << 16 | shape.dilation << 8 | shape.stride),
            ("conv_padding", top << 24 | bottom << 16 | left << 8 | right),
            *(() if factor is None else (("conv_dequant_coeff", immediate(factor)),)),
        )
        pixels = shape.out_height * shape.out_width
        cycles = self.arithmetic.matrix_cycles(self.chip, pixels, shape.out_channels, shape.reduction)
        opcode = f"meconv{self._product_form}"
        return Instr("matrix", opcode, operands, (image.region, weights.region), (d.region,), cycles, self.source)

    @property
    def _product_form(self) -> str:
        """The last part of the name of a product: of fp16, of int8 into int32, of int8 times a number into fp16."""
        if not self.arithmetic.exact:
            return ".mm"
        return ".x8.mm" if self.arithmetic.scaled else ".hf.x8.mm"

    def _vector(
        self,
        opcode: str,
        d: MatrixPlace,
        a: MatrixPlace,
        extra: tuple[tuple[str, int], ...] = (),
        reads: tuple[Region, ...] = (),
        second_stride: int = 0,
    ) -> Instr:
        strides = (("stride_d", d.stride_field), ("stride_s", self._pair(second_stride, a.stride_field)))
        operands = (("rd", d.address), ("rs1", a.address), *extra, *self._shape(d), *strides)
        return Instr("vector", opcode, operands, (a.region, *reads), (d.region,), self._passes(d), self.source)

    def _shape(self, matrix: MatrixPlace) -> tuple[tuple[str, int]]:
        return (("shape_s1", self._pair(matrix.columns, matrix.rows)),)

    def _pair(self, high: int, low: int) -> int:
        """Two 16-bit fields of a CSR. Raises TargetError where one is too wide and the template did not cut it."""
        if max(high, low) > MAX_EXTENT:
            raise TargetError(self.source, needs=f"extents and strides up to {MAX_EXTENT}", has=str(max(high, low)))
        return high << 16 | low

    def _passes(self, matrix: MatrixPlace) -> float:
        return self.arithmetic.vector_cycles(self.chip, matrix.rows * matrix.columns)


def _cut(matrices: tuple[MatrixPlace, ...]) -> Iterator[tuple[MatrixPlace, ...]]:
    """Matching pieces of matrices of one shape, each within the fields of an instruction."""
    first = matrices[0]
    if all(m.dense for m in matrices) and (first.rows > MAX_EXTENT or first.columns > MAX_EXTENT):
        total = first.rows * first.columns
        width = 1 << 14
        flat = tuple(m.reshaped(1, total) for m in matrices)
        for start in range(0, total - total % width, width * MAX_EXTENT):
            rows = min(MAX_EXTENT, (total - start) // width)
            yield tuple(m.part(0, 1, start, rows * width).reshaped(rows, width) for m in flat)
        if total % width:
            yield tuple(m.part(0, 1, total - total % width, total % width) for m in flat)
        return
    for row, rows, column, columns in _pieces(first, matrices):
        yield tuple(m.part(row, rows, column, columns) for m in matrices)


def _cut_rows_and_columns(d: MatrixPlace, a: MatrixPlace) -> Iterator[tuple[MatrixPlace, MatrixPlace, int]]:
    for row, rows, column, columns in _pieces(d, (d, a)):
        yield d.part(row, rows, column, columns), a.part(row, rows, column, columns), column


def _pieces(shape: MatrixPlace, matrices: tuple[MatrixPlace, ...]) -> Iterator[tuple[int, int, int, int]]:
    """(row, rows, column, columns) of pieces whose extents and strides fit 16-bit fields."""
    wide = shape.columns > MAX_EXTENT
    far = shape.rows > 1 and any((not m.dense or wide) and m.pitch_bytes > MAX_STRIDE_BYTES for m in matrices)
    for row in range(0, shape.rows, 1 if far else MAX_EXTENT):
        rows = 1 if far else min(MAX_EXTENT, shape.rows - row)
        for column in range(0, shape.columns, MAX_EXTENT):
            yield row, rows, column, min(MAX_EXTENT, shape.columns - column)
