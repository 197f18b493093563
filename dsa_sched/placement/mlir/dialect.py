"""The `dsa` dialect: task graphs, groups, devices and schedules as MLIR.

    dsa.device, dsa.link    devices that run tasks, and links that carry values
    dsa.graph               a task graph: its region has the tasks
    dsa.task                one task; operands and results are values, `!dsa.value<bytes>`
    dsa.group               tasks that one device runs in sequence; its region yields what is read outside
    dsa.yield               values that leave a group
    dsa.schedule            runs, copies and stages of a graph, in its region
    dsa.run, dsa.copy, dsa.stage

Names are text attributes, because those of ONNX nodes may hold anything. Times are whole nanoseconds where streams do
not contend, and so are written as f64.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ArrayAttr, BytesAttr, FloatAttr, IntAttr, IntegerAttr, StringAttr
from xdsl.ir import Dialect, Operation, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    attr_def,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    opt_attr_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException


@irdl_attr_definition
class ValueType(ParametrizedAttribute, TypeAttribute):
    """A tensor between tasks, by its bytes: `!dsa.value<4096>`."""

    name = "dsa.value"
    size_bytes: IntAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[IntAttr]:
        with parser.in_angle_brackets():
            return [IntAttr(parser.parse_integer(allow_boolean=False))]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.size_bytes.data))

    def verify(self) -> None:
        """Raises VerifyException."""
        if self.size_bytes.data < 0:
            raise VerifyException("a value has bytes from 0 on")


NAME = base(StringAttr) | base(BytesAttr)
"""A name. xDSL reads a name that is not ASCII as bytes."""


def name_of(attribute: StringAttr | BytesAttr) -> str:
    """The text of a name."""
    return attribute.data if isinstance(attribute, StringAttr) else attribute.data.decode("utf-8", "replace")


def _require(condition: bool, said: str) -> None:
    if not condition:
        raise VerifyException(said)


def _module_ops(op: Operation) -> Iterator[Operation]:
    """The operations next to the one at the top that holds `op`."""
    top = op
    while (parent := top.parent_op()) is not None and parent.parent_op() is not None:
        top = parent
    block = top.parent_block()
    return iter(block.ops if block is not None else ())


def _devices(op: Operation) -> dict[str, DeviceOp]:
    return {name_of(other.device): other for other in _module_ops(op) if isinstance(other, DeviceOp)}


@irdl_op_definition
class DeviceOp(IRDLOperation):
    """A device with `streams` tasks at a time; a barrier over them takes `stage_ns`. The first one is the host."""

    name = "dsa.device"
    device = attr_def(NAME)
    streams = attr_def(IntegerAttr)
    stage_ns = attr_def(IntegerAttr)
    assembly_format = "$device `streams` $streams `stage_ns` $stage_ns attr-dict"

    def verify_(self) -> None:
        _require(self.streams.value.data >= 1, "a device has streams from 1 on")
        _require(self.stage_ns.value.data >= 0, "a barrier takes a time from 0 on")
        names = [other.device for other in _module_ops(self) if isinstance(other, DeviceOp)]
        _require(names.count(self.device) <= 1, f"device {name_of(self.device)} is there twice")


@irdl_op_definition
class LinkOp(IRDLOperation):
    """A way from one device to another; links of one wire carry one value at a time in all."""

    name = "dsa.link"
    source = attr_def(NAME)
    target = attr_def(NAME)
    latency_ns = attr_def(IntegerAttr)
    bytes_per_second = attr_def(IntegerAttr)
    wire = attr_def(NAME)
    assembly_format = (
        "$source `to` $target `latency_ns` $latency_ns `bytes_per_second` $bytes_per_second `wire` $wire attr-dict"
    )

    def verify_(self) -> None:
        known = _devices(self)
        for end in (name_of(self.source), name_of(self.target)):
            _require(end in known, f"a link needs devices of the module: there is no {end}")
        _require(self.source != self.target, "a link joins two devices")
        _require(self.latency_ns.value.data >= 0, "a latency is from 0 on")
        _require(self.bytes_per_second.value.data >= 1, "a bandwidth is from 1 byte a second on")


@irdl_op_definition
class GraphOp(IRDLOperation):
    """A task graph. Its block has tasks and groups, producers first."""

    name = "dsa.graph"
    graph = attr_def(NAME)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$graph $body attr-dict"

    def verify_(self) -> None:
        names = [name_of(task.task) for task in tasks_in(self)]
        _require(len(set(names)) == len(names), "tasks of a graph have names of their own")
        values = [name for task in tasks_in(self) for name in task.value_names]
        _require(len(set(values)) == len(values), "values of a graph have names of their own")


@irdl_op_definition
class TaskOp(IRDLOperation):
    """One task: operands are the values that it reads, results those that it makes, named by `values`.

    `work_ns` has its time on each device of the module, -1 where that does not accept it; `shares` its share of each
    resource of each device while it runs alone.
    """

    name = "dsa.task"
    task = attr_def(NAME)
    nodes = attr_def(ArrayAttr[StringAttr | BytesAttr])
    macs = attr_def(IntegerAttr)
    constant_bytes = attr_def(IntegerAttr)
    values = attr_def(ArrayAttr[StringAttr | BytesAttr])
    work_ns = opt_attr_def(ArrayAttr[IntegerAttr])
    shares = opt_attr_def(ArrayAttr[ArrayAttr[FloatAttr]])
    inputs = var_operand_def(ValueType)
    outputs = var_result_def(ValueType)
    assembly_format = "$task `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs)"

    @property
    def value_names(self) -> tuple[str, ...]:
        return tuple(name_of(name) for name in self.values)

    def verify_(self) -> None:
        parent = self.parent_op()
        _require(parent is None or isinstance(parent, (GraphOp, GroupOp)), "a task is in a graph or a group")
        _require(self.macs.value.data >= 0 and self.constant_bytes.value.data >= 0, "work and bytes are from 0 on")
        _require(len(self.values) == len(self.outputs), f"{len(self.outputs)} results need as many names of values")
        devices = len(_devices(self))
        for costs in (self.work_ns, self.shares):
            _require(costs is None or len(costs) == devices, f"costs are for each of {devices} devices")
        for time in self.work_ns or ():
            _require(time.value.data >= -1, "a time is from 0 on, or -1 where a device does not accept the task")
        for row in self.shares or ():
            _require(all(0 <= share.value.data <= 1 for share in row), "shares are from 0 to 1")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The values of a group that are read outside."""

    name = "dsa.yield"
    inputs = var_operand_def(ValueType)
    traits = traits_def(IsTerminator())
    assembly_format = "($inputs^ `:` type($inputs))? attr-dict"

    def verify_(self) -> None:
        _require(isinstance(self.parent_op(), GroupOp), "dsa.yield ends a group")


