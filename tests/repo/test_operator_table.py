"""Which operators share a property is said in one place: no module lists operators that the table could name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from codegen.neuralscale.kernels.tables import CURVED, TABLED
from codegen.neuralscale.templates.curves import CURVES
from codegen.neuralscale.templates.elementwise import BINARY, UNARY
from dsa_sched.frontend.network.network import OURS
from dsa_sched.frontend.rules.operators import OPERATORS, rule_of
from partitioner.ir.operators import OPERATOR_TABLE, REARRANGING, Trait, kind_names, onnx_names
from tests.repo.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "partitioner" / "ir" / "operators.py"
MOST_NAMED = 7
"""Operators that a module may list by itself: what it does with them is then its own, not a property of theirs."""
KNOWN = frozenset(onnx_names(*Trait) | kind_names(*Trait))


def lists_of_operators(source: str) -> Iterator[str]:
    """Literal collections of more operators than that, with their lines. Keys of tables, which have a formula or a
    function for each, are none."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            named = [str(each.value) for each in node.elts if isinstance(each, ast.Constant)]
            if len(named) > MOST_NAMED and len(named) == len(node.elts) and KNOWN.issuperset(named):
                yield f"{node.lineno}: {', '.join(named)}"


@pytest.mark.parametrize("package", ["hw_models", "partitioner", "isched", "codegen", "dsa_sched"])
def test_no_other_module_lists_operators(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    found = [f"{f.relative_to(ROOT)}:{line}" for f in files if f != TABLE for line in lists_of_operators(f.read_text())]
    assert not found, "\n".join(found)


def test_lists_are_found() -> None:
    names = sorted(onnx_names(Trait.VIEW, Trait.MOVES))
    assert [*lists_of_operators(f"A = frozenset({names})")] == [f"1: {', '.join(names)}"]
    assert not [*lists_of_operators(f"A = {dict.fromkeys(names, 0)}\nB = {names[:MOST_NAMED]}")]


def test_every_row_is_of_its_own() -> None:
    names = [row.onnx for row in OPERATOR_TABLE if row.onnx]
    assert len(names) == len({*names})
    assert all(onnx.defs.has(name) or name in OURS for name in names)
    assert {*OURS, *OPERATORS} - {*names} == {"If", "CumSum"} & {*OPERATORS}


def test_queries_are_of_any_trait_and_of_all_of_a_union() -> None:
    assert {"Relu", "Reshape"} <= onnx_names(Trait.ELEMENTWISE, Trait.VIEW)
    assert onnx_names(Trait.ELEMENTWISE | Trait.VIEW) == {"Identity", "Dropout"}
    assert kind_names(Trait.BINARY) == {"add", "sub", "mul", "div", "max", "min"}
    assert kind_names(*REARRANGING) == {"view", "transpose", "slice", "take", "concat", "pad"}


def test_settings_are_onnx_attributes_with_its_defaults() -> None:
    for row in OPERATOR_TABLE:
        given = onnx.defs.get_schema(row.onnx).attributes if row.settings else {}
        for name, default in row.settings:
            value = onnx.helper.get_attribute_value(given[name].default_value)
            value = value.decode() if isinstance(value, bytes) else value
            assert value == default if isinstance(default, str) else value == pytest.approx(default, rel=1e-6)


def test_functions_of_one_number_have_a_rule_and_a_formula_on_the_npu() -> None:
    rows = [row for row in OPERATOR_TABLE if Trait.UNARY in row.traits and row.kind]
    formulas = {*UNARY, *CURVES, *CURVED, *TABLED}
    assert not [row.onnx for row in rows if rule_of(row.onnx) is None]
    assert {row.kind for row in rows} - formulas == {"softsign"}, "the one that this target wants taken apart"
    assert kind_names(Trait.BINARY) == BINARY.keys()
