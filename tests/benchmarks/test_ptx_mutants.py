"""The script that changes kernels: every change is noticed or listed, and an entry too many or too few is a failure."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ptx_changes, ptx_mutants, ptx_speed
from codegen.cutlass.ptx import Statistics, parse

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cache(request: pytest.FixtureRequest) -> Path:
    """Where the other tests keep compiled kernels."""
    assert request.config.cache is not None
    return Path(request.config.cache.mkdir("nvcc"))


def run(monkeypatch: pytest.MonkeyPatch, cache: Path, kernel: str, tmp_path: Path) -> int:
    arguments = ["ptx_mutants.py", "--kernel", kernel, "--cache", str(cache), "--json", str(tmp_path / "found.json")]
    monkeypatch.setattr(sys, "argv", arguments)
    return ptx_mutants.main()


def test_every_change_is_noticed_or_listed(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, cache, "softmax", tmp_path) == 0
    said = capsys.readouterr().out
    assert "UNNOTICED" not in said
    assert "race" in said
    assert "out of bounds" in said
    assert (tmp_path / "found.json").exists()


def test_lists_that_are_wrong_fail(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (case,) = ptx_mutants.cases(cache, "softmax")
    monkeypatch.setattr(ptx_mutants, "cases", lambda *_: iter((case,)))
    name = "softmax: barrier dropped 1"
    fewer = replace(case, mutations=frozenset({"barrier dropped"}))
    monkeypatch.setattr(ptx_mutants, "cases", lambda *_: iter((fewer,)))
    monkeypatch.setitem(ptx_mutants.EQUIVALENT, name, "it is not")
    assert run(monkeypatch, cache, "softmax", tmp_path) == 1
    assert f"{name} is listed as equivalent and ends with: race" in capsys.readouterr().out
    monkeypatch.delitem(ptx_mutants.EQUIVALENT, name)
    harmless = ptx_changes.Mutation("comment added", r"bar\.sync.*;", lambda found: f"{found.string} // nothing")
    changed = replace(case, mutations=frozenset({"comment added"}))
    found = ptx_changes.studied([changed], {}, print, (harmless,))
    assert found.failed(0) == 1
    assert "softmax: comment added 1, line" in capsys.readouterr().out


def test_changes_are_spread_over_a_kernel(cache: Path) -> None:
    (case,) = ptx_mutants.cases(cache, "softmax")
    _, done = case.error(parse(case.text))
    every = list(ptx_changes.mutants(case, done.lines))
    some = list(ptx_changes.mutants(replace(case, most=2), done.lines))
    kinds = Counter(mutant.mutation for mutant in every)
    assert Counter(mutant.mutation for mutant in some) == {kind: min(2, count) for kind, count in kinds.items()}
    assert set(some) < set(every)
    assert max(kinds.values()) > 2


def test_equivalent_ones_have_a_reason_and_a_kernel() -> None:
    kernels = {path.stem for path in ptx_mutants.KERNELS.glob("*.cu")}
    assert kernels == {"conv2d", "functions", "gemm_sm90", "gemm_wgmma", "simple", "stream"}
    names = {mutation.name for mutation in ptx_changes.MUTATIONS} | {ptx_changes.MOVED}
    for name, reason in ptx_mutants.EQUIVALENT.items():
        assert name.split(": ")[1].rstrip("0123456789 ") in names
        assert len(reason) > 20


def test_the_document_says_what_was_found() -> None:
    figures = json.loads((ROOT / "benchmarks/results/ptx_mutants.json").read_text(encoding="utf-8"))
    verdicts = Counter[str]()
    for own in figures.values():
        verdicts.update(own)
    total, same = verdicts.total(), verdicts["equivalent"]
    assert "UNNOTICED" not in verdicts
    assert total >= ptx_mutants.LEAST
    assert same == len(ptx_mutants.EQUIVALENT)
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert f"{total} kernels changed in one place" in page
    assert f"Of the {total}, {total - same} end with a fault or a wrong result and {same} compute the same" in page
    speed = json.loads((ROOT / "benchmarks/results/ptx_speed.json").read_text(encoding="utf-8"))
    for name, said in (("conv2d", 430), ("gemm_kk", 460)):
        assert round(speed[name]["macs_per_s"] / 1e7) * 10 == said


def test_speed_is_of_the_best_run() -> None:
    figures = ptx_speed.measure(lambda: Statistics(2, 30, 4000, frozenset()), 2)
    assert (figures["macs"], figures["batches"], figures["steps"]) == (4000, 2, 30)
    assert figures["macs_per_s"] > 0
