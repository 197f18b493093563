"""Tables of functions: every entry against 40 digits, and what the chip looks up against what is emulated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp, mpf

from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.tables_reference import FUNCTIONS as EMULATED
from codegen.neuralscale.emulation.tables_reference import looked_up
from codegen.neuralscale.kernels.tables import CURVED, TABLED, no_table, table_of
from codegen.neuralscale.target import TARGET
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


def power(exponent: float) -> Callable[[mpf], mpf]:
    return lambda x: mp.power(x, mpf(exponent))


def softplus(x: mpf) -> mpf:
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


def elu(x: mpf, alpha: float, rate: float = 1.0) -> mpf:
    return x if x > 0 else alpha * mp.expm1(x / mpf(rate))


def near_gelu(x: mpf) -> mpf:
    return x * mp.sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3))


def sign(x: mpf) -> mpf:
    return mp.sign(x)


def shrink(x: mpf, lambd: float, bias: float) -> mpf:
    return x + mpf(bias) if x < -lambd else x - mpf(bias) if x > lambd else mpf(0)


def held(x: mpf, least: float) -> mpf:
    return max(x, mpf(least))


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
    ("shrink", (("lambd", 0.5), ("bias", 0.0)), lambda x: shrink(x, 0.5, 0.0)),
    ("shrink", (("lambd", 1.25), ("bias", 0.7)), lambda x: shrink(x, 1.25, 0.7)),
    ("exp", (), mp.exp),
    ("sigmoid", (), lambda x: mp.sigmoid(x)),
    ("swish", (("alpha", 1.702),), lambda x: x * mp.sigmoid(mpf(1.702) * x)),
    ("tanh", (), mp.tanh),
    ("softplus", (), softplus),
    ("elu", (("alpha", 1.5),), lambda x: elu(x, 1.5)),
    ("selu", (("alpha", 1.67), ("gamma", 1.0507)), lambda x: elu(x, 1.67) * mpf(1.0507)),
    ("celu", (("alpha", 2.0),), lambda x: elu(x, 2.0, 2.0)),
    ("gelu", (("approximate", "none"),), lambda x: x * mp.ncdf(x)),
    ("gelu", (("approximate", "tanh"),), near_gelu),
    ("erf", (), mp.erf),
    ("mish", (), lambda x: x * mp.tanh(softplus(x))),
    ("sqrt", (), mp.sqrt),
    ("reciprocal", (), lambda x: 1 / x),
    ("power", (("exponent", 1.7),), power(1.7)),
    ("power", (("exponent", -3.0),), power(-3.0)),
    ("formula", (("steps", "square, add 1e-10, log"),), lambda x: mp.log(x * x + mpf(1e-10))),
    (
        "formula",
        (("steps", "max 1e-12, log, mul 4.25, min 3.0, neg"),),
        lambda x: -min(mp.log(held(x, 1e-12)) * 4.25, 3),
    ),
    ("formula", (("steps", "abs, add 1e-06, power -0.98"),), lambda x: power(-0.98)(abs(x) + mpf(1e-6))),
    ("formula", (("steps", "reciprocal, abs, sqrt, log"),), lambda x: mp.log(mp.sqrt(abs(1 / x)))),
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


@pytest.mark.spread(13)
@pytest.mark.parametrize("case", CASES, ids=name_of)
@pytest.mark.commit
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
}
"""At minus and plus infinity: the limit, or NaN where the definition has infinity times zero or there is none."""


@pytest.mark.parametrize("case", [case for case in CASES if case[0] in LIMITS], ids=name_of)
def test_infinities_and_nan(case: Case) -> None:
    bits = table_of(op_of(case[0], case[1])).view(np.uint16)
    found = chip.from_bits(bits[[0xFC00, 0x7C00]])
    np.testing.assert_array_equal(found, np.array(LIMITS[case[0]], np.float16).astype(np.float64))
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
@pytest.mark.commit
def test_the_emulation_says_the_same_of_every_half(case: Case) -> None:
    kind, attributes, _ = case
    op = op_of(kind, attributes)
    emulated = looked_up(op_of("lookup", (("function", kind), *attributes)), VALUES)
    np.testing.assert_array_equal(chip.to_bits(emulated), table_of(op).view(np.uint16))


def test_every_function_is_emulated_and_tested() -> None:
    assert {*TABLED, *CURVED} == EMULATED.keys() == {kind for kind, *_ in CASES}


def tabled(graph: Graph, constants: Constants) -> tuple[Graph, Constants]:
    """As the frontend makes it for the stcp920."""
    built = with_tables(Built(graph, dict(constants), (), {}), lambda graph, op: TARGET.table_for(graph, op, stcp920()))
    return built.graph, built.constants


def every_half(builder: GraphBuilder) -> str:
    """A value that holds each of the 65,536 halves once."""
    return builder.input("x", 8, 64, 128)


@pytest.mark.parametrize(
    ("kind", "attributes"), [("log", ()), ("power", (("exponent", 1.7),)), ("round", ())], ids=["log", "power", "round"]
)
def test_every_half_through_the_machine_code(kind: str, attributes: Attributes) -> None:
    builder = GraphBuilder("all")
    graph, constants = tabled(*builder.build(builder.elementwise(kind, every_half(builder), attributes=attributes)))
    compiled = compile_graph(graph, constants)
    stored = compiled.run({"x": ALL.reshape(8, 64, 128)})
    table = table_of(op_of(kind, attributes)).view(np.uint16)
    np.testing.assert_array_equal(stored[graph.outputs[0]].reshape(-1), table)


def network() -> tuple[Graph, Constants]:
    """Lookups alone, behind others, behind a product, convolutions and a pool, and two by one table."""
    builder = GraphBuilder("network", 3)
    x, image = builder.input("x", 40, 96), builder.input("image", 1, 9, 10, 24)
    alone = builder.elementwise("sin", x)
    behind = builder.elementwise("cos", builder.elementwise("add", alone, x))
    product = builder.elementwise("sin", builder.matmul(behind, builder.normal(96, 70, scale=0.1)))
    convolved = builder.elementwise("atan", builder.conv(image, 40))
    pooled = builder.elementwise("acos", builder.pool("average_pool", convolved, (3, 3)))
    row = builder.elementwise("log", builder.input("row", 65536))
    apart = builder.elementwise("round", builder.conv(image, 24, groups=24))
    return builder.build(behind, product, pooled, row, apart, builder.elementwise("sinh", builder.softmax(x)))


def test_lookups_wherever_they_stand() -> None:
    compiled = compile_graph(*tabled(*network()))
    compiled.check()
    tables = [tensor for tensor in compiled.graph.tensors if tensor.name.startswith("table::")]
    assert sorted(tensor.name for tensor in tables) == [
        f"table::{f}" for f in ("acos", "atan", "cos", "log", "round", "sin", "sinh")
    ]
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
    assert no_table(small_chip(weights_bytes=256 * KIB, data_bytes=4 * KIB)) is None
    assert no_table(small_chip(weights_bytes=128 * KIB)) == (
        "a table of 128 KiB, for which the weights part of L1 must have 256 KiB and has 128 KiB"
    )
    assert no_table(small_chip(1, 100 * KIB, 100 * KIB, enforced=False)) == (
        "a table of 128 KiB, for which L1 must have 256 KiB and has 200 KiB"
    )


def test_what_has_no_formula_is_refused_by_name_on_a_small_chip() -> None:
    small = small_chip(weights_bytes=64 * KIB)
    builder = GraphBuilder("unary")
    graph, _ = builder.build(builder.elementwise("cos", builder.input("x", 3, 4)))
    (op,) = graph.ops
    assert TARGET.table_for(graph, op, small) is None
    assert TARGET.accepts(graph, op, {}, small) == f"cos needs {no_table(small)}"


@pytest.mark.parametrize("kind", ["erf", "tanh", "sigmoid", "softplus", "mish"])
def test_large_items_are_looked_up_where_that_is_cheaper(kind: str) -> None:
    """Of one item's elements, however many items there are."""

    def looked_up(*shape: int) -> bool:
        builder = GraphBuilder("unary")
        graph, _ = builder.build(builder.elementwise(kind, builder.input("x", *shape)))
        return TARGET.table_for(graph, graph.ops[0], stcp920()) is not None

    assert looked_up(1, 1 << 20)
    assert looked_up(3, 1 << 20)
    assert not looked_up(1, 1 << 14)
    assert not looked_up(1 << 8, 1 << 14)


