"""An explanation for a reader, and as JSON: a summary, a row per group, the order of instances, the decisions.

The text is plain without a terminal. The keys of the JSON form are documented in docs/reference/json.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsa_sched.analysis.explanation_data import Explanation, GroupFacts, MeasuredRun
from dsa_sched.analysis.what_binds import BindingEngine, what_binds
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.decisions import decision_lines
from dsa_sched.report.listing import output_console, print_table
from dsa_sched.report.timed_run import cause_text
from hw_models.chip import Chip
from hw_models.errors import size_text
from partitioner.cost.roofline import Floor, binding_floor, items_per_second
from partitioner.ir.plan import Exchange, Spill
from partitioner.ir.regions import Box
from partitioner.ir.steps import MoveStep, RunStep

if TYPE_CHECKING:
    from dsa_sched.analysis.group_detail import Constant, GroupDetail, LayerDetail, Neighbour
    from dsa_sched.analysis.group_footprint import GroupFootprint

FORMAT = "dsa-sched-explain/1"

SLOWEST = 5
"""Number of groups that are named as taking longest."""


def print_explanation(explanation: Explanation, chip: Chip, console: Console | None = None, full: bool = False) -> None:
    """Print the explanation; with `full`, each decision by itself."""
    console = console or output_console()
    console.print(Text(_title(explanation), "bold"))
    _say(console, _summary(explanation, chip))
    console.print()
    print_table(console, _groups(explanation))
    console.print()
    if explanation.measured is None:
        print_table(console, _bounds(explanation))
    else:
        print_table(console, _causes(explanation, explanation.measured))
    console.print()
    _say(console, [_order(explanation)])
    console.print()
    _say(console, ["decisions" if full else "decisions (--full shows all of each kind)"])
    _say(console, decision_lines(explanation.decisions, full))


def _say(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _title(found: Explanation) -> str:
    return f"{found.model} on {found.chip}, {found.level}, batch {found.batch_per_cluster} per cluster"


def _summary(found: Explanation, chip: Chip) -> Iterator[str]:
    moves = sum(isinstance(step, MoveStep) for step in found.order)
    moved = f" and {_count(moves, 'move')} into cores' memories" if moves else ""
    yield (
        f"{_count(found.operators, 'operator')} in {_count(len(found.groups), 'group')}, cut into "
        f"{_count(found.instances, 'instance')}: {_count(found.kernels, 'kernel')}{moved}"
    )
    yield "outputs of layers lie in: " + ", ".join(f"{memory} {count}" for memory, count in found.tensors.items())
    yield from _room(found)
    yield "moved: " + _ways(found.moved_bytes)
    times = found.main_bytes / found.compulsory_bytes if found.compulsory_bytes else 0.0
    yield (
        f"main memory: {size_text(found.main_bytes)}, {times:.2f} times what inputs, constants and outputs need once "
        f"({size_text(found.compulsory_bytes)}); {size_text(found.redundant_bytes)} are read again"
    )
    yield f"computed again where instances or cores overlap: {found.recompute_share:.2%} of all multiply-accumulates"
    if found.measured is not None:
        yield from _measured(found, found.measured)
    floor, plan = binding_floor(found.network_floors), binding_floor(found.plan_floors)
    most = f"{_rate(found, chip, floor.cycles)} at most on {_count(chip.clusters, 'cluster')}"
    yield f"floor of the network: {_floors(found.network_floors)}; {most}"
    yield f"floor of this plan: {_floors(found.plan_floors)}; {_rate(found, chip, plan.cycles)} at most"
    yield (
        f"  {plan.name} has the most work, {plan.cycles / floor.cycles:.2f} times the network's floor; "
        f"{_rate(found, chip, found.phase_cycles)} where no group overlaps another, "
        f"{_rate(found, chip, found.serial_cycles)} where nothing overlaps"
        + ("; all of these are estimates" if found.measured is None else "")
    )
    if found.measured is None:
        slowest = sorted(found.groups, key=lambda group: -group.binding.cycles)[:SLOWEST]
        yield "slowest groups, by these estimates: " + ", ".join(
            f"{group.name} ({group.binding.name}, {group.binding.cycles / found.phase_cycles:.1%})" for group in slowest
        )


def _measured(found: Explanation, run: MeasuredRun) -> Iterator[str]:
    """Lines with the times of the machine code by the cycle model."""
    yield (
        f"time: {run.cycles:,.0f} cycles by the cycle model, {run.launch_cycles:,.0f} of them the launch; "
        f"{run.items_per_second:,.0f} items/s"
    )
    yield f"  the critical path after the launch: {_shares_of(run.causes, run.work_cycles) or 'nothing'}"
    floor = binding_floor(found.network_floors)
    if floor.cycles:
        times = f"{run.work_cycles / floor.cycles:.2f} times the floor of the network"
        yield f"  {run.work_cycles:,.0f} cycles after the launch: {times}, which is for {floor.name}"
    slowest = sorted(found.groups, key=lambda group: -run.group(group.name).cycles)[:SLOWEST]
    parts = ((group.name, run.group(group.name)) for group in slowest)
    yield "slowest groups: " + ", ".join(
        f"{name} ({cause_text(part.bound_by)}, {part.cycles / max(1.0, run.work_cycles):.1%})"
        for name, part in parts
        if part.cycles
    )


def _shares_of(cycles: Mapping[str, float], whole: float) -> str:
    """Text such as `dma 61.0%, matrix 20.3%`; shares that would be 0.0% are left out."""
    shares = {cause_text(name): f"{spent / max(1.0, whole):.1%}" for name, spent in cycles.items()}
    return ", ".join(f"{name} {share}" for name, share in shares.items() if share != "0.0%")


def _room(found: Explanation) -> Iterator[str]:
    """How full the memories get: values that stay there, and the tile buffers next to them where there are fewest."""
    fullest = max(found.groups, key=lambda group: group.local.total_bytes, default=None)
    for number, (memory, peak) in enumerate(found.peak_bytes.items()):
        line = f"{memory}: values that stay take {size_text(peak)} of {size_text(found.capacity_bytes[memory])} at most"
        if number == 0 and fullest is not None:
            use = fullest.local
            line += (
                f"; the fullest core, in layer {use.layer} of group {fullest.name}, has {size_text(use.values_bytes)} "
                f"of its group's and {size_text(use.tiles_bytes)} of tile buffers, of {size_text(use.tile_room_bytes)} "
                "that were free"
            )
        yield line
    for memory in fullest.accumulator_bytes if fullest is not None else ():
        most = max(found.groups, key=lambda group: group.accumulator_bytes[memory])
        yield (
            f"{memory}: tile buffers take {size_text(most.accumulator_bytes[memory])} of "
            f"{size_text(found.capacity_bytes[memory])} at most, in group {most.name}"
        )


def _ways(moved: Mapping[str, int]) -> str:
    return ", ".join(f"{way} {size_text(size)}" for way, size in moved.items()) or "nothing"


def _floors(floors: Iterable[Floor]) -> str:
    ordered = sorted(floors, key=lambda floor: -floor.cycles)
    return ", ".join(f"{floor.name} {floor.cycles:,.0f}" for floor in ordered) + " cycles"


def _rate(found: Explanation, chip: Chip, cycles: float) -> str:
    return f"{items_per_second(chip, cycles, found.batch_per_cluster):,.0f} items/s"


def _groups(found: Explanation) -> Table:
    """One row per group, in the order in which they first run."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading, width in (("", 4), ("group", 28), ("layers", 44)):
        table.add_column(heading, overflow="ellipsis", max_width=width)
    for heading in ("cut", "cores", "outputs in"):
        table.add_column(heading)
    local, *_ = found.peak_bytes or {"local": 0}
    ways = tuple(found.moved_bytes)
    times = ("cycles", "time") if found.measured is not None else ()
    for heading in (f"{local}\nKiB", *(f"{way}\nKiB" for way in ways), "again", *times):
        table.add_column(heading, justify="right")
    if found.measured is not None:
        table.add_column("bound by")
    table.add_column("estimate\ncycles", justify="right")
    if found.measured is None:
        table.add_column("time", justify="right")
    table.add_column("most work of" if found.measured is not None else "bound by")
    for group in found.groups:
        table.add_row(*_group_row(group, ways, found))
    return table


