"""What the check of a layout refuses: every place that is read, moved elsewhere, shrunk or dropped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import pytest

from benchmarks.lab.readers.layouts import parse_layout
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Exchange, Group, Plan, Split
from partitioner.ir.regions import box_size
from partitioner.ir.steps import Binding, MoveStep, RunStep
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import (
    FOR_SCHEDULING,
    PLAIN,
    LayerLayout,
    Layout,
    LayoutOptions,
    MoveLayout,
    Place,
)
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_layout import verify_layout
from tests.chip_runs import small_chip
from tests.group_plans import one_group
from tests.small_graphs import GraphBuilder

KIB = 1024


@dataclass(frozen=True)
class Case:
    ctx: PlanContext
    plan: Plan
    layout: Layout

    def check(self, layout: Layout) -> None:
        verify_layout(layout, self.plan, self.ctx)


def case_from(graph: Graph, chip: Chip, plan: Plan, options: LayoutOptions = PLAIN) -> Case:
    ctx = PlanContext(graph, {}, chip, TARGET)
    return Case(ctx, plan, lay_out(plan, ctx, options))


def residual() -> tuple[Graph, Constants]:
    """Three convolutions of 3x3 with a residual from the first, then a fourth."""
    builder = GraphBuilder("residual")
    x = builder.input("x", 2, 12, 12, 16)
    first = builder.elementwise("relu", builder.conv(x, 32))
    second = builder.elementwise("relu", builder.conv(first, 32))
    third = builder.elementwise("relu", builder.elementwise("add", builder.conv(second, 32), first))
    return builder.build(builder.conv(third, 16))


def grouped(
    cuts: Mapping[int, int],
    pieces: tuple[int, ...],
    exchanged: tuple[str, ...] = (),
    spilled: Mapping[str, str] = MappingProxyType({}),
    pinned: bool = False,
    options: LayoutOptions = PLAIN,
) -> Case:
    graph, constants = residual()
    chip = small_chip(cores=4, data_bytes=64 * KIB, llb_bytes=256 * KIB)
    plan = one_group(graph, constants, chip, cuts, pieces, exchanged, spilled)
    if pinned:
        plan = replace(plan, pinned=tuple(tensor.name for tensor in graph.tensors if tensor.constant))
    return case_from(graph, chip, plan, options)


def moved(shared: str) -> Case:
    """A group in two instances whose outputs stay in the cores or in a shared memory, then one that gathers them; what
    the first makes is an output of the network too where it stays on the cores."""
    builder = GraphBuilder("moved")
    x = builder.input("x", 2, 12, 12, 16)
    for channels in (24, 16, 16):
        x = builder.elementwise("relu", builder.conv(x, channels))
    graph, constants = builder.build(x)
    chip = small_chip(cores=4, data_bytes=64 * KIB, llb_bytes=256 * KIB)
    base = make_plan(PlanContext(graph, constants, chip, TARGET))
    layers = tuple(layer for group in base.groups for layer in group.layers)
    first, second = Group("first", layers[:2], Split(((0, (0, 1, 2)),))), Group("second", layers[2:])
    shape = graph.by_name[first.output].shape
    rest = tuple((0, extent) for extent in shape[1:])
    rows, cross = Binding((1, 4, 1, 1), (0, 1, 2, 3)), Binding((2, 2, 1, 1), (3, 1, 0, 2))
    whole = tuple((0, extent) for extent in graph.by_name[second.output].shape)
    steps = (
        RunStep("first", 0, ((0, 1), *rest), shared or "L1", rows),
        RunStep("first", 1, ((1, 2), *rest), "L1", rows),
        MoveStep("concat", "second", 0, ((0, 2), *rest), "L1", cross, tensor=first.output),
        RunStep("second", 0, whole, "DDR", cross),
    )
    plan = replace(base, groups=(first, second), steps=steps)
    return case_from(graph, chip, plan)


def stored() -> Case:
    """A group with an output that its later layers read too: it stays and leaves. A view in it renames what stays."""
    builder = GraphBuilder("stored")
    x = builder.input("x", 2, 6, 6, 16)
    first = builder.elementwise("relu", builder.conv(x, 32))
    view = builder.view(first, 2, 36, 32)
    last = builder.elementwise("relu", view)
    graph, constants = builder.build(last, first)
    chip = small_chip(cores=2, data_bytes=64 * KIB, llb_bytes=256 * KIB)
    plan = one_group(graph, constants, chip, {}, (2, 1, 1))
    return case_from(graph, chip, plan)


INNER = ("relu1.out", "relu3.out", "relu6.out")
CASES: dict[str, Callable[[], Case]] = {
    "halos": lambda: grouped({1: 3}, (2, 2, 1, 1)),
    "exchanges": lambda: grouped({}, (2, 2, 1, 1), INNER),
    "exchanges of channels": lambda: grouped({0: 2}, (1, 1, 2, 2), INNER[1:]),
    "spills to the staging memory": lambda: grouped({1: 2}, (2, 2, 1, 1), spilled=dict.fromkeys(INNER[:2], "LLB")),
    "spills to the main memory": lambda: grouped({}, (1, 4, 1, 1), spilled={INNER[0]: "DDR"}),
    "spills beside exchanges": lambda: grouped({}, (2, 2, 1, 1), INNER[1:2], {INNER[0]: "LLB"}),
    "pinned constants": lambda: grouped({0: 2}, (1, 4, 1, 1), pinned=True),
    "for a scheduler": lambda: grouped({0: 2}, (1, 4, 1, 1), INNER[:1], options=FOR_SCHEDULING),
    "moves between cores": lambda: moved(""),
    "moves from a shared memory": lambda: moved("LLB"),
    "stores and views": stored,
}  # fmt: skip


@cache
def case_of(name: str) -> Case:
    return CASES[name]()


PLACE = re.compile(r'(?<=")([^"@]+)@(\d+)\+(\d+) \[([^]"]*)\](?=")')
PASSING = ("exchange", "move", "store")
"""Lines with buffers that nothing else knows of: they may lie anywhere where there is room."""


@pytest.mark.spread(5)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.commit
def test_every_place_that_moves_alone_is_found(name: str) -> None:
    """Whichever single place lies elsewhere, before or behind where it was, something is not where it is wanted."""
    case = case_of(name)
    case.check(case.layout)
    text = str(case.layout)
    found = list(PLACE.finditer(text))
    assert found
    for place in found:
        memory, offset = place[1], int(place[2])
        unit = case.ctx.chip.memory(memory).alignment_bytes
        buffer = _line(text, place.start()).startswith(PASSING) and memory == case.layout.staging
        for other in (offset + 1, offset - unit) if buffer else (offset + unit, offset + 1, offset - unit):
            if other >= 0:
                moved = f"{memory}@{other}+{place[3]} [{place[4]}]"
                with pytest.raises(PlanError):
                    case.check(parse_layout(text[: place.start()] + moved + text[place.end() :]))


@pytest.mark.spread(5)
@pytest.mark.parametrize("name", CASES)
def test_every_place_that_holds_less_is_found(name: str) -> None:
    """One plane of a box less, at its end: of a value that is read, or of a buffer that all of it goes through. Only
    the addition is left out, which has no halo and reads less of the first value than lies there."""
    case = case_of(name)
    text = str(case.layout)
    for place in PLACE.finditer(text):
        if _layer(text, place.start()).startswith('layer name="conv4"') and INNER[0] in _line(text, place.start()):
            continue
        box = [tuple(map(int, interval.split(":"))) for interval in place[4].split(", ")]
        axis = next(n for n, (low, high) in enumerate(box) if high - low > 1)
        (low, high), size = box[axis], int(place[3])
        box[axis] = (low, high - 1)
        less = f"{place[1]}@{place[2]}+{size * (high - 1 - low) // (high - low)} {_text(box)}"
        with pytest.raises(PlanError):
            case.check(parse_layout(text[: place.start()] + less + text[place.end() :]))


@pytest.mark.spread(5)
@pytest.mark.parametrize("name", CASES)
def test_every_line_that_is_dropped_is_found(name: str) -> None:
    case = case_of(name)
    lines = str(case.layout).splitlines()
    for number, line in enumerate(lines):
        if line.split()[0] in ("layout", "elements", "peak", "move", "step"):
            continue
        behind = number + 1  # with what belongs to it
        while behind < len(lines) and _depth(lines[behind]) > _depth(line):
            behind += 1
        with pytest.raises(PlanError):
            case.check(parse_layout("\n".join(lines[:number] + lines[behind:])))


def _layer(text: str, position: int) -> str:
    return text[max(text.rfind("    layer ", 0, position), text.rfind("  step ", 0, position)) :].strip()


def _line(text: str, position: int) -> str:
    return text[text.rfind("\n", 0, position) + 1 : text.find("\n", position)].strip()


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _text(box: list[tuple[int, ...]]) -> str:
    return "[" + ", ".join(f"{low}:{high}" for low, high in box) + "]"


Damage = Callable[[Layout], Layout]


def laid(layout: Layout, step: int) -> tuple[LayerLayout, ...]:
    """The layers of a step that is no move."""
    found = layout.steps[step]
    assert not isinstance(found, MoveLayout)
    return found


def spilled(layout: Layout) -> Place:
    """Where the first layer's output is spilled to."""
    place = laid(layout, 0)[0].destination
    assert place is not None
    return place


