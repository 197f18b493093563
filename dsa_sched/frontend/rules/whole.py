"""Operators that a target may want as one, where the frontend would take them apart (`decomposition/decompose.py`).

    LayerNormalization(axis=-1)  -->  Operation(layer_norm, axes=(2,), epsilon=1e-5)

Attributes that a file leaves out are written with ONNX's defaults, so that a target reads no ONNX. What the range of a
type asks of their arithmetic is the target's concern.
"""

from __future__ import annotations

from collections.abc import Mapping

from dsa_sched.frontend.decomposition.attention import ATTENTION_LIMITS, IN_FORM
from dsa_sched.frontend.decomposition.rotary import ROTARY_LIMITS
from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.operation import Refusal, Rule, Writer
from dsa_sched.frontend.rules.rules_elementwise import of_equal_rank
from partitioner.ir.graph import Attribute


def _norm(writer: Writer, node: Node) -> None:
    """Write a norm of lines along all axes from `axis` on, times the scale, plus the bias if there is one."""
    rank = len(writer.shape(node.inputs[0]))
    if not rank:
        raise Refusal("the value to normalise has no axes")
    if any(name in writer.network.readers or name in writer.network.outputs for name in node.outputs[1:] if name):
        raise Refusal("its mean and deviation are read too, which a whole norm does not give out")
    kind = "layer_norm" if node.op_type == "LayerNormalization" else "rms_norm"
    axes = tuple(range(node.integer("axis", -1) % rank, rank))
    attributes: dict[str, Attribute] = {"axes": axes, "epsilon": node.number("epsilon", 1e-5)}
    inputs = of_equal_rank(writer, node, tuple(filter(None, node.inputs)))
    writer.add(node, kind, attributes, inputs=inputs, outputs=node.outputs[:1])


def _require_form(node: Node) -> None:
    if not node.integer(IN_FORM, 0):
        raise Refusal({**ATTENTION_LIMITS, **ROTARY_LIMITS}[node.op_type])


def _attention(writer: Writer, node: Node) -> None:
    """Write attention of q, k, v by (batch, head, row, element), and a mask that is added to the scores, if there is
    one. A row sees at most this many columns to its left and right, -1 for all. A softcap above zero caps the scores.
    """
    _require_form(node)
    attributes: dict[str, Attribute] = {
        "scale": node.number("scale", 1.0),
        "softcap": node.number("softcap", 0.0),
        "left": node.integer("left_window_size", -1),
        "right": 0 if node.integer("is_causal", 0) else node.integer("right_window_size", -1),
    }
    writer.add(node, "attention", attributes, inputs=of_equal_rank(writer, node, node.inputs))


def _rotary(writer: Writer, node: Node) -> None:
    """Write a rotary embedding of x by (batch, head, row, element), cosines and sines by (batch, 1, row, half); the
    first `elements` are rotated, in pairs of neighbours where they are interleaved, else first half with second.
    """
    _require_form(node)
    attributes: dict[str, Attribute] = {
        "interleaved": node.integer("interleaved", 0),
        "elements": node.integer("rotary_embedding_dim", 0),
    }
    writer.add(node, "rotary_embedding", attributes, inputs=node.inputs)


WHOLE: Mapping[str, Rule] = {
    "LayerNormalization": _norm,
    "RMSNormalization": _norm,
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
}
"""Rules of operators that are wanted whole. Functions of one number have ordinary rules (`rules_elementwise.py`)."""
