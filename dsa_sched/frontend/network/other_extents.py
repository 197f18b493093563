"""Check of inputs whose extents are not those in the file: do the operators of the file allow them?

    image [1, 3, 224, 224] --shape image=1,3,320,256-->  Conv, Relu, GlobalAveragePool ...     all follow
                                                        Reshape to [1, 25088]                  refused, by its name

The shape of most results follows from the operands, and shape inference reports contradictions. Operators that hold
extents as constants may pass it and use other elements than intended; they are checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import onnx

from dsa_sched.frontend.network.network import Array, Node, Value, array_of, node_of
from hw_models.errors import ModelError
from partitioner.ir.regions import matching_runs

Shape = tuple[int, ...]
CHANGE = "leave --shape as the file has it, or export the model with open dimensions"


def require_free_extents(model: onnx.ModelProto, before: Mapping[str, Value], after: Mapping[str, Value]) -> None:
    """Raises ModelError for the first operator that holds an extent of the shapes `before` where `after` has another
    one."""
    constants = {tensor.name: array_of(tensor) for tensor in model.graph.initializer if prod(tensor.dims) <= 64}
    for proto in model.graph.node:
        if proto.op_type == "Constant" and proto.attribute and proto.attribute[0].name == "value":
            constants[proto.output[0]] = array_of(proto.attribute[0].t)
            continue
        data = proto.input[0] if proto.input else ""
        if data not in before or data not in after or before[data].shape == after[data].shape:
            continue
        held = _held(node_of(proto), constants, before[data].shape, after[data].shape)
        if held:
            raise ModelError(
                f"{proto.op_type} {proto.name}",
                needs=f"extents that follow its operand, {list(before[data].shape)} in the file",
                has=f"{held} for {list(after[data].shape)}",
                change=CHANGE,
            )


def _held(node: Node, constants: Mapping[str, Array], old: Shape, new: Shape) -> str:
    """Text about a constant of a node that does not fit the new extents; empty if there is none."""
    match node.op_type:
        case "Reshape":
            return _of_reshape(node, constants, old, new)
        case "Resize":
            sizes = constants.get(node.input(3)) if len(node.inputs) > 3 else None
            fixed = [] if sizes is None else [int(size) for size in sizes.reshape(-1)]
            axes = node.integers("axes", tuple(range(len(old)))) if fixed else ()
            changed = [size for axis, size in zip(axes, fixed, strict=True) if old[axis] != new[axis]]
            return f"the extents {fixed}" if changed else ""
        case "Slice":
            return _of_slice(node, constants, old, new)
    return ""


def _of_reshape(node: Node, constants: Mapping[str, Array], old: Shape, new: Shape) -> str:
    """Text about a Reshape whose target does not fit; empty if it does. It fits if, wherever an extent changes, one
    entry of the target follows the operand and the others divide the extents that stay."""
    target = constants.get(node.input(1))
    if target is None:
        return ""
    numbers = [int(number) for number in target.reshape(-1)]
    resolved = [old[place] if number == 0 and place < len(old) else number for place, number in enumerate(numbers)]
    rest = prod(number for number in resolved if number != -1)
    resolved = [prod(old) // max(rest, 1) if number == -1 else number for number in resolved]
    for axes, places in matching_runs(old, tuple(resolved)) or ():
        if all(old[axis] == new[axis] for axis in axes):
            continue
        kept = prod(old[axis] for axis in axes if old[axis] == new[axis])
        # One number may follow: -1, or 0 where it stands for the operand's own extent.
        fixed = prod(numbers[place] for place in places if numbers[place] > 0)
        follows = any(numbers[place] <= 0 for place in places)
        if not follows or kept % fixed:
            return f"the target {numbers}"
    return ""


def _of_slice(node: Node, constants: Mapping[str, Array], old: Shape, new: Shape) -> str:
    """Text about a Slice that reached the end of an axis and no longer does; empty if there is none."""
    if len(node.inputs) > 2:
        given = constants.get(node.inputs[2])
        ends = () if given is None else tuple(int(end) for end in given.reshape(-1))
        named = constants.get(node.input(3)) if node.input(3) else None
        axes = tuple(range(len(ends))) if named is None else tuple(int(axis) for axis in named.reshape(-1))
    else:
        ends = node.integers("ends", ())
        axes = node.integers("axes", tuple(range(len(ends))))
    for axis, end in zip(axes, ends, strict=False):
        if old[axis] <= end < new[axis]:
            return f"the end {end} along axis {axis % len(old)}"
    return ""
