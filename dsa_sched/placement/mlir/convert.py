"""Conversions between the types of placement and the `dsa` dialect.

    TaskGraph or Problem --module_of--> module --task_graph_of, problem_of--> the same
    Schedule --add_schedule--> dsa.schedule --schedule_of--> the same
    text --parse_module--> verified module --str or generic_text--> text

A module from elsewhere is verified by the dialect first; what the dialect cannot see (costs that do not fit
the devices, invalid schedules) is verified by the checks of the types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TypeVar

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, Builtin, FloatAttr, IntAttr, IntegerAttr, ModuleOp, StringAttr, f64, i64
from xdsl.ir import Block, Operation, Region, SSAValue, Use
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from dsa_sched.placement.mlir.dialect import (
    DSA,
    CopyOp,
    DeviceOp,
    GraphOp,
    GroupOp,
    LinkOp,
    RunOp,
    ScheduleOp,
    StageOp,
    TaskOp,
    ValueType,
    YieldOp,
    name_of,
    tasks_in,
)
from dsa_sched.placement.model.problem import CostTable, Machine, Problem, Route
from dsa_sched.placement.model.task_graph import Task, TaskGraph, TaskValue, group_order
from dsa_sched.placement.schedule.schedule import Schedule, TaskRun, ValueCopy
from hw_models.errors import PlacementError, size_text

LARGEST_TEXT_BYTES = 64 << 20
"""Largest size in bytes of a module that is parsed."""

Found = TypeVar("Found", bound=Operation)


def context() -> Context:
    """A context that knows the builtin dialect and `dsa`, and nothing else."""
    found = Context()
    found.load_dialect(Builtin)
    found.load_dialect(DSA)
    return found


def parse_module(text: str, name: str = "module") -> ModuleOp:
    """A verified module from its text, pretty or generic. Raises PlacementError with line and column."""
    return parse_text(context(), text, name, needs="a module of the dsa dialect")


def parse_text(known: Context, text: str, name: str, needs: str) -> ModuleOp:
    """A verified module of the dialects that the context knows.

    Raises PlacementError with line and column, and the expected text.
    """
    if len(text) > LARGEST_TEXT_BYTES:
        raise PlacementError(name, needs=f"at most {size_text(LARGEST_TEXT_BYTES)}", has=size_text(len(text)))
    try:
        module = Parser(known, text, name).parse_module()
        module.verify()
    except (ParseError, VerifyException, RecursionError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        raise PlacementError(name, needs=needs, has=said or type(error).__name__) from error
    return module


def generic_text(module: ModuleOp) -> str:
    """The generic form, which `mlir-opt --allow-unregistered-dialect` reads."""
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    return stream.getvalue() + "\n"


# Into the dialect


def module_of(problem: Problem | TaskGraph) -> ModuleOp:
    """A module with the graph, and with the devices and costs of a problem."""
    graph = problem.graph if isinstance(problem, Problem) else problem
    values: dict[int, SSAValue] = {}
    block = Block()
    for number, task in enumerate(graph.tasks):
        made = [graph.values[value] for value in graph.writes[number]]
        op = TaskOp.create(
            operands=[values[value] for value in graph.reads[number]],
            result_types=[ValueType(IntAttr(value.size_bytes)) for value in made],
            attributes={
                "task": StringAttr(task.name),
                "nodes": _texts(task.nodes),
                "macs": _whole(task.macs),
                "constant_bytes": _whole(task.constant_bytes),
                "values": _texts(value.name for value in made),
            },
        )
        for value, result in zip(graph.writes[number], op.results, strict=True):
            values[value] = result
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", graph.values[value].name):
                result.name_hint = graph.values[value].name
        block.add_op(op)
    top = GraphOp.create(attributes={"graph": StringAttr(graph.name)}, regions=[Region(block)])
    module = ModuleOp([top])
    if isinstance(problem, Problem):
        add_devices(module, problem.costs)
        annotate(module, problem.costs)
    module.verify()
    return module


def add_devices(module: ModuleOp, costs: CostTable) -> None:
    """The devices and links of a cost table, before the graph."""
    first = module.body.block.first_op
    assert first is not None
    ops: list[Operation] = [
        DeviceOp.create(
            attributes={
                "device": StringAttr(machine.name),
                "streams": _whole(machine.streams),
                "stage_ns": _whole(machine.stage_ns),
            }
        )
        for machine in costs.machines
    ]
    ops += [
        LinkOp.create(
            attributes={
                "source": StringAttr(route.source),
                "target": StringAttr(route.target),
                "latency_ns": _whole(route.latency_ns),
                "bytes_per_second": _whole(route.bytes_per_second),
                "wire": StringAttr(route.wire),
            }
        )
        for route in costs.routes
    ]
    module.body.block.insert_ops_before(ops, first)


def annotate(module: ModuleOp, costs: CostTable) -> None:
    """Write the cost on each device on every task."""
    for number, op in enumerate(tasks_in(graph_op(module))):
        op.attributes["work_ns"] = ArrayAttr([_whole(time) for time in costs.work_ns[number]])
        if costs.shares:
            rows = costs.shares[number]
            op.attributes["shares"] = ArrayAttr([ArrayAttr([_real(part) for part in row]) for row in rows])


def group_tasks(module: ModuleOp, groups: Sequence[Sequence[int]], reasons: Sequence[str]) -> None:
    """Put the tasks of each group of task numbers, which have every task once, into a `dsa.group`, and none where it is
    alone; groups that are there are taken apart. The new ones come in the order of `group_order`.

    Raises PlacementError when one would have to wait for itself.
    """
    order = group_order(task_graph_of(module), groups)
    block = graph_op(module).body.block
    tasks = list(tasks_in(graph_op(module)))
    for old in [op for op in block.ops if isinstance(op, GroupOp)]:
        _take_apart(old)
    for task in tasks:
        task.detach()  # type: ignore[no-untyped-call]  # of xDSL
    for number in order:
        members = [tasks[task] for task in sorted(groups[number])]
        block.add_op(members[0] if len(members) == 1 else _group(members, reasons[number]))


def _take_apart(group: GroupOp) -> None:
    """Let others read directly the values that a group gives them, and drop what is left of it except its tasks."""
    last = group.body.block.last_op
    assert isinstance(last, YieldOp)
    for inner, outer in zip(last.inputs, group.results, strict=True):
        for use in list(outer.uses):
            use.operation.operands[use.index] = inner
    last.detach()  # type: ignore[no-untyped-call]  # of xDSL
    last.drop_all_references()
    group.detach()  # type: ignore[no-untyped-call]


def _group(members: Sequence[TaskOp], reason: str) -> GroupOp:
    """A group of tasks; other tasks read their values from it."""
    inside = set(members)

    def outside(value: SSAValue) -> list[Use]:
        return [use for use in value.uses if use.operation not in inside]

    given = [result for member in members for result in member.results if outside(result)]
    block = Block(members)
    attributes = {"group": members[0].task, "reason": StringAttr(reason)}
    types = [result.type for result in given]
    group = GroupOp.create(result_types=types, attributes=attributes, regions=[Region(block)])
    for result, outer in zip(given, group.results, strict=True):
        outer.name_hint = result.name_hint
        for use in outside(result):
            use.operation.operands[use.index] = outer
    block.add_op(YieldOp.create(operands=given))
    return group


def add_schedule(module: ModuleOp, schedule: Schedule, method: str = "") -> None:
    """A schedule of the module's graph, as its last operation."""
    block = Block()
    for run in schedule.runs:
        where = {"task": StringAttr(run.task), "device": StringAttr(run.machine), "stream": _whole(run.stream)}
        block.add_op(RunOp.create(attributes={**where, **_times(run)}))
    for copy in schedule.copies:
        way = {name: StringAttr(getattr(copy, name)) for name in ("value", "source", "target")}
        block.add_op(CopyOp.create(attributes={**way, **_times(copy)}))
    for tasks in schedule.stages:
        block.add_op(StageOp.create(attributes={"tasks": _texts(tasks)}))
    attributes = {"graph": StringAttr(schedule.graph)} | ({"method": StringAttr(method)} if method else {})
    module.body.block.add_op(ScheduleOp.create(attributes=attributes, regions=[Region(block)]))
    module.verify()


