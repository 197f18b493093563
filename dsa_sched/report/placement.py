"""Schedules over devices for a reader: a table of methods, a Gantt chart as text, trace events for the Perfetto UI."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from string import ascii_lowercase
from textwrap import shorten
from typing import TYPE_CHECKING

import click

from dsa_sched.io.atomic_write import write_whole
from dsa_sched.placement.methods.large_parts import work_tasks
from dsa_sched.placement.methods.registry import Outcome
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.model.task_graph import ENDS
from dsa_sched.placement.schedule.schedule import Schedule, TaskRun, ValueCopy
from dsa_sched.placing.place import PlacementResult, TaskRefusal
from dsa_sched.report.listing import print_listing
from hw_models.errors import PlacementError

if TYPE_CHECKING:
    from dsa_sched.placing.check_run import Executed

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
Event = dict[str, object]
FORMAT = "dsa-sched-place/2"

IDLE, OTHER, INPUT = " ", ".", "<"
MOST_REFUSALS, LONGEST_REASON = 4, 200
"""Largest numbers, per device and in the text, of refused tasks and of characters of a reason. JSON has all."""


def print_placed(placed: PlacementResult, emit: str | None = None, columns: int = 80) -> None:
    """Tables and the chart of the best schedule, or with `emit` one text alone: schedule, stages, tasks, mlir,
    mlir-generic; the times of a run then go to the error output. Raises PlacementError for the stages of a schedule
    that has none.
    """
    best = placed.best
    if emit is not None:
        click.echo(_emitted(best, emit), nl=False)
        if placed.executed is not None:
            with redirect_stdout(sys.stderr):
                print_executed(placed.executed)
        return
    print_outcomes(placed)
    for name, reason in placed.refused:
        click.echo(reason if reason.startswith(f"{name}:") else f"{name}: {reason}")
    for line in refusal_lines(placed.refusals):
        click.echo(line)
    click.echo()
    for line in verdict_lines(placed):
        click.echo(line)
    click.echo(f"\n{best.method}:")
    print_schedule(best.schedule, best.problem, columns)
    if placed.executed is not None:
        print_executed(placed.executed)


def verdict_lines(placed: PlacementResult) -> list[str]:
    """The number of tasks of the best schedule, how near it is to what is proven for these, and the source of their
    prices."""
    best = placed.best
    smallest, tasks = work_tasks(placed.problem), work_tasks(best.problem)
    these = f"these {tasks:,} tasks at these prices" if tasks > 1 else "this 1 task at its price"
    if best.makespan_ns <= best.bound_ns:
        lines = [f"{best.method}: optimal for {these}"]
    else:
        lines = [f"{best.method}: no schedule of {these} takes less than {time_text(best.bound_ns)}"]
    if tasks < smallest:
        size = "one layer" if placed.task_layers == 1 else f"up to {placed.task_layers:,} layers"
        least = time_text(placed.bound_ns)
        lines.append(f"as {smallest:,} tasks of {size} each, the network takes at least {least} at these prices")
    if best.problem.costs.source:
        lines.append(f"prices: {best.problem.costs.source}")
    if works := [name for name in placed.by_roofline if best.schedule.busy_ns(name)]:
        said = "is optimistic next to compiled programs; --measure times all devices"
        lines.append(f"caution: the roofline of {' and of '.join(works)} {said}")
    return lines


def refusal_lines(refusals: Sequence[TaskRefusal]) -> list[str]:
    """One line per device that refuses tasks: the first of them, with reasons cut short."""
    found: dict[str, list[str]] = {}
    for item in refusals:
        reason = shorten(item.reason, LONGEST_REASON, placeholder=" ...")
        found.setdefault(item.device, []).append(f"{item.task} ({reason})")
    lines = []
    for device, tasks in found.items():
        shown, more = ", ".join(tasks[:MOST_REFUSALS]), len(tasks) - MOST_REFUSALS
        count = f"{len(tasks):,} task{'s' * (len(tasks) > 1)}"
        lines.append(f"{device} refuses {count}: {shown}" + (f" and {more:,} more" if more > 0 else ""))
    return lines


def print_executed(executed: Executed) -> None:
    """Print the times of a run next to its prediction, and how right its outputs are."""
    click.echo()
    predicted, measured = executed.predicted, executed.schedule
    rows = [("whole", predicted.makespan_ns, measured.makespan_ns)]
    rows += [(machine, predicted.busy_ns(machine), measured.busy_ns(machine)) for machine in measured.machines]
    print_listing(
        ("run", "predicted", "accounted" if executed.accounted else "measured", "ratio"),
        ((name, time_text(one), time_text(other), f"{other / one:.3f}" if one else "-") for name, one, other in rows),
        right=(1, 2, 3),
    )
    spread = executed.makespans_ns
    click.echo(f"{len(spread)} runs: {time_text(spread[0])} to {time_text(spread[-1])}, the table has the median")
    exact = "equal to the bit to" if not executed.difference else f"within {executed.difference:.2e} of"
    click.echo(f"outputs: {exact} those of onnxruntime on the whole model")


def _emitted(best: Outcome, emit: str) -> str:
    if emit == "schedule":
        return str(best.schedule)
    if emit == "stages":
        return stages_text(best.schedule)
    if emit == "tasks":
        return str(best.problem.graph)
    from dsa_sched.placement.mlir.convert import add_schedule, generic_text, module_of  # loads xDSL

    module = module_of(best.problem)
    add_schedule(module, best.schedule, best.method)
    return generic_text(module) if emit == "mlir-generic" else str(module) + "\n"


def stages_text(schedule: Schedule) -> str:
    """A line a stage: its start and time in microseconds, and the tasks of each stream, streams apart by bars. Raises
    PlacementError for a schedule without stages."""
    if not schedule.stages:
        raise PlacementError(f"schedule of {schedule.graph}", needs="stages", has="none", change="try --method ios")
    rows = [("stage", "start us", "us", "tasks")]
    for number, names in enumerate(schedule.stages, 1):
        runs = sorted((schedule.run_of[name] for name in names if name not in ENDS), key=lambda run: run.start_ns)
        if runs:
            start, end = runs[0].start_ns, max(run.end_ns for run in runs)
            streams: dict[int, list[str]] = {}
            for run in runs:
                streams.setdefault(run.stream, []).append(run.task)
            tasks = " | ".join(", ".join(own) for own in streams.values())
            rows.append((f"{number}", f"{start / 1e3:.1f}", f"{(end - start) / 1e3:.1f}", tasks))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "".join(
        "  ".join([*(cell.rjust(room) for cell, room in zip(row, widths, strict=False)), row[3]]) + "\n" for row in rows
    )


def placed_json(placed: PlacementResult) -> str:
    """The figures of all methods and the decisions of the best as JSON text."""
    best = placed.best
    whole = {
        "format": FORMAT,
        "graph": placed.problem.graph.name,
        "smallest_tasks": work_tasks(placed.problem),
        "layers_per_task": placed.task_layers,
        "machines": [machine.name for machine in placed.problem.machines],
        "costs": placed.problem.costs.source,
        "methods": outcome_rows(placed),
        "refused": [{"method": name, "reason": reason} for name, reason in placed.refused],
        "refusals": [asdict(item) for item in placed.refusals],
        "best": best.method,
        "tasks": [
            {"task": task.name, "nodes": list(task.nodes)} for task in best.problem.graph.tasks if not task.is_end
        ],
        "schedule": str(best.schedule).splitlines(),
        "decisions": [str(decision) for decision in best.decisions],
        "run": None if placed.executed is None else _run_figures(placed.executed),
    }
    return json.dumps(whole, indent=1) + "\n"


def write_placed(placed: PlacementResult, path: Path) -> None:
    """Write the JSON form, whole or not at all. Raises UserError."""
    text = placed_json(placed).encode()
    write_whole(path, lambda stream: stream.write(text))


def _run_figures(executed: Executed) -> dict[str, Json]:
    return {
        "predicted_ns": executed.predicted.makespan_ns,
        "makespans_ns": list(executed.makespans_ns),
        "accounted": executed.accounted,
        "output_difference": executed.difference,
        "schedule": list(str(executed.schedule).splitlines()),
    }


def time_text(time_ns: float) -> str:
    """Nanoseconds for a reader, in the unit that suits them."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if time_ns >= unit:
            return f"{time_ns / unit:,.3f} {name}"
    return f"{time_ns:,.0f} ns"


