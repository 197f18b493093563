"""Damages that are planted in emitted programs: each is found by a verification, or changes nothing for a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gemmini_damages import DAMAGES, Damage, outcome

BY_NAME = {damage.name: damage for damage in DAMAGES}
ALWAYS = {
    "the fence before the core reads sums dropped": "no fence has waited for that",
    "weights in another bank": "has elements that were not written",
    "bytes from row to row of the patch": "were not written",
}
"""Those of an ordinary run, and a part of what is said."""


def found(damage: Damage, folder: Path) -> str:
    result = outcome(damage, folder)
    assert result.right, f"{damage.name}: {result.words or 'not found'}"
    return result.words


@pytest.mark.parametrize("name", ALWAYS)
def test_a_damage_ends_in_a_fault(name: str, tmp_path: Path) -> None:
    assert ALWAYS[name] in found(BY_NAME[name], tmp_path)


def test_there_are_enough_damages() -> None:
    assert len(BY_NAME) == len(DAMAGES)
    assert sum(not damage.equivalent for damage in DAMAGES) >= 45


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - ALWAYS))
def test_a_damage_is_found_or_equivalent(name: str, tmp_path: Path) -> None:
    damage = BY_NAME[name]
    assert bool(found(damage, tmp_path)) != bool(damage.equivalent)
