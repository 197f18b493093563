"""Rule of Resize and of its predecessor Upsample. Rules raise Refusal for nodes that cannot be compiled."""

from __future__ import annotations

from dsa_sched.frontend.decomposition.resampling import OF_IMAGES, factors
from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from partitioner.ir.graph import Attribute


def resize(writer: Writer, node: Node) -> None:
    shape, out = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    if node.op_type == "Upsample":
        coordinates, mode = "asymmetric", node.text("mode", "nearest")
    else:
        coordinates = (
            "asymmetric" if writer.network.opset < 11 else node.text("coordinate_transformation_mode", "half_pixel")
        )
        mode = node.text("mode", "nearest")
    if node.integer("antialias", 0):
        raise Refusal("antialias")
    if coordinates not in OF_IMAGES or mode == "cubic" or shape[:2] != out[:2]:
        raise Refusal("the part of it that is read (roi) is computed at run time; it must be constant")
    old = node.op_type == "Upsample" or writer.network.opset < 11
    attributes: dict[str, Attribute] = {
        "mode": mode.replace("bilinear", "linear"),
        "coordinates": coordinates,
        "rounding": "simple" if old else node.text("nearest_mode", "round_prefer_floor"),
    }
    scales = factors(writer.network, node, len(shape))
    if scales and any(s * a != b for s, a, b in zip(scales, shape, out, strict=True)):
        attributes["scales"] = scales
    writer.add(node, "resize", attributes)