def _texts(names: Iterable[str]) -> ArrayAttr[StringAttr]:
    return ArrayAttr([StringAttr(name) for name in names])


def _whole(number: int) -> IntegerAttr:
    return IntegerAttr(int(number), i64)


def _real(number: float) -> FloatAttr:
    return FloatAttr(float(number), f64)


def _times(item: TaskRun | ValueCopy) -> dict[str, FloatAttr]:
    return {"start_ns": _real(item.start_ns), "end_ns": _real(item.end_ns)}


# Out of it


def graph_op(module: ModuleOp) -> GraphOp:
    """The one graph of a module. Raises PlacementError."""
    return _the_one(module, GraphOp, "dsa.graph")


def _the_one(module: ModuleOp, kind: type[Found], name: str) -> Found:
    found = [op for op in module.ops if isinstance(op, kind)]
    if len(found) != 1:
        raise PlacementError("module", needs=f"one {name}", has=str(len(found)))
    return found[0]


def task_graph_of(module: ModuleOp) -> TaskGraph:
    """The task graph of a module, tasks of groups in their order."""
    top = graph_op(module)
    ops = list(tasks_in(top))
    number = {op: place for place, op in enumerate(ops)}
    values = []
    for op in ops:
        for name, result in zip(op.value_names, op.results, strict=True):
            readers = sorted({number[reader] for reader in _readers(result)})
            assert isinstance(result.type, ValueType)
            consumers = tuple(name_of(ops[place].task) for place in readers)
            values.append(TaskValue(name, name_of(op.task), consumers, result.type.size_bytes.data))
    tasks = tuple(
        Task(
            name_of(op.task),
            tuple(name_of(node) for node in op.nodes),
            op.macs.value.data,
            op.constant_bytes.value.data,
        )
        for op in ops
    )
    return TaskGraph(name_of(top.graph), tasks, tuple(values))


