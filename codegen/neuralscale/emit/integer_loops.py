"""Loops of the scalar core over int32 values in memory: index arithmetic, and descriptors of rows at its results.

    words.add {a, b, out, count, ...} --loop_code--> li, lw, lw, add, sw, ..., bne    and the number of executed ones

No branch depends on data, so every run executes the same instructions. The loops use no register that `Body` tracks. An
index is brought into the table before it becomes an address: a negative one counts from the end, and one that is still
outside becomes the nearest end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codegen.neuralscale.asm.assembler import load_immediate
from codegen.neuralscale.emit.descriptors import DESCRIPTOR_BYTES, VALID
from codegen.neuralscale.isa.table import instruction
from codegen.riscv.codec import Instruction

INTEGER_PREFIX = "words."
"""Prefix of the opcodes of these loops."""

ZERO = 0
A, B, C, D = 6, 7, 28, 29  # values of one element
IN_A, IN_B, IN_C, OUT = 8, 9, 18, 19
OUTER, MIDDLE, INNER = 20, 21, 22  # counters
CONST_0, CONST_1, CONST_2 = 23, 24, 25
BASE_IN, BASE_OUT = 13, 14
BEST, PLACE, TICK = 15, 16, 17
STEP = 30
FT1 = 1
NEAREST_MODE, TOWARD_ZERO_MODE = 0, 1
INT32_BYTES, FP16_BYTES = 4, 2
ALL_ACCESSES = 15
"""Accesses of a fence: memory and devices, loads and stores."""


@dataclass(frozen=True, slots=True)
class LoopCode:
    """Instructions in order, and the number of instructions that one run executes."""

    items: tuple[Instruction, ...] = ()
    executed: int = 0

    def __add__(self, other: LoopCode) -> LoopCode:
        return LoopCode(self.items + other.items, self.executed + other.executed)


def _code(*items: Instruction) -> LoopCode:
    return LoopCode(items, len(items))


def _set(register: int, value: int) -> LoopCode:
    return _code(*load_immediate(register, value)) if value else _code(instruction("addi", register, ZERO, 0))


def _add(register: int, source: int, value: int) -> LoopCode:
    """Code for register = source + value, using STEP where the value is large."""
    if -2048 <= value < 2048:
        return _code(instruction("addi", register, source, value))
    return _set(STEP, value) + _code(instruction("add", register, source, STEP))


def _repeat(counter: int, count: int, body: LoopCode) -> LoopCode:
    """Code that runs the body `count` times, at least once."""
    assert count > 0
    end = _code(
        instruction("addi", counter, counter, -1),
        instruction("bne", counter, ZERO, -4 * (len(body.items) + 1)),
    )
    before, once = _set(counter, count), body + end
    return LoopCode(before.items + once.items, before.executed + count * once.executed)


def _mask(register: int, truth: int) -> Instruction:
    """Instruction that makes all ones of a truth value of one."""
    return instruction("sub", register, ZERO, truth)


def _choose(result: int, mask: int, yes: int, no: int) -> LoopCode:
    """Code for result = yes where the mask is all ones, else no; STEP is used."""
    return _code(
        instruction("xor", STEP, yes, no),
        instruction("and", STEP, STEP, mask),
        instruction("xor", result, no, STEP),
    )


def _inside(index: int, rows: int, last: int) -> LoopCode:
    """Code that turns any index into one of a table; the registers `rows` and `last` hold its number of rows, and one
    less. STEP and C are used."""
    return _code(
        instruction("srai", STEP, index, 31),
        instruction("and", STEP, STEP, rows),
        instruction("add", index, index, STEP),
        instruction("srai", STEP, index, 31),
        instruction("xori", STEP, STEP, -1),
        instruction("and", index, index, STEP),
        instruction("slt", STEP, last, index),
        _mask(STEP, STEP),
        instruction("sub", C, index, last),
        instruction("and", C, C, STEP),
        instruction("sub", index, index, C),
    )


def _minimum(least: bool) -> LoopCode:
    first, second = (A, B) if least else (B, A)
    return _code(instruction("slt", D, first, second), _mask(D, D)) + _choose(A, D, A, B)


def _modulo() -> LoopCode:
    """Code for the remainder with the sign of the divisor."""
    return _code(
        instruction("rem", A, A, B),
        instruction("xor", C, A, B),
        instruction("srai", C, C, 31),
        instruction("sltu", D, ZERO, A),
        _mask(D, D),
        instruction("and", C, C, D),
        instruction("and", C, C, B),
        instruction("add", A, A, C),
    )


def _absolute() -> LoopCode:
    return _code(instruction("srai", D, A, 31), instruction("xor", A, A, D), instruction("sub", A, A, D))


def _one(name: str) -> Callable[[], LoopCode]:
    return lambda: _code(instruction(name, A, A, B))


FUNCTIONS: Mapping[str, tuple[int, Callable[[], LoopCode]]] = {
    "add": (2, _one("add")),
    "sub": (2, _one("sub")),
    "mul": (2, _one("mul")),
    "div": (2, _one("div")),
    "remainder": (2, _one("rem")),
    "mod": (2, _modulo),
    "and": (2, _one("and")),
    "or": (2, _one("or")),
    "xor": (2, _one("xor")),
    "not": (1, lambda: _code(instruction("xori", A, A, 1))),
    "min": (2, lambda: _minimum(least=True)),
    "max": (2, lambda: _minimum(least=False)),
    "equal": (2, lambda: _code(instruction("sub", A, A, B), instruction("sltiu", A, A, 1))),
    "less": (2, _one("slt")),
    "greater": (2, lambda: _code(instruction("slt", A, B, A))),
    "less_equal": (2, lambda: _code(instruction("slt", A, B, A), instruction("xori", A, A, 1))),
    "greater_equal": (2, lambda: _code(instruction("slt", A, A, B), instruction("xori", A, A, 1))),
    "neg": (1, lambda: _code(instruction("sub", A, ZERO, A))),
    "abs": (1, _absolute),
    "truth": (1, lambda: _code(instruction("sltu", A, ZERO, A))),
    "copy": (1, lambda: LoopCode()),
    "where": (3, lambda: _code(_mask(D, A)) + _choose(A, D, B, C)),
}
"""Functions of one element of each operand: the number of operands, and the code that computes A from A, B and C."""


def loop_code(opcode: str, operands: Mapping[str, int]) -> LoopCode:
    """The loop of an instruction whose opcode begins with INTEGER_PREFIX. Raises KeyError for an opcode that does not
    exist."""
    name = opcode.removeprefix(INTEGER_PREFIX)
    if name in FUNCTIONS:
        code = _elementwise(name, operands)
    elif name in REDUCTIONS:
        code = _reduction(name, operands)
    else:
        code = LOOPS[name](operands)
    return code + _code(instruction("fence", ALL_ACCESSES, ALL_ACCESSES))  # before any transfer that reads the values


def _elementwise(name: str, given: Mapping[str, int]) -> LoopCode:
    """Loop for out[i] = f(a[i], b[i], c[i]); a step of 0 says that an operand is one value for all."""
    arity, function = FUNCTIONS[name]
    places = tuple(zip((A, B, C), (IN_A, IN_B, IN_C), ("a", "b", "c"), strict=True))[:arity]
    code = _set(OUT, given["out"])
    body = LoopCode()
    for value, pointer, operand in places:
        code += _set(pointer, given[operand])
        body += _code(instruction("lw", value, 0, pointer))
    body += function() + _code(instruction("sw", A, 0, OUT))
    for _, pointer, operand in places:
        if given[f"{operand}_step"]:
            body += _add(pointer, pointer, given[f"{operand}_step"])
    return code + _repeat(INNER, given["count"], body + _add(OUT, OUT, INT32_BYTES))


def _take(given: Mapping[str, int]) -> LoopCode:
    """Loop for out[i] = a[index[i]]."""
    read = _code(instruction("slli", A, A, 2), instruction("add", A, A, IN_A), instruction("lw", A, 0, A))
    return _by_index(given, read)


def _by_index(given: Mapping[str, int], word: LoopCode) -> LoopCode:
    """Loop for out[i] = A, which `word` computes from the index in A, brought into the table at IN_A."""
    code = _set(IN_A, given["a"]) + _set(IN_B, given["index"]) + _set(OUT, given["out"])
    code += _set(CONST_0, given["rows"]) + _set(CONST_1, given["rows"] - 1)
    body = _code(instruction("lw", A, 0, IN_B)) + _inside(A, CONST_0, CONST_1) + word
    body += _code(
        instruction("sw", A, 0, OUT),
        instruction("addi", IN_B, IN_B, INT32_BYTES),
        instruction("addi", OUT, OUT, INT32_BYTES),
    )
    return code + _repeat(INNER, given["count"], body)


def _number(given: Mapping[str, int]) -> LoopCode:
    """Loop that converts int32 values to fp16: exact up to 2048, beyond it toward zero, at most the largest fp16
    number."""
    code = _set(IN_A, given["a"]) + _set(OUT, given["out"])
    body = _code(
        instruction("lw", A, 0, IN_A),
        instruction("fcvt.s.w", FT1, A, NEAREST_MODE),
        instruction("fshw", FT1, OUT),
        instruction("addi", IN_A, IN_A, INT32_BYTES),
        instruction("addi", OUT, OUT, FP16_BYTES),
    )
    return code + _repeat(INNER, given["count"], body)


def _of_fp16(given: Mapping[str, int], word: LoopCode) -> LoopCode:
    """Loop for out[i] = A, which `word` computes from the fp16 number at IN_A."""
    code = _set(IN_A, given["a"]) + _set(OUT, given["out"])
    body = word + _code(
        instruction("sw", A, 0, OUT),
        instruction("addi", IN_A, IN_A, FP16_BYTES),
        instruction("addi", OUT, OUT, INT32_BYTES),
    )
    return code + _repeat(INNER, given["count"], body)


def _ordered(given: Mapping[str, int]) -> LoopCode:
    """Loop that maps fp16 numbers to int32 values in the same order: twice the magnitudes, negative for negative
    numbers; both zeros are equal."""
    return _of_fp16(given, _code(instruction("lh", A, 0, IN_A)) + _in_order())


def _in_order() -> LoopCode:
    """Code that turns the bits of an fp16 number in A, extended by its sign, into a word in the numbers' order."""
    return _code(
        instruction("srai", D, A, 31),
        instruction("slli", A, A, 17),
        instruction("srli", A, A, 16),
        instruction("xor", A, A, D),
        instruction("sub", A, A, D),
    )


