"""The columns of a mask at computed places: what the mask says of keys that are read from elsewhere than the cache.

    LessOrEqual([0, 1, ..., n - 1], row)    at the column p    -->    LessOrEqual(p, row)

Masks of static caches are element-wise functions of the numbers of their columns and of integers of their rows. These
functions are written again for the places; of any other integers, and of numbers for one place, elements are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

from onnx import helper

from dsa_sched.frontend.decomposition.steps import integers, shaped, steps, truths
from dsa_sched.frontend.integers.preparation import counts_up
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from partitioner.ir.operators import Trait, onnx_names

BY_ELEMENT, VIEWS = onnx_names(Trait.ELEMENTWISE), onnx_names(Trait.VIEW)


def knows_columns(network: Network, name: str, places: Shape, prepares: Callable[[str], bool]) -> bool:
    """Whether columns of a mask at places of this shape can be written; `prepares` knows integers."""
    shape, constant = network.known_shape(name), network.constants.get(name)
    node = network.producer.get(name)
    if shape is None or not shape or shape[-1] == 1:
        return shape is not None
    operands = _operands(network, node, places[0]) if node is not None else ()
    if operands:
        return all(knows_columns(network, operand, places, prepares) for operand in operands)
    if constant is not None and counts_up(constant, shape[-1]):
        return True
    if places[0] > 1 or constant is not None:
        return places[0] == 1
    return places[-1] == 1 if network.values[name].dtype in FLOATING else prepares(name)


def columns_at(chain: Chain, name: str, places: str) -> str:
    """The mask with one column for each place [item or 1, 1, 1, new key], or its only column."""
    network, shape = chain.network, chain.shape(name)
    items, *_, count = chain.shape(places)
    if not shape or shape[-1] == 1:
        return name
    constant, node = network.constants.get(name), network.producer.get(name)
    wanted = (*shape[:-1], count)
    if constant is not None and counts_up(constant, shape[-1]):
        return integers(chain, "Add", places, constant.reshape(-1)[0])
    operands = _operands(network, node, items) if node is not None else ()
    dtype = int(helper.np_dtype_to_tensor_dtype(constant.dtype)) if constant is not None else network.values[name].dtype
    if node is None or not operands:
        if constant is None and dtype in FLOATING:
            return _number_at(chain, name, places)
        settings, flat = (("axis", len(shape) - 1),), shaped(chain, places, count)
        return chain.add("Gather", name, flat, shape=wanted, settings=settings, dtype=dtype)
    made = [columns_at(chain, operand, places) for operand in operands]
    if node.op_type in BY_ELEMENT:
        return chain.add(node.op_type, *made, settings=node.settings, dtype=dtype)
    if items > 1 or node.op_type == "Expand" or prod(chain.shape(made[0])) != prod(wanted):
        return made[0]
    return chain.add("Reshape", made[0], shape=wanted, dtype=dtype)


def _number_at(chain: Chain, name: str, place: str) -> str:
    """The only column of a mask of numbers at one place, as the largest of all when the others are far below."""
    shape = chain.shape(name)
    first = shaped(chain, place, *(1,) * len(shape))
    before, after = (steps(chain, integers(chain, "Add", first, more), shape[-1]) for more in (0, 1))
    there = truths(chain, "And", after, truths(chain, "Not", before))
    alone = chain.add("Where", there, name, chain.number(-inf), shape=shape, dtype=chain.network.values[name].dtype)
    return chain.reduced("ReduceMax", alone, (len(shape) - 1,))


def _operands(network: Network, node: Node, items: int) -> tuple[str, ...]:
    """The operands with the columns of a node; none where its columns are not those of operands, or where an axis of
    items, which places of several items bring, would not meet its axes of items."""
    shape = network.known_shape(node.outputs[0]) or ()
    if node.op_type in BY_ELEMENT:
        return node.inputs if all(network.known_shape(name) is not None for name in node.inputs) else ()
    source = network.known_shape(node.inputs[0]) or ()
    more = len(shape) - len(source)
    same = node.op_type in VIEWS and source[-1:] == shape[-1:]
    spread = node.op_type == "Expand" and source[-1:] in ((1,), shape[-1:])
    aligned = items == 1 or (node.op_type in VIEWS and shape == (*(1,) * more, *source))
    return node.inputs[:1] if (same or spread) and aligned else ()
