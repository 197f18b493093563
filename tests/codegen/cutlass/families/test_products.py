"""Matrix products of every shape by every kernel that is offered for them, judged against exact arithmetic on the
executor; which kernel is chosen; what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import compile_model, compile_plan, plan_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from dsa_sched.verification.verify import VerifyOptions, reference_builds, verify_compiled, verify_model
from dsa_sched.zoo import seeded_inputs
from hw_models.errors import TargetError
from partitioner.ir.kernels import Kernel
from partitioner.ir.plan import Group
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.product_models import (
    CASES,
    LARGE_CASES,
    Case,
    attention,
    by_weights,
    of_values,
    saved,
)

AT_O0 = CompileOptions(O0())
KEPT = replace(AT_O0, keep_values=True)
SAMPLES = VerifyOptions(samples=2048)


def planned(cases: Mapping[str, Case], folder: Path) -> PlannedKernels:
    found = plan_model(saved(cases.items(), folder), "a100", AT_O0)
    assert isinstance(found, PlannedKernels)
    return found


def offered(plan: PlannedKernels, group: Group) -> tuple[Kernel, ...]:
    ctx = plan.context
    return ctx.target.kernels(ctx.graph, group.layers, ctx.chip)


def only(case: Case, folder: Path) -> tuple[PlannedKernels, Group]:
    """The plan and the only product of a model."""
    plan = planned({"y": case}, folder)
    (group,) = (group for group in plan.plan.groups if group.kernel)
    return plan, group


def candidates(case: Case, folder: Path) -> dict[str, Kernel]:
    """By template, the first of each."""
    plan, group = only(case, folder)
    return {kernel.template: kernel for kernel in reversed(offered(plan, group))}


# results --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[3, pytest.param(1, marks=pytest.mark.nightly)], ids=["third", "all"])
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PlannedKernels, Compilation]:
    """Every third case or all, and what their layers are judged by."""
    plan = planned(dict(list(CASES.items())[:: request.param]), tmp_path_factory.mktemp("products"))
    isolated, _ = reference_builds(compile_plan(plan, KEPT))
    return plan, isolated


def by_template(plan: PlannedKernels, template: str) -> PlannedKernels:
    """Every product by the fastest kernel of this template."""

    def forced(group: Group) -> Group:
        kernels = [kernel for kernel in offered(plan, group) if kernel.template == template] if group.kernel else []
        return replace(group, kernel=min(kernels, key=lambda kernel: kernel.seconds).text) if kernels else group

    return replace(plan, plan=replace(plan.plan, groups=tuple(map(forced, plan.plan.groups))))


@pytest.mark.parametrize("template", [pytest.param("gemm", marks=pytest.mark.nightly), "product"])
def test_every_shape_by_both_kernels_is_within_the_bound(
    template: str, whole: tuple[PlannedKernels, Compilation]
) -> None:
    plan, isolated = whole
    forced = by_template(plan, template)
    assert sum(template in group.kernel for group in forced.plan.groups) == len(plan.model.graph.outputs)
    report = verify_compiled(
        compile_plan(forced, KEPT), isolated, tuple(seeded_inputs(plan.model.source, 2, 0)), SAMPLES
    )
    assert report.failures == ()
    assert not report.exact


def with_tile(plan: PlannedKernels, group: Group, tile: str) -> PlannedKernels:
    (kernel,) = (kernel for kernel in offered(plan, group) if dict(kernel.parameters).get("tile") == tile)
    return replace(plan, plan=replace(plan.plan, groups=(replace(group, kernel=kernel.text),)))


@pytest.mark.spread(1)
@pytest.mark.parametrize("tile", ["128x128", "64x64"])
@pytest.mark.commit
def test_larger_tiles_are_within_the_bound(tile: str, tmp_path: Path) -> None:
    """Ragged in rows, columns and depth."""
    plan, group = only(CASES["many tiles"], tmp_path)
    isolated, _ = reference_builds(compile_plan(plan, KEPT))
    feeds = tuple(seeded_inputs(plan.model.source, 2, 0))
    assert verify_compiled(compile_plan(with_tile(plan, group, tile), KEPT), isolated, feeds, SAMPLES).failures == ()


@pytest.mark.commit
def test_attention_on_an_h200(tmp_path: Path) -> None:
    """Products with other kernels between."""
    cases = {"attention": attention, "odd depth": CASES["odd depth"]}
    assert verify_model(saved(cases.items(), tmp_path), "h200", AT_O0, SAMPLES).failures == ()


@pytest.mark.nightly
@pytest.mark.parametrize("case", LARGE_CASES)
def test_large_products_are_within_the_bound(case: str, tmp_path: Path) -> None:
    plan, group = only(LARGE_CASES[case], tmp_path)
    isolated, _ = reference_builds(compile_plan(plan, KEPT))
    feeds = tuple(seeded_inputs(plan.model.source, 2, 0))
    for kernel in offered(plan, group):
        forced = replace(plan, plan=replace(plan.plan, groups=(replace(group, kernel=kernel.text),)))
        assert verify_compiled(compile_plan(forced, KEPT), isolated, feeds, SAMPLES).failures == (), kernel.text


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("template", ["gemm", "product"])
def test_infinities_and_nans_stay_in_their_rows(template: str, tmp_path: Path) -> None:
    """What is padded is zero in both factors, so that it makes no NaN of an infinity."""
    plan, _ = only(of_values((8, 13), (13, 11)), tmp_path)
    x, y = (np.random.default_rng(3).standard_normal(shape).astype(np.float16) for shape in ((8, 13), (13, 11)))
    x[1, 3], x[2, 12], x[3, 0] = np.nan, np.inf, -np.inf
    x[4] = 60000.0
    forced = by_template(plan, template)
    (result,) = (
        compile_plan(forced, AT_O0).artifact.run({"x0": x.astype(np.float32), "x1": y.astype(np.float32)}).values()
    )
    wanted = (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float16)
    assert not np.isfinite(wanted[1:5]).all()
    assert np.isfinite(wanted[[0, 5, 6, 7]]).all()
    np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=2**-9, atol=2**-9)


# which kernel ---------------------------------------------------------------------------------------------------------


def test_a_large_product_runs_on_the_tensor_cores(tmp_path: Path) -> None:
    found = candidates(by_weights((512, 1024), 1024, 1024), tmp_path)
    assert found["gemm"].seconds < found["product"].seconds
    assert found["product"].binding is not None
    assert found["product"].binding.name == "simt"


def test_values_are_padded_by_a_launch_and_constants_are_not(tmp_path: Path) -> None:
    assert candidates(of_values((64, 64), (64, 64)), tmp_path)["gemm"].launches == 1
    assert candidates(by_weights((64, 64), 64, 63), tmp_path)["gemm"].launches == 1
    assert candidates(of_values((64, 64), (64, 63)), tmp_path)["gemm"].launches == 2
    assert candidates(of_values((64, 63), (63, 64)), tmp_path)["gemm"].launches == 3


def test_what_is_read_at_once_depends_on_both_last_axes(tmp_path: Path) -> None:
    def aligned(left: tuple[int, int], right: tuple[int, int]) -> int | str:
        return dict(candidates(of_values(left, right), tmp_path)["gemm"].parameters)["aligned"]

    assert aligned((8, 64), (64, 24)) == 8
    assert aligned((8, 64), (64, 28)) == 4
    assert aligned((8, 62), (62, 24)) == 2
    assert aligned((8, 63), (63, 23)) == 8


def test_few_rows_are_spread_over_many_blocks(tmp_path: Path) -> None:
    """One row of many weights: the main memory binds the smallest tile, zeros that are multiplied bind the others. A
    block of the largest tile for each core: smaller ones are not faster. Few columns: every tile leaves most cores
    without a block, the smallest one least."""
    _, group = only(by_weights((1, 4096), 4096, 4096), tmp_path)
    assert group.kernel == "gemm(tile=32x64, aligned=8)"
    _, group = only(by_weights((108 * 128, 512), 512, 128), tmp_path)
    assert group.kernel == "gemm(tile=128x128, aligned=8)"
    found = candidates(by_weights((320, 64), 64, 64), tmp_path)["gemm"]
    assert dict(found.parameters)["tile"] == "32x64"


def test_the_cache_gives_only_rows_and_columns_that_there_are(tmp_path: Path) -> None:
    kernel = candidates(by_weights((3, 256), 256, 40), tmp_path)["gemm"]
    (floor,) = (floor for floor in kernel.floors if floor.name == "L2")
    columns = int(str(dict(kernel.parameters)["tile"]).split("x")[1])
    assert floor.work == f"{2 * 256 * (-(-40 // columns) * 3 + 40) + 2 * 3 * 40} bytes through the cache"


def test_batches_that_lie_apart_are_launches_up_to_a_bound(tmp_path: Path) -> None:
    assert candidates(of_values((8, 1, 9, 16), (1, 3, 16, 24)), tmp_path)["gemm"].launches == 8
    assert "gemm" not in candidates(of_values((9, 1, 9, 16), (1, 3, 16, 24)), tmp_path)


def test_more_matrices_than_a_grid_is_deep_are_left_to_the_other_kernel(tmp_path: Path) -> None:
    assert "gemm" in candidates(of_values((65_535, 1, 8), (65_535, 8, 8)), tmp_path)
    assert "gemm" not in candidates(of_values((65_536, 1, 8), (65_536, 8, 8)), tmp_path)


def test_a_map_that_is_added_to_itself_is_a_kernel_of_its_own(tmp_path: Path) -> None:
    plan = planned({"twice": CASES["twice"]}, tmp_path)
    assert [len(group.layers[0].ops) for group in plan.plan.groups] == [1, 1]


@pytest.mark.parametrize("tile", ["32x32", 7])
def test_a_tile_that_is_not_offered_is_refused(tile: str | int, tmp_path: Path) -> None:
    plan, group = only(by_weights((8, 16), 16, 8), tmp_path)
    work = KernelWork(plan.context.graph, group.layers, plan.context.chip)
    with pytest.raises(TargetError, match=f"kernel gemm: needs a tile of 128x128, .*has {tile}"):
        FAMILIES["gemm"].launches(work, {"tile": tile}, plan.context.constants)


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    path = saved([("odd depth", CASES["odd depth"])], tmp_path)
    first, second = (compile_model(path, "a100", AT_O0).files for _ in range(2))
    assert first == second
