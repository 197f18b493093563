"""Data that must really be moved: loads that a tile cannot save, and parts of values that cores hand to each other.

    tiles of a piece --> for each its buffers' places, the loads that no buffer holds already, whether it is stored
    boxes that cores have and lack --> what each gives into a shared buffer, what each takes out of it

Lowering makes copies of these data and `partitioner.cost.traffic` counts them, so both mean the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hw_models.chip import Chip
from hw_models.errors import DoesNotFit
from hw_models.infeasible import Infeasible, LayerSubject
from hw_models.memory_parts import place_of
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size, common, holds, relative, run_count
from partitioner.ir.target import Pass, TileLoad, TileWork
from partitioner.tiling.buffer_aliasing import Fit, FreeRegions
from partitioner.tiling.tiling import (
    Tiles,
    bounds_of,
    buffer_sizes,
    overflow,
    place_buffers,
    second_place,
)

MOST_RUNS = 16
"""Largest number of runs of a part that is taken alone; one with more is taken with all data around it."""


@dataclass(frozen=True, slots=True)
class TileFetch:
    """One tile: for each pass of `work` the places of the spare buffers, and the necessary loads."""

    box: Box
    work: TileWork
    used: Fit
    offsets: tuple[Mapping[str, int], ...]
    loads: tuple[tuple[TileLoad, ...], ...]

    @property
    def stored(self) -> bool:
        """Whether the result must be moved from the tile's buffer to the place where it is kept."""
        return self.work.output not in self.used.aliases


def tile_fetches(
    chip: Chip,
    layer: Layer,
    tiles: Tiles,
    free_regions: FreeRegions,
    twice: bool = False,
    from_end: frozenset[tuple[str, str]] = frozenset(),
) -> Iterator[TileFetch]:
    """The tiles in order. A buffer that holds a box already is not loaded with it again. With `twice`, buffers have two
    places where there is room and change place when their contents change. In the parts of memories `from_end`, places
    are given from the end of the free region. Raises DoesNotFit."""
    places = _spare_places(chip, layer, tiles, free_regions, from_end)
    if twice and sum(len(work.passes) for work in tiles.works) > 1 and all(place == places[0] for place in places):
        yield from _alternating(chip, tiles, free_regions, from_end)
        return
    held: dict[str, tuple[str, Box]] = {}
    before = places[0]
    for tile, work, used, spare in zip(tiles.boxes, tiles.works, tiles.fits, places, strict=True):
        if spare != before:
            held.clear()
        before = spare
        passes = []
        for step in work.passes:
            passes.append(_necessary(step, used, held))
        yield TileFetch(tile, work, used, (spare,) * len(passes), tuple(passes))


def _necessary(step: Pass, used: Fit, held: dict[str, tuple[str, Box]]) -> tuple[TileLoad, ...]:
    """The loads of a pass into buffers that do not hold the same already, by what they `held`, which is updated."""
    loads = tuple(
        load
        for load in step.loads
        if load.buffer not in used.aliases and held.get(load.buffer) != (load.tensor, load.box)
    )
    held.update({load.buffer: (load.tensor, load.box) for load in loads})
    return loads


def in_first_half(chip: Chip, fetch: TileFetch, free_regions: FreeRegions) -> frozenset[tuple[str, str]]:
    """Parts of memories in which the first buffer of a tile lies in the first half of its free region. Whatever follows
    finds the other end free for longer."""
    found: dict[tuple[str, str], bool] = {}
    for buffer in fetch.used.spare:
        place = place_of(chip, buffer.memory, buffer.part)
        start, size = bounds_of(chip, place, free_regions)
        found.setdefault(place, 2 * (fetch.offsets[-1][buffer.name] - start) + buffer.size_bytes <= size)
    return frozenset(place for place, first in found.items() if first)


def _alternating(
    chip: Chip, tiles: Tiles, free_regions: FreeRegions, from_end: frozenset[tuple[str, str]]
) -> Iterator[TileFetch]:
    """The tiles in order, with alternating buffers: those that are loaded change place with each load, those that serve
    one pass with each pass, the others with each tile. A buffer without a second place stays where it is."""
    sizes = buffer_sizes(dict.fromkeys(used.spare for used in tiles.fits))
    loaded = {load.buffer for work in tiles.works for step in work.passes for load in step.loads}
    for (name, memory, part), size in tuple(sizes.items()):
        more = {**sizes, (second_place(name), memory, part): size}
        if overflow(chip, more, free_regions) is None:
            sizes = more
    offsets = place_buffers(chip, sizes, free_regions, from_end)
    now: dict[str, int] = {}
    held: dict[str, tuple[str, Box]] = {}
    passed = 0
    for number, (tile, work, used) in enumerate(zip(tiles.boxes, tiles.works, tiles.fits, strict=True)):
        passes: list[tuple[TileLoad, ...]] = []
        places: list[dict[str, int]] = []
        for step in work.passes:
            loads = _necessary(step, used, held)
            for load in loads:
                now[load.buffer] = now.get(load.buffer, -1) + 1
            passes.append(loads)
            here = {}
            for buffer in used.spare:
                nth = now.get(buffer.name, 0) if buffer.name in loaded else passed if buffer.passing else number
                second = second_place(buffer.name)
                here[buffer.name] = offsets[second if nth % 2 and second in offsets else buffer.name]
            places.append(here)
            passed += 1
        yield TileFetch(tile, work, used, tuple(places), tuple(passes))


