"""Forms of code for a layer, of which the cycle model finds the fastest: explicit instructions, or loops that the
accelerator unrolls itself.

    Program --layers that are one product, between fences--> loops of some tilings, timed --> Program and decisions

A layer is given another form where nothing that lies in local memories before or during it is read after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codegen.gemmini.isa.geometry import ACCUMULATOR, MAIN, SCRATCHPAD, ArrayGeometry, geometry_of
from codegen.gemmini.isa.unrolled import AcceleratorLoop
from codegen.gemmini.kernels.accelerator_loops import looped_instrs
from codegen.gemmini.kernels.finish import finish_of
from codegen.gemmini.kernels.issue_order import OrderedLayer, TileOrder
from codegen.gemmini.kernels.layers import granularity, is_product
from codegen.gemmini.kernels.loop_convolutions import ConvolutionLayer, ConvolutionTiling, convolution_layer
from codegen.gemmini.kernels.loop_products import MatrixLayer, MatrixTiling, matrix_layer
from codegen.gemmini.kernels.passes import digits
from codegen.gemmini.timing.issue import issue_costs, loop_cycles
from hw_models.chip import Chip
from isched.program.program import Instr, Program, Stream
from isched.program.timed_ops import timed_streams
from isched.timing.cycle_model import time_streams
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, full_box

TIMED = 2
"""Tilings of a layer that the cycle model times: the first ones by an estimate; beside loops, one order of tiles."""

_Looped = MatrixLayer | ConvolutionLayer
_Tiling = MatrixTiling | ConvolutionTiling
_Form = tuple[float, int, _Tiling | TileOrder | None]
"""Cycles by themselves, and what the layer is cut into, if it is not as planned."""


@dataclass(frozen=True, slots=True)
class ArrayInMain:
    """The whole of a tensor in the main memory."""

    memory: str
    offset_bytes: int
    box: Box


def _named(form: _Form) -> str:
    match form[2]:
        case MatrixTiling() | ConvolutionTiling():
            return str(form[2])
        case TileOrder():
            return f"{form[2]}, the next one moved in meanwhile"
        case _:
            return "tile after tile"


def in_fastest_forms(
    program: Program, graph: Graph, constants: Constants, layers: tuple[Layer, ...], chip: Chip
) -> Program:
    """The program with layers as loops of the accelerator's own where these are faster."""
    return _Choice(program, graph, constants, {layer.name: layer for layer in layers}, chip).made()


