"""Number of operations of an MLIR operation on tensors, from its shapes alone: indexing maps, or one row per operation.

    linalg.matmul (d0, d1, d2) -> (d0, d2), (d2, d1), (d0, d1)    -->  the product of the extents of d0, d1, d2
    tosa.conv2d                                                     -->  a row of the table

It is for analytic costs only, like `placement.model.work` for ONNX: an operation with neither counts one per element of
its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, DenseArrayBase, TensorType, UnregisteredOp
from xdsl.ir import Attribute, Operation
from xdsl.ir.affine import AffineDimExpr

Shape = tuple[int, ...]
MAPS = ("indexing_maps", "linalg.memoized_indexing_maps")
"""Attributes in which linalg keeps the maps from loops to elements of its operands, results last."""


def name_of_operation(op: Operation) -> str:
    """`linalg.matmul`, also where xDSL does not know the dialect."""
    return op.op_name.data if isinstance(op, UnregisteredOp) else op.name


def operations_of(op: Operation) -> int:
    """Multiply-accumulates, or operations of another kind. All tensors have static shapes."""
    loops = _loops(op)
    if loops is not None:
        return prod(loops)
    row = ROWS.get(name_of_operation(op))
    operands, results = _shapes(op.operand_types), _shapes(op.result_types)
    return sum(map(prod, results)) if row is None else row(op, operands, results)


def _shapes(types: Sequence[Attribute]) -> list[Shape]:
    return [found.get_shape() for found in types if isinstance(found, TensorType)]


def _setting(op: Operation, name: str) -> Attribute | None:
    return op.properties.get(name, op.attributes.get(name))


def _loops(op: Operation) -> Shape | None:
    """Extents of the loops of a structured operation; None where there are no maps, or an extent is not in them."""
    maps = next((found for name in MAPS if (found := _setting(op, name)) is not None), None)
    if not isinstance(maps, ArrayAttr) or len(maps.data) != len(op.operands):
        return None
    extents: dict[int, int] = {}
    loops = 0
    for found, kind in zip(maps.data, op.operand_types, strict=True):
        if not isinstance(found, AffineMapAttr):
            return None
        loops = found.data.num_dims
        shape = kind.get_shape() if isinstance(kind, TensorType) else ()
        for expression, extent in zip(found.data.results, shape, strict=False):
            if isinstance(expression, AffineDimExpr):
                extents[expression.position] = extent
    return tuple(extents[loop] for loop in range(loops)) if len(extents) == loops else None


Row = Callable[[Operation, list[Shape], list[Shape]], int]


def _filtered(_op: Operation, operands: list[Shape], results: list[Shape]) -> int:
    """Weights are (outputs, window, inputs): each result is a sum over one filter."""
    return prod(results[0]) * prod(operands[1][1:])


def _depthwise(_op: Operation, operands: list[Shape], results: list[Shape]) -> int:
    """Weights are (window, channels, multiplier)."""
    return prod(results[0]) * prod(operands[1][:2])


def _transposed(_op: Operation, operands: list[Shape], _results: list[Shape]) -> int:
    """Weights are (outputs, window, inputs): each input is spread by as many products as there are for its channel."""
    return prod(operands[0]) * prod(operands[1][:-1])


def _product(_op: Operation, operands: list[Shape], results: list[Shape]) -> int:
    return prod(results[0]) * operands[0][-1]


def _pool(op: Operation, _operands: list[Shape], results: list[Shape]) -> int:
    kernel = _setting(op, "kernel")
    return prod(results[0]) * (prod(map(int, kernel.get_values())) if isinstance(kernel, DenseArrayBase) else 1)


def _reads(_op: Operation, operands: list[Shape], _results: list[Shape]) -> int:
    return prod(operands[0])


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "tosa.conv2d": _filtered,
        "tosa.conv3d": _filtered,
        "tosa.depthwise_conv2d": _depthwise,
        "tosa.transpose_conv2d": _transposed,
        "tosa.fully_connected": _product,
        "tosa.matmul": _product,
        "tosa.avg_pool2d": _pool,
        "tosa.max_pool2d": _pool,
        **{f"tosa.reduce_{kind}": _reads for kind in ("all", "any", "max", "min", "prod", "product", "sum")},
        "tosa.argmax": _reads,
    }
)
