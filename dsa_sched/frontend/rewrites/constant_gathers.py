"""GatherND and GatherElements by constant indices as Gather, which targets know: rows of the flattened data.

GatherND(x, places)  -->  Reshape(x, [rows, width]), Gather(axis=0, row of each place), Reshape
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.network.network import Network, Node, Value
from dsa_sched.frontend.network.terms import number

Array = npt.NDArray[np.int64]


def flatten_gathers(network: Network) -> Network:
    """Flatten all such nodes of computed data whose indices are constant and in range; others are refused later."""
    nodes: list[Node] = []
    values, constants, terms = dict(network.values), dict(network.constants), dict(network.terms)
    for node in network.nodes:
        rows = _rows(network, node)
        if rows is None:
            nodes.append(node)
            continue
        count, chosen = rows
        data, output = node.inputs[0], node.outputs[0]
        width = prod(network.shape(data)) // count
        steps: tuple[tuple[str, str, Array, tuple[int, ...]], ...] = (
            ("Reshape", "table", np.array((count, width)), (count, width)),
            ("Gather", "rows", chosen.reshape(-1), (chosen.size, width)),
            ("Reshape", "", np.array(network.shape(output)), network.shape(output)),
        )
        source = data
        for op_type, suffix, array, shape in steps:
            made, given = (f"{output}::{suffix}" if suffix else output), f"{output}::{suffix or 'shape'}_by"
            constants[given], terms[given] = array.astype(np.int64), number(0.0)
            values[given] = Value(array.shape, 7)
            values[made] = Value(shape, network.values[output].dtype)
            name = f"{node.name}::{suffix}" if suffix else node.name
            settings = (("axis", 0),) if op_type == "Gather" else ()
            nodes.append(Node(name, op_type, (source, given), (made,), settings))
            source = made
    return replace(network, nodes=tuple(nodes), values=values, constants=constants, terms=terms)


def _rows(network: Network, node: Node) -> tuple[int, Array] | None:
    """Number of rows of the data, and the row of each result; None for other nodes."""
    if node.op_type not in ("GatherND", "GatherElements") or node.inputs[0] not in network.values:
        return None
    given = network.constants.get(node.inputs[1])
    if given is None or node.inputs[0] in network.constants or node.outputs[0] not in network.values:
        return None
    indices = given.astype(np.int64)
    shape = network.shape(node.inputs[0])
    if node.op_type == "GatherElements":
        axis = node.integer("axis", 0) % len(shape)
        places: list[Array] = list(np.indices(indices.shape))
        places[axis] = indices
        taken = shape
    else:
        batch, depth = node.integer("batch_dims", 0), indices.shape[-1]
        taken = shape[: batch + depth]
        places = [*np.indices(indices.shape[:-1])[:batch], *(indices[..., place] for place in range(depth))]
    if any((place < -extent).any() or (place >= extent).any() for place, extent in zip(places, taken, strict=True)):
        return None
    inside = tuple(np.where(place < 0, place + extent, place) for place, extent in zip(places, taken, strict=True))
    return prod(taken), np.asarray(np.ravel_multi_index(inside, taken), np.int64)
