"""`dsa-sched ops` says the truth: what it lists as computed compiles, what it lists as refused is refused so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from codegen.generic import GenericTarget
from codegen.neuralscale.target import TARGET
from dsa_sched.analysis.operator_support import Support, operator_support, read_operators
from dsa_sched.cli import cli
from dsa_sched.frontend.graph.probes import PROBES, Probe, probes_of
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import ModelError
from hw_models.loading import load_chip
from partitioner.planners.levels import O0
from tests.onnx_backend.table import read_table

CHIP = load_chip("stcp920")
CUT = 110
"""Length at which the table cuts reasons."""
ANY_OPERATOR = (
    "is int",
    "is bool",
    "is empty",
    "not static",
    "all operands are constant",
    "operator is not supported",
)
"""Refusals that have nothing to do with the operator."""


@pytest.fixture(scope="module")
def supports() -> Mapping[str, Support]:
    return {support.op_type: support for support in operator_support(CHIP, TARGET)}


def ways(op_type: str, supports: Mapping[str, Support]) -> list[tuple[Probe, str | None]]:
    """Each probe of an operator and why it is said to be refused."""
    reasons = dict(supports[op_type].refused)
    return [(probe, reasons.get(probe.says)) for probe in probes_of(op_type)]


@pytest.mark.spread(32)
@pytest.mark.parametrize("op_type", read_operators())
@pytest.mark.commit
def test_what_is_listed_is_what_compile_does(op_type: str, supports: Mapping[str, Support], tmp_path: Path) -> None:
    """To machine code, where the list says yes; refused with the same words where it says no."""
    path = tmp_path / "m.onnx"
    for probe, reason in ways(op_type, supports):
        path.write_bytes(probe.model().SerializeToString())
        if reason is None:
            assert compile_model(path, CHIP, CompileOptions(O0())).artifact.clusters, probe.says
        else:
            with pytest.raises(ModelError) as error:
                compile_model(path, CHIP, CompileOptions(O0()))
            assert reason in str(error.value), probe.says


@pytest.mark.parametrize("op_type", read_operators())
def test_probes_are_valid_models(op_type: str) -> None:
    """A refusal is then the frontend's or the target's, not one of a model that ONNX itself refuses."""
    for probe in probes_of(op_type):
        onnx.checker.check_model(probe.model(), full_check=True)


@pytest.mark.parametrize("op_type", ["CumSum", "GatherElements", "GatherND", "OneHot"])
def test_operators_that_read_integers_are_tried_with_integers(op_type: str, supports: Mapping[str, Support]) -> None:
    assert any(says.startswith("constant") for says in supports[op_type].computed)


def test_every_operator_is_tried_and_no_way_has_the_name_of_another(supports: Mapping[str, Support]) -> None:
    assert tuple(supports) == read_operators()
    for support in supports.values():
        said = [*support.computed, *(says for says, _ in support.refused)]
        assert said, support.op_type
        assert len(set(said)) == len(said), support.op_type
    assert {probe.op_type for probe in PROBES} <= {*supports}


def test_refusals_of_onnx_own_tests_are_listed(supports: Mapping[str, Support]) -> None:
    """An operator of which a node test is refused for what it is cannot be listed without a restriction."""
    told = [outcome.reason for outcome in read_table().values() if outcome.status == "refused"]
    reasons = [text if len(text) < CUT else text.rpartition("; ")[0] for text in told]
    said = re.findall(r"(?:^|; |target: )([A-Z]\w+): ([^;\n]+)", "\n".join(reasons), re.MULTILINE)
    restricted = {op for op, reason in said if op in supports and not any(words in reason for words in ANY_OPERATOR)}
    assert {"Attention", "Resize"} <= restricted
    assert [op for op in sorted(restricted) if not supports[op].refused] == []


@pytest.mark.parametrize(
    ("op_type", "rows"),
    [
        ("Relu", (("Relu", "yes", ""),)),
        ("Erf", (("Erf", "yes", ""),)),
        ("Log", (("Log", "yes", ""),)),
        ("Sin", (("Sin", "yes", ""),)),
        (
            "Gelu",
            (
                ("Gelu", "yes", "approximate=none, approximate=tanh"),
            ),
        ),
        (
            "LRN",
            (("LRN", "yes", "odd size"), ("LRN", "no", "even size: size is 2; it must be odd")),
        ),
        ("Softsign", (("Softsign", "yes", ""),)),
    ],
)  # fmt: skip
def test_rows(op_type: str, rows: tuple[tuple[str, str, str], ...], supports: Mapping[str, Support]) -> None:
    assert supports[op_type].rows == rows


def test_equal_reasons_are_one_row() -> None:
    support = Support("Foo", (), (("a", "why"), ("b", "other"), ("c", "why")))
    assert support.rows == (("Foo", "no", "a, c: why"), ("Foo", "no", "b: other"))


def test_what_cannot_be_tried_says_so() -> None:
    assert probes_of("NoSuchOperator") == ()
    assert Support("NoSuchOperator", (), ()).rows == (
        ("NoSuchOperator", "?", "not tried: ONNX does not say what it reads"),
    )


def test_another_target_has_another_list() -> None:
    """Nobody has said what a chip without a code generator cannot compute; what is not read stays out."""
    found = {support.op_type: support for support in operator_support(CHIP, GenericTarget("abacus-v2"))}
    assert found["Log"].rows == (("Log", "yes", ""),)
    assert [row[:2] for row in found["Gelu"].rows] == [("Gelu", "yes")]


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(cli, ["ops", "--chip", "stcp920"])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "ONNX operator stcp920 as, or why not"
    assert "Log yes" in lines
    assert "Mod no this operator is not supported" in lines
    assert any(line.startswith("of all operators: values have static shapes") for line in lines)
    assert not any(line.startswith("ScaleShift") for line in lines)
