"""Level O2, put together: bindings, local scopes, staging scopes, moves; mended where the layout refuses.

graph --layers--> bindings --> values in the cores' memories --> values in the staging memory --> steps --> Plan

Layers are bound one by one; then layers that find each other's values in place move to other cores together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hw_models.errors import reason_text
from hw_models.infeasible import HeldRole, Infeasible, LayerSubject, Subject, ValueSubject
from partitioner.context.plan_context import PlanContext
from partitioner.ir.plan import Plan
from partitioner.ir.regions import box_size, common, full_box
from partitioner.ir.steps import MoveStep, RunStep, Step, ViewStep
from partitioner.ir.value_lifetimes import WaitingValue, activations, own_names
from partitioner.memory.memory_plan import fit_layout
from partitioner.planners.core_assignment import assign
from partitioner.planners.core_binding import Binder, LayerBinding
from partitioner.planners.levels import O2
from partitioner.planners.local_scopes import LocalScopes, ScopeMove
from partitioner.planners.o0 import layer_plan, view_step, views_alone
from partitioner.planners.o1 import Staging, runs_of
from partitioner.planners.weight_pinning import with_pins
from partitioner.tiling.core_partition import TileCycles, tile_cycles
from partitioner.tiling.staging_traffic import StagedBytes


def renumbered(binder: Binder, bound: Mapping[int, LayerBinding]) -> dict[int, LayerBinding]:
    """The bindings with the cores of each run of layers exchanged wherever that saves cycles, the last run first."""
    found = dict(bound)
    values = [
        value
        for value in binder.values.values()
        if value.made in bound and binder.may_stay(value, bound[value.made].boxes)
    ]
    for run in _runs(binder, found, values):
        crossing = [value for value in values if len({layer in run for layer in (value.made, *value.readers)}) > 1]
        if not crossing:
            continue
        moved = {**found, **_on_cores(found, run, assign(_affinity(binder, found, run, crossing)))}
        if _saved(binder, moved, crossing) > _saved(binder, found, crossing):
            found = moved
    return found


def _runs(binder: Binder, bound: Mapping[int, LayerBinding], values: Iterable[WaitingValue]) -> list[frozenset[int]]:
    """Runs of layers, each of which finds a value of another in place, or whose value is so found; the last layers
    first."""
    runs = {layer: {layer} for layer in bound}
    for value in values:
        boxes = bound[value.made].boxes
        for reader, _, need in binder.needs(value, bound):
            if runs[reader] is not runs[value.made] and not binder.transfers.moved(value.name, boxes, need):
                runs[value.made] |= runs[reader]
                for layer in runs[reader]:
                    runs[layer] = runs[value.made]
    return sorted({frozenset(run) for run in runs.values()}, key=max, reverse=True)


def _affinity(
    binder: Binder, bound: Mapping[int, LayerBinding], run: frozenset[int], values: Iterable[WaitingValue]
) -> list[list[int]]:
    """Elements that a piece would find in place, by the core that it is on now and the core to which it may go."""
    cores = binder.ctx.chip.cores_per_cluster
    table = [[0] * cores for _ in range(cores)]
    for value in values:
        for reader, _, need in binder.needs(value, bound):
            if (value.made in run) == (reader in run):
                continue
            for maker, held in bound[value.made].boxes.items():
                for taker, wanted in need.items():
                    own, other = (maker, taker) if value.made in run else (taker, maker)
                    table[own][other] += box_size(common(held, wanted))
    return table


def _on_cores(
    bound: Mapping[int, LayerBinding], run: frozenset[int], cores: tuple[int, ...]
) -> dict[int, LayerBinding]:
    """Bindings of the layers of a run, with the pieces of core `i` on core `cores[i]`."""
    return {
        layer: LayerBinding(at.pieces, {cores[core]: box for core, box in at.boxes.items()}, at.cycles)
        for layer, at in bound.items()
        if layer in run
    }


def _saved(binder: Binder, bound: Mapping[int, LayerBinding], values: Iterable[WaitingValue]) -> float:
    return sum(binder.closeness(value, bound).cycles for value in values)


MENDS = 8
"""Number of times that a plan is laid out again without the values that found no room, before nothing is kept in the
cores' memories."""

RESERVE_DIVISOR = 8
"""Divisor of a core's memory: the part that a value must leave free."""


def in_cores(ctx: PlanContext) -> Plan:
    """Plan of level O2. Where not even O0 can be laid out, lowering the plan reports it."""
    return kept_in_cores(ctx, O2.name)


def kept_in_cores(ctx: PlanContext, level: str, cycles_of: TileCycles = tile_cycles) -> Plan:
    """Plan as at O2 under another level's name, with another count of a core's cycles for its piece of a layer."""
    return views_alone(ctx, level) or _Level(ctx, level, cycles_of).plan()


