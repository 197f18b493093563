"""The NeuralScale v1 target: its members, each imported from where it is implemented. Planning and lowering are
inherited."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.judgement import EXACT, Judgement
from codegen.neuralscale.benchmarks import benchmarks
from codegen.neuralscale.emit.frame import dma_start_instructions, issue_costs
from codegen.neuralscale.emit.limits import lacking, unsuited
from codegen.neuralscale.emit.memory_map import DATA_BASE, address_of
from codegen.neuralscale.emulation.integers_reference import emulate_prepared
from codegen.neuralscale.emulation.layer_reference import emulate
from codegen.neuralscale.executable import disassemble, emit, emit_rolled, made_for
from codegen.neuralscale.execution import run, simulate, trace, trace_again
from codegen.neuralscale.kernels.dispatch import NeuralScaleKernels
from hw_models.chip import Chip


@dataclass(frozen=True, slots=True)
class NeuralScaleTarget(NeuralScaleKernels):
    """The table `codegen.target.CAPABILITIES` describes each member."""

    data_base_bytes: int = DATA_BASE
    judgement: Judgement = EXACT

    unsuited = staticmethod(unsuited)
    lacking = staticmethod(lacking)
    address = staticmethod(address_of)
    emit = staticmethod(emit)
    emit_rolled = staticmethod(emit_rolled)
    made_for = staticmethod(made_for)
    disassemble = staticmethod(disassemble)
    emulate = staticmethod(emulate)
    emulate_prepared = staticmethod(emulate_prepared)
    run = staticmethod(run)
    simulate = staticmethod(simulate)
    issue_costs = staticmethod(issue_costs)
    dma_start_instructions = staticmethod(dma_start_instructions)
    trace = staticmethod(trace)
    trace_again = staticmethod(trace_again)
    benchmarks = staticmethod(benchmarks)

    def named_for(self, chip: Chip) -> NeuralScaleTarget:
        """The target that takes and gives the chip's own names of memories."""
        from codegen.neuralscale.named_target import named_for  # its class extends this one

        return named_for(self, chip)


TARGET = NeuralScaleTarget()