@irdl_op_definition
class GroupOp(IRDLOperation):
    """Tasks that one device runs in sequence. `reason` says why they are together."""

    name = "dsa.group"
    group = attr_def(NAME)
    reason = attr_def(NAME)
    outputs = var_result_def(ValueType)
    body = region_def("single_block")
    traits = traits_def(HasParent(GraphOp))

    def verify_(self) -> None:
        last = self.body.block.last_op
        _require(isinstance(last, YieldOp), "a group ends with dsa.yield")
        _require(any(True for _ in tasks_in(self)), "a group has tasks")
        assert last is not None
        _require(tuple(last.operand_types) == tuple(self.result_types), "a group's results are what it yields")


@irdl_op_definition
class RunOp(IRDLOperation):
    """A task on a stream of a device, from one moment to another, in ns."""

    name = "dsa.run"
    task = attr_def(NAME)
    device = attr_def(NAME)
    stream = attr_def(IntegerAttr)
    start_ns = attr_def(FloatAttr)
    end_ns = attr_def(FloatAttr)
    assembly_format = "$task `on` $device `stream` $stream `from` $start_ns `to` $end_ns attr-dict"

    def verify_(self) -> None:
        _require(isinstance(self.parent_op(), ScheduleOp), "a run is in a schedule")
        _in_time(self.start_ns, self.end_ns)
        device = _devices(self).get(name_of(self.device))
        _require(device is not None, f"a run needs a device of the module: there is no {name_of(self.device)}")
        assert device is not None
        streams = device.streams.value.data
        _require(0 <= self.stream.value.data < streams, f"{name_of(self.device)} has streams 0 to {streams - 1}")


@irdl_op_definition
class CopyOp(IRDLOperation):
    """A value on its way between devices, with start and end in ns."""

    name = "dsa.copy"
    value = attr_def(NAME)
    source = attr_def(NAME)
    target = attr_def(NAME)
    start_ns = attr_def(FloatAttr)
    end_ns = attr_def(FloatAttr)
    assembly_format = "$value `of` $source `to` $target `from` $start_ns `until` $end_ns attr-dict"

    def verify_(self) -> None:
        _require(isinstance(self.parent_op(), ScheduleOp), "a copy is in a schedule")
        _in_time(self.start_ns, self.end_ns)
        known = _devices(self)
        for end in (name_of(self.source), name_of(self.target)):
            _require(end in known, f"a copy needs devices of the module: there is no {end}")


def _in_time(start_ns: FloatAttr, end_ns: FloatAttr) -> None:
    _require(0 <= start_ns.value.data <= end_ns.value.data, "times are from 0 on, and the end is no earlier")


@irdl_op_definition
class StageOp(IRDLOperation):
    """Tasks between two barriers."""

    name = "dsa.stage"
    tasks = attr_def(ArrayAttr[StringAttr | BytesAttr])
    assembly_format = "$tasks attr-dict"

    def verify_(self) -> None:
        _require(isinstance(self.parent_op(), ScheduleOp), "a stage is in a schedule")


@irdl_op_definition
class ScheduleOp(IRDLOperation):
    """A schedule of the graph of that name: what runs where and when."""

    name = "dsa.schedule"
    graph = attr_def(NAME)
    method = opt_attr_def(NAME)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$graph $body attr-dict"

    def verify_(self) -> None:
        _require(
            all(isinstance(op, (RunOp, CopyOp, StageOp)) for op in self.body.block.ops),
            "a schedule has runs, copies and stages",
        )
        graphs = [op for op in _module_ops(self) if isinstance(op, GraphOp) and op.graph == self.graph]
        _require(len(graphs) == 1, f"a schedule needs its graph in the module: there is no {name_of(self.graph)}")
        runs = sorted(name_of(op.task) for op in self.body.block.ops if isinstance(op, RunOp))
        _require(
            runs == sorted(name_of(task.task) for task in tasks_in(graphs[0])), "every task of the graph runs once"
        )


def tasks_in(op: GraphOp | GroupOp) -> Iterator[TaskOp]:
    """Tasks in order, those in groups too."""
    for inner in op.body.block.ops:
        if isinstance(inner, TaskOp):
            yield inner
        elif isinstance(inner, GroupOp):
            yield from tasks_in(inner)


DSA = Dialect(
    "dsa",
    [DeviceOp, LinkOp, GraphOp, TaskOp, GroupOp, YieldOp, ScheduleOp, RunOp, CopyOp, StageOp],
    [ValueType],
)