class _Choice:
    """One walk over a program's layers."""

    def __init__(
        self, program: Program, graph: Graph, constants: Constants, layers: Mapping[str, Layer], chip: Chip
    ) -> None:
        self.program, self.graph, self.constants, self.layers, self.chip = program, graph, constants, layers, chip
        self.geometry = geometry_of(chip)
        probes = {place.of: place.offset_bytes for place in program.placements if place.kind == "probe"}
        self.written = {place.tensor: place.offset_bytes for place in program.placements if place.kind != "probe"}
        self.read = self.written | probes
        self.known: dict[object, tuple[str, list[_Form]]] = {}
        self.sums_halves = {MatrixTiling: 0, ConvolutionTiling: 0}
        self.decisions: list[Decision] = []

    def made(self) -> Program:
        """The program of the walk."""
        (stream,) = self.program.streams
        instrs: list[Instr] = []
        free = _free_after(stream.instrs, self.geometry)
        for first, end in _runs(self.program, stream.instrs):
            run = stream.instrs[first:end]
            layer = self.layers.get(run[0].source)
            if layer is not None and not self.program.is_barrier(run[0]) and is_product(self.graph, layer):
                run = self._fastest(layer, run) if free[end] else run
            instrs += run
        decisions = (*self.program.decisions, *self.decisions)
        return replace(self.program, streams=(replace(stream, instrs=tuple(instrs)),), decisions=decisions)

    def _fastest(self, layer: Layer, run: tuple[Instr, ...]) -> tuple[Instr, ...]:
        placed = {**self.read, **{name: self.written[name] for name in (layer.output,) if name in self.written}}
        names = {*layer.inputs(self.graph), layer.output}
        if not finish_of(self.graph, self.constants, layer).on_array or not names <= placed.keys():
            return run
        loops = self._looped(layer, placed)
        places = {name: ArrayInMain(MAIN, placed[name], full_box(self.graph.by_name[name].shape)) for name in names}
        unit = granularity(self.graph, layer, self.geometry.dim)[-1]
        tiles = OrderedLayer(self.graph, self.constants, layer, places, self.chip, unit)
        key = self._likeness(layer), len(run)
        if key not in self.known:
            forms: list[_Form] = [(self._cycles(run), 0, None)]
            forms += [(cycles, 1, tiling) for cycles, tiling in self._loop_forms(loops)]
            timed, fastest = 1 if len(forms) > 1 else TIMED, min(cycles for cycles, *_ in forms)
            forms += [(cycles, 2, order) for cycles, order in self._order_forms(tiles, timed, fastest)]
            self.known[key] = layer.name, sorted(forms, key=lambda form: form[:2])
        like, (best, *others) = self.known[key]
        told = "; ".join(f"{_named(form)} {form[0]:,.0f}" for form in others) or "no other form"
        alike = "" if like == layer.name else f"; as found for {like}"
        reason = f"{best[0]:,.0f} cycles by the cycle model; {told}{alike}"
        self.decisions.append(Decision(layer.name, _named(best), reason))
        if isinstance(best[2], MatrixTiling | ConvolutionTiling):
            kind = type(best[2])
            made, self.sums_halves[kind] = self._made(loops, best[2], self.sums_halves[kind])
            return made
        return run if best[2] is None else tiles.instrs(best[2])

    def _likeness(self, layer: Layer) -> object:
        """What the fastest form of a layer depends on; of how often values are added, only the power of two."""
        anchor = layer.anchor(self.graph)
        shapes = tuple(self.graph.by_name[name].shape for name in (*anchor.inputs, layer.output))
        terms = finish_of(self.graph, self.constants, layer).terms
        return anchor.kind, anchor.attributes, shapes, tuple(len(digits(term.factor)).bit_length() for term in terms)

    def _order_forms(self, tiles: OrderedLayer, timed: int, below_cycles: float) -> Iterator[tuple[float, TileOrder]]:
        """Tiles in another order of issue, those that an estimate finds best, if they may be faster."""
        orders = sorted((tiles.estimate(order), n, order) for n, order in enumerate(tiles.orders()))
        for estimated, _, order in orders[:timed]:
            if estimated < below_cycles:
                yield self._cycles(tiles.instrs(order)), order

    def _looped(self, layer: Layer, placed: Mapping[str, int]) -> _Looped | str:
        """The layer as loops have it: of a product of matrices, else of a convolution; or why there are none."""
        product = matrix_layer(self.graph, self.constants, layer, placed)
        return convolution_layer(self.graph, self.constants, layer, placed) if isinstance(product, str) else product

    def _made(self, layer: _Looped | str, tiling: _Tiling, half: int) -> tuple[tuple[Instr, ...], int]:
        """Instructions of a layer as loops, and the half of the accumulator after it."""
        match layer, tiling:
            case MatrixLayer(), MatrixTiling():
                return looped_instrs(layer, tiling, self.geometry, half)
            case ConvolutionLayer(), ConvolutionTiling():
                return looped_instrs(layer, tiling, self.geometry, half)
        raise AssertionError(f"{tiling} is none of {layer}")  # tilings are made for layers that are alike

    def _loop_forms(self, layer: _Looped | str) -> Iterator[tuple[float, _Tiling]]:
        """Loops of a layer, those that an estimate finds best."""
        if isinstance(layer, str):
            return
        known: dict[AcceleratorLoop, tuple[float, float, float]] = {}
        ways: list[tuple[float, int, _Tiling]] = []
        for tiling in layer.tilings(self.geometry):
            ways.append((self._estimate(self._loops(layer, tiling), known), len(ways), tiling))
        for _, _, tiling in sorted(ways)[:TIMED]:
            yield self._cycles(self._made(layer, tiling, 0)[0]), tiling

    def _loops(self, layer: _Looped, tiling: _Tiling) -> tuple[AcceleratorLoop, ...]:
        match layer, tiling:
            case MatrixLayer(), MatrixTiling():
                return tuple(layer.loops(tiling, self.geometry))
            case ConvolutionLayer(), ConvolutionTiling():
                return tuple(layer.loops(tiling, self.geometry))
        raise AssertionError(f"{tiling} is none of {layer}")

    def _estimate(
        self, loops: Sequence[AcceleratorLoop], known: dict[AcceleratorLoop, tuple[float, float, float]]
    ) -> float:
        """Cycles of loops of which each moves while another one computes."""
        total, last = 0.0, (0.0, 0.0, 0.0)
        for loop in loops:
            like = loop.anywhere()
            last = known.get(like) or known.setdefault(like, loop_cycles(like, self.chip))
            total += max(last) if total else sum(last[:2])
        return total + last[2]

    def _cycles(self, run: tuple[Instr, ...]) -> float:
        """Cycles of instructions by themselves."""
        own = replace(self.program, streams=(Stream(0, run),))
        return time_streams(timed_streams(own, self.chip, issue_costs(own, self.chip)), self.chip).cycles


def _runs(program: Program, instrs: Sequence[Instr]) -> Iterator[tuple[int, int]]:
    """Instructions of one layer between barriers, as (first, end), and barriers by themselves."""
    first = 0
    for place in range(1, len(instrs) + 1):
        before = instrs[place - 1]
        goes_on = place < len(instrs) and not program.is_barrier(before) and not program.is_barrier(instrs[place])
        if not goes_on or instrs[place].source != before.source:
            yield first, place
            first = place


def _free_after(instrs: Sequence[Instr], geometry: ArrayGeometry) -> list[bool]:
    """For each place between instructions, whether nothing in local memories is read after it."""
    rows = {SCRATCHPAD: (geometry.dim, np.zeros(geometry.local_rows, np.bool_)),
            ACCUMULATOR: (4 * geometry.dim, np.zeros(geometry.accumulator_rows, np.bool_))}  # fmt: skip
    free = [True]
    for instr in reversed(instrs):
        for region in instr.writes:
            if region.memory in rows and (region.rows == 1 or region.stride_bytes == region.row_bytes):
                row_bytes, live = rows[region.memory]
                live[-(-region.offset_bytes // row_bytes) : region.end_bytes // row_bytes] = False
        for region in instr.reads:
            if region.memory in rows:
                row_bytes, live = rows[region.memory]
                live[region.offset_bytes // row_bytes : -(-region.end_bytes // row_bytes)] = True
        free.append(not any(live.any() for _, live in rows.values()))
    return free[::-1]
