"""Spilling inside a group: a value that finds no room on the cores goes to the staging memory, and from there to main.

    group, what found no room in it --values that are held at that moment, policy--> group with one more value spilled

A spilled value is computed in disjoint pieces, written to the shared memory and read from there by each layer that
needs it. Values that leave the group are not touched: ordering decides where they wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hw_models.errors import place_text, size_text, subject_text
from hw_models.infeasible import HeldRole, Infeasible
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Group, Spill
from partitioner.memory.liveness import Walk
from partitioner.memory.spill_policies import POLICIES, SpillValue

MOST_SPILLS = 8
"""Largest number of values spilled in a group; a group that needs more is cut finer instead."""


def held_values(walk: Walk, memory: str) -> dict[str, SpillValue]:
    """Values held in a memory, by item, with the slots in which layers use them."""
    uses = {key: {first, last} for key, (first, last, _) in walk.items.items() if walk.memory[key] == memory}
    for step in walk.steps:
        for entry in step if isinstance(step, list) else ():
            for held in (*entry.local.values(), *(held for found in entry.sources.values() for held in found)):
                if held.item in uses:
                    uses[held.item].add(entry.slot)
    return {key: SpillValue(key, walk.items[key][2], tuple(sorted(slots))) for key, slots in uses.items()}


def spill_one(
    walk: Walk, group: Group, pieces: tuple[int, ...], lack: Infeasible, policy: str
) -> tuple[Group, Decision] | None:
    """The group with one more value spilled, of those that were held where its layout lacks room; None where that
    cannot help. Values without an exchange of their own are computed in `pieces`, as the group's output is."""
    memory = lack.memory
    beyond = walk.ctx.roles.outward(memory)
    if beyond == memory or len(group.spills) >= MOST_SPILLS:
        return None
    values = _victims(walk, group, memory, {holder.name for holder in lack.holders if holder.role is HeldRole.VALUE})
    if not values:
        return None
    slot = max(value.slots[0] for value in values.values())
    chosen = POLICIES[policy](tuple(values.values()), slot, lack.missing_bytes)
    name = next(name for name, value in values.items() if value is chosen)
    reason = (
        f"{policy}: {size_text(chosen.size_bytes)} on a core, held for {chosen.liveness} slots, used in "
        f"{len(chosen.slots)}; {size_text(lack.missing_bytes)} of {place_text(lack)} missing for "
        f"{subject_text(lack.subject)}"
    )
    return _spilled(walk.ctx.graph, group, name, pieces, beyond), Decision(name, f"spilled to {beyond}", reason)


def _victims(walk: Walk, group: Group, memory: str, held: set[str]) -> Mapping[str, SpillValue]:
    """Values inside a group that were held, by tensor; of several instances the first one stands for all."""
    inner = {layer.output for layer in group.layers} - set(group.outputs(walk.ctx.graph))
    found: dict[str, SpillValue] = {}
    for key, value in held_values(walk, memory).items():
        subject = walk.subjects[key]
        if subject.role is HeldRole.VALUE and subject.name in inner and subject.name in held and value.size_bytes:
            found.setdefault(subject.name, value)
    return found


def _spilled(graph: Graph, group: Group, name: str, pieces: tuple[int, ...], scope: str) -> Group:
    known = {exchange.tensor: exchange for exchange in group.exchanges}
    if name in known:
        pieces = known[name].pieces
    else:
        rank = len(graph.by_name[name].shape)
        pieces = pieces if len(pieces) == rank else (pieces[0], *(1,) * (rank - 1))
    known[name] = Spill(name, pieces, scope)
    return replace(group, exchanges=tuple(known.values()))
