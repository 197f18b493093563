"""Chains of convolutions as one kernel, against float64: drawn shapes of each kind, every tile, wide ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.families.fused import convolution_chain
from codegen.cutlass.families.fused.convolution_chain import CONVOLUTION_CHAIN
from tests.codegen.cutlass.chains.chain_models import drawn_chain, judged_chain, work_of

KINDS = [(1, 3, 1), (3, 1), (3, 3)]
DISTANCE = 2.0**-10
"""Two roundings to halves: what is left out or added by mistake makes more, where the bound, which allows for the worst
order of sums and for every value between to be off by one step, may not."""


@pytest.fixture
def all_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tile that fits, not only the fastest few."""
    monkeypatch.setattr(convolution_chain, "MOST_OFFERED", 1000)


def right(kernels: tuple[int, ...], instruction: str, seed: int, folder: Path, compiler: Compiler) -> None:
    model, draw = drawn_chain(kernels, seed)
    work, constants = work_of(model, folder, "h200" if instruction == "wgmma" else draw.choice(["a100", "h200"]))
    offered = CONVOLUTION_CHAIN.offers(work)
    kernel = draw.choice([kernel for kernel in offered if dict(kernel.parameters)["by"] == instruction])
    judged = judged_chain(CONVOLUTION_CHAIN, work, constants, kernel, compiler, seed)
    assert judged.worst <= 1
    assert judged.distance <= DISTANCE


@pytest.mark.usefixtures("all_offered")
@pytest.mark.parametrize("instruction", ["mma", "wgmma"])
@pytest.mark.parametrize("kernels", KINDS)
def test_drawn_chains(kernels: tuple[int, ...], instruction: str, tmp_path: Path, compiler: Compiler) -> None:
    right(kernels, instruction, 0, tmp_path, compiler)


@pytest.mark.slow
@pytest.mark.usefixtures("all_offered")
@pytest.mark.parametrize("seed", range(1, 18))
@pytest.mark.parametrize("instruction", ["mma", "wgmma"])
@pytest.mark.parametrize("kernels", KINDS)
def test_more_drawn_chains(
    kernels: tuple[int, ...], instruction: str, seed: int, tmp_path: Path, compiler: Compiler
) -> None:
    right(kernels, instruction, seed, tmp_path, compiler)