def _group_row(group: GroupFacts, ways: tuple[str, ...], found: Explanation) -> tuple[Text | str, ...]:
    count = len(group.layers)
    layers = "+".join(group.operators) if count == 1 else f"{group.layers[0]}..{group.layers[-1]} ({count})"
    cores = " or ".join("x".join(map(str, pieces)) for pieces in group.pieces)
    return (
        group.letter,
        Text(group.name),
        Text(layers),
        _cuts(group),
        cores,
        ", ".join(f"{memory} {count}" if group.instances > 1 else memory for memory, count in group.scopes.items()),
        f"{group.local.total_bytes / 1024:,.0f}",
        *(f"{group.moved_bytes.get(way, 0) / 1024:,.0f}" for way in ways),
        f"{group.recompute_share:.1%}",
        *_group_times(group, found),
        group.binding.name,
    )


def _group_times(group: GroupFacts, found: Explanation) -> tuple[str, ...]:
    """Times by the cycle model and what they wait for, then the estimate; the share of the estimates without them."""
    estimate = f"{group.binding.cycles:,.0f}"
    if found.measured is None:
        return estimate, f"{group.binding.cycles / found.phase_cycles:.1%}"
    part = found.measured.group(group.name)
    share = part.cycles / max(1.0, found.measured.work_cycles)
    return f"{part.cycles:,.0f}", f"{share:.1%}", cause_text(part.bound_by) or "-", estimate


