"""Operators that onnxruntime's optimisers and generators write for transformers, as standard ONNX.

    GroupQueryAttention(q, k, v, past k, past v, lengths - 1, total)
        -->  RotaryEmbedding at the places of the new rows, TensorScatter into the caches, Attention over their lengths
    SkipSimplifiedLayerNormalization(x, skip, gain)  -->  Add, RMSNormalization
    MatMulNBits(x, weights in blocks, scales)        -->  MatMul by the dequantised weights

`GroupQueryAttention` has two forms. Where the total length is computed, the caches have room for all rows, and new ones
are written at their places: one program serves every length. Where it is a constant (an initializer, or bound by
`--bind`), the caches have exactly the past rows, and new ones come after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.network.spelling import MICROSOFT, Rules, Spelled, Spelling

INT64 = int(onnx.TensorProto.INT64)
BY_ROW = {"perm": (0, 2, 1, 3)}
"""The permutation between [item, head, row, element] and [item, row, head, element]."""

CACHED, ROTATED, SET = 24, 23, 24
"""Operator sets that have TensorScatter and lengths of Attention, and RotaryEmbedding and RMSNormalization."""

NOT_TAKEN = ("smooth_softmax", "qk_output", "kv_cache_bit_width", "sliding_window_cache")
"""Attributes of GroupQueryAttention that must have their defaults."""


def _whole(s: Spelling, name: str, default: int = 0) -> int:
    """A whole number among the attributes; the default where the file has something else."""
    value = s.attributes().get(name, default)
    return value if isinstance(value, int) else default


# Norms


def _simplified_norm(s: Spelling) -> bool:
    if s.output(1):
        return False
    s.add("RMSNormalization", s.node.input[:2], s.attributes(), s.output(0), own=True)
    return True


def _skip(op_type: str, norms: int) -> Callable[[Spelling], bool]:
    """The sum of a value, a skip and a bias, and its norm, which reads `norms` operands besides."""

    def rule(s: Spelling) -> bool:
        if s.output(1) or s.output(2):
            return False
        bias = s.input(2 + norms)
        total = s.add("Add", s.node.input[:2], output="" if bias else s.output(3))
        if bias:
            total = s.add("Add", [total, bias], output=s.output(3))
        operands = [total, *filter(None, (s.input(2 + position) for position in range(norms)))]
        s.add(op_type, operands, {"axis": -1, "epsilon": s.attributes().get("epsilon", 1e-12)}, s.output(0), own=True)
        return True

    return rule


# Functions


def _gelu(biased: bool, approximate: str) -> Callable[[Spelling], bool]:
    def rule(s: Spelling) -> bool:
        x = s.add("Add", s.node.input[:2]) if biased and s.input(1) else s.input(0)
        s.add("Gelu", [x], {"approximate": approximate}, s.output(0), own=True)
        return True

    return rule


def _quick_gelu(s: Spelling) -> bool:
    alpha = s.attributes().get("alpha", 1.702)
    s.add("Swish", [s.input(0)], {"alpha": alpha}, s.output(0), own=True)
    return True


# Products


def _n_bits(s: Spelling) -> bool:
    """Weights in blocks along what is summed, four or eight bits each, less a zero point of their block."""
    bits, rows, columns, block = (_whole(s, name) for name in ("bits", "K", "N", "block_size"))
    packed, scales, zeros = (s.array(s.input(position)) for position in (1, 2, 3))
    computed = (s.input(3) and zeros is None) or _whole(s, "weight_prepacked")
    if (
        bits not in (4, 8)
        or packed is None
        or scales is None
        or computed
        or s.input(4)
        or min(rows, columns, block) < 1
    ):
        return False
    blocks = -(-rows // block)
    if packed.size != columns * blocks * block * bits // 8 or scales.size != columns * blocks:
        return False
    integers = _unpacked(packed.reshape(columns, blocks, -1), bits)
    middle = np.full((columns, blocks), 1 << (bits - 1), np.int64)
    if zeros is not None and zeros.dtype == np.uint8:
        width = -(-blocks * bits // 8)
        if zeros.size != columns * width:
            return False
        middle = _unpacked(zeros.reshape(columns, width), bits)[:, :blocks]
    elif zeros is not None:
        return False
    less = integers - middle[:, :, None]
    if blocks == 1 and np.abs(less + 0.5).max() < 128:
        weights = _in_integers(s, less.reshape(columns, -1)[:, :rows].astype(np.int8), scales.reshape(-1))
    else:
        numbers = less * scales.astype(np.float64).reshape(columns, blocks, 1)
        weights = s.constant(numbers.reshape(columns, -1)[:, :rows].T.astype(scales.dtype), "weights")
    product = s.add("MatMul", [s.input(0), weights], output="" if s.input(5) else s.output(0), own=True)
    if s.input(5):
        s.add("Add", [product, s.input(5)], output=s.output(0))
    return True


def _unpacked(packed: npt.NDArray[np.generic], bits: int) -> npt.NDArray[np.int64]:
    """Integers of bytes along the last axis, the low half of a byte first."""
    wide = packed.astype(np.uint8).astype(np.int64)
    if bits == 8:
        return wide
    return np.stack([wide & 15, wide >> 4], -1).reshape(*wide.shape[:-1], 2 * wide.shape[-1])


def _in_integers(s: Spelling, weights: npt.NDArray[np.int8], scales: npt.NDArray[np.generic]) -> str:
    """Weights [column, row] that stay int8, dequantised by column, as [row, column]."""
    stored = [s.constant(weights, "integers"), s.constant(scales.astype(np.float32), "scales")]
    numbers = s.add("DequantizeLinear", stored, {"axis": 0})
    return s.add("Transpose", [numbers], {"perm": (1, 0)})


# Attention


def _rotary(s: Spelling) -> bool:
    """Rotary embedding of rows at given places; one place is that of the first row."""
    attributes = s.attributes("is_packed_batching", "scale")
    if s.attributes().get("is_packed_batching", 0) or s.attributes().get("scale", 1.0) != 1.0:
        return False
    x, places, cosines, sines = s.node.input[:4]
    known = next((item for item in s.model.graph.input if item.name == places), None)
    rank = len(known.type.tensor_type.shape.dim) if known is not None else 0
    if places in s.constants:
        rank = len(s.constants[places].dims)
    if rank not in (1, 2):
        return False
    if rank == 1:
        items = s.add("Shape", [x], {"start": 0, "end": 1})
        places = s.add("Add", [s.add("Unsqueeze", [places, s.integers(0)]), _rows_from_zero(s, x)])
        places = s.add("Expand", [places, s.add("Concat", [items, s.integers(1)], {"axis": 0})])
    s.add("RotaryEmbedding", [x, cosines, sines, places], attributes, s.output(0), own=True)
    return True


def _rows_from_zero(s: Spelling, x: str, axis: int = 1) -> str:
    """[1, row]: the number of each row of x."""
    count = s.add("Squeeze", [s.add("Shape", [x], {"start": axis, "end": axis + 1}), s.integers(0)])
    bounds = [s.constant(np.array(bound, np.int64)) for bound in (0, 1)]
    return s.add("Unsqueeze", [s.add("Range", [bounds[0], count, bounds[1]]), s.integers(0)])


def _group_query_attention(s: Spelling) -> bool:
    attributes = s.attributes()
    heads, groups = _whole(s, "num_heads"), _whole(s, "kv_num_heads")
    others = any(attributes.get(name, 0) not in (0, -1) for name in NOT_TAKEN)
    if min(heads, groups) < 1 or others or any(map(s.input, range(11, 16))) or s.output(3):
        return False
    if not s.input(3) or not s.input(4) or not attributes.get("causal", 1):
        return False
    q, k, v = _apart(s, heads, groups)
    lengths = s.add("Add", [s.add("Cast", [s.input(5)], {"to": INT64}), s.integers(1)])
    lengths = s.add("Reshape", [lengths, s.integers(-1)])
    begins = s.add("Sub", [lengths, s.add("Shape", [q], {"start": 2, "end": 3})])
    rows = _rows_from_zero(s, q, 2)
    places = s.input(9) or s.add("Add", [s.add("Unsqueeze", [begins, s.integers(1)]), rows])
    if attributes.get("do_rotary", 0):
        q, k = (_turned(s, each, places) for each in (q, k))
    settings = {name: attributes[name] for name in ("scale", "softcap") if attributes.get(name, 0.0)}
    settings["is_causal"] = 1
    appended, window, mask = s.array(s.input(6)) is not None, _whole(s, "local_window_size", -1), s.input(10)
    if window >= 0 and mask:
        return False
    if appended:
        operands = [q, k, v, mask, s.input(3), s.input(4)]
        if window >= 0 or mask:
            return False
        y = s.add("Attention", operands, settings, own=True, further=[s.output(1), s.output(2)])
    else:
        present = [s.add("TensorScatter", [s.input(3 + each), new, begins], {"axis": -2}, s.output(1 + each))
                   for each, new in enumerate((k, v))]  # fmt: skip
        if window >= 0:
            mask = _windowed(s, present[0], places, window)
        y = s.add("Attention", [q, *present, mask, "", "", lengths], settings, own=True)
    flat = s.add("Transpose", [y], BY_ROW)
    s.add("Reshape", [flat, s.integers(0, 0, -1)], output=s.output(0))
    return True


def _apart(s: Spelling, heads: int, groups: int) -> Sequence[str]:
    """q, k and v as [item, head, row, element], also where they are side by side in one operand."""
    if s.input(1):
        split = [s.add("Reshape", [s.input(each), s.integers(0, 0, count, -1)])
                 for each, count in enumerate((heads, groups, groups))]  # fmt: skip
    else:
        joined = s.add("Reshape", [s.input(0), s.integers(0, 0, heads + 2 * groups, -1)])
        split = [s.fresh(name) for name in ("q", "k", "v")]
        s.add("Split", [joined, s.integers(heads, groups, groups)], {"axis": 2}, split[0], further=split[1:])
    return [s.add("Transpose", [each], BY_ROW) for each in split]


def _turned(s: Spelling, x: str, places: str) -> str:
    """The rotary embedding of rows at places, of as many elements as the tables have."""
    attributes = {"interleaved": _whole(s, "rotary_interleaved")}
    cosines = s.constants.get(s.input(7))
    if cosines is not None and len(cosines.dims) == 2:
        attributes["rotary_embedding_dim"] = 2 * int(cosines.dims[1])
    return s.add("RotaryEmbedding", [x, s.input(7), s.input(8), places], attributes)


def _windowed(s: Spelling, present: str, places: str, window: int) -> str:
    """Truth values [item, 1, row, column]: the columns of the last `window` places that a row sees."""
    columns = _rows_from_zero(s, present, 2)
    last = s.add("Unsqueeze", [places, s.integers(1, 3)])
    first = s.add("Sub", [last, s.constant(np.array(window - 1, np.int64))])
    return s.add("GreaterOrEqual", [s.add("Unsqueeze", [columns, s.integers(0, 1)]), first])


FUSED: Rules = {
    ("", "SimplifiedLayerNormalization"): Spelled(_simplified_norm, 2, ROTATED),
    (MICROSOFT, "SimplifiedLayerNormalization"): Spelled(_simplified_norm, 2, ROTATED),
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): Spelled(_skip("RMSNormalization", 1), 3, ROTATED),
    (MICROSOFT, "SkipLayerNormalization"): Spelled(_skip("LayerNormalization", 2), 3, 17),
    (MICROSOFT, "Gelu"): Spelled(_gelu(False, "none"), 1, 20),
    (MICROSOFT, "BiasGelu"): Spelled(_gelu(True, "none"), 2, 20),
    (MICROSOFT, "FastGelu"): Spelled(_gelu(True, "tanh"), 1, 20),
    (MICROSOFT, "QuickGelu"): Spelled(_quick_gelu, 1, SET),
    (MICROSOFT, "MatMulNBits"): Spelled(_n_bits, 3, 17),
    (MICROSOFT, "RotaryEmbedding"): Spelled(_rotary, 4, ROTATED),
    (MICROSOFT, "GroupQueryAttention"): Spelled(_group_query_attention, 7, CACHED),
}
"""Operators of onnxruntime's domain, and how they are spelled out."""
