"""Calibration: run the network once, layer by layer, and set what keeps its activations small.

    convolution -> batch norm      mean and variance of the convolution's output on a seeded batch
    convolution or Gemm alone      weights times a power of two, so that the output's root mean square is about 1

Each node runs alone in onnxruntime with its weights as inputs, so that one pass is enough although every layer depends
on the statistics before it. Statistics are rounded coarsely: another processor's last bits must not change the weights.
"""

from __future__ import annotations

from collections.abc import MutableMapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.zoo.inputs import low_frequency, seed_of

__all__ = ["calibrate"]

Array = npt.NDArray[np.generic]
BATCH = 4
WANTED_RMS = 1.0
LOGITS_RMS = 4.0


def calibrate(model: onnx.ModelProto, constants: MutableMapping[str, Array], name: str) -> None:
    """Set batch-norm statistics and gains in `constants`. The model's input must be one image with a fixed shape."""
    item = next(item for item in model.graph.input if item.name not in constants)
    shape = tuple(int(dim.dim_value) for dim in item.type.tensor_type.shape.dim)
    generator = np.random.default_rng(seed_of(name, "calibration"))
    values: dict[str, Array] = {item.name: low_frequency(generator, (BATCH, *shape[1:])).astype(np.float32)}
    normalised = {node.input[0] for node in model.graph.node if node.op_type == "BatchNormalization"}
    nodes = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]
    last_use = {operand: position for position, node in enumerate(nodes) for operand in node.input}
    weighted = [node.output[0] for node in nodes if node.op_type in ("Conv", "Gemm")]
    for position, node in enumerate(nodes):
        if node.op_type == "BatchNormalization":
            _set_statistics(values[node.input[0]], node, constants)
        output = _run(model, node, constants, values)
        if node.output[0] in weighted and node.output[0] not in normalised:
            wanted = LOGITS_RMS if node.output[0] == weighted[-1] else WANTED_RMS
            output = _set_gain(output, wanted, node, constants)
        values[node.output[0]] = output
        for operand in node.input:
            if last_use[operand] == position:
                values.pop(operand, None)


def _coarse(values: npt.NDArray[np.float64], bits: int) -> npt.NDArray[np.float64]:
    """Rounded to `bits` bits of mantissa."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits))


def _set_statistics(data: Array, node: onnx.NodeProto, constants: MutableMapping[str, Array]) -> None:
    """Mean and variance by channel; the mean rounded to a sixteenth of the deviation."""
    axes = (0, *range(2, data.ndim))
    wide = data.astype(np.float64)
    variance = _coarse(np.maximum(wide.var(axis=axes), 1e-4), 3)
    step = 2.0 ** np.floor(np.log2(np.sqrt(variance)) - 4)
    mean = np.round(wide.mean(axis=axes) / step) * step
    constants[node.input[3]] = mean.astype(np.float32)
    constants[node.input[4]] = variance.astype(np.float32)


def _set_gain(output: Array, wanted: float, node: onnx.NodeProto, constants: MutableMapping[str, Array]) -> Array:
    """Scale weights and bias by the power of two that brings the output's root mean square nearest to `wanted`."""
    rms = float(np.sqrt(np.mean(np.square(output.astype(np.float64)))))
    gain = np.float32(2.0 ** np.round(np.log2(wanted / rms)))
    for name in node.input[1:]:
        constants[name] = constants[name].astype(np.float32) * gain
    return output.astype(np.float32) * gain


def _run(
    model: onnx.ModelProto, node: onnx.NodeProto, constants: MutableMapping[str, Array], values: dict[str, Array]
) -> Array:
    """The node's first output. Reshape targets that begin with the batch of 1 get the calibration's batch."""
    import onnxruntime

    feeds = {operand: values[operand] if operand in values else constants[operand] for operand in node.input}
    if node.op_type == "Reshape":
        target = feeds[node.input[1]].copy()
        target[0] = BATCH if target[0] == 1 else target[0]
        feeds[node.input[1]] = target
    infos = [
        helper.make_tensor_value_info(operand, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for operand, array in feeds.items()
    ]
    graph = helper.make_graph([node], "node", infos, [onnx.ValueInfoProto(name=node.output[0])])
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])
