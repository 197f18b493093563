"""The plan: groups of layers, their instances and order, core binding and memory scope, and the decisions behind them.

    group --split--> instances --order--> run steps, with copies between them where a reader wants its data elsewhere

A plan says what runs where and in which order; it knows no addresses and no instructions. The plan of level O0 (one
kernel a layer, every output in DDR) is a plan like any other. What the boxes of an instance are on each core is said by
`partitioner.tiling.core_regions`, whether everything finds room by `partitioner.memory.memory_plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.ir.text import Fields, Json, TextError, as_int, as_ints, as_list, as_names, format_line, parse_lines

__all__ = ["MOVES", "Binding", "Exchange", "Group", "Plan", "Split", "Step", "parse_plan"]

MOVES = ("concat", "copy", "redistribute", "split")
"""Kinds of steps that bring a tensor into the local memories of the cores of one reader: from several instances, from
a shared memory, from other cores, or a part of one instance. What is done is the same; the name says why."""


@dataclass(frozen=True, slots=True)
class Split:
    """Cut points of the group's output: (axis, (0, ..., extent)) for each axis that is cut."""

    cuts: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def instances(self) -> int:
        count = 1
        for _, points in self.cuts:
            count *= len(points) - 1
        return count


@dataclass(frozen=True, slots=True)
class Exchange:
    """Inside an instance the cores compute disjoint `pieces` (counts for each axis) of a layer's output and then fetch
    from each other what their next layers read; other layers compute all that their core needs, overlaps included.

    With a `scope` the value is spilled: no core keeps it, all leave their pieces in that shared memory and read from
    there."""

    tensor: str
    pieces: tuple[int, ...]
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that become one kernel an instance, in execution order; the last one's output is what `split` cuts.

    `kernel` names what computes them where the target offers kernels of whole groups (the text of a
    `partitioner.ir.kernels.Kernel`); it is empty where cores compute them tile by tile, and for views."""

    name: str
    layers: tuple[Layer, ...]
    split: Split = Split()
    exchanges: tuple[Exchange, ...] = ()
    kernel: str = ""

    @property
    def output(self) -> str:
        return self.layers[-1].output

    def outputs(self, graph: Graph) -> tuple[str, ...]:
        """Values that leave the group: read by other groups, or outputs of the network. The group's own comes last."""
        inside = {name for layer in self.layers for name in layer.ops}
        leaving = [
            layer.output
            for layer in self.layers
            if layer.output in graph.outputs or any(op.name not in inside for op in graph.consumers[layer.output])
        ]
        return (*(name for name in leaving if name != self.output), self.output)

    def inputs(self, graph: Graph) -> tuple[str, ...]:
        """Values that the layers read from outside, constants excepted, each once."""
        made = {layer.output for layer in self.layers}
        names = (name for layer in self.layers for name in layer.inputs(graph) if name not in made)
        return tuple(dict.fromkeys(name for name in names if not graph.by_name[name].constant))


