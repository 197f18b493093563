"""The plan: groups of layers, their instances and order, core binding and memory scope, and the decisions behind them.

    group --split--> instances --order--> run steps, with copies between them where a reader wants its data elsewhere

A plan says what runs where and in which order; it knows no addresses and no instructions. The plan of level O0 (one
kernel per layer, every output in DDR) is a plan like any other. `partitioner.tiling.core_regions` computes the boxes of
an instance on each core, `partitioner.memory.memory_plan` decides whether everything finds room.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.steps import Step, format_step, parse_step
from partitioner.ir.text import Fields, Json, TextError, as_int, as_ints, as_list, as_names, format_line, parse_lines


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
    """An exchange inside an instance: the cores compute disjoint `pieces` (counts for each axis) of a layer's output
    and then fetch from each other what their next layers read; for other layers, a core computes all that it needs,
    overlaps included. If `instances` is not empty, the exchange holds only for these: instances of other sizes are
    spread in other ways."""

    tensor: str
    pieces: tuple[int, ...]
    instances: tuple[int, ...] = ()

    def holds_for(self, instance: int) -> bool:
        return not self.instances or instance in self.instances


@dataclass(frozen=True, slots=True)
class Spill:
    """A spill inside an instance: the cores compute disjoint `pieces` as in an exchange, but none keeps its own; all
    leave them in a shared memory, `scope`, and read from there."""

    tensor: str
    pieces: tuple[int, ...]
    scope: str

    def holds_for(self, _instance: int) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that become one kernel per instance, in execution order; `split` cuts the output of the last one. Values
    among `exchanges` are computed in disjoint pieces, each once.

    `kernel` names the kernel that computes them where the target offers kernels of whole groups (the text of a
    `partitioner.ir.kernels.Kernel`); it is empty where cores compute them tile by tile, and for views."""

    name: str
    layers: tuple[Layer, ...]
    split: Split = Split()
    exchanges: tuple[Exchange | Spill, ...] = ()
    kernel: str = ""

    @property
    def output(self) -> str:
        return self.layers[-1].output

    @property
    def spills(self) -> tuple[Spill, ...]:
        """Members of `exchanges` that no core keeps."""
        return tuple(exchange for exchange in self.exchanges if isinstance(exchange, Spill))

    def exchanges_of(self, instance: int) -> tuple[Exchange | Spill, ...]:
        """Members of `exchanges` that hold for an instance."""
        return tuple(exchange for exchange in self.exchanges if exchange.holds_for(instance))

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


@dataclass(frozen=True)
class Plan:
    """The steps that each cluster runs, in order, with their groups."""

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
            what = (("tensor", exchange.tensor), ("pieces", exchange.pieces))
            lines.append("    " + format_line("exchange", *what, *_where(exchange)))
    lines += ["  " + format_step(step) for step in plan.steps]
    for decision in plan.decisions:
        fields_of = (("subject", decision.subject), ("verdict", decision.verdict), ("reason", decision.reason))
        lines.append("  " + format_line("decision", *fields_of))
    return "\n".join(lines) + "\n"


def _where(exchange: Exchange | Spill) -> tuple[tuple[str, object], ...]:
    if isinstance(exchange, Spill):
        return (("scope", exchange.scope),)
    return (("instances", exchange.instances),) if exchange.instances else ()


def parse_plan(text: str) -> Plan:
    """The converse of `str(plan)`. Raises TextError naming the line."""
    header: Fields = {}
    pinned: list[str] = []
    groups: list[tuple[Fields, list[Layer], list[Exchange | Spill]]] = []
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
                    groups[-1][2].append(_exchange(fields))
                case "layer":
                    groups[-1][1].append(Layer(str(fields["name"]), as_names(fields["ops"]), str(fields["output"])))
                case "run" | "view" | "concat" | "copy" | "redistribute" | "split":
                    steps.append(parse_step(tag, fields))
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


def _group(fields: Fields, layers: tuple[Layer, ...], exchanges: tuple[Exchange | Spill, ...]) -> Group:
    split, kernel = Split(_cuts(fields["cuts"])), str(fields.get("kernel", ""))
    return Group(str(fields["name"]), layers, split, exchanges, kernel)


def _cuts(value: Json) -> tuple[tuple[int, tuple[int, ...]], ...]:
    pairs = [as_list(item) for item in as_list(value)]
    return tuple((as_int(axis), as_ints(points)) for axis, points in pairs)


def _exchange(fields: Fields) -> Exchange | Spill:
    tensor, pieces = str(fields["tensor"]), as_ints(fields["pieces"])
    if "scope" in fields:
        return Spill(tensor, pieces, str(fields["scope"]))
    return Exchange(tensor, pieces, as_ints(fields["instances"]) if "instances" in fields else ())
