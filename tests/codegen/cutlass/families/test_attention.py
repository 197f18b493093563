"""Attention in one kernel: drawn shapes judged on the executor, every tile, what is left out, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from codegen.cutlass.families.attention.attention import ATTENTION
from codegen.cutlass.families.attention.attention_operands import attention_of
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import compile_model, compile_plan, plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from dsa_sched.verification.verify import VerifyOptions, reference_builds, verify_compiled
from dsa_sched.zoo import seeded_inputs
from hw_models.errors import TargetError
from partitioner.ir.kernels import Kernel, read_kernel
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.attention_models import Heads, attention_model, drawn_heads
from tests.codegen.cutlass.families.networks import judged
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import save

AT_O0 = CompileOptions(O0())
Floats = npt.NDArray[np.floating]


def planned(model: onnx.ModelProto, folder: Path, chip: str = "a100") -> PlannedKernels:
    found = plan_model(save(model, folder / "net.onnx"), chip, AT_O0)
    assert isinstance(found, PlannedKernels)
    return found


def templates(plan: PlannedKernels) -> list[str]:
    return [read_kernel(group.kernel)[0] for group in plan.plan.groups if group.kernel]


def offered(plan: PlannedKernels) -> tuple[Kernel, ...]:
    (group,) = plan.plan.groups
    return ATTENTION.offers(KernelWork(plan.context.graph, group.layers, plan.context.chip))


def check_drawn(seed: int, folder: Path) -> None:
    case, chip = drawn_heads(seed), ("a100", "h100")[seed % 2]
    model = attention_model(case, seed)
    assert templates(planned(model, folder, chip)).count("attention") == 1
    assert judged(model, folder, chip, samples=512).failures == (), case


@pytest.mark.parametrize("seed", range(6))
def test_drawn_heads(seed: int, tmp_path: Path) -> None:
    check_drawn(seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 56))
def test_more_drawn_heads(seed: int, tmp_path: Path) -> None:
    check_drawn(seed, tmp_path)


def check_made(seed: int, folder: Path) -> None:
    """q, k and v of one value are read where they lie in it: nothing is cut, nothing is multiplied apart."""
    made = ("products", "pieces")[seed % 2]
    case = replace(drawn_heads(seed), apart=False, made=made)
    one = made == "pieces" or seed % 4 == 0  # else k and v are of one value, q is of another
    case = replace(
        case, rows=case.keys if one else case.keys + 1, mask=(case.keys, case.keys) if one and case.mask else ()
    )
    model = attention_model(case, seed)
    found = templates(planned(model, folder, ("a100", "h100")[seed % 2]))
    first = ["pointwise"] if made == "pieces" else [name for name in found if name in ("gemm", "product")]
    assert len(first) == (1 if one else 2), found
    assert [name for name in found if name not in first] == ["attention"], found
    assert judged(model, folder, ("a100", "h100")[seed % 2], samples=512).failures == (), case


@pytest.mark.parametrize("seed", range(6))
def test_drawn_heads_of_one_value(seed: int, tmp_path: Path) -> None:
    check_made(seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 56))
def test_more_drawn_heads_of_one_value(seed: int, tmp_path: Path) -> None:
    check_made(seed, tmp_path)


CASES = {
    "causal": Heads(1, 1, 1, 70, 70, 32, causal=True),
    "several of q": Heads(1, 3, 1, 45, 70, 64, causal=True),
    "masked": Heads(1, 2, 2, 70, 40, 16, 24, mask=(1, 2, 70, 40)),
}


@pytest.mark.spread(1)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.commit
def test_every_tile_is_within_the_bound(name: str, tmp_path: Path) -> None:
    plan = planned(attention_model(CASES[name]), tmp_path)
    (group,) = plan.plan.groups
    candidates = offered(plan)
    assert len(candidates) >= 3
    chosen = compile_plan(plan, replace(AT_O0, keep_values=True))
    isolated, _ = reference_builds(chosen)
    feeds = tuple(seeded_inputs(chosen.model.source, 2, 0))
    for kernel in candidates:
        forced = replace(plan, plan=replace(plan.plan, groups=(replace(group, kernel=kernel.text),)))
        whole = compile_plan(forced, replace(AT_O0, keep_values=True))
        report = verify_compiled(whole, isolated, feeds, VerifyOptions(samples=512))
        assert report.failures == (), kernel.text


def test_rows_and_keys_choose_the_tiles(tmp_path: Path) -> None:
    def tiles(rows: int, keys: int, shared: int = 1) -> set[tuple[int, int]]:
        plan = planned(attention_model(Heads(1, shared, 1, rows, keys, 64)), tmp_path)
        given = (dict(kernel.parameters) for kernel in offered(plan))
        return {(int(each["rows"]), int(each["keys"])) for each in given}

    assert tiles(1, 1) == {(16, 16)}
    assert tiles(1, 300) == {(16, 64), (16, 32)}
    assert tiles(40, 300) == {(64, 64), (64, 32), (32, 64), (32, 32)}
    assert tiles(10, 16, shared=4) == {(64, 16), (32, 16)}


def test_keys_that_no_row_sees_cost_nothing(tmp_path: Path) -> None:
    """A triangle is about half of a square, by place and not as a mask in memory."""
    square, triangle = (
        planned(attention_model(Heads(1, 8, 8, 2048, 2048, 64, causal=causal)), tmp_path) for causal in (False, True)
    )
    (op,) = triangle.context.graph.ops
    assert len(op.inputs) == 3
    problem = attention_of(triangle.context.graph, op)
    assert problem is not None
    assert problem.first_sees == 1
    tensor = [
        {floor.name: floor.seconds for floor in kernel.floors}["tensor"]
        for kernel in (offered(square)[0], offered(triangle)[0])
    ]
    assert 0.5 < tensor[1] / tensor[0] < 0.55


def test_operands_lie_where_the_products_leave_them(tmp_path: Path) -> None:
    """Heads are split and joined by steps: no kernel moves anything. The mask is an input, the same for all rows."""
    b = ModelBuilder()
    rows, heads, size = 9, 4, 16
    x, split = b.input(2, rows, heads * size), b.constant(np.array([2, rows, heads, size]), dtype=np.int64)

    def part() -> str:
        made = b.node("MatMul", x, b.weights(heads * size, heads * size, scale=0.1))
        return b.node("Transpose", b.node("Reshape", made, split), perm=[0, 2, 1, 3])

    q, k, v = part(), part(), part()
    scores = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), b.constant(0.25))
    scores = b.node("Add", scores, b.input(2, 1, 1, rows))
    turned = b.node("Transpose", b.node("MatMul", b.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    joined = b.node("Reshape", turned, b.constant(np.array([2, rows, heads * size]), dtype=np.int64))
    model = b.model(b.node("MatMul", joined, b.weights(heads * size, 24)))
    assert templates(planned(model, tmp_path)) == ["gemm", "attention", "gemm"]
    assert judged(model, tmp_path, samples=256).failures == ()


def test_wider_heads_are_taken_apart(tmp_path: Path) -> None:
    found = templates(planned(attention_model(Heads(1, 2, 2, 20, 20, 136)), tmp_path))
    assert "attention" not in found
    assert "lines" in found


def test_parameters_that_were_not_offered(tmp_path: Path) -> None:
    plan = planned(attention_model(Heads(1, 2, 2, 20, 20, 32)), tmp_path)
    work = KernelWork(plan.context.graph, plan.plan.groups[0].layers, plan.context.chip)
    with pytest.raises(TargetError, match="kernel attention: needs the parameters that it was offered with"):
        ATTENTION.launches(work, {"rows": 48, "keys": 32}, {})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_that_are_none_go_where_onnx_takes_them(tmp_path: Path) -> None:
    """Rows of q with NaN and infinities; a row that a mask hides whole; one of -inf beside a number."""
    rows, keys, size = 5, 70, 8
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((1, count, size)).astype(np.float16) for count in (rows, keys, keys))
    q[0, 1, 3], q[0, 2, 0] = np.nan, np.inf
    mask = random.standard_normal((rows, keys)).astype(np.float16)
    mask[3], mask[4, :66] = -np.inf, -np.inf
    b = ModelBuilder()
    a, c, d = (b.input(1, count, size) for count in (rows, keys, keys))
    scores = b.node("Add", b.node("MatMul", a, b.node("Transpose", c, perm=[0, 2, 1])), b.constant(mask))
    y = b.node("MatMul", b.node("Softmax", scores, axis=-1), d)
    path = b.save(tmp_path, y)
    assert templates(planned(b.model(y), tmp_path)) == ["attention"]
    inputs = {"x0": q.astype(np.float32), "x1": k.astype(np.float32), "x2": v.astype(np.float32)}
    (found,) = compile_model(path, "a100", AT_O0).artifact.run(inputs).values()
    exact: Floats = q[0].astype(np.float64) @ k[0].T.astype(np.float64) + mask
    power = np.exp(exact - exact.max(1, keepdims=True))
    wanted = power / power.sum(1, keepdims=True) @ v[0].astype(np.float64)
    assert np.isnan(wanted).all(1).tolist() == [False, True, True, True, False]
    np.testing.assert_allclose(found[0].astype(np.float64), wanted, rtol=2**-9, atol=2**-9)


def test_products_that_others_read_stay_apart(tmp_path: Path) -> None:
    """One is a result too: the other two are one product."""
    b = ModelBuilder(opset=23)
    x = b.input(1, 12, 24)
    q, k, v = (b.node("MatMul", x, b.weights(24, 32)) for _ in range(3))
    y = b.node("Attention", q, k, v, attributes={"q_num_heads": 2, "kv_num_heads": 2})
    model = b.model(y, k)
    assert sorted(templates(planned(model, tmp_path))) == ["attention", "gemm", "gemm"]
    assert judged(model, tmp_path, samples=256).failures == ()
