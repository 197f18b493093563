"""Attention as one kernel, by mma or by wgmma: scores and weights stay in registers, heads are read where they lie.

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
from codegen.cutlass.families.attention.wgmma_tiles import WgmmaAttentionTile, wgmma_tiles
from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.families.wgmma.group_products import group_product
from codegen.cutlass.kernel.epilogues import EpilogueCode, chain_of
from codegen.cutlass.kernel.expressions import literal
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import main_floor, stored_bytes
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

    def tiles(self) -> tuple[AttentionTile | WgmmaAttentionTile, ...]:
        chip = self.work.chip
        return (*wgmma_tiles(self.problem, chip), *attention_tiles(self.problem, chip))

    def costs(self, tile: AttentionTile | WgmmaAttentionTile) -> FusedCosts:
        chip = self.work.chip
        return FusedCosts((main_floor(chip, stored_bytes(self.work)), *tile.floors(chip)), blocks=(tile.blocks,))

    def launch(self, tile: AttentionTile | WgmmaAttentionTile, constants: Constants) -> Launch:
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
        source = (
            _wgmma_source(tile, chain, work.chip)
            if isinstance(tile, WgmmaAttentionTile)
            else _source(tile, chain, work.chip)
        )
        return Launch(source, "attention", grid, block, arguments, tile.shared_bytes)


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
    text = filled(
        "attention.cu",
        **_words(tile.problem, chain),
        ROWS=tile.rows,
        BLOCK=tile.block,
        BY_EIGHT=tile.problem.by_eight,
        V=1 if tile.problem.width % 8 else 8,
        SHARED=tile.shared_bytes,
        SHARERS=tile.sharers(chip),
    )
    return Source("attention", source_text("common.cuh", "primitives.cuh", "planes.cuh", "scores.cuh") + text)


def _wgmma_source(tile: WgmmaAttentionTile, chain: EpilogueCode, chip: Chip) -> Source:
    products = (
        group_product("multiply_first", tile.block, left="shared", begins=True),
        group_product("multiply_next", tile.block, left="shared"),
        group_product("multiply_weights", tile.problem.width, left="registers", turned=True),
    )
    text = filled(
        "attention_wgmma.cu",
        **_words(tile.problem, chain),
        GROUPS=tile.groups,
        BLOCK=tile.block,
        LAST=(tile.problem.keys - 1) % tile.block + 1,
        STAGES=tile.stages,
        ONCE=tile.once,
        PRODUCTS="".join(products),
        SHARED=tile.shared_bytes,
        SHARERS=tile.sharers,
        LOADER_REGISTERS=tile.loader_registers,
        MULTIPLIER_REGISTERS=tile.multiplier_registers(chip),
    )
    shared = source_text("common.cuh", "primitives.cuh", "planes.cuh", "stages.cuh", "scores.cuh")
    return Source("attention_wgmma", shared + text)


def _words(problem: AttentionProblem, chain: EpilogueCode) -> dict[str, str | int]:
    """Of both templates."""
    return {
        "SIZE": problem.size,
        "WIDTH": problem.width,
        "HEADS": problem.heads,
        "SHARED_BY": problem.shared,
        "FIRST_SEES": problem.first_sees,
        "MASKED": problem.mask is not None,
        "SCALE": literal(problem.scale * log2(euler)),
        "PARAMETERS": chain.declarations,
        "EPILOGUE": chain.statements,
    }


ATTENTION = FusedFamily("attention", _attention_of)
