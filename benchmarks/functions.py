"""Accuracy of functions of one operand over all fp16 numbers: `python benchmarks/functions.py`.

Each function is compiled as a network of one operator, run on the simulator with every one of the 65,536 operands, and
held against float64. What is counted are finite operands whose exact result is a normal fp16 number. Keys of a row:

    function           as in the table of benchmarks/results/functions.md
    way                `formula`, or `table` where the chip looks the function up
    largest, mean      relative errors: the largest magnitude, and the mean of the signed ones
    steps_back         operands whose result is on the wrong side of the one before, null where the function turns
    cycles_per_1000    of the vector engine for 1,000 elements, in a kernel of 64 x 1,024 on one core
    cycles_before      the same of the formulas that there were before those of today, null where there were none

`--docs FILE` writes the table between its marks in FILE.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper, save

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

import dsa_sched
from benchmarks.output import add_outputs, finish, table
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from partitioner.planners.levels import O0

CHIP = "stcp920"
SMALLEST_NORMAL, LARGEST = 2.0**-14, 65504.0
BOUND, BIAS = 2.0**-8, 2.0**-12
"""What a function is to reach: the largest relative error, and the signed mean."""

MARKS = ("<!-- functions -->", "<!-- end of functions -->")

Doubles = npt.NDArray[np.float64]
Function = Callable[[Doubles], Doubles]
Spelling = tuple[tuple[str, tuple[str, ...], Mapping[str, Any]], ...]
"""Nodes in order: operator, inputs, attributes. `x` is the network's input; `0`, `1`, ... are the nodes before, and
other names numbers, as constants of one element."""


@dataclass(frozen=True)
class Case:
    """A function, how a file has it, what it is, in which direction it is monotone (0 where it turns), and the operands
    at which its result must be the given one exactly."""

    name: str
    spelling: Spelling
    exact: Function
    direction: int = 0
    odd: bool = False
    fixed: tuple[tuple[float, float], ...] = ()
    pairs: bool = False
    """Whether the operand is the first of a line whose other number is 0; cycles are those of lines of 1,024."""


@dataclass(frozen=True)
class Row:
    """Figures of a function; see above."""

    function: str
    way: str
    largest: float
    mean: float
    steps_back: int | None
    cycles_per_1000: float
    cycles_before: float | None


def _sigmoid(x: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Doubles) -> Doubles:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _erf(x: Doubles) -> Doubles:
    return np.array([math.erf(value) for value in x])


def _tail(x: Doubles) -> Doubles:
    """The normal distribution, without the difference to one."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x])


def _elu(alpha: float, gamma: float = 1.0, rate: float = 1.0) -> Function:
    return lambda x: gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / rate))


def _one(op_type: str, **attributes: float | str) -> Spelling:
    return ((op_type, ("x",), attributes),)


def _swish(alpha: float) -> Spelling:
    if alpha == 1:
        return (("Sigmoid", ("x",), {}), ("Mul", ("x", "0"), {}))
    return (("Mul", ("x", str(alpha)), {}), ("Sigmoid", ("0",), {}), ("Mul", ("x", "1"), {}))


def _power(exponent: float) -> Spelling:
    return (("Pow", ("x", str(exponent)), {}),)


SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
ROOT = math.sqrt(2 / math.pi)