def _ordered_at(given: Mapping[str, int]) -> LoopCode:
    """Loop for out[i] = the word in order of the fp16 number a[index[i]]."""
    read = _code(instruction("slli", A, A, 1), instruction("add", A, A, IN_A), instruction("lh", A, 0, A))
    return _by_index(given, read + _in_order())


def _whole(given: Mapping[str, int]) -> LoopCode:
    """Loop that converts fp16 numbers to int32, truncated toward zero; infinities become the largest and the least
    int32."""
    word = _code(instruction("flhw", FT1, IN_A), instruction("fcvt.w.s", A, FT1, TOWARD_ZERO_MODE))
    return _of_fp16(given, word)


def _lines(given: Mapping[str, int], line: LoopCode, out_line_bytes: int) -> LoopCode:
    """Loop that runs a line's code for each of `outer` x `inner` lines of `count` values, which are `inner` values
    apart. BASE_IN and BASE_OUT point to the first value of the line and of its result; `out_line_bytes` is an outer
    step of the result."""
    inner, count = given["inner"], given["count"]
    within = line + _code(
        instruction("addi", BASE_IN, BASE_IN, INT32_BYTES), instruction("addi", BASE_OUT, BASE_OUT, INT32_BYTES)
    )
    across = _repeat(MIDDLE, inner, within)
    across += _add(BASE_IN, BASE_IN, (count - 1) * inner * INT32_BYTES)
    if out_line_bytes != inner * INT32_BYTES:
        across += _add(BASE_OUT, BASE_OUT, out_line_bytes - inner * INT32_BYTES)
    return _set(BASE_IN, given["a"]) + _set(BASE_OUT, given["out"]) + _repeat(OUTER, given["outer"], across)


