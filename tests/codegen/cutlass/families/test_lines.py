"""Softmax, norms, reductions and whole-map pools: every operator and shape, every number of threads, judged against
exact arithmetic on the executor; special numbers against numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import compile_model, compile_plan, plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from dsa_sched.verification.verdict import VerifyReport
from dsa_sched.verification.verify import VerifyOptions, reference_builds, verify_compiled, verify_model
from dsa_sched.zoo import seeded_inputs
from hw_models.errors import ModelError, TargetError
from partitioner.ir.kernels import Kernel, read_kernel
from partitioner.ir.layers import Layer
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.line_models import (
    CASES,
    LONG_CASES,
    TEAM_CASES,
    Case,
    random_cases,
    saved,
    special_rows,
)
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

AT_O0 = CompileOptions(O0())
SAMPLES = VerifyOptions(samples=2048)

Floats = npt.NDArray[np.floating]


def planned(path: Path, chip: str = "a100") -> PlannedKernels:
    found = plan_model(path, chip, AT_O0)
    assert isinstance(found, PlannedKernels)
    return found


def offered(plan: PlannedKernels, layer: Layer) -> tuple[Kernel, ...]:
    ctx = plan.context
    return ctx.target.kernels(ctx.graph, (layer,), ctx.chip)


def kernels(plan: PlannedKernels) -> dict[str, str]:
    """The template of each operator's kernel, by the name of what the operator makes."""
    return {
        group.layers[0].ops[0]: read_kernel(group.kernel)[0] for group in plan.plan.groups if group.kernel
    }  # fmt: skip


@pytest.fixture(scope="module", params=[3, pytest.param(1, marks=pytest.mark.nightly)], ids=["third", "all"])
def cases(request: pytest.FixtureRequest) -> list[tuple[str, Case]]:
    """Every third case, or all."""
    return list(CASES.items())[:: request.param]


@pytest.fixture(scope="module")
def verified(cases: list[tuple[str, Case]], tmp_path_factory: pytest.TempPathFactory) -> VerifyReport:
    return verify_model(saved(cases, tmp_path_factory.mktemp("lines")), "a100", AT_O0, SAMPLES)


def test_every_operator_is_within_the_bound(verified: VerifyReport) -> None:
    assert verified.failures == ()
    assert not verified.exact


def test_every_operator_is_judged(cases: list[tuple[str, Case]], verified: VerifyReport) -> None:
    """Each layer has samples, and what the reference has too was compared with it."""
    assert all(layer.samples for layer in verified.layers)
    compared = [layer for layer in verified.layers if layer.isolated_error is not None]
    assert len(compared) >= len(cases) - 3  # sums and maxima whose axes go are compared behind a view


@pytest.mark.nightly
def test_long_lines_are_within_the_bound(tmp_path: Path) -> None:
    assert verify_model(saved(LONG_CASES.items(), tmp_path), "a100", AT_O0, SAMPLES).failures == ()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, 1])
def test_random_shapes_are_within_the_bound(seed: int, tmp_path: Path) -> None:
    assert verify_model(saved(random_cases(24, seed).items(), tmp_path), "a100", AT_O0, SAMPLES).failures == ()


def test_lines_on_an_h200(tmp_path: Path) -> None:
    names = ("softmax last", "softmax and more", "norm and more", "mean pool")
    cases = [(name, CASES[name]) for name in names]
    assert verify_model(saved(cases, tmp_path), "h200", AT_O0, SAMPLES).failures == ()


@pytest.mark.spread(1)
@pytest.mark.parametrize("case", TEAM_CASES)
@pytest.mark.commit
def test_every_number_of_threads_is_within_the_bound(case: str, tmp_path: Path) -> None:
    plan = planned(saved([(case, TEAM_CASES[case])], tmp_path))
    (group,) = plan.plan.groups
    candidates = offered(plan, group.layers[0])
    assert [dict(kernel.parameters)["threads"] for kernel in candidates] == {
        "rows": [512, 128, 32, 8],
        "columns": [32, 8, 1],
        "long columns": [512, 256, 128, 32, 8, 1],
    }[case]
    chosen = compile_plan(plan, replace(AT_O0, keep_values=True))
    isolated, _ = reference_builds(chosen)
    feeds = tuple(seeded_inputs(chosen.model.source, 2, 0))
    for kernel in candidates:
        forced = replace(plan, plan=replace(plan.plan, groups=(replace(group, kernel=kernel.text),)))
        whole = compile_plan(forced, replace(AT_O0, keep_values=True))
        assert verify_compiled(whole, isolated, feeds, SAMPLES).failures == (), kernel.text


# which kernel ---------------------------------------------------------------------------------------------------------


def pooled(op_type: str, shape: tuple[int, ...], **settings: list[int]) -> Case:
    return lambda b, name: b.node(op_type, b.input(*shape), outputs=[name], attributes=settings)