def layer(damage: Callable[[LayerLayout], LayerLayout], number: int = 0, step: int = 0) -> Damage:
    """One layer of a step laid out otherwise."""

    def damaged(layout: Layout) -> Layout:
        layers = laid(layout, step)
        entries = (*layers[:number], damage(layers[number]), *layers[number + 1 :])
        return replace(layout, steps=(*layout.steps[:step], entries, *layout.steps[step + 1 :]))

    return damaged


def move(damage: Callable[[MoveLayout], MoveLayout]) -> Damage:
    """The move of the plan that has one, otherwise."""

    def damaged(layout: Layout) -> Layout:
        return replace(
            layout, steps=tuple(damage(laid) if isinstance(laid, MoveLayout) else laid for laid in layout.steps)
        )

    return damaged


def at(place: Place, offset_bytes: int) -> Place:
    return replace(place, offset_bytes=offset_bytes)


def output_at(offset_bytes: int) -> Callable[[LayerLayout], LayerLayout]:
    """The output of a layer elsewhere in the cores' memories."""

    def damaged(entry: LayerLayout) -> LayerLayout:
        name = entry.layer.output
        here = tuple({**here, name: at(here[name], offset_bytes)} for here in entry.residents)
        return replace(entry, residents=here)

    return damaged


def round_staged(damage: Callable[[int], int]) -> Callable[[LayerLayout], LayerLayout]:
    """The inputs of all rounds of a layer at other offsets."""

    def damaged(entry: LayerLayout) -> LayerLayout:
        rounds = tuple(
            (
                this_round,
                replace(stage, inputs=tuple(replace(i, offset_bytes=damage(i.offset_bytes)) for i in stage.inputs)),
            )
            for this_round, stage in entry.rounds
        )
        return replace(entry, rounds=rounds)

    return damaged


