"""Number of windows of a pool with `ceil_mode` whose last window would begin in the padding.

    x [5], kernel 2, stride 3, pads 1 and 1    windows at -1, 2, 5: the last one holds padding alone and is left out

Operator sets from 22 on say that such windows are left out; sets before 22 do not, and shape inference follows each to
the letter. onnxruntime leaves them out whatever the set, and so does what exporters were tested with: so do we.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

from dsa_sched.frontend.network.network import Node, Value, node_of, opset_of

POOLS = ("AveragePool", "MaxPool", "LpPool")
SAID_SINCE = 22
"""First operator set in which ONNX itself defines this."""


def drop_windows_in_padding(model: onnx.ModelProto, values: Mapping[str, Value]) -> bool:
    """Rewrite pools that have such windows, as far as their operands are known, so that inference counts the windows
    that are left; `model` is for inference alone. Returns whether there were any.
    """
    found = False
    for proto in model.graph.node if opset_of(model) < SAID_SINCE else ():
        if proto.op_type not in POOLS or proto.domain or not proto.input or proto.input[0] not in values:
            continue
        node = node_of(proto)
        ends = _ends(node, values[proto.input[0]].shape)
        if ends is None:
            continue
        kept = [attribute for attribute in proto.attribute if attribute.name not in ("ceil_mode", "pads", "auto_pad")]
        del proto.attribute[:]
        proto.attribute.extend([*kept, helper.make_attribute("pads", ends)])
        found = True
    return found


def _ends(node: Node, shape: tuple[int, ...]) -> list[int] | None:
    """Pads with which all remaining windows end inside, with nothing rounded up; None if none begins in the padding."""
    kernel = node.integers("kernel_shape", ())
    rank = len(kernel)
    if not node.integer("ceil_mode", 0) or node.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID", ""):
        return None
    if len(shape) != rank + 2:
        return None
    ones = (1,) * rank
    pads = node.integers("pads", (0,) * (2 * rank)) if node.text("auto_pad", "NOTSET") != "VALID" else (0,) * (2 * rank)
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    ends, dropped = list[int](), False
    for axis, extent in enumerate(shape[2:]):
        begin, end, stride = pads[axis], pads[rank + axis], strides[axis]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        count = -(-(extent + begin + end - reach) // stride) + 1
        if (count - 1) * stride >= extent + begin:
            count, dropped = count - 1, True
        ends.append(max(0, (count - 1) * stride + reach - begin - extent))
    return [*pads[:rank], *ends] if dropped else None
