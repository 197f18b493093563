"""Whether a kernel may start while the one before it still runs: if it waits for that one before it touches memory.

PTX of a kernel --first instructions--> does `griddepcontrol.wait` come before any access but of parameters?

A runner that lets kernels overlap relies on this alone, so it is read from the PTX that is shipped and not assumed.
"""

from __future__ import annotations

from codegen.cutlass.ptx.text.module import PtxInstruction, PtxKernel

HARMLESS = frozenset(
    {"mov", "cvta", "cvt", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "setp", "selp"}
)
"""Instructions that may stand before the wait: arithmetic, without memory and branches."""


def waits_first(kernel: PtxKernel) -> bool:
    """Is everything before the wait harmless? False for a kernel without one."""
    for instruction in kernel.body:
        if not isinstance(instruction, PtxInstruction):
            return False  # a label: what comes from elsewhere is not known
        head, *rest = instruction.parts
        if head == "griddepcontrol" and "wait" in rest:
            return instruction.guard is None
        reads_parameter = head == "ld" and "param" in rest
        if not (head in HARMLESS or reads_parameter or head == "griddepcontrol"):
            return False
    return False
