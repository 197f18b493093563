"""Rewrites that keep the meaning and reduce the work: no-ops removed, Sum as Add, channel-wise affine maps folded.

    Conv -> BatchNormalization -> Mul -> Add -> Relu   -->   Conv -> Relu     (weights and bias in float64)
    Concat -> BatchNormalization -> Relu               -->   Concat -> ScaleShift -> Relu
    ScaleShift -> Relu -> Conv                         -->   Add -> Relu -> Conv, or Max -> Conv   (`gains.py`)

A node that absorbs others keeps its own name and takes the output name of the last of them, so that every remaining
tensor has the value that the user's file computes under that name; one that does not has an `Origin`. `ScaleShift(x,
scale, shift)` is an operator that ONNX does not have: x * scale + shift along axis 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.decomposition.decompose import decompose, decompose_attention, decompose_first
from dsa_sched.frontend.decomposition.recurrent import unroll_recurrent
from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import FLOATING, SCALE_SHIFT, Network, Node, Value
from dsa_sched.frontend.network.terms import number
from dsa_sched.frontend.network.traced import TracedArray
from dsa_sched.frontend.patterns.patterns import find_patterns
from dsa_sched.frontend.ranges.rules import keep_ranges
from dsa_sched.frontend.rewrites.gains import MEAN, VARIANCE, move_gains
from dsa_sched.frontend.rewrites.joined_products import join_products
from dsa_sched.frontend.rewrites.masks import replace_masks, without_guards
from dsa_sched.frontend.rewrites.norm_gains import move_norm_gains
from dsa_sched.frontend.rewrites.product_axes import with_axes_of_operands
from dsa_sched.frontend.rewrites.unread_rows import without_unread_rows
from partitioner.ir.operators import Trait, onnx_names
from partitioner.ir.wants import Rounding, Wants

Floats = npt.NDArray[np.float64]

CACHED_ELEMENTS = 1 << 15
"""Elements of weights that are looked at together."""

MOVED_SHIFT = 1 / 8
"""Largest shift, relative to the largest power of two of the type, that may follow a scale which it preceded in the
file: a sixteenth of the range is left to the shifted value.
"""


def simplify(network: Network, wants: Wants) -> Network:
    """Run all passes in order: unroll recurrent operators, find those that the file spells out, turn choices into
    arithmetic, take apart what a target does not want whole, and simplify the rest. Choices become arithmetic for
    narrow types, and where a target wants it.
    """
    whole, narrow = wants.whole, network.rounding.narrow
    of_file = network.values.keys()
    network = drop_no_ops(without_guards(network) if narrow else network).pruned()
    network = decompose_first(unroll_recurrent(network, whole), whole)
    network = find_patterns(network)
    network = decompose_attention(network, wants).pruned()
    network = replace_masks(network) if narrow or wants.arithmetic_choices else network
    network = without_unread_rows(network.pruned()).pruned()
    network = keep_ranges(network) if narrow else network
    network = decompose(network, whole, norms_of_lines=wants.norms_of_lines).pruned()
    for apply in PASSES:
        network = apply(network).pruned()
    network = with_axes_of_operands(network).pruned() if wants.products_by_row else network
    network = join_products(network).pruned() if wants.attention_columns else network
    origins = {name: origin for name, origin in network.origins.items() if origin.name in of_file}
    return replace(network, origins=origins)


def drop_no_ops(network: Network) -> Network:
    """Identity, inference Dropout, Cast between floating-point types: readers read the input.

    Where the output is an output of the network its name wins; where both names are fixed a Reshape stays as a copy.
    """
    nodes: list[Node] = []
    alias: dict[str, str] = {}
    fixed = {*network.inputs, *network.outputs, *network.constants}
    for node in network.nodes:
        node = replace(node, inputs=tuple(alias.get(name, name) for name in node.inputs))
        if not _is_no_op(network, node):
            nodes.append(node)
            continue
        source, output = node.inputs[0], node.outputs[0]
        if output not in network.outputs:
            alias[output] = source
        elif source in fixed:
            nodes.append(replace(node, op_type="Reshape", inputs=(source,), outputs=(output,), settings=()))
        else:
            fixed.add(output)
            nodes = [item.renamed({source: output}) for item in nodes]
            alias = {name: output if target == source else target for name, target in alias.items()}
            alias[source] = output
    return replace(network, nodes=tuple(nodes))


def drop_empty_pieces(network: Network) -> Network:
    """Pieces of a Concat that hold no element are left out; one piece alone is passed on."""
    nodes = []
    for node in network.nodes:
        if node.op_type == "Concat" and all(
            name in network.values or name in network.constants for name in node.inputs
        ):
            pieces = tuple(name for name in node.inputs if 0 not in network.shape(name))
            if len(pieces) == 1:
                node = Node(node.name, "Identity", pieces, node.outputs)
            elif pieces:
                node = replace(node, inputs=pieces)
        nodes.append(node)
    return replace(network, nodes=tuple(nodes))


def _is_no_op(network: Network, node: Node) -> bool:
    match node.op_type:
        case "Identity":
            return True
        case "Dropout":
            training = network.constants.get(node.input(2))
            unread = all(name not in network.readers and name not in network.outputs for name in node.outputs[1:])
            return unread and (not node.input(2) or (training is not None and not training.any()))
        case "Cast":
            value = network.values.get(node.inputs[0])
            return value is not None and value.dtype in FLOATING and node.integer("to", 0) in FLOATING
        case "Pad":
            pads = network.constants.get(node.input(1))
            amounts = node.integers("pads", ()) or (tuple(pads.reshape(-1).tolist()) if pads is not None else (1,))
            return not any(amounts)
    return False


def split_many_operands(network: Network) -> Network:
    """Sum, Max and Min of n operands become chains of two: Sum -> Add, Add, ..."""
    nodes: list[Node] = []
    values = dict(network.values)
    for node in network.nodes:
        known = all(name in values for name in (*node.inputs, node.outputs[0]))
        if node.op_type not in ("Sum", "Max", "Min") or not known:
            nodes.append(node)
            continue
        op_type = "Add" if node.op_type == "Sum" else node.op_type
        if len(node.inputs) == 1:
            nodes.append(replace(node, op_type="Identity"))
            continue
        running = node.inputs[0]
        for position, operand in enumerate(node.inputs[1:], 1):
            last = position == len(node.inputs) - 1
            name = node.name if position == 1 else f"{node.name}::{position}"
            output = node.outputs[0] if last else f"{node.outputs[0]}::{position}"
            shape = np.broadcast_shapes(network_shape(values, running), network_shape(values, operand))
            values[output] = Value(shape, values[node.outputs[0]].dtype)
            nodes.append(Node(name, op_type, (running, operand), (output,)))
            running = output
    return replace(network, nodes=tuple(nodes), values=values)


def network_shape(values: Mapping[str, Value], name: str) -> tuple[int, ...]:
    return values[name].shape


@dataclass(frozen=True, slots=True)
class Affine:
    """x * scale + shift along one axis; both have one element for each index of the axis, or one for all (scalar).
    `statistics` are mean and variance of x by channel, where a batch norm has them.
    """

    axis: int
    scale: TracedArray
    shift: TracedArray
    statistics: tuple[Floats, Floats] | None = None

    def after(self, first: Affine) -> Affine:
        """The map that applies `first` and then this one."""
        axis = first.axis if self.uniform else self.axis
        return Affine(axis, first.scale * self.scale, first.shift * self.scale + self.shift, first.statistics)

    @property
    def uniform(self) -> bool:
        return self.scale.array.size == 1 and self.shift.array.size == 1


def fold_affine(network: Network) -> Network:
    """Batch normalisation and constant Mul/Add along channels: into the convolution or matrix product before them, into
    one another, or into one ScaleShift. A lone Mul or Add that nothing absorbs stays as it is."""
    nodes: dict[str, Node] = {}  # by output name, in order
    draft, owned = Draft(network), dict[str, Affine]()
    for node in network.nodes:
        affine = affine_of(network, node)
        data = _data_input(network, node) if affine is not None else ""
        before = nodes.get(data)
        single = data not in network.outputs and len(network.readers.get(data, ())) == 1
        if affine is None:
            nodes[node.outputs[0]] = node
        elif (
            before is not None
            and single
            and data in owned
            and (merged := _merge(network.rounding, owned[data], affine))
        ):
            del nodes[data]
            owned[node.outputs[0]] = merged
            nodes[node.outputs[0]] = replace(before, op_type=SCALE_SHIFT, outputs=node.outputs[:1])
        elif before is not None and single and (absorbed := _absorb(draft, before, affine)):
            del nodes[data]
            nodes[node.outputs[0]] = replace(absorbed, outputs=node.outputs[:1])
        else:
            owned[node.outputs[0]] = affine
            nodes[node.outputs[0]] = node
    for output, affine in owned.items():
        if output in nodes and nodes[output].op_type in ("BatchNormalization", SCALE_SHIFT):
            nodes[output] = _scale_shift(draft, nodes[output], affine)
    return replace(draft.network, nodes=tuple(nodes.values()))


def _merge(rounding: Rounding, first: Affine, second: Affine) -> Affine | None:
    """Two maps in a row as one along axis 1; None where neither is channel-wise, or one of another axis is, and where
    one has numbers that the type cannot represent as exactly as those of both. A shift that a scale makes large stays
    before it, too: the value shifted first may be small where the value scaled first is beyond the range.
    """
    axes = {affine.axis for affine in (first, second) if not affine.uniform}
    if axes != {1}:
        return None
    merged = second.after(first)
    exact = all(
        _as_exact(rounding, *numbers)
        for numbers in ((merged.scale, first.scale, second.scale), (merged.shift, first.shift, second.shift))
    )
    most = MOVED_SHIFT * rounding.largest_power
    return merged if exact and np.all(np.abs((first.shift * second.scale).array) <= most) else None


def _as_exact(rounding: Rounding, product: TracedArray, *factors: TracedArray) -> bool:
    """Whether a type has each product, if it has all factors, without overflow and not with fewer digits."""
    size, (*factor_sizes,) = np.abs(product.float64), (np.abs(each.float64[each.float64 != 0]) for each in factors)
    largest, least = rounding.largest, rounding.smallest_normal
    overflows = np.any(size > largest) and all(np.all(sizes <= largest) for sizes in factor_sizes)
    vanishes = np.any((size > 0) & (size < least)) and all(np.all(sizes >= least) for sizes in factor_sizes)
    return not overflows and not vanishes


def affine_of(network: Network, node: Node) -> Affine | None:
    """The channel-wise affine map that a node computes with constants, or None."""
    match node.op_type:
        case "BatchNormalization":
            return _batch_norm(network, node)
        case "Add" | "Sub" | "Mul" | "Div":
            return _constant_operand(network, node)
    return None


def _batch_norm(network: Network, node: Node) -> Affine | None:
    read = any(name in network.readers for name in node.outputs[1:])
    if node.integer("training_mode", 0) or read or not all(name in network.constants for name in node.inputs[1:5]):
        return None
    scale, shift, mean, variance = (network.traced(name) for name in node.inputs[1:5])
    gain = scale / (variance + TracedArray.of(node.number("epsilon", 1e-5))).root()
    return Affine(1, gain, shift - mean * gain, (mean.float64.reshape(-1), variance.float64.reshape(-1)))


def _data_input(network: Network, node: Node) -> str:
    """The operand that is not constant."""
    return next((name for name in node.inputs if name not in network.constants), "")


def _constant_operand(network: Network, node: Node) -> Affine | None:
    constant = [network.constants.get(name) for name in node.inputs]
    known = [array for array in constant if array is not None]
    if len(known) != 1 or not np.issubdtype(known[0].dtype, np.floating):
        return None
    shape = network.shape(node.outputs[0])
    if network.shape(_data_input(network, node)) != shape:
        return None
    padded = (1,) * (len(shape) - known[0].ndim) + known[0].shape
    wide = [axis for axis, extent in enumerate(padded) if extent > 1]
    if len(wide) > 1 or len(padded) != len(shape) or len(shape) < 2:
        return None
    axis, vector = (wide or [1])[0], network.traced(node.inputs[constant[0] is None]).reshape(-1)
    one, zero, minus_one = (TracedArray(np.full(1, value), number(value)) for value in (1.0, 0.0, -1.0))
    match node.op_type, constant[0] is None:
        case "Add", _:
            return Affine(axis, one, vector)
        case "Sub", True:
            return Affine(axis, one, -vector)
        case "Sub", False:
            return Affine(axis, minus_one, vector)
        case "Mul", _:
            return Affine(axis, vector, zero)
        case "Div", True if np.all(vector.array != 0):
            return Affine(axis, one / vector, zero)
    return None


def _absorb(draft: Draft, node: Node, affine: Affine) -> Node | None:
    """The node with the map folded into its weights and bias, which become new constants; None where it cannot be."""
    network, constants = draft.network, draft.network.constants
    weights = constants.get(node.input(1))
    if weights is None or (node.input(2) and node.input(2) not in constants):
        return None
    rank = len(network.shape(node.outputs[0]))
    match node.op_type:
        case "Conv":
            axis, channels, along = 1, weights.shape[0], 0
        case "Gemm" if node.number("alpha", 1.0) == 1.0 and node.number("beta", 1.0) == 1.0:
            along = 0 if node.integer("transB", 0) else 1
            axis, channels = 1, weights.shape[along]
        case "MatMul" if weights.ndim == 2 and np.all(affine.scale.array == 1.0):
            axis, channels, along = rank - 1, weights.shape[1], 1
        case _:
            return None
    bias = constants[node.input(2)] if node.input(2) else np.zeros(1)
    by_channel = bias.size == 1 or (bias.size == channels and bias.shape[-1] == channels)
    if (not affine.uniform and affine.axis != axis) or not by_channel:
        return None
    scale, shift = affine.scale.broadcast(channels), affine.shift.broadcast(channels)
    spread = [1] * weights.ndim
    spread[along] = channels
    if not _takes_scale(network.rounding, weights, along, scale.float64):
        return None
    own = network.traced(node.input(2)).reshape(-1) if node.input(2) else TracedArray.of(0.0)
    names = (
        draft.store(f"{node.name}::weight", network.traced(node.inputs[1]) * scale.reshape(*spread)),
        draft.store(f"{node.name}::bias", own * scale + shift),
    )
    return replace(node, inputs=(node.inputs[0], *names))


def _takes_scale(rounding: Rounding, weights: npt.NDArray[np.generic], along: int, scale: Floats) -> bool:
    """Whether the type has the scaled weights of each channel about as exactly as the weights and their scale. A few
    channels at a time, which stay in the cache of the processor."""
    every = np.moveaxis(weights, along, 0).reshape(len(scale), -1)
    step = max(1, CACHED_ELEMENTS // max(1, every.shape[1]))
    for first in range(0, len(scale), step):
        rows, factors = every[first : first + step].astype(np.float64), scale[first : first + step, None]
        apart = _error(rounding, rows) + _error(rounding, factors)
        if not np.all(_error(rounding, rows * factors) <= apart + rounding.unit):
            return False
    return True


def _error(rounding: Rounding, rows: Floats) -> Floats:
    """Error of each row in the type, relative to its norm: 1 for a row that vanishes, infinite beyond the range."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        error = np.linalg.norm(rounding.rounded(rows) - rows, axis=1) / np.linalg.norm(rows, axis=1)
    return np.asarray(np.where(np.any(rows != 0, axis=1), np.nan_to_num(error, nan=np.inf, posinf=np.inf), 0.0))


