"""`chip check` tells the truth about drawn chips: what it calls good compiles, "plans only" has a plan and no code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import dsa_sched
from dsa_sched.cli import cli
from hw_models.errors import ChipError, TargetError
from tests.drawn_chips import Fields, drawn_chip
from tests.small_models import classifier, save

GOOD, PLANS, NOTHING, REFUSED = "good", "plans only, no machine code", "neither plans nor machine code", "refused"
FIELDS = ("memories", "engines", "links", "dma", "assumed")
CHIPS = 60


def checked(fields: Fields, folder: Path) -> tuple[str, str, Path]:
    """The verdict of `chip check` on a chip, its words, and the chip's file."""
    path = folder / "drawn.yaml"
    path.write_text(json.dumps(fields, indent=1), encoding="utf-8")
    result = CliRunner().invoke(cli, ["chip", "check", str(path)])
    if result.exit_code:
        return REFUSED, result.stderr, path
    said = next((verdict for verdict in (PLANS, NOTHING) if f"note: {verdict}: " in result.stdout), GOOD)
    return said, result.stdout, path


def agree(seed: int, network: str | Path, effort: str, folder: Path) -> str:
    """Check that compiler and planner do with a drawn chip what `chip check` says; its verdict."""
    verdict, said, path = checked(drawn_chip(seed), folder)
    if verdict == GOOD:
        assert dsa_sched.compile(network, path, effort=effort, cache=False).manifest.programs
        return verdict
    with pytest.raises((ChipError, TargetError)) as refusal:
        dsa_sched.compile(network, path, effort=effort, cache=False)
    if verdict == PLANS:
        assert str(dsa_sched.plan(network, path, effort=effort))
        assert str(refusal.value) in said
        return verdict
    with pytest.raises((ChipError, TargetError)):
        dsa_sched.plan(network, path, effort=effort)
    assert any(re.search(rf"\b{field}[:.\[]", said) for field in FIELDS), said
    return verdict


@pytest.mark.spread(8)
@pytest.mark.parametrize("seed", range(CHIPS))
@pytest.mark.commit
def test_a_drawn_chip_does_what_chip_check_says(seed: int, tmp_path: Path) -> None:
    agree(seed, save(classifier(), tmp_path / "m.onnx"), "fast", tmp_path)


@pytest.mark.commit
def test_every_verdict_is_drawn(tmp_path: Path) -> None:
    verdicts = [checked(drawn_chip(seed), tmp_path)[0] for seed in range(CHIPS)]
    assert min(verdicts.count(verdict) for verdict in (GOOD, PLANS, NOTHING, REFUSED)) >= 2


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(CHIPS))
def test_networks_compile_at_the_default_level_on_good_chips(seed: int, tmp_path: Path) -> None:
    if agree(seed, "mobilenet_v2-mini", "normal", tmp_path) == GOOD:
        agree(seed, "wide_deep-mini", "normal", tmp_path)  # lookups by integers, which plans by costs alone do not have
