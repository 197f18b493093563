"""CUTLASS's pairs of convolutions: right on drawn shapes, with the shared memory predicted, refused elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import onnx
import pytest

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.emission.parameter_blocks import parameter_blocks
from codegen.cutlass.families.fused import convolution_pair
from codegen.cutlass.families.fused.convolution_pair import CONVOLUTION_PAIR
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import ComputedLaunch
from codegen.cutlass.ptx import parse
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import TargetError
from partitioner.ir.kernels import read_kernel
from partitioner.planners.levels import O3
from tests.codegen.cutlass.chains.forced import judged_as, only, slow_launches
from tests.codegen.cutlass.families.networks import Network
from tests.small_models import save

TEMPLATE = "cutlass_pair"


def pair(
    shape: tuple[int, int, int, int],
    between: int,
    out: int,
    kernel: int = 3,
    after: tuple[str | None, str | None] = ("Relu", None),
    *,
    summed: bool = False,
    bias: bool = True,
    seed: int = 0,
    **attributes: Any,
) -> onnx.ModelProto:
    """A convolution and a 1x1 convolution of what it makes; the sum with an input of the network if `summed`."""
    net = Network([("x", shape)], seed)
    hidden = net.conv("x", between, kernel, bias=bias, **attributes)
    hidden = net.add(after[0], hidden) if after[0] else hidden
    y = net.conv(hidden, out, 1, bias=bias)
    if summed:
        stride, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0, 0, 0, 0])
        rows, columns = ((shape[2 + k] + pads[k] + pads[2 + k] - kernel) // stride[k] + 1 for k in range(2))
        net.inputs.append(("r", (shape[0], out, rows, columns)))
        y = net.add("Add", y, "r")
    return net.model(net.add(after[1], y) if after[1] else y)


INSTANCES: Sequence[tuple[int, int, tuple[str | None, str | None], bool]] = (
    (64, 64, ("Relu", None), True),
    (64, 256, ("HardSwish", "Relu"), True),
    (128, 128, (None, "Relu"), False),
    (256, 128, ("Relu", "Relu"), True),
    (512, 512, ("Relu", None), False),
    (128, 512, ("Sigmoid", None), True),
)
"""Channels between, widest result, operators, whether there is a sum: each is compiled once, as its shapes are not in
the source."""


def drawn(seed: int, instances: Sequence[tuple[int, int, tuple[str | None, str | None], bool]]) -> onnx.ModelProto:
    draw = Random(seed)
    kernel = draw.choice((1, 3, 3, 3, 5))
    stride = draw.choice((1, 1, 2))
    before, behind = draw.randint(0, kernel // 2), draw.randint(0, kernel // 2)
    rows, columns = draw.randint(kernel, 17), draw.randint(kernel, 17)
    between, widest, after, summed = instances[seed % len(instances)]
    return pair(
        (draw.randint(1, 3), 8 * draw.randint(1, 12), rows, columns),
        between,
        draw.randrange(widest // 2 + 8, widest + 1, 8),
        kernel,
        after,
        summed=summed,
        bias=draw.random() < 0.7,
        seed=seed,
        strides=[stride, stride],
        pads=[before, before, behind, behind],
    )


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.commit
def test_drawn_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    assert judged_as(TEMPLATE, drawn(seed, INSTANCES), tmp_path, monkeypatch, "h200").failures == ()


RESIDENT: Sequence[tuple[int, int, tuple[str | None, str | None], bool]] = (
    (64, 64, ("Relu", None), True),
    (128, 128, ("HardSwish", "Relu"), True),
    (64, 256, ("Relu", "Relu"), True),
    (64, 128, (None, "Sigmoid"), False),
    (128, 64, ("Sigmoid", None), True),
)
"""As `INSTANCES`, those whose values between may stay in registers."""


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 50))])
@pytest.mark.commit
def test_drawn_pairs_with_values_in_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(convolution_pair, "PARTS", {})
    chip = ("h200", "a100")[seed // 40]
    assert judged_as(TEMPLATE, drawn(seed, RESIDENT), tmp_path, monkeypatch, chip).failures == ()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 56))
def test_more_drawn_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    assert judged_as(TEMPLATE, drawn(seed, INSTANCES), tmp_path, monkeypatch, "h200").failures == ()


def test_what_the_template_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels between that are no tile's, an odd number of them in the image or result, a second one that is no 1x1
    convolution, groups, values that others read."""
    only(monkeypatch, TEMPLATE)
    shape = (1, 16, 9, 9)
    refused = [pair(shape, 96, 64), pair((1, 12, 9, 9), 64, 64), pair(shape, 64, 60), pair(shape, 64, 520),
               pair(shape, 64, 64, group=2)]  # fmt: skip
    net = Network([("x", shape)])
    net.conv(net.conv("x", 64, 3), 64, 3)
    refused.append(net.model())
    net = Network([("x", shape)])
    hidden = net.conv("x", 64, 3)
    refused.append(net.model(net.conv(hidden, 64, 1), hidden))
    chip = slow_launches("h200", tmp_path)
    for model in refused:
        groups = plan_model(save(model, tmp_path / "net.onnx"), chip, CompileOptions(O3())).plan.groups
        kernels = [read_kernel(group.kernel)[0] for group in groups]
        assert len(kernels) == 2
        assert TEMPLATE not in kernels


