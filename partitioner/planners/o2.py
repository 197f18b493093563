"""Level O2, put together: bindings, local scopes, staging scopes, moves; mended where the layout refuses.

graph --layers--> bindings --> values in the cores' memories --> values in the staging memory --> steps --> Plan
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw_models.chip import Chip
from hw_models.errors import reason_text
from hw_models.infeasible import Infeasible, LayerSubject, Role, Subject, ValueSubject
from hw_models.routes import main_memory, staging_memory
from partitioner.cost.transfer_cost import Transfers
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, group_layers
from partitioner.ir.plan import Plan, Step
from partitioner.ir.regions import full_box
from partitioner.ir.target import PlanTarget
from partitioner.ir.value_lifetimes import activations, own_names
from partitioner.memory.memory_plan import Local, fit_layout, local_part
from partitioner.planners.core_binding import Binder, Bound
from partitioner.planners.local_scopes import LocalScopes, Move
from partitioner.planners.o0 import layer_plan, view_step, views_alone
from partitioner.planners.o1 import Staging
from partitioner.tiling.staging_traffic import StagedBytes
from partitioner.tiling.tiling import Tiler, part_bytes

__all__ = ["in_cores"]

MENDS = 8
"""How often a plan is laid out again without what found no room, before nothing is kept in the cores' memories."""

RESERVE = 8
"""A value may take all of a core's memory but one part in so many."""


def in_cores(graph: Graph, chip: Chip, target: PlanTarget) -> Plan:
    """Level O2. Where not even O0 can be laid out, the plan is one that says so when it is lowered."""
    layers, fused = group_layers(graph, target.can_trail)
    if (plan := views_alone(graph, chip, "O2", layers, fused)) is not None:
        return plan
    local = local_part(layers, graph, chip, target)
    return _Level(graph, chip, target, layers, fused, local, Tiler.of(graph, target, chip)).plan()


@dataclass(frozen=True)
class _Level:
    """What all attempts at a plan share."""

    graph: Graph
    chip: Chip
    target: PlanTarget
    layers: Sequence[Layer]
    fused: Sequence[Decision]
    local: Local
    tiler: Tiler

    @property
    def main(self) -> str:
        return main_memory(self.chip)

    @property
    def staging(self) -> str:
        return staging_memory(self.chip, self.local.memory)

    def plan(self) -> Plan:
        capacity = part_bytes(self.chip, self.local.memory, self.local.part)
        transfers = Transfers(self.graph, self.chip, self.local.memory, self.staging)
        most = capacity - capacity // RESERVE
        binder = Binder(self.graph, self.layers, self.target, self.chip, self.tiler.reads, transfers, most)
        bound = binder.bind()
        not_local: dict[str, str] = {}
        not_staged: dict[str, str] = {}
        chosen = self._choose(binder, bound, not_local)
        if chosen.reasons:  # bindings made for values that found no room serve nothing
            not_local = dict(chosen.reasons)
            bound = binder.rebind(bound, frozenset(not_local))
            chosen = self._choose(binder, bound, not_local)
        chosen.mend()
        for attempt in range(MENDS + 1):
            staged = self._staged(chosen, not_staged)
            plan = self._assembled(chosen, staged)
            layout = fit_layout(plan, self.graph, self.chip, self.target, self.tiler)
            if not isinstance(layout, Infeasible):
                break
            blamed = self._blamed(layout.subject, chosen, staged) if attempt < MENDS else tuple(chosen.kept)
            if not blamed:
                break
            for name in blamed:
                (not_local if name in chosen.kept else not_staged)[name] = reason_text(layout)
            chosen = self._choose(binder, bound, not_local)
            chosen.mend()
        return plan

    def _choose(self, binder: Binder, bound: Mapping[int, Bound], banned: Mapping[str, str]) -> LocalScopes:
        shared = 0 if self.staging == self.main else self.chip.memory(self.staging).size_bytes
        scopes = LocalScopes(self.graph, self.chip, self.layers, binder, bound, self.tiler, self.local, shared)
        scopes.choose(banned)
        return scopes

    def _staged(self, chosen: LocalScopes, banned: Mapping[str, str]) -> Staging | None:
        """What of the values that are not local waits in the staging memory; None on a chip without one."""
        if self.staging == self.main:
            return None
        slots = chosen.slots()
        names = own_names(self.graph, self.layers)
        own = {
            index: tuple(bound.boxes.values())
            for index, bound in chosen.bound.items()
            if any(
                names.get(name, name) in chosen.kept
                for name in (*activations(self.graph, self.layers[index]), self.layers[index].output)
            )
        }
        staged = Staging(
            self.graph,
            self.chip,
            self.layers,
            self._runs(chosen, {}),
            StagedBytes(self.graph, self.chip, self.target, self.tiler.reads, self.staging),
            self.main,
            [index if isinstance(index, int) else None for index in slots],
            {slot: move.buffer_bytes for slot, move in enumerate(slots) if isinstance(move, Move)},
            frozenset(chosen.kept),
            own,
        )
        values = chosen.binder.values.values()
        staged.choose(v for v in values if not v.leaves and v.name not in chosen.kept and v.name not in banned)
        return staged

    def _runs(self, chosen: LocalScopes, scopes: Mapping[str, str]) -> list[Step]:
        """One step a layer, by index; values are in the main memory where `scopes` does not say otherwise."""
        names = own_names(self.graph, self.layers)
        steps = []
        for index, layer in enumerate(self.layers):
            scope = scopes.get(names.get(layer.output, layer.output), self.main)
            if index not in chosen.bound:
                steps.append(view_step(self.graph, layer, scope))
                continue
            box = full_box(self.graph.by_name[layer.output].shape)
            steps.append(Step("run", layer.name, 0, box, scope, chosen.bound[index].binding))
        return steps

    def _assembled(self, chosen: LocalScopes, staged: Staging | None) -> Plan:
        scopes = dict.fromkeys(chosen.kept, self.local.memory)
        decisions = [*self.fused, *chosen.binder.decisions(chosen.bound), *chosen.decisions()]
        if staged is not None:
            scopes |= dict.fromkeys(staged.kept, self.staging)
            decisions += staged.decisions()
        moves: dict[int, list[Move]] = {}
        for move in chosen.moves():
            moves.setdefault(move.reader, []).append(move)
        steps: list[Step] = []
        for index, run in enumerate(self._runs(chosen, scopes)):
            for move in moves.get(index, ()):
                box = full_box(self.graph.by_name[move.name].shape)
                steps.append(Step("redistribute", run.group, 0, box, self.local.memory, run.binding, move.name))
            steps.append(run)
        return layer_plan(self.graph, self.chip, "O2", self.layers, steps, decisions)

    def _blamed(self, subject: Subject, chosen: LocalScopes, staged: Staging | None) -> tuple[str, ...]:
        """The value that goes because something found no room: that itself, or the least useful one that is there when
        the layer runs which found none; local ones first."""
        kept = {name: close.value for name, close in chosen.kept.items()}
        shared = dict(staged.kept) if staged is not None else {}
        match subject:
            case ValueSubject(name, Role.VALUE | Role.BUFFER) if name in kept or name in shared:
                return (name,)
            case LayerSubject(name):
                index = next(index for index, layer in enumerate(self.layers) if layer.name == name)
                for values in (kept, shared):
                    there = [v for v in values.values() if v.made <= index <= v.last]
                    if there:
                        return (min(there, key=lambda v: (len(v.readers) / (v.last - v.made + 1), v.name)).name,)
        return tuple(kept) or tuple(shared)
