"""Task graphs and schedules from their text forms (`dsa_sched/placement/`)."""

from __future__ import annotations

from dsa_sched.placement.model.task_graph import Task, TaskGraph, TaskValue, verify_task_graph
from dsa_sched.placement.schedule.schedule import Schedule, TaskRun, ValueCopy
from partitioner.ir.text import Fields, TextError, as_int, as_names, parse_lines

__all__ = ["parse_schedule", "parse_task_graph"]


def parse_task_graph(text: str) -> TaskGraph:
    """The graph whose text form this is. Raises TextError, and PlacementError where it is no task graph."""
    name, tasks, values = "", [], []
    for number, tag, fields in parse_lines(text):
        try:
            if tag == "tasks":
                name = str(fields["name"])
            elif tag == "task":
                work = as_int(fields["macs"]), as_int(fields["constant_bytes"])
                tasks.append(Task(str(fields["name"]), as_names(fields["nodes"]), *work))
            elif tag == "value":
                ends = str(fields["producer"]), as_names(fields["consumers"])
                values.append(TaskValue(str(fields["name"]), *ends, as_int(fields["bytes"])))
            else:
                raise TextError(f"line {number}", needs="tasks, task or value", has=tag)
        except (KeyError, TypeError) as error:
            raise TextError(f"line {number}", needs=f"the fields of a {tag}", has=str(error)) from error
    graph = TaskGraph(name, tuple(tasks), tuple(values))
    verify_task_graph(graph)
    return graph


def parse_schedule(text: str) -> Schedule:
    """The schedule whose text form this is. Raises TextError."""
    graph, machines = "", tuple[str, ...]()
    runs, copies, stages = [], [], []
    for number, tag, fields in parse_lines(text):
        try:
            if tag == "schedule":
                graph, machines = str(fields["graph"]), as_names(fields["machines"])
            elif tag == "run":
                where = str(fields["task"]), str(fields["machine"]), as_int(fields["stream"])
                runs.append(TaskRun(*where, _number(fields, "start_ns"), _number(fields, "end_ns")))
            elif tag == "copy":
                way = str(fields["value"]), str(fields["source"]), str(fields["target"])
                copies.append(ValueCopy(*way, _number(fields, "start_ns"), _number(fields, "end_ns")))
            elif tag == "stage":
                stages.append(as_names(fields["tasks"]))
            else:
                raise TextError(f"line {number}", needs="schedule, run, copy or stage", has=tag)
        except (KeyError, TypeError) as error:
            raise TextError(f"line {number}", needs=f"the fields of a {tag}", has=str(error)) from error
    return Schedule(graph, machines, tuple(runs), tuple(copies), tuple(stages))


def _number(fields: Fields, name: str) -> float:
    value = fields[name]
    if not isinstance(value, (int, float)):
        raise TypeError(f"a number, not {value!r}")
    return value
