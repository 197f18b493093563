"""Attention that a file spells out, found again as the operator that it is.

    MatMul(q * a, k^T * b) * c + mask -> Softmax -> MatMul(v)  -->  Attention(q, k, v, mask, scale=a * b * c)

The walk goes up from a Softmax along its last axis: masks first (`attention_masks.py`), then a cap, then the scale,
then the product; and down to the product with the values. Scores and weights that something else reads too, or that
leave the network, are left as they are. k is found before it was transposed, and before its heads were repeated for
several of q.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from dsa_sched.frontend.decomposition.attention import FILL, swapped, transposed_keys
from dsa_sched.frontend.decomposition.attention_bias import UNGUARDED
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.matching import Captured, PatternRule, either, number, op, value
from dsa_sched.frontend.network.network import Network, Setting
from dsa_sched.frontend.network.queries import factor_of, is_computed, made_for
from dsa_sched.frontend.patterns.attention_masks import MaskWriter, heads_of, masks_above, put_together

MOST_STEPS = 8
"""Largest number of factors and views between a product and its operand."""

TOLERANCE = 1e-3
"""Relative tolerance of a cap: some files have it in fp16."""

USUAL = 1e-6
"""Relative tolerance of a scale of one over the root of a head's size: files have it, or its root, in fp32."""


WEIGHTS = op("Softmax", value("scores"), name="weights")
GUARDED = op("Where", op("IsNaN", WEIGHTS), number(0.0), WEIGHTS, name="guarded")
ATTENTION = op("MatMul", either(WEIGHTS, GUARDED), value("v"))


@dataclass(frozen=True, slots=True)
class _Product:
    """The scores before masks: q of (..., row, element), k, their scale, and where they are capped."""

    q: str
    k: _Keys
    scale: float
    cap: float


@dataclass(frozen=True, slots=True)
class _Keys:
    """k of (..., row, element) under this name, by another split of its leading axes, or `transposed`: its last two
    axes exchanged. `shape` is as if it were neither."""

    name: str
    shape: Shape
    transposed: bool


def _write(chain: Chain, found: Captured) -> None:
    """Write the attention around a softmax."""
    network, scores, v = chain.network, found.values["scores"], found.values["v"]
    shape, softmax = chain.shape(scores), network.producer[found.values["weights"]]
    if len(shape) not in (3, 4) or not found.is_closed(network):
        return
    if softmax.integer("axis", 1 if network.opset < 13 else -1) % len(shape) != len(shape) - 1:
        return
    masks = masks_above(network, scores, lambda name: _product(network, name) is not None)
    product = _product(network, masks.scores) if masks is not None else None
    if masks is None or product is None:
        return
    ahead = {operand[:-2] for operand in (network.shape(product.q), product.k.shape, network.shape(v), masks.shape)}
    if len(ahead) != 1 or network.shape(v)[-2] != masks.shape[-1]:
        return
    by_head = heads_of(masks, shape)
    together = put_together(network, masks, by_head)
    if together is not None:
        _write_attention(chain, product, v, together, by_head, guarded="guarded" in found.values)


def _product(network: Network, scores: str) -> _Product | None:
    """The product that makes the scores before masks; None where it is no product of two computed values."""
    capped = _cap(network, scores)
    scores, cap = capped if capped is not None else (scores, 0.0)
    scores, scale = _unscaled(network, scores, alone=True)
    node = made_for(network, scores, "MatMul")
    if node is None or not all(is_computed(network, name) for name in (*node.inputs, *node.outputs)):
        return None
    q, of_q = _unscaled(network, node.inputs[0])
    factor, of_factor = _unscaled(network, node.inputs[1])
    keys = _before_transpose(network, factor)
    k, of_k = _unscaled(network, keys.name)
    scale *= of_q * of_factor * of_k
    if not len(network.shape(q)) == len(keys.shape) == len(network.shape(node.outputs[0])) or not 0 < scale < inf:
        return None
    return _Product(q, replace(keys, name=k), scale, cap)


def _cap(network: Network, scores: str) -> tuple[str, float] | None:
    """x and c of c * Tanh(x / c)."""
    outer = factor_of(network, made_for(network, scores, "Mul", "Div"))
    tanh = made_for(network, outer[0], "Tanh") if outer is not None else None
    inner = factor_of(network, made_for(network, tanh.inputs[0], "Mul", "Div")) if tanh is not None else None
    if outer is None or inner is None or abs(outer[1] * inner[1] - 1) > TOLERANCE or outer[1] <= 0:
        return None
    return inner[0], outer[1]


def _unscaled(network: Network, name: str, *, alone: bool = False) -> tuple[str, float]:
    """The value before it was multiplied by numbers, and their product. `alone`: each step serves nothing else."""
    total = 1.0
    for _ in range(MOST_STEPS):
        node = made_for(network, name, "Mul", "Div") if alone else network.producer.get(name)
        found = factor_of(network, node)
        if found is None or not is_computed(network, found[0]):
            break
        name, total = found[0], total * found[1]
    return name, total


