"""The nine topologies of the onnx wheel, and those built here, as clean models with weights of our own.

    light_resnet50.onnx (constant weights)  -->  seeded weights  -->  calibrated layer by layer  -->  ModelProto
    transformers, recurrent networks, two inputs  -->  seeded weights  -->  ModelProto

The names of nodes and values are the file's; the graph has the name of the network. The differences: weights are
initialisers, not ConstantOfShape nodes; only the image is a graph input (the IR version is raised to 4, which allows
that); unread values are removed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

import numpy as np
import onnx
from onnx import numpy_helper

from dsa_sched.zoo.calibration import Aims, calibrated
from dsa_sched.zoo.drawn_networks import DRAWN, PUBLISHED_SHAPES, drawn_model
from dsa_sched.zoo.evaluation import Tensor
from dsa_sched.zoo.inputs import low_frequency
from dsa_sched.zoo.topologies import inception_v3, inverted_residuals
from dsa_sched.zoo.topologies.nasnet import nasnet_topology
from dsa_sched.zoo.topologies.node_builder import Topology
from dsa_sched.zoo.topologies.resnet_tailor import resnet18_tailor_mini_topology, resnet18_tailor_topology
from dsa_sched.zoo.topologies.unet import unet_topology
from dsa_sched.zoo.weights import drawn, roles, seed_of
from hw_models.errors import ModelError

CALIBRATED: Mapping[str, Topology] = MappingProxyType(
    {
        **inception_v3.NETWORKS,
        **inverted_residuals.NETWORKS,
        "nasnet": nasnet_topology,
        "resnet18_tailor": resnet18_tailor_topology,
        "resnet18_tailor-mini": resnet18_tailor_mini_topology,
        "unet": unet_topology,
    }
)
"""Topologies of one image that the wheel does not ship. NAME-mini has the operators of NAME and runs in seconds."""

BUILT: Mapping[str, Topology] = MappingProxyType({**CALIBRATED, **DRAWN})
"""All topologies that the wheel does not ship."""

SHIPPED = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
SET_BY_OPERANDS = ("Clip", "Resize")  # these have further operands that say what they do
NAMES = tuple(sorted((*SHIPPED, *BUILT)))
DEFAULT_AIMS = Aims()
CALIBRATION_IMAGES = 8
FIRST_IR_VERSION_WITH_PLAIN_INITIALISERS = 4


def zoo_names() -> tuple[str, ...]:
    """The networks of the zoo, sorted."""
    return NAMES


def is_calibrated(name: str) -> bool:
    """Whether weights depend on the network's results for images, which takes seconds to find; else they are drawn."""
    return name not in DRAWN


def is_built(name: str) -> bool:
    """Whether it is written here, so that its weights are ConstantOfShape and its other constants none."""
    return name in BUILT


def published_shapes(name: str) -> Mapping[str, tuple[int, ...]]:
    """Shapes of inputs that the network's file leaves open, as it was published; empty for a file of fixed ones."""
    return PUBLISHED_SHAPES.get(name, {})


def topology_bytes(name: str) -> bytes:
    """The file that the wheel ships, or one of the same form. Raises ModelError for an unknown name."""
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
        raise ModelError(
            f"network {name}",
            needs=f"one of {', '.join(NAMES)}",
            change=f"did you mean {close[0]}?" if close else "",
        )
    if name in BUILT:
        return bytes(BUILT[name]().SerializeToString(deterministic=True))
    file = resources.files("onnx") / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    return file.read_bytes()


@dataclass(frozen=True, slots=True)
class _Topology:
    """The file without its weights: nodes that compute, constants that stay (integers, factors of a Resize, bounds
    of a Clip), shapes of the float ones, the image."""

    nodes: tuple[onnx.NodeProto, ...]
    kept: dict[str, Tensor]
    floats: dict[str, tuple[int, ...]]
    image: onnx.ValueInfoProto


def set_values(graph: onnx.GraphProto) -> frozenset[str]:
    """Float constants that decide what an operator does; all others are weights."""
    return frozenset(name for node in graph.node if node.op_type in SET_BY_OPERANDS for name in node.input[1:])


def _read(model: onnx.ModelProto) -> _Topology:
    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    nodes = tuple(node for node in model.graph.node if node.op_type != "ConstantOfShape")
    used = {name for node in nodes for name in node.input}
    constants_kept = set_values(model.graph) | {name for name, array in constants.items() if array.dtype.kind == "i"}
    kept = {name: array for name, array in constants.items() if name in constants_kept & used}
    floats = {name: array.shape for name, array in constants.items() if name in used and name not in kept}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.output[0] in used:
            floats[node.output[0]] = tuple(constants[node.input[0]].tolist())
    (image,) = (item for item in model.graph.input if item.name in used - constants.keys() - floats.keys())
    return _Topology(nodes, kept, dict(sorted(floats.items())), image)


def built_model(name: str, aims: Aims = DEFAULT_AIMS) -> onnx.ModelProto:
    """The network with seeded weights, made from scratch: seconds of work, the same bytes every time."""
    model = onnx.ModelProto()
    model.ParseFromString(topology_bytes(name))
    model.graph.name = name  # the wheel's file of squeezenet has another
    if name in DRAWN:
        return drawn_model(name, model)
    network = _read(model)
    part = roles(network.nodes, network.floats)
    floats = {constant: drawn(name, constant, part[constant], shape) for constant, shape in network.floats.items()}
    extents = (CALIBRATION_IMAGES, *(dim.dim_value for dim in network.image.type.tensor_type.shape.dim[1:]))
    images = low_frequency(np.random.default_rng(seed_of(name, "calibration")), extents)
    floats = calibrated(network.nodes, floats, network.kept, (network.image.name, images), aims)
    return _with_constants(model, network, {**network.kept, **floats})


def _with_constants(model: onnx.ModelProto, network: _Topology, constants: Mapping[str, Tensor]) -> onnx.ModelProto:
    result = onnx.ModelProto(
        ir_version=max(model.ir_version, FIRST_IR_VERSION_WITH_PLAIN_INITIALISERS),
        producer_name="dsa-sched zoo",
        opset_import=model.opset_import,
    )
    result.graph.name = model.graph.name
    result.graph.node.extend(network.nodes)
    result.graph.input.append(network.image)
    result.graph.output.extend(model.graph.output)
    result.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return result
