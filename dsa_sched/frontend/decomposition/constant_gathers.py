"""GatherND and GatherElements by constant indices as Gather, which targets know: rows of the flattened data.

GatherND(x, places)  -->  Reshape(x, [rows, width]), Gather(axis=0, row of each place), Reshape
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.network.terms import number

Array = npt.NDArray[np.int64]


def flatten_gather(chain: Chain, node: Node) -> bool:
    """Rule for nodes of computed data whose indices are constant and in range; others are refused later."""
    found = _rows(chain.network, node)
    if found is None:
        return False
    count, rows = found
    data, shape = node.inputs[0], chain.shape(node.outputs[0])
    width = prod(chain.shape(data)) // count
    table = chain.add("Reshape", data, shape=(count, width), suffix="table")
    indices = chain.array(rows.reshape(-1), number(0.0), "rows_by")
    taken = chain.add("Gather", table, indices, shape=(rows.size, width), settings=(("axis", 0),), suffix="rows")
    chain.add("Reshape", taken, shape=shape)
    return True


def _rows(network: Network, node: Node) -> tuple[int, Array] | None:
    """Number of rows of the data, and the row of each result; None for other nodes."""
    given = network.constants.get(node.inputs[1])
    if given is None or node.inputs[0] in network.constants:
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
