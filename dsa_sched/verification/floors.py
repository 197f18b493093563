"""Effect of rounding alone on the values that are judged: on each layer by itself, and on the end of the network.

    the reference's values  -->  the same, rounded as stored, for each input: alone by layer, and from end to end

A layer that reads values which the reference does not have (pieces of one node) is fed with what the network stored, so
it does not stand alone: its floor is what rounding from the network's inputs on makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import numpy as np

from dsa_sched.frontend import Model
from dsa_sched.stages.compilation import Compilation
from dsa_sched.verification.evidence import (
    Array,
    Feed,
    comparable,
    compared_name,
    computing_layers,
    file_name,
    logits_names,
    stored_values,
)
from dsa_sched.verification.moved_values import only_moves
from dsa_sched.verification.rounding import RoundedReference
from hw_models.errors import ModelError
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer


@dataclass(frozen=True, slots=True)
class Floors:
    """For each input the rounded values of layers by the file's names, and two draws of those at the end of the
    network: errors of neighbours apart, and together. `linked` are the values of layers that do not stand alone."""

    alone: tuple[Feed, ...]
    end: tuple[tuple[Feed, Feed], ...]
    linked: frozenset[str]
    extremes: tuple[tuple[Feed, ...], ...] = ()
    """Such draws for inputs of extreme sizes, of errors together up and down: many elements may be alike there, so that
    all of them are ties of which rounding decides at once."""
    warning: str = ""
    """Reason why nothing is known, if so: then all bounds are without floors."""

    def of_layer(self, name: str, number: int) -> Array | None:
        """The rounded value of the file's `name` for an input; None where nothing is known."""
        return (self.end[number][0] if name in self.linked else self.alone[number]).get(name)

    def of_end(self, name: str) -> tuple[tuple[Array, Array], ...]:
        """For each input errors apart and together; nothing for a value that no input changes."""
        return tuple((apart[name], together[name]) for apart, together in self.end if name in apart)


def start_floors(
    judged: Compilation,
    exact: tuple[Feed, ...],
    pool: Executor,
    extremes: tuple[Feed, ...] = (),
    end_of_extremes: Sequence[str] = (),
) -> Callable[[], Floors]:
    """Start the computation in the pool; the returned function waits for it. `judged` stores the values of all layers;
    of `extremes` only `end_of_extremes` is rounded, the values at the end.
    """
    model = judged.model
    stored = frozenset(file_name(model, name) for name in stored_values(judged) if comparable(model, name, exact[0]))
    named = [(layer, compared_name(model, layer.output, exact[0])) for layer in computing_layers(judged)]
    layers = [(layer, name) for layer, name in named if comparable(model, name, exact[0])]
    given = _given_by_reference(model, exact[0])
    linked = frozenset(file_name(model, name) for layer, name in layers if not _stands_alone(model, layer, given))
    ends = frozenset(file_name(model, name) for name in (*logits_names(model, exact[0]), *end_of_extremes))
    outputs = frozenset(file_name(model, name) for _, name in layers)

    try:  # made here: shapes of values, which they need, are those of every input
        dtype = stored_type(model.graph)
        layer_by_layer = RoundedReference(model.source, exact[0], outputs - linked, dtype, stored)
        whole = RoundedReference(model.source, exact[0], ends | linked, dtype)
    except ModelError as error:
        unknown = _unknown(len(exact), len(extremes), error)
        return lambda: unknown
    alone: list[Future[Feed]] = [pool.submit(layer_by_layer.values, feed) for feed in exact]
    end = [(pool.submit(whole.values, feed), pool.submit(whole.values, feed, 1)) for feed in exact]
    far = [[pool.submit(whole.values, feed, sign) for sign in (0, 1, -1)] for feed in extremes]

    def wait() -> Floors:
        try:
            ends = tuple((one.result(), other.result()) for one, other in end)
            of_extremes = tuple(tuple(job.result() for job in jobs) for jobs in far)
            return Floors(tuple(job.result() for job in alone), ends, linked, of_extremes)
        except ModelError as error:
            return _unknown(len(exact), len(extremes), error)

    return wait


def stored_type(graph: Graph) -> str:
    """The floating-point type in which values are stored; where there are several, the one that rounds most."""
    found = {t.dtype for t in graph.tensors if not t.constant and np.dtype(t.dtype).kind == "f"}
    return max(sorted(found), key=lambda dtype: float(np.finfo(dtype).eps), default="float32")


def _unknown(inputs: int, extremes: int, error: ModelError) -> Floors:
    """No floors: every bound is that of a value which rounding does not change."""
    nothing: Feed = {}
    ends, warning = (nothing, nothing), f"bounds without rounding: {error}"
    return Floors((nothing,) * inputs, (ends,) * inputs, frozenset(), ((nothing,) * 3,) * extremes, warning)


def _given_by_reference(model: Model, exact: Feed) -> frozenset[str]:
    """Values with which layers are fed as the reference has them."""
    given = set(model.graph.inputs)
    for op in model.graph.ops:
        for name in op.outputs:
            follows = op.is_view or only_moves(op)
            if comparable(model, name, exact) or (follows and given.issuperset(op.inputs)):
                given.add(name)
    return frozenset(given)


def _stands_alone(model: Model, layer: Layer, given: frozenset[str]) -> bool:
    graph = model.graph
    ops = [graph.op_by_name[name] for name in layer.ops]
    inside = {name for op in ops for name in op.outputs}
    read = {name for op in ops for name in op.inputs if not graph.by_name[name].constant}
    return read - inside <= given