def _scale_shift(draft: Draft, node: Node, affine: Affine) -> Node:
    data, output = _data_input(draft.network, node), node.outputs[0]
    channels = draft.network.shape(output)[1]
    names = (
        draft.store(f"{node.name}::scale", affine.scale.broadcast(channels)),
        draft.store(f"{node.name}::shift", affine.shift.broadcast(channels)),
    )
    said = zip((MEAN, VARIANCE), affine.statistics or (), strict=False)
    settings = tuple((name, tuple(vector.tolist())) for name, vector in said)
    return Node(node.name, SCALE_SHIFT, (data, *names), (output,), settings)


RESHAPES = onnx_names(Trait.VIEW) - onnx_names(Trait.ELEMENTWISE)


def unify_reshapes(network: Network) -> Network:
    """Reshape, Flatten, Squeeze and Unsqueeze become Reshape with one input; its target is the shape of the output."""

    def plain(node: Node) -> Node:
        if node.op_type in RESHAPES:
            return Node(node.name, "Reshape", node.inputs[:1], node.outputs)
        return node

    return replace(network, nodes=tuple(plain(node) for node in network.nodes))


def join_transposes(network: Network) -> Network:
    """A transpose of a transpose is one of what the first one reads, or nothing at all."""
    nodes, made = list[Node](), dict[str, Node]()
    for node in network.nodes:
        before = made.get(node.inputs[0]) if node.op_type == "Transpose" else None
        if before is not None:
            whole = tuple(range(len(network.shape(before.inputs[0]))))
            first, then = (each.integers("perm", whole[::-1]) for each in (before, node))
            perm = tuple(first[axis] for axis in then)
            kind, settings = ("Identity", ()) if perm == whole else ("Transpose", (("perm", perm),))
            node = Node(node.name, kind, before.inputs, node.outputs, settings)
        if node.op_type == "Transpose":
            made[node.outputs[0]] = node
        nodes.append(node)
    return replace(network, nodes=tuple(nodes))


PASSES: tuple[Callable[[Network], Network], ...] = (
    split_many_operands,
    drop_empty_pieces,
    join_transposes,
    drop_no_ops,
    unify_reshapes,
    fold_affine,
    move_gains,
    move_norm_gains,
)
