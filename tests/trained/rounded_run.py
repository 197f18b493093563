"""The reference with every value rounded to fp16 where it is stored, and every function exact.

    ModelProto --node by node: onnxruntime, then rounding--> outputs

LSTM and GRU are computed step by step, so that their gates and states are rounded too; branches are taken as they come.
Sums are computed in float32, or, with `fp16_sums`, as the matrix engine of the stcp920 does: products rounded, added to
two fp16 accumulators by turns. `range_kept` rounds to the 11 bits of fp16 but keeps the range of float32, for networks
whose values leave that of fp16 on the way. Knows nothing of our compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from tests.trained.fp16_sums import convolution, eleven_bits, half, matrix_product, summed
from tests.trained.recurrence import gru, lstm

__all__ = ["RangeLeft", "RoundedRun", "rounded"]

Array = npt.NDArray[Any]
LARGEST = float(np.finfo(np.float16).max)
EXACT_OPERANDS = frozenset(["BatchNormalization", "Resize", "Upsample"])
"""Operators whose constants are no operands: scales of an image, and parameters of a norm, which compilers fold."""


def rounded(array: Array, range_kept: bool = False) -> Array:
    """A float32 array with the 11 bits of fp16; others as they are."""
    if array.dtype != np.float32:
        return array
    if range_kept:
        mantissa, exponent = np.frexp(array)
        return np.asarray(np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent), np.float32)
    with np.errstate(over="ignore"):
        return np.asarray(array.astype(np.float16), np.float32)


class RangeLeft(Exception):
    """The node makes infinities, or no numbers, of finite operands: their values, or its own, do not fit into fp16."""


class RoundedRun:
    """Runs a model; sessions are kept by operator and attributes."""

    def __init__(self, model: onnx.ModelProto, range_kept: bool = False, fp16_sums: bool = False) -> None:
        self.model, self.range_kept, self.fp16_sums = model, range_kept, fp16_sums
        exact = {name for node in model.graph.node if node.op_type in EXACT_OPERANDS for name in node.input[1:]}
        self.exact = frozenset(exact)
        self.constants = {tensor.name: self._constant(tensor, tensor.name) for tensor in model.graph.initializer}
        self.round_sum = eleven_bits if range_kept else half
        self.sessions: dict[tuple[bytes | str, ...], Any] = {}

    def __call__(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs. Raises RangeLeft, unless the range is kept."""
        values = self.constants | {name: rounded(array, self.range_kept) for name, array in feed.items()}
        self._graph(self.model.graph, values)
        return {output.name: values[output.name] for output in self.model.graph.output}

    def _graph(self, graph: onnx.GraphProto, values: dict[str, Array]) -> None:
        for node in graph.node:
            for name, array in zip(node.output, self._results(node, values), strict=False):
                if name:
                    values[name] = array

    def _results(self, node: onnx.NodeProto, values: dict[str, Array]) -> Sequence[Array]:
        if node.op_type == "Constant":
            tensors = [attribute.t for attribute in node.attribute if attribute.HasField("t")]
            return [self._constant(tensor, node.output[0]) for tensor in tensors]
        if node.op_type == "If":
            return self._branch(node, values)
        operands = [values[name] if name else None for name in node.input]
        match node.op_type:
            case "LSTM":
                return lstm(node, operands, self._rounded, self._product)
            case "GRU":
                return gru(node, operands, self._rounded, self._product)
            case "Conv" if self.fp16_sums:
                return [convolution(node, operands, self.round_sum)]
            case "MatMul" | "Gemm" if self.fp16_sums:
                return [matrix_product(node, operands, self.round_sum)]
        results = [self._rounded(array) for array in self._run(node, operands)]
        if not self.range_kept and not _finite(results) and _finite(operands):
            raise RangeLeft(node.name)
        return results

    def _rounded(self, array: Array) -> Array:
        return rounded(array, self.range_kept)

    def _product(self, left: Array, right: Array) -> Array:
        return summed(left, right, self.round_sum) if self.fp16_sums else self._rounded(left @ right)

    def _branch(self, node: onnx.NodeProto, values: dict[str, Array]) -> Sequence[Array]:
        taken = "then_branch" if values[node.input[0]].item() else "else_branch"
        graph = next(attribute.g for attribute in node.attribute if attribute.name == taken)
        inner = values | {tensor.name: self._constant(tensor, tensor.name) for tensor in graph.initializer}
        self._graph(graph, inner)
        return [inner[output.name] for output in graph.output]

    def _constant(self, tensor: onnx.TensorProto, name: str) -> Array:
        """Constants beyond fp16 saturate."""
        array = numpy_helper.to_array(tensor)
        if name in self.exact or array.dtype != np.float32:
            return array
        return rounded(array if self.range_kept else np.asarray(array.clip(-LARGEST, LARGEST)), self.range_kept)

    def _run(self, node: onnx.NodeProto, operands: Sequence[Array | None]) -> list[Array]:
        alone = onnx.NodeProto(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
        alone.input.extend("" if operand is None else f"operand{place}" for place, operand in enumerate(operands))
        alone.output.extend(f"result{place}" if name else "" for place, name in enumerate(node.output))
        key = alone.SerializeToString(deterministic=True), *(str(getattr(operand, "dtype", "")) for operand in operands)
        if key not in self.sessions:
            self.sessions[key] = _session(alone, operands, self.model)
        feed = {name: operand for name, operand in zip(alone.input, operands, strict=True) if operand is not None}
        names = [name for name in alone.output if name]
        results = iter(self.sessions[key].run(names, feed))
        return [next(results) if name else np.zeros(0) for name in alone.output]


def _finite(arrays: Sequence[Array | None]) -> bool:
    return all(array is None or array.dtype.kind != "f" or bool(np.isfinite(array).all()) for array in arrays)


def _session(node: onnx.NodeProto, operands: Sequence[Array | None], model: onnx.ModelProto) -> Any:
    """onnxruntime for one node alone."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(operand.dtype), None)
        for name, operand in zip(node.input, operands, strict=True)
        if operand is not None
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    whole = helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(4, model.ir_version))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