def outcome_rows(placed: PlacementResult) -> list[dict[str, Json]]:
    """A row per method, in the order given: the figures of the table, for JSON. Each bound is for the tasks of its row,
    at their prices.
    """
    found = placed.found
    best_single = min((o.makespan_ns for o, _ in found if o.method == "single"), default=None)
    return [
        {
            "method": outcome.method,
            "tasks": work_tasks(outcome.problem),
            "makespan_ns": outcome.makespan_ns,
            "bound_ns": outcome.bound_ns,
            "over_bound": outcome.makespan_ns / outcome.bound_ns if outcome.bound_ns else None,
            "over_single": best_single / outcome.makespan_ns if best_single and outcome.makespan_ns else None,
            "optimal_for_these_tasks": outcome.makespan_ns <= outcome.bound_ns,
            "evaluations": outcome.evaluations,
            "search_seconds": seconds,
        }
        for outcome, seconds in found
    ]


def print_outcomes(placed: PlacementResult) -> None:
    """The table of all methods, fastest schedules first."""
    rows = sorted(zip(outcome_rows(placed), placed.found, strict=True), key=lambda row: row[1][0].makespan_ns)
    headings = ("method", "tasks", "makespan", "over bound", "gain over single", "search s", "evaluations")
    print_listing(
        headings,
        (
            (
                outcome.method,
                f"{row['tasks']:,}",
                time_text(outcome.makespan_ns),
                _ratio(row["over_bound"]),
                _ratio(row["over_single"]),
                f"{seconds:.2f}",
                f"{outcome.evaluations:,}",
            )
            for row, (outcome, seconds) in rows
        ),
        right=range(1, len(headings)),
    )