def _readers(value: SSAValue) -> list[TaskOp]:
    """Tasks that read a value, also through the ends of groups."""
    found: list[TaskOp] = []
    for use in value.uses:
        if isinstance(use.operation, TaskOp):
            found.append(use.operation)
        elif isinstance(use.operation, YieldOp):
            group = use.operation.parent_op()
            assert isinstance(group, GroupOp)
            found += _readers(group.results[use.index])
    return found


def costs_of(module: ModuleOp) -> CostTable:
    """Devices, links and the costs on the tasks. Raises PlacementError where a task has none."""
    machines = tuple(
        Machine(name_of(op.device), op.streams.value.data, op.stage_ns.value.data)
        for op in module.ops if isinstance(op, DeviceOp)
    )  # fmt: skip
    routes = tuple(
        Route(
            name_of(op.source),
            name_of(op.target),
            op.latency_ns.value.data,
            op.bytes_per_second.value.data,
            name_of(op.wire),
        )
        for op in module.ops if isinstance(op, LinkOp)
    )  # fmt: skip
    work, shares = [], []
    for op in tasks_in(graph_op(module)):
        if op.work_ns is None:
            raise PlacementError(f"task {name_of(op.task)}", needs="costs", change="annotate the costs first")
        work.append(tuple(time.value.data for time in op.work_ns))
        if op.shares is not None:
            shares.append(tuple(tuple(part.value.data for part in row) for row in op.shares))
    return CostTable(machines, routes, tuple(work), tuple(shares))


def problem_of(module: ModuleOp) -> Problem:
    """Graph and costs. Raises PlacementError where a task has no costs."""
    return Problem(task_graph_of(module), costs_of(module))


def groups_of(module: ModuleOp) -> tuple[tuple[int, ...], ...]:
    """The tasks of every group, and every other task as a group of one, by number."""
    top = graph_op(module)
    number = {op: place for place, op in enumerate(tasks_in(top))}
    return tuple(
        (number[op],) if isinstance(op, TaskOp) else tuple(number[task] for task in tasks_in(op))
        for op in top.body.block.ops
        if isinstance(op, (TaskOp, GroupOp))
    )


def schedule_of(module: ModuleOp) -> Schedule:
    """The one schedule of a module. Raises PlacementError."""
    op = _the_one(module, ScheduleOp, "dsa.schedule")
    runs, copies, stages = [], [], []
    for item in op.body.block.ops:
        if isinstance(item, RunOp):
            where = name_of(item.task), name_of(item.device), item.stream.value.data
            runs.append(TaskRun(*where, item.start_ns.value.data, item.end_ns.value.data))
        elif isinstance(item, CopyOp):
            way = name_of(item.value), name_of(item.source), name_of(item.target)
            copies.append(ValueCopy(*way, item.start_ns.value.data, item.end_ns.value.data))
        elif isinstance(item, StageOp):
            stages.append(tuple(name_of(task) for task in item.tasks))
    machines = tuple(name_of(device.device) for device in module.ops if isinstance(device, DeviceOp))
    return Schedule(name_of(op.graph), machines, tuple(runs), tuple(copies), tuple(stages))
