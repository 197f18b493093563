"""The chip as the later stages ask for it, and the stcp920 against its documents."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from hw_models.chip import Chip
from hw_models.errors import ChipError
from hw_models.loading import load_chip
from hw_models.parts import MatrixEngine


@pytest.fixture(scope="module")
def chip() -> Chip:
    return load_chip("stcp920")


def test_the_organisation_gives_the_published_peak(chip: Chip) -> None:
    """128 TFLOP/s is the rounded form of 64 x 32 MAC x 2 x 32 cores x 1 GHz."""
    assert chip.cores == 32
    flops = 2 * chip.matrix.macs_per_cycle("float16") * chip.cores * chip.clock_hz
    assert flops == 131_072_000_000_000
    assert chip.matrix.macs_per_cycle("int8") == 2 * chip.matrix.macs_per_cycle("float16")
    assert chip.vector.elements_per_cycle("float16") == 64


def test_memories_have_the_documented_sizes(chip: Chip) -> None:
    sizes = {memory.name: (memory.scope, memory.size_bytes) for memory in chip.memories}
    assert sizes == {
        "DDR": ("cluster", 3 << 30),
        "LLB": ("cluster", 8 << 20),
        "L1": ("core", 5 << 18),
        "IM": ("core", 256 << 10),
    }
    l1 = chip.memory("L1")
    assert [(buffer.name, buffer.size_bytes) for buffer in l1.buffers] == [("data", 1 << 20), ("weights", 1 << 18)]
    assert l1.buffers_enforced
    assert l1.buffer("weights").size_bytes == 262_144


def test_the_matrix_engine_writes_only_im_and_nothing_but_dma_and_scalar_touches_ddr(chip: Chip) -> None:
    assert [memory.name for memory in chip.memories if "matrix" in memory.written_by] == ["IM"]
    assert set(chip.memory("DDR").read_by) == {"scalar", "dma"}


def test_the_ddr_of_the_card_as_shipped_adds_up(chip: Chip) -> None:
    """The manual's 108 GB/s over 4 clusters."""
    assert chip.link("LLB", "DDR").bandwidth_bytes_per_cycle == chip.memory("DDR").bandwidth_bytes_per_cycle
    total = chip.link("DDR", "LLB").bandwidth_bytes_per_cycle * chip.clusters * chip.clock_hz
    assert total == pytest.approx(108e9)


def test_links_are_found_by_their_ends_and_when_needed_by_engine(chip: Chip) -> None:
    assert chip.link("LLB", "L1").broadcast
    assert chip.link("L1", "L1", "vector").name == "l1_within"
    assert chip.link("L1", "L1", "transfer").name == "l1_to_l1"


def test_a_core_alone_gets_less_than_the_cluster_and_shares_when_many_ask(chip: Chip) -> None:
    link = chip.link("LLB", "L1")
    assert [link.available_bytes_per_cycle(n) for n in (1, 4, 8)] == [64, 64, 32]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda chip: chip.memory("L2"), "chip stcp920: needs a memory named 'L2'; has DDR, LLB, L1, IM"),
        (lambda chip: chip.engine("mme"), "chip stcp920: needs an engine named 'mme'; has scalar, vector, matrix"),
        (lambda chip: chip.memory("L1").buffer("x"), "memory L1: needs a buffer named 'x'; has data, weights"),
        (lambda chip: chip.link("DDR", "L1"), "chip stcp920: needs a link DDR -> L1; has DDR -> LLB, LLB -> DDR"),
        (lambda chip: chip.link("LLB", "L1", "dma"), "needs a link LLB -> L1 by engine dma"),
        (
            lambda chip: chip.matrix.macs_per_cycle("float32"),
            "engine matrix: needs the type float32; has float16, int8",
        ),
    ],
)
def test_asking_for_what_is_not_there_says_what_is(ask: object, words: str, chip: Chip) -> None:
    assert callable(ask)
    with pytest.raises(ChipError) as caught:
        ask(chip)
    assert words in str(caught.value)


def test_a_chip_without_a_matrix_engine_says_so(chip: Chip) -> None:
    poor = chip.model_copy(update={"engines": tuple(e for e in chip.engines if not isinstance(e, MatrixEngine))})
    with pytest.raises(ChipError, match="needs an engine of kind matrix; has scalar, vector, transfer"):
        _ = poor.matrix


def test_a_chip_cannot_be_changed_and_can_be_a_key(chip: Chip) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(chip, "clusters", 5)  # noqa: B010 - a plain assignment would not pass the type checker
    assert {chip: 1}[load_chip("stcp920")] == 1


def test_the_text_form_is_one_item_a_line_and_the_same_every_time(chip: Chip) -> None:
    text = str(chip)
    assert text == str(load_chip("stcp920"))
    lines = text.splitlines()
    items = len(chip.memories) + len(chip.engines) + len(chip.links) + len(type(chip.assumed).model_fields)
    assert len(lines) == 3 + items + 1
    assert lines[2] == f"  hash {chip.hash}"
    assert (
        "  memory IM: 256 KiB per core, aligned to 2, read by scalar, vector, matrix, written by scalar, vector, matrix"
        in lines
    )
    assert "  engine matrix: matrix, 64 pixels x 32 channels, float16 2048 MAC/cycle" in text
