"""The part of a chip file that says where a scalar core has its code from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from hw_models.errors import ChipError
from hw_models.loading import inspect_chip, load_chip, parse_chip

STCP920 = (resources.files("hw_models") / "chips" / "stcp920.yaml").read_text(encoding="utf-8")


def edited(old: str, new: str) -> str:
    assert STCP920.count(old) == 1
    return STCP920.replace(old, new)


def test_the_built_in_chip_has_the_documented_cache_and_free_misses() -> None:
    cache = load_chip("stcp920").instruction_cache
    assert cache is not None
    assert (cache.size_bytes, cache.line_bytes, cache.ways, cache.sets) == (65_536, 32, 4, 512)
    assert (cache.memory, cache.miss_cycles) == ("DDR", 0)


def test_chip_show_says_it() -> None:
    line = next(line for line in str(load_chip("stcp920")).splitlines() if "engine scalar" in line)
    assert line == (
        "  engine scalar: scalar, instruction cache 64 KiB, lines of 32 B, 4 ways, a miss 0 cycles from DDR"
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("memory: DDR ", "memory: DDRR ", "instruction_cache.memory: there is no memory named 'DDRR'"),
        ("ways: 4 ", "ways: 3 ", "instruction_cache.ways: 3; give a power of two"),
        (
            "line_bytes: 32 ",
            "line_bytes: 48 ",
            "instruction_cache.line_bytes: 48; give a power of two",
        ),
        (
            "size_bytes: 65_536 ",
            "size_bytes: 65_600 ",
            "65600 bytes in sets of 4 x 32; give a power of two of sets",
        ),
        (
            "size_bytes: 65_536 ",
            "size_bytes: 98_304 ",
            "98304 bytes in sets of 4 x 32; give a power of two of sets",
        ),
        ("ways: 4 ", "way: 4 ", "engines[0].instruction_cache.way: unknown field"),
        ("miss_cycles: 0 ", "miss_cycles: -1 ", "engines[0].instruction_cache.miss_cycles: -1"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(old: str, new: str, words: str) -> None:
    with pytest.raises(ChipError) as caught:
        parse_chip(edited(old, new), "c.yaml")
    assert words in str(caught.value)


def test_misses_that_take_a_second_are_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(edited("miss_cycles: 0 ", "miss_cycles: 900_000_000 "), encoding="utf-8")
    _, warnings = inspect_chip(file)
    assert any("instruction_cache.miss_cycles" in warning.text("") for warning in warnings)
