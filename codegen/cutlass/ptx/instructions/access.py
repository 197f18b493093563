"""Loads and stores: to global, shared, local and parameter memory, by name or by generic address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.scalars import BYTES, DTYPES, Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault, UnsupportedPtx
from codegen.cutlass.ptx.text.module import (
    AddressOperand,
    Immediate,
    Operand,
    PtxInstruction,
    Register,
    SymbolOperand,
    Vector,
)

Load: TypeAlias = "Callable[[CtaBatch, Array, Array, np.dtype[Any], int], Array]"
Store: TypeAlias = "Callable[[CtaBatch, Array, Array, Array], None]"


def take(values: Array, active: Active) -> Array:
    """A source of the active threads: one value per thread, or a constant for all."""
    if values.size == 1:
        return np.broadcast_to(values, active.lanes.size)
    return active.pick(values)


def addresses_of(operand: Operand, core: CtaBatch) -> Array:
    """The addresses of `[...]` as uint64: one per thread, or one for all. Raises UnsupportedPtx for an address of
    another form."""
    match operand:
        case AddressOperand(Register() as base, 0):
            return core.registers.source(base, "u64" if _is_wide(base) else "u32")
        case AddressOperand(SymbolOperand(name), offset):
            return np.array([core.address_of(name, offset)], np.uint64)
        case AddressOperand(Immediate(value), offset):
            return np.array([value + offset & (1 << 64) - 1], np.uint64)
    raise UnsupportedPtx("an address of this form is not executed")


def _is_wide(base: Register) -> bool:
    return base.type.endswith("64")


def bound_addresses(operand: Operand, core: CtaBatch) -> Callable[[Active], Array]:
    """A function of the active threads that gives the addresses as `addresses_of` does, with offsets added."""
    if isinstance(operand, AddressOperand) and isinstance(operand.base, Register) and operand.offset_bytes:
        wide = _is_wide(operand.base)
        base = core.registers.source(operand.base, "u64" if wide else "u32")
        bits = 64 if wide else 32
        offset = base.dtype.type(operand.offset_bytes & (1 << bits) - 1)
        return lambda active: active.pick(base) + offset
    fixed = addresses_of(operand, core)
    return lambda active: take(fixed, active)


# --- one memory each: (n,) addresses and threads to and from (n, count) elements


def _load_global(core: CtaBatch, addresses: Array, lanes: Array, dtype: np.dtype[Any], count: int) -> Array:
    del lanes
    return core.memory.gather(addresses.astype(np.uint64, copy=False), dtype, count)


def _store_global(core: CtaBatch, addresses: Array, lanes: Array, rows: Array) -> None:
    del lanes
    core.memory.scatter(addresses.astype(np.uint64, copy=False), rows)


def _load_shared(core: CtaBatch, addresses: Array, lanes: Array, dtype: np.dtype[Any], count: int) -> Array:
    return core.shared.gather_lanes(addresses, lanes, dtype, count)


def _store_shared(core: CtaBatch, addresses: Array, lanes: Array, rows: Array) -> None:
    core.shared.scatter_lanes(addresses, lanes, rows)


def _checked(addresses: Array, size: int, width: int, what: str) -> Array:
    offsets = addresses.astype(np.int64)
    bad = (offsets < 0) | (offsets > size - width)
    if bad.any():
        raise KernelFault(
            FaultKind.OUT_OF_BOUNDS, f"{width} bytes at offset {int(offsets[bad][0])} of {size} bytes of {what}"
        )
    if (offsets & width - 1).any():
        raise KernelFault(
            FaultKind.MISALIGNED, f"{width} bytes at offset {int(offsets[(offsets & width - 1) != 0][0])} of {what}"
        )
    return offsets


def _load_local(core: CtaBatch, addresses: Array, lanes: Array, dtype: np.dtype[Any], count: int) -> Array:
    width = dtype.itemsize * count
    offsets = _checked(addresses, core.local_bytes, width, "a thread's local memory") + lanes * core.local.shape[1]
    rows: Array = core.local.reshape(-1).view(dtype).reshape(-1, count)[offsets // width]
    return rows


def _store_local(core: CtaBatch, addresses: Array, lanes: Array, rows: Array) -> None:
    width = rows.dtype.itemsize * rows.shape[1]
    offsets = _checked(addresses, core.local_bytes, width, "a thread's local memory") + lanes * core.local.shape[1]
    core.local.reshape(-1).view(rows.dtype).reshape(-1, rows.shape[1])[offsets // width] = rows


def _load_parameter(core: CtaBatch, addresses: Array, lanes: Array, dtype: np.dtype[Any], count: int) -> Array:
    if addresses.size > 1 and (addresses == addresses[0]).all():  # usually they are all equal
        return np.broadcast_to(_load_parameter(core, addresses[:1], lanes, dtype, count), (addresses.size, count))
    width = dtype.itemsize * count
    size = core.parameters.size
    offsets = _checked(addresses, size, width, "parameters")
    padded = np.zeros(-(-size // width) * width, np.uint8)
    padded[:size] = core.parameters
    rows: Array = padded.view(dtype).reshape(-1, count)[offsets // width]
    return rows


LOADS: Final[dict[str, Load]] = {
    "global": _load_global,
    "const": _load_global,
    "shared": _load_shared,
    "local": _load_local,
    "param": _load_parameter,
}
STORES: Final[dict[str, Store]] = {"global": _store_global, "shared": _store_shared, "local": _store_local}
GENERIC: Final = ((0, "global"), (1 << 56, "shared"), (1 << 57, "local"), (1 << 58, "param"))


def _spaces(addresses: Array) -> list[tuple[str, int, Array]]:
    """Generic addresses by memory: the name of the memory, its start, and which addresses lie there."""
    top = addresses >> np.uint64(56)
    found = []
    for base, name in GENERIC:
        chosen = np.flatnonzero(top == np.uint64(base >> 56))
        if chosen.size:
            found.append((name, base, chosen))
    if sum(chosen.size for _, _, chosen in found) != addresses.size:
        wild = int(addresses[~np.isin(top, [base >> 56 for base, _ in GENERIC])][0])
        raise KernelFault(FaultKind.OUT_OF_BOUNDS, f"address {wild:#x} is outside of all memories")
    return found


def _load_generic(core: CtaBatch, addresses: Array, lanes: Array, dtype: np.dtype[Any], count: int) -> Array:
    rows = np.empty((addresses.size, count), dtype)
    for name, base, chosen in _spaces(addresses):
        rows[chosen] = LOADS[name](core, addresses[chosen] - np.uint64(base), lanes[chosen], dtype, count)
    return rows


def _store_generic(core: CtaBatch, addresses: Array, lanes: Array, rows: Array) -> None:
    for name, base, chosen in _spaces(addresses):
        if name not in STORES:
            raise KernelFault(FaultKind.OUT_OF_BOUNDS, f"a store to {name} memory")
        STORES[name](core, addresses[chosen] - np.uint64(base), lanes[chosen], rows[chosen])


# --- instructions


def _shape(instruction: PtxInstruction, form: OpcodeForm) -> tuple[str, str, int]:
    """(memory, element type, number of elements); an empty memory is generic."""
    spaces = [word.removesuffix("::cta") for word in form.modifiers if word.removesuffix("::cta") in (*LOADS, "const")]
    counts = [int(word[1]) for word in form.modifiers if word in ("v2", "v4")]
    need(len(form.types) == 1 and form.types[0] != "pred" and len(spaces) < 2 and len(counts) < 2, instruction)
    return spaces[0] if spaces else "", form.types[0], counts[0] if counts else 1


def _registers(operand: Operand, count: int, instruction: PtxInstruction) -> tuple[Operand, ...]:
    items: tuple[Operand, ...] = operand.items if isinstance(operand, Vector) else (operand,)
    need(len(items) == count, instruction)
    return items


def _ld(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    space, kind, count = _shape(instruction, form)
    need(len(instruction.operands) in (2, 3), instruction)
    raw = kind if kind[0] == "s" else f"b{8 * BYTES[kind]}"
    dtype = DTYPES[raw]
    items = _registers(instruction.operands[0], count, instruction)
    targets = [(k, core.registers.target(item, raw)) for k, item in enumerate(items) if item is not None]
    where = bound_addresses(instruction.operands[1], core)
    load = LOADS.get(space, _load_generic)
    if (
        space == "param"
        and isinstance(instruction.operands[1], AddressOperand)
        and isinstance(instruction.operands[1].base, SymbolOperand)
    ):
        return _constant(addresses_of(instruction.operands[1], core), dtype, count, targets, core)

    def step(active: Active) -> None:
        rows = load(core, where(active), active.lanes, dtype, count)
        for k, target in targets:
            active.put(target, rows[:, k])

    return step


def _constant(
    address: Array, dtype: np.dtype[Any], count: int, targets: list[tuple[int, Array]], core: CtaBatch
) -> Step:
    """A parameter at a constant offset, which is the same for all threads."""
    row = _load_parameter(core, address, address, dtype, count)[0]

    def step(active: Active) -> None:
        for k, target in targets:
            np.copyto(target, row[k], casting="unsafe", where=True if active.whole else active.mask)

    return step


def _st(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    space, kind, count = _shape(instruction, form)
    need(len(instruction.operands) in (2, 3) and (space in STORES or not space), instruction)
    raw = f"b{8 * BYTES[kind]}"
    items = _registers(instruction.operands[1], count, instruction)
    sources = [core.registers.source(item, kind if isinstance(item, Immediate) else raw) for item in items]
    where = bound_addresses(instruction.operands[0], core)
    put = STORES.get(space, _store_generic)

    def step(active: Active) -> None:
        rows = np.empty((active.lanes.size, count), DTYPES[raw])
        for k, source in enumerate(sources):
            rows[:, k] = take(source, active).view(DTYPES[raw])
        put(core, where(active), active.lanes, rows)

    return step


def nothing(active: Active) -> None:
    """A step that does nothing."""
    del active


def _nothing(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """Cache hints: ignored, whatever their address."""
    del instruction, form, core
    return nothing


MEMORIES: Final = frozenset({"global", "shared", "shared::cta", "local", "param", "const"})
HINTS: Final = frozenset({
    "nc", "volatile", "relaxed", "weak", "acquire", "release", "gpu", "sys", "cta",
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "*",
})  # fmt: skip
ACCESS: Final = (
    OpcodeRow("ld", _ld, MEMORIES | {"v2", "v4"}, HINTS),
    OpcodeRow("ldu", _ld, MEMORIES | {"v2", "v4"}, HINTS),
    OpcodeRow("st", _st, MEMORIES | {"v2", "v4"}, HINTS),
    OpcodeRow("prefetch", _nothing, frozenset({"global", "L1", "L2"}), frozenset({"*"})),
    OpcodeRow("prefetchu", _nothing, frozenset({"L1"})),
)
