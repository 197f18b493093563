"""Rows that nothing reads are not computed: a Slice or Gather of a part moves before the nodes that make the rows.

    x -> LayerNormalization -> MatMul -> Add(x) -> Gather(row 0)
        -->  Slice(x) -> LayerNormalization -> MatMul -> Add(Slice(x)) -> Reshape

A classifier that reads only its class token needs one row of the last encoder layer; the logits of a text's next word
need the row of its last word; exporters compute all rows. The part is one span of one axis, never the first, which is
the batch. If all readers of a value want the same part, only that part is made, provided that its operator makes each
index of the axis from the same index of its operands; other operators keep their values whole, and one Slice cuts what
is read of them.

A value of which a part is left has a new name, and an origin that says which part of the file's value it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import ATTEND, FLOATING, Network, NetworkPart, Node, Origin, Value
from dsa_sched.frontend.network.terms import number
from dsa_sched.frontend.network.traced import TracedArray
from partitioner.ir.operators import Trait, onnx_names

BY_ELEMENT = onnx_names(Trait.ELEMENTWISE)

SOFTMAX_ALONG_ONE_AXIS = 13
"""First operator set in which Softmax works along one axis only, by default the last; before, it worked along
all axes from its axis on, by default the second.
"""

MASK = 2
"""Position of the mask in each group of operands of attention: k, v, mask."""

Wanted = tuple[NetworkPart | None, ...]
"""Part of each operand that a node needs; None for all of it."""


def without_unread_rows(network: Network) -> Network:
    """The network without the computation of such rows."""
    parts, wanted = _parts(network)
    return _Writer(network, parts, wanted, Draft(network)).written() if parts else network


def _parts(network: Network) -> tuple[dict[str, NetworkPart], dict[str, Wanted]]:
    """Values of which a part is enough, and the operand parts that the nodes making them want, by node name."""
    needs: dict[str, set[NetworkPart | None]] = {name: {None} for name in network.outputs}
    parts: dict[str, NetworkPart] = {}
    wanted: dict[str, Wanted] = {}
    for node in reversed(network.nodes):
        needed = needs.get(node.outputs[0], set())
        part = next(iter(needed)) if len(needed) == 1 and len(node.outputs) == 1 else None
        operands = _operands(network, node, part) if part is not None else None
        if part is not None and operands is not None:
            parts[node.outputs[0]], wanted[node.name] = part, operands
        else:
            operands = tuple(None if position else passed_part(network, node) for position in range(len(node.inputs)))
        for name, each in zip(node.inputs, operands, strict=True):
            needs.setdefault(name, set()).add(each)
    return parts, wanted


def passed_part(network: Network, node: Node) -> NetworkPart | None:
    """Part of its first operand that a Slice or Gather passes on; None for others, and where it is not one span of
    one axis after the first.
    """
    if node.op_type not in ("Slice", "Gather") or node.inputs[0] not in network.values:
        return None
    if any(name and name not in network.constants for name in node.inputs[1:]) or len(node.inputs) < 2:
        return None
    shape = network.shape(node.inputs[0])
    if not shape:
        return None
    axis, low, high = (_gathered if node.op_type == "Gather" else _sliced)(network, node, shape)
    return NetworkPart(axis, low, high) if axis and 0 <= low < high and high - low < shape[axis] else None


def _gathered(network: Network, node: Node, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Axis and span of a Gather; an empty span for indices that do not follow each other, or lie outside."""
    axis = node.integer("axis", 0) % len(shape)
    given = _integers(network, node.inputs[1])
    chosen = [index % shape[axis] for index in given if -shape[axis] <= index < shape[axis]]
    together = bool(chosen) and chosen == list(range(chosen[0], chosen[0] + len(given)))
    return (axis, chosen[0], chosen[-1] + 1) if together else (axis, 0, 0)


