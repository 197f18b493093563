"""Functions of other compilers, in foreign dialects: the tasks in them, and their placement.

    func.func on tensors --task_graph_of_function--> TaskGraph --a method--> Schedule --annotate_function-->
    the function, each operation with `dsa.device`, `dsa.stream`, `dsa.start_ns` and `dsa.end_ns`

An operation is a task if it makes tensors from the function's arguments; results that depend only on constants are
constant. The dialects need not be known: text comes in MLIR's generic form, as `mlir-opt --mlir-print-op-generic`
writes it, and leaves in it, for `mlir-opt --allow-unregistered-dialect`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, FixedBitwidthType, IntegerAttr, ModuleOp, StringAttr, TensorType, i64
from xdsl.dialects.func import Func, FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from dsa_sched.placement.mlir.convert import parse_text
from dsa_sched.placement.mlir.operation_work import name_of_operation, operations_of
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph, TaskValue, verify_task_graph
from dsa_sched.placement.schedule.schedule import Schedule
from hw_models.errors import PlacementError

PREFIX = "dsa."
BYTES_OF_INDEX = 8
MADE_IN_PLACE = ("tensor.empty", "tensor.splat", "linalg.fill")
"""Operations whose constants are not fetched: a destination, or one number repeated."""


def foreign_context() -> Context:
    """A context that knows functions and builtin types, and accepts operations of any dialect."""
    found = Context(allow_unregistered=True)
    found.load_dialect(Builtin)
    found.load_dialect(Func)
    return found


def parse_foreign_module(text: str, name: str = "module") -> ModuleOp:
    """A module of any dialects in the generic form.

    Raises PlacementError with line and column.
    """
    return parse_text(foreign_context(), text, name, needs="a module in MLIR's generic form")


def function_of(module: ModuleOp, name: str = "") -> FuncOp:
    """The function of that name, or the only one with a body. Raises PlacementError."""
    bodies = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp) and op.body.blocks}
    if name in bodies:
        return bodies[name]
    if name or len(bodies) != 1:
        needs = f"a function {name}" if name else "one function, or its name"
        raise PlacementError("module", needs=needs, has=", ".join(bodies) or "none with a body")
    return next(iter(bodies.values()))


@dataclass(frozen=True)
class _Body:
    """Data of a function of one block: operations that are tasks, by the names of these."""

    function: FuncOp
    tasks: dict[str, Operation]
    constants: frozenset[Operation]
    last: ReturnOp


def task_graph_of_function(function: FuncOp) -> TaskGraph:
    """Tasks are named by their place among the operations and their kind: `4:linalg.matmul`.

    Raises PlacementError for a function of several blocks, tensors without static shapes, and results that are no
    tensors.
    """
    body = _body(function)
    made = {op: name for name, op in body.tasks.items()}
    place = {op: number for number, op in enumerate([*made, body.last])}
    names = (*body.tasks, OUTPUTS)
    values: list[TaskValue] = []

    def add(value: SSAValue, producer: str, name: str) -> None:
        readers = sorted({place[op] for op in _reading(value)})
        values.append(TaskValue(name, producer, tuple(names[reader] for reader in readers), _bytes(value, function)))

    for number, argument in enumerate(function.args):
        if isinstance(argument.type, TensorType):
            add(argument, INPUTS, f"argument {number}")
    for op, name in made.items():
        for number, result in enumerate(op.results):
            add(result, name, name if len(op.results) == 1 else f"{name}#{number}")
    tasks = [Task(INPUTS)]
    for op, name in made.items():
        constant = {value: _bytes(value, function) for value in _read(op) if _is_fetched(value, body.constants)}
        size = sum(constant.values())
        tasks.append(Task(name, (name_of_operation(op),), operations_of(op), size))
    graph = TaskGraph(function.sym_name.data, (*tasks, Task(OUTPUTS)), tuple(values))
    verify_task_graph(graph)
    return graph


def annotate_function(function: FuncOp, schedule: Schedule, method: str = "") -> None:
    """Write on each task where it runs and when, in whole nanoseconds, and on the function how long all takes. Older
    annotations go.

    Raises PlacementError for a schedule of other tasks.
    """
    tasks = _body(function).tasks
    runs = {run.task: run for run in schedule.runs if run.task not in (INPUTS, OUTPUTS)}
    if set(runs) != set(tasks):
        raise PlacementError(f"function {function.sym_name.data}", needs="a schedule of its operations")
    for name, op in tasks.items():
        run = runs[name]
        _write(
            op,
            device=StringAttr(run.machine),
            stream=IntegerAttr(run.stream, i64),
            start_ns=IntegerAttr(round(run.start_ns), i64),
            end_ns=IntegerAttr(round(run.end_ns), i64),
        )
    _write(function, makespan_ns=IntegerAttr(round(schedule.makespan_ns), i64), method=StringAttr(method))


def _write(op: Operation, **attributes: Attribute) -> None:
    for old in [name for name in op.attributes if name.startswith(PREFIX)]:
        del op.attributes[old]
    op.attributes.update({PREFIX + name: value for name, value in attributes.items()})


def _body(function: FuncOp) -> _Body:
    name = function.sym_name.data
    if len(function.body.blocks) != 1:
        blocks = str(len(function.body.blocks))
        raise PlacementError(f"function {name}", needs="one block: control flow inside operations", has=blocks)
    *ops, last = function.body.block.ops
    if not isinstance(last, ReturnOp) or not all(isinstance(value.type, TensorType) for value in last.operands):
        raise PlacementError(f"function {name}", needs="a func.return of tensors", has=name_of_operation(last))
    constants = set[Operation]()
    tasks: dict[str, Operation] = {}
    for number, op in enumerate(ops):
        if all(_owner(value) in constants for value in _read(op)):
            constants.add(op)
        elif op.results:
            tasks[f"{number}:{name_of_operation(op)}"] = op
        else:
            raise PlacementError(
                f"{name_of_operation(op)} of {name}", needs="results: functions on tensors, not buffers"
            )
    return _Body(function, tasks, frozenset(constants), last)


def _owner(value: SSAValue) -> Operation | None:
    owner = value.owner
    return owner if isinstance(owner, Operation) else None


def _is_fetched(value: SSAValue, constants: frozenset[Operation]) -> bool:
    owner = _owner(value)
    return owner in constants and isinstance(value.type, TensorType) and name_of_operation(owner) not in MADE_IN_PLACE


def _read(op: Operation) -> list[SSAValue]:
    """Values from outside the operation, in its regions too."""
    inside = {id(result) for inner in op.walk() for result in inner.results if inner is not op}
    inside |= {
        id(arg) for inner in op.walk() for region in inner.regions for block in region.blocks for arg in block.args
    }
    return [value for inner in op.walk() for value in inner.operands if id(value) not in inside]


def _reading(value: SSAValue) -> list[Operation]:
    """The operations of the function's own block that read a value, directly or in a region inside."""
    block = value.owner.parent_block() if isinstance(value.owner, Operation) else value.owner
    found = []
    for use in value.uses:
        op: Operation | None = use.operation
        while op is not None and op.parent_block() is not block:
            op = op.parent_op()
        found += [op] if op is not None else []
    return found


def _bytes(value: SSAValue, function: FuncOp) -> int:
    """Bytes of a tensor, or of a number that is computed."""
    kind, count = value.type, 1
    if isinstance(kind, TensorType):
        shape = kind.get_shape()
        if any(extent < 0 for extent in shape):
            has = str(kind)
            raise PlacementError(f"function {function.sym_name.data}", needs="tensors of static shapes", has=has)
        for extent in shape:
            count *= extent
        kind = kind.element_type
    return count * (max(1, kind.bitwidth // 8) if isinstance(kind, FixedBitwidthType) else BYTES_OF_INDEX)