def _running_sum(given: Mapping[str, int]) -> LoopCode:
    """Loop for sums along lines: `exclusive` leaves out the element itself, `reverse` starts from the end."""
    count, inner = given["count"], given["inner"]
    step = (-1 if given["reverse"] else 1) * inner * INT32_BYTES
    start = (count - 1) * inner * INT32_BYTES if given["reverse"] else 0
    load, store = _code(instruction("lw", A, 0, IN_A)), _code(instruction("sw", B, 0, OUT))
    add = _code(instruction("add", B, B, A))
    body = load + (store + add if given["exclusive"] else add + store) + _add(IN_A, IN_A, step) + _add(OUT, OUT, step)
    line = _add(IN_A, BASE_IN, start) + _add(OUT, BASE_OUT, start) + _set(B, 0) + _repeat(INNER, count, body)
    return _lines(given, line, count * inner * INT32_BYTES)


def _reduction(name: str, given: Mapping[str, int]) -> LoopCode:
    """Loop that makes one value per line: its sum, an extreme, or the index of one; of several the first, or the
    `last`."""
    count, inner = given["count"], given["inner"]
    place, greatest = name.startswith("place_of"), name.endswith("greatest")
    first, second = (BEST, A) if greatest else (A, BEST)
    if name == "sum":
        better = _code(instruction("add", BEST, BEST, A))
    elif given["last"]:
        better = _code(instruction("slt", D, second, first), instruction("xori", D, D, 1), _mask(D, D))
    else:
        better = _code(instruction("slt", D, first, second), _mask(D, D))
    if name != "sum":
        better += _choose(BEST, D, A, BEST)
        better += _choose(PLACE, D, TICK, PLACE) + _code(instruction("addi", TICK, TICK, 1)) if place else LoopCode()
    body = _code(instruction("lw", A, 0, IN_A)) + better + _add(IN_A, IN_A, inner * INT32_BYTES)
    line = _code(instruction("addi", IN_A, BASE_IN, 0))
    line += _set(BEST, 0) if name == "sum" else _code(instruction("lw", BEST, 0, IN_A))
    line += _set(PLACE, 0) + _set(TICK, 0) if place else LoopCode()
    line += _repeat(INNER, count, body) + _code(instruction("sw", PLACE if place else BEST, 0, BASE_OUT))
    return _lines(given, line, inner * INT32_BYTES)


