"""Addresses of a kernel's names: shared and local variables one after the other, parameters, variables of the
module; and the granularity of its accesses to shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from codegen.cutlass.ptx.state.global_memory import GlobalMemory
from codegen.cutlass.ptx.state.scalars import BYTES, Array
from codegen.cutlass.ptx.state.shared_memory import SHARED_BASE
from codegen.cutlass.ptx.text.errors import PtxError, PtxLimits
from codegen.cutlass.ptx.text.module import Immediate, Module, PtxInstruction, PtxKernel, Variable

LARGEST_CELL = 16
OBJECT_BYTES = 8
"""Bytes of an mbarrier object."""


@dataclass(frozen=True, slots=True)
class SymbolLayout:
    """Addresses of a kernel. `symbols` holds the address of each name in its own memory; sizes are per CTA or per
    thread."""

    symbols: Mapping[str, int]
    shared_bytes: int
    dynamic_bytes: int
    local_bytes: int


def layout_of(
    module: Module, kernel: PtxKernel, memory: GlobalMemory, dynamic_bytes: int, limits: PtxLimits
) -> SymbolLayout:
    """The layout of a kernel; dynamic shared memory comes after the static one. Raises PtxError where something is too
    large."""
    symbols = {parameter.name: parameter.offset_bytes for parameter in kernel.parameters}
    used = _names(kernel)
    shared = [v for v in (*module.variables, *kernel.variables) if v.space == "shared"]
    static, placed = _place((v for v in shared if v.size_bytes is not None), 0)
    symbols |= {name: SHARED_BASE + offset for name, offset in placed.items()}
    alignment = max((v.alignment_bytes for v in shared if v.size_bytes is None), default=16)
    start = -(-static // max(alignment, 16)) * max(alignment, 16)
    symbols |= {v.name: SHARED_BASE + start for v in shared if v.size_bytes is None}
    total = start + dynamic_bytes if dynamic_bytes else static
    if dynamic_bytes < 0 or total > limits.max_shared_bytes:
        raise PtxError(f"needs {total} bytes of shared memory, has {limits.max_shared_bytes}", kernel=kernel.name)
    local, offsets = _place((v for v in kernel.variables if v.space == "local"), 0)
    symbols |= offsets
    if local > limits.max_local_bytes:
        raise PtxError(
            f"needs {local} bytes of local memory per thread, has {limits.max_local_bytes}", kernel=kernel.name
        )
    for variable in module.variables:
        if variable.space in ("global", "const") and variable.name in used and variable.size_bytes is not None:
            symbols[variable.name] = memory.variable(module, variable.name, _initial(variable))
    return SymbolLayout(symbols, total, dynamic_bytes, local)


class _initial:
    """A function that makes the first contents of a variable: its data, then zeros."""

    def __init__(self, variable: Variable) -> None:
        self._variable = variable

    def __call__(self) -> Array:
        data = np.zeros(self._variable.size_bytes or 0, np.uint8)
        data[: len(self._variable.data)] = np.frombuffer(self._variable.data, np.uint8)
        return data


def _names(kernel: PtxKernel) -> frozenset[str]:
    """Names of variables that the kernel's instructions may refer to."""
    found = set()
    for item in kernel.body:
        for operand in getattr(item, "operands", ()):
            base = getattr(operand, "base", operand)
            name = getattr(base, "name", None)
            if isinstance(name, str):
                found.add(name)
    return frozenset(found)


def _place(variables: Iterable[Variable], start: int) -> tuple[int, dict[str, int]]:
    """Place variables one after the other, each aligned; return the end, and the start of each."""
    end, placed = start, {}
    for variable in variables:
        end = -(-end // variable.alignment_bytes) * variable.alignment_bytes
        placed[variable.name] = end
        end += variable.size_bytes or 0
    return end, placed


def cell_bytes(kernel: PtxKernel) -> int:
    """Bytes of a cell of shared memory, in which races are detected: 1 to 16, so that every access of the kernel covers
    whole cells."""
    widths = [_width(item) for item in kernel.body if isinstance(item, PtxInstruction)]
    return min([LARGEST_CELL, *(width for width in widths if width)])


def _width(instruction: PtxInstruction) -> int:
    """Bytes of shared memory of one access by the instruction; 0 where there is none."""
    parts = instruction.parts
    if parts[0] == "cp" and "shared" in {part.removesuffix("::cta") for part in parts}:
        size = instruction.operands[2] if len(instruction.operands) > 2 else None
        return size.value if isinstance(size, Immediate) and size.value in (4, 8, 16) else 0
    if parts[0] == "mbarrier":
        return OBJECT_BYTES
    if parts[0] not in ("ld", "ldu", "st"):
        return 0
    spaces = {part.removesuffix("::cta") for part in parts} & {"global", "shared", "local", "param", "const"}
    if spaces and "shared" not in spaces:
        return 0
    count = next((int(part[1]) for part in parts if part in ("v2", "v4")), 1)
    return BYTES.get(parts[-1], 1) * count
