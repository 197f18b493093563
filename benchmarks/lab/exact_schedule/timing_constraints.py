"""When things happen, for the exact scheduler: the rules of the cycle model as constraints.

Setting --add_times--> the same, every time bound to the order; returns the makespan
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarks.lab.exact_schedule.variables import Op, Setting
from isched.program.timed_ops import CoreIssue
from isched.timing.engines import conflict

if TYPE_CHECKING:
    from ortools.sat.python.cp_model_helper import IntVar, Literal

__all__ = ["add_times"]


def add_times(setting: Setting, costs: Sequence[CoreIssue]) -> IntVar:
    """Bind all times; `costs` say what each core does before its first instruction and behind its last."""
    makespan = setting.time("makespan")
    for ops, cost in zip(setting.cores, costs, strict=True):
        _scalar_core(setting, ops, cost, makespan)
    for op in setting.ops:
        if op.op.awaits:
            _ask(setting, op)
        else:
            _issue(setting, op)
    _work(setting)
    for op in setting.ops:
        setting.model.add(makespan >= op.end)
    return makespan


def _scalar_core(setting: Setting, ops: list[Op], cost: CoreIssue, makespan: IntVar) -> None:
    """One instruction after the other, without a pause."""
    model, start, end = setting.model, setting.scalar(cost.start), setting.scalar(cost.end)
    nothing = model.new_bool_var("")
    arcs: list[tuple[int, int, Literal]] = [(0, 0, nothing)]
    model.add(makespan >= start + end).only_enforce_if(nothing)
    for place, op in enumerate(ops, 1):
        after = setting.scalar(op.op.issue.after)
        model.add(op.ready == op.begin + setting.scalar(op.op.issue.before))
        first, last = model.new_bool_var(""), model.new_bool_var("")
        arcs += [(0, place, first), (place, 0, last)]
        model.add(op.begin == start).only_enforce_if(first)
        model.add(makespan >= op.left + after + end).only_enforce_if(last)
        if op.barrier:
            arcs.append((place, place, ~setting.stays[op.op.rendezvous]))
        for other_place, other in enumerate(ops, 1):
            if other is not op:
                follows = model.new_bool_var("")
                arcs.append((place, other_place, follows))
                model.add(other.begin == op.left + after).only_enforce_if(follows)
                model.add_implication(follows, op.before[other.number])
    model.add_circuit(arcs)


def _issue(setting: Setting, op: Op) -> None:
    """An op waits for conflicting accesses in flight and for a place in its queue; a barrier for all engines."""
    model = setting.model
    mates = [other for other in setting.cores[op.core] if other is not op and other.engine]
    if op.barrier:
        waits = [setting.value_if(other.before[op.number], other.end) for other in mates]
    else:
        waits = [other.end for other in mates if other.index < op.index and conflict(op.touched, other.touched)]
        model.add(op.left == op.issued)
    same = [other for other in mates if op.engine and other.op.unit == op.op.unit]
    if len(same) >= setting.chip.queue_depth(op.op.unit):
        waits += [setting.value_if(_far(setting, op, other, same), other.end) for other in same]
    model.add_max_equality(op.issued, [op.ready, *waits])


def _far(setting: Setting, op: Op, other: Op, same: list[Op]) -> Literal:
    """Does `other` come so long before `op` on its engine that it must have left the queue?"""
    depth, earlier = setting.chip.queue_depth(op.op.unit), other.before[op.number]
    between = [third for third in same if third is not other]
    places = [setting.both(other.before[third.number], third.before[op.number]) for third in between]
    far = setting.model.new_bool_var("")
    setting.model.add_implication(far, earlier)
    setting.model.add(sum(places) >= depth - 1).only_enforce_if(far)
    setting.model.add(sum(places) < depth - 1).only_enforce_if(~far, earlier)
    return far


def _ask(setting: Setting, op: Op) -> None:
    """The first question at or after the end of all transfers; the first one of all comes when the op is ready."""
    model, period = setting.model, setting.scalar(op.op.issue.period)
    over = setting.time()
    model.add_max_equality(over, [op.ready, *(other.end for other in setting.ops if other.op.starts in op.op.awaits)])
    if period:
        iterations = model.new_int_var(0, setting.horizon // period + 1, "")
        model.add(op.issued == op.ready + period * iterations)
        model.add(op.issued >= over)
        model.add(op.issued < over + period)
    else:
        model.add(op.issued == over)
    for moment in (op.left, op.start, op.end):
        model.add(moment == op.issued)


def _work(setting: Setting) -> None:
    """What engines, channels and rendezvous do."""
    model = setting.model
    met: dict[str, list[IntVar]] = {}
    for op in setting.ops:
        if op.op.awaits:
            continue
        come = op.issued
        if op.op.unit:
            come = setting.time()
            model.add_max_equality(come, [op.issued, *_ahead(setting, op)])
        if op.op.rendezvous:
            met.setdefault(op.op.rendezvous, []).append(come)
        else:
            model.add(op.start == come)
        if op.barrier:
            model.add(op.left == op.start + int(setting.chip.assumed.sync_cycles))
            model.add(op.end == 0)  # nothing ends with it but the waiting of its cores
        else:
            model.add(op.end == op.start + op.cycles)
    for token, come_all in met.items():
        together = setting.time()
        model.add_max_equality(together, come_all)
        for op in setting.ops:
            if op.op.rendezvous == token:
                model.add(op.start == together)


def _ahead(setting: Setting, op: Op) -> Iterator[IntVar]:
    """Ends of what its unit does before it, 0 for what comes later."""
    for other in setting.ops:
        if other is op or other.op.unit != op.op.unit or other.engine != op.engine:
            continue
        if other.core == op.core:
            yield setting.value_if(other.before[op.number], other.end)
        elif op.op.starts:
            yield setting.value_if(_issued_before(setting, other, op), other.end)


def _issued_before(setting: Setting, a: Op, b: Op) -> Literal:
    """Of two cores' transfers on one channel, the one issued first is done first."""
    first, then = (a, b) if a.number < b.number else (b, a)
    if then.number not in first.before:
        earlier = setting.model.new_bool_var("")
        setting.model.add(first.issued <= then.issued).only_enforce_if(earlier)
        setting.model.add(first.issued >= then.issued).only_enforce_if(~earlier)
        first.before[then.number], then.before[first.number] = earlier, ~earlier
    return a.before[b.number]