def _copy_rows(given: Mapping[str, int]) -> LoopCode:
    """Loop that copies `rows` runs of `count` values; runs start `a_step` and `out_step` bytes apart."""
    run = _code(
        instruction("lw", A, 0, IN_A),
        instruction("sw", A, 0, OUT),
        instruction("addi", IN_A, IN_A, INT32_BYTES),
        instruction("addi", OUT, OUT, INT32_BYTES),
    )
    length = given["count"] * INT32_BYTES
    row = _repeat(INNER, given["count"], run)
    row += _add(IN_A, IN_A, given["a_step"] - length) if given["a_step"] != length else LoopCode()
    row += _add(OUT, OUT, given["out_step"] - length) if given["out_step"] != length else LoopCode()
    return _set(IN_A, given["a"]) + _set(OUT, given["out"]) + _repeat(OUTER, given["rows"], row)


REDUCTIONS = frozenset(["sum", "greatest", "least", "place_of_greatest", "place_of_least"])
LOOPS: Mapping[str, Callable[[Mapping[str, int]], LoopCode]] = {
    "take": _take,
    "number": _number,
    "ordered": _ordered,
    "ordered_at": _ordered_at,
    "whole": _whole,
    "cumsum": _running_sum,
    "copy_rows": _copy_rows,
}


_LINK = (
    instruction("sw", ZERO, 12, OUT),
    instruction("sw", ZERO, 16, OUT),
    instruction("addi", A, OUT, DESCRIPTOR_BYTES),
    instruction("sw", A, 20, OUT),
    instruction("addi", OUT, OUT, DESCRIPTOR_BYTES),
)
"""End of a descriptor without strides, which the next one follows; OUT is then there. A is used."""


