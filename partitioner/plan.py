"""The plan: groups of layers, their instances and order, core binding and memory scope, and the decisions behind them.

A plan says what runs where and in which order; it knows no addresses and no instructions. The plan of level O0 (one
kernel a layer, every output in DDR) is a plan like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hw_models.chip import Chip
from hw_models.errors import PlanError
from partitioner.decisions import Decision
from partitioner.graph import Graph
from partitioner.layers import Layer
from partitioner.regions import Box
from partitioner.text import Fields, Json, TextError, as_int, as_ints, as_list, as_names, format_line, parse_lines

__all__ = ["Binding", "Group", "Plan", "Split", "Step", "parse_plan", "verify_plan"]


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
class Group:
    """Layers that become one kernel an instance."""

    name: str
    layers: tuple[Layer, ...]
    split: Split = Split()


@dataclass(frozen=True, slots=True)
class Binding:
    """Pieces of each output axis over cores; piece i (row-major) runs on `cores[i]`."""

    pieces: tuple[int, ...]
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`run` executes an instance; `view` gives the same bytes another name. `scope` is the memory of the output."""

    kind: str
    group: str
    instance: int
    box: Box
    scope: str
    binding: Binding


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

    @cached_property
    def group_by_name(self) -> dict[str, Group]:
        return {group.name: group for group in self.groups}

    def __str__(self) -> str:
        return format_plan(self)


def verify_plan(plan: Plan, graph: Graph, chip: Chip) -> None:
    """Raises PlanError unless each operator is in one layer of one group, each instance runs once and after what it
    reads, bindings name cores that exist, and scopes are memories of the chip."""
    covered = [name for group in plan.groups for layer in group.layers for name in layer.ops]
    if sorted(covered) != sorted(op.name for op in graph.ops):
        odd = set(covered) ^ {op.name for op in graph.ops} or {n for n in covered if covered.count(n) > 1}
        raise PlanError(
            who=f"plan {plan.name}", needs="every operator once", has=f"not once: {', '.join(sorted(odd)[:8])}"
        )
    wanted = sorted((group.name, i) for group in plan.groups for i in range(group.split.instances))
    if sorted((step.group, step.instance) for step in plan.steps) != wanted:
        raise PlanError(who=f"plan {plan.name}", needs="every instance of every group once")
    memories = {memory.name for memory in chip.memories}
    ready = set(graph.inputs) | {t.name for t in graph.tensors if t.constant}
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        if step.scope not in memories:
            raise PlanError(who=f"step {step.group}", needs=f"a memory of {chip.name}", has=step.scope)
        if any(core < 0 or core >= chip.cores_per_cluster for core in step.binding.cores):
            raise PlanError(
                who=f"step {step.group}", needs=f"cores below {chip.cores_per_cluster}", has=str(step.binding.cores)
            )
        for layer in group.layers:
            if late := [name for name in layer.inputs(graph) if name not in ready]:
                raise PlanError(who=f"step {step.group}", needs="inputs computed before", has=", ".join(late))
            ready.update(output for name in layer.ops for output in graph.op_by_name[name].outputs)


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
    for group in plan.groups:
        lines.append("  " + format_line("group", ("name", group.name), ("cuts", group.split.cuts)))
        for layer in group.layers:
            lines.append(
                "    " + format_line("layer", ("name", layer.name), ("ops", layer.ops), ("output", layer.output))
            )
    for step in plan.steps:
        fields = (("group", step.group), ("instance", step.instance), ("box", step.box), ("scope", step.scope))
        binding = (("pieces", step.binding.pieces), ("cores", step.binding.cores))
        lines.append("  " + format_line(step.kind, *fields, *binding))
    for decision in plan.decisions:
        fields_of = (("subject", decision.subject), ("verdict", decision.verdict), ("reason", decision.reason))
        lines.append("  " + format_line("decision", *fields_of))
    return "\n".join(lines) + "\n"


def parse_plan(text: str) -> Plan:
    """The converse of `str(plan)`. Raises TextError naming the line."""
    header: Fields = {}
    groups: list[tuple[Fields, list[Layer]]] = []
    steps: list[Step] = []
    decisions: list[Decision] = []
    for number, tag, fields in parse_lines(text):
        try:
            match tag:
                case "plan":
                    header = fields
                case "group":
                    groups.append((fields, []))
                case "layer":
                    groups[-1][1].append(Layer(str(fields["name"]), as_names(fields["ops"]), str(fields["output"])))
                case "run" | "view":
                    steps.append(_step(tag, fields))
                case "decision":
                    decisions.append(Decision(str(fields["subject"]), str(fields["verdict"]), str(fields["reason"])))
                case _:
                    raise TextError(who=f"line {number}", needs="plan, group, layer, run, view or decision", has=tag)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise TextError(who=f"line {number}", needs=f"a complete {tag} line", has=repr(error)) from error
    try:
        return Plan(
            str(header["name"]),
            str(header["level"]),
            str(header["graph_hash"]),
            str(header["chip_hash"]),
            as_int(header["batch_per_cluster"]),
            tuple(Group(str(fields["name"]), tuple(layers), Split(_cuts(fields["cuts"]))) for fields, layers in groups),
            tuple(steps),
            tuple(decisions),
        )
    except (KeyError, TypeError) as error:
        raise TextError(who="text", needs="a complete plan line first", has=repr(error)) from error


def _cuts(value: Json) -> tuple[tuple[int, tuple[int, ...]], ...]:
    pairs = [as_list(item) for item in as_list(value)]
    return tuple((as_int(axis), as_ints(points)) for axis, points in pairs)


def _step(kind: str, fields: Fields) -> Step:
    box = tuple((as_int(low), as_int(high)) for low, high in (as_list(pair) for pair in as_list(fields["box"])))
    binding = Binding(as_ints(fields["pieces"]), as_ints(fields["cores"]))
    return Step(kind, str(fields["group"]), as_int(fields["instance"]), box, str(fields["scope"]), binding)
