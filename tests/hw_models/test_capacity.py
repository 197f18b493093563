"""Figures by which chips are set side by side, worked out by hand from the built-in files."""

from __future__ import annotations

import pytest

from hw_models.capacity import area_mm2, energy_pj, main_bytes_per_second, on_chip_bytes
from hw_models.changes import changed_chip, field_values, with_parts
from hw_models.errors import ChipError
from hw_models.loading import builtin_chips, load_chip

MIB = 1 << 20


def test_memory_and_bandwidth_are_those_of_the_clusters_that_are_used() -> None:
    chip = load_chip("stcp920")
    core = sum(memory.size_bytes for memory in chip.memories if memory.scope == "core")
    for clusters in (1, 4):
        assert on_chip_bytes(chip, clusters) == clusters * (chip.memory("LLB").size_bytes + 8 * core)
    link = next(link for link in chip.links if link.name == "ddr_to_llb")
    assert link.shared_by == "cluster"
    assert main_bytes_per_second(chip, 4) == 4 * link.bandwidth_bytes_per_cycle * chip.clock_hz


@pytest.mark.parametrize("name", builtin_chips())
def test_every_chip_has_both_and_no_area_of_our_own(name: str) -> None:
    chip = load_chip(name)
    assert on_chip_bytes(chip, chip.clusters) > 0
    assert (main_bytes_per_second(chip, chip.clusters) or 0) > 1e9
    assert area_mm2(chip, chip.clusters) is None
    assert energy_pj(chip, 1e9, {}) is None


def test_area_and_energy_are_sums_of_what_is_given() -> None:
    """Every core has its vector engine, a cluster one DMA engine; lanes, cells and whole engines are the units."""
    source = "a test"
    proxies = {
        "memories": [{"name": "LLB", "mm2_per_mib": 2.0, "source": source}],
        "engines": [
            {"name": "matrix", "mm2_per_unit": 0.01, "pj_per_mac": 0.5, "source": source},
            {"name": "dma", "mm2_per_unit": 3.0, "source": source},
        ],
        "links": [{"name": "ddr_to_llb", "pj_per_byte": 10.0, "source": source}],
    }
    chip = changed_chip(load_chip("stcp920"), {"proxies": proxies})
    cells = chip.matrix.array_pixels * chip.matrix.array_channels
    one = 2.0 * chip.memory("LLB").size_bytes / MIB + 0.01 * cells * 8 + 3.0
    assert area_mm2(chip, 1) == pytest.approx(one)
    assert area_mm2(chip, 3) == pytest.approx(3 * one)
    assert energy_pj(chip, 100, {"DDR->LLB": 7.0, "LLB->L1": 5.0}) == pytest.approx(100 * 0.5 + 70.0)
    empty = changed_chip(load_chip("stcp920"), {"proxies": {}})
    assert (area_mm2(empty, 1), energy_pj(empty, 1, {})) == (None, None)


@pytest.mark.parametrize(
    ("proxies", "said"),
    [
        ({"memories": [{"name": "L9", "mm2_per_mib": 1.0, "source": "x"}]}, "there is no memory named 'L9'"),
        ({"links": [{"name": "ddr_to_llb", "pj_per_byte": 1.0}]}, "proxies.links[0].source: missing"),
        ({"links": [{"name": "ddr_to_llb", "pj_per_byte": -1.0, "source": "x"}]}, "greater than or equal to 0"),
        ({"engines": [{"name": "vector", "pj_per_mac": 1.0, "source": "x"}]}, "no multiply-accumulates"),
        ({"links": [{"name": "ddr_to_llb", "pj_per_byte": 1.0, "source": "x"}] * 2}, "name 'ddr_to_llb' is used twice"),
    ],
)
def test_coefficients_without_a_source_or_a_part_are_refused(proxies: dict[str, object], said: str) -> None:
    with pytest.raises(ChipError) as raised:
        changed_chip(load_chip("stcp920"), {"proxies": proxies})
    assert said in str(raised.value)


def test_parts_of_a_memory_keep_their_shares_unless_they_are_given() -> None:
    chip = load_chip("stcp920")
    memory = chip.memory("L1")
    first, second = memory.buffers
    half = with_parts(chip, {"memories.L1.size_bytes": memory.size_bytes // 2, "clock_hz": 1})
    parts = {name: half[f"memories.L1.buffers.{name}.size_bytes"] for name in (first.name, second.name)}
    assert parts == {first.name: first.size_bytes // 2, second.name: second.size_bytes // 2}
    path = f"memories.L1.buffers.{second.name}.size_bytes"
    assert with_parts(chip, {"memories.L1.size_bytes": memory.size_bytes // 2, path: 64})[path] == 64
    assert with_parts(chip, {"clock_hz": 1}) == {"clock_hz": 1}
    assert field_values(chip)["memories.L1.size_bytes"] == memory.size_bytes
