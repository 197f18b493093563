"""Two matrix products as one kernel: right on drawn shapes by both instructions, taken where it pays, else refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import onnx
import pytest

from codegen.cutlass.families.fused.product_pair import PRODUCT_PAIR
from codegen.cutlass.kernel.family import KernelWork
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import TargetError
from partitioner.ir.kernels import read_kernel
from partitioner.planners.levels import O3
from tests.codegen.cutlass.chains.forced import by_floors, judged_as, only, slow_launches
from tests.codegen.cutlass.families.networks import Network
from tests.small_models import save

TEMPLATE = "product_pair"


def pair(
    shape: tuple[int, ...],
    between: int,
    out: int,
    after: tuple[str | None, str | None] = ("Relu", None),
    *,
    summed: bool = False,
    bias: bool = True,
    seed: int = 0,
) -> onnx.ModelProto:
    """x times constants, an operator, times constants, an operator; a sum with another input if `summed`."""
    net = Network([("x", shape)], seed)

    def product(x: str, depth: int, columns: int) -> str:
        y = net.add("MatMul", x, net.drawn(depth, columns, scale=depth**-0.5))
        return net.add("Add", y, net.drawn(columns)) if bias else y

    hidden = product("x", shape[-1], between)
    hidden = net.add(after[0], hidden) if after[0] else hidden
    y = product(hidden, between, out)
    if summed:
        net.inputs.append(("r", (*shape[:-1], out)))
        y = net.add("Add", y, "r")
    return net.model(net.add(after[1], y) if after[1] else y)


def drawn(seed: int) -> onnx.ModelProto:
    draw = Random(seed)
    shape = (draw.randint(1, 170), 8 * draw.randint(1, 24))
    batch = (draw.randint(1, 3),) if draw.random() < 0.5 else ()
    return pair(
        (*batch, *shape),
        8 * draw.randint(1, 48),
        8 * draw.randint(1, draw.choice((4, 16, 32))),
        (draw.choice(("Relu", "Elu", "Tanh", None)), draw.choice(("Relu", None))),
        summed=draw.random() < 0.5,
        bias=draw.random() < 0.7,
        seed=seed,
    )


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.commit
def test_drawn_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chip = ("h200", "a100")[seed % 2]
    assert judged_as(TEMPLATE, drawn(seed), tmp_path, monkeypatch, chip).failures == ()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3, 56))
def test_more_drawn_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chip = ("h200", "a100")[seed % 2]
    assert judged_as(TEMPLATE, drawn(seed), tmp_path, monkeypatch, chip).failures == ()


def planned(model: onnx.ModelProto, folder: Path, chip: str = "h200") -> list[str]:
    """Templates that the chip as it is would run."""
    plan = plan_model(save(model, folder / "net.onnx"), chip, CompileOptions(O3())).plan
    return [read_kernel(group.kernel)[0] for group in plan.groups if group.kernel]


def test_it_is_taken_where_the_floors_say_that_it_pays(tmp_path: Path) -> None:
    """Four times as wide between: a narrow result of many rows, and not one of 768 columns."""
    chip = str(by_floors("h200", tmp_path))
    assert planned(pair((8192, 128), 512, 128, ("Elu", None)), tmp_path, chip) == [TEMPLATE]
    assert TEMPLATE not in planned(pair((8192, 768), 3072, 768, ("Elu", None)), tmp_path, chip)


def test_what_the_template_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents that are no multiple of 8, too wide a result, what others read, factors that are no constants."""
    only(monkeypatch, TEMPLATE)
    shape = (40, 64)
    refused = [pair((40, 60), 64, 64), pair(shape, 60, 64), pair(shape, 64, 60), pair(shape, 64, 1032)]
    net = Network([("x", shape)])
    hidden = net.add("MatMul", "x", net.drawn(64, 64))
    refused.append(net.model(net.add("MatMul", hidden, net.drawn(64, 64)), hidden))
    net = Network([("x", shape), ("b", (64, 64))])
    net.add("MatMul", net.add("MatMul", "x", "b"), net.drawn(64, 64))
    refused.append(net.model())
    chip = slow_launches("h200", tmp_path)
    for model in refused:
        assert TEMPLATE not in planned(model, tmp_path, str(chip))


def test_parameters_that_were_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that names a block of another shape is refused, and says what it was."""
    only(monkeypatch, TEMPLATE)
    file = save(pair((40, 64), 64, 64), tmp_path / "net.onnx")
    compiled = plan_model(file, slow_launches("h200", tmp_path), CompileOptions(O3()))
    (group,) = compiled.plan.groups
    work = KernelWork(compiled.context.graph, group.layers, compiled.context.chip)
    with pytest.raises(TargetError, match="the parameters that it was offered with"):
        PRODUCT_PAIR.launches(work, {"rows": 48, "between": 64, "instruction": "mma"}, {})
