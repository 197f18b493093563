"""`verify` does not cry wolf: right networks are never called wrong, and it seldom has to say nothing.

Random graphs that compile pass. So does a siamese network, which subtracts what is alike: where that leaves rounding
errors alone, the report says that it says nothing about the end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification import floors
from dsa_sched.verification.verdict import VerifyReport
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError, UserError
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.fuzz.onnx_graphs import models

OPTIONS = VerifyOptions(samples=64)
MOST_WITHOUT_STATEMENT = 0.1


def judged(model: onnx.ModelProto, path: Path) -> VerifyReport | None:
    """The report; None for a model that is refused."""
    path.write_bytes(model.SerializeToString())
    try:
        return verify_model(path, "stcp920", CompileOptions(O0()), OPTIONS)
    except UserError:
        return None


def judged_graphs(count: int, number: int, folder: Path) -> list[VerifyReport]:
    """Reports on so many random graphs; each must pass, and its constants must all be declared."""
    reports: list[VerifyReport] = []

    @seeded(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(model=models())
    def judge(model: onnx.ModelProto) -> None:
        report = judged(model, folder / "random.onnx")
        if report is not None:
            assert report.failures == ()
            assert report.against_file.undeclared == ()
            reports.append(report)

    judge()
    return reports


def silent(reports: list[VerifyReport]) -> int:
    return sum(report.end_to_end == "no statement" for report in reports)


@pytest.mark.commit
def test_right_random_graphs_are_not_called_wrong(tmp_path: Path) -> None:
    reports = judged_graphs(15, 2, tmp_path)
    assert len(reports) >= 10
    assert silent(reports) <= max(1, MOST_WITHOUT_STATEMENT * len(reports))


@pytest.mark.nightly
def test_300_right_random_graphs_are_not_called_wrong(tmp_path: Path) -> None:
    reports = [report for number in range(3) for report in judged_graphs(100, number, tmp_path)]
    print(f"{len(reports)} graphs, {silent(reports)} without a statement")
    assert len(reports) >= 200
    assert silent(reports) <= MOST_WITHOUT_STATEMENT * len(reports)


def siamese(difference: float) -> ModelBuilder:
    """Two branches of equal weights, whose outputs are subtracted; `difference` of the second input reaches them."""
    builder = ModelBuilder()
    left, right = builder.input(1, 4, 12, 12), builder.input(1, 4, 12, 12)
    right = builder.node("Add", left, builder.node("Mul", right, builder.constant(difference)))
    weights, bias = builder.weights(16, 4, 3, 3), builder.weights(16)
    branches = [builder.node("Relu", builder.node("Conv", x, weights, bias, pads=[1] * 4)) for x in (left, right)]
    means = [builder.node("GlobalAveragePool", branch) for branch in branches]
    builder.node("Flatten", builder.node("Sub", *means))
    return builder


def judged_siamese(difference: float, folder: Path) -> VerifyReport:
    builder = siamese(difference)
    report = judged(builder.model(builder.nodes[-1].output[0]), folder / "siamese.onnx")
    assert report is not None
    assert report.failures == ()
    return report


def test_a_siamese_network_whose_output_hardly_depends_on_its_inputs_is_not_called_wrong(tmp_path: Path) -> None:
    report = judged_siamese(1e-3, tmp_path)
    assert report.end_to_end == "no statement"
    assert any(result.share > 0.1 for result in report.logits), "the bound of old would have called it wrong"


def test_a_siamese_network_whose_inputs_differ_gets_a_statement(tmp_path: Path) -> None:
    assert judged_siamese(1.0, tmp_path).end_to_end == "passed"


def test_a_batch_norm_that_takes_a_large_mean_away_is_not_called_wrong(tmp_path: Path) -> None:
    """Its result is a small difference of large values: rounding its input alone costs more than 1.5e-2."""
    builder = ModelBuilder()
    x = builder.node("Relu", builder.node("Add", builder.input(1, 8, 12, 12), builder.constant([100.0])))
    statistics = (builder.constant(np.full(8, 100.0)), builder.constant(np.ones(8)))
    y = builder.node("BatchNormalization", x, builder.constant(np.ones(8)), builder.weights(8, scale=0.1), *statistics)
    report = judged(builder.model(y), tmp_path / "model.onnx")
    assert report is not None
    assert report.failures == ()
    layer = next(layer for layer in report.layers if layer.output == y)
    assert layer.isolated_error is not None
    assert 1.5e-2 < layer.isolated_error < layer.bound < 0.1


def test_an_input_named_like_a_rounded_value_is_kept_apart_from_it(tmp_path: Path) -> None:
    builder = ModelBuilder()
    product = builder.node("Mul", builder.input(1, 3, 6, 6), builder.weights(3, 1, 1), outputs=["a"])
    result = builder.node("Max", product, builder.input(1, 3, 6, 6, name="a::rounded"))
    report = judged(builder.model(result), tmp_path / "model.onnx")
    assert report is not None
    assert report.failures == ()
    assert not any(warning.startswith("bounds without rounding: ") for warning in report.warnings)


def test_bounds_are_without_rounding_where_it_cannot_be_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> None:
        raise ModelError("a", needs="a reference of its own", has="none")

    monkeypatch.setattr(floors, "RoundedReference", fails)
    builder = ModelBuilder()
    result = builder.node("Mul", builder.input(1, 3, 6, 6), builder.weights(3, 1, 1))
    report = judged(builder.model(result), tmp_path / "model.onnx")
    assert report is not None
    assert report.failures == ()
    assert any(warning.startswith("bounds without rounding: ") for warning in report.warnings)
    assert all(layer.floor == 0 for layer in report.layers)
