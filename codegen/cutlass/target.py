"""NVIDIA GPUs as a target: CUTLASS for convolutions and products, kernels of our own for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codegen.cutlass.emission.emit import emit_launches
from codegen.cutlass.execution import execute_launches
from codegen.cutlass.families.registry import offered
from codegen.cutlass.kernel.family import Work
from codegen.cutlass.measuring import open_gpu
from codegen.cutlass.reference import JUDGEMENT, emulate
from codegen.cutlass.rules import OPERATORS, accepts, can_fuse_epilogue
from codegen.judgement import Array, Judgement, Points
from codegen.target import ClusterFiles, Execution, Measurer, TensorPlaces
from hw_models.chip import Chip
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.ir.wants import Wants, floats_as

__all__ = ["SM80", "SM90A", "CutlassTarget"]

WHOLE = frozenset(
    ["Gelu", "Mish", "Elu", "Celu", "Swish", "Selu", "Softsign", "LayerNormalization", "RMSNormalization"]
)


WARP_THREADS = 32
WANTS = Wants(floats_as("float16"), "channels_last", WHOLE, "outputs_first")


@dataclass(frozen=True, slots=True)
class CutlassTarget:
    """One architecture."""

    name: str
    execution: str = "launches"
    data_base_bytes: int = 0
    judgement: Judgement = JUDGEMENT
    wants: Wants = WANTS

    def unsuited(self, chip: Chip) -> tuple[str, ...]:
        """A chip file of another kind cannot say what kernels need."""
        if chip.kind != "gpu":
            return (f"{self.name} needs a chip file of kind gpu, this one is of kind {chip.kind}",)
        if chip.simt.warp_threads != WARP_THREADS:
            return (f"warps have {WARP_THREADS} threads, simt.warp_threads is {chip.simt.warp_threads}",)
        return ()

    def operators(self) -> tuple[tuple[str, str], ...]:
        return tuple(OPERATORS.items())

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        del constants
        return accepts(graph, op, chip)

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        return can_fuse_epilogue(graph, layer, op, operand)

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        return offered(Work(graph, layers, chip))

    def address(self, memory: str, offset_bytes: int) -> int:
        del memory
        return offset_bytes

    def emit_plan(
        self,
        plan: Plan,
        graph: Graph,
        constants: Constants,
        places: TensorPlaces,
        chip: Chip,
        progress: Callable[[str], None],
    ) -> ClusterFiles:
        return emit_launches(plan, graph, constants, places, chip, progress)

    def emulate(
        self,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        points: Points,
        read: Callable[[str], Array],
        chip: Chip,
    ) -> Array:
        return emulate(graph, constants, layer, points, read, chip)

    def open_device(self) -> Measurer:
        return open_gpu()

    def run(
        self, files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int
    ) -> Execution:
        return execute_launches(files, loads, dumps, seed)


SM80 = CutlassTarget("sm_80")
SM90A = CutlassTarget("sm_90a")