def _causes(found: Explanation, run: MeasuredRun) -> Table:
    """Table of what binds by the cycle model: causes on the critical path, and the groups where they take longest."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("binds")
    for heading in ("groups", "cycles", "time"):
        table.add_column(heading, justify="right")
    table.add_column("longest in")
    for cause, cycles in run.causes.items():
        parts = {group.name: run.group(group.name).causes.get(cause, 0.0) for group in found.groups}
        touched = sorted((name for name in parts if parts[name]), key=lambda name: -parts[name])
        share = f"{cycles / max(1.0, run.work_cycles):.1%}"
        named = ", ".join(f"{name} {parts[name]:,.0f}" for name in touched[:3])
        table.add_row(cause_text(cause), str(len(touched)), f"{cycles:,.0f}", share, Text(named))
    return table


def _bounds(found: Explanation) -> Table:
    """How many groups each engine or memory binds, for how long, and for how much of that time the rest has work."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("binds")
    for heading in ("groups", "cycles", "time"):
        table.add_column(heading, justify="right")
    table.add_column("longest")
    table.add_column("meanwhile at work")
    for bound in what_binds(found.groups):
        table.add_row(*_bound_row(bound, found.phase_cycles))
    return table


def _bound_row(bound: BindingEngine, total_cycles: float) -> tuple[Text | str, ...]:
    return (
        bound.name,
        str(len(bound.groups)),
        f"{bound.cycles:,.0f}",
        f"{bound.cycles / total_cycles:.1%}",
        Text(bound.groups[0]),
        ", ".join(f"{work.name} {work.cycles / bound.cycles:.1%}" for work in bound.others) or "nothing",
    )


def _cuts(group: GroupFacts) -> str:
    """`8 of axis 0`, or a dash for a group that is one instance."""
    return " x ".join(f"{len(points) - 1} of axis {axis}" for axis, points in group.cuts) or "-"


def _order(found: Explanation) -> str:
    if all(group.instances == 1 for group in found.groups):
        return f"order: the {len(found.groups)} groups as listed, one instance each"
    letters = {group.name: group.letter for group in found.groups}
    runs = (f"{letters[step.group]}{step.instance}" for step in found.order if isinstance(step, RunStep))
    return "order: " + " ".join(runs)


def print_detail(found: Explanation, detail: GroupDetail, console: Console | None = None) -> None:
    """Print everything about one group."""
    console = console or output_console()
    console.print(Text(_title(found), "bold"))
    console.print()
    _say(console, _facts(found, detail))
    if detail.footprint is not None:
        _say(console, ["", *_footprint(detail.footprint)])
    _say(
        console,
        ["", f"layers, with the part of the output that each core computes in instance {detail.shown_instance}"],
    )
    for layer in detail.layers:
        _say(
            console,
            [
                _layer(layer),
                *_layer_time(found, layer),
                *(f"    core {core}: {_box(box)}" for core, box in layer.boxes),
            ],
        )
    if detail.constants:
        _say(console, ["", "constants"])
        _say(console, map(_constant, detail.constants))
    _say(console, ["", "steps"])
    _say(console, (f"  {position}: {_step(step)}" for position, step in detail.steps))
    _say(console, ["", "neighbours, and why they are not one with this group"])
    _say(console, (line for neighbour in detail.neighbours for line in _neighbour(found, neighbour)))
    console.print()
    _say(console, ["decisions", *decision_lines(detail.decisions, full=True)])


