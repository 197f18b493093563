"""Comparisons, choices and moves: setp, set, selp, mov, cvta, and special registers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from codegen.cutlass.ptx.instructions.elementwise import store
from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.scalars import BYTES, DTYPES, Array, is_float
from codegen.cutlass.ptx.text.errors import UnsupportedPtx
from codegen.cutlass.ptx.text.module import AddressOperand, Immediate, PtxInstruction, Register, SymbolOperand, Vector

COMPARE: Final[dict[str, Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
UNORDERED: Final = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
COMBINE: Final[dict[str, Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
WORDS: Final = frozenset({*COMPARE, *UNORDERED, *COMBINE, "num", "nan"})


def _compare(word: str, a: Array, b: Array) -> Array:
    nan = np.isnan(a) | np.isnan(b) if a.dtype.kind == "f" else np.zeros(1, np.bool_)
    match word:
        case "num":
            return ~nan
        case "nan":
            return nan
        case "ne":
            return np.asarray((a != b) & ~nan)
        case _ if word in UNORDERED:
            return np.asarray(COMPARE[UNORDERED[word]](a, b) | nan)
    return np.asarray(COMPARE[word](a, b))


def _setp(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    need(len(form.modifiers) in (1, 2) and len(form.types) == 1, instruction)
    word, kind = form.modifiers[0], form.types[0]
    operands = instruction.operands
    need(len(operands) == 2 + len(form.modifiers) and word not in COMBINE and kind != "f16x2", instruction)
    need(len(form.modifiers) == 1 or form.modifiers[1] in COMBINE, instruction)
    a, b = (core.registers.source(operand, kind) for operand in operands[1:3])
    first, second = operands[0], None
    if isinstance(first, Vector):
        need(first.pair and len(first.items) == 2, instruction)
        first, second = first.items
    target = core.registers.target(first, "pred")
    if len(form.modifiers) == 1 and second is None and word in COMPARE and (a.dtype.kind != "f" or word != "ne"):
        function = COMPARE[word]

        def quick(active: Active) -> None:
            if active.whole:
                function(a, b, out=target)
            else:
                function(a, b, out=target, where=active.mask)

        return quick
    combine = COMBINE[form.modifiers[1]] if len(form.modifiers) == 2 else None
    with_, negated = core.registers.predicate(operands[3]) if combine else (np.ones(1, np.bool_), False)
    other = core.registers.target(second, "pred") if second is not None else None

    def step(active: Active) -> None:
        found = _compare(word, a, b)
        along = ~with_ if negated else with_
        yes, no = (combine(found, along), combine(~found, along)) if combine else (found, ~found)
        store(target, yes, active)
        if other is not None:
            store(other, no, active)

    return step


def _set(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """A comparison as a number: 1 and 0 for floats, all bits and none for integers; for pairs, each half by itself."""
    need(len(form.modifiers) == 1 and len(form.types) == 2 and len(instruction.operands) == 3, instruction)
    word, (to, kind) = form.modifiers[0], form.types
    need(word not in COMBINE and to != "pred" and kind != "pred" and (to != "f16x2" or kind == "f16x2"), instruction)
    need(is_float(to) or to in ("u16", "s16", "u32", "s32"), instruction)
    pairs = kind == "f16x2"
    need(not pairs or BYTES[to] == 4, instruction)
    a, b = (core.registers.source(operand, "b32" if pairs else kind) for operand in instruction.operands[1:])
    target = core.registers.target(instruction.operands[0], "b32" if pairs else to)
    if pairs:
        a, b = (half.view(np.float16).reshape(-1, 2) for half in (a, b))
        target = target.view(np.float16 if to == "f16x2" else np.uint16).reshape(-1, 2)
    yes = target.dtype.type(1) if is_float(to) else np.array(-1, np.int64).astype(target.dtype)[()]

    def step(active: Active) -> None:
        value = np.where(_compare(word, a, b), yes, target.dtype.type(0))
        where = True if active.whole else active.mask[:, None] if pairs else active.mask
        np.copyto(target, value, where=where)

    return step


def _testp(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """A test of the class of a float."""
    need(len(form.modifiers) == 1 and len(form.types) == 1 and len(instruction.operands) == 2, instruction)
    need(form.types[0] in ("f32", "f64"), instruction)
    source = core.registers.source(instruction.operands[1], form.types[0])
    target = core.registers.target(instruction.operands[0], "pred")
    test, smallest = form.modifiers[0], np.finfo(source.dtype).smallest_normal

    def step(active: Active) -> None:
        size = np.abs(source)
        match test:
            case "finite":
                value = np.isfinite(source)
            case "infinite":
                value = np.isinf(source)
            case "number":
                value = ~np.isnan(source)
            case "notanumber":
                value = np.isnan(source)
            case "normal":
                value = np.isfinite(source) & (size >= smallest)
            case _:
                value = (size < smallest) & (size > 0)
        store(target, value, active)

    return step


def _selp(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    need(len(instruction.operands) == 4 and len(form.types) == 1, instruction)
    kind = form.types[0]
    target = core.registers.target(instruction.operands[0], kind)
    a, b = (core.registers.source(operand, kind) for operand in instruction.operands[1:3])
    predicate, negated = core.registers.predicate(instruction.operands[3])
    if negated:
        a, b = b, a

    def step(active: Active) -> None:
        store(target, np.where(predicate, a, b), active)

    return step


def _mov(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    need(len(instruction.operands) == 2 and len(form.types) == 1, instruction)
    to, origin = instruction.operands
    kind = form.types[0]
    match to, origin:
        case Vector(items), Register():
            part = f"b{8 * BYTES[kind] // len(items)}"
            need(part in DTYPES, instruction)
            whole = core.registers.source(origin, f"b{8 * BYTES[kind]}")
            parts = whole.view(DTYPES[part]).reshape(-1, len(items))
            targets = [(k, core.registers.target(item, part)) for k, item in enumerate(items) if item is not None]

            def unpack(active: Active) -> None:
                for k, target in targets:
                    store(target, parts[:, k], active)

            return unpack
        case Register(), Vector(items):
            part = f"b{8 * BYTES[kind] // len(items)}"
            need(part in DTYPES and None not in items, instruction)
            sources = [core.registers.source(item, part) for item in items]
            parts = core.registers.target(to, f"b{8 * BYTES[kind]}").view(DTYPES[part]).reshape(-1, len(items))

            def pack(active: Active) -> None:
                values = [source.copy() for source in sources]
                for k, value in enumerate(values):
                    store(parts[:, k], value, active)

            return pack
        case Register(), SymbolOperand(name):
            address = core.address_of(name, 0)
        case Register(), AddressOperand(SymbolOperand(name), offset):
            address = core.address_of(name, offset)
        case _:
            source = core.registers.source(origin, kind)
            target = core.registers.target(to, kind)

            def copy(active: Active) -> None:
                store(target, source, active)

            return copy
    constant = np.array([address], np.uint64).astype(DTYPES[kind])
    place = core.registers.target(to, kind)

    def load(active: Active) -> None:
        store(place, constant, active)

    return load


def _cvta(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """Conversion between a window's own addresses and generic ones."""
    need(len(instruction.operands) == 2 and len(form.types) == 1 and BYTES[form.types[0]] == 8, instruction)
    spaces = [word for word in form.modifiers if word != "to"]
    need(len(spaces) == 1, instruction)
    base = np.array([core.window(spaces[0])], np.uint64)
    origin = instruction.operands[1]
    if isinstance(origin, SymbolOperand):
        source = np.array([core.address_of(origin.name, 0)], np.uint64)
    elif isinstance(origin, Register | Immediate):
        source = core.registers.source(origin, "u64")
    else:
        raise UnsupportedPtx(f"{instruction.opcode} is not executed with these operands")
    target = core.registers.target(instruction.operands[0], "u64")
    move = np.subtract if "to" in form.modifiers else np.add

    def step(active: Active) -> None:
        store(target, move(source, base), active)

    return step


SPACES: Final = frozenset({"global", "shared", "local", "param", "const", "shared::cta"})

CHOICES: Final = (
    OpcodeRow("setp", _setp, WORDS, frozenset({"ftz"})),
    OpcodeRow("set", _set, WORDS, frozenset({"ftz"})),
    OpcodeRow("testp", _testp, frozenset({"finite", "infinite", "number", "notanumber", "normal", "subnormal"})),
    OpcodeRow("selp", _selp),
    OpcodeRow("mov", _mov),
    OpcodeRow("cvta", _cvta, SPACES | {"to"}, types=frozenset({"u64"})),
)
