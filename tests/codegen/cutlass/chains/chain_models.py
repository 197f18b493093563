"""Small networks of convolutions in a row, and their judgement as one kernel of a template, whatever floors say."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from codegen.cutlass.families.registry import offered
from codegen.cutlass.kernel.family import Work
from dsa_sched.verification.verdict import VerifyReport
from partitioner.ir.kernels import Kernel
from tests.codegen.cutlass.families.networks import Network, judged

__all__ = ["ACTIVATIONS", "convolutions", "judged_as"]

ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "")
"""Sigmoid makes of nothing something, so that what lies outside the image has to be made zero behind it."""


def convolutions(
    shape: tuple[int, int, int, int],
    layers: list[tuple[int, int, int]],
    *,
    summed: str = "",
    activations: tuple[str, ...] = ("Relu", "Relu", "Relu"),
    bias: bool = True,
    seed: int = 0,
) -> onnx.ModelProto:
    """Layers of (filters, kernel, stride), 3x3 padded by one. `summed`: "" for no sum, "x" for the image, "other" for
    another map of the result's shape; an activation follows the sum."""
    net = Network([("x", shape)], seed)
    y, (_, _, height, width) = "x", shape
    for number, (filters, kernel, stride) in enumerate(layers):
        pads = [kernel // 2] * 4
        y = net.conv(y, filters, kernel, strides=[stride, stride], pads=pads, bias=bias)
        height, width = (-(-extent // stride) for extent in (height, width))
        last = number == len(layers) - 1
        if not (last and summed) and activations[number]:
            y = _activated(net, activations[number], y)
    if summed:
        if summed == "other":
            net.inputs.append(("other", (shape[0], layers[-1][0], height, width)))
        y = _activated(net, activations[len(layers) - 1] or "Relu", net.add("Add", y, summed))
    return net.model(y)


def _activated(net: Network, kind: str, y: str) -> str:
    return net.relu6(y) if kind == "Clip" else net.add(kind, y)


def judged_as(
    template: str,
    model: onnx.ModelProto,
    folder: Path,
    chip: str,
    *,
    draw: random.Random | None = None,
    wanted: dict[str, int] | None = None,
    samples: int = 512,
) -> VerifyReport:
    """The verdict on the network, its layers computed by one kernel of the template as if that took no time: one drawn
    of its candidates, or the first with the parameters wanted. Fails where there is none, or where it was not taken."""
    taken: list[Kernel] = []

    def forced(work: Work) -> tuple[Kernel, ...]:
        kernels = offered(work)
        own = [kernel for kernel in kernels if kernel.template == template and wanted_in(kernel)]
        if len(work.layers) == 1 or not own:
            return kernels if len(work.layers) == 1 else ()
        if not taken:
            taken.append(draw.choice(own) if draw else own[0])
        chosen = next((kernel for kernel in own if kernel.parameters == taken[0].parameters), own[0])
        return (replace(chosen, floors=(), launch_seconds=0.0),)

    def wanted_in(kernel: Kernel) -> bool:
        return (wanted or {}).items() <= dict(kernel.parameters).items()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codegen.cutlass.target.offered", forced)
        report = judged(model, folder, chip, "O3", samples)
    assert taken, f"no candidate of {template} for these layers"
    return report
