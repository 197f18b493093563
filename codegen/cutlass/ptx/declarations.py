"""Declarations of PTX: variables with their first contents, and the parameters of a kernel."""

from __future__ import annotations

from typing import Final

from codegen.cutlass.ptx.cursor import Cursor, number
from codegen.cutlass.ptx.errors import PtxError, Unsupported
from codegen.cutlass.ptx.limits import Limits
from codegen.cutlass.ptx.module import Parameter, Variable

__all__ = ["SIZES", "read_parameters", "read_variables"]

SIZES: Final = {
    name: size
    for size, names in {1: "b8 u8 s8", 2: "b16 u16 s16 f16", 4: "b32 u32 s32 f32 f16x2", 8: "b64 u64 s64 f64"}.items()
    for name in names.split()
}


def read_variables(cursor: Cursor, limits: Limits, space: str) -> list[Variable]:
    """`.align 8 .b8 name[12] = {...}, ...;` after its space. Raises PtxError, or Unsupported for kinds of variables
    that are not executed."""
    alignment, found = 0, []
    while cursor.peek() in (".align", ".attribute"):
        if cursor.next().text == ".align":
            alignment = cursor.integer()
        else:
            while not cursor.take(")"):
                cursor.next()
    token = cursor.next()
    element, count = token.text[1:], 1
    if element in ("v2", "v4"):
        count, element = int(element[1]), cursor.next().text[1:]
    if element not in SIZES:
        raise Unsupported(f"variables of type {token.text} are not known", line=token.line)
    while True:
        name = cursor.next()
        size: int | None = SIZES[element] * count
        while cursor.take("["):
            if cursor.take("]"):
                size = None
            else:
                size = None if size is None else size * cursor.integer()
                cursor.expect("]")
        data = _initial(cursor, limits, SIZES[element], name.line) if cursor.take("=") else b""
        align = alignment or SIZES[element] * count
        if align < 1 or align & (align - 1) or align > 1 << 20:
            raise PtxError(f"variable {name.text}: an alignment of {align} bytes is not a power of two", line=name.line)
        if size is None and data:
            size = len(data)
        if size is not None and (size < 0 or size > limits.max_static_bytes or len(data) > size):
            raise PtxError(f"variable {name.text} has {size} bytes", line=name.line)
        found.append(Variable(name.text, space, size, align, data))
        if not cursor.take(","):
            break
    cursor.expect(";")
    return found


def _initial(cursor: Cursor, limits: Limits, element_bytes: int, line: int) -> bytes:
    """The bytes of an initialiser: numbers only, nested braces in order."""
    data = bytearray()
    depth = 0
    while True:
        token = cursor.next()
        match token.kind:
            case "number":
                data += (number(token.text) & (1 << 8 * element_bytes) - 1).to_bytes(element_bytes, "little")
            case "float":
                data += int(token.text[2:], 16).to_bytes(len(token.text) // 2 - 1, "little")
            case _ if token.text == "-":
                data += (-cursor.integer() & (1 << 8 * element_bytes) - 1).to_bytes(element_bytes, "little")
                if depth == 0:
                    return bytes(data)
                continue
            case _ if token.text in "{},":
                depth += (token.text == "{") - (token.text == "}")
            case _:
                raise Unsupported(f"an initialiser with {token.text} is not read", line=line)
        if depth == 0:
            return bytes(data)
        if len(data) > limits.max_static_bytes:
            raise PtxError("an initialiser is too long", line=line)


def read_parameters(cursor: Cursor, limits: Limits) -> tuple[Parameter, ...]:
    """Raises PtxError, or Unsupported for kinds of parameters that are not executed."""
    found: list[Parameter] = []
    offset = 0
    while not cursor.take(")"):
        cursor.expect(".param")
        alignment, size = 0, 1
        while (token := cursor.next()).text.startswith("."):
            if token.text == ".align":
                alignment = cursor.integer()
            elif token.text[1:] in SIZES:
                size = SIZES[token.text[1:]]
            elif token.text not in (".ptr", ".global", ".const", ".shared"):
                raise Unsupported(f"a parameter with {token.text} is not read", line=token.line)
        alignment = max(alignment, size) if size > 1 else alignment or 1
        if cursor.take("["):
            size *= cursor.integer()
            cursor.expect("]")
        if not 0 < alignment <= 4096 or alignment & (alignment - 1):
            raise PtxError(f"parameter {token.text}: an alignment of {alignment} bytes", line=token.line)
        offset = -(-offset // alignment) * alignment
        found.append(Parameter(token.text, offset, size, alignment))
        offset += size
        if offset > limits.max_parameter_bytes or size < 0:
            raise PtxError(f"parameters need {offset} bytes, {limits.max_parameter_bytes} is the most", line=token.line)
        cursor.take(",")
    return tuple(found)