def _facts(found: Explanation, detail: GroupDetail) -> Iterator[str]:
    group, use = detail.facts, detail.facts.local
    yield (
        f"group {group.name} ({group.letter} in the order of instances): {_count(len(group.layers), 'layer')}, "
        f"{_count(group.instances, 'instance')}"
    )
    for axis, points in group.cuts:
        yield f"  cut along axis {axis} at {', '.join(map(str, points))}"
    yield f"  reads {', '.join(detail.reads) or 'nothing'}; gives {', '.join(detail.writes)}"
    yield "  divided among cores as " + " or ".join("x".join(map(str, pieces)) for pieces in group.pieces)
    for exchange in detail.exchanges:
        then = (
            f"left in {exchange.scope}, where its readers find it"
            if isinstance(exchange, Spill)
            else "exchanged between cores"
        )
        where = "" if isinstance(exchange, Spill) else _instances_text(exchange)
        pieces = "x".join(map(str, exchange.pieces))
        yield f"  {exchange.tensor} is computed once, in pieces {pieces}, and {then}{where}"
    yield (
        f"  a core's memory holds {size_text(use.values_bytes)} of its values and {size_text(use.tiles_bytes)} of tile "
        f"buffers in layer {use.layer}; {size_text(use.tile_room_bytes)} were free for buffers"
    )
    yield "  moved: " + _ways(group.moved_bytes)
    yield f"  {group.macs:,} multiply-accumulates, {group.recompute_share:.2%} of them again"
    for floor in sorted(group.floors, key=lambda floor: -floor.cycles):
        mark = ", the largest" if floor.name == group.binding.name else ""
        yield f"  at least {floor.cycles:,.0f} cycles of {floor.name}{mark} ({floor.reason})"
    if found.measured is None:
        yield f"  {group.binding.cycles / found.phase_cycles:.1%} of the time where no group overlaps another"
        return
    part, whole = found.measured.group(group.name), found.measured.work_cycles
    yield (
        f"  {part.cycles:,.0f} cycles of the critical path by the cycle model, {part.cycles / max(1.0, whole):.1%} of "
        f"the run: {_shares_of(part.causes, part.cycles) or 'the path does not touch it'}"
    )


ROOM = {
    False: "which is too much",
    True: "which fits; tile buffers, constants and what several cores hold need room in addition",
}
"""Phrase for whether the values alone have room."""


def _footprint(found: GroupFootprint) -> Iterator[str]:
    """Closed forms, and their values for the group's number of pieces and for one piece fewer."""
    pieces, fewer, room = found.worst.pieces, found.coarser, size_text(found.room_bytes)
    yield f"values of all cores that piece k of f pieces along axis {found.axis} holds at its worst step, {found.layer}"
    yield from (f"  {' or '.join(value.tensors)}: {value.bytes_formula} bytes" for value in found.held)
    yield f"  f = {pieces}: {size_text(found.worst.held_bytes)} in piece {found.worst.piece}, of {room} in all cores"
    yield f"  f = {fewer.pieces}: {size_text(fewer.held_bytes)}, {ROOM[fewer.held_bytes <= found.room_bytes]}"
    yield f"all pieces read {found.input_formula} bytes from outside the group"
    for layer, formula in found.again_formulas.items():
        yield f"  {layer} computes {formula} multiply-accumulates again"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("s" if number != 1 else "")


def _layer(layer: LayerDetail) -> str:
    again = f", {layer.again:.1%} computed again" if layer.again > 0 else ""
    rounds = f", {layer.rounds} rounds" if layer.rounds > 1 else ""
    made = f"{layer.output} {list(layer.shape)} in {layer.lies_in}"
    operators = " + ".join(f"{kind} {name}" for kind, name in zip(layer.kinds, layer.operators, strict=True))
    return f"  {operators} -> {made}{rounds}{again}"


def _layer_time(found: Explanation, layer: LayerDetail) -> Iterator[str]:
    """Time of all instances of a layer, where the machine code was timed."""
    if found.measured is not None:
        part = found.measured.layer(layer.name)
        shares = _shares_of(part.causes, part.cycles)
        yield f"    {part.cycles:,.0f} cycles of the critical path" + (f": {shares}" if shares else "")


def _box(box: Box) -> str:
    return "[" + ", ".join(f"{low}:{high}" for low, high in box) + "]"