def _ratio(ratio: Json) -> str:
    return f"{ratio:.3f}" if isinstance(ratio, float) else "-"


def print_schedule(schedule: Schedule, problem: Problem, columns: int = 80) -> None:
    """Print the tasks of each device, and their Gantt chart."""
    whole, value_of = schedule.makespan_ns or 1.0, problem.graph.value
    rows = []
    for machine in schedule.machines:
        runs = [run for run in schedule.runs if run.machine == machine and run.task not in ENDS]
        busy = schedule.busy_ns(machine)
        sent = sum(value_of[copy.value].size_bytes for copy in schedule.copies if copy.source == machine)
        rows.append((machine, f"{len(runs):,}", time_text(busy), f"{busy / whole:.1%}", f"{sent:,}"))
    print_listing(("device", "tasks", "at work", "share", "bytes sent"), rows, right=range(1, 5))
    for line in placement_gantt(schedule, problem, columns):
        click.echo(line)
    click.echo()
    print_letters(schedule, problem)


def print_letters(schedule: Schedule, problem: Problem) -> None:
    """The task of each letter of the chart, where it runs and when, and how many tasks share a dot."""
    letters = _letters(schedule, problem)
    runs = [(code, schedule.run_of[task]) for task, code in letters.items() if code != OTHER]
    rows = [
        (code, run.task, run.machine, time_text(run.start_ns), time_text(run.end_ns - run.start_ns))
        for code, run in runs
    ]
    others = f"{len(letters) - len(runs):,} others"
    rest = [(OTHER, others, "", "", "")] if len(letters) > len(runs) else []
    print_listing(("letter", "task", "device", "from", "takes"), [*rows, *rest], right=(3, 4))


def _letters(schedule: Schedule, problem: Problem) -> dict[str, str]:
    """Task -> its letter, in the order of the graph; where letters do not reach, those that take the longest have them
    and the others a dot."""
    runs = [schedule.run_of[task.name] for task in problem.graph.tasks if not task.is_end]
    longest = sorted(runs, key=lambda run: run.start_ns - run.end_ns)[: len(ascii_lowercase)]
    named = {run.task for run in longest}
    codes = iter(ascii_lowercase)
    return {run.task: next(codes) if run.task in named else OTHER for run in runs}