def test_a_window_that_is_the_whole_map_is_a_line(tmp_path: Path) -> None:
    """One that is not is computed by one thread an output; padded maps have more than one."""
    cases = {
        "global": pooled("GlobalAveragePool", (1, 64, 7, 7)),
        "by extents": pooled("MaxPool", (1, 64, 5, 7), kernel_shape=[5, 7]),
        "smaller": pooled("AveragePool", (1, 64, 7, 7), kernel_shape=[7, 6]),
        "padded": pooled("MaxPool", (1, 64, 3, 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "spread": pooled("MaxPool", (1, 64, 3, 3), kernel_shape=[2, 2], dilations=[2, 2]),
    }
    found = list(kernels(planned(saved(cases.items(), tmp_path))).values())
    assert found == ["lines", "lines", "window", "window", "window"]


def test_a_floor_tells_one_thread_from_many(tmp_path: Path) -> None:
    """2048 means of 49: the main memory binds neither, the one block of the window's kernel binds it."""
    plan = planned(saved([("pool", pooled("GlobalAveragePool", (1, 2048, 7, 7)))], tmp_path))
    by_template = {kernel.template: kernel for kernel in reversed(offered(plan, plan.plan.groups[0].layers[0]))}
    window, lines = by_template["window"], by_template["lines"]
    assert window.busiest is not None
    assert window.busiest.name == "simt"
    assert window.busiest.work == f"{256 * 8 * 49} operations in each of 1 blocks"
    assert lines.seconds < window.seconds


def test_of_equal_floors_what_reads_a_line_once_is_taken(tmp_path: Path) -> None:
    """Many long lines: the main memory binds all candidates."""

    def threads(*shape: int) -> int | str:
        case = [("softmax", lambda b, name: b.node("Softmax", b.input(*shape), outputs=[name]))]
        (group,) = planned(saved(case, tmp_path)).plan.groups
        return read_kernel(group.kernel)[1]["threads"]

    assert threads(4096, 8192) == 512
    assert threads(65536, 64) == 8
    assert threads(1, 1000) == 128


@pytest.mark.parametrize("parameters", [{}, {"threads": 16, "vector": 8}, {"threads": 8, "vector": 1}])
def test_a_kernel_that_is_not_offered_is_refused(parameters: dict[str, int | str], tmp_path: Path) -> None:
    plan = planned(saved([("softmax", CASES["softmax last"])], tmp_path))
    work = KernelWork(plan.context.graph, plan.plan.groups[0].layers, plan.context.chip)
    with pytest.raises(TargetError, match=r"kernel lines for softmax0: needs threads=8, vector=8.*has threads="):
        FAMILIES["lines"].launches(work, parameters, plan.context.constants)


def test_lines_are_no_kernel_of_a_window_that_is_smaller(tmp_path: Path) -> None:
    plan = planned(saved([("smaller", pooled("AveragePool", (1, 64, 7, 7), kernel_shape=[7, 6]))], tmp_path))
    work = KernelWork(plan.context.graph, plan.plan.groups[0].layers, plan.context.chip)
    with pytest.raises(TargetError, match="needs none"):
        FAMILIES["lines"].launches(work, {"threads": 8, "vector": 8}, plan.context.constants)


def test_arrays_of_more_axes_than_kernels_index_are_refused(tmp_path: Path) -> None:
    b = ModelBuilder()
    y = b.node("ReduceMean", b.input(2, 2, 2, 2, 2, 2, 2), b.integers(0, 2), name="mean")
    with pytest.raises(ModelError, match=r"ReduceMean mean.*has 7 axes, at most 6 are indexed"):
        compile_model(b.save(tmp_path, y), "a100", AT_O0)


def test_statistics_of_a_norm_are_refused(tmp_path: Path) -> None:
    b = ModelBuilder()
    b.node("LayerNormalization", b.input(2, 8), b.weights(8), outputs=["y", "mean"], name="norm")
    with pytest.raises(ModelError, match=r"LayerNormalization norm.*its mean and deviation are read too"):
        compile_model(b.save(tmp_path, "y", "mean"), "a100", AT_O0)


# special numbers ------------------------------------------------------------------------------------------------------

COLUMNS = 16


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> tuple[Floats, dict[str, Floats]]:
    """Rows with NaN, infinities and large numbers, as float64, and what operators made of them."""
    b = ModelBuilder(opset=23)
    x = b.input(8, COLUMNS, name="x")
    axis = b.integers(1)
    names = [
        b.node("Softmax", x, outputs=["softmax"]),
        b.node("ReduceMax", x, axis, outputs=["max"]),
        b.node("ReduceSum", x, axis, outputs=["sum"]),
        b.node("ReduceMean", x, axis, outputs=["mean"]),
        b.node("LayerNormalization", x, b.constant(np.ones(COLUMNS)), outputs=["norm"]),
        b.node("RMSNormalization", x, b.constant(np.ones(COLUMNS)), outputs=["rms"]),
    ]
    path = b.save(tmp_path_factory.mktemp("special"), *names)
    rows = special_rows(COLUMNS)
    results = compile_model(path, "a100", AT_O0).artifact.run({"x": rows})
    return rows.astype(np.float16).astype(np.float64), {
        name: value.astype(np.float64) for name, value in results.items()
    }


def half(x: Floats) -> Floats:
    """Rounded to float16: beyond its range an infinity."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float64)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["softmax", "max", "sum", "mean", "norm", "rms"])
def test_numbers_that_are_none_go_where_onnx_takes_them(name: str, special: tuple[Floats, dict[str, Floats]]) -> None:
    x, results = special
    centred = x - x.mean(1, keepdims=True)
    power = np.exp(x - x.max(1, keepdims=True))
    wanted = {
        "softmax": power / power.sum(1, keepdims=True),
        "max": x.max(1, keepdims=True),
        "sum": x.sum(1, keepdims=True),
        "mean": x.mean(1, keepdims=True),
        "norm": centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5),
        "rms": x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5),
    }[name]
    assert np.isnan(wanted).any()
    assert np.isfinite(wanted[[0, 7]]).any()
    np.testing.assert_allclose(results[name], half(wanted), rtol=2**-10, atol=2**-12)
