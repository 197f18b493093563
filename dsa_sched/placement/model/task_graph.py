"""Task graphs: the work of a network above the level of kernels.

    tasks (layers or groups of them) + values (tensors with one producer and any number of consumers) = TaskGraph

A value is a tensor, not an edge: however many tasks of a device read it, it is copied there once. The two ends of a
network are tasks without work, `%inputs` and `%outputs`, which stay on the host, so that inputs and outputs are copied
like all other values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hw_models.errors import PlacementError
from partitioner.ir.text import format_line

INPUTS, OUTPUTS = "%inputs", "%outputs"
ENDS = (INPUTS, OUTPUTS)


@dataclass(frozen=True, slots=True)
class Task:
    """`nodes` names the ONNX nodes that it runs, in order; `macs` and `constant_bytes` are for analytic costs."""

    name: str
    nodes: tuple[str, ...] = ()
    macs: int = 0
    constant_bytes: int = 0

    @property
    def is_end(self) -> bool:
        """Whether it stands for the host's side of the network: no work, and only on the host."""
        return self.name in ENDS


@dataclass(frozen=True, slots=True)
class TaskValue:
    """A tensor between tasks. `consumers` are in the order of the graph's tasks, each once."""

    name: str
    producer: str
    consumers: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True)
class TaskGraph:
    """Tasks in topological order. Everything below them is by task number, for methods."""

    name: str
    tasks: tuple[Task, ...]
    values: tuple[TaskValue, ...]

    @cached_property
    def number(self) -> dict[str, int]:
        """Task name -> its place in `tasks`."""
        return {task.name: number for number, task in enumerate(self.tasks)}

    @cached_property
    def value_number(self) -> dict[str, int]:
        """Value name -> its place in `values`."""
        return {value.name: number for number, value in enumerate(self.values)}

    @cached_property
    def value(self) -> dict[str, TaskValue]:
        """Values by name."""
        return {value.name: value for value in self.values}

    @cached_property
    def producers(self) -> tuple[int, ...]:
        """For each value, the task that makes it."""
        return tuple(self.number[value.producer] for value in self.values)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each value, the tasks that read it."""
        return tuple(tuple(self.number[name] for name in value.consumers) for value in self.values)

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each task, the values that it reads."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for value, consumers in enumerate(self.consumers):
            for task in consumers:
                found[task].append(value)
        return tuple(map(tuple, found))

    @cached_property
    def writes(self) -> tuple[tuple[int, ...], ...]:
        """For each task, the values that it makes."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for value, task in enumerate(self.producers):
            found[task].append(value)
        return tuple(map(tuple, found))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each task, the tasks that it reads from, in order."""
        return tuple(tuple(sorted({self.producers[value] for value in reads})) for reads in self.reads)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each task, the tasks that read from it, in order."""
        found: list[set[int]] = [set() for _ in self.tasks]
        for task, before in enumerate(self.predecessors):
            for other in before:
                found[other].add(task)
        return tuple(tuple(sorted(after)) for after in found)

    def __str__(self) -> str:
        lines = [format_line("tasks", ("name", self.name))]
        for task in self.tasks:
            work = (("macs", task.macs), ("constant_bytes", task.constant_bytes))
            lines.append("  " + format_line("task", ("name", task.name), ("nodes", task.nodes), *work))
        for value in self.values:
            ends = (("producer", value.producer), ("consumers", value.consumers), ("bytes", value.size_bytes))
            lines.append("  " + format_line("value", ("name", value.name), *ends))
        return "\n".join(lines) + "\n"


def verify_task_graph(graph: TaskGraph) -> None:
    """Check unique names, known ends, producers before consumers, values in the order of their producers, no negative
    sizes.

    Raises PlacementError.
    """
    for items in (graph.tasks, graph.values):
        counts = Counter(item.name for item in items)
        if len(counts) < len(items):
            has = f"{counts.most_common(1)[0][0]} twice"
            raise PlacementError(f"task graph {graph.name}", needs="unique names of tasks and of values", has=has)
    for task in graph.tasks:
        if task.macs < 0 or task.constant_bytes < 0:
            raise PlacementError(f"task {task.name}", needs="work and bytes from 0 on", has=str(task))
    for value in graph.values:
        if unknown := [name for name in (value.producer, *value.consumers) if name not in graph.number]:
            raise PlacementError(f"value {value.name}", needs="tasks of the graph", has=", ".join(unknown))
        places = [graph.number[name] for name in (value.producer, *value.consumers)]
        if places != sorted(set(places)) or value.size_bytes < 0:
            needs = "a producer before its consumers, these in order, and a size from 0 on"
            raise PlacementError(f"value {value.name}", needs=needs, has=str(value))
    if list(graph.producers) != sorted(graph.producers):
        raise PlacementError(f"task graph {graph.name}", needs="values in the order of their producers")


