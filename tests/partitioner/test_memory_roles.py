"""Which memory plays which part: the chip's links and the memory of results decide."""

from __future__ import annotations

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import ChipError
from hw_models.loading import load_chip
from partitioner.context.memory_roles import Local, MemoryRoles, memory_roles
from partitioner.context.plan_context import PlanContext
from tests.chip_runs import small_chip
from tests.small_graphs import GraphBuilder

L1 = Local("L1", "data")


def changed(chip: Chip, **parts: object) -> Chip:
    return chip.model_copy(update=parts)


def test_the_roles_of_the_stcp920() -> None:
    builder = GraphBuilder("one")
    graph, constants = builder.build(builder.conv(builder.input("x", 1, 4, 4, 8), 8))
    roles = PlanContext(graph, constants, load_chip("stcp920"), TARGET).roles
    assert roles == MemoryRoles("DDR", "LLB", L1, 1 << 20, 0, ("IM",))
    assert roles.has_staging
    assert [roles.outward(memory) for memory in ("L1", "LLB", "DDR")] == ["LLB", "DDR", "DDR"]


def test_a_graph_of_views_needs_the_main_memory_alone() -> None:
    roles = memory_roles(small_chip(), Local("", ""))
    assert roles == MemoryRoles("DDR", "DDR", Local("", ""), 0, 0, ())
    assert not roles.has_staging


def test_a_memory_that_data_enter_from_outside_is_no_accumulator() -> None:
    chip = small_chip()
    fed = chip.links[2].model_copy(update={"name": "llb_to_im", "destination": "IM"})
    assert memory_roles(chip, L1).accumulators == ("IM",)
    assert memory_roles(changed(chip, links=(*chip.links, fed)), L1).accumulators == ()


def test_without_links_there_is_no_way_to_the_cores() -> None:
    with pytest.raises(ChipError, match="needs links from DDR to L1; has none"):
        memory_roles(changed(small_chip(), links=()), L1)
