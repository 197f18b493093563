"""`chip check` warns of what is possible and hardly meant; each warning says what is usual, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsa_sched.cli import cli
from hw_models.loading import builtin_chips, inspect_chip, load_chip
from hw_models.plausibility import implausible

STCP920 = (resources.files("hw_models") / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
Change = tuple[str, str]


def changed(folder: Path, *changes: Change) -> Path:
    """The built-in chip with texts replaced, each where it is found first."""
    text = STCP920
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    return folder / "mine.yaml"


def warned(path: Path) -> list[str]:
    return [warning.text("", "warning").lstrip(":0123456789") for warning in inspect_chip(path)[1]]


def link_block(name: str) -> str:
    """The lines of one link of the file."""
    start = STCP920.index(f"  - name: {name}")
    end = STCP920.find("  - name:", start + 1)
    return STCP920[start:end] if end >= 0 else STCP920[start : STCP920.index("\ndma:", start) + 1]


@pytest.mark.parametrize("name", builtin_chips())
def test_built_in_chips_are_plausible(name: str) -> None:
    found = [path for path, *_ in implausible(load_chip(name))]
    # Gemmini has no vector engine, and its array multiplies int8 alone: its core computes what the array does not.
    assert found == ([("engines",), ("engines", 1, "rates")] if name.startswith("gemmini") else [])


FED = "data come from the main memory and results return to it"
HALF, BYTE = "{dtype: float16, per_unit_per_cycle: 1}", "{dtype: int8, per_unit_per_cycle: 1}"

CASES: dict[str, tuple[Sequence[Change], Sequence[str]]] = {
    "slow clock": (
        [("clock_hz: 1_000_000_000", "clock_hz: 1_000")],
        [
            "clock_hz: 1,000 cycles per second; 50 MHz (an FPGA) to 3 GHz are usual",
            "assumed.launch_cycles: a launch takes 20 s; 1 us to some ms are usual",
        ],
    ),
    "fast clock": (
        [("clock_hz: 1_000_000_000", "clock_hz: 100_000_000_000")],
        ["clock_hz: 100,000,000,000 cycles per second; 50 MHz (an FPGA) to 3 GHz are usual"],
    ),
    "gigabytes per cycle": (
        [("bandwidth_bytes_per_cycle: 512 ", "bandwidth_bytes_per_cycle: 512_000_000_000 ")],
        [
            "memories[2].bandwidth_bytes_per_cycle: 5.12e+11 bytes per cycle; 1 to 4,096 are usual; GB/s divided by "
            "the clock in GHz gives bytes per cycle"
        ],
    ),
    "hardly a byte": (
        [("core_bandwidth_bytes_per_cycle: 64 ", "core_bandwidth_bytes_per_cycle: 0.01 ")],
        [
            "links[2].core_bandwidth_bytes_per_cycle: 0.01 bytes per cycle; 1 to 4,096 are usual; GB/s divided by "
            "the clock in GHz gives bytes per cycle"
        ],
    ),
    "a link that is missing on the way in": (
        [(link_block("ddr_to_llb"), "")],
        [
            f"memories[1].name: no links lead from DDR to LLB; {FED}",
            f"memories[2].name: no links lead from DDR to L1; {FED}",
            f"memories[3].name: no links lead from DDR to IM; {FED}",
        ],
    ),
    "a link that is missing on the way out": (
        [(link_block("im_to_l1"), "")],
        [f"memories[3].name: no links lead from IM to DDR; {FED}"],
    ),
    "a memory that no link touches": (
        [(link_block("im_to_l1"), ""), (link_block("l1_to_im"), "")],
        [
            f"memories[3].name: no links lead from DDR to IM, nor from IM to DDR; {FED}"
        ],
    ),
    "a memory faster than its links": (
        [("bandwidth_bytes_per_cycle: 27.0     # 108", "bandwidth_bytes_per_cycle: 100     # 108")],
        [
            "memories[0].bandwidth_bytes_per_cycle: DDR moves 100 bytes per cycle, its links only 27 out of it; "
            "raise the links' bandwidths; otherwise the rest of the memory's bandwidth is never used"
        ],
    ),
    "a link faster than its memory": (
        [("bandwidth_bytes_per_cycle: 27.0     # the DDR's own", "bandwidth_bytes_per_cycle: 30")],
        [
            "links[0].bandwidth_bytes_per_cycle: 30 bytes per cycle, and DDR has 27; a link cannot be faster than the "
            "memories at its ends"
        ],
    ),
    "a core that gets more than all": (
        [("core_bandwidth_bytes_per_cycle: 64 ", "core_bandwidth_bytes_per_cycle: 300 ")],
        [
            "links[2].core_bandwidth_bytes_per_cycle: a core gets 300 bytes per cycle of 256; leave it out, or give "
            "less than the shared bandwidth"
        ],
    ),
    "hardly any capacity": (
        [("size_bytes: 8_388_608", "size_bytes: 2")],
        ["memories[1].size_bytes: LLB holds 2 bytes; 1 MiB to some hundred GiB are usual"],
    ),
    "a core with gigabytes": (
        [("size_bytes: 262_144         # 256 KB", "size_bytes: 2_621_440_000  #")],
        ["memories[3].size_bytes: IM holds 2.44 GiB; 16 KiB to some MiB per core are usual"],
    ),
    "a tiny buffer": (
        [("        size_bytes: 262_144     # 0.25 MiB", "        size_bytes: 32  #")],
        [
            "memories[2].buffers[1].size_bytes: buffer weights of L1 holds 32 bytes; less than one tile; some KiB "
            "and more are usual"
        ],
    ),
    "no half precision": (
        [(f"{HALF}\n      - {BYTE}", BYTE)],
        ["engines[1].rates: vector has no rate for float16; networks are computed in this type"],
    ),
    "many lanes": (
        [("lanes: 64", "lanes: 1_000_000")],
        ["engines[1].lanes: 1,000,000 lanes in a core; 8 to 2,048 are usual"],
    ),
    "many cells": (
        [("array_pixels: 64", "array_pixels: 100_000")],
        ["engines[2].array_pixels: 100,000 x 32 cells in a core; 4 x 4 to 256 x 256 are usual"],
    ),
    "no extent": (
        [("max_extent: 65_535", "max_extent: 0")],
        ["engines[1].max_extent: vector moves no elements at a time; 255 and more are usual"],
    ),
    "a latency of seconds": (
        [("latency_cycles: 66 ", "latency_cycles: 6_600_000_000 ")],
        ["links[0].latency_cycles: 6.6e+09 cycles; 0 to some thousands are usual"],
    ),
    "a barrier of seconds": (
        [("sync_cycles: 0 ", "sync_cycles: 1e9 ")],
        ["assumed.sync_cycles: 1e+09 cycles; 0 to some thousands are usual"],
    ),
    "too many cores": (
        [("clusters: 4 ", "clusters: 1_000_000 ")],
        ["clusters: 8,000,000 cores in all; 1 to some thousands are usual"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_hardly_meant_is_told_with_what_is_usual(name: str, tmp_path: Path) -> None:
    changes, said = CASES[name]
    assert warned(changed(tmp_path, *changes)) == [f" warning: {line}" for line in said]


def test_a_chip_without_a_vector_engine_or_a_memory_of_cores(tmp_path: Path) -> None:
    """Parts that nothing refers to: the smallest file that is one."""
    path = tmp_path / "bare.yaml"
    path.write_text(BARE, encoding="utf-8")
    assert warned(path) == [
        " warning: memories: no memory belongs to a core; layers are computed in a memory of scope core",
        " warning: memories[0].written_by: no engine writes main; list its engines",
        " warning: engines: no engine of kind vector; it computes everything that is not a product",
    ]
    path.write_text(BARE.replace("scope: cluster", "scope: core"), encoding="utf-8")
    assert (
        " warning: memories: all memories belong to cores; one of scope chip or cluster is usual, for whole networks"
        in warned(path)
    )


BARE = """
schema_version: 1
name: bare
description: a memory and a DMA engine
isa: none-v1
clock_hz: 1_000_000_000
clusters: 1
cores_per_cluster: 1
memories:
  - {name: main, scope: cluster, size_bytes: 1048576, alignment_bytes: 1, read_by: [dma], written_by: []}