def _sliced(network: Network, node: Node, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Part that a Slice passes on; an empty span for one that cuts several axes, or takes steps."""
    starts, ends = _integers(network, node.inputs[1]), _integers(network, node.inputs[2])
    axes = _integers(network, node.input(3)) if node.input(3) else list(range(len(starts)))
    if any(step != 1 for step in (_integers(network, node.input(4)) if node.input(4) else ())):
        return 0, 0, 0
    spans = {
        axis % len(shape): slice(start, end).indices(shape[axis % len(shape)])[:2]
        for axis, start, end in zip(axes, starts, ends, strict=False)
    }
    cut = [(axis, *span) for axis, span in spans.items() if span != (0, shape[axis])]
    return cut[0] if len(cut) == 1 else (0, 0, 0)


def _integers(network: Network, name: str) -> list[int]:
    return [int(number) for number in np.asarray(network.constants[name]).reshape(-1)]


def _operands(network: Network, node: Node, part: NetworkPart) -> Wanted | None:
    """Parts of its operands that a node needs to make a part of its result; None where it needs more than a part, or a
    part of a constant, of integers or of truth values.
    """
    if any(name and name not in network.values for name in (*node.inputs, *node.outputs)):
        return None
    rank, position = len(network.shape(node.outputs[0])), part.axis
    found: Wanted | None = None
    match node.op_type:
        case name if name in BY_ELEMENT:
            found = tuple(_aligned(network, operand, part, rank) for operand in node.inputs)
        case "LayerNormalization" | "RMSNormalization" if position < node.integer("axis", -1) % rank:
            found = (part, *(_aligned(network, name, part, rank) for name in node.inputs[1:]))
        case "Softmax" | "LogSoftmax":
            axis = node.integer("axis", 1 if network.opset < SOFTMAX_ALONG_ONE_AXIS else -1) % rank
            after = position > axis and network.opset >= SOFTMAX_ALONG_ONE_AXIS
            found = (part,) if position < axis or after else None
        case "MatMul" if position < rank - 1 and len(network.shape(node.inputs[1])) == 2:
            found = part, None
        case "Transpose":
            order = node.integers("perm", tuple(reversed(range(rank))))
            known = sorted(order) == list(range(rank)) and order[position] > 0
            found = (replace(part, axis=order[position]),) if known else None
        case op_type if op_type == ATTEND and position == 1:
            rows = replace(part, axis=2)
            q = rows if len(network.shape(node.inputs[0])) > rank else part
            found = (q, *_met_by_attention(network, node, rows))
    cut = [name for name, each in zip(node.inputs, found or (), strict=False) if each]
    if found is None or any(name in network.constants or network.values[name].dtype not in FLOATING for name in cut):
        return None
    return found


def _met_by_attention(network: Network, node: Node, rows: NetworkPart) -> Wanted:
    """Parts of k, v and the mask, which may repeat, that rows of the scores meet: rows of masks, all of the others."""
    each = (len(node.inputs) - 1) // node.integer("parts", 1)
    named = enumerate(node.inputs[1:])
    return tuple(_aligned(network, name, rows, 4) if position % each == MASK else None for position, name in named)


def _aligned(network: Network, name: str, part: NetworkPart, rank: int) -> NetworkPart | None:
    """Part of an operand that meets a part of a result of this rank; None where it is the same for all."""
    if not name:
        return None
    shape = network.shape(name)
    axis = part.axis - (rank - len(shape))
    return replace(part, axis=axis) if axis >= 0 and shape[axis] > 1 else None


@dataclass
class _Writer:
    """Nodes that read and make parts; `new` are the parts that have a name already."""

    network: Network
    parts: Mapping[str, NetworkPart]
    wanted: Mapping[str, Wanted]
    draft: Draft
    new: set[str] = field(default_factory=set)

    def written(self) -> Network:
        for node in self.network.nodes:
            if node.name in self.wanted:
                slices, inputs = list[Node](), list[str]()
                for place, (name, part) in enumerate(zip(node.inputs, self.wanted[node.name], strict=True)):
                    inputs.append(self._part(name, part, f"{node.name}::{place}::slice", slices) if part else name)
                output = self._named(node.outputs[0], self.parts[node.outputs[0]])
                self.draft.exchange(node, *slices, replace(node, inputs=tuple(inputs), outputs=(output,)))
            elif node.inputs and node.inputs[0] in self.parts:
                source = self._named(node.inputs[0], self.parts[node.inputs[0]])
                same = self.draft.network.shape(source) == self.network.shape(node.outputs[0])
                self.draft.exchange(node, Node(node.name, "Identity" if same else "Reshape", (source,), node.outputs))
        return self.draft.finished()

    def _named(self, name: str, part: NetworkPart) -> str:
        """The name of a part of a value, which has a shape and an origin."""
        ours, value = _part_name(name, part), self.network.values[name]
        self.new.add(ours)
        shape = (*value.shape[: part.axis], part.high - part.low, *value.shape[part.axis + 1 :])
        return self.draft.value(ours, Value(shape, value.dtype), Origin(name, np.ones(1), np.zeros(1), part, axis=-1))

    def _part(self, name: str, part: NetworkPart, slicer: str, slices: list[Node]) -> str:
        """The part of a value; where that is whole, a node of the name `slicer` cuts it before its first reader."""
        known = _part_name(name, part) in self.new
        ours = self._named(name, part)
        if not known:
            bounds = tuple(
                self.draft.store(f"{ours}::{what}", TracedArray(np.array([index], np.int64), number(index)))
                for what, index in (("start", part.low), ("end", part.high), ("axis", part.axis))
            )
            slices.append(Node(slicer, "Slice", (name, *bounds), (ours,)))
        return ours


def _part_name(name: str, part: NetworkPart) -> str:
    return f"{name}::{part.axis}:{part.low}:{part.high}"
