"""Kernels in which a thread computes some neighbours of the output by itself: one skeleton, an anchor a kind of operator.

    max_pool -> relu   -->   map.cu with @ANCHOR@ = the window's maximum, @EPILOGUE@ = the rest of the layer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from codegen.cutlass.families.epilogues import chain_of, dims, vector_width
from codegen.cutlass.families.family import Parameters, Work
from codegen.cutlass.floors import lanes_floor, launch_seconds, main_floor, stored_bytes
from codegen.cutlass.launches import Address, Argument, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel

__all__ = ["Anchor", "AnchorRule", "MapFamily", "NO_ANCHOR"]

THREADS = 256
WIDTHS = (1, 8)


@dataclass(frozen=True, slots=True)
class Anchor:
    """`declarations` of parameters, statements that fill `v[V]` at the position `at`, and the arguments. `includes` are
    functions that the statements call."""

    declarations: str
    statements: str
    arguments: tuple[Argument, ...]
    includes: str = ""


AnchorRule = Callable[[Work, int], Anchor]
"""(work, V) -> the anchor."""

NO_ANCHOR = Anchor("", "", ())
"""Of layers that are element-wise from their first operator on."""


@dataclass(frozen=True, slots=True)
class MapFamily:
    """`anchors` by kind of operator; kinds in `whole` are chains of element-wise operators from the anchor on.
    `operations` are those that an anchor needs at least for an element."""

    name: str
    anchors: Mapping[str, AnchorRule]
    elementwise: bool = False
    operations: Callable[[Work], int] = lambda _work: 1

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self.anchors)

    def offers(self, work: Work) -> tuple[Kernel, ...]:
        if len(work.layers) > 1 or work.anchor.kind not in self.anchors:
            return ()
        chip, shape = work.chip, work.shape(work.output)
        width = vector_width(shape)
        vectors, operations = prod(shape) // width, width * self.operations(work)
        warps = -(-min(vectors, THREADS) // chip.simt.warp_threads)
        return (
            Kernel(
                self.name,
                (("vector", width),),
                launch_seconds=launch_seconds(chip),
                floors=(
                    main_floor(chip, stored_bytes(work)),
                    lanes_floor(chip, warps * operations, operations, -(-vectors // THREADS)),
                ),
            ),
        )

    def launches(self, work: Work, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        del constants
        width, shape, graph = parameters.get("vector"), work.shape(work.output), work.graph
        if width not in WIDTHS or shape[-1] % int(width):
            raise TargetError(f"kernel {self.name}", needs="a vector width that divides the last axis", has=str(width))
        anchor = self.anchors[work.anchor.kind](work, int(width))
        ops = [graph.op_by_name[name] for name in work.layer.ops]
        chain = chain_of(graph, ops if self.elementwise else ops[1:], "" if self.elementwise else ops[0].outputs[0])
        name = "_".join(dict.fromkeys(op.kind for op in ops))[:100]
        head = f"constexpr int RANK = {len(shape)}, V = {width};\n#define EACH _Pragma(\"unroll\") for (int k = 0; k < V; ++k)\n"
        text = source_text("common.cuh") + head + anchor.includes + filled(
            "map.cu",
            NAME=name,
            PARAMETERS=anchor.declarations + chain.declarations,
            ANCHOR=anchor.statements,
            EPILOGUE=chain.statements,
        )
        vectors = prod(shape) // int(width)
        arguments = (Address(work.output, written=True), vectors, dims(shape), *anchor.arguments, *chain.arguments)
        grid = (-(-vectors // THREADS), 1, 1)
        return (Launch(Source(name, text), name, grid, (THREADS, 1, 1), arguments),)