def without_the_first_core(entry: LayerLayout) -> LayerLayout:
    rounds = tuple(
        (replace(this_round, boxes=(((0, 0),) * 4, *this_round.boxes[1:])), stage) for this_round, stage in entry.rounds
    )
    return replace(entry, rounds=rounds)


def onto_sources(laid: MoveLayout) -> MoveLayout:
    offset = laid.sources[0][1].offset_bytes
    return replace(laid, targets=tuple((core, at(place, offset)) for core, place in laid.targets))


def everywhere(entry: LayerLayout) -> LayerLayout:
    return replace(entry, free_regions=dict.fromkeys(entry.free_regions, (0, 64 * KIB)))


FAULTS: dict[str, tuple[str, Damage, str]] = {
    "an output over an input": (
        "halos",
        layer(output_at(0), 1),
        r"layer conv2, core 0: needs \[.*\] of relu1.out at L1@0\+\d+; has layer conv2 on its bytes",
    ),
    "an output over its own tile buffers": (
        "halos",
        layer(lambda entry: output_at(next(iter(entry.free_regions.values()))[0])(entry)),
        r"layout of layer conv0, core 0: needs bytes of its own at L1@.*; has tile buffers of layer conv0 at L1@",
    ),
    "tile buffers over a value that is read later": (
        "halos",
        layer(everywhere, 1),
        r"needs bytes of its own at L1@.*; has tile buffers of layer conv2 at L1@0\+65536 at the same time",
    ),
    "a value behind its part of the memory": (
        "halos",
        layer(output_at(64 * KIB)),
        r"layout of layer conv0: needs bytes 0 to 65536; has \[.*\] of relu1.out at L1@65536\+",
    ),
    "tile buffers behind their part": (
        "halos",
        layer(lambda entry: replace(entry, free_regions=dict.fromkeys(entry.free_regions, (64 * KIB - 8, 16)))),
        r"layout of layer conv0: needs bytes 0 to 65536; has tile buffers at L1@65528\+16",
    ),
    "rounds behind the memory": (
        "halos",
        layer(lambda entry: replace(entry, staging=(entry.staging[0], 256 * KIB + 2))),
        r"layout of layer conv0: needs bytes 0 to 262144; has staged rounds at LLB@0\+262146",
    ),
    "rounds that are larger than what they have": (
        "halos",
        layer(lambda entry: replace(entry, staging=(0, 64))),
        r"layout of layer conv0: needs bytes 0 to 64; has \d+ bytes of a round",
    ),
    "rounds over pinned constants": (
        "pinned constants",
        layer(lambda entry: replace(entry, staging=(0, 256 * KIB))),
        r"layer conv0: needs .* of conv0.w at LLB@\d+\+\d+; has rounds of layer conv0 on its bytes",
    ),
    "boxes of a round on each other": (
        "halos",
        layer(round_staged(lambda offset: offset % 2)),
        r"round 0 of layer conv0: needs staged boxes that do not overlap, at multiples of 2, in \d+ bytes; has conv",
    ),
    "boxes of a round behind it": (
        "halos",
        layer(round_staged(lambda offset: offset + 2)),
        r"round 0 of layer conv0: needs staged boxes that do not overlap.*; has x at \+",
    ),
    "a round without what it reads": (
        "halos",
        layer(lambda e: replace(e, rounds=tuple((own, replace(stage, inputs=())) for own, stage in e.rounds))),
        r"round 0 of layer conv0: needs \[.*\] of x staged; has none of it",
    ),
    "rounds that leave a gap": (
        "halos",
        layer(without_the_first_core),
        r"layer conv0, core 0: needs rounds that make \[.*\]; has a gap",
    ),
    "an exchange over a value that is spilled": (
        "spills beside exchanges",
        lambda layout: layer(lambda entry: replace(entry, exchange=spilled(layout)), 1)(layout),
        r"layer conv4: needs \[.*\] of relu1.out at LLB@0\+18432; has the exchange of relu3.out on its bytes",
    ),
    "no exchange": (
        "exchanges",
        layer(lambda entry: replace(entry, exchange=None)),
        r"layer conv2, core 0: needs \[0:1, 0:7, .*\] of relu1.out at L1@.*; has \[0:1, 0:6, .*\] written there",
    ),
    "a value that is in no memory": (
        "halos",
        layer(lambda entry: replace(entry, residents=({},) * 4), 1),
        r"layer conv2, core 0: needs a place for \[.*\] of relu3.out; has none",
    ),
    "a source that is not there": (
        "halos",
        layer(lambda entry: replace(entry, sources={})),
        r"layer conv0, core 0: needs \[.*\] of x; has no place for it",
    ),
    "a move without some of its sources": (
        "moves between cores",
        move(lambda laid: replace(laid, sources=laid.sources[1:])),
        r"move of relu3.out for instance 0 of group second, core 3: needs \[.*\] of .* at L1@.*; has sources of a part",
    ),
    "a move between cores without a buffer": (
        "moves between cores",
        move(lambda laid: replace(laid, buffer=None)),
        r"move of relu3.out .*has sources of a part of it",
    ),
    "a move onto its own sources": (
        "moves between cores",
        move(onto_sources),
        r"needs .* of relu3.out at L1@\d+.*; has move of relu3.out for instance 0 of group second on its bytes",
    ),
    "slots that go backwards": (
        "halos",
        layer(lambda entry: replace(entry, slot=0), 1),
        "layout of layer conv2: needs a slot after 0; has 0",
    ),
    "a layer twice": (
        "halos",
        lambda layout: layer(lambda _: laid(layout, 0)[0], 1)(layout),
        "layout of instance 0 of group all: needs layers of the group in order; has conv0",
    ),
    "other cores than those of the plan": (
        "halos",
        layer(lambda entry: replace(entry, cores=(3, 2, 1, 0))),
        r"layout of instance 0 of group all: needs cores \(0, 1, 2, 3\); has \(3, 2, 1, 0\)",
    ),
    "a step too few": (
        "halos",
        lambda layout: replace(layout, steps=layout.steps[:-1]),
        "layout: needs an entry for each of 3 steps; has 2",
    ),
    "a step of another kind": (
        "moves between cores",
        lambda layout: replace(layout, steps=(*layout.steps[:2], (), layout.steps[3])),
        "layout of instance 0 of group second: needs an entry for a concat; has one for another kind of step",
    ),
    "a layer too few": (
        "halos",
        lambda layout: replace(layout, steps=(*layout.steps[:2], ())),
        "layout: needs all of the output conv7.out in DDR; has parts that are missing there",
    ),
    "a value too many in the main memory": (
        "halos",
        lambda layout: replace(layout, main=layout.main | {INNER[0]}),
        r"layout: needs the values that are stored in DDR; has differences: relu1.out",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_a_damaged_layout_is_refused_in_a_sentence(name: str, damage: Damage, said: str) -> None:
    case = case_of(name)
    with pytest.raises(PlanError, match=said):
        case.check(damage(case.layout))


def test_cores_that_rest_while_others_compute_a_value_get_it_by_the_exchange() -> None:
    graph, constants = residual()
    chip = small_chip()
    plan = one_group(graph, constants, chip, {}, (2, 4, 1, 1), ("relu3.out",))
    fewer = replace(plan.groups[0], exchanges=(Exchange("relu3.out", (1, 3, 1, 2)),))
    case = case_from(graph, chip, replace(plan, groups=(fewer,)))
    resting = [box for entry in laid(case.layout, 0) if entry.exchange for box in entry.boxes if not box_size(box)]
    assert len(resting) == 2
    case.check(case.layout)
