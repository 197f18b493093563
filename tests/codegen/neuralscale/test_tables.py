"""Tables of functions: every entry against 40 digits, and what the chip looks up against what is emulated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp, mpf

from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.tables_reference import FUNCTIONS as EMULATED
from codegen.neuralscale.emulation.tables_reference import looked_up
from codegen.neuralscale.kernels.tables import FUNCTIONS, TABLED, no_table, table_of, worth_a_table
from codegen.neuralscale.target import TARGET
from codegen.neuralscale.templates.elementwise import UNARY
from dsa_sched.frontend.graph.build import Built
from dsa_sched.frontend.graph.tables import with_tables
from hw_models.chip import Chip
from hw_models.loading import load_chip
from partitioner.ir.graph import Attribute, Constants, Graph, Op
from tests.chip_runs import compile_graph, small_chip, stcp920
from tests.small_graphs import GraphBuilder

KIB = 1024
STEP = 7
"""Every so many halves are worked out with many digits."""
ALL = np.arange(1 << 16, dtype=np.uint16)
VALUES = chip.from_bits(ALL)
Attributes = tuple[tuple[str, Attribute], ...]


def sigmoid(x: mpf) -> mpf:
    return 1 / (1 + mp.exp(-x))


def softplus(x: mpf) -> mpf:
    return mp.log1p(mp.exp(x))


def gelu(x: mpf) -> mpf:
    return x * mp.erfc(-x / mp.sqrt(2)) / 2


def near_gelu(x: mpf) -> mpf:
    return x * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3))) / 2


def power(exponent: float) -> Callable[[mpf], mpf]:
    return lambda x: mp.power(x, mpf(exponent))


def sign(x: mpf) -> mpf:
    return mp.sign(x)


Case = tuple[str, Attributes, Callable[[mpf], mpf]]
CASES: list[Case] = [
    ("log", (), mp.log),
    ("sin", (), mp.sin),
    ("cos", (), mp.cos),
    ("tan", (), mp.tan),
    ("asin", (), mp.asin),
    ("acos", (), mp.acos),
    ("atan", (), mp.atan),
    ("sinh", (), mp.sinh),
    ("cosh", (), mp.cosh),
    ("asinh", (), mp.asinh),
    ("acosh", (), mp.acosh),
    ("atanh", (), mp.atanh),
    ("floor", (), mp.floor),
    ("ceil", (), mp.ceil),
    ("round", (), mp.nint),
    ("sign", (), sign),
    ("power", (("exponent", 1.7),), power(1.7)),
    ("power", (("exponent", -3.0),), power(-3.0)),
    ("erf", (), mp.erf),
    ("gelu", (("approximate", "none"),), gelu),
    ("gelu", (("approximate", "tanh"),), near_gelu),
    ("softplus", (), softplus),
    ("mish", (), lambda x: x * mp.tanh(softplus(x))),
    ("sigmoid", (), sigmoid),
    ("tanh", (), mp.tanh),
]
"""Kind, attributes, the function by 40 digits."""


def name_of(case: Case) -> str:
    return " ".join((case[0], *(str(value) for _, value in case[1])))


def op_of(kind: str, attributes: Attributes) -> Op:
    return Op("f", kind, ("x",), ("y",), attributes, ())


def margin_of(exact: mpf, half: float) -> float:
    """How far inside the reach of `half` a number lies, relative to it: below zero where another half is nearer."""
    around = np.float16(np.copysign(65504, half) if np.isinf(half) else half)
    ends = []
    for way in (-np.inf, np.inf):
        with np.errstate(over="ignore"):
            step = float(np.nextafter(around, np.float16(way)))
        ends.append((float(around) + (np.copysign(65536.0, step) if np.isinf(step) else step)) / 2)
    if np.isinf(half):
        beyond = exact - ends[1] if half > 0 else ends[0] - exact
        return float(beyond / abs(exact))
    return float(min(exact - ends[0], ends[1] - exact) / abs(exact)) if exact else float(half == 0)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_every_entry_is_the_nearest_half(case: Case) -> None:
    """Spread over all halves: every exponent and both signs are met many times."""
    kind, attributes, function = case
    table = chip.from_bits(table_of(op_of(kind, attributes)).view(np.uint16))
    closest = 1.0
    with mp.workdps(40):
        for position in range(0, 1 << 16, STEP):
            x = float(VALUES[position])
            if not np.isfinite(x):
                continue
            try:
                exact = function(mpf(x))
            except (ValueError, ZeroDivisionError):
                continue
            if isinstance(exact, mp.mpc) or not mp.isfinite(exact):
                continue  # where the function is no real number: the other half of the tests
            margin = margin_of(exact, float(table[position]))
            assert margin >= 0, (x, float(table[position]), exact)
            if exact != mpf(float(table[position])):
                closest = min(closest, margin)
    assert closest > 2.0**-48  # sixteen steps of a double: what makes the tables is right to far fewer


LIMITS: dict[str, tuple[float, float]] = {
    "log": (np.nan, np.inf),
    "sin": (np.nan, np.nan),
    "cos": (np.nan, np.nan),
    "tan": (np.nan, np.nan),
    "asin": (np.nan, np.nan),
    "acos": (np.nan, np.nan),
    "atan": (-np.pi / 2, np.pi / 2),
    "sinh": (-np.inf, np.inf),
    "cosh": (np.inf, np.inf),
    "asinh": (-np.inf, np.inf),
    "acosh": (np.nan, np.inf),
    "atanh": (np.nan, np.nan),
    "floor": (-np.inf, np.inf),
    "ceil": (-np.inf, np.inf),
    "round": (-np.inf, np.inf),
    "sign": (-1, 1),
    "erf": (-1, 1),
    "gelu": (np.nan, np.inf),
    "softplus": (0, np.inf),
    "mish": (np.nan, np.inf),
    "sigmoid": (0, 1),
    "tanh": (-1, 1),
}
"""At minus and plus infinity: the limit, or NaN where the definition has infinity times zero or there is none."""


@pytest.mark.parametrize("case", [case for case in CASES if case[0] in LIMITS], ids=name_of)
def test_infinities_and_nan(case: Case) -> None:
    bits = table_of(op_of(case[0], case[1])).view(np.uint16)
    found = chip.from_bits(bits[[0xFC00, 0x7C00]])
    np.testing.assert_array_equal(found, np.float16(LIMITS[case[0]]).astype(np.float64))
    nan = (ALL & 0x7FFF) > 0x7C00
    assert set(bits[nan].tolist()) == {0x7C01}
    assert set(bits[np.isnan(chip.from_bits(bits))].tolist()) == {0x7C01}


def test_undefined_and_infinite_places() -> None:
    def at(kind: str, *values: float, exponent: float = 0.0) -> list[str]:
        table = table_of(op_of(kind, (("exponent", exponent),)))
        return [str(float(table[np.float16(value).view(np.uint16)])) for value in values]

    assert at("log", 0.0, -0.0, -1.0) == ["-inf", "-inf", "nan"]
    assert at("atanh", 1.0, -1.0, 1.5) == ["inf", "-inf", "nan"]
    assert at("asin", 1.25) == at("acos", -1.25) == at("acosh", 0.5) == ["nan"]
    assert at("sinh", 12.0, -12.0) == ["inf", "-inf"]
    assert at("round", 0.5, 1.5, 2.5, -0.5) == ["0.0", "2.0", "2.0", "-0.0"]
    assert at("ceil", -0.5) == ["-0.0"]
    assert at("sign", -0.0, 0.0, -(2.0**-24)) == ["0.0", "0.0", "-1.0"]
    assert at("power", -2.0, 0.0, exponent=1.5) == ["nan", "0.0"]
    assert at("power", -2.0, -0.0, exponent=-3.0) == ["-0.125", "-inf"]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_emulation_says_the_same_of_every_half(case: Case) -> None:
    kind, attributes, _ = case
    op = op_of(kind, attributes)
    emulated = looked_up(op_of("lookup", (("function", kind), *attributes)), VALUES)
    np.testing.assert_array_equal(chip.to_bits(emulated), table_of(op).view(np.uint16))


def test_every_function_is_emulated_and_tested() -> None:
    assert FUNCTIONS.keys() == EMULATED.keys() == {kind for kind, *_ in CASES}
    assert {*TABLED} == FUNCTIONS.keys() - UNARY.keys()


def tabled(graph: Graph, constants: Constants) -> tuple[Graph, Constants]:
    """All operators that can be looked up, whatever is worth it."""
    built = with_tables(
        Built(graph, dict(constants), (), {}), lambda _graph, op: table_of(op) if op.kind in FUNCTIONS else None
    )
    return built.graph, built.constants


def every_half(builder: GraphBuilder) -> str:
    """A value that holds each of the 65,536 halves once."""
    return builder.input("x", 8, 64, 128)


@pytest.mark.parametrize(
    ("kind", "attributes"), [("log", ()), ("gelu", (("approximate", "none"),)), ("round", ())], ids=["log", "gelu", "round"]
)
def test_every_half_through_the_machine_code(kind: str, attributes: Attributes) -> None:
    builder = GraphBuilder("all")
    graph, constants = tabled(*builder.build(builder.elementwise(kind, every_half(builder), attributes=attributes)))
    compiled = compile_graph(graph, constants)
    stored = compiled.run({"x": ALL.reshape(8, 64, 128)})
    table = table_of(op_of(kind, attributes)).view(np.uint16)
    np.testing.assert_array_equal(stored[graph.outputs[0]].reshape(-1), table)


def network() -> tuple[Graph, Constants]:
    """Lookups alone, behind others, behind a product, a convolution and a pool, and two by one table."""
    builder = GraphBuilder("network", 3)
    x, image = builder.input("x", 40, 96), builder.input("image", 1, 9, 10, 24)
    alone = builder.elementwise("sin", x)
    behind = builder.elementwise("cos", builder.elementwise("add", alone, x))
    product = builder.elementwise("sin", builder.matmul(behind, builder.normal(96, 70, scale=0.1)))
    convolved = builder.elementwise("atan", builder.conv(image, 40))
    pooled = builder.elementwise("tanh", builder.pool("average_pool", convolved, (3, 3)))
    row = builder.elementwise("log", builder.input("row", 65536))
    return builder.build(behind, product, pooled, row, builder.elementwise("sinh", builder.softmax(x)))


def test_lookups_wherever_they_stand() -> None:
    compiled = compile_graph(*tabled(*network()))
    compiled.check()
    tables = [tensor for tensor in compiled.graph.tensors if tensor.name.startswith("table::")]
    assert sorted(tensor.name for tensor in tables) == [f"table::{f}" for f in ("atan", "cos", "log", "sin", "sinh", "tanh")]
    looked = [instr for stream in compiled.program.streams for instr in stream.instrs if instr.opcode == "velut.m"]
    assert {instr.reads[1].size_bytes for instr in looked} == {1 << 17}
    assert {instr.reads[1].memory for instr in looked} == {"L1"}


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_every_level_stores_the_same_bits(level: str) -> None:
    graph, constants = tabled(*network())
    plain, other = compile_graph(graph, constants), compile_graph(graph, constants, level=level)
    inputs = plain.inputs()
    first, second = plain.run(inputs), other.run(inputs)
    for name in graph.outputs:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_small_memories_have_no_tables() -> None:
    assert no_table(stcp920()) is None
    assert no_table(small_chip(weights_bytes=128 * KIB, data_bytes=256 * KIB)) is None
    assert no_table(small_chip(weights_bytes=64 * KIB)) == (
        "a table of 131072 bytes, for which the weights part of L1 must have 131072 bytes and has 65536"
    )
    assert no_table(small_chip(weights_bytes=128 * KIB, data_bytes=128 * KIB)) == (
        "a table of 131072 bytes, for which the data part of L1 must have 262144 bytes and has 131072"
    )
    assert no_table(small_chip(1, 100 * KIB, 100 * KIB, enforced=False)) == (
        "a table of 131072 bytes, for which L1 must have 262144 bytes and has 204800"
    )


def unary(kind: str, *shape: int, attributes: Attributes = ()) -> tuple[Graph, Op]:
    builder = GraphBuilder("unary")
    graph, _ = builder.build(builder.elementwise(kind, builder.input("x", *shape), attributes=attributes))
    return graph, graph.ops[0]


def test_what_has_no_formula_is_refused_by_name_on_a_small_chip() -> None:
    small = small_chip(weights_bytes=64 * KIB)
    graph, op = unary("cos", 3, 4)
    assert TARGET.table_for(graph, op, small) is None
    assert TARGET.accepts(graph, op, {}, small) == f"cos needs {no_table(small)}"
    graph, op = unary("erf", 1, 1 << 22)
    assert TARGET.table_for(graph, op, small) is None
    assert TARGET.accepts(graph, op, {}, small) is None


def looked(chip: Chip, kind: str, *shape: int) -> bool:
    return worth_a_table(*unary(kind, *shape, attributes=(("approximate", "none"),)), chip)


def test_a_formula_gives_way_where_its_passes_take_longer_than_the_table() -> None:
    """GELU has eight passes: on eight cores of 64 elements a cycle a table of 2,048 cycles is worth it from about
    150,000 elements of an item on, at any batch."""
    whole = stcp920()
    assert looked(whole, "log", 1, 1)
    assert not looked(whole, "gelu", 8, 128, 768)
    assert looked(whole, "gelu", 1, 128, 3072)
    assert [looked(whole, "gelu", batch, 100, 1400) for batch in (1, 64)] == [False, False]
    slow = whole.model_copy(update={"assumed": whole.assumed.model_copy(update={"lookup_cycles": 16.0})})
    assert not looked(slow, "gelu", 1, 128, 3072)
    assert looked(slow, "log", 1, 1)
    assert not looked(whole, "relu", 1, 1 << 22)


def test_the_rate_of_lookups_is_the_chip_files() -> None:
    whole = stcp920()
    slow = whole.model_copy(update={"assumed": whole.assumed.model_copy(update={"lookup_cycles": 4.0})})
    builder = GraphBuilder("rate")
    graph, constants = tabled(*builder.build(builder.elementwise("sin", builder.input("x", 64, 1024))))

    def cycles(chip: Chip) -> set[float]:
        program = compile_graph(graph, constants, chip).program
        return {instr.cycles for stream in program.streams for instr in stream.instrs if instr.opcode == "velut.m"}

    assert cycles(whole) == {10.0 + 128}
    assert cycles(slow) == {10.0 + 512}
    assert whole.hash == load_chip("stcp920").hash != slow.hash
