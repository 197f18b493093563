"""Functions of one operand in machine code, over all fp16 numbers, against float64.

benchmarks/results/functions.md has the table that benchmarks/functions.py made; a change of a formula that moves a
figure fails here.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.functions import (
    BIAS,
    BOUND,
    CASES,
    MARKS,
    Case,
    Row,
    finite_numbers,
    markdown,
    measured,
    results,
)
from codegen.neuralscale.emulation.curves_reference import EMULATED
from codegen.neuralscale.kernels.tables import CURVED
from codegen.neuralscale.templates.curves import CURVES, DIVISOR, curve
from codegen.neuralscale.templates.steps import VectorStep, verify
from partitioner.ir.graph import Attribute, Op
from tests.chip_runs import compile_graph
from tests.small_graphs import GraphBuilder

ROOT = Path(__file__).resolve().parents[3]
ROWS = {
    row["function"]: Row(**row) for row in json.loads((ROOT / "benchmarks/results/functions.json").read_text("utf-8"))
}
ALL = finite_numbers()

Attributes = tuple[tuple[str, Attribute], ...]
KINDS: tuple[tuple[str, Attributes, tuple[float, float]], ...] = (
    ("exp", (), (0.0, np.inf)),
    ("sigmoid", (), (0.0, 1.0)),
    ("swish", (("alpha", 1.0),), (0.0, np.inf)),
    ("swish", (("alpha", 0.7),), (0.0, np.inf)),
    ("swish", (("alpha", -3.0),), (-np.inf, 0.0)),
    ("swish", (("alpha", 0.0),), (-np.inf, np.inf)),
    ("swish", (("alpha", 0.01),), (0.0, np.inf)),
    ("tanh", (), (-1.0, 1.0)),
    ("softplus", (), (0.0, np.inf)),
    ("elu", (("alpha", 0.5),), (-0.5, np.inf)),
    ("selu", (("alpha", 2.0), ("gamma", 1.5)), (-3.0, np.inf)),
    ("celu", (("alpha", 2.0),), (-2.0, np.inf)),
    ("celu", (("alpha", -2.0),), (-np.inf, np.inf)),
    ("gelu", (("approximate", "none"),), (0.0, np.inf)),
    ("gelu", (("approximate", "tanh"),), (0.0, np.inf)),
    ("erf", (), (-1.0, 1.0)),
    ("mish", (), (np.nan, np.inf)),
    ("sqrt", (), (np.nan, np.inf)),
    ("reciprocal", (), (0.0, 0.0)),
    ("hard_swish", (), (np.nan, np.inf)),
)
"""Kinds, attributes, what becomes of minus and plus infinity: Mish and HardSwish multiply the one by zero."""


def op_of(kind: str, attributes: Attributes) -> Op:
    return Op("f", kind, ("x",), ("y",), attributes, ())


@pytest.mark.spread(8)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.commit
def test_all_numbers_are_right_to_two_to_the_minus_eight(case: Case) -> None:
    found, row = results(case, ALL), measured(case, ROWS[case.name].cycles_before)
    assert row.largest <= BOUND
    assert abs(row.mean) <= BIAS
    assert not row.steps_back
    assert {x: float(found[np.float16(x) == ALL][0]) for x, _ in case.fixed} == dict(case.fixed)
    if case.odd:
        np.testing.assert_array_equal(found[ALL < 0], -found[ALL > 0][::-1])
    known = ROWS[case.name]
    near = {name: pytest.approx(getattr(known, name), rel=1e-9) for name in ("largest", "mean")}
    assert asdict(row) == asdict(known) | near  # float64's own exponentials differ in their last bit from CPU to CPU


def test_the_page_has_the_table_of_the_last_run() -> None:
    page = (ROOT / "benchmarks" / "results" / "functions.md").read_text("utf-8")
    assert f"{MARKS[0]}\n{markdown(tuple(ROWS.values()))}\n{MARKS[1]}" in page
    assert [*ROWS] == [case.name for case in CASES]


@pytest.mark.parametrize("length", [2, 100, 5000])
def test_a_certain_softmax_is_one(length: int) -> None:
    """By rows and by columns; the numbers beside the winner are 30 below it."""
    builder = GraphBuilder("certain")
    rows = builder.softmax(builder.input("rows", 3, length))
    columns = builder.softmax(builder.input("columns", length, 3), 0)
    compiled = compile_graph(*builder.build(rows, columns))
    values = np.full((3, length), -30, np.float16)
    values[:, length // 2] = (0, 7, 0.001)
    values[2] = np.where(values[2] < 0, -32768, values[2])
    stored = compiled.run({"rows": values.view(np.uint16), "columns": values.T.copy().view(np.uint16)})
    for name, found in ((rows, stored[rows]), (columns, stored[columns].T)):
        np.testing.assert_array_equal(found.view(np.float16) == 1, values > -30, err_msg=name)


@pytest.mark.parametrize(("kind", "attributes", "limits"), KINDS)
def test_limits_and_nan(kind: str, attributes: Attributes, limits: tuple[float, float]) -> None:
    with np.errstate(all="ignore"):
        *found, nan = EMULATED[kind](op_of(kind, attributes), np.array([-np.inf, np.inf, np.nan]))
    assert np.isnan(nan)
    np.testing.assert_array_equal(found, limits)


@pytest.mark.parametrize(("kind", "attributes", "limits"), KINDS)
def test_steps_are_in_order(kind: str, attributes: Attributes, limits: tuple[float, float]) -> None:
    del limits
    verify(curve(op_of(kind, attributes)))


def test_every_formula_is_emulated_and_measured() -> None:
    verify(DIVISOR)
    assert {*CURVES} == {*EMULATED} == {kind for kind, *_ in KINDS} == {*CURVED, "hard_swish"}


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([VectorStep("y", "veadd", "t", 1.0)], "pass 0 reads t, which holds nothing"),
        ([VectorStep("y", "veexp.m", "x"), VectorStep("y", "veadd", "y", "x")], "pass 1 reads x, which holds nothing"),
        ([VectorStep("x", "veexp.m", "x")], "pass 0 writes its operand"),
        ([VectorStep("t", "veexp.m", "x")], "no pass writes the result"),
        ([VectorStep("y", "veexp.m", "x", 1.0)], "pass 0 has no operation veexp.m"),
    ],
)
def test_steps_out_of_order_are_found(steps: list[VectorStep], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        verify(steps)
