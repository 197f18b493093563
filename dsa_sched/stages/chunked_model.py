"""A model whose hidden values find no room on the cores, with these in chunks (`partitioner.fusion.hidden_chunks`).

model, chip --blocks larger than all cores' memories--> model with a product for each chunk, terms of its constants
"""

from __future__ import annotations

from dataclasses import replace

from dsa_sched.frontend import Model
from dsa_sched.frontend.network.terms import Term
from hw_models.chip import Chip
from partitioner.context.plan_context import Context
from partitioner.fusion.hidden_chunks import ChunkPart, in_chunks
from partitioner.ir.target import PlanTarget


def chunked_model(model: Model, chip: Chip, target: PlanTarget) -> Model | None:
    """The model with hidden values in chunks; None where no block (its hidden value, its inputs and its result) is
    larger than the local memories of all cores together, or where no such block can be cut.
    """
    room_bytes = chip.cores_per_cluster * Context(model.graph, model.constants, chip, target).roles.local_bytes
    found = in_chunks(model.graph, model.constants, target, room_bytes)
    if found is None:
        return None
    terms = dict(model.terms)
    for name, part in found.parts.items():
        if part.whole in terms:
            terms[name] = _term(terms[part.whole], part, len(found.graph.by_name[name].shape))
    return replace(model, graph=found.graph, constants=dict(found.constants), terms=terms)


def _term(whole: Term, part: ChunkPart, axes: int) -> Term:
    rows = tuple(range(part.low, part.high))
    if not part.axis:
        return whole.take(rows)
    turned = (part.axis, *(axis for axis in range(axes) if axis != part.axis))
    back = tuple(turned.index(axis) for axis in range(axes))
    return whole.transpose(*turned).take(rows).transpose(*back)