@dataclass(frozen=True, slots=True)
class Binding:
    """Pieces of each output axis over cores; piece i (row-major) runs on `cores[i]`. Without `cores` the hardware
    places the pieces, which are then the grid of a kernel that computes a whole group."""

    pieces: tuple[int, ...]
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`run` executes an instance, `view` gives the same bytes another name; `box` is what that makes of the group's
    output and `scope` the memory in which it is kept until its last reader has run. Further outputs of the group lie
    in the scopes that `exports` names.

    The other kinds (`MOVES`) bring `box` of `tensor` into the local memories of the cores of a run step that follows:
    that of `group` and `instance`. Each core gets what it will read; inputs that no such step brings are read from
    where they lie, tile by tile.
    """

    kind: str
    group: str
    instance: int
    box: Box
    scope: str
    binding: Binding
    tensor: str = ""
    exports: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Plan:
    """What to run, in order, on each cluster."""

    name: str
    level: str
    graph_hash: str
    chip_hash: str
    batch_per_cluster: int
    groups: tuple[Group, ...]
    steps: tuple[Step, ...]
    decisions: tuple[Decision, ...]
    pinned: tuple[str, ...] = ()
    """Constants that stay in the staging memory from their first use to their last."""

    @cached_property
    def group_by_name(self) -> dict[str, Group]:
        return {group.name: group for group in self.groups}

    def __str__(self) -> str:
        return format_plan(self)


def format_plan(plan: Plan) -> str:
    """The text form: groups with their layers, then steps in order, then decisions."""
    lines = [
        format_line(
            "plan",
            ("name", plan.name),
            ("level", plan.level),
            ("graph_hash", plan.graph_hash),
            ("chip_hash", plan.chip_hash),
            ("batch_per_cluster", plan.batch_per_cluster),
        )
    ]
    lines += ["  " + format_line("pinned", ("tensor", name)) for name in plan.pinned]
    for group in plan.groups:
        kernel = (("kernel", group.kernel),) if group.kernel else ()
        lines.append("  " + format_line("group", ("name", group.name), ("cuts", group.split.cuts), *kernel))
        for layer in group.layers:
            lines.append(
                "    " + format_line("layer", ("name", layer.name), ("ops", layer.ops), ("output", layer.output))
            )
        for exchange in group.exchanges:
            scope = (("scope", exchange.scope),) if exchange.scope else ()
            what = (("tensor", exchange.tensor), ("pieces", exchange.pieces))
            lines.append("    " + format_line("exchange", *what, *scope))
    for step in plan.steps:
        fields = (("group", step.group), ("instance", step.instance), ("box", step.box), ("scope", step.scope))
        binding = (("pieces", step.binding.pieces), ("cores", step.binding.cores))
        rest: list[tuple[str, object]] = [("tensor", step.tensor)] if step.tensor else []
        rest += [("exports", step.exports)] if step.exports else []
        lines.append("  " + format_line(step.kind, *fields, *binding, *rest))
    for decision in plan.decisions:
        fields_of = (("subject", decision.subject), ("verdict", decision.verdict), ("reason", decision.reason))
        lines.append("  " + format_line("decision", *fields_of))
    return "\n".join(lines) + "\n"


def parse_plan(text: str) -> Plan:
    """The converse of `str(plan)`. Raises TextError naming the line."""
    header: Fields = {}
    pinned: list[str] = []
    groups: list[tuple[Fields, list[Layer], list[Exchange]]] = []
    steps: list[Step] = []
    decisions: list[Decision] = []
    for number, tag, fields in parse_lines(text):
        try:
            match tag:
                case "plan":
                    header = fields
                case "pinned":
                    pinned.append(str(fields["tensor"]))
                case "group":
                    groups.append((fields, [], []))
                case "exchange":
                    scope = str(fields.get("scope", ""))
                    groups[-1][2].append(Exchange(str(fields["tensor"]), as_ints(fields["pieces"]), scope))
                case "layer":
                    groups[-1][1].append(Layer(str(fields["name"]), as_names(fields["ops"]), str(fields["output"])))
                case "run" | "view" | "concat" | "copy" | "redistribute" | "split":
                    steps.append(_step(tag, fields))
                case "decision":
                    decisions.append(Decision(str(fields["subject"]), str(fields["verdict"]), str(fields["reason"])))
                case _:
                    raise TextError(
                        who=f"line {number}", needs="plan, group, layer, exchange, pinned, a step or decision", has=tag
                    )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise TextError(who=f"line {number}", needs=f"a complete {tag} line", has=repr(error)) from error
    try:
        return Plan(
            str(header["name"]),
            str(header["level"]),
            str(header["graph_hash"]),
            str(header["chip_hash"]),
            as_int(header["batch_per_cluster"]),
            tuple(_group(fields, tuple(layers), tuple(exchanges)) for fields, layers, exchanges in groups),
            tuple(steps),
            tuple(decisions),
            tuple(pinned),
        )
    except (KeyError, TypeError) as error:
        raise TextError(who="text", needs="a complete plan line first", has=repr(error)) from error


def _group(fields: Fields, layers: tuple[Layer, ...], exchanges: tuple[Exchange, ...]) -> Group:
    split, kernel = Split(_cuts(fields["cuts"])), str(fields.get("kernel", ""))
    return Group(str(fields["name"]), layers, split, exchanges, kernel)


def _cuts(value: Json) -> tuple[tuple[int, tuple[int, ...]], ...]:
    pairs = [as_list(item) for item in as_list(value)]
    return tuple((as_int(axis), as_ints(points)) for axis, points in pairs)


def _step(kind: str, fields: Fields) -> Step:
    box = tuple((as_int(low), as_int(high)) for low, high in (as_list(pair) for pair in as_list(fields["box"])))
    binding = Binding(as_ints(fields["pieces"]), as_ints(fields["cores"]))
    exports = tuple((str(name), str(scope)) for name, scope in (as_names(item) for item in _items(fields, "exports")))
    group, instance, scope = str(fields["group"]), as_int(fields["instance"]), str(fields["scope"])
    return Step(kind, group, instance, box, scope, binding, str(fields.get("tensor", "")), exports)


def _items(fields: Fields, name: str) -> list[Json]:
    return as_list(fields[name]) if name in fields else []
