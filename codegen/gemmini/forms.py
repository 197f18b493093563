"""Forms of code for a layer, of which the cycle model finds the fastest: explicit instructions, or loops that the
accelerator unrolls itself.

    Program --layers that are one product, between fences--> loops of some tilings, timed --> Program and decisions

A layer is given another form where nothing that lies in local memories before or during it is read after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from codegen.gemmini.isa.geometry import ACCUMULATOR, SCRATCHPAD, ArrayGeometry, geometry_of
from codegen.gemmini.isa.matrix_loops import MatrixLoop
from codegen.gemmini.kernels.layers import is_product
from codegen.gemmini.kernels.loop_products import (
    LoopTiling,
    MatrixLayer,
    layer_loops,
    loop_product_instrs,
    matrix_layer,
    tilings,
)
from codegen.gemmini.timing.issue import issue_costs, loop_cycles
from hw_models.chip import Chip
from isched.program.program import Instr, Program, Stream
from isched.program.timed_ops import timed_streams
from isched.timing.cycle_model import time_streams
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer

TIMED = 2
"""Tilings of a layer that the cycle model times: the first ones by an estimate."""


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
        self.known: dict[object, tuple[float, LoopTiling, float]] = {}
        self.sums_half = 0
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
        to = {name: self.written[name] for name in (layer.output,) if name in self.written}
        found = matrix_layer(self.graph, self.constants, layer, {**self.read, **to})
        if isinstance(found, str) or any(instr.engine == "core" for instr in run):
            return run
        key = replace(found, name="", a=0, b=0, d=min(found.d, 0), c=0), len(run)
        if key not in self.known:
            self.known[key] = (self._cycles(run), *self._best(found))
        explicit, tiling, cycles = self.known[key]
        faster = cycles < explicit
        verdict = f"{tiling} by loop_ws" if faster else "explicit instructions"
        told = f"{cycles:,.0f} cycles by the cycle model as loops, {explicit:,.0f} as explicit instructions"
        self.decisions.append(Decision(layer.name, verdict, told))
        if not faster:
            return run
        loops = tuple(layer_loops(found, tiling, self.geometry.dim))
        made = loop_product_instrs(found, loops, self.geometry, self.sums_half)
        self.sums_half = (self.sums_half + sum(bool(loop.c) for loop in loops)) % 2
        return made

    def _best(self, layer: MatrixLayer) -> tuple[LoopTiling, float]:
        """The fastest tiling of those that an estimate finds best, with its cycles."""
        dim, known = self.geometry.dim, dict[MatrixLoop, tuple[float, float, float]]()
        ways = [(self._estimate(tuple(layer_loops(layer, tiling, dim)), known), n, tiling)
                for n, tiling in enumerate(tilings(layer, self.geometry))]  # fmt: skip
        timed = []
        for _, number, tiling in sorted(ways)[:TIMED]:
            loops = tuple(layer_loops(layer, tiling, dim))
            timed.append((self._cycles(loop_product_instrs(layer, loops, self.geometry, 0)), number, tiling))
        cycles, _, tiling = min(timed)
        return tiling, cycles

    def _estimate(self, loops: Sequence[MatrixLoop], known: dict[MatrixLoop, tuple[float, float, float]]) -> float:
        """Cycles of loops of which each moves while another one computes."""
        total, last = 0.0, (0.0, 0.0, 0.0)
        for loop in loops:
            like = replace(loop, a=min(loop.a, 1), b=min(loop.b, 1), c=min(loop.c, 1), d=min(loop.d, 1), a_half=1,
                           b_half=1)  # fmt: skip
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
