"""Fences and other instructions that move no data. Memory is coherent here, so most fences have nothing to do.

`fence.proxy.async` makes a warp's own writes visible to matrix products that read shared memory asynchronously, and to
bulk copies, which also need to know the mbarriers that they use (`fence.mbarrier_init`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from codegen.cutlass.ptx.instructions.access import nothing
from codegen.cutlass.ptx.instructions.elementwise import store
from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.instructions.warp import members
from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault
from codegen.cutlass.ptx.text.module import PtxInstruction


def _fence(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    if not {"proxy", "mbarrier_init"} & set(form.modifiers):
        return nothing
    proxy = "proxy" in form.modifiers
    need(not proxy or "async" in form.modifiers, instruction)

    def step(active: Active) -> None:
        warps = np.unique(active.lanes >> 5)
        core.mbarriers.fence(warps)
        if proxy:
            core.shared.order.fence(warps)

    return step


def _nothing(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    del instruction, form, core
    return nothing


def _trap(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    del form, core

    def step(active: Active) -> None:
        raise KernelFault(FaultKind.TRAP, f"thread {int(active.lanes[0])} of the batch executes {instruction.opcode}")

    return step


def _policy(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """A cache policy: a number that is only a hint."""
    del form
    need(len(instruction.operands) > 0, instruction)
    target = core.registers.target(instruction.operands[0], "b64")
    return lambda active: store(target, np.zeros(1, np.uint64), active)


def _arrive(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """bar.arrive and bar.warp.sync: barriers at which no warp waits for another."""
    words, operands = form.modifiers, instruction.operands
    if "warp" in words:
        need(len(operands) == 1, instruction)
        mask = core.registers.source(operands[0], "u32")

        def together(active: Active) -> None:
            members(active, mask)

        return together
    need("arrive" in words and len(operands) == 2, instruction)
    number, count = (core.registers.source(operand, "u32") for operand in operands)
    return lambda active: core.barriers.arrive(active, number, count)


FENCE_WORDS: Final = frozenset({"proxy", "async", "mbarrier_init", "shared", "shared::cta"})
FENCE_HINTS: Final = frozenset({"acq_rel", "sc", "acquire", "release", "cta", "gpu", "sys", "cluster"})

FENCES: Final = (
    OpcodeRow("fence", _fence, FENCE_WORDS, FENCE_HINTS),
    OpcodeRow("membar", _fence, frozenset(), frozenset({"cta", "gl", "sys"})),
    OpcodeRow("bar", _arrive, frozenset({"arrive", "warp", "sync", "cta"})),
    OpcodeRow("barrier", _arrive, frozenset({"arrive", "cta", "aligned"})),
    OpcodeRow("trap", _trap),
    OpcodeRow("brkpt", _trap),
    OpcodeRow("nanosleep", _nothing),
    OpcodeRow("griddepcontrol", _nothing, frozenset({"wait", "launch_dependents"})),
    OpcodeRow("setmaxnreg", _nothing, frozenset({"inc", "dec", "sync", "aligned"})),
    OpcodeRow("createpolicy", _policy, frozenset(), frozenset({"fractional", "*"})),
)