def placement_gantt(schedule: Schedule, problem: Problem, columns: int) -> list[str]:
    """A row per stream and wire, with the letters of tasks; a wire has that of the task whose value it carries, or `<`
    for inputs. Each stretch of time shows the letter that takes most of it.
    """
    letters = _letters(schedule, problem)
    wires = {(route.source, route.target): route.wire for route in problem.costs.routes}
    rows: dict[str, list[tuple[float, float, str]]] = {}
    for machine in problem.machines:
        for stream in range(machine.streams):
            rows[machine.name if machine.streams == 1 else f"{machine.name} {stream}"] = []
    several = {machine.name for machine in problem.machines if machine.streams > 1}
    for run in schedule.runs:
        if run.task in letters:
            row = f"{run.machine} {run.stream}" if run.machine in several else run.machine
            rows[row].append((run.start_ns, run.end_ns, letters[run.task]))
    for copy in schedule.copies:
        row = f"wire {wires[copy.source, copy.target]}"
        carried = letters.get(problem.graph.value[copy.value].producer, INPUT)
        rows.setdefault(row, []).append((copy.start_ns, copy.end_ns, carried))
    used = {name: work for name, work in rows.items() if work or not name.startswith("wire ")}
    width = max(map(len, used), default=0)
    step = (schedule.makespan_ns or 1.0) / columns
    lines = [f"{name:<{width}} |{_cells(work, step, columns)}|" for name, work in used.items()]
    return [*lines, f"{'':<{width}}  0{time_text(schedule.makespan_ns):>{columns - 1}}"]


def _cells(work: Iterable[tuple[float, float, str]], step: float, columns: int) -> str:
    """For each stretch of time, the letter that takes most of it."""
    most: list[tuple[float, str]] = [(0.0, IDLE)] * columns
    for start, end, name in work:
        for cell in range(int(start / step), min(columns, int(end / step) + 1)):
            part = min(end, (cell + 1) * step) - max(start, cell * step)
            if part > most[cell][0]:
                most[cell] = (part, name)
    return "".join(name for _, name in most)


def write_schedule_trace(schedule: Schedule, problem: Problem, path: Path) -> int:
    """Write trace events as JSON, whole or not at all; how many there are. Raises UserError."""
    lines = [json.dumps(event, separators=(",", ":")) for event in schedule_trace(schedule, problem)]
    text = '{"displayTimeUnit":"ns","traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"
    write_whole(path, lambda stream: stream.write(text.encode()))
    return len(lines)


def schedule_trace(schedule: Schedule, problem: Problem) -> Iterator[Event]:
    """Events in the Trace Event Format: a process per device with a track per stream, one for the wires, and an arrow
    from each copy's source to its first reader."""
    devices = {name: number for number, name in enumerate(schedule.machines)}
    ways = {(route.source, route.target): route.wire for route in problem.costs.routes}
    tracks = {wire: number for number, wire in enumerate(dict.fromkeys(ways.values()))}
    links = len(devices)
    for name, number in (*devices.items(), *([("wires", links)] if schedule.copies else [])):
        yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": number, "name": "process_sort_index", "args": {"sort_index": number}}
    for wire, number in tracks.items():
        if any(ways[copy.source, copy.target] == wire for copy in schedule.copies):
            yield {"ph": "M", "pid": links, "tid": number, "name": "thread_name", "args": {"name": wire}}
    for run in schedule.runs:
        place = {"pid": devices[run.machine], "tid": run.stream}
        yield {"ph": "X", "name": run.task, "cat": "task", **place, **_span(run)}
    for number, copy in enumerate(schedule.copies):
        value = problem.graph.value[copy.value]
        track = {"pid": links, "tid": tracks[ways[copy.source, copy.target]]}
        arguments = {"bytes": value.size_bytes, "source": copy.source, "target": copy.target}
        yield {"ph": "X", "name": copy.value, "cat": "copy", **track, **_span(copy), "args": arguments}
        made = schedule.run_of[value.producer]
        flow: Event = {"cat": "copy", "name": "copy", "id": number}
        leaves = {"pid": devices[made.machine], "tid": made.stream, "ts": made.end_ns / 1e3}
        yield {"ph": "s", **flow, **leaves}
        yield {"ph": "t", **flow, **track, "ts": copy.start_ns / 1e3}
        reader = _first_reader(schedule, value.consumers, copy.target)
        if reader is not None:
            arrives = {"pid": devices[reader.machine], "tid": reader.stream, "ts": reader.start_ns / 1e3}
            yield {"ph": "f", "bp": "e", **flow, **arrives}


def _first_reader(schedule: Schedule, consumers: Sequence[str], machine: str) -> TaskRun | None:
    runs = [schedule.run_of[name] for name in consumers if schedule.run_of[name].machine == machine]
    return min(runs, key=lambda run: run.start_ns, default=None)


def _span(item: TaskRun | ValueCopy) -> dict[str, float]:
    """Microseconds, as the format wants them."""
    return {"ts": item.start_ns / 1e3, "dur": (item.end_ns - item.start_ns) / 1e3}