CASES = (
    Case("Sigmoid", _one("Sigmoid"), _sigmoid, 1, fixed=((16, 1), (65504, 1), (0, 0.5), (-65504, 0))),
    Case("Softmax", _one("Softmax"), _sigmoid, fixed=((12, 1), (65504, 1), (0, 0.5), (-65504, 0)), pairs=True),
    Case("Tanh", _one("Tanh"), np.tanh, 1, True, ((10, 1), (-10, -1), (0, 0), (65504, 1))),
    Case("SiLU", _swish(1), lambda x: x * _sigmoid(x), fixed=((65504, 65504), (16, 16), (0, 0))),
    Case("Swish, alpha 1.702", _swish(1.702), lambda x: x * _sigmoid(1.702 * x)),
    Case("Swish, alpha 0.3", _swish(0.3), lambda x: x * _sigmoid(0.3 * x)),
    Case("Swish, alpha -1", _swish(-1.0), lambda x: x * _sigmoid(-x)),
    Case("HardSwish", _one("HardSwish"), lambda x: x * (np.clip(x + 3, 0, 6) / 6), fixed=((65504, 65504), (-3, 0))),
    Case("Gelu", _one("Gelu"), lambda x: x * _tail(x), fixed=((65504, 65504), (0, 0))),
    Case(
        "Gelu, tanh",
        _one("Gelu", approximate="tanh"),
        lambda x: x * _sigmoid(2 * ROOT * (x + 0.044715 * x**3)),
        fixed=((65504, 65504), (0, 0)),
    ),
    Case("Erf", _one("Erf"), _erf, 1, True, ((10, 1), (-10, -1), (0, 0))),
    Case("Softplus", _one("Softplus"), _softplus, 1, fixed=((32, 32), (65504, 65504))),
    Case("Mish", _one("Mish"), lambda x: x * np.tanh(_softplus(x)), fixed=((65504, 65504), (0, 0))),
    Case("Elu", _one("Elu", alpha=1.0), _elu(1), 1, fixed=((-20, -1), (0, 0), (65504, 65504))),
    Case("Selu", _one("Selu"), _elu(SELU_ALPHA, SELU_GAMMA), 1, fixed=((0, 0),)),
    Case("Celu, alpha 2", _one("Celu", alpha=2.0), _elu(2, 1, 2), 1, fixed=((0, 0), (65504, 65504))),
    Case("Exp", _one("Exp"), np.exp, 1, fixed=((0, 1), (-65504, 0))),
    Case("Log", _one("Log"), np.log, 1, fixed=((1, 0),)),
    Case("Sqrt", _one("Sqrt"), np.sqrt, 1, fixed=((0, 0), (1, 1), (4, 2))),
    Case("Reciprocal", _one("Reciprocal"), lambda x: 1 / x, -1, True, ((1, 1), (2, 0.5), (-1, -1))),
    Case("Pow, 2", _power(2.0), lambda x: x**2, fixed=((1, 1), (-2, 4))),
    Case("Pow, 3", _power(3.0), lambda x: x**3, 1, True, ((1, 1), (2, 8))),
    Case("Pow, -0.5", _power(-0.5), lambda x: x**-0.5, -1, fixed=((1, 1), (4, 0.5))),
    Case("Pow, 1.7", _power(1.7), lambda x: x**1.7, 1, fixed=((1, 1),)),
)


def finite_numbers() -> npt.NDArray[np.float16]:
    """All finite fp16 numbers in ascending order, -0 before +0."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    negative, positive = values[0xFBFF:0x7FFF:-1], values[:0x7C00]
    return np.concatenate([negative, positive])


def write_model(case: Case, path: Path, shape: tuple[int, ...]) -> None:
    """A network of the function alone, of fp32 as files are."""
    nodes, constants = [], {}
    for number, (op_type, inputs, attributes) in enumerate(case.spelling):
        last = number == len(case.spelling) - 1
        for name in inputs:
            if "." in name:
                constants[name] = numpy_helper.from_array(np.array(float(name), np.float32), name)
        node = helper.make_node(op_type, list(inputs), ["y" if last else str(number)])
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        nodes.append(node)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "function", ends[:1], ends[1:], list(constants.values()))
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)


def results(case: Case, values: npt.NDArray[np.float16]) -> Doubles:
    """What the compiled network makes of the values."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "function.onnx")
        x = np.stack([values, np.zeros_like(values)], 1) if case.pairs else values[None]
        write_model(case, path, x.shape)
        artifact = dsa_sched.compile(path, CHIP, level="O0")
        with np.errstate(invalid="ignore"):  # results that are not numbers
            y = np.asarray(artifact.run({"x": x.astype(np.float32)})["y"], np.float64)
        return y[:, 0] if case.pairs else y[0]


def exact_results(case: Case, values: npt.NDArray[np.float16]) -> Doubles:
    with np.errstate(all="ignore"):
        return case.exact(values.astype(np.float64))