def descriptor_loop(given: Mapping[str, int], store: int, control: int) -> LoopCode:
    """Loop that writes a chain of descriptors into the store from `store` on, one for each of `count` rows of a
    table. Rows lie `pitch_bytes` apart, by default as many as they have."""
    code = _set(IN_A, given["index"]) + _set(IN_B, given["table"]) + _set(OUT, store)
    code += _set(BASE_OUT, given["destination"]) + _set(CONST_0, given["rows"]) + _set(CONST_1, given["rows"] - 1)
    code += _set(CONST_2, given["row_bytes"]) + _set(BEST, control)
    pitch = CONST_2
    if "pitch_bytes" in given:
        pitch = PLACE
        code += _set(pitch, given["pitch_bytes"])
    body = _code(instruction("lw", A, 0, IN_A)) + _inside(A, CONST_0, CONST_1)
    body += _code(
        instruction("mul", A, A, pitch),
        instruction("add", A, A, IN_B),
        instruction("sw", BEST, 0, OUT),
        instruction("sw", A, 4, OUT),
        instruction("sw", BASE_OUT, 8, OUT),
        *_LINK,
        instruction("add", BASE_OUT, BASE_OUT, CONST_2),
        instruction("addi", IN_A, IN_A, INT32_BYTES),
    )
    return code + _repeat(INNER, given["count"], body) + _code(instruction("sw", ZERO, -4, OUT))


def scatter_loop(given: Mapping[str, int], store: int) -> LoopCode:
    """Loop that writes a chain of descriptors into the store from `store` on, one for each of `count` pieces of
    `piece_rows` rows: from the source to the row of a region that its index says, `skipped` rows farther. Rows beyond
    the region's `rows` are left out; a piece without others goes to its `home`. Regions lie `region_bytes` apart."""
    piece = given["piece_rows"] * given["row_bytes"]
    code = _set(IN_A, given["index"]) + _set(IN_B, given["source"]) + _set(IN_C, given["home"]) + _set(OUT, store)
    code += _set(BASE_OUT, given["destination"]) + _set(CONST_0, given["rows"]) + _set(CONST_1, given["piece_rows"])
    code += _set(CONST_2, given["row_bytes"]) + _set(BEST, VALID) + _set(TICK, piece)
    body = _code(instruction("lw", A, 0, IN_A))
    body += _add(A, A, given["skipped"]) if given["skipped"] else LoopCode()
    body += _code(
        instruction("srai", D, A, 31),  # B: the first row inside
        instruction("xori", D, D, -1),
        instruction("and", B, A, D),
        instruction("add", C, A, CONST_1),  # C: the number of rows inside
        instruction("slt", D, C, CONST_0),
        _mask(D, D),
    )
    body += _choose(C, D, C, CONST_0)
    body += _code(instruction("sub", C, C, B), instruction("slt", D, ZERO, C), _mask(D, D))
    body += _choose(C, D, C, CONST_1)
    body += _code(
        instruction("mul", C, C, CONST_2),
        instruction("or", C, C, BEST),
        instruction("sw", C, 0, OUT),
        instruction("sub", A, B, A),  # the rows before the first one inside
        instruction("and", A, A, D),
        instruction("mul", A, A, CONST_2),
        instruction("add", A, A, IN_B),
        instruction("sw", A, 4, OUT),
        instruction("mul", B, B, CONST_2),
        instruction("add", B, B, BASE_OUT),
    )
    body += _choose(B, D, B, IN_C)
    body += _code(
        instruction("sw", B, 8, OUT),
        *_LINK,
        instruction("add", IN_B, IN_B, TICK),
        instruction("add", IN_C, IN_C, TICK),
        instruction("addi", IN_A, IN_A, INT32_BYTES),
    )
    body += _add(BASE_OUT, BASE_OUT, given["region_bytes"]) if given["region_bytes"] else LoopCode()
    return code + _repeat(INNER, given["count"], body) + _code(instruction("sw", ZERO, -4, OUT))
