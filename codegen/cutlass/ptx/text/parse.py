"""Parser of PTX text into a `Module`: variables with their first contents, kernels with parameters, registers,
instructions.

Directives for debuggers and hints for ptxas are skipped. Device functions are skipped, too, and a kernel that calls one
is refused when it is launched. Only numbers of the text are evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from codegen.cutlass.ptx.text.cursor import Cursor, Token, number, tokens
from codegen.cutlass.ptx.text.errors import PtxError, PtxLimits, UnsupportedPtx
from codegen.cutlass.ptx.text.module import (
    AddressOperand,
    CodeLabel,
    Immediate,
    Module,
    Operand,
    Parameter,
    PtxInstruction,
    PtxKernel,
    Register,
    SymbolOperand,
    Variable,
    Vector,
)

SIZES: Final = {
    name: size
    for size, names in {1: "b8 u8 s8", 2: "b16 u16 s16 f16", 4: "b32 u32 s32 f32 f16x2", 8: "b64 u64 s64 f64"}.items()
    for name in names.split()
}


def read_variables(cursor: Cursor, limits: PtxLimits, space: str) -> list[Variable]:
    """Read `.align 8 .b8 name[12] = {...}, ...;` after its space. Raises PtxError, or UnsupportedPtx for kinds of
    variables that are not executed."""
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
        raise UnsupportedPtx(f"variables of type {token.text} are not known", line=token.line)
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


def _initial(cursor: Cursor, limits: PtxLimits, element_bytes: int, line: int) -> bytes:
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
                raise UnsupportedPtx(f"an initialiser with {token.text} is not read", line=line)
        if depth == 0:
            return bytes(data)
        if len(data) > limits.max_static_bytes:
            raise PtxError("an initialiser is too long", line=line)


def read_parameters(cursor: Cursor, limits: PtxLimits) -> tuple[Parameter, ...]:
    """Read the parameters of a kernel. Raises PtxError, or UnsupportedPtx for kinds of parameters that are not
    executed."""
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
                raise UnsupportedPtx(f"a parameter with {token.text} is not read", line=token.line)
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
            raise PtxError(
                f"parameters need {offset} bytes, at most {limits.max_parameter_bytes} may be", line=token.line
            )
        cursor.take(",")
    return tuple(found)


LINKING: Final = frozenset({".visible", ".extern", ".weak", ".common"})
SPACES: Final = {".global": "global", ".const": "const", ".shared": "shared", ".local": "local"}
TUNING: Final = frozenset({
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn", ".explicitcluster",
    ".maxclusterrank", ".reqnctapercluster", ".blocksareclusters", ".pragma",
})  # fmt: skip
KEPT_MODULES: Final = 32
"""Number of modules that are kept for callers that read the same text again: a network is compiled, then executed, and
parsing takes a second per MB."""


def parse(text: str, limits: PtxLimits | None = None) -> Module:
    """The module that `text` describes: a separate one with separate variables, also where the same text was read
    before. Raises PtxError with the line that cannot be read."""
    return replace(_parsed(text, limits or PtxLimits()))


@lru_cache(KEPT_MODULES)
def _parsed(text: str, limits: PtxLimits) -> Module:
    if len(text) > limits.max_text_bytes:
        raise PtxError(f"the text has {len(text)} characters, at most {limits.max_text_bytes} are read")
    return _Parser(list(tokens(text)), limits).module()


@dataclass(slots=True)
class _Scope:
    """Registers of one pair of braces: by name, or by prefix with a count; `suffix` makes names unique."""

    suffix: str
    names: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)

    def type_of(self, name: str) -> str | None:
        """The declared type of a register; None where this scope has no register of that name."""
        if name in self.names:
            return self.names[name]
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        while digits and len(digits) <= 9:
            count, kind = self.ranges.get(stem, (0, ""))
            if int(digits) < count and (digits == "0" or digits[0] != "0"):
                return kind
            stem, digits = stem + digits[0], digits[1:]
        return None


class _Parser:
    def __init__(self, found: list[Token], limits: PtxLimits) -> None:
        self._cursor = Cursor(found)
        self._limits = limits
        self._scopes: list[_Scope] = []
        self._opened = 0
        self._registers: dict[str, str] = {}

    # --- module

    def module(self) -> Module:
        cursor = self._cursor
        version, target = "", ""
        variables: list[Variable] = []
        kernels: dict[str, PtxKernel] = {}
        while not cursor.done:
            token = cursor.next()
            match token.text:
                case ".version":
                    version = cursor.next().text
                case ".target":
                    target = cursor.next().text
                    while cursor.take(","):
                        cursor.next()
                case ".address_size":
                    if cursor.integer() != 64:
                        raise UnsupportedPtx("addresses of 64 bits are needed", line=token.line)
                case text if text in LINKING:
                    continue
                case text if text in SPACES:
                    variables += read_variables(cursor, self._limits, SPACES[text])
                case ".entry":
                    kernel = self._kernel()
                    kernels[kernel.name] = kernel
                case ".func":
                    self._skip_function()
                case ".section":
                    cursor.skip_braces()
                case ".file" | ".alias" | ".pragma":
                    cursor.skip_line(token.line)
                case ";":
                    continue
                case _:
                    raise UnsupportedPtx(f"{token.text} is not read at the top of a file", line=token.line)
        total = sum(v.size_bytes or 0 for v in variables)
        if total > self._limits.max_static_bytes:
            raise PtxError(f"variables have {total} bytes, at most {self._limits.max_static_bytes} are admitted")
        return Module(version, target, tuple(variables), kernels)

    def _skip_function(self) -> None:
        cursor = self._cursor
        while cursor.peek() not in (";", "{"):
            cursor.next()
        if not cursor.take(";"):
            cursor.skip_braces()

    # --- kernels

    def _kernel(self) -> PtxKernel:
        cursor = self._cursor
        name = cursor.next()
        parameters = read_parameters(cursor, self._limits) if cursor.take("(") else ()
        threads = None
        while cursor.peek() in TUNING:
            token = cursor.next()
            if token.text == ".pragma":
                cursor.skip_statement()
                continue
            values = [cursor.integer()] if cursor.kind() == "number" else []
            while cursor.take(","):
                values.append(cursor.integer())
            if token.text in (".maxntid", ".reqntid"):
                threads = values[0] * (values[1] if len(values) > 1 else 1) * (values[2] if len(values) > 2 else 1)
        if cursor.take(";"):
            raise UnsupportedPtx(f"kernel {name.text} has no body", line=name.line)
        cursor.expect("{")
        self._registers, self._opened = {}, 0
        self._scopes = [_Scope("")]
        body: list[PtxInstruction | CodeLabel] = []
        variables: list[Variable] = []
        while self._scopes:
            self._statement(body, variables)
            if len(body) > self._limits.max_instructions:
                raise PtxError(f"more than {self._limits.max_instructions} instructions", kernel=name.text)
            if len(self._registers) > self._limits.max_registers:
                raise PtxError(f"more than {self._limits.max_registers} registers are used", kernel=name.text)
        return PtxKernel(
            name.text, parameters, tuple(variables), dict(self._registers), tuple(body), name.line, threads
        )

    def _statement(self, body: list[PtxInstruction | CodeLabel], variables: list[Variable]) -> None:
        cursor = self._cursor
        token = cursor.next()
        match token.text:
            case "{":
                self._opened += 1
                if len(self._scopes) > 64:
                    raise PtxError("braces are nested more than 64 deep", line=token.line)
                self._scopes.append(_Scope(f"{self._scopes[-1].suffix}@{self._opened}"))
            case "}":
                self._scopes.pop()
            case ";":
                return
            case ".reg":
                self._declare(cursor.next())
            case text if text.startswith(".reg."):  # without a blank, as in the headers of fp16
                self._declare(Token(token.kind, text.removeprefix(".reg"), token.line))
            case ".shared" | ".local":
                variables += read_variables(cursor, self._limits, token.text[1:])
            case ".pragma":
                cursor.skip_statement()
            case ".loc":
                cursor.skip_line(token.line)
            case text if text.startswith("."):
                raise UnsupportedPtx(f"{text} is not read inside a kernel", line=token.line)
            case _ if cursor.peek() == ":":
                cursor.next()
                if cursor.peek() in (".branchtargets",):
                    cursor.next()
                    targets = [cursor.next().text + self._scopes[-1].suffix]
                    while cursor.take(","):
                        targets.append(cursor.next().text + self._scopes[-1].suffix)
                    cursor.expect(";")
                    body.append(CodeLabel(token.text + self._scopes[-1].suffix, token.line, tuple(targets)))
                elif cursor.peek().startswith(".call"):
                    cursor.skip_statement()
                else:
                    body.append(CodeLabel(token.text + self._scopes[-1].suffix, token.line))
            case _:
                cursor.back()
                body.append(self._instruction())

    def _declare(self, kind: Token) -> None:
        """Read `.b32 %r<10>, %x;` after `.reg`."""
        cursor = self._cursor
        if kind.text[1:] not in SIZES and kind.text not in (".pred", ".b128"):
            raise UnsupportedPtx(f"registers of type {kind.text} are not known", line=kind.line)
        scope = self._scopes[-1]
        while True:
            name = cursor.next()
            if cursor.take("<"):
                scope.ranges[name.text] = (cursor.integer(), kind.text[1:])
                cursor.expect(">")
            else:
                scope.names[name.text] = kind.text[1:]
            if not cursor.take(","):
                break
        cursor.expect(";")

    def _instruction(self) -> PtxInstruction:
        cursor = self._cursor
        guard = None
        if cursor.take("@"):
            negated = cursor.take("!")
            token = cursor.next()
            found = self._register(token)
            if found is None or found.type != "pred":
                raise PtxError(f"{token.text} guards an instruction and is not a predicate", line=token.line)
            guard = Register(found.name, found.type, negated)
        opcode = cursor.next()
        if opcode.kind != "word":
            raise PtxError(f"{opcode.text!r} does not begin a statement", line=opcode.line)
        operands: list[Operand] = []
        while not cursor.take(";"):
            if opcode.text.startswith("call"):
                cursor.skip_statement()
                break
            operands.append(self._operand())
            if not cursor.take(","):
                cursor.expect(";")
                break
        if opcode.text.startswith(("bra", "brx")):  # labels carry their scope: the innermost one with the name counts
            suffix = self._scopes[-1].suffix
            operands = [SymbolOperand(one.name + suffix) if isinstance(one, SymbolOperand) else one for one in operands]
        return PtxInstruction(opcode.text, tuple(operands), opcode.line, guard)

    def _operand(self) -> Operand:
        cursor = self._cursor
        if cursor.take("["):
            inner = self._single()
            offset = 0
            while cursor.peek() in ("+", "-"):
                sign = 1 if cursor.next().text == "+" else -1
                offset += sign * cursor.integer()
            if cursor.peek() == ",":
                raise UnsupportedPtx("addresses of tensors or textures are not read", line=cursor.line)
            line = cursor.expect("]").line
            if not isinstance(inner, Register | SymbolOperand | Immediate):
                raise PtxError("an address needs a register or a name", line=line)
            return AddressOperand(inner, offset)
        if cursor.take("{"):
            items: list[Register | Immediate | None] = []
            while not cursor.take("}"):
                item = self._single()
                if isinstance(item, SymbolOperand | Vector):
                    raise PtxError("a vector of names", line=cursor.line)
                items.append(item)
                if len(items) > self._limits.max_vector:
                    raise PtxError(f"a vector of more than {self._limits.max_vector}", line=cursor.line)
                cursor.take(",")
            if not items:
                raise PtxError("a vector without elements", line=cursor.line)
            return Vector(tuple(items))
        single = self._single()
        if cursor.take("|"):
            other = self._single()
            if isinstance(single, SymbolOperand) or isinstance(other, SymbolOperand):
                raise PtxError("a pair of names", line=cursor.line)
            return Vector((single, other), pair=True)
        if isinstance(single, SymbolOperand) and cursor.take("+"):
            return AddressOperand(single, cursor.integer())
        return single

    def _single(self) -> Register | Immediate | SymbolOperand | None:
        cursor = self._cursor
        negated = cursor.take("!")
        minus = cursor.take("-")
        token = cursor.next()
        if minus and token.kind != "number":
            raise PtxError(f"-{token.text} is not read", line=token.line)
        match token.kind:
            case "number":
                return Immediate(-number(token.text) if minus else number(token.text))
            case "float":
                return Immediate(int(token.text[2:], 16), "f32" if token.text[1] in "fF" else "f64")
            case "word" if token.text == "_":
                return None
            case "word":
                register = self._register(token)
                if register is None:
                    return SymbolOperand(token.text)
                return Register(register.name, register.type, negated)
        raise PtxError(f"{token.text!r} is not an operand", line=token.line)

    def _register(self, token: Token) -> Register | None:
        for scope in reversed(self._scopes):
            kind = scope.type_of(token.text)
            if kind is not None:
                name = token.text + scope.suffix
                self._registers[name] = kind
                return Register(name, kind)
        if token.text.startswith("%") or token.text == "WARP_SZ":
            return Register(token.text, "sreg")
        return None
