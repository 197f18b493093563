"""One ONNX node in float64 numpy, with which calibration runs networks.

    node, operands  -->  its output

onnxruntime is not used because its float32 results differ in the last bits between processors and thread counts, and
weights derived from them would differ too. In float64 such differences are about 1e-15 and vanish when statistics are
rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from numpy.lib.stride_tricks import sliding_window_view

Tensor = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]

BLOCK_BYTES = 32 << 20  # of an unrolled input or a widened matrix at a time


def evaluate(node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    """The first output of a node, in ONNX layout. Feature maps are N, C, H, W; any float type goes in. Raises
    NotImplementedError for an operator that no network of the zoo has."""
    handler = _HANDLERS.get(node.op_type)
    if handler is None:
        raise NotImplementedError(f"operator {node.op_type} in a network of the zoo")
    return handler(node, operands)


def _ints(node: onnx.NodeProto, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return next((tuple(item.ints) or (item.i,) for item in node.attribute if item.name == name), default)


def _number(node: onnx.NodeProto, name: str, default: float) -> float:
    return next((item.f for item in node.attribute if item.name == name), default)


def _wide(array: Tensor) -> Doubles:
    return np.asarray(array, np.float64)


def _by_channel(vector: Tensor, rank: int) -> Doubles:
    return _wide(vector).reshape(1, -1, *(1,) * (rank - 2))


def _windows(data: Doubles, node: onnx.NodeProto, kernel: tuple[int, ...], fill: float) -> Doubles:
    """A view [N, C, out H, out W, kernel H, kernel W] of the padded feature map."""
    top, left, bottom, right = _ints(node, "pads", (0, 0, 0, 0))
    (step_h, step_w), (skip_h, skip_w) = _ints(node, "strides", (1, 1)), _ints(node, "dilations", (1, 1))
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = (skip_h * (kernel[0] - 1) + 1, skip_w * (kernel[1] - 1) + 1)
    return np.asarray(sliding_window_view(padded, reach, (2, 3))[:, :, ::step_h, ::step_w, ::skip_h, ::skip_w])


def _conv(node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    """Matrix products over blocks of output rows, so that the unrolled input stays small."""
    data, weights = _wide(operands[0]), operands[1]
    (groups,) = _ints(node, "group", (1,))
    matrices = _wide(weights).reshape(groups, weights.shape[0] // groups, -1)
    windows = _windows(data, node, weights.shape[2:], 0.0)
    images, _, height, width = windows.shape[:4]
    depth = matrices.shape[2]
    result = np.empty((groups, matrices.shape[1], images, height, width))
    rows = max(1, BLOCK_BYTES // (8 * groups * depth * images * width))
    for start in range(0, height, rows):
        columns = windows[:, :, start : start + rows].transpose(1, 4, 5, 0, 2, 3).reshape(groups, depth, -1)
        result[..., start : start + rows, :] = (matrices @ columns).reshape(*result.shape[:3], -1, width)
    maps = result.reshape(-1, images, height, width).swapaxes(0, 1)
    return maps + _by_channel(operands[2], data.ndim) if len(operands) > 2 else maps


def _gemm(node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    """The zoo's files all store the second factor transposed: [outputs, inputs]."""
    data, weights = operands[:2]
    if _ints(node, "transB", (0,)) != (1,) or _ints(node, "transA", (0,)) != (0,):
        raise NotImplementedError("Gemm without transB in a network of the zoo")
    rows = max(1, BLOCK_BYTES // (8 * weights.shape[1]))
    blocks = [_wide(data) @ _wide(weights[row : row + rows]).T for row in range(0, weights.shape[0], rows)]
    result = np.concatenate(blocks, axis=1)
    return result + _wide(operands[2]) if len(operands) > 2 else result


def _batch_norm(node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    data, scale, shift, mean, variance = (_wide(item) for item in operands)
    factor = scale / np.sqrt(variance + _number(node, "epsilon", 1e-5))
    return data * _by_channel(factor, data.ndim) + _by_channel(shift - mean * factor, data.ndim)


def _taps(data: Doubles, node: onnx.NodeProto, fill: float) -> Iterator[Doubles]:
    """For every position in the kernel, the elements that it reads for all outputs."""
    kernel = _ints(node, "kernel_shape", ())
    windows = _windows(data, node, kernel, fill)
    return (windows[..., row, column] for row in range(kernel[0]) for column in range(kernel[1]))


def _max_pool(node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    first, *others = _taps(_wide(operands[0]), node, -np.inf)
    result = first.copy()
    for tap in others:
        np.maximum(result, tap, out=result)
    return result


def _average_pool(node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    data = _wide(operands[0])
    total = sum(_taps(data, node, 0.0), np.zeros(()))
    if _ints(node, "count_include_pad", (0,)) == (1,):
        return np.asarray(total / np.prod(_ints(node, "kernel_shape", ())))
    return np.asarray(total / sum(_taps(np.ones_like(data[:1, :1]), node, 0.0), np.zeros(())))


def _lrn(node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    data = _wide(operands[0])
    (size,) = _ints(node, "size", ())
    before = (size - 1) // 2
    squares = np.pad(np.square(data), ((0, 0), (before, size - 1 - before), (0, 0), (0, 0)))
    total = sum((squares[:, tap : tap + data.shape[1]] for tap in range(size)), np.zeros(()))
    base = _number(node, "bias", 1.0) + _number(node, "alpha", 1e-4) / size * total
    return np.asarray(data / base ** _number(node, "beta", 0.75))


def _softmax(_node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    """Over everything but the images, as before opset 13."""
    rows = _wide(operands[0]).reshape(operands[0].shape[0], -1)
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True)).reshape(operands[0].shape)


def _resize(node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    """Pixels repeated a whole number of times, the one map that the zoo uses."""
    modes = {item.name: item.s for item in node.attribute if item.s}
    wanted = {"mode": b"nearest", "coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
    *outer, down, across = np.asarray(operands[2]).tolist()
    if modes != wanted or outer != [1, 1] or down % 1 or across % 1:
        raise NotImplementedError("Resize other than by repeating pixels in a network of the zoo")
    return _wide(operands[0]).repeat(int(down), axis=2).repeat(int(across), axis=3)


def _clip(_node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    data, least, most = (_wide(item) for item in operands)
    return np.clip(data, least, most)


def _slice(_node: onnx.NodeProto, operands: Sequence[Tensor]) -> Doubles:
    data, starts, ends, axes = operands[0], *(item.tolist() for item in operands[1:])
    chosen = [slice(None)] * data.ndim
    for start, end, axis in zip(starts, ends, axes, strict=True):
        chosen[axis] = slice(start, end)
    return _wide(data[tuple(chosen)])


_HANDLERS: dict[str, Callable[[onnx.NodeProto, Sequence[Tensor]], Doubles]] = {
    "Add": lambda _, operands: _wide(operands[0]) + _wide(operands[1]),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda node, operands: np.concatenate([_wide(item) for item in operands], _ints(node, "axis", ())[0]),
    "Conv": _conv,
    "Dropout": lambda _, operands: _wide(operands[0]),
    "Flatten": lambda _, operands: _wide(operands[0]).reshape(operands[0].shape[0], -1),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda _, operands: np.asarray(_wide(operands[0]).mean(axis=(2, 3), keepdims=True)),
    "LRN": _lrn,
    "MaxPool": _max_pool,
    "Mul": lambda _, operands: _wide(operands[0]) * _wide(operands[1]),
    "Relu": lambda _, operands: np.maximum(_wide(operands[0]), 0.0),
    "Reshape": lambda _, operands: _wide(operands[0]).reshape(operands[1].tolist()),
    "Resize": _resize,
    "Sigmoid": lambda _, operands: np.asarray(1 / (1 + np.exp(-_wide(operands[0])))),
    "Slice": _slice,
    "Softmax": _softmax,
    "Sum": lambda _, operands: sum((_wide(item) for item in operands[1:]), _wide(operands[0])),
    "Transpose": lambda node, operands: _wide(operands[0]).transpose(_ints(node, "perm", ())),
    "Unsqueeze": lambda node, operands: np.expand_dims(_wide(operands[0]), _ints(node, "axes", ())),
}