@dataclass(frozen=True)
class _Level:
    """State that all attempts at a plan share."""

    ctx: PlanContext
    level: str
    cycles_of: TileCycles

    def plan(self) -> Plan:
        binder = Binder(
            self.ctx, self.ctx.roles.local_bytes - self.ctx.roles.local_bytes // RESERVE_DIVISOR, self.cycles_of
        )
        bound = renumbered(binder, binder.bind())
        not_local: dict[str, str] = {}
        not_staged: dict[str, str] = {}
        chosen = self._choose(binder, bound, not_local)
        if chosen.reasons:  # bindings for values that found no room are useless
            not_local = dict(chosen.reasons)
            bound = renumbered(binder, binder.rebind(bound, frozenset(not_local)))
            chosen = self._choose(binder, bound, not_local)
        chosen.mend()
        for attempt in range(MENDS + 1):
            staged = self._staged(chosen, not_staged)
            plan = self._assembled(chosen, staged)
            layout = fit_layout(plan, self.ctx)
            if not isinstance(layout, Infeasible):
                break
            blamed = self._blamed(layout.subject, chosen, staged) if attempt < MENDS else tuple(chosen.kept)
            if not blamed:
                break
            for name in blamed:
                (not_local if name in chosen.kept else not_staged)[name] = reason_text(layout)
            chosen = self._choose(binder, bound, not_local)
            chosen.mend()
        return plan if isinstance(layout, Infeasible) else with_pins(self.ctx, plan, layout)

    def _choose(self, binder: Binder, bound: Mapping[int, LayerBinding], banned: Mapping[str, str]) -> LocalScopes:
        shared = 0 if not self.ctx.roles.has_staging else self.ctx.chip.memory(self.ctx.roles.staging).size_bytes
        scopes = LocalScopes(self.ctx, binder, bound, shared)
        scopes.choose(banned)
        return scopes

    def _staged(self, chosen: LocalScopes, banned: Mapping[str, str]) -> Staging | None:
        """Choice of values that are not local and wait in the staging memory; None on a chip without one."""
        if not self.ctx.roles.has_staging:
            return None
        slots = chosen.slots()
        names = own_names(self.ctx.graph, self.ctx.layers)
        own = {
            index: tuple(bound.boxes.values())
            for index, bound in chosen.bound.items()
            if any(
                names.get(name, name) in chosen.kept
                for name in (*activations(self.ctx.graph, self.ctx.layers[index]), self.ctx.layers[index].output)
            )
        }
        staged = Staging(
            self.ctx,
            runs_of(self._one_each(chosen, {})),
            StagedBytes(self.ctx),
            [index if isinstance(index, int) else None for index in slots],
            {slot: move.buffer_bytes for slot, move in enumerate(slots) if isinstance(move, ScopeMove)},
            frozenset(chosen.kept),
            own,
        )
        values = chosen.binder.values.values()
        staged.choose(v for v in values if not v.leaves and v.name not in chosen.kept and v.name not in banned)
        return staged

    def _one_each(self, chosen: LocalScopes, scopes: Mapping[str, str]) -> list[RunStep | ViewStep]:
        """One step per layer, by index; values not named in `scopes` are in the main memory."""
        names = own_names(self.ctx.graph, self.ctx.layers)
        steps: list[RunStep | ViewStep] = []
        for index, layer in enumerate(self.ctx.layers):
            scope = scopes.get(names.get(layer.output, layer.output), self.ctx.roles.main)
            if index not in chosen.bound:
                steps.append(view_step(self.ctx.graph, layer, scope))
                continue
            box = full_box(self.ctx.graph.by_name[layer.output].shape)
            steps.append(RunStep(layer.name, 0, box, scope, chosen.bound[index].binding))
        return steps

    def _assembled(self, chosen: LocalScopes, staged: Staging | None) -> Plan:
        scopes = dict.fromkeys(chosen.kept, self.ctx.roles.local.memory)
        decisions = [*self.ctx.layer_decisions, *chosen.binder.decisions(chosen.bound), *chosen.decisions()]
        if staged is not None:
            scopes |= dict.fromkeys(staged.kept, self.ctx.roles.staging)
            decisions += staged.decisions()
        moves: dict[int, list[ScopeMove]] = {}
        for move in chosen.moves():
            moves.setdefault(move.reader, []).append(move)
        steps: list[Step] = []
        local = self.ctx.roles.local.memory
        for index, step in enumerate(self._one_each(chosen, scopes)):
            if isinstance(step, RunStep):
                for move in moves.get(index, ()):
                    box = full_box(self.ctx.graph.by_name[move.name].shape)
                    steps.append(MoveStep("redistribute", step.group, 0, box, local, step.binding, move.name))
            steps.append(step)
        return layer_plan(self.ctx, self.level, steps, decisions)

    def _blamed(self, subject: Subject, chosen: LocalScopes, staged: Staging | None) -> tuple[str, ...]:
        """The value that goes because something found no room: that value itself, or the least useful one that is
        present when the layer without room runs; local ones first."""
        kept = {name: close.value for name, close in chosen.kept.items()}
        shared = dict(staged.kept) if staged is not None else {}
        match subject:
            case ValueSubject(name, HeldRole.VALUE | HeldRole.BUFFER) if name in kept or name in shared:
                return (name,)
            case LayerSubject(name):
                index = next(index for index, layer in enumerate(self.ctx.layers) if layer.name == name)
                for values in (kept, shared):
                    there = [v for v in values.values() if v.made <= index <= v.last]
                    if there:
                        return (min(there, key=lambda v: (len(v.readers) / (v.last - v.made + 1), v.name)).name,)
        return tuple(kept) or tuple(shared)
