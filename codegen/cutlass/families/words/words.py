"""Launches of operators on integers: the prepared ones before all kernels of a plan, the concluded ones after them.

    words(function=add), take, lookup, join, cumsum, reduce, number, ordered, whole  -->  words.cu with their statements

Values are words of 32 bits in row-major order (`dsa_sched/frontend/integers`). Whatever an index holds, only the table
is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from codegen.cutlass.kernel.launches import Address, Argument, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.chip import Chip
from hw_models.errors import TargetError
from partitioner.ir.graph import Graph, Op

BLOCK, WARP = 256, 32
WIDE_BYTES = 16
TYPES: Mapping[str, str] = {"int32": "int", "float16": "half"}
"""Types of values in C++."""

FUNCTIONS: Mapping[str, str] = {
    "add": "int(unsigned(a) + unsigned(b))",
    "sub": "int(unsigned(a) - unsigned(b))",
    "mul": "int(unsigned(a) * unsigned(b))",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "not": "a ^ 1",
    "min": "a < b ? a : b",
    "max": "a > b ? a : b",
    "equal": "a == b",
    "less": "a < b",
    "greater": "a > b",
    "less_equal": "a <= b",
    "greater_equal": "a >= b",
    "neg": "int(0u - unsigned(a))",
    "abs": "a < 0 ? int(0u - unsigned(a)) : a",
    "truth": "a != 0",
    "copy": "a",
    "where": "a != 0 ? b : c",
    "div": "quotient(a, b)",
    "remainder": "remainder_of(a, b)",
    "mod": "modulo(a, b)",
}
"""C++ of functions of one element of each operand."""

REDUCTIONS: Mapping[str, tuple[str, str]] = {
    "sum": ("0", "best = int(unsigned(best) + unsigned(other));"),
    "greatest": ("(-2147483647 - 1)", "best = other > best ? other : best;"),
    "least": ("2147483647", "best = other < best ? other : best;"),
    "place_of_greatest": ("(-2147483647 - 1)", "other > best"),
    "place_of_least": ("2147483647", "other < best"),
}
"""First value of reductions along lines, and the statement that takes another one; of places, the condition."""

KINDS = frozenset(["words", "take", "lookup", "join", "cumsum", "reduce", "number", "ordered", "whole"])


@dataclass(frozen=True, slots=True)
class _Code:
    """Statements of a kernel, its parameters after the first two, arguments for them, and the number of results."""

    statements: str
    parameters: str
    arguments: tuple[Argument, ...]
    count: int
    warp: bool = False
    result: str = ""
    plus_bytes: int = 0


def refused_words(graph: Graph, op: Op, chip: Chip) -> str | None:
    """Why no kernel does an operator on integers; None where one does."""
    del chip
    if op.kind not in KINDS:
        return f"no kernel does this {op.kind} of integers"
    for name in (*op.inputs, *op.outputs):
        if graph.by_name[name].dtype not in TYPES:
            return f"{name} is {graph.by_name[name].dtype}; kernels on integers have {' and '.join(TYPES)}"
    return None


def word_launches(graph: Graph, op: Op) -> tuple[Launch, ...]:
    """The launches of one operator, in order. Raises TargetError for a kind that none does."""
    rules = {"words": _function, "take": _take, "lookup": _lookup, "cumsum": _running_sum, "reduce": _reduction}
    if op.kind == "join":
        return tuple(_launch(graph, op, code) for code in _joined(graph, op))
    rule = rules.get(op.kind, _converted)
    if op.kind not in KINDS:
        raise TargetError(f"operator {op.name}", needs=f"one of {', '.join(sorted(KINDS))}", has=op.kind)
    return (_launch(graph, op, rule(graph, op)),)


def _launch(graph: Graph, op: Op, code: _Code) -> Launch:
    result = code.result or TYPES[graph.by_name[op.outputs[0]].dtype]
    text = filled(
        "words.cu",
        TYPES=f"using Result = {result};",
        PARAMETERS=code.parameters,
        STATEMENTS=code.statements,
        WARP=code.warp,
    )
    blocks = -(-code.count * (WARP if code.warp else 1) // BLOCK)
    arguments = (Address(op.outputs[0], written=True, plus_bytes=code.plus_bytes), code.count, *code.arguments)
    name = f"words_{op.attribute('function') if op.kind in ('words', 'reduce') else op.kind}"
    return Launch(Source(name, source_text("common.cuh") + text), "words", (blocks, 1, 1), (BLOCK, 1, 1), arguments)


def _count(graph: Graph, name: str) -> int:
    return prod(graph.by_name[name].shape)


def _function(graph: Graph, op: Op) -> _Code:
    """A function of one element of each operand; an operand of one element is the same for all."""
    letters = "abc"[: len(op.inputs)]
    parameters = "".join(f", const int* __restrict__ of_{letter}, int step_{letter}" for letter in letters)
    arguments: list[Argument] = []
    for name in op.inputs:
        arguments += [Address(name), 0 if _count(graph, name) == 1 else 1]
    lines = [f"const int {letter} = of_{letter}[i * step_{letter}];" for letter in letters]
    lines.append(f"y[i] = {FUNCTIONS[str(op.attribute('function'))]};")
    return _Code("\n  ".join(lines), parameters, tuple(arguments), _count(graph, op.outputs[0]))


def _take(graph: Graph, op: Op) -> _Code:
    """Words at places."""
    source, index = op.inputs
    return _Code(
        "y[i] = a[inside(index[i], rows)];",
        ", const Result* __restrict__ a, const int* __restrict__ index, int rows",
        (Address(source), Address(index), _count(graph, source)),
        _count(graph, op.outputs[0]),
    )


def _lookup(graph: Graph, op: Op) -> _Code:
    """Rows of a table, `step` elements apart, 16 bytes at a time where they lie at such places."""
    table, index = op.inputs
    tensor = graph.by_name[op.outputs[0]]
    rows, size, lines = int(op.number("rows")), _count(graph, table), _count(graph, index)
    width = _count(graph, op.outputs[0]) // lines
    step = int(op.number("step")) if "step" in dict(op.attributes) else size // rows
    together = WIDE_BYTES // tensor.item_bytes
    unit = together if gcd(width, step, together) == together else 1
    return _Code(
        "const int row = i / units, unit = i % units;\n  y[i] = table[inside(index[row], rows) * step + unit];",
        ", const Result* __restrict__ table, const int* __restrict__ index, int rows, int units, int step",
        (Address(table), Address(index), rows, width // unit, step // unit),
        lines * width // unit,
        result="" if unit == 1 else "uint4",
    )


def _joined(graph: Graph, op: Op) -> tuple[_Code, ...]:
    """Operands side by side in each of `outer` rows: a launch each."""
    result, codes, at = op.outputs[0], list[_Code](), 0
    outer, item = int(op.number("outer")), graph.by_name[op.outputs[0]].item_bytes
    step = _count(graph, result) // outer
    for name in op.inputs:
        length = _count(graph, name) // outer
        codes.append(
            _Code(
                "y[i / length * step + i % length] = a[i];",
                ", const Result* __restrict__ a, int length, int step",
                (Address(name), length, step),
                outer * length,
                plus_bytes=at * item,
            )
        )
        at += length
    return tuple(codes)


def _converted(graph: Graph, op: Op) -> _Code:
    """Numbers of integers, integers in the order of numbers, of all or of those at places; whole numbers."""
    source, count = op.inputs[0], _count(graph, op.outputs[0])
    given = TYPES[graph.by_name[source].dtype]
    if len(op.inputs) == 1:
        return _Code(f"y[i] = {op.kind}(a[i]);", f", const {given}* __restrict__ a", (Address(source),), count)
    return _Code(
        f"y[i] = {op.kind}(a[inside(index[i], rows)]);",
        f", const {given}* __restrict__ a, const int* __restrict__ index, int rows",
        (Address(source), Address(op.inputs[1]), _count(graph, source)),
        count,
    )


LINE = ", const int* __restrict__ a, int length, int inner"
FIRST = "a += i / inner * length * inner + i % inner;"


def _line_of(op: Op) -> tuple[int, tuple[Argument, ...]]:
    """Number of lines, and arguments of `LINE`."""
    outer, length, inner = (int(op.number(name)) for name in ("outer", "count", "inner"))
    return outer * inner, (Address(op.inputs[0]), length, inner)


def _running_sum(_graph: Graph, op: Op) -> _Code:
    """A thread adds up a line."""
    lines, arguments = _line_of(op)
    exclusive, reverse = (bool(op.number(name)) for name in ("exclusive", "reverse"))
    at = "(length - 1 - k) * inner" if reverse else "k * inner"
    stored = "sum - own" if exclusive else "sum"
    statements = f"""{FIRST}
  y += i / inner * length * inner + i % inner;
  unsigned sum = 0;
  for (int k = 0; k < length; ++k) {{
    const unsigned own = a[{at}];
    sum += own;
    y[{at}] = int({stored});
  }}"""
    return _Code(statements, LINE, arguments, lines)


def _reduction(_graph: Graph, op: Op) -> _Code:
    """A warp reduces a line; of equal elements the place of the first one counts, or of the last one."""
    lines, arguments = _line_of(op)
    first, better = REDUCTIONS[str(op.attribute("function"))]
    of_places = str(op.attribute("function")).startswith("place")
    if not of_places:
        statements = f"""{FIRST}
  int best = {first};
  for (int k = threadIdx.x % 32; k < length; k += 32) {{
    const int other = a[k * inner];
    {better}
  }}
  for (int apart = 16; apart > 0; apart /= 2) {{
    const int other = __shfl_xor_sync(0xffffffffu, best, apart);
    {better}
  }}
  if (threadIdx.x % 32 == 0) y[i] = best;"""
        return _Code(statements, LINE, arguments, lines, warp=True)
    later = ">" if op.number("last") else "<"
    taken = (
        f"if (place < 0 || (at >= 0 && ({better} || (other == best && at {later} place)))) best = other, place = at;"
    )
    statements = f"""{FIRST}
  int best = {first}, place = -1;
  for (int at = threadIdx.x % 32; at < length; at += 32) {{
    const int other = a[at * inner];
    {taken}
  }}
  for (int apart = 16; apart > 0; apart /= 2) {{
    const int other = __shfl_xor_sync(0xffffffffu, best, apart), at = __shfl_xor_sync(0xffffffffu, place, apart);
    {taken}
  }}
  if (threadIdx.x % 32 == 0) y[i] = place;"""
    return _Code(statements, LINE, arguments, lines, warp=True)
