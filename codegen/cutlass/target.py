"""NVIDIA GPUs as a target: CUTLASS for convolutions and products, our own kernels for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.cutlass.emission.emit import emit_launches
from codegen.cutlass.execution import execute_launches
from codegen.cutlass.families.attention.attention import WIDEST_HEAD
from codegen.cutlass.families.registry import offered
from codegen.cutlass.families.words.words import refused_words
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.measuring import open_gpu
from codegen.cutlass.reference import JUDGEMENT, emulate
from codegen.cutlass.reference.words import emulate_prepared
from codegen.cutlass.rules import OPERATORS, accepts, can_fuse_epilogue
from codegen.judgement import Judgement
from hw_models.chip import Chip
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer
from partitioner.ir.wants import Wants, floats_as

WHOLE = frozenset(
    ["Gelu", "Mish", "Elu", "Celu", "Swish", "Selu", "Softsign", "LayerNormalization", "RMSNormalization"]
)


WARP_THREADS = 32
WANTS = Wants(
    floats_as("float16"),
    "channels_last",
    WHOLE,
    "outputs_first",
    attention_width=WIDEST_HEAD,
    attention_by_place=True,
    attention_columns=True,
    products_by_row=True,
    words=True,
    gathers=True,
)


@dataclass(frozen=True, slots=True)
class CutlassTarget:
    """One architecture. The table `codegen.target.CAPABILITIES` describes each member."""

    name: str
    execution: str = "launches"
    data_base_bytes: int = 0
    judgement: Judgement = JUDGEMENT
    wants: Wants = WANTS

    def unsuited(self, chip: Chip) -> tuple[str, ...]:
        """Sentences for the user: a chip file of another kind lacks what kernels need."""
        if chip.kind != "gpu":
            return (f"{self.name} needs a chip file of kind gpu, this one is of kind {chip.kind}",)
        if chip.simt.warp_threads != WARP_THREADS:
            return (f"warps have {WARP_THREADS} threads, simt.warp_threads is {chip.simt.warp_threads}",)
        return ()

    def operators(self) -> tuple[tuple[str, str], ...]:
        return tuple(OPERATORS.items())

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        return offered(KernelWork(graph, layers, chip))

    def address(self, memory: str, offset_bytes: int) -> int:
        del memory
        return offset_bytes

    accepts = staticmethod(accepts)
    can_fuse_epilogue = staticmethod(can_fuse_epilogue)
    refuses_prepared = staticmethod(refused_words)
    emulate_prepared = staticmethod(emulate_prepared)
    emit_plan = staticmethod(emit_launches)
    emulate = staticmethod(emulate)
    open_device = staticmethod(open_gpu)
    run = staticmethod(execute_launches)


SM80 = CutlassTarget("sm_80")
SM90A = CutlassTarget("sm_90a")
