"""Attention by wgmma, against float64: drawn shapes, every tile, what is left to mma, what nvcc makes of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.lab.assembly_report import read_report
from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.families.attention.attention import ATTENTION
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import Launch
from hw_models.loading import load_chip
from partitioner.ir.kernels import Kernel
from tests.codegen.cutlass.chains.chain_models import judged_chain, work_of
from tests.codegen.cutlass.families.attention_models import Heads, attention_model
from tests.codegen.cutlass.families.networks import judged
from tests.codegen.cutlass.families.test_attention import planned, templates

DISTANCE = 2.0**-10
"""Weights and results are rounded to fp16 once, over all elements: what is left out or added by mistake makes more."""


def drawn(seed: int) -> Heads:
    """Heads of 8 to 128 elements, one block of rows or several, several of q to one of k and v, masks of any kind."""
    draw = Random(f"attention by wgmma {seed}")
    groups, items = draw.choice(((1, 1), (1, 2), (2, 1)))
    shared = draw.choice((1, 1, 2, 3))
    rows = draw.randint(-(-33 // shared), 150 // shared)
    keys = draw.choice((draw.randint(1, 64), draw.randint(65, 220)))
    size = draw.choice((32, 64, 64, 96, 128, 8 * draw.randint(1, 16)))
    width = draw.choice((0, 0, 8 * draw.randint(1, 16)))
    causal = draw.random() < 0.4
    ahead = draw.choice(((), (1, 1), (items, 1), (items, groups * shared)))
    return Heads(
        items,
        groups * shared,
        groups,
        rows,
        keys,
        size,
        width,
        causal=causal,
        mask=(*ahead, rows, keys) if draw.random() < 0.4 and not causal else (),
        truth=draw.random() < 0.3,
        scale=draw.choice((None, None, 0.3, -0.2)),
        after=draw.choice(("", "", "Relu")),
    )


def wgmma_offers(work: KernelWork) -> list[Kernel]:
    return [kernel for kernel in ATTENTION.offers(work) if dict(kernel.parameters)["by"] == "wgmma"]


def check(case: Heads, folder: Path, compiler: Compiler, seed: int = 0, *, every: bool = False) -> None:
    work, constants = work_of(attention_model(case, seed), folder, "h200")
    offers = wgmma_offers(work)
    assert offers, case
    for kernel in offers if every else [Random(seed).choice(offers)]:
        found = judged_chain(ATTENTION, work, constants, kernel, compiler, seed)
        assert found.worst <= 1, (case, kernel.text)
        assert found.distance <= DISTANCE, (case, kernel.text)


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.commit
def test_drawn_heads(seed: int, tmp_path: Path, compiler: Compiler) -> None:
    check(drawn(seed), tmp_path, compiler, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(8, 58))
def test_more_drawn_heads(seed: int, tmp_path: Path, compiler: Compiler) -> None:
    check(drawn(seed), tmp_path, compiler, seed)


CASES = {
    "plain": Heads(1, 1, 1, 150, 300, 64),
    "causal": Heads(1, 1, 1, 290, 290, 64, causal=True),
    "several of q": Heads(1, 3, 1, 70, 200, 64, causal=True),
    "masked": Heads(1, 2, 2, 130, 200, 24, 72, mask=(1, 2, 130, 200)),
    "wide": Heads(1, 1, 1, 130, 400, 128, after="Relu"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_every_tile(name: str, tmp_path: Path, compiler: Compiler) -> None:
    check(CASES[name], tmp_path, compiler, every=True)


def test_a_group_without_rows_does_nothing(tmp_path: Path, compiler: Compiler) -> None:
    """Of three groups the last two have rows of the first block only; keys take more steps than there are stages."""
    work, constants = work_of(attention_model(Heads(1, 1, 1, 200, 200, 32)), tmp_path, "h200")
    (kernel,) = [each for each in wgmma_offers(work) if each.text == "attention(by=wgmma, rows=192, keys=64)"]
    assert judged_chain(ATTENTION, work, constants, kernel, compiler).worst <= 1


def test_heads_are_read_where_they_lie(tmp_path: Path) -> None:
    """q, k and v are columns of one product; the artifact's list of launches is executed."""
    model = attention_model(Heads(1, 2, 2, 192, 192, 64, made="products"))
    found = planned(model, tmp_path, "h200")
    assert [group.kernel for group in found.plan.groups if "attention" in group.kernel] == [
        "attention(by=wgmma, rows=64, keys=192)"
    ]
    assert len(templates(found)) == 2
    assert judged(model, tmp_path, "h200", samples=512).failures == ()


