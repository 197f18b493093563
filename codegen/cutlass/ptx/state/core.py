"""State to which an instruction is bound when a kernel is decoded: registers, memories and the shape of the batch.

Each register is an array over all threads, viewed in the type that the instruction asks for; they start as poison.
Operands are resolved once: a view of the right type, or a constant of one element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from codegen.cutlass.ptx.state.barriers import CtaBarriers
from codegen.cutlass.ptx.state.global_memory import GlobalMemory
from codegen.cutlass.ptx.state.in_flight import AsyncCopies, MatrixGroups
from codegen.cutlass.ptx.state.mbarriers import MBarriers
from codegen.cutlass.ptx.state.scalars import BYTES, DTYPES, POISON, Array, constant
from codegen.cutlass.ptx.state.shared_memory import SharedMemory
from codegen.cutlass.ptx.text.errors import PtxError, UnsupportedPtx
from codegen.cutlass.ptx.text.module import Immediate, Operand, Register


class PtxRegisters:
    """Registers of a batch. `special` holds registers of the machine (`%tid.x`) as uint32 arrays or constants of one
    element."""

    def __init__(self, declared: Mapping[str, str], threads: int, special: Mapping[str, Array]) -> None:
        self._threads = threads
        self._special = special
        self._arrays: dict[str, Array] = {}
        for name, kind in declared.items():
            size = BYTES.get(kind, 16)
            if kind == "pred":
                self._arrays[name] = np.ones(threads, np.bool_)
            elif size == 16:
                raise UnsupportedPtx("registers of 128 bits are not executed")
            else:
                self._arrays[name] = np.full(threads * size, POISON, np.uint8).view(f"u{size}")

    def clear(self) -> None:
        """Fill everything with poison, for the next batch."""
        for array in self._arrays.values():
            array.view(np.uint8).fill(POISON if array.dtype != np.bool_ else 1)

    def source(self, operand: Operand, kind: str) -> Array:
        """Values of an operand as `kind`, one per thread or one for all. A wider register gives its low part. Raises
        UnsupportedPtx for an operand of another kind."""
        _known(kind)
        match operand:
            case Immediate():
                return constant(operand, kind)
            case Register(name, "sreg"):
                if name not in self._special:
                    raise UnsupportedPtx(f"special register {name} is not known")
                return self._view(
                    self._special[name], "b32", kind
                )  # the array itself: its values change with the batch
            case Register(name, declared, negated):
                if negated:
                    raise UnsupportedPtx("a negated predicate as this operand is not executed")
                return self._view(self._arrays[name], declared, kind)
        raise UnsupportedPtx("an operand of this form is not executed here")

    def predicate(self, operand: Operand) -> tuple[Array, bool]:
        """A predicate and whether it is negated. Raises PtxError for one that is not declared."""
        match operand:
            case Register(name, "pred", negated):
                return self._arrays[name], negated
            case Immediate(value):
                return np.array([value != 0]), False
        raise PtxError("a predicate is needed")

    def target(self, operand: Operand, kind: str) -> Array:
        """The register to be written with values of `kind`; a wider one extends them by their sign. Raises PtxError for
        one that is not declared, UnsupportedPtx for an operand of another kind."""
        _known(kind)
        match operand:
            case Register(name, declared, False) if declared != "sreg":
                array = self._arrays[name]
                if declared == "pred" or kind == "pred":
                    return self._view(array, declared, kind)
                size = BYTES[kind]
                if size == array.itemsize:
                    return array.view(DTYPES[kind])
                if size > array.itemsize:
                    raise PtxError(f"{name} has {array.itemsize} bytes, the instruction gives {size}")
                return array.view(f"{'i' if kind[0] == 's' else 'u'}{array.itemsize}")
        raise UnsupportedPtx("a result of this form is not executed here")

    def _view(self, array: Array, declared: str, kind: str) -> Array:
        if (declared == "pred") != (kind == "pred"):
            raise PtxError(f"a register of type {declared} where {kind} is needed")
        size = BYTES[kind]
        if size > array.itemsize:
            raise PtxError(f"a register of type {declared} is too small for {kind}")
        if size == array.itemsize:
            return array.view(DTYPES[kind])
        return array.view(DTYPES[kind])[:: array.itemsize // size]


def _known(kind: str) -> None:
    if kind not in DTYPES:
        raise UnsupportedPtx(f"type {kind} is not executed here")


WINDOWS: Final = {
    "global": 0,
    "const": 0,
    "shared": 1 << 56,
    "shared::cta": 1 << 56,
    "shared::cluster": 1 << 56,
    "local": 1 << 57,
    "param": 1 << 58,
}
"""Start of each memory in the generic address space."""


@dataclass(frozen=True, slots=True)
class CtaBatch:
    """A batch of CTAs with `threads` threads in total. `symbols` holds the address of each name within its memory."""

    threads: int
    warps_per_cta: int
    registers: PtxRegisters
    memory: GlobalMemory
    shared: SharedMemory
    local: Array
    local_bytes: int
    parameters: Array
    copies: AsyncCopies
    matrix: MatrixGroups
    barriers: CtaBarriers
    mbarriers: MBarriers
    symbols: Mapping[str, int]
    counts: Counter[str] = field(default_factory=Counter)

    def address_of(self, name: str, offset_bytes: int) -> int:
        """The address of a variable or parameter within its own memory. Raises UnsupportedPtx for operands without an
        address."""
        if name not in self.symbols:
            raise UnsupportedPtx(f"the name {name} is not known")
        return self.symbols[name] + offset_bytes & (1 << 64) - 1

    def window(self, space: str) -> int:
        """The generic address at which a memory begins."""
        return WINDOWS[space]
