"""Operands of attention that are ranges of columns of one value: products of one value by constants become one.

    q = MatMul(x, A)   k = MatMul(x, B)   v = MatMul(x, C)   Attend(q, k, v)
        -->  y = MatMul(x, [A B C])   Attend(y, y, y, columns=(0, 64, 128))
    Attend(Slice(y), ...), Attend(Split(y), ...)  -->  Attend(y, ...)    of ranges of columns

Only products that the attention alone reads are joined, two or three of them. For targets whose attention reads its
operands where they lie (`Wants.attention_columns`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import ATTEND, Network, Node, Value
from dsa_sched.frontend.network.traced import TracedArray
from dsa_sched.frontend.rewrites.unread_rows import passed_part

OPERANDS = ("q", "k", "v")
ROWS_OF_COLUMNS = len(("item", "row", "column"))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of a value from `begin` on."""

    value: str
    begin: int = 0


def join_products(network: Network) -> Network:
    """The network in which attention reads columns of joined products, and of values that it had sliced."""
    draft = Draft(network)
    for node in network.nodes:
        if node.op_type != ATTEND or node.integer("parts", 1) > 1:
            continue
        operands = [_sliced(network, name) for name in node.inputs[: len(OPERANDS)]]
        for joined in _joined(network, draft, node):
            operands = [joined.get(name, found) for name, found in zip(node.inputs, operands, strict=False)]
        if all(found.value == name for name, found in zip(node.inputs, operands, strict=False)):
            continue
        size = network.shape(node.inputs[0])[-1]
        if len(network.shape(node.inputs[0])) == ROWS_OF_COLUMNS:
            size //= node.integer("heads", 1)
        settings = (*node.settings, ("columns", tuple(found.begin for found in operands)), ("size", size))
        inputs = (*(found.value for found in operands), *node.inputs[len(OPERANDS) :])
        draft.exchange(node, replace(node, inputs=inputs, settings=settings))
    return draft.finished()


def _sliced(network: Network, name: str) -> _Columns:
    """The columns that an operand is of another value, or those of itself."""
    made = network.producer.get(name)
    last = len(network.shape(name)) - 1
    if made is None or last != ROWS_OF_COLUMNS - 1 or made.inputs[0] not in network.values:
        return _Columns(name)
    if made.op_type == "Split" and made.integer("axis", 0) % (last + 1) == last and all(made.outputs):
        before = made.outputs[: made.outputs.index(name)]
        return _Columns(made.inputs[0], sum(network.shape(other)[last] for other in before))
    part = passed_part(network, made) if made.op_type == "Slice" else None
    return _Columns(made.inputs[0], part.low) if part is not None and part.axis == last else _Columns(name)


def _joined(network: Network, draft: Draft, node: Node) -> Iterator[dict[str, _Columns]]:
    """Joins the products of one value that are operands of an attention: for each operand its columns."""
    by_value: dict[str, list[Node]] = {}
    for name in node.inputs[: len(OPERANDS)]:
        product = network.producer.get(name)
        if product is not None and _is_own(network, product, node):
            by_value.setdefault(product.inputs[0], []).append(product)
    for value, products in by_value.items():
        if len(products) == 1:
            continue
        first = products[0]
        outputs = [product.outputs[0] for product in products]
        widths = [network.shape(name)[-1] for name in outputs]
        weights = draft.store(
            f"{first.name}::joined_weight",
            TracedArray.joined([network.traced(product.inputs[1]) for product in products], axis=1),
        )
        biases = [_bias(network, product, width) for product, width in zip(products, widths, strict=True)]
        bias: tuple[str, ...] = ()
        if any(product.input(2) for product in products):
            bias = (draft.store(f"{first.name}::joined_bias", TracedArray.joined(biases, axis=0)),)
        shape = (*network.shape(outputs[0])[:-1], sum(widths))
        result = draft.value(f"{outputs[0]}::joined", Value(shape, network.values[outputs[0]].dtype))
        in_order = [other for other in network.nodes if other in products]
        draft.exchange(in_order[0], Node(f"{first.name}::joined", "MatMul", (value, weights, *bias), (result,)))
        for other in in_order[1:]:
            draft.exchange(other)
        names = f"{', '.join(product.name for product in products[:-1])} and {products[-1].name}"
        draft.decide(node, f"reads columns of {first.name}::joined", f"{names} are products of {value} by constants")
        begins = [sum(widths[:position]) for position in range(len(widths))]
        yield {name: _Columns(result, begin) for name, begin in zip(outputs, begins, strict=True)}


def _is_own(network: Network, product: Node, reader: Node) -> bool:
    """Whether a node is a product of a value by a constant matrix that only an operand of the reader reads."""
    if product.op_type != "MatMul" or product.inputs[0] not in network.values or product.inputs[0] in network.constants:
        return False
    matrix, (result,) = network.constants.get(product.input(1)), product.outputs
    bias = not product.input(2) or product.input(2) in network.constants
    read = reader.inputs.count(result) == 1 and len(network.readers.get(result, ())) == 1
    flat = len(network.shape(result)) == ROWS_OF_COLUMNS
    return matrix is not None and matrix.ndim == 2 and bias and read and flat and result not in network.outputs


def _bias(network: Network, product: Node, width: int) -> TracedArray:
    own = network.traced(product.input(2)).reshape(-1) if product.input(2) else TracedArray.of(0.0)
    return own.broadcast(width)
