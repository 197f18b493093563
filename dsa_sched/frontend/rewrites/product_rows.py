"""Products of rows that a file flattens first, as products of what they were.

    Reshape [b, s, k] to [b s, k] -> Gemm -> Reshape to [b, s, n]   -->   MatMul of [b, s, k], with the Gemm's bias

So what follows, an activation or a sum with a value of [b, s, n], meets the product and not a view of it.
"""

from __future__ import annotations

from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.network.queries import is_computed

__all__ = ["unflatten_products"]


def unflatten_products(network: Network) -> Network:
    """Every such Gemm, by constant weights. A view that something else reads stays."""
    draft = Draft(network)
    made = {node.outputs[0]: node for node in network.nodes}
    for node in network.nodes:
        gemm = made.get(node.inputs[0]) if node.op_type == "Reshape" else None
        rows = made.get(gemm.inputs[0]) if gemm is not None and _is_plain(network, gemm) else None
        if gemm is not None and rows is not None and _is_whole(network, rows, gemm, node):
            draft.exchange(gemm)
            draft.exchange(node, _product(draft, rows.inputs[0], gemm, node.outputs[0]))
    return draft.finished()


def _product(draft: Draft, source: str, gemm: Node, output: str) -> Node:
    weights, *bias = gemm.inputs[1:]
    if gemm.integer("transB", 0):
        weights = draft.store(f"{weights}::transposed", draft.network.traced(weights).transpose(1, 0))
    return Node(gemm.name, "MatMul", (source, weights, *bias), (output,))


def _is_whole(network: Network, rows: Node, gemm: Node, result: Node) -> bool:
    """Whether the rows are those of a value of more axes, and the result has its axes again."""
    if rows.op_type != "Reshape":
        return False
    shape, (_, depth) = network.shape(rows.inputs[0]), network.shape(rows.outputs[0])
    columns = network.shape(gemm.outputs[0])[1]
    return len(shape) > 2 and shape[-1] == depth and network.shape(result.outputs[0]) == (*shape[:-1], columns)


def _is_plain(network: Network, gemm: Node) -> bool:
    """A Gemm by constant weights, with a constant bias for each column or none, nothing scaled, that one node reads."""
    if gemm.op_type != "Gemm" or gemm.outputs[0] in network.outputs:
        return False
    bias = network.constants.get(gemm.input(2)) if gemm.input(2) else None
    columns = network.shape(gemm.outputs[0])[1]
    return (
        gemm.number("alpha", 1.0) == 1.0
        and gemm.number("beta", 1.0) == 1.0
        and not gemm.integer("transA", 0)
        and is_computed(network, gemm.inputs[0])
        and gemm.inputs[1] in network.constants
        and (not gemm.input(2) or (bias is not None and bias.shape == (columns,)))
        and len(network.readers.get(gemm.outputs[0], ())) == 1
    )