def _spare_places(
    chip: Chip, layer: Layer, tiles: Tiles, free_regions: FreeRegions, from_end: frozenset[tuple[str, str]]
) -> list[dict[str, int]]:
    """Offsets of the buffers of each tile: the same for all where one place can be large enough for every tile.

    It cannot where one tile needs most of one buffer and another most of a second; then each tile has its own offsets.
    """
    each = dict.fromkeys(used.spare for used in tiles.fits)
    for spare in each:
        if over := overflow(chip, buffer_sizes((spare,)), free_regions):
            subject = LayerSubject(layer.name)
            raise DoesNotFit(Infeasible(subject, over.memory, over.part, over.demand_bytes, over.room_bytes, levers=()))
    together = buffer_sizes(each)
    if overflow(chip, together, free_regions) is None:
        return [place_buffers(chip, together, free_regions, from_end)] * len(tiles.fits)
    return [place_buffers(chip, buffer_sizes((used.spare,)), free_regions, from_end) for used in tiles.fits]


@dataclass(frozen=True, slots=True)
class Relay:
    """Boxes that cores hand on through a shared buffer: `given` in the order of the givers, `taken` in that of the
    takers."""

    given: tuple[tuple[Box, ...], ...]
    taken: tuple[tuple[Box, ...], ...]


def relay(
    givers: Sequence[tuple[int, Box]],
    takers: Sequence[tuple[int, Box]],
    buffer: Box,
    run_cycles: Callable[[int], float],
) -> Relay:
    """Transfers in which cores give parts of the boxes that they own and take what they lack of the boxes that they
    need.

    Givers and takers are pairs of a core and a box; a core may give several. A taker whose missing parts lie scattered
    in its memory takes the whole of its box, if the buffer holds all of it. Data that several takers need are given
    once; a giver whose parts lie scattered in its memory gives all of its box that the buffer has room for, if that
    takes fewer cycles and no other one owns any of it. `run_cycles` gives the cycles to give a number of elements in
    one run.
    """
    given: list[list[Box]] = [[] for _ in givers]
    taken: list[tuple[Box, ...]] = []
    for core, place in takers:
        parts = [
            (number, part)
            for number, (giver, box) in enumerate(givers)
            if giver != core and box_size(part := common(common(place, box), buffer))
        ]
        if any(run_count(box_shape(place), relative(part, place)) > MOST_RUNS for _, part in parts) and holds(
            buffer, place
        ):
            parts = [(number, part) for number, (_, box) in enumerate(givers) if box_size(part := common(place, box))]
            taken.append((place,))
        else:
            taken.append(tuple(part for _, part in parts))
        for number, part in parts:
            if part not in given[number]:
                given[number].append(part)
    few = (_in_few_runs(number, maximal(parts), givers, buffer, run_cycles) for number, parts in enumerate(given))
    return Relay(tuple(few), tuple(taken))


def _in_few_runs(
    number: int,
    parts: tuple[Box, ...],
    givers: Sequence[tuple[int, Box]],
    buffer: Box,
    run_cycles: Callable[[int], float],
) -> tuple[Box, ...]:
    """Boxes that a giver gives: the parts, or all of its box around them."""
    box = givers[number][1]
    whole = common(box, buffer)

    def cycles(part: Box) -> float:
        runs = run_count(box_shape(box), relative(part, box))
        return runs * run_cycles(box_size(part) // runs)

    if not parts or cycles(whole) >= sum(map(cycles, parts)):
        return parts
    alone = all(not box_size(common(whole, other)) for n, (_, other) in enumerate(givers) if n != number)
    return (whole,) if alone else parts


def maximal(parts: Collection[Box]) -> tuple[Box, ...]:
    """The boxes that no other one holds: data that several cores need of one are given once."""
    return tuple(part for part in parts if not any(other != part and holds(other, part) for other in parts))
