"""Tiles of a product layer in another order of issue: what the next tile needs is moved in while this one computes.

    tiles that need half of the local memories --two places in turn--> load(t + 1), store(t - 1) between compute(t)

The core is held by a loop of more instructions than a controller's station takes, so loads and stores are cut into
pieces that fit there, and computation into as many. The instructions of each controller keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product, zip_longest

from codegen.gemmini.isa.geometry import ACCUMULATOR, MAIN, SCRATCHPAD, geometry_of
from codegen.gemmini.kernels.finish import finish_of, groups_of
from codegen.gemmini.kernels.passes import digits
from codegen.gemmini.kernels.product_input import ambiguous
from codegen.gemmini.kernels.product_shape import ProductShape, product_shape
from codegen.gemmini.kernels.product_tile import INPUT, WEIGHTS, ProductTile, array_cycles, product_work
from codegen.gemmini.kernels.products import product_instrs
from codegen.gemmini.streams.pieces import Touching, pieces
from codegen.gemmini.streams.streams import Do, Item, dynamic_count, operands_of, stream_of
from hw_models.chip import Chip
from isched.program.program import Instr
from isched.program.target import PlacedArray
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, full_box

MOST_TILES = 1_000
"""Most tiles of a layer that is issued so."""


@dataclass(frozen=True, slots=True)
class TileOrder:
    """Parts of the result along its axes; `channels_inside` says that the next tile has other channels, so that its
    patch stays, else other pixels, so that its weights stay."""

    extents: tuple[int, ...]
    channels_inside: bool

    def __str__(self) -> str:
        extents = " x ".join(map(str, self.extents))
        return f"tiles of {extents}, {'channels' if self.channels_inside else 'pixels'} inside"

    def boxes(self, shape: Sequence[int]) -> list[Box]:
        """The tiles, in order."""
        axes = [
            [(low, min(low + extent, whole)) for low in range(0, whole, extent)]
            for whole, extent in zip(shape, self.extents, strict=True)
        ]
        if self.channels_inside:
            return list(product(*axes))
        return [(*pixels, channels) for channels in axes[-1] for pixels in product(*axes[:-1])]


@dataclass(frozen=True, slots=True)
class OrderedLayer:
    """A product layer of which everything lies in the main memory, at `places`, finished on the array; its channels
    are cut in multiples of `unit`."""

    graph: Graph
    constants: Constants
    layer: Layer
    places: Mapping[str, PlacedArray]
    chip: Chip
    unit: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.graph.by_name[self.layer.output].shape

    def product_shape(self, box: Box) -> ProductShape:
        return product_shape(self.graph, self.layer.anchor(self.graph), box)

    def orders(self) -> Iterator[TileOrder]:
        """Ways to cut the layer into tiles, of which two find room: as many rows as fit, for some numbers of channels;
        where one row does not fit, as many columns."""
        shape = self.shape
        all_channels = shape[-1]
        powers = range((all_channels // self.unit).bit_length())
        wanted = dict.fromkeys((*(min(all_channels, self.unit << n) for n in powers), all_channels))
        single = (1,) * (len(shape) - 1)
        for channels in wanted:
            extents = [*single, channels]
            for axis in range(len(shape) - 2, max(-1, len(shape) - 4), -1):
                extents[axis] = self._most(extents, axis)
                if extents[axis] < shape[axis]:
                    break
            if not extents[-2] or not self._fits(tuple(extents)):
                continue
            yield TileOrder(tuple(extents), False)
            if channels < all_channels and groups_of(self.layer.anchor(self.graph)) == 1:
                yield TileOrder(tuple(extents), True)

    def _most(self, extents: list[int], axis: int) -> int:
        """The largest extent along an axis with which two tiles find room, in equal parts."""
        low, high = 1, self.shape[axis]
        while low < high:
            middle = -(-(low + high) // 2)
            fits = self._fits((*extents[:axis], middle, *extents[axis + 1 :]))
            low, high = (middle, high) if fits else (low, middle - 1)
        return -(-self.shape[axis] // -(-self.shape[axis] // low))

    def _fits(self, extents: tuple[int, ...]) -> bool:
        return self._offsets(self._largest(extents)) is not None

    def _largest(self, extents: tuple[int, ...]) -> list[Box]:
        """Tiles of which one needs the most room, of each buffer: those of all parts of the channels where there are
        groups, of which a part may touch one more than another does."""
        pixels = tuple((0, extent) for extent in extents[:-1])
        whole, channels = self.shape[-1], extents[-1]
        starts = range(0, whole, channels) if groups_of(self.layer.anchor(self.graph)) > 1 else (0,)
        return [(*pixels, (low, min(low + channels, whole))) for low in starts]

    def _offsets(self, boxes: Sequence[Box]) -> tuple[dict[str, int], dict[str, int]] | None:
        """Two places of each buffer, as large as one of the tiles needs it; None where there is no room for both."""
        halves = {memory.name: memory.size_bytes // 2 for memory in self.chip.memories}
        dim = geometry_of(self.chip).dim
        rows = {SCRATCHPAD: dim, ACCUMULATOR: 4 * dim}
        sizes: dict[str, int] = {}
        memories: dict[str, str] = {}
        for box in boxes:
            for buffer in product_work(self.graph, self.layer, box, self.chip).buffers:
                memories[buffer.name], unit = buffer.memory, rows[buffer.memory]
                sizes[buffer.name] = max(sizes.get(buffer.name, 0), -(-buffer.size_bytes // unit) * unit)
        taken = {SCRATCHPAD: 0, ACCUMULATOR: 0}
        first: dict[str, int] = {}
        for name, size in sizes.items():
            first[name] = taken[memories[name]]
            taken[memories[name]] += size
        if any(taken[memory] > halves[memory] for memory in taken):
            return None
        return first, {name: offset + halves[memories[name]] for name, offset in first.items()}

    def _weights(self, box: Box) -> Box:
        """The part of the second factor that a tile reads."""
        return (*self.product_shape(box).matrices, box[-1])

    def estimate(self, order: TileOrder) -> float:
        """Cycles of tiles of which each moves while another one computes; infinite for too many tiles."""
        boxes = order.boxes(self.shape)
        if len(boxes) > MOST_TILES:
            return float("inf")
        dim = geometry_of(self.chip).dim
        link = max(link.latency_cycles for link in self.chip.links)
        request = link / self.chip.dma.max_descriptors
        terms = finish_of(self.graph, self.constants, self.layer).terms
        passes = sum(len(digits(term.factor)) for term in terms)
        total, before = 0.0, None
        ends = (0.0, 0.0)
        for box in boxes:
            shape = self.product_shape(box)
            sums = shape.sum_rows(dim)
            patch = shape.input_rows_in_scratchpad(dim) * request * dim / min(64, max(dim, shape.depth))
            weights = shape.weight_rows(dim) * request * dim / 64
            load = sums + len(terms) * sums * request * dim / 64
            load += 0.0 if before and before[:-1] == box[:-1] else patch
            load += 0.0 if before and self._weights(before) == self._weights(box) else weights
            array = array_cycles(shape, geometry_of(self.chip)) + passes * sums
            store = sums * request
            total += max(load, array, store) + (0.0 if before else load)
            ends, before = (array, store), box
        return total + ends[1]

    def instrs(self, order: TileOrder) -> tuple[Instr, ...]:
        """Instructions of the layer in this order."""
        boxes = order.boxes(self.shape)
        largest = self._offsets(self._largest(order.extents))
        assert largest is not None  # `orders` has found room
        places = {name: self.places[name] for name in self.layer.inputs(self.graph)}
        x, w = self.layer.anchor(self.graph).inputs[:2]
        whole = self.product_shape(full_box(self.shape))
        tiles: list[tuple[Instr, ...]] = []
        before: Box | None = None
        turns = {INPUT: 1, WEIGHTS: 1}
        for number, box in enumerate(boxes):
            same_channels = before is not None and self._weights(before) == self._weights(box)
            same_pixels = before is not None and before[:-1] == box[:-1]
            held = {w} if same_channels else set[str]()
            if same_pixels and order.channels_inside and not ambiguous(self.product_shape(box), whole):
                held.add(x)
            for name, buffer in ((x, INPUT), (w, WEIGHTS)):
                turns[buffer] = turns[buffer] if name in held else 1 - turns[buffer]
            own = dict(largest[number % 2]) | {buffer: largest[turn][buffer] for buffer, turn in turns.items()}
            tile = ProductTile(self.graph, self.constants, self.layer, box, own, places, self.places[self.layer.output],
                               self.chip, frozenset(held))  # fmt: skip
            tiles.append(product_instrs(tile))
            before = box
        return ordered(tiles, self.chip)


@dataclass(frozen=True, slots=True)
class IssuedPiece:
    """A piece of an instruction, with its part of the cycles; the main memory's bytes of all pieces are those of the
    `first` one."""

    instr: Instr
    stream: tuple[Item, ...]
    cycles: float
    first: bool

    @property
    def opcode(self) -> str:
        return self.instr.opcode


def ordered(tiles: Sequence[Sequence[Instr]], chip: Chip) -> tuple[Instr, ...]:
    """Instructions of tiles, with those that move for the next tile and for the one before between pieces of those
    that compute. Sums of the tile before leave before those of the next tile come."""
    return _joined(_pipeline(tiles, chip), chip)


def _pipeline(tiles: Sequence[Sequence[Instr]], chip: Chip) -> Iterator[IssuedPiece]:
    by_engine = [{engine: [instr for instr in tile if instr.engine == engine] for engine in ("load", "array", "store")}
                 for tile in tiles]  # fmt: skip
    none: dict[str, list[Instr]] = {"load": [], "array": [], "store": []}
    stages = [none, *by_engine, none, none]
    depth = {engine: chip.queue_depth(engine) for engine in ("load", "store")}
    for stored, (computed, loaded) in zip([none, *stages], pairwise(stages), strict=False):
        cut = next((n for n, each in enumerate(loaded["load"]) if _of_sums(each)), len(loaded["load"]))
        loads, lates = (_grouped(instrs, depth["load"]) for instrs in (loaded["load"][:cut], loaded["load"][cut:]))
        stores = _grouped(stored["store"], depth["store"])
        movers = [[*early, *left] for early, left in zip_longest(loads, stores, fillvalue=())] + lates
        total = sum(dynamic_count(stream_of(instr.operands)) for instr in computed["array"])
        work = _grouped(computed["array"], max(2, -(-total // max(1, len(movers)))))
        for moved, some in zip_longest(movers, work, fillvalue=()):
            yield from (*moved, *some)


def _of_sums(instr: Instr) -> bool:
    return any(region.memory == ACCUMULATOR for region in instr.writes)


def _grouped(instrs: Sequence[Instr], most: int) -> list[list[IssuedPiece]]:
    """Pieces of instructions of one controller, in groups of at most so many instructions."""
    found: list[list[IssuedPiece]] = []
    room = 0
    for instr in instrs:
        cut = pieces(stream_of(instr.operands), most)
        counts = [dynamic_count(piece) for piece in cut]
        for number, (piece, count) in enumerate(zip(cut, counts, strict=True)):
            if count > room:
                found.append([])
                room = max(most, count)
            room -= count
            found[-1].append(IssuedPiece(instr, piece, instr.cycles * count / sum(counts), number == 0))
    return found


def _joined(found: Iterable[IssuedPiece], chip: Chip) -> tuple[Instr, ...]:
    """Pieces of one controller that follow each other made one instruction, as machine code does not tell them apart,
    each with the local rows that it touches."""
    joined: list[list[IssuedPiece]] = []
    for piece in found:
        goes_on = joined and joined[-1][0].opcode == piece.opcode in ("mvin", "mvin2", "mvin3", "mvout", "compute")
        sets_up = isinstance(piece.stream[0], Do) and piece.stream[0].function == "config"
        if goes_on and not sets_up:
            joined[-1].append(piece)
        else:
            joined.append([piece])
    touching = Touching(geometry_of(chip).dim, [(0, 0)] * 3)
    return tuple(_one(each, touching) for each in joined)


def _one(of: Sequence[IssuedPiece], touching: Touching) -> Instr:
    stream = tuple(item for piece in of for item in piece.stream)
    own = touching.regions(stream)
    wholes = [piece.instr for piece in of if piece.first]
    mains = (
        [region for instr in wholes for region in instr.reads],
        [region for instr in wholes for region in instr.writes],
    )
    reads, writes = (
        (*(region for region in main if region.memory == MAIN), *(region for region in local if region.memory != MAIN))
        for main, local in zip(mains, own, strict=True)
    )
    cycles = sum(piece.cycles for piece in of)
    return replace(of[0].instr, operands=operands_of(stream), reads=reads, writes=writes, cycles=cycles)
