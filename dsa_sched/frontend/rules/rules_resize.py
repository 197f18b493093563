"""Rule of Resize and of its predecessor Upsample. Rules raise Refusal for nodes that cannot be compiled."""

from __future__ import annotations

from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from partitioner.ir.graph import Attribute

__all__ = ["resize"]


def resize(writer: Writer, node: Node) -> None:
    shape, out = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    if shape[:2] != out[:2]:
        raise Refusal("the batch or the channels are resized; only spatial axes can be")
    if node.op_type == "Upsample":
        coordinates, mode = "asymmetric", node.text("mode", "nearest")
    else:
        coordinates = (
            "asymmetric" if writer.network.opset < 11 else node.text("coordinate_transformation_mode", "half_pixel")
        )
        mode = node.text("mode", "nearest")
    if coordinates not in ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners") or mode == "cubic":
        raise Refusal(f"mode {mode} with coordinates {coordinates}")
    if node.integer("antialias", 0):
        raise Refusal("antialias")
    old = node.op_type == "Upsample" or writer.network.opset < 11
    attributes: dict[str, Attribute] = {
        "mode": mode.replace("bilinear", "linear"),
        "coordinates": coordinates,
        "rounding": "simple" if old else node.text("nearest_mode", "round_prefer_floor"),
    }
    scales = _scales(writer, node, 1 if old else 2)
    if scales and any(s * a != b for s, a, b in zip(scales, shape, out, strict=True)):
        attributes["scales"] = scales
    writer.add(node, "resize", attributes)


def _scales(writer: Writer, node: Node, position: int) -> tuple[float, ...]:
    """The factor of each axis where the file gives factors instead of extents, else nothing."""
    array = writer.constants.get(node.input(position))
    attribute = node.setting("scales", ())
    listed = attribute if isinstance(attribute, tuple) else ()
    given = tuple(s for s in listed if isinstance(s, (int, float))) if array is None else array.reshape(-1).tolist()
    if not given:
        return ()
    rank = len(writer.shape(node.inputs[0]))
    factors = [1.0] * rank
    for axis, factor in zip(node.integers("axes", tuple(range(rank))), given, strict=True):
        factors[axis % rank] = float(factor)
    return tuple(factors)