def grouped(graph: TaskGraph, groups: Sequence[Sequence[int]]) -> TaskGraph:
    """The graph in which each group of task numbers is one task, named by its first task and their count.

    `groups` cover every task once. Values that nothing outside a group reads vanish. Raises PlacementError when a group
    would have to wait for itself (a way out of it leads back in).
    """
    of = {task: group for group, tasks in enumerate(groups) for task in tasks}
    if sorted(of) != list(range(len(graph.tasks))) or sum(map(len, groups)) != len(of):
        raise PlacementError(f"task graph {graph.name}", needs="groups that have every task once")
    order = group_order(graph, groups)
    made = {}
    for group in order:
        members = [graph.tasks[task] for task in sorted(groups[group])]
        name = members[0].name if len(members) == 1 else f"{members[0].name} (+{len(members) - 1})"
        nodes = tuple(node for member in members for node in member.nodes)
        work = sum(member.macs for member in members), sum(member.constant_bytes for member in members)
        made[group] = Task(name, nodes, *work)
    place = {group: number for number, group in enumerate(order)}
    values = []
    for value, producer, consumers in zip(graph.values, graph.producers, graph.consumers, strict=True):
        readers = sorted({of[task] for task in consumers} - {of[producer]}, key=place.__getitem__)
        if readers or not consumers:
            names = tuple(made[group].name for group in readers)
            values.append(TaskValue(value.name, made[of[producer]].name, names, value.size_bytes))
    tasks = tuple(made[group] for group in order)
    number = {task.name: place for place, task in enumerate(tasks)}
    values.sort(key=lambda value: number[value.producer])
    return TaskGraph(graph.name, tasks, tuple(values))


def reached(tasks: Iterable[int], edges: Sequence[Sequence[int]]) -> dict[int, int]:
    """For each of the tasks, which are in the order of the edges, the bits of itself and of all that lead to it."""
    found: dict[int, int] = {}
    for task in tasks:
        found[task] = 1 << task
        for other in edges[task]:
            found[task] |= found.get(other, 0)
    return found


def task_bytes(graph: TaskGraph, number: int) -> tuple[int, int]:
    """Bytes that a task reads, including constants, and that it writes."""
    read = sum(graph.values[value].size_bytes for value in graph.reads[number])
    written = sum(graph.values[value].size_bytes for value in graph.writes[number])
    return read + graph.tasks[number].constant_bytes, written


def group_order(graph: TaskGraph, groups: Sequence[Sequence[int]]) -> list[int]:
    """Groups in topological order, of those that are ready the one with the smallest first task: the order of the tasks
    of `grouped`. Raises PlacementError when a group would have to wait for itself."""
    of = {task: group for group, tasks in enumerate(groups) for task in tasks}
    before = [
        {of[other] for task in tasks for other in graph.predecessors[task]} - {group}
        for group, tasks in enumerate(groups)
    ]
    after: list[list[int]] = [[] for _ in groups]
    for group, others in enumerate(before):
        for other in others:
            after[other].append(group)
    missing = [len(others) for others in before]
    first = [min(tasks) for tasks in groups]
    ready = sorted((group for group, count in enumerate(missing) if not count), key=first.__getitem__, reverse=True)
    order = []
    while ready:
        group = ready.pop()
        order.append(group)
        for other in after[group]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
        ready.sort(key=first.__getitem__, reverse=True)
    if len(order) < len(groups):
        stuck = next(group for group, count in enumerate(missing) if count)
        name = graph.tasks[first[stuck]].name
        raise PlacementError(f"the group of task {name}", needs="no way out of it that leads back in")
    return order
