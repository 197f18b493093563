"""Kernels in which a thread computes a few neighbours of the output by itself: one skeleton, and an anchor per
operator.

max_pool -> relu   -->   map.cu with @ANCHOR@ = the window's maximum, @EPILOGUE@ = the rest of the layer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from codegen.cutlass.kernel.epilogues import chain_of, dims, vector_width
from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import lanes_floor, launch_seconds, main_floor, stored_bytes
from codegen.cutlass.kernel.launches import Address, Argument, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel

THREADS = 256
WIDTHS = (1, 8)


@dataclass(frozen=True, slots=True)
class Anchor:
    """An operator's code: `declarations` of parameters, statements that fill `v[V]` at the position `at`, and the
    arguments. `includes` are functions that the statements call.

    `domain` holds the extents of the positions that threads compute, () for the whole output; the statements of a part
    move `at` to its position in the output, and `element` is the output element at which v[0] is stored."""

    declarations: str
    statements: str
    arguments: tuple[Argument, ...]
    includes: str = ""
    domain: tuple[int, ...] = ()
    element: str = "size_t(i) * V"


AnchorRule = Callable[[KernelWork, int, Constants], tuple[Anchor, ...]]
"""Rule (work, V, constants) -> the anchor, or one for each part of the output."""


NO_ANCHOR = Anchor("", "", ())
"""Anchor of layers that are element-wise from their first operator on."""


def no_anchor(_work: KernelWork, _width: int, _constants: Constants) -> tuple[Anchor, ...]:
    """Rule of layers that are element-wise from their first operator on."""
    return (NO_ANCHOR,)


@dataclass(frozen=True, slots=True)
class MapFamily:
    """A family with `anchors` by kind of operator; layers of an `elementwise` family are chains of such operators from
    the anchor on.

    `takes` says whether the family computes a layer of one of its kinds; `width` is the number of neighbours per
    thread, `parts` the number of launches. For the floors, `moved` is the number of bytes that the main memory gives
    and takes, and `operations` the least number of operations of an anchor per element."""

    name: str
    anchors: Mapping[str, AnchorRule]
    elementwise: bool = False
    takes: Callable[[KernelWork], bool] = lambda _work: True
    width: Callable[[KernelWork], int] = lambda work: vector_width(work.shape(work.output))
    parts: Callable[[KernelWork], int] = lambda _work: 1
    moved: Callable[[KernelWork], int] = stored_bytes
    operations: Callable[[KernelWork], int] = lambda _work: 1

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        if len(work.layers) > 1 or work.anchor.kind not in self.anchors or not self.takes(work):
            return ()
        chip, width = work.chip, self.width(work)
        vectors, operations = prod(work.shape(work.output)) // width, width * self.operations(work)
        blocks, warps = -(-vectors // THREADS), -(-min(vectors, THREADS) // chip.simt.warp_threads)
        return (
            Kernel(
                self.name,
                (("vector", width),),
                resources=(("threads", THREADS),),
                launches=self.parts(work),
                launch_seconds=launch_seconds(chip),
                floors=(
                    main_floor(chip, self.moved(work)),
                    lanes_floor(chip, warps * operations, operations, blocks),
                ),
                blocks=(blocks,),
            ),
        )

    def launches(self, work: KernelWork, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        """Raises TargetError for a width that does not divide the last axis."""
        width = parameters.get("vector")
        if width not in WIDTHS or self.width(work) % int(width):
            raise TargetError(f"kernel {self.name}", needs="a vector width that divides the last axis", has=str(width))
        anchors = self.anchors[work.anchor.kind](work, int(width), constants)
        return tuple(self._launch(work, int(width), anchor) for anchor in anchors)

    def _launch(self, work: KernelWork, width: int, anchor: Anchor) -> Launch:
        graph, shape = work.graph, work.shape(work.output)
        domain = anchor.domain or shape
        ops = [graph.op_by_name[name] for name in work.layer.ops]
        chain = chain_of(graph, ops if self.elementwise else ops[1:], "" if self.elementwise else ops[0].outputs[0])
        name = "_".join(dict.fromkeys((self.name, *(op.kind for op in ops))))[:100]  # never the name of a C function
        head = f"constexpr int RANK = {len(shape)}, V = {width};\n"
        text = (
            source_text("common.cuh")
            + head
            + anchor.includes
            + filled(
                "map.cu",
                NAME=name,
                PARAMETERS=anchor.declarations + chain.declarations,
                ANCHOR=anchor.statements,
                EPILOGUE=chain.statements,
                ELEMENT=anchor.element,
            )
        )
        vectors = prod(domain) // width
        arguments = (Address(work.output, written=True), vectors, dims(domain), *anchor.arguments, *chain.arguments)
        grid = (-(-vectors // THREADS), 1, 1)
        return Launch(Source(name, text), name, grid, (THREADS, 1, 1), arguments)
