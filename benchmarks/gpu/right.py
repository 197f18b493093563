"""Step `right`: every network by its groups, from fresh inputs in poisoned memory, each within its bound of float64.

The program is stepped through launch by launch, so that what each group leaves is judged although its memory is used
again, what it leaves slice by slice after the last; its inputs are what was left for it earlier, wherever that may have
been overwritten since. Then the network runs
as one graph in memory that is poisoned again, and must leave the same bits and finite outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.bench import Bench, Item, Row
from benchmarks.gpu.judged import Judged, judge_group, sources
from benchmarks.gpu.store import Program
from benchmarks.gpu.synthetic import Array, drawn_input, prepared_values
from benchmarks.gpu.unfolded import Unfolded, unfolded
from benchmarks.gpu.watched import WatchedDriver
from codegen.cutlass.emission.launch_list import integers_name, slice_of
from codegen.cutlass.reference.words import emulate_prepared
from codegen.cutlass.runner.runner import Driver, GpuNetwork, RunnerError
from partitioner.ir.graph import Op

__all__ = ["SAMPLES", "SEED", "first_wrong", "items", "lines", "stored_places", "wrong"]

SAMPLES = 512
SEED = 1


def items(bench: Bench) -> Iterator[Item]:
    for program in bench.programs():
        yield Item(program.key, lambda program=program: _row(bench, program))  # type: ignore[misc]


def _row(bench: Bench, program: Program) -> Row:
    with unfolded(bench.pack, program) as made, bench.driver() as driver:
        inputs = _inputs(made)
        judged, outputs = stepped(made, driver, inputs)
        with GpuNetwork(made.folder, driver) as network:
            network.poison()
            again = network.run(inputs)
    wrong = {name: found for name, found in judged.items() if found.wrong}
    row: Row = {
        "groups": len(judged),
        "samples": sum(found.samples for found in judged.values()),
        "wrong": {name: _told(found) for name, found in wrong.items()},
        "largest_share": max((found.share for found in judged.values()), default=0.0),
        "finite": all(np.isfinite(value).all() for value in again.values() if value.dtype.kind == "f"),
        "same_bits": all(np.array_equal(again[name].view(np.uint8), outputs[name].view(np.uint8)) for name in again),
    }  # fmt: skip
    return row


def _inputs(made: Unfolded) -> dict[str, Array]:
    tensors = [made.graph.by_name[name] for name in made.graph.fed]
    return {one.name: drawn_input(SEED + number, one.shape, one.dtype) for number, one in enumerate(tensors)}


def stepped(made: Unfolded, driver: Driver, inputs: dict[str, Array]) -> tuple[dict[str, Judged], dict[str, Array]]:
    """Each group judged as it is done, operators on integers too, and the network's outputs. Raises RunnerError."""
    graph, plan = made.graph, made.plan
    places = stored_places(made)
    sizes = {
        sources(graph, tensor["name"]): tensor["bytes"]
        for tensor in made.listed["tensors"]
        if tensor["name"] in graph.by_name
    }
    stored: dict[str, Array] = {**inputs, **prepared_values(graph, made.constants, inputs)}
    judged: dict[str, Judged] = {}
    last_use = _last_use(made)
    of_integers = {integers_name(op.name): op for op in (*graph.prepared, *graph.concluded)}

    def read(name: str) -> Array:
        tensor = graph.by_name[name]
        return made.constants[tensor.constant].reshape(tensor.shape) if tensor.constant else stored[name]

    def exact(name: str, op: Op) -> None:
        """An operator on integers leaves what it must leave."""
        result = op.outputs[0]
        wanted = emulate_prepared(graph, op, read)
        content = watched.content(places[result], graph.by_name[result].size_bytes)
        stored[result] = content.view(wanted.dtype).reshape(wanted.shape)
        wrong = int(np.count_nonzero(stored[result] != wanted))
        judged[name] = Judged(wanted.size, wrong, 0.0, "not the same integers" if wrong else "")

    def seen(name: str) -> None:
        if name in of_integers:
            exact(name, of_integers[name])
            return
        name, instance, count = slice_of(name)
        group = plan.group_by_name[name]
        for output in group.outputs(graph):
            tensor = graph.by_name[output]
            if output not in places:
                raise RunnerError(f"group {name}: its output {output} lies nowhere in the list of launches")
            part = tensor.size_bytes // count
            there = instance * part if sizes[output] == tensor.size_bytes else 0  # else each slice in the same place
            content = watched.content(places[output] + there, part)
            whole = stored.setdefault(output, np.empty(tensor.shape, tensor.dtype))
            whole.reshape(-1).view(np.uint8)[instance * part : (instance + 1) * part] = content
        if instance + 1 < count:
            return
        judged[name] = judge_group(graph, made.constants, group, stored, SAMPLES, SEED)
        for value in [value for value in stored if last_use.get(value) == name and value not in graph.outputs]:
            del stored[value]

    groups = [launch["layer"] for launch in made.listed["launches"]]
    watched = WatchedDriver(driver, groups, seen)
    machine: Any = watched
    with GpuNetwork(made.folder, machine, graph=False) as network:
        network.poison()
        return judged, network.run(inputs)


def stored_places(made: Unfolded) -> dict[str, int]:
    """Offset in the arena of every value that is stored, by the name of what is no view."""
    graph = made.graph
    found = {}
    for tensor in made.listed["tensors"]:
        if tensor["name"] in graph.by_name and tensor["role"] in ("input", "output", "value"):
            found[sources(graph, tensor["name"])] = tensor["offset"]
    return found


def _last_use(made: Unfolded) -> dict[str, str]:
    """Of each value the last group that reads it."""
    return {
        sources(made.graph, name): step.group
        for step in made.plan.steps
        for name in made.plan.group_by_name[step.group].inputs(made.graph)
    }


def first_wrong(judged: Mapping[str, Judged]) -> str:
    """Of groups those that are wrong, in words; empty where none is."""
    return _in_words({name: _told(found) for name, found in judged.items() if found.wrong})


def _told(found: Judged) -> Row:
    return {"wrong": found.wrong, "of": found.samples, "first": found.first}


def _in_words(wrong: Mapping[str, Row]) -> str:
    if not wrong:
        return ""
    name, found = next(iter(wrong.items()))
    more = f" and {len(wrong) - 1} groups more" if len(wrong) > 1 else ""
    share = f"{found['wrong']} of {found['of']} samples"
    return f"group {name}{more}: {share} beyond their bound, first {found['first']}"


def wrong(row: Row) -> str:
    """What is not right in a network, in words."""
    if "error" in row:
        return str(row["error"])
    if row["wrong"]:
        return _in_words(row["wrong"])
    if not row["finite"]:
        return "outputs that are not finite"
    return "" if row["same_bits"] else "a second run left other bits"


def lines(rows: Sequence[Row]) -> list[str]:
    found = ["| program | groups | samples | largest share of a bound | |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        said = wrong(row) or "right"
        if "error" in row:
            found.append(f"| {row['key']} | | | | {said} |")
        else:
            found.append(f"| {row['key']} | {row['groups']} | {row['samples']} | {row['largest_share']:.2f} | {said} |")
    return found