def relative_errors(found: Doubles, exact: Doubles) -> Doubles:
    """Of the results that count; infinite where one that is finite is not."""
    with np.errstate(invalid="ignore"):
        counted = np.isfinite(exact) & (np.abs(exact) >= SMALLEST_NORMAL) & (np.abs(exact) <= LARGEST)
        errors = found[counted] / exact[counted] - 1
    return np.where(np.isfinite(errors), errors, np.inf)


def steps_back(found: Doubles, exact: Doubles, direction: int) -> int:
    """Neighbours in the wrong order, of those whose results count or are zero."""
    with np.errstate(invalid="ignore"):
        counted = np.isfinite(exact) & ((np.abs(exact) >= SMALLEST_NORMAL) | (exact == 0)) & (np.abs(exact) <= LARGEST)
    return int(np.count_nonzero(np.diff(found[counted]) * direction < 0))


def vector_cycles(case: Case) -> tuple[str, float]:
    """How the function is computed in a kernel of 65,536 elements on one core, and its cycles for 1,000 of them."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "function.onnx")
        write_model(case, path, (64, 1024))
        compiled = compile_model(path, CHIP, CompileOptions(O0()))
    instrs = [each for stream in compiled.program.streams for each in stream.instrs if each.engine == "vector"]
    way = "table" if any(each.opcode == "velut.m" for each in instrs) else "formula"
    return way, sum(each.cycles for each in instrs) / 65.536


def measured(case: Case, before: float | None) -> Row:
    values = finite_numbers()
    found, exact = results(case, values), exact_results(case, values)
    errors = relative_errors(found, exact)
    back = None
    if case.direction == 1:
        back = steps_back(found, exact, 1)
    elif case.direction == -1:  # on either side of zero by itself
        back = sum(steps_back(found[side], exact[side], -1) for side in (values < 0, values > 0))
    way, cycles = vector_cycles(case)
    return Row(case.name, way, float(np.abs(errors).max()), float(errors.mean()), back, cycles, before)


BEFORE: Mapping[str, float] = {
    "Sigmoid": 67,
    "Softmax": 125,
    "Tanh": 101,
    "SiLU": 84,
    "Swish, alpha 1.702": 101,
    "Swish, alpha 0.3": 101,
    "Swish, alpha -1": 101,
    "HardSwish": 84,
    "Gelu": 135,
    "Gelu, tanh": 135,
    "Erf": 337,
    "Softplus": 236,
    "Mish": 135,
    "Elu": 101,
    "Selu": 118,
    "Celu, alpha 2": 118,
    "Exp": 17,
    "Sqrt": 34,
    "Reciprocal": 34,
    "Pow, 2": 17,
    "Pow, 3": 34,
    "Pow, -0.5": 67,
}
"""Cycles per 1,000 elements of the formulas before those of today, by this script on the sources of that time."""


def markdown(rows: Sequence[Row]) -> str:
    def cells(row: Row) -> tuple[str, ...]:
        back = "" if row.steps_back is None else str(row.steps_back)
        before = "" if row.cycles_before is None else f"{row.cycles_before:.0f}"
        errors = f"{100 * row.largest:.2f} %", f"{100 * row.mean:+.3f} %"
        return (row.function, row.way, *errors, back, before, f"{row.cycles_per_1000:.0f}")

    headings = ("function", "by", "largest error", "mean", "steps back", "cycles before", "cycles now")
    return table(headings, map(cells, rows))


def with_table(text: str, rows: Sequence[Row]) -> str:
    """The page with the table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{markdown(rows)}\n{MARKS[1]}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the table between the marks in FILE")
    parser.add_argument("--function", action="append", metavar="NAME", help="only this one; may be repeated")
    add_outputs(parser)
    options = parser.parse_args()
    chosen = [case for case in CASES if not options.function or case.name in options.function]
    rows = [measured(case, BEFORE.get(case.name)) for case in chosen]
    if options.docs is not None:
        page = with_table(options.docs.read_text("utf-8"), rows)
        write_whole(options.docs, lambda stream: stream.write(page.encode()))
    finish(options, [asdict(row) for row in rows], markdown(rows))


if __name__ == "__main__":
    main()
