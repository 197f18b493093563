"""Instructions of mbarrier objects: init, inval, arrive, and the questions test_wait and try_wait; mapa.

Of transactions, what bulk copies need is executed: `arrive.expect_tx`. `expect_tx` and `complete_tx` alone are refused;
so are arrivals without release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from codegen.cutlass.ptx.instructions.access import bound_addresses, take
from codegen.cutlass.ptx.instructions.elementwise import store
from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need, split
from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.mbarriers import Question
from codegen.cutlass.ptx.state.scalars import Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault
from codegen.cutlass.ptx.text.module import Operand, PtxInstruction

SPACES: Final = frozenset({"shared", "shared::cta", "shared::cluster"})
"""State spaces of shared memory. A cluster is one CTA here, so its shared memory is the CTA's own."""


def bound_addresses_in_shared(operand: Operand, spaces: tuple[str, ...], core: CtaBatch) -> Callable[[Active], Array]:
    """Addresses of the active threads in shared memory; without a state space they are generic."""
    where = bound_addresses(operand, core)
    if spaces:
        return where
    base = np.uint64(core.window("shared"))

    def shared(active: Active) -> Array:
        addresses = where(active)
        if (addresses >> np.uint64(56) != base >> np.uint64(56)).any():
            raise KernelFault(FaultKind.OUT_OF_BOUNDS, "an mbarrier outside of shared memory")
        return addresses - base

    return shared


def _spaces(form: OpcodeForm) -> tuple[str, ...]:
    return tuple(word for word in form.modifiers if word in SPACES)


def _build(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    words = tuple(word for word in form.modifiers if word not in SPACES)
    match words:
        case ("init",):
            return _init(instruction, form, core)
        case ("inval",):
            need(len(instruction.operands) == 1, instruction)
            where = bound_addresses_in_shared(instruction.operands[0], _spaces(form), core)
            return lambda active: core.mbarriers.invalidate(active, where(active))
        case ("arrive",) | ("arrive_drop",):
            return _arrive(instruction, form, core, drop=words[0] == "arrive_drop")
        case ("arrive", "expect_tx"):
            return _arrive_expecting(instruction, form, core)
    need(condition=False, instruction=instruction)
    raise AssertionError


def _init(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    need(len(instruction.operands) == 2, instruction)
    where = bound_addresses_in_shared(instruction.operands[0], _spaces(form), core)
    count = core.registers.source(instruction.operands[1], "u32")
    return lambda active: core.mbarriers.init(active, where(active), take(count, active))


def _arrive(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch, *, drop: bool) -> Step:
    need(len(instruction.operands) in (2, 3), instruction)
    state, address, *more = instruction.operands
    where = bound_addresses_in_shared(address, _spaces(form), core)
    target = core.registers.target(state, "b64") if state is not None else None
    count = core.registers.source(more[0], "u32") if more else np.ones(1, np.uint32)

    def step(active: Active) -> None:
        phases = core.mbarriers.arrive(active, where(active), take(count, active), drop=drop)
        if target is not None:
            active.put(target, phases)

    return step


def _arrive_expecting(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """mbarrier.arrive.expect_tx state, [address], bytes."""
    need(len(instruction.operands) == 3, instruction)
    state, address, size = instruction.operands
    where = bound_addresses_in_shared(address, _spaces(form), core)
    target = core.registers.target(state, "b64") if state is not None else None
    expected = core.registers.source(size, "u32")

    def step(active: Active) -> None:
        once = np.ones(active.lanes.size, np.uint32)
        phases = core.mbarriers.arrive(active, where(active), once, expected_bytes=take(expected, active))
        if target is not None:
            active.put(target, phases)

    return step


def bound_question(instruction: PtxInstruction, core: CtaBatch) -> Callable[[Active], Question]:
    """test_wait and try_wait as a function of the active threads; a time hint is ignored.

    Raises UnsupportedPtx for other modifiers."""
    form = split(instruction.opcode, WAIT)
    words, operands = form.modifiers, instruction.operands
    need(len(operands) in (3, 4) and operands[0] is not None and words[0] in ("test_wait", "try_wait"), instruction)
    by_parity = "parity" in words
    answer = core.registers.target(operands[0], "pred")
    where = bound_addresses_in_shared(operands[1], _spaces(form), core)
    phase = core.registers.source(operands[2], "u32" if by_parity else "b64")

    def question(active: Active) -> Question:
        phases = take(phase, active).astype(np.uint64)
        return Question(where(active), phases, by_parity, answer, words[0] == "try_wait")

    return question


def _mapa(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """An address in the shared memory of a CTA of the cluster, which has only one."""
    need(len(instruction.operands) == 3 and len(form.types) == 1, instruction)
    kind = form.types[0]
    target = core.registers.target(instruction.operands[0], kind)
    address = core.registers.source(instruction.operands[1], kind)
    rank = core.registers.source(instruction.operands[2], "u32")

    def step(active: Active) -> None:
        ranks = take(rank, active)
        if (ranks != 0).any():
            raise KernelFault(FaultKind.INVALID, f"CTA {int(ranks.max())} of a cluster of one")
        store(target, address, active)

    return step


HINTS: Final = frozenset({"release", "acquire", "cta", "cluster"})
WAIT: Final = OpcodeRow("mbarrier", _build, SPACES | {"test_wait", "try_wait", "parity"}, HINTS, frozenset({"b64"}))
MBARRIERS: Final = (
    OpcodeRow(
        "mbarrier", _build, SPACES | {"init", "inval", "arrive", "arrive_drop", "expect_tx"}, HINTS, frozenset({"b64"})
    ),
    OpcodeRow("mapa", _mapa, frozenset({"shared::cluster"}), types=frozenset({"u32", "u64"})),
)