@pytest.mark.parametrize(
    ("case", "chip"),
    [
        (Heads(1, 2, 2, 70, 70, 64), "a100"),
        (Heads(1, 2, 2, 32, 70, 64), "h200"),
        (Heads(1, 2, 2, 70, 70, 60), "h200"),
        (Heads(1, 2, 2, 70, 70, 64, 30), "h200"),
    ],
)
def test_what_is_left_to_mma(case: Heads, chip: str, tmp_path: Path) -> None:
    """Chips without wgmma, half a group's rows or fewer, rows of heads that cannot be copied by 16 bytes."""
    work, _ = work_of(attention_model(case), tmp_path, chip)
    assert wgmma_offers(work) == []
    assert ATTENTION.offers(work)


def test_tiles_hold_few_more_keys_than_there_are(tmp_path: Path) -> None:
    """No two are alike; keys are divided evenly among steps."""

    def tiles(case: Heads) -> list[tuple[int, int]]:
        work, _ = work_of(attention_model(case), tmp_path, "h200")
        given = [dict(kernel.parameters) for kernel in wgmma_offers(work)]
        return [(int(each["rows"]), int(each["keys"])) for each in given]

    found = tiles(Heads(1, 1, 1, 197, 197, 64))
    assert len(set(found)) == len(found)
    assert {keys for _, keys in found} <= {64, 80, 112, 208}
    assert (128, 208) in found
    assert {rows for rows, _ in tiles(Heads(1, 1, 1, 64, 64, 64))} == {64}
    assert {rows for rows, _ in tiles(Heads(1, 1, 1, 128, 64, 64))} == {64, 128}
    assert {keys for _, keys in tiles(Heads(1, 1, 1, 64, 300, 128))} == {64}


SIZES = [(64, 64), (128, 128), (32, 32), (96, 96), (24, 72), (128, 64), (64, 128)]


def assert_as_predicted(case: Heads, folder: Path, compiler: Compiler, most: int | None = None) -> None:
    """Nothing is spilled, and a block takes no more than its family says."""
    work, constants = work_of(attention_model(case), folder, "h200")
    for kernel in wgmma_offers(work)[:most]:
        (launch,) = ATTENTION.launches(work, dict(kernel.parameters), constants)
        assert isinstance(launch, Launch)
        taken = read_report(compiler.assembly_report(compiler.ptx(launch.source.text, "90a"), "90a"))["attention"]
        has, simt = dict(kernel.resources), work.chip.simt
        assert (taken.spilled_bytes, taken.stack_bytes) == (0, 0), (case, kernel.text)
        assert taken.registers <= has["registers"]
        assert has["registers"] * has["threads"] <= simt.registers_per_core
        assert launch.shared_bytes == has["shared_bytes"] <= simt.shared_bytes_per_block


def test_nothing_is_spilled(tmp_path: Path, compiler: Compiler) -> None:
    assert_as_predicted(Heads(8, 12, 12, 512, 512, 64, causal=True), tmp_path, compiler, most=2)


@pytest.mark.nightly
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", [197, 2048])
@pytest.mark.parametrize("form", ["plain", "causal", "masked"])
def test_nothing_is_spilled_of_any_tile(
    size: tuple[int, int], keys: int, form: str, tmp_path: Path, compiler: Compiler
) -> None:
    case = Heads(1, 2, 1, 512, keys, *size, causal=form == "causal", mask=(512, keys) if form == "masked" else ())
    assert_as_predicted(case, tmp_path, compiler)


def test_groups_read_k_and_v_once(tmp_path: Path) -> None:
    """By floors: through the L2 a block of more rows reads less, and in shared memory wgmma reads less than mma."""
    chip = load_chip("h200")
    work, _ = work_of(attention_model(Heads(8, 12, 12, 512, 512, 64)), tmp_path, "h200")
    floors = {
        (each["by"], each["rows"], each["keys"]): {floor.name: floor.seconds for floor in kernel.floors}
        for kernel in ATTENTION.offers(work)
        for each in (dict(kernel.parameters),)
    }
    by_mma, one, two = floors["mma", 64, 64], floors["wgmma", 64, 64], floors["wgmma", 128, 64]
    assert two[chip.simt.cache] < 0.6 * one[chip.simt.cache]
    assert one["shared"] < 0.6 * by_mma["shared"]
    assert one["tensor"] < by_mma["tensor"]
