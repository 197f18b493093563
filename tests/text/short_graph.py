"""Graphs in short: a line an operator, in place of its tensors, stages and access maps.

    x = input 2 12 12 16
    conv0 = conv x 32 kernel=1x1 pads=0,0,0,0
    relu1 = relu conv0
    output relu1

Names on the left are those that the builder gives: kind and number of the operator; the value it makes is `relu1.out`.
A section that begins with `graph name=` is the compiler's own text form instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from partitioner.ir.graph import Constants, Graph, verify_graph
from partitioner.ir.graph_text import parse_graph
from tests.movement_graphs import MovementBuilder

__all__ = ["read_graph"]

Numbers = tuple[int, ...]
Maker = Callable[["Line"], str]


class Line:
    """`name = kind operand operand number number key=value`, with the operands looked up in the builder."""

    def __init__(self, text: str, builder: MovementBuilder) -> None:
        self.builder = builder
        self.name, _, made = (part.strip() for part in text.partition("="))
        self.kind, *words = made.split()
        self.keys = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        self.values = [builder_name(word, builder) for word in plain if not is_number(word)]
        self.numbers = tuple(int(word) for word in plain if is_number(word))

    def list(self, key: str, default: Numbers) -> Numbers:
        """The numbers of an option: 3x3 or 1,1,1,1."""
        text = self.keys.pop(key, "")
        return tuple(int(number) for number in text.replace("x", ",").split(",")) if text else default

    def number(self, key: str, default: int) -> int:
        return int(self.keys.pop(key, default))


def is_number(word: str) -> bool:
    return word.lstrip("-").isdigit()


def builder_name(word: str, builder: MovementBuilder) -> str:
    """An input as it is called, else the value that the operator makes."""
    return word if word in builder.inputs else f"{word}.out"


def _conv(line: Line) -> str:
    kernel, pads = line.list("kernel", (3, 3)), line.list("pads", (1, 1, 1, 1))
    return line.builder.conv(
        line.values[0],
        line.numbers[0],
        (kernel[0], kernel[1]),
        line.number("stride", 1),
        (pads[0], pads[1], pads[2], pads[3]),
        groups=line.number("groups", 1),
    )


def _pool(line: Line) -> str:
    kernel = line.list("kernel", (2, 2))
    return line.builder.pool(line.kind, line.values[0], (kernel[0], kernel[1]), line.number("stride", kernel[0]))


def _matmul(line: Line) -> str:
    """A product with a constant of so many columns."""
    rows = line.builder.shape(line.values[0])[-1]
    return line.builder.matmul(line.values[0], line.builder.normal(rows, line.numbers[0]))


MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        "conv": _conv,
        "matmul": _matmul,
        "max_pool": _pool,
        "average_pool": _pool,
        "softmax": lambda line: line.builder.softmax(line.values[0], line.numbers[0]),
        "concat": lambda line: line.builder.concat(line.numbers[0], *line.values),
        "view": lambda line: line.builder.view(line.values[0], *line.numbers),
        "transpose": lambda line: line.builder.transpose(line.values[0], *line.numbers),
        "reduce_mean": lambda line: line.builder.reduce("reduce_mean", line.values[0], *line.numbers),
        "relu": lambda line: line.builder.elementwise("relu", line.values[0]),
        "add": lambda line: line.builder.elementwise("add", *line.values),
        "mul": lambda line: line.builder.elementwise("mul", *line.values),
        "scale_shift": lambda line: line.builder.scale_shift(line.values[0]),
    }
)


def read_graph(text: str) -> tuple[Graph, Constants]:
    """The graph of a section, checked. Raises ValueError for a line that is none, or whose name is another's."""
    if text.lstrip().startswith("graph name="):
        graph = parse_graph(text)
        verify_graph(graph)
        return graph, {}
    builder = MovementBuilder("net")
    outputs: list[str] = []
    for written in (line.strip() for line in text.splitlines()):
        if not written or written.startswith("#"):
            continue
        if written.startswith("output "):
            outputs += [builder_name(word, builder) for word in written.split()[1:]]
            continue
        _append(Line(written, builder))
    return builder.build(*outputs)


def _append(line: Line) -> None:
    if line.kind == "input":
        made = line.builder.input(line.name, *line.numbers)
    elif line.kind in MAKERS:
        made = MAKERS[line.kind](line)
    else:
        raise ValueError(f"{line.kind} is not one of input, {', '.join(MAKERS)}")
    if made != builder_name(line.name, line.builder) or line.keys:
        raise ValueError(f"{line.name}: makes {made}" + (f"; options {', '.join(line.keys)}" if line.keys else ""))
