"""PTX text to `Module`: variables, kernels, registers, instructions.

Directives for debuggers and hints for ptxas are read over; device functions are read over too, and a kernel that calls
one is refused when it is launched. Nothing of the text is evaluated but numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from codegen.cutlass.ptx.errors import PtxError, Unsupported
from codegen.cutlass.ptx.limits import Limits
from codegen.cutlass.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Mark,
    Module,
    Operand,
    Parameter,
    Register,
    Symbol,
    Variable,
    Vector,
)
from codegen.cutlass.ptx.tokens import Token, tokens

__all__ = ["parse"]

SIZES: Final = {
    name: size
    for size, names in {1: "b8 u8 s8", 2: "b16 u16 s16 f16", 4: "b32 u32 s32 f32 f16x2", 8: "b64 u64 s64 f64"}.items()
    for name in names.split()
}
LINKING: Final = frozenset({".visible", ".extern", ".weak", ".common"})
SPACES: Final = {".global": "global", ".const": "const", ".shared": "shared", ".local": "local"}
MOST_DIGITS: Final = 80
TUNING: Final = frozenset({
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn", ".explicitcluster",
    ".maxclusterrank", ".reqnctapercluster", ".blocksareclusters", ".pragma",
})  # fmt: skip


def parse(text: str, limits: Limits | None = None) -> Module:
    """The module that `text` describes. Raises PtxError with the line of what it cannot read."""
    limits = limits or Limits()
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
        """The declared type of a register, None where this scope has none of that name."""
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
    def __init__(self, found: list[Token], limits: Limits) -> None:
        self._tokens = found
        self._at = 0
        self._limits = limits
        self._scopes: list[_Scope] = []
        self._opened = 0
        self._registers: dict[str, str] = {}

    # --- tokens

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _next(self) -> Token:
        if self._at >= len(self._tokens):
            raise PtxError("the text ends in the middle", line=self._tokens[-1].line if self._tokens else 0)
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, text: str) -> Token:
        token = self._next()
        if token.text != text:
            raise PtxError(f"{text!r} is missing before {token.text!r}", line=token.line)
        return token

    def _take(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self._at += 1
        return True

    def _integer(self) -> int:
        negative = self._take("-")
        token = self._next()
        if token.kind != "number":
            raise PtxError(f"{token.text!r} is not a whole number", line=token.line)
        return -_number(token.text) if negative else _number(token.text)

    # --- module

    def module(self) -> Module:
        version, target = "", ""
        variables: list[Variable] = []
        kernels: dict[str, Kernel] = {}
        while self._at < len(self._tokens):
            token = self._next()
            match token.text:
                case ".version":
                    version = self._next().text
                case ".target":
                    target = self._next().text
                    while self._take(","):
                        self._next()
                case ".address_size":
                    if self._integer() != 64:
                        raise Unsupported("addresses of 64 bits are needed", line=token.line)
                case text if text in LINKING:
                    continue
                case text if text in SPACES:
                    variables += self._variables(SPACES[text])
                case ".entry":
                    kernel = self._kernel()
                    kernels[kernel.name] = kernel
                case ".func":
                    self._skip_function()
                case ".section":
                    self._skip_braces()
                case ".file" | ".alias" | ".pragma":
                    self._skip_line(token.line)
                case ";":
                    continue
                case _:
                    raise Unsupported(f"{token.text} is not read at the top of a file", line=token.line)
        total = sum(v.size_bytes or 0 for v in variables)
        if total > self._limits.max_static_bytes:
            raise PtxError(f"variables have {total} bytes, at most {self._limits.max_static_bytes} are admitted")
        return Module(version, target, tuple(variables), kernels)

    def _skip_line(self, line: int) -> None:
        while self._at < len(self._tokens) and self._tokens[self._at].line == line:
            self._at += 1

    def _skip_braces(self) -> None:
        while self._peek() != "{":
            self._next()
        depth = 0
        while True:
            text = self._next().text
            depth += (text == "{") - (text == "}")
            if depth == 0:
                return

    def _skip_function(self) -> None:
        while self._peek() not in (";", "{"):
            self._next()
        if not self._take(";"):
            self._skip_braces()

    def _variables(self, space: str) -> list[Variable]:
        """`.align 8 .b8 name[12] = {...}, ...;` after its space."""
        alignment, found = 0, []
        while self._peek() in (".align", ".attribute"):
            if self._next().text == ".align":
                alignment = self._integer()
            else:
                while not self._take(")"):
                    self._next()
        token = self._next()
        element, count = token.text[1:], 1
        if element in ("v2", "v4"):
            count, element = int(element[1]), self._next().text[1:]
        if element not in SIZES:
            raise Unsupported(f"variables of type {token.text} are not known", line=token.line)
        while True:
            name = self._next()
            size: int | None = SIZES[element] * count
            while self._take("["):
                if self._take("]"):
                    size = None
                else:
                    size = None if size is None else size * self._integer()
                    self._expect("]")
            data = self._initial(SIZES[element], name.line) if self._take("=") else b""
            align = alignment or SIZES[element] * count
            if align < 1 or align & (align - 1) or align > 1 << 20:
                raise PtxError(
                    f"variable {name.text}: an alignment of {align} bytes is not a power of two", line=name.line
                )
            if size is None and data:
                size = len(data)
            if size is not None and (size < 0 or size > self._limits.max_static_bytes or len(data) > size):
                raise PtxError(f"variable {name.text} has {size} bytes", line=name.line)
            found.append(Variable(name.text, space, size, align, data))
            if not self._take(","):
                break
        self._expect(";")
        return found

    def _initial(self, element_bytes: int, line: int) -> bytes:
        """The bytes of an initialiser: numbers only, nested braces in order."""
        data = bytearray()
        depth = 0
        while True:
            token = self._next()
            match token.kind:
                case "number":
                    data += (_number(token.text) & (1 << 8 * element_bytes) - 1).to_bytes(element_bytes, "little")
                case "float":
                    data += int(token.text[2:], 16).to_bytes(len(token.text) // 2 - 1, "little")
                case _ if token.text == "-":
                    data += (-self._integer() & (1 << 8 * element_bytes) - 1).to_bytes(element_bytes, "little")
                    if depth == 0:
                        return bytes(data)
                    continue
                case _ if token.text in "{},":
                    depth += (token.text == "{") - (token.text == "}")
                case _:
                    raise Unsupported(f"an initialiser with {token.text} is not read", line=line)
            if depth == 0:
                return bytes(data)
            if len(data) > self._limits.max_static_bytes:
                raise PtxError("an initialiser is too long", line=line)

    # --- kernels

    def _kernel(self) -> Kernel:
        name = self._next()
        parameters = self._parameters() if self._take("(") else ()
        threads = None
        while self._peek() in TUNING:
            token = self._next()
            if token.text == ".pragma":
                self._skip_statement()
                continue
            values = [self._integer()] if self._tokens[self._at].kind == "number" else []
            while self._take(","):
                values.append(self._integer())
            if token.text in (".maxntid", ".reqntid"):
                threads = values[0] * (values[1] if len(values) > 1 else 1) * (values[2] if len(values) > 2 else 1)
        if self._take(";"):
            raise Unsupported(f"kernel {name.text} has no body", line=name.line)
        self._expect("{")
        self._registers, self._opened = {}, 0
        self._scopes = [_Scope("")]
        body: list[Instruction | Mark] = []
        variables: list[Variable] = []
        while self._scopes:
            self._statement(body, variables)
            if len(body) > self._limits.max_instructions:
                raise PtxError(f"more than {self._limits.max_instructions} instructions", kernel=name.text)
            if len(self._registers) > self._limits.max_registers:
                raise PtxError(f"more than {self._limits.max_registers} registers are used", kernel=name.text)
        return Kernel(name.text, parameters, tuple(variables), dict(self._registers), tuple(body), name.line, threads)

    def _parameters(self) -> tuple[Parameter, ...]:
        found: list[Parameter] = []
        offset = 0
        while not self._take(")"):
            self._expect(".param")
            alignment, size = 0, 1
            while (token := self._next()).text.startswith("."):
                if token.text == ".align":
                    alignment = self._integer()
                elif token.text[1:] in SIZES:
                    size = SIZES[token.text[1:]]
                elif token.text not in (".ptr", ".global", ".const", ".shared"):
                    raise Unsupported(f"a parameter with {token.text} is not read", line=token.line)
            alignment = max(alignment, size) if size > 1 else alignment or 1
            if self._take("["):
                size *= self._integer()
                self._expect("]")
            if not 0 < alignment <= 4096 or alignment & (alignment - 1):
                raise PtxError(f"parameter {token.text}: an alignment of {alignment} bytes", line=token.line)
            offset = -(-offset // alignment) * alignment
            found.append(Parameter(token.text, offset, size, alignment))
            offset += size
            if offset > self._limits.max_parameter_bytes or size < 0:
                raise PtxError(
                    f"parameters need {offset} bytes, {self._limits.max_parameter_bytes} is the most", line=token.line
                )
            self._take(",")
        return tuple(found)

    def _skip_statement(self) -> None:
        while self._next().text != ";":
            pass

    def _statement(self, body: list[Instruction | Mark], variables: list[Variable]) -> None:
        token = self._next()
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
                self._declare()
            case ".shared" | ".local":
                variables += self._variables(token.text[1:])
            case ".pragma":
                self._skip_statement()
            case ".loc":
                self._skip_line(token.line)
            case text if text.startswith("."):
                raise Unsupported(f"{text} is not read inside a kernel", line=token.line)
            case _ if self._peek() == ":":
                self._at += 1
                if self._peek() in (".branchtargets",):
                    self._at += 1
                    targets = [self._next().text + self._scopes[-1].suffix]
                    while self._take(","):
                        targets.append(self._next().text + self._scopes[-1].suffix)
                    self._expect(";")
                    body.append(Mark(token.text + self._scopes[-1].suffix, token.line, tuple(targets)))
                elif self._peek().startswith(".call"):
                    self._skip_statement()
                else:
                    body.append(Mark(token.text + self._scopes[-1].suffix, token.line))
            case _:
                self._at -= 1
                body.append(self._instruction())

    def _declare(self) -> None:
        """`.b32 %r<10>, %x;` after `.reg`."""
        kind = self._next()
        if kind.text[1:] not in SIZES and kind.text not in (".pred", ".b128"):
            raise Unsupported(f"registers of type {kind.text} are not known", line=kind.line)
        scope = self._scopes[-1]
        while True:
            name = self._next()
            if self._take("<"):
                scope.ranges[name.text] = (self._integer(), kind.text[1:])
                self._expect(">")
            else:
                scope.names[name.text] = kind.text[1:]
            if not self._take(","):
                break
        self._expect(";")

    def _instruction(self) -> Instruction:
        guard = None
        if self._take("@"):
            negated = self._take("!")
            token = self._next()
            found = self._register(token)
            if found is None or found.type != "pred":
                raise PtxError(f"{token.text} guards an instruction and is no predicate", line=token.line)
            guard = Register(found.name, found.type, negated)
        opcode = self._next()
        if opcode.kind != "word":
            raise PtxError(f"{opcode.text!r} begins no statement", line=opcode.line)
        operands: list[Operand] = []
        while not self._take(";"):
            if opcode.text.startswith("call"):
                self._skip_statement()
                break
            operands.append(self._operand())
            if not self._take(","):
                self._expect(";")
                break
        if opcode.text.startswith(("bra", "brx")):  # labels carry their scope, the innermost one with the name counts
            suffix = self._scopes[-1].suffix
            operands = [Symbol(one.name + suffix) if isinstance(one, Symbol) else one for one in operands]
        return Instruction(opcode.text, tuple(operands), opcode.line, guard)

    def _operand(self) -> Operand:
        if self._take("["):
            inner = self._single()
            offset = 0
            while self._peek() in ("+", "-"):
                sign = 1 if self._next().text == "+" else -1
                offset += sign * self._integer()
            if self._peek() == ",":
                raise Unsupported("addresses of tensors or textures are not read", line=self._tokens[self._at].line)
            line = self._expect("]").line
            if not isinstance(inner, Register | Symbol | Immediate):
                raise PtxError("an address needs a register or a name", line=line)
            return Address(inner, offset)
        if self._take("{"):
            items: list[Register | Immediate | None] = []
            while not self._take("}"):
                item = self._single()
                if isinstance(item, Symbol | Vector):
                    raise PtxError("a vector of names", line=self._tokens[self._at - 1].line)
                items.append(item)
                if len(items) > self._limits.max_vector:
                    raise PtxError(f"a vector of more than {self._limits.max_vector}", line=self._tokens[self._at].line)
                self._take(",")
            return Vector(tuple(items))
        single = self._single()
        if self._take("|"):
            other = self._single()
            if isinstance(single, Symbol) or isinstance(other, Symbol):
                raise PtxError("a pair of names", line=self._tokens[self._at - 1].line)
            return Vector((single, other), pair=True)
        if isinstance(single, Symbol) and self._take("+"):
            return Address(single, self._integer())
        return single

    def _single(self) -> Register | Immediate | Symbol | None:
        negated = self._take("!")
        minus = self._take("-")
        token = self._next()
        if minus and token.kind != "number":
            raise PtxError(f"-{token.text} is not read", line=token.line)
        match token.kind:
            case "number":
                return Immediate(-_number(token.text) if minus else _number(token.text))
            case "float":
                return Immediate(int(token.text[2:], 16), "f32" if token.text[1] in "fF" else "f64")
            case "word" if token.text == "_":
                return None
            case "word":
                register = self._register(token)
                if register is None:
                    return Symbol(token.text)
                return Register(register.name, register.type, negated)
        raise PtxError(f"{token.text!r} is no operand", line=token.line)

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


def _number(text: str) -> int:
    digits = text.rstrip("U")
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    if len(digits) > MOST_DIGITS or (octal and not set(digits) <= set("01234567")):
        raise PtxError(f"{text[:MOST_DIGITS]} is no number")
    return int(digits, 8 if octal else 0)
