"""An executor of PTX text in numpy: the instruction-set simulator of the GPU back end.

    parse(text) -> Module;  launch(module, kernel, grid, block, params, memory, seed)

It runs all threads of several CTAs together, and treats everything that a GPU leaves undefined as an error: accesses
outside of allocations, races in shared memory, copies that were not waited for, collectives of divergent warps.
"""

from codegen.cutlass.ptx.launch import Statistics, launch, parameters
from codegen.cutlass.ptx.state.global_memory import GlobalMemory
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault, PtxError, PtxLimits, UnsupportedPtx
from codegen.cutlass.ptx.text.module import Module, PtxKernel
from codegen.cutlass.ptx.text.parse import parse

__all__ = [
    "KernelFault",
    "FaultKind",
    "GlobalMemory",
    "PtxKernel",
    "PtxLimits",
    "Module",
    "PtxError",
    "Statistics",
    "UnsupportedPtx",
    "launch",
    "parameters",
    "parse",
]