engines:
  - {kind: dma, name: dma}
links: []
dma:
  engine: dma
  engines_per_cluster: 1
  channels_per_engine: 1
  max_descriptors: 1
  max_linear_bytes: 1024
  max_row_bytes: 1024
  max_rows: 1
  max_stride_bytes: 0
  gather: false
  scatter: false
assumed:
  launch_cycles: 0
  matrix_tile_cycles: 0
  vector_pass_cycles: 0
  dma_descriptor_cycles: 0
  sync_cycles: 0
  scalar_instruction_cycles: 0
  queue_depth: 1
"""


def test_the_command_warns_and_ends_well(tmp_path: Path) -> None:
    path = changed(tmp_path, ("clock_hz: 1_000_000_000", "clock_hz: 1_000"))
    line = path.read_text(encoding="utf-8").splitlines().index("clock_hz: 1_000         # [CARRV, GT]") + 1
    result = CliRunner().invoke(cli, ["chip", "check", str(path)])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{path}: good; chip stcp920")
    assert lines[1].startswith(f"{path}:{line}: warning: clock_hz: 1,000 cycles per second; 50 MHz")
    assert len(lines) == 3


def test_a_plausible_file_is_one_line(tmp_path: Path) -> None:
    assert len(CliRunner().invoke(cli, ["chip", "check", str(changed(tmp_path))]).stdout.splitlines()) == 1