def _before_transpose(network: Network, name: str) -> _Keys:
    """The value before its last two axes were exchanged. Some exporters flatten the leading axes around that transpose:
    Reshape -> Transpose -> Reshape."""
    shape, node = network.shape(name), network.producer.get(name)
    wanted = (*shape[:-2], shape[-1], shape[-2])
    around = node is not None and node.op_type == "Reshape"
    if node is not None and around and (network.known_shape(node.inputs[0]) or ())[-2:] == shape[-2:]:
        node = network.producer.get(node.inputs[0])
    if node is None or node.op_type != "Transpose":
        return _Keys(name, wanted, transposed=True)
    rank = len(network.shape(node.outputs[0]))
    if node.integers("perm", tuple(reversed(range(rank)))) != swapped(rank):
        return _Keys(name, wanted, transposed=True)
    before = network.producer.get(node.inputs[0])
    reshaped = around and before is not None and before.op_type == "Reshape"
    source = before.inputs[0] if before is not None and reshaped else node.inputs[0]
    same = (network.known_shape(source) or ())[-2:] == wanted[-2:]
    return _Keys(source if same else node.inputs[0], wanted, transposed=False)


def _write_attention(
    chain: Chain, product: _Product, v: str, masks: MaskWriter, by_head: Shape, *, guarded: bool
) -> None:
    ahead = by_head[:2]
    rows, columns = by_head[2:]
    size, element = chain.shape(product.q)[-1], chain.shape(v)[-1]
    q = _viewed(chain, product.q, (*ahead, rows, size))
    grouped = None if product.k.transposed else _grouped(chain.network, product.k.name, (*ahead, columns, size))
    of_values = _grouped(chain.network, v, (*ahead, columns, element))
    if grouped is not None and of_values is not None and grouped[1] == of_values[1]:
        groups = grouped[1]
        k = _viewed(chain, grouped[0], (ahead[0], groups, columns, size))
        v = _viewed(chain, of_values[0], (ahead[0], groups, columns, element))
    else:
        k = _viewed(chain, product.k.name, (*ahead, *((size, columns) if product.k.transposed else (columns, size))))
        k = transposed_keys(chain, k) if product.k.transposed else k
        v = _viewed(chain, v, (*ahead, columns, element))
    mask, settings = masks(chain)
    usual = 1 / sqrt(size)
    found: dict[str, Setting] = dict(settings)
    if abs(product.scale - usual) > USUAL * usual:
        found["scale"] = product.scale
    if product.cap:
        found["softcap"] = product.cap
    if mask and not guarded and FILL not in found and not _sees_something(chain, mask):
        found[UNGUARDED] = 1
    inputs = (q, k, v, *filter(None, (mask,)))
    result = chain.add("Attention", *inputs, shape=(*by_head[:3], element), settings=tuple(sorted(found.items())))
    _viewed(chain, result, chain.shape(chain.node.outputs[0]))


def _sees_something(chain: Chain, mask: str) -> bool:
    """Whether a mask is constant and leaves something of every row."""
    array = chain.constants.get(mask, chain.network.constants.get(mask))
    return array is not None and bool((np.asarray(array, np.float64).max(-1) > -inf).all())


def _viewed(chain: Chain, name: str, shape: Shape) -> str:
    return name if chain.shape(name) == shape else chain.add("Reshape", name, shape=shape)


def _grouped(network: Network, name: str, shape: Shape) -> tuple[str, int] | None:
    """The (batch, head, row, element) value whose heads are each repeated, and its number of heads; None if none is."""
    for _ in range(MOST_STEPS):
        node = network.producer.get(name)
        if node is None or node.op_type not in ("Reshape", "Expand"):
            return None
        source = network.known_shape(node.inputs[0])
        if node.op_type == "Expand":
            break
        name = node.inputs[0]
    else:
        return None
    batch, heads, rows, element = shape
    wide = network.shape(node.outputs[0])
    if (
        source is None
        or len(wide) != 5
        or wide[0] != batch
        or wide[3:] != (rows, element)
        or wide[1] * wide[2] != heads
    ):
        return None
    if source != (batch, wide[1], 1, rows, element):
        return None
    before = network.producer.get(node.inputs[0])
    narrow = (batch, wide[1], rows, element)
    viewed = before is not None and before.op_type in ("Reshape", "Unsqueeze")
    if before is not None and viewed and network.known_shape(before.inputs[0]) == narrow:
        return before.inputs[0], wide[1]
    return node.inputs[0], wide[1]


ATTENTIONS = (PatternRule(ATTENTION, _write),)
