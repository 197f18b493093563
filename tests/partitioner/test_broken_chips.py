"""A chip file that lacks what planning asks for is told as that at every level, never as a memory that is too small."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import ChipError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size
from partitioner.ir.target import TileWork
from partitioner.ir.wants import Wants
from partitioner.planners.levels import LEVELS, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip
from tests.small_graphs import GraphBuilder

KIB = 1024
WAYS = (*((level, "none") for level in LEVELS), ("O3", "cost"), ("O3", "auto"))
"""Level and spilling policy."""


def blocks(batch: int = 3) -> tuple[Graph, Constants]:
    builder = GraphBuilder("blocks")
    x = builder.input("x", batch, 20, 20, 8)
    for _ in range(2):
        inner = builder.elementwise("relu", builder.conv(x, 16))
        x = builder.elementwise("relu", builder.elementwise("add", builder.conv(inner, 8), x))
    return builder.build(builder.pool("max_pool", x, (2, 2), stride=2))


def without_engine(chip: Chip, kind: str) -> Chip:
    return chip.model_copy(update={"engines": tuple(engine for engine in chip.engines if engine.kind != kind)})


def without_link(chip: Chip, source: str, destination: str) -> Chip:
    kept = (link for link in chip.links if (link.source, link.destination) != (source, destination))
    return chip.model_copy(update={"links": tuple(kept)})


@pytest.mark.parametrize(("level", "spill"), WAYS)
@pytest.mark.parametrize("kind", ["matrix", "vector"])
def test_a_missing_engine(kind: str, level: str, spill: str) -> None:
    chip = without_engine(small_chip(cores=4, data_bytes=16 * KIB), kind)
    with pytest.raises(ChipError, match=f"chip small: needs an engine of kind {kind}; has scalar"):
        make_plan(PlanContext(*blocks(), chip, TARGET), planner_of(level, spill))


@pytest.mark.parametrize(("level", "spill"), WAYS)
@pytest.mark.parametrize(("source", "destination"), [("DDR", "LLB"), ("LLB", "L1")])
def test_a_missing_way_to_the_cores(source: str, destination: str, level: str, spill: str) -> None:
    chip = without_link(small_chip(cores=4, data_bytes=16 * KIB), source, destination)
    with pytest.raises(ChipError, match="chip small: needs links from DDR to L1; has none"):
        make_plan(PlanContext(*blocks(), chip, TARGET), planner_of(level, spill))


@dataclass(frozen=True)
class AsksForLink:
    """The target of the NPU, which asks the chip for a link IM -> LLB, that it does not have, where it works on
    fewer images than a layer has; `asked` counts that."""

    asked: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return TARGET.name

    @property
    def wants(self) -> Wants:
        return TARGET.wants

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        return TARGET.accepts(graph, op, constants, chip)

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        return TARGET.can_fuse_epilogue(graph, layer, op, operand)

    def granularity(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        return TARGET.granularity(graph, layer)

    def whole_axes(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        return TARGET.whole_axes(graph, layer)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        low, high = box[0]
        if box_size(box) and high - low < graph.by_name[layer.output].shape[0]:
            self.asked.append(layer.name)
            chip.link("IM", "LLB")
        return TARGET.work(graph, layer, box, chip)


@pytest.mark.parametrize(("level", "spill"), [way for way in WAYS if way[0] == "O3"])
def test_groups_that_need_what_the_chip_lacks_are_no_groups_that_do_not_fit(level: str, spill: str) -> None:
    """Where no group finds room for all images, it is cut, and asks for the link."""
    target = AsksForLink()
    with pytest.raises(ChipError, match="chip small: needs a link IM -> LLB"):
        make_plan(
            PlanContext(*blocks(batch=4), small_chip(cores=4, data_bytes=8 * KIB), target), planner_of(level, spill)
        )
    assert len(target.asked) == 1, "it is told at once: no other group is tried in its place"