def test_parameters_that_were_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that names a block of another shape is refused, and says what it was."""
    only(monkeypatch, TEMPLATE)
    work = planned(pair((1, 16, 9, 9), 64, 64), tmp_path)
    with pytest.raises(TargetError, match="the parameters that it was offered with"):
        CONVOLUTION_PAIR.launches(work, {"rows": 16, "warps": 4}, {})


def planned(model: onnx.ModelProto, folder: Path) -> KernelWork:
    """The layers of the only group, on an H200."""
    file = save(model, folder / "net.onnx")
    compiled = plan_model(file, slow_launches("h200", folder), CompileOptions(O3()))
    (group,) = compiled.plan.groups
    return KernelWork(compiled.context.graph, group.layers, compiled.context.chip)


STORED, RESIDENT_VALUES = {"rows": 64, "warps": 4}, {"rows": 64, "warps": 4, "values": "registers"}
OCCUPIED = [
    ({"rows": 32, "warps": 4}, 64, 64),
    *(
        pytest.param(*each, marks=pytest.mark.nightly)
        for each in (
            (STORED, 64, 64),
            ({"rows": 64, "warps": 8}, 64, 64),
            (STORED, 128, 128),
            ({"rows": 64, "warps": 8}, 256, 256),
            ({"rows": 32, "warps": 4}, 512, 512),
            (RESIDENT_VALUES, 64, 64),
            (RESIDENT_VALUES, 64, 256),
            (RESIDENT_VALUES, 128, 128),
            ({"rows": 64, "warps": 2, "values": "registers"}, 64, 128),
        )
    ),
]


@pytest.mark.parametrize(("wanted", "between", "columns"), OCCUPIED)
@pytest.mark.commit
def test_what_a_block_occupies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiler: Compiler,
    wanted: dict[str, int | str],
    between: int,
    columns: int,
) -> None:
    """CUTLASS's own size of its shared memory is what the candidate says."""
    only(monkeypatch, TEMPLATE)
    work = planned(pair((1, 16, 9, 9), between, columns), tmp_path)
    (kernel,) = (each for each in CONVOLUTION_PAIR.offers(work) if dict(each.parameters) == wanted)
    (launch,) = CONVOLUTION_PAIR.launches(work, wanted, {})
    assert isinstance(launch, ComputedLaunch)
    module = parse(compiler.ptx(launch.source.text, "80", cutlass=True))
    (block,) = parameter_blocks([launch], {launch.source: module}).values()
    occupied = dict(kernel.resources)
    assert (occupied["shared_bytes"], occupied["threads"]) == (block.shared_bytes, block.threads)
    assert block.grid == (*kernel.blocks, 1, 1)
