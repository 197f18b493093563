"""Rules of matrix products: transposes and factors go into constants where there are constants.

Gemm(transB=1, alpha=0.5)  -->  matmul(a, b) or matmul(a, b, bias)     b [K, N], bias [N]

Rules raise Refusal for nodes that cannot be compiled.
"""

from __future__ import annotations

from dsa_sched.frontend.network.network import Array, Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from dsa_sched.frontend.network.traced import TracedArray
from dsa_sched.frontend.rules.rules_elementwise import add_binary


def gemm(writer: Writer, node: Node) -> None:
    a, b, c = node.inputs[0], node.inputs[1], node.input(2)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    a = _transposed(writer, node, a, "transA") if node.integer("transA", 0) else a
    b = _transposed(writer, node, b, "transB") if node.integer("transB", 0) else b
    if alpha != 1.0:
        if b not in writer.constants:
            raise Refusal(f"alpha is {alpha} and the second factor is computed at run time; it must be constant")
        b = writer.store(f"{node.name}::alpha", writer.traced(b) * TracedArray.of(alpha))
    rows, columns = writer.shape(node.outputs[0])
    if not c or beta == 0.0:
        writer.add(node, "matmul", inputs=(a, b))
    elif c in writer.constants and _is_bias(writer.constants[c], columns):
        if beta != 1.0 or writer.shape(c) != (columns,):
            bias = writer.traced(c) * TracedArray.of(beta)
            c = writer.store(f"{node.name}::bias", bias.reshape(-1).broadcast(columns))
        writer.add(node, "matmul", inputs=(a, b, c))
    else:
        if beta != 1.0 and c not in writer.constants:
            raise Refusal(f"beta is {beta} and the third operand is computed at run time; it must be constant")
        if beta != 1.0:
            c = writer.store(f"{node.name}::added", writer.traced(c) * TracedArray.of(beta))
        product = writer.intermediate(node, "product", (rows, columns))
        writer.add(node, "matmul", inputs=(a, b), suffix="product")
        add_binary(writer, node, "add", (product, c))


def _is_bias(array: Array, columns: int) -> bool:
    """Whether the array is one number, or one per column; one per row has as many where the result is square."""
    return array.size == 1 or (array.size == columns and array.shape[-1] == columns)


def _transposed(writer: Writer, node: Node, name: str, suffix: str) -> str:
    if name in writer.constants:
        return writer.store(f"{name}::transposed", writer.traced(name).transpose(1, 0))
    rows, columns = writer.shape(name)
    result = writer.intermediate(node, suffix, (columns, rows))
    writer.add(node, "transpose", {"perm": (1, 0)}, inputs=(name,), suffix=suffix)
    return result


def integer_matmul(writer: Writer, node: Node) -> None:
    """Write a product of integers: both factors, scale, and a bias in the numbers of the result."""
    writer.add(node, "matmul", inputs=node.inputs)


def matmul(writer: Writer, node: Node) -> None:
    a, b = node.inputs[:2]
    if min(len(writer.shape(a)), len(writer.shape(b))) < 2:
        raise Refusal("a factor has one axis; both need at least two")
    writer.add(node, "matmul", inputs=node.inputs)
