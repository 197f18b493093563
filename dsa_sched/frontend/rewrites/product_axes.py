"""Products by constant matrices have the axes of the values around them: reshapes that only join axes go away.

    x [n, s, k] -> Reshape [n s, k] -> Gemm(W, b) -> Reshape [n, s, m]  -->  x -> MatMul(W, b) [n, s, m]

Exporters write it so. What follows a reshape is computed apart from the product before it; what follows the product
itself can be computed with it. For targets that want it (`Wants.products_by_row`).
"""

from __future__ import annotations

from dataclasses import replace

from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import Network, Node

PRODUCTS = frozenset(["Gemm", "MatMul"])


def with_axes_of_operands(network: Network) -> Network:
    """The network without such reshapes."""
    draft = Draft(network)
    for node in network.nodes:
        before = network.producer.get(node.inputs[0]) if node.op_type in PRODUCTS else None
        readers = network.readers.get(node.outputs[0], ()) if node.outputs else ()
        if before is None or before.op_type != "Reshape" or len(readers) != 1 or readers[0].op_type != "Reshape":
            continue
        after, x = readers[0], before.inputs[0]
        if node.outputs[0] in network.outputs or not _by_row(network, node, x, after.outputs[0]):
            continue
        draft.exchange(node, replace(node, op_type="MatMul", inputs=(x, *_factors(draft, node)), settings=(),
                                     outputs=after.outputs))  # fmt: skip
        draft.exchange(after)
    return draft.finished()


def _by_row(network: Network, node: Node, x: str, y: str) -> bool:
    """Whether a node is a product by a constant matrix, with a constant bias, whose rows are those of x, and of y."""
    matrix = network.constants.get(node.input(1))
    if x not in network.values or x in network.constants or matrix is None or matrix.ndim != len(("row", "column")):
        return False
    turned, scaled = node.integer("transB", 0), node.number("alpha", 1.0) != 1.0
    bias = network.constants.get(node.input(2))
    if node.integer("transA", 0) or scaled or (node.input(2) and (bias is None or node.number("beta", 1.0) != 1.0)):
        return False
    columns = matrix.shape[0 if turned else 1]
    spread = bias is None or bias.size == 1 or (bias.size == columns and bias.shape[-1] == columns)
    rows, flat = network.shape(x), network.shape(node.inputs[0])
    return spread and len(rows) > 1 and rows[-1:] == flat[-1:] and network.shape(y) == (*rows[:-1], columns)


def _factors(draft: Draft, node: Node) -> tuple[str, ...]:
    """The matrix, and the bias with an element per column."""
    network, name = draft.network, node.inputs[1]
    if node.integer("transB", 0):
        name = draft.store(f"{node.name}::turned", network.traced(name).transpose(1, 0))
    if not node.input(2):
        return (name,)
    columns = network.constants[name].shape[1]
    bias = network.traced(node.input(2)).reshape(-1).broadcast(columns)
    return name, draft.store(f"{node.name}::by_column", bias)
