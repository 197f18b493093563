"""Which orders are valid, for the exact scheduler.

    Setting --add_orders--> the same, with everything before what needs it

Inside a core accesses to common bytes keep their order. Between cores, and between an engine and the DMA that follows
it, the program itself must show that the first is over, as `isched.hazards.happens_before` tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from benchmarks.lab.exact_schedule.variables import Op, Setting
from isched.timing.engines import Touch, conflict

if TYPE_CHECKING:
    from ortools.sat.python.cp_model_helper import Literal

__all__ = ["add_orders"]


def add_orders(setting: Setting) -> None:
    """Add the constraints on positions of ops, and on which barriers stay."""
    for core in setting.cores:
        _transfers_and_barriers(setting, core)
        for a, b in combinations(core, 2):
            if conflict(a.touched, b.touched):
                _precede(setting, a.wait or a, b)
                if a.engine and b.op.starts:
                    setting.model.add_bool_or(list(_shown_inside(setting, a, b)))
    shared = frozenset(memory.name for memory in setting.chip.memories if memory.scope != "core")
    for a, b in combinations(setting.ops, 2):
        first, then = (a, b) if a.epoch <= b.epoch else (b, a)
        if a.core != b.core and a.epoch != b.epoch and conflict(_part(a, shared), _part(b, shared)):
            setting.model.add_bool_or(list(_shown_between(setting, first, then)))
    _rendezvous(setting)


def _precede(setting: Setting, a: Op, b: Op) -> None:
    setting.model.add(a.before[b.number] == 1)


def _part(op: Op, memories: frozenset[str]) -> list[Touch]:
    """What an op touches of some memories."""
    return [touch for touch in op.touched if touch[0] in memories]


def _transfers_and_barriers(setting: Setting, core: list[Op]) -> None:
    """A transfer comes before its wait, its wait before the next one of that token; barriers keep their order."""
    waits = {token: op for op in core for token in op.op.awaits}
    started: dict[str, Op] = {}
    barrier: Op | None = None
    for op in core:
        op.wait = waits.get(op.op.starts)
        if op.wait is not None:
            _precede(setting, op, op.wait)
            if op.op.unit in started:
                _precede(setting, started[op.op.unit], op)
            started[op.op.unit] = op.wait
        if op.barrier:
            if barrier is not None:
                _precede(setting, barrier, op)
            barrier = op


def _rendezvous(setting: Setting) -> None:
    """What cores do together comes in one order on all of them."""
    by_core = [{op.op.rendezvous: op for op in core if op.op.rendezvous} for core in setting.cores]
    for here, there in combinations(by_core, 2):
        for first, then in combinations(sorted(here.keys() & there.keys()), 2):
            orders = (side[first].before[side[then].number] for side in (here, there))
            setting.model.add(next(orders) == next(orders))


def _shown_inside(setting: Setting, first: Op, start: Op) -> Iterator[Literal]:
    """How a core can know that an op is over before it starts a transfer: by a barrier, or because it has waited for
    the op or one behind it on its engine."""
    for op in setting.cores[first.core]:
        if op.barrier:
            stays = setting.stays[op.op.rendezvous]
            yield setting.both(first.before[op.number], op.before[start.number], stays)
        for later in setting.cores[first.core]:
            behind = later is first or (later.engine and later.op.unit == first.op.unit)
            if op is later or op is start or op is first or not behind or later.index > op.index:
                continue
            if not op.op.awaits and not op.barrier and conflict(op.touched, later.touched):
                after = [] if later is first else [first.before[later.number]]
                yield setting.both(*after, op.before[start.number])


def _shown_between(setting: Setting, first: Op, then: Op) -> Iterator[Literal]:
    """How a core can know that another one's op is over: by a barrier, or by what they do together. It begins when the
    first core has come to it, behind the op on its engine or having waited for the op; the other op is it, comes
    behind it on its engine or needs what it does."""
    done = first.wait or first
    for here in setting.cores[first.core]:
        for there in setting.cores[then.core]:
            if not here.op.rendezvous or here.op.rendezvous != there.op.rendezvous or here is done:
                continue
            if here.barrier:
                stays = setting.stays[here.op.rendezvous]
                yield setting.both(done.before[here.number], there.before[then.number], stays)
                continue
            known = bool(done.op.awaits) or done.op.unit == here.op.unit or conflict(here.touched, done.touched)
            needed = then.op.unit == there.op.unit or conflict(there.touched, then.touched)
            if known and there is then:
                yield done.before[here.number]
            elif known and then.engine and needed:
                yield setting.both(done.before[here.number], there.before[then.number])
