"""Code of the 64-bit core for integers: a function of int32 values, and the number of a row brought into its table.

    integer_code("add", addresses, temporaries)  -->  lw, lw, add, sw

Values are loaded with their signs and stored with their 32 low bits. No branch depends on data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from codegen.gemmini.isa.table import instruction
from codegen.riscv.codec import Instruction

ZERO = 0
TEMPORARIES = 4
"""Registers that the code of a function uses besides those of addresses."""

SIGN = 31
"""Bit of an int32 that is its sign."""

Code = list[Instruction]


def integer_code(function: str, addresses: Sequence[int], temporaries: Sequence[int]) -> Code:
    """Code that loads the operands, makes the result of them and stores it: `addresses` are registers with the
    addresses of the operands and, last, of the result."""
    *operands, result = addresses
    code = [instruction("lw", register, 0, address) for register, address in zip(temporaries, operands, strict=False)]
    code += _FUNCTIONS[function](*temporaries)
    return [*code, instruction("sw", temporaries[0], 0, result)]


def index_code(index: int, rows: int, spare: int) -> Code:
    """Code that turns any number into that of a row: a negative one counts from the end, and one that is still outside
    becomes the nearest end. The register `rows` holds the number of rows."""
    return [
        instruction("srai", spare, index, SIGN),
        instruction("and", spare, spare, rows),
        instruction("add", index, index, spare),
        instruction("srai", spare, index, SIGN),
        instruction("xori", spare, spare, -1),
        instruction("and", index, index, spare),
        # The smaller of the number and the last one: number - rows + 1 is added where it is more than 0.
        instruction("sub", index, index, rows),
        instruction("addi", index, index, 1),
        instruction("slt", spare, index, ZERO),
        instruction("sub", spare, ZERO, spare),
        instruction("and", index, index, spare),
        instruction("add", index, index, rows),
        instruction("addi", index, index, -1),
    ]


def better_code(
    best: int, value: int, places: tuple[int, int], masks: tuple[int, int], better: tuple[bool, bool]
) -> Code:
    """Code after which `best` is the better of itself and a value, which is used up; `places` are those of the best and
    of the value. `better` is (whether the greatest is, whether the last of several is)."""
    greatest, last = better
    first, second = (best, value) if greatest != last else (value, best)
    mask, spare = masks
    place, number = places
    return [
        instruction("slt", mask, first, second),
        *([instruction("xori", mask, mask, 1)] if last else []),
        instruction("sub", mask, ZERO, mask),
        instruction("xor", spare, number, place),
        instruction("and", spare, spare, mask),
        instruction("xor", place, place, spare),
        *_chosen(mask, value, best, best),
    ]


def _one(name: str) -> Callable[..., Code]:
    return lambda a, b, *_: [instruction(name, a, a, b)]


def _chosen(mask: int, yes: int, no: int, result: int) -> Code:
    """`yes` where the mask is all ones, else `no`; the mask is used."""
    return [
        instruction("xor", yes, yes, no),
        instruction("and", mask, mask, yes),
        instruction("xor", result, no, mask),
    ]


def _extreme(a: int, b: int, mask: int, least: bool) -> Code:
    first, second = (a, b) if least else (b, a)
    return [instruction("slt", mask, first, second), instruction("sub", mask, ZERO, mask), *_chosen(mask, a, b, a)]


def _modulo(a: int, b: int, c: int, d: int) -> Code:
    """The remainder with the sign of the divisor, which is added where the remainder has another and is not zero."""
    return [
        instruction("rem", a, a, b),
        instruction("xor", c, a, b),
        instruction("srai", c, c, SIGN),
        instruction("sltu", d, ZERO, a),
        instruction("sub", d, ZERO, d),
        instruction("and", c, c, d),
        instruction("and", c, c, b),
        instruction("add", a, a, c),
    ]


def _ordered(a: int, d: int) -> Code:
    """The magnitude, which is all bits of a float32 but its sign, negated for negative numbers."""
    low = 64 - SIGN
    return [
        instruction("srai", d, a, SIGN),
        instruction("slli", a, a, low),
        instruction("srli", a, a, low),
        instruction("xor", a, a, d),
        instruction("sub", a, a, d),
    ]


def _absolute(a: int, d: int) -> Code:
    return [instruction("srai", d, a, SIGN), instruction("xor", a, a, d), instruction("sub", a, a, d)]


def _where(a: int, b: int, c: int, d: int) -> Code:
    return [instruction("sltu", d, ZERO, a), instruction("sub", d, ZERO, d), *_chosen(d, b, c, a)]


def _compared(swapped: bool, turned: bool) -> Callable[..., Code]:
    def code(a: int, b: int, *_: int) -> Code:
        first, second = (b, a) if swapped else (a, b)
        return [instruction("slt", a, first, second), *([instruction("xori", a, a, 1)] if turned else [])]

    return code


_FUNCTIONS: Mapping[str, Callable[..., Code]] = {
    **{name: _one(name) for name in ("add", "sub", "mul", "div", "and", "or", "xor")},
    "remainder": _one("rem"),
    "mod": _modulo,
    "min": lambda a, b, _, d: _extreme(a, b, d, True),
    "max": lambda a, b, _, d: _extreme(a, b, d, False),
    "equal": lambda a, b, *_: [instruction("sub", a, a, b), instruction("sltiu", a, a, 1)],
    "less": _compared(False, False),
    "greater": _compared(True, False),
    "less_equal": _compared(True, True),
    "greater_equal": _compared(False, True),
    "copy": lambda *_: [],
    "not": lambda a, *_: [instruction("xori", a, a, 1)],
    "neg": lambda a, *_: [instruction("sub", a, ZERO, a)],
    "abs": lambda a, _b, _c, d: _absolute(a, d),
    "order": lambda a, _b, _c, d: _ordered(a, d),
    "truth": lambda a, *_: [instruction("sltu", a, ZERO, a)],
    "where": _where,
}
"""Code that makes the first register of values in the first, second and third; the fourth is free."""