def _constant(constant: Constant) -> str:
    kept = ", kept in the staging memory" if constant.pinned else ""
    times = "once" if constant.loads == 1 else f"{constant.loads:.3g} times"
    return f"  {constant.name}: {size_text(constant.size_bytes)}, loaded {times}{kept}"


def _step(step: RunStep | MoveStep) -> str:
    if isinstance(step, MoveStep):
        return f"{step.kind} {step.tensor} {_box(step.box)} into {step.scope} for instance {step.instance}"
    rest = "".join(f", {name} to {scope}" for name, scope in step.exports)
    cores = ",".join(map(str, step.binding.cores))
    return f"run instance {step.instance} on cores {cores}: {_box(step.box)} to {step.scope}{rest}"


def _neighbour(found: Explanation, neighbour: Neighbour) -> Iterator[str]:
    way = "makes" if neighbour.side == "before" else "reads"
    yield f"  {neighbour.name} {way} {', '.join(neighbour.values)}"
    if not neighbour.reasons:
        rule = LAYER_LEVELS.get(found.level)
        yield f"    at {found.level} {rule}" if rule else "    no decision names the two together"
    yield from (f"    {decision.verdict}: {decision.reason}" for decision in neighbour.reasons)


LAYER_LEVELS = {
    "O0": "every layer is a group of its own",
    "O1": "every layer is a group of its own",
    "O2": "every layer is a group of its own",
    "streamed": "every layer is a group of its own",
    "astitch": "only memory-bound layers are put together",
}
"""Levels that never ask whether compute-bound layers should be one group."""


def explanation_json(found: Explanation, chip: Chip, detail: GroupDetail | None = None) -> str:
    """The explanation as JSON text, one key per line."""
    floor, plan = binding_floor(found.network_floors), binding_floor(found.plan_floors)
    groups = [{**asdict(group), "bound_by": group.binding.name} for group in found.groups]
    whole = {
        "format": FORMAT,
        **asdict(found),
        "measured": _measured_json(found.measured),
        "instances": found.instances,
        "phase_cycles": found.phase_cycles,
        "bound_by": plan.name,
        "bounds": [asdict(bound) for bound in what_binds(found.groups)],
        "network_items_per_second": items_per_second(chip, floor.cycles, found.batch_per_cluster),
        "plan_items_per_second": items_per_second(chip, plan.cycles, found.batch_per_cluster),
        "groups": groups,
        "order": [_step_json(step) for step in found.order],
    }
    if detail is not None:
        whole["group"] = {
            **asdict(detail),
            "exchanges": [_exchange_json(exchange) for exchange in detail.exchanges],
            "steps": [(position, _step_json(step)) for position, step in detail.steps],
        }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def _measured_json(run: MeasuredRun | None) -> dict[str, object] | None:
    """Times by the cycle model; groups and layers by name, each with what binds it."""
    if run is None:
        return None
    parts = {"groups": run.groups, "layers": run.layers}
    named = {
        kind: [{"name": name, **asdict(part), "bound_by": part.bound_by} for name, part in of.items()]
        for kind, of in parts.items()
    }
    return {**asdict(run), "work_cycles": run.work_cycles, **named}


def _step_json(step: RunStep | MoveStep) -> dict[str, object]:
    """A step with every key that either kind of step has, so that a reader need not ask."""
    where = {"group": step.group, "instance": step.instance, "box": step.box, "scope": step.scope}
    tensor, exports = (step.tensor, ()) if isinstance(step, MoveStep) else ("", step.exports)
    return {"kind": step.kind, **where, "binding": asdict(step.binding), "tensor": tensor, "exports": exports}


def _instances_text(exchange: Exchange) -> str:
    return f" (instances {', '.join(map(str, exchange.instances))})" if exchange.instances else ""


def _exchange_json(exchange: Exchange | Spill) -> dict[str, object]:
    scope, instances = (exchange.scope, ()) if isinstance(exchange, Spill) else ("", exchange.instances)
    return {"tensor": exchange.tensor, "pieces": exchange.pieces, "scope": scope, "instances": instances}


def write_explanation(found: Explanation, chip: Chip, detail: GroupDetail | None, path: Path) -> None:
    """Write the JSON form, whole or not at all. Raises UserError."""
    text = explanation_json(found, chip, detail).encode()
    write_whole(path, lambda stream: stream.write(text))
