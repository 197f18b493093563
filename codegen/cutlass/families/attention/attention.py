"""Attention as one kernel: scores and weights stay in registers, and heads are read where they lie.

    q, k, v (+ mask)  -->  softmax(scale q k^T + mask) v, operators behind it   -->   one launch

The largest score and the sum of powers are kept as keys come, in blocks (the online softmax); all of them are fp32, and
the weights are rounded to fp16 before they meet v. Heads of q that share one of k and v are rows of one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e as euler
from math import log2

from codegen.cutlass.families.attention.attention_operands import AttentionProblem, attention_of
from codegen.cutlass.families.attention.attention_tiles import AttentionTile, attention_tiles
from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.kernel.epilogues import EpilogueCode, chain_of
from codegen.cutlass.kernel.expressions import literal
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import (
    arithmetic_floor,
    cache_floor,
    lanes_floor,
    main_floor,
    shared_floor,
    stored_bytes,
)
from codegen.cutlass.kernel.launches import Address, Argument, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.chip import Chip
from partitioner.ir.graph import Constants

WIDEST_HEAD = 128
"""Largest number of elements of a row of a head: q and sums stay in registers."""
MOST_STARTED = (1 << 31) - 1
"""Largest number of blocks of threads."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """A layer in the form that the template takes."""

    work: KernelWork
    problem: AttentionProblem

    def tiles(self) -> tuple[AttentionTile, ...]:
        return attention_tiles(self.problem, self.work.chip)

    def costs(self, tile: AttentionTile) -> FusedCosts:
        chip, problem, blocks = self.work.chip, self.problem, tile.blocks
        own = tile.mean_seen * (tile.deep + tile.wide)  # elements of k and v that a block reads
        scores = tile.rows * tile.mean_seen
        each_thread = tile.mean_seen / tile.block * tile.step_operations
        read = own + tile.rows * (problem.size + (tile.mean_seen if problem.mask else 0))
        floors = (
            main_floor(chip, stored_bytes(self.work)),
            arithmetic_floor(chip, "tensor", scores * (tile.deep + tile.wide), (blocks,),
                             chip.tensor.macs_per_cycle("mma", "float16")),
            lanes_floor(chip, int(tile.warps * each_thread), int(each_thread), blocks),
            shared_floor(chip, int(2 * (tile.warps + 1) * own), blocks),
            cache_floor(chip, int(2 * blocks * read)),
        )  # fmt: skip
        return FusedCosts(floors, blocks=(blocks,))

    def launch(self, tile: AttentionTile, constants: Constants) -> Launch:
        del constants
        work, problem = self.work, self.problem
        ops = [work.graph.op_by_name[name] for name in work.layer.ops[1:]]
        chain = chain_of(work.graph, ops, work.anchor.outputs[0])
        arguments: tuple[Argument, ...] = (
            Address(work.output, written=True),
            *(Address(each.name, plus_bytes=2 * each.begin) for each in (problem.q, problem.k, problem.v)),
            Address(problem.mask.name) if problem.mask else 0,
            problem.rows,
            problem.keys,
            problem.steps,
            *chain.arguments,
        )
        grid, block = (tile.blocks, 1, 1), (tile.threads, 1, 1)
        return Launch(_source(tile, chain, work.chip), "attention", grid, block, arguments, tile.shared_bytes)


def _attention_of(work: KernelWork) -> _Attention | None:
    """The layer in the form that the template takes; None for others."""
    if len(work.layers) != 1 or work.anchor.kind != "attend":
        return None
    problem = attention_of(work.graph, work.anchor)
    if (
        problem is None
        or max(problem.size, problem.width) > WIDEST_HEAD
        or problem.items * problem.groups * problem.rows > MOST_STARTED
    ):
        return None
    return _Attention(work, problem)


def _source(tile: AttentionTile, chain: EpilogueCode, chip: Chip) -> Source:
    problem = tile.problem
    text = filled(
        "attention.cu",
        SIZE=problem.size,
        WIDTH=problem.width,
        HEADS=problem.heads,
        SHARED_BY=problem.shared,
        ROWS=tile.rows,
        BLOCK=tile.block,
        FIRST_SEES=problem.first_sees,
        MASKED=problem.mask is not None,
        BY_EIGHT=problem.by_eight,
        SCALE=literal(problem.scale * log2(euler)),
        V=1 if problem.width % 8 else 8,
        SHARED=tile.shared_bytes,
        SHARERS=tile.sharers(chip),
        PARAMETERS=chain.declarations,
        EPILOGUE=chain.statements,
    )
    return Source("attention", source_text("common.cuh", "primitives.cuh", "planes.cuh") + text)


ATTENTION = FusedFamily("attention", _attention_of)