@pytest.mark.parametrize("kind", ["relu", "hard_swish", "abs"])
def test_what_takes_few_passes_keeps_them(kind: str) -> None:
    builder = GraphBuilder("unary")
    graph, _ = builder.build(builder.elementwise(kind, builder.input("x", 1, 1 << 22)))
    assert TARGET.table_for(graph, graph.ops[0], stcp920()) is None


def test_the_least_memories_for_a_table_do() -> None:
    """Tiles of every layer find room beside it: long products, two functions behind one, wide and depthwise windows."""
    builder = GraphBuilder("least", 5)
    builder.constant("k", builder.rng.normal(0, 1, (64, 48)))
    image = builder.input("image", 1, 9, 8, 40)
    outputs = [
        builder.elementwise("sin", builder.matmul(builder.input("x", 5, 5000), builder.normal(5000, 40, scale=0.01))),
        builder.elementwise("cos", builder.conv(image, 70, (5, 5), pads=(2, 2, 2, 2))),
        builder.elementwise("atan", builder.conv(image, 40, (7, 7), pads=(3, 3, 3, 3), groups=40)),
        builder.elementwise("sin", builder.elementwise("round", builder.matmul(builder.input("y", 7, 64), "k"))),
        builder.elementwise("floor", builder.pool("average_pool", image, (9, 8))),
        builder.elementwise("sinh", builder.softmax(image)),
    ]
    graph, constants = tabled(*builder.build(*outputs))
    compile_graph(graph, constants, small_chip(3, 16 * KIB, 256 * KIB, 8 * KIB, 512 * KIB)).check()


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
