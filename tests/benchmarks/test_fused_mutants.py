"""Changed fused kernels: noticed, or the same bits for a reason; every fused template of the study is among them."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import fused_mutants, ptx_changes
from benchmarks.chosen_kernels import gpu_target
from benchmarks.fused_kernels import fused_offers
from benchmarks.fused_mutants import CHANGES, EQUIVALENT, Studied
from benchmarks.gpu.blocks import SMALL_BLOCKS
from benchmarks.gpu.networks import loaded
from codegen.cutlass.families.words.words import KINDS
from codegen.cutlass.ptx import parse
from dsa_sched.stages.targets import judge_of, target_of
from hw_models.loading import load_chip
from partitioner.context.plan_context import GraphContext


@pytest.fixture(scope="module")
def inverted(request: pytest.FixtureRequest) -> Iterator[Studied]:
    assert request.config.cache is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("nvcc")))
        yield next(fused_mutants.cases("inverted inverted_residual"))


@pytest.mark.commit
def test_changes_are_noticed(inverted: Studied, capsys: pytest.CaptureFixture[str]) -> None:
    """A few kinds, one place of each; the script has all."""
    kinds = frozenset({"barrier dropped", "wait dropped", "product dropped", "copy to a neighbour", "term dropped"})
    case = replace(inverted.case, mutations=kinds, most=1)
    found = ptx_changes.studied([case], {}, print, CHANGES)
    assert found.failed(len(kinds)) == 0
    (own,) = found.figures.values()
    assert sum(own.values()) == found.seen == len(kinds)
    assert {"race", "not waited for", "wrong"} <= set(own)
    assert "5 mutants" in capsys.readouterr().out


def slightly_off(found: re.Match[str]) -> str:
    """A sum that is off by 2^-18 of itself, which is within the bound of any sum."""
    return f"{found.string} fma.rn.f32 {found['d']}, {found['d']}, 0f36800000, {found['d']};"


@pytest.mark.nightly
@pytest.mark.parametrize("listed", [False, True])
def test_other_bits_within_the_bound_are_not_excused(
    inverted: Studied, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    off = ptx_changes.Mutation("slightly off", r"^\s*add\.f32\s+(?P<d>%f\d+), %f\d+, %f\d+;", slightly_off)
    comment = ptx_changes.Mutation("comment added", r"^\s*bar\.sync.*;", lambda found: f"{found.string} // nothing")
    if listed:
        for name in ("slightly off", "comment added"):
            monkeypatch.setitem(EQUIVALENT, name, "it computes the same")
    excuses = fused_mutants.Excuses()
    case = replace(inverted.case, mutations=frozenset({"slightly off", "comment added"}), most=3)
    with np.errstate(all="ignore"):
        _, done = case.error(parse(case.text))
    every = list(ptx_changes.mutants(case, done.lines, (off, comment)))
    noticed = [mutant for mutant in every if ptx_changes.judge(case, mutant.text)]
    assert not noticed
    (known,) = excuses.known([replace(inverted, case=case)])
    excused = [mutant.mutation for mutant in every if excuses(known, mutant)]
    counts = Counter(mutant.mutation for mutant in every)
    assert counts["comment added"] > 0
    assert excused.count("comment added") == (counts["comment added"] if listed else 0)
    assert excused.count("slightly off") < counts["slightly off"]


def templates(name: str, *, whole: bool) -> set[str]:
    """Of fused kernels that are offered, for all layers of a block or for any."""
    found = set()
    for chip in map(load_chip, fused_mutants.CHIPS):
        target = gpu_target(target_of(chip), chip)
        model = loaded(name, 2, judge_of(chip, target))
        context = GraphContext(model.graph, model.constants, chip, target)
        count = sum(not layer.is_view(model.graph) for layer in context.layers)
        offers = fused_offers(context)
        found |= {offer.kernel.template for offer in offers if not whole or len(offer.layers) == count}
    return found


@pytest.mark.commit
def test_rows_of_other_kernels_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert request.config.cache is not None
    path, other = tmp_path / "figures.json", {"race": 3, "equivalent": 1}
    had = {"places": 1, "kernels": {"other": other}, "equivalent": {"other": {"barrier dropped": 1}}}
    path.write_text(json.dumps(had), encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("nvcc")))
    given = ["fused_mutants.py", "--kernel", "slices gather", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", [*given, "--places", "1"])
    assert fused_mutants.main() == 0
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert figures["kernels"].keys() == {"other", "slices gather"}
    assert figures["kernels"]["other"] == other
    assert "UNNOTICED" not in figures["kernels"]["slices gather"]
    monkeypatch.setattr(sys, "argv", [*given, "--places", "2"])
    with pytest.raises(SystemExit, match="has 1 places of each change, not 2"):
        fused_mutants.main()


@pytest.mark.commit
def test_every_fused_template_of_the_case_study_is_changed() -> None:
    """By the small blocks, of which the script takes one candidate of each template."""
    small = set.union(*(templates(block.name, whole=True) for block in SMALL_BLOCKS))
    studied = set.union(*(templates(name, whole=False) for name in ("bottleneck1", "inverted24", "products128")))
    assert "inverted_residual" in studied
    assert studied <= small


def test_reasons_are_of_kinds_that_there_are() -> None:
    assert set(EQUIVALENT) <= fused_mutants.NAMES
    assert all(len(reason) > 20 for reason in EQUIVALENT.values())
    names = [change.name for change in CHANGES]
    assert len(set(names)) == len(names)


def test_figures_that_were_kept_have_nothing_unnoticed() -> None:
    path = Path(__file__).parents[2] / "benchmarks/results/fused_mutants.json"
    figures = json.loads(path.read_text(encoding="utf-8"))
    verdicts = Counter[str]()
    for own in figures["kernels"].values():
        verdicts.update(own)
    assert "UNNOTICED" not in verdicts
    assert verdicts.total() >= fused_mutants.LEAST
    assert verdicts["equivalent"] == sum(sum(own.values()) for own in figures["equivalent"].values())
    assert {kind for own in figures["equivalent"].values() for kind in own} <= set(EQUIVALENT)


def test_every_single_kernel_was_changed() -> None:
    """Of those that have a study of their own, and every kind of launch on integers."""
    path = Path(__file__).parents[2] / "benchmarks/results/fused_mutants.json"
    names = json.loads(path.read_text(encoding="utf-8"))["kernels"].keys()
    own = {name.split("_")[0] for _, _, name in (each.partition(" ") for each in names)}
    assert {"attention", "wgmma", "depthwise", "lines", "gather"} <= own
    assert {f"words {kind}" for kind in KINDS - {"words", "reduce"}} <= names
    assert {f"words {function}" for function in ("div", "mod", "where", "least", "place_of_greatest")} <= names
