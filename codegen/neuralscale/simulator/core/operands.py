"""Operands of NPU instructions: their places, the checks that they are legal, and their bytes as numpy views.

The checks are the chip's, each with its trap cause; instructions call them in the chip's order, because the first one
that fails decides mcause and mtval. With shadow bytes, reading a view first checks that every byte was written and is
not in flight, and storing to one marks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.simulator.arithmetic import vme
from codegen.neuralscale.simulator.core.hart import MASK, VTYPE_ILLEGAL, Hart
from codegen.neuralscale.simulator.memory import shadow
from codegen.neuralscale.simulator.memory.faults import SimulationFault, Trap
from codegen.neuralscale.simulator.memory.memory import IM_BASE, IM_BYTES, L1_BASE, L1_BYTES, SimulatedMemory
from codegen.neuralscale.simulator.memory.transfer import complaint

BAD_VTYPE: Final = 0x29
MISALIGNED_BASE: Final = 0x32
BAD_SHAPE: Final = 0x33
BAD_STRIDE: Final = 0x34
BAD_ACCESS: Final = 0x35

Dtype = type[np.generic] | None

L1_ONLY, IM_ONLY, LOCAL = ("L1",), ("IM",), ("L1", "IM")


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """A matrix of `rows` rows of `columns` elements of `item` bytes at `address`; rows are `stride` bytes apart, 0 =
    dense."""

    address: int
    rows: int
    columns: int
    item: int = 2
    stride: int = 0

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        return self.stride or self.columns * self.item

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.columns * self.item

    @property
    def end(self) -> int:
        """Address after the last byte."""
        return self.address + self.pitch * (self.rows - 1) + self.row_bytes


def _same_place(target: MatrixOperand, source: MatrixOperand) -> bool:
    same = (target.address, target.item, target.rows, target.columns)
    return same == (source.address, source.item, source.rows, source.columns) and (
        target.rows == 1 or target.pitch == source.pitch
    )


def _share_a_byte(a: MatrixOperand, b: MatrixOperand) -> bool:
    base = min(a.address, b.address)
    touched = np.zeros(max(a.end, b.end) - base, np.bool_)

    def box(matrix: MatrixOperand) -> NDArray[np.bool_]:
        shape, offset = (matrix.rows, matrix.row_bytes), matrix.address - base
        return np.ndarray(shape, np.bool_, buffer=touched, offset=offset, strides=(matrix.pitch, 1))

    box(a)[...] = True
    return bool(box(b).any())


def _disturbs(target: MatrixOperand, source: MatrixOperand) -> bool:
    """Whether storing elements in order changes elements of the source that are read later."""
    if target.end <= source.address or source.end <= target.address or _same_place(target, source):
        return False
    return _share_a_byte(target, source)


def in_l1(address: int) -> bool:
    """Whether the address is in L1 by the chip's test, which the address one past the end passes, too."""
    return L1_BASE <= address <= L1_BASE + L1_BYTES


def in_im(address: int) -> bool:
    """Whether the address is in IM by the chip's test, which the address one past the end passes, too."""
    return IM_BASE <= address <= IM_BASE + IM_BYTES


def check_vtype(hart: Hart) -> None:
    """Check vtype: every NPU and vector instruction traps while it is illegal. Raises Trap."""
    if hart.vtype & VTYPE_ILLEGAL:
        raise Trap(BAD_VTYPE)


def check_base(*matrices: MatrixOperand) -> None:
    """Check that the base of each operand is a multiple of its element size. Raises Trap."""
    for matrix in matrices:
        if matrix.address & (matrix.item - 1):
            raise Trap(MISALIGNED_BASE, matrix.address)


def check_shape(*extents: int) -> None:
    """Check that no extent is zero. Raises Trap."""
    if 0 in extents:
        raise Trap(BAD_SHAPE)


def check_source_stride(matrix: MatrixOperand) -> None:
    """Check that a source stride is a multiple of the element size; it may be less than a row. Raises Trap."""
    if matrix.stride & (matrix.item - 1):
        raise Trap(BAD_STRIDE, matrix.address)


def check_target_stride(matrix: MatrixOperand) -> None:
    """Check that a destination stride is a multiple of the element size and not less than a row. Raises Trap."""
    if matrix.stride and (matrix.stride & (matrix.item - 1) or matrix.stride < matrix.row_bytes):
        raise Trap(BAD_STRIDE, matrix.address)


def check_access(matrix: MatrixOperand, where: tuple[str, ...] = LOCAL, *, size_bytes: int | None = None) -> None:
    """Check that the whole extent lies in one of the allowed memories. Raises Trap."""
    if size_bytes is None:
        size_bytes = matrix.pitch * (matrix.rows - 1) + matrix.row_bytes
    size_bytes = (size_bytes + 0x8000_0000 & MASK) - 0x8000_0000  # the chip's model computes in 32 bits
    last = matrix.address + size_bytes - 1
    for memory, holds in (("L1", in_l1), ("IM", in_im)):
        if memory in where and holds(matrix.address) and holds(last):
            return
    raise Trap(BAD_ACCESS, matrix.address)


