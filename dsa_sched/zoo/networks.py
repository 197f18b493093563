"""The nine topologies of the onnx wheel with weights of our own.

light_resnet50.onnx  -->  seeded He weights  -->  statistics calibrated layer by layer  -->  ModelProto
"""

from __future__ import annotations

from importlib import resources

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from dsa_sched.zoo.gains import calibrate
from dsa_sched.zoo.inputs import seed_of
from hw_models.errors import ModelError

__all__ = ["zoo_model", "zoo_names"]

Floats = npt.NDArray[np.float32]

FILES = {
    "alexnet": "bvlc_alexnet",
    "densenet121": "densenet121",
    "inception_v1": "inception_v1",
    "inception_v2": "inception_v2",
    "resnet50": "resnet50",
    "shufflenet": "shufflenet",
    "squeezenet": "squeezenet",
    "vgg19": "vgg19",
    "zfnet512": "zfnet512",
}


def zoo_names() -> tuple[str, ...]:
    return tuple(FILES)


def zoo_model(name: str) -> onnx.ModelProto:
    """The network with its weights as initialisers. Raises ModelError for an unknown name."""
    if name not in FILES:
        raise ModelError(f"network {name}", needs=f"one of {', '.join(FILES)}")
    model = topology(name)
    constants = seeded_constants(model, name)
    calibrate(model, constants, name)
    with_constants(model, constants)
    return model


def topology(name: str) -> onnx.ModelProto:
    """The file as the wheel ships it."""
    file = resources.files("onnx") / "backend" / "test" / "data" / "light" / f"light_{FILES[name]}.onnx"
    model = onnx.ModelProto()
    model.ParseFromString(file.read_bytes())
    return model


def seeded_constants(model: onnx.ModelProto, name: str) -> dict[str, npt.NDArray[np.generic]]:
    """Every constant of the file by name: floating-point ones drawn by what reads them, others as they are."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    constants: dict[str, npt.NDArray[np.generic]] = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.data_type != onnx.TensorProto.FLOAT
    }
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(int(extent) for extent in constants[node.input[0]])
    roles = _roles(model, set(shapes) - set(constants))
    for constant, role in roles.items():
        constants[constant] = _draw(np.random.default_rng(seed_of(name, constant)), role, shapes[constant])
    return constants


def _roles(model: onnx.ModelProto, floating: set[str]) -> dict[str, str]:
    """Constant -> role, through the Unsqueeze that some files put between a vector and its reader."""
    result: dict[str, str] = {}
    spread: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type == "Unsqueeze" and node.input[0] in floating:
            spread[node.output[0]] = node.input[0]
        for position, operand in enumerate(node.input):
            constant = spread.get(operand, operand)
            if constant in floating and node.op_type != "Unsqueeze":
                result[constant] = f"{node.op_type}.{position}"
    return result


def _draw(generator: np.random.Generator, role: str, shape: tuple[int, ...]) -> Floats:
    match role:
        case "Conv.1":
            deviation = np.float32(np.sqrt(2 / np.prod(shape[1:])))
            return generator.standard_normal(shape, np.float32) * deviation
        case "Gemm.1":  # all of these files store the second factor transposed: (outputs, inputs)
            return generator.standard_normal(shape, np.float32) * np.float32(np.sqrt(1 / shape[1]))
        case "BatchNormalization.1" | "Mul.1":
            return generator.uniform(0.75, 1.25, shape).astype(np.float32)
        case "BatchNormalization.4":
            return np.ones(shape, np.float32)
        case "BatchNormalization.3":
            return np.zeros(shape, np.float32)
    return generator.standard_normal(shape, np.float32) * np.float32(0.1)


def with_constants(model: onnx.ModelProto, constants: dict[str, npt.NDArray[np.generic]]) -> None:
    """Put the constants in as initialisers, declared as inputs too, which files of this IR version must do."""
    graph = model.graph
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    used = {name for node in kept for name in node.input}
    del graph.node[:]
    graph.node.extend(kept)
    inputs = [item for item in graph.input if item.name not in {tensor.name for tensor in graph.initializer}]
    del graph.input[:], graph.initializer[:]
    graph.input.extend(inputs)
    for name, array in constants.items():
        if name in used:
            graph.initializer.append(numpy_helper.from_array(array, name))
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(helper.make_tensor_value_info(name, dtype, array.shape))
