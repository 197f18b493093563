"""PTX as frozen data: modules, kernels, variables, instructions and their operands.

    text --parse--> Module(kernels=(Kernel(body=(Instruction | Mark, ...)), ...))

Register names are unique in a kernel: those of an inner scope (`{ .reg .pred p; ... }`) are renamed by the parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    """`name` includes the percent sign; `type` is as declared (`b32`, `f32`, `pred`, ...), `sreg` for special ones."""

    name: str
    type: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer, or the bits of a `0f` (32) or `0d` (64) literal; `form` is `int`, `f32` or `f64`."""

    value: int
    form: str = "int"


@dataclass(frozen=True, slots=True)
class SymbolOperand:
    """A parameter, variable or label by name."""

    name: str


@dataclass(frozen=True, slots=True)
class AddressOperand:
    """`[base + offset_bytes]`."""

    base: Register | SymbolOperand | Immediate
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector operand `{a, b, ...}`; None stands for the sink `_`. A pair `p|q` is a vector with `pair` set."""

    items: tuple[Register | Immediate | None, ...]
    pair: bool = False


Operand = Register | Immediate | SymbolOperand | AddressOperand | Vector | None


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One PTX instruction. `opcode` is whole (`ld.global.nc.u16`), `parts` are its parts between dots (`::` stays
    inside a part); operands are in the order of the text."""

    opcode: str
    operands: tuple[Operand, ...]
    line: int
    guard: Register | None = None
    parts: tuple[str, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.opcode.split(".")))


@dataclass(frozen=True, slots=True)
class CodeLabel:
    """A label of the body, or, with `targets`, the list from which a `brx.idx` chooses."""

    name: str
    line: int
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter: its bytes lie at `offset_bytes` of the parameter block."""

    name: str
    offset_bytes: int
    size_bytes: int
    alignment_bytes: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A module or kernel variable. A `size_bytes` of None means dynamic shared memory (`extern`, without a length)."""

    name: str
    space: str
    size_bytes: int | None
    alignment_bytes: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class PtxKernel:
    """An entry point. `registers` has declared types by unique name; `variables` are those of its body (shared and
    local)."""

    name: str
    parameters: tuple[Parameter, ...]
    variables: tuple[Variable, ...]
    registers: Mapping[str, str]
    body: tuple[PtxInstruction | CodeLabel, ...]
    line: int
    max_threads: int | None = None

    @property
    def parameter_bytes(self) -> int:
        """Length of the parameter block."""
        return max((p.offset_bytes + p.size_bytes for p in self.parameters), default=0)


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX file. `target` is as written, for example `sm_90a`."""

    version: str
    target: str
    variables: tuple[Variable, ...]
    kernels: Mapping[str, PtxKernel]