_TYPES: Final = {1: np.uint8, 2: np.uint16, 4: np.int32}


class Operands:
    """Views of one core's operands."""

    def __init__(self, memory: SimulatedMemory, hart: Hart) -> None:
        self._memory = memory
        self._core = hart.index
        self._shadow = memory.shadow
        self._arena = memory.arena()
        self._l1 = memory.offset(hart.index, L1_BASE)
        self._im = memory.offset(hart.index, IM_BASE)

    def offset(self, address: int) -> int:
        """Arena offset; the address one past L1 is inside its guard bytes."""
        if in_l1(address):
            return self._l1 + address - L1_BASE
        if in_im(address):
            return self._im + address - IM_BASE
        return self._memory.offset(self._core, address)

    def view(self, matrix: MatrixOperand, dtype: Dtype = None) -> NDArray[Any]:
        """An array [rows, columns] over the memory itself."""
        strides = (matrix.pitch, matrix.item)
        kind = dtype or _TYPES[matrix.item]
        shape = (matrix.rows, matrix.columns)
        return np.ndarray(shape, kind, buffer=self._memory.bytes, offset=self.offset(matrix.address), strides=strides)

    def read(self, matrix: MatrixOperand, dtype: Dtype = None) -> NDArray[Any]:
        """A view for reading, after the check of its bytes."""
        self.check(matrix)
        return self.view(matrix, dtype)

    def check(self, matrix: MatrixOperand) -> None:
        """Raises `SimulationFault` unless every byte is written and at rest; nothing to do without shadow bytes."""
        if not self._memory.tracked:
            return
        rows, length = matrix.rows, matrix.row_bytes
        if matrix.pitch <= length:
            rows, length = 1, matrix.pitch * (rows - 1) + length
        start = self.offset(matrix.address)
        at = shadow.scan(self._shadow, start, rows, length, matrix.pitch, shadow.READ_MASK, shadow.WRITTEN)
        if at >= 0:
            raise complaint(self._memory, self._arena, at, "reads")

    def write(self, matrix: MatrixOperand, values: NDArray[Any] | np.generic, *sources: MatrixOperand) -> None:
        """Store [rows, columns] values, or values that broadcast to them, computed from `sources`."""
        if self._memory.tracked:
            self._check_apart(matrix, sources)
            start = self.offset(matrix.address)
            box = (self._shadow, start, matrix.rows, matrix.row_bytes, matrix.pitch)
            at = shadow.scan(*box, shadow.WRITE_MASK, shadow.NOTHING)
            if at >= 0:
                raise complaint(self._memory, self._arena, at, "writes")
            shadow.mark(*box, shadow.NOTHING, shadow.WRITTEN)
        target = self.view(matrix)
        target[...] = values.view(target.dtype) if isinstance(values, np.ndarray) else values

    def fill(
        self, target: MatrixOperand, compute: Callable[..., NDArray[Any]], *sources: MatrixOperand, dtype: Dtype = None
    ) -> None:
        """Store `compute` of the sources, which broadcast to the target, element by element.

        Where a source overlaps the target other than in place, an element that is stored may be read again later. The
        order is row by row, with one vector element for each row column by column.
        """
        views = [self.read(source, dtype) for source in sources]
        if self._memory.tracked or not any(_disturbs(target, source) for source in sources):
            self.write(target, compute(*views), *sources)
            return
        out = self.view(target)
        wide = [np.broadcast_to(view, out.shape) for view in views]
        places = np.arange(out.size).reshape(out.shape)
        by_columns = any(source.columns < target.columns for source in sources)
        for place in (places.T if by_columns else places).flat:
            row, column = divmod(int(place), target.columns)
            element = np.s_[row : row + 1, column : column + 1]
            out[element] = compute(*(view[element] for view in wide)).view(out.dtype)

    def _check_apart(self, target: MatrixOperand, sources: tuple[MatrixOperand, ...]) -> None:
        """Check the overlap of target and sources: results may replace a source element by element, and any other
        overlap depends on the order of the hardware."""
        for source in sources:
            if _disturbs(target, source):
                raise SimulationFault(
                    "overlap",
                    f"its destination {target.address:#x}..{target.end:#x} overlaps its source "
                    f"{source.address:#x}..{source.end:#x} other than element by element",
                )

    def lookup(self, address: int, indices: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """fp16 values at `address` + 2 * index; only the entries that are used must have been written."""
        start = self.offset(address)
        places = start + 2 * indices.astype(np.int64)
        if self._memory.tracked:
            for place in np.unique(places):
                at = shadow.scan(self._shadow, place, 1, 2, 2, shadow.READ_MASK, shadow.WRITTEN)
                if at >= 0:
                    raise complaint(self._memory, self._arena, at, "reads the table entry at")
        table = np.ndarray((int(indices.max()) + 1,), np.uint16, buffer=self._memory.bytes, offset=start)
        return vme.lookup(indices, table)
