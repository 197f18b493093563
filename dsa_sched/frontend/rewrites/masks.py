"""Choices and truth values as arithmetic of numbers: no engine compares or chooses.

    Greater(a, b)       -->  t = Clip((a - b) * 2^15 * 2^15, 0, 1)      1 where true, else 0, of any two fp16 numbers
    And, Or, Not        -->  a * b, Max(a, b), 1 - a
    Where(t, a, b)      -->  Max(Min(a, m), Min(b, -m))                 m = infinity where t is true, else -infinity
    Where(k, a, b)      -->  the same with a constant m, and with Min(constant, m) computed
    ThresholdedRelu(x)  -->  Where(x > alpha, x, 0)
    Trilu(x)            -->  Where(constant triangle, x, 0)

So chosen infinities stay, and others leave no trace; a NaN that is not chosen does leave one, because no maximum on any
target drops it. A guard against NaN after a Softmax that has none is removed: Where(IsNaN(s), c, s) is s where no row
is masked as a whole; choices from a Softmax that may have one are refused, and truth values that leave the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from sys import float_info

import numpy as np
import onnx

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.draft import Draft, rewritten
from dsa_sched.frontend.network.matching import Pattern, either, matches, op, value
from dsa_sched.frontend.network.matching import number as constant
from dsa_sched.frontend.network.network import FLOATING, Array, Network, Node
from dsa_sched.frontend.network.terms import Term, number, triangle
from partitioner.ir.operators import Trait, onnx_names

BOOL, FLOAT = int(onnx.TensorProto.BOOL), int(onnx.TensorProto.FLOAT)
LEAST_THRESHOLD = 12.0
"""Smallest x for which x and Softplus(x) are the same fp16 number."""
SMALLEST_OF_A_ROW = -1e4
"""Smallest mask element of which one in a row proves that the row is not masked as a whole, whatever the scores."""

NUMBERS = "operands are floating-point numbers or truth values of such, constant or not"
MASK_LIMITS: Mapping[str, str] = {
    **dict.fromkeys(sorted(onnx_names(Trait.COMPARES)), NUMBERS),
    **dict.fromkeys(sorted(onnx_names(Trait.LOGIC)), "operands are truth values of floating-point numbers"),
    "Where": "the condition is constant or a truth value of floating-point numbers, the others are such numbers; not "
    "from a Softmax of which a row may be masked as a whole, whose NaN would stay where it is not chosen",
    "Trilu": "floating-point numbers, and a constant diagonal",
    "ThresholdedRelu": "floating-point numbers",
    "IsNaN": "only where it guards a Softmax of which no row is masked as a whole: Where(IsNaN(s), constant, s)",
}
"""Text for the user where such a node cannot be expressed."""

MOVES = onnx_names(Trait.VIEW, Trait.MOVES)
"""Operators that pass truth values on unchanged."""


def replace_masks(network: Network) -> Network:
    """Replace all nodes that make truth values of numbers or of truth values, and all choices by those and by
    constants. Nodes that cannot be expressed this way stay, and are refused later.
    """
    network = without_guards(_with_open_rows(network).pruned())
    draft = Draft(network)
    made = {output for op in network.prepared for output in op.outputs}
    truths = {name for name in network.inputs if name in made and network.values[name].dtype == BOOL}
    for node in network.nodes:
        of_truth = node.op_type in MOVES and node.inputs[0] in truths and node.outputs[0] not in network.outputs
        rule, chain = RULES.get(node.op_type), Chain(network, node, dtype=FLOAT)
        if not of_truth and (rule is None or not _known(network, node) or not rule(chain, node, truths)):
            continue
        if not of_truth:
            draft.put(chain)
        if network.values[node.outputs[0]].dtype == BOOL:
            truths.add(node.outputs[0])
    for name in truths:
        draft.value(name, replace(network.values[name], dtype=FLOAT))
    return draft.finished()


def _known(network: Network, node: Node) -> bool:
    """Whether the shapes are known, and no truth value leaves the network."""
    shapes = all(name in network.values or name in network.constants for name in (*node.inputs, *node.outputs) if name)
    return shapes and not (node.outputs[0] in network.outputs and network.values[node.outputs[0]].dtype == BOOL)


def _truth(chain: Chain, name: str, truths: set[str]) -> str:
    """A truth value as 0 or 1; empty where it is none that is known to be so."""
    if name in truths or name in chain.values:
        return name
    constant = chain.network.constants.get(name)
    if constant is None or constant.dtype != np.bool_:
        return ""
    return chain.array(constant.astype(np.float32), chain.network.term(name))


def _number(chain: Chain, name: str, truths: set[str]) -> str:
    """A floating-point number, or a truth value as one; empty for anything else."""
    constant, value = chain.network.constants.get(name), chain.network.values.get(name)
    if constant is not None:
        return _truth(chain, name, truths) or (name if constant.dtype.kind == "f" else "")
    return name if name in truths or (value is not None and value.dtype in FLOATING) else ""


def _step(chain: Chain, difference: str) -> str:
    """1 where it is above zero, else 0: of any finite difference of two numbers."""
    step = chain.network.rounding.largest_power  # its square is more than one over the least difference
    far = chain.add("Mul", chain.add("Mul", difference, chain.number(step)), chain.number(step))
    return chain.add("Max", chain.add("Min", far, chain.number(1.0)), chain.number(0.0))


def _not(chain: Chain, truth: str) -> str:
    return chain.add("Sub", chain.number(1.0), truth)


def _compare(chain: Chain, node: Node, truths: set[str]) -> bool:
    a, b = (_number(chain, name, truths) for name in node.inputs)
    if a and b and not any(_is_finite(chain, name) for name in (a, b)):
        a, b = (_within(chain, name) for name in (a, b))
    if not a or not b:
        return False
    match node.op_type:
        case "Greater":
            _step(chain, chain.add("Sub", a, b))
        case "Less":
            _step(chain, chain.add("Sub", b, a))
        case "GreaterOrEqual":
            _not(chain, _step(chain, chain.add("Sub", b, a)))
        case "LessOrEqual":
            _not(chain, _step(chain, chain.add("Sub", a, b)))
        case _:
            _not(chain, _step(chain, chain.add("Abs", chain.add("Sub", a, b))))
    return True


def _is_finite(chain: Chain, name: str) -> bool:
    constant = chain.network.constants.get(name, chain.constants.get(name))
    return constant is not None and bool((np.abs(constant.astype(np.float64)) <= chain.network.rounding.largest).all())


def _within(chain: Chain, name: str) -> str:
    """Infinities as the largest numbers: two alike have no difference. Empty for constants of several numbers, some of
    them infinite."""
    constant = chain.network.constants.get(name)
    largest = chain.network.rounding.largest
    if constant is not None:
        return chain.number(float(np.clip(constant.reshape(-1)[0], -largest, largest))) if constant.size == 1 else ""
    return chain.add("Min", chain.add("Max", name, chain.number(-largest)), chain.number(largest))


def _connect(chain: Chain, node: Node, truths: set[str]) -> bool:
    operands = [_truth(chain, name, truths) for name in node.inputs]
    if not all(operands):
        return False
    shape = chain.shape(node.outputs[0])
    if all(chain.shape(name) != shape for name in operands):  # a target works on whole values with at most one other
        operands[0] = _whole(chain, operands[0], shape)
    match node.op_type:
        case "Not":
            _not(chain, operands[0])
        case "And":
            chain.add("Mul", *operands)
        case "Or":
            chain.add("Max", *operands)
        case _:
            chain.add("Abs", chain.add("Sub", *operands))
    return True


def _whole(chain: Chain, name: str, shape: tuple[int, ...]) -> str:
    """The operand broadcast to a shape."""
    constant = chain.constants.get(name)
    if constant is not None:
        own = (1,) * (len(shape) - constant.ndim) + constant.shape
        term = chain.terms[name].reshape(*own).broadcast(*shape)
        return chain.array(np.ascontiguousarray(np.broadcast_to(constant, shape)), term)
    return chain.add("Expand", name, chain.array(np.array(shape, np.int64), number(0.0)), shape=shape)


def _cast(chain: Chain, node: Node, truths: set[str]) -> bool:
    """A truth value to a number, or the converse."""
    x, to = node.inputs[0], node.integer("to", 0)
    if x in truths and (to in FLOATING or to == BOOL):
        chain.add("Identity", x)
        return True
    value = chain.network.values.get(x)
    if to == BOOL and value is not None and value.dtype in FLOATING:
        _step(chain, chain.add("Abs", x))
        return True
    return False


def _where(chain: Chain, node: Node, truths: set[str]) -> bool:
    condition, a, b = node.inputs
    if not all(_number(chain, name, truths) for name in (a, b)) or {a, b} & truths:
        return False
    constant = chain.network.constants.get(condition)
    if constant is not None and constant.dtype == np.bool_ and (constant.all() or not constant.any()):
        only = a if constant.all() else b
        if only not in chain.network.constants and chain.shape(only) == chain.shape(node.outputs[0]):
            chain.add("Identity", only)
            return True
    if any(_may_be_nan(chain.network, name) for name in (a, b)):
        return False
    if constant is not None and constant.dtype == np.bool_:
        _choose(chain, constant, chain.network.term(condition), a, b)
        return True
    if condition not in truths:
        return False
    _either(chain, condition, a, b)
    return True


def _either(chain: Chain, truth: str, a: str, b: str) -> None:
    """Write a choice by a computed truth value."""
    sign = chain.add("Sub", truth, chain.number(0.5))
    first = chain.add("Min", a, chain.add("Mul", sign, chain.number(inf)))
    second = chain.add("Min", b, chain.add("Mul", sign, chain.number(-inf)))
    chain.add("Max", first, second)


def _thresholded(chain: Chain, node: Node, truths: set[str]) -> bool:
    x = _number(chain, node.inputs[0], truths)
    if not x or x in chain.network.constants:
        return False
    difference = chain.add("Sub", x, chain.number(node.number("alpha", 1.0)))
    _either(chain, _step(chain, difference), x, chain.number(0.0))
    return True


def _may_be_nan(network: Network, name: str) -> bool:
    """A Softmax, perhaps of another type, whose rows may be masked as a whole: choices guard these against NaN, which
    arithmetic cannot leave out."""
    made = network.producer.get(name)
    while made is not None and made.op_type in ("Identity", "Cast", "CastLike"):
        made = network.producer.get(made.inputs[0])
    return made is not None and made.op_type == "Softmax" and not _never_nan(network, made.outputs[0])


def _choose(chain: Chain, condition: Array, term: Term, a: str, b: str) -> None:
    """Write a choice by a constant: infinities and, where the operand is constant too, their minimum are constants."""
    sign = term - number(0.5)
    first = _kept(chain, a, np.where(condition, np.float32(inf), np.float32(-inf)), sign * number(inf))
    second = _kept(chain, b, np.where(condition, np.float32(-inf), np.float32(inf)), sign * number(-inf))
    chain.add("Max", first, second)


def _kept(chain: Chain, operand: str, bound: Array, term: Term) -> str:
    constant = chain.network.constants.get(operand)
    if constant is None:
        return chain.add("Min", operand, chain.array(bound, term))
    return chain.array(np.minimum(constant, bound), chain.network.term(operand).least(term))


def _triangle(chain: Chain, node: Node, truths: set[str]) -> bool:
    """Write a triangle of each matrix, with zeros elsewhere."""
    del truths
    x, shape = node.inputs[0], chain.shape(node.inputs[0])
    diagonal = chain.network.constants.get(node.input(1), np.array(0)) if node.input(1) else np.array(0)
    value = chain.network.values.get(x)
    if value is None or value.dtype not in FLOATING or (node.input(1) and node.input(1) not in chain.network.constants):
        return False
    rows, columns = shape[-2:]
    first, upper = int(np.asarray(diagonal).reshape(-1)[0]), node.integer("upper", 1)
    ones = np.ones((rows, columns), np.bool_)
    kept = np.triu(ones, first) if upper else np.tril(ones, first)

    def matrix(inside: float, outside: float) -> str:
        term = triangle(rows, columns, first, bool(upper), inside, outside)
        return chain.array(np.where(kept, np.float32(inside), np.float32(outside)), term)

    chain.add("Max", chain.add("Min", x, matrix(inf, -inf)), matrix(-inf, 0.0))
    return True


Rule = Callable[[Chain, Node, set[str]], bool]

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(sorted(onnx_names(Trait.COMPARES)), _compare),
    **dict.fromkeys(sorted(onnx_names(Trait.LOGIC)), _connect),
    "Cast": _cast,
    "Where": _where,
    "ThresholdedRelu": _thresholded,
    "Trilu": _triangle,
}


def _with_open_rows(network: Network) -> Network:
    """Replace guards after a Softmax whose mask is computed and may close a row as a whole: zeros there by a product.

    Where(IsNaN(s), 0, s), s = Softmax(x + Where(c, 0, -inf))  -->  Softmax(x + Where(c, 0, -65504)) * ReduceMax(c)
    """
    return rewritten(network, _open_row)


FINITE = constant(low=-float_info.max, high=float_info.max)
MASK = either(
    op("Where", value("open"), FINITE, constant(-inf), name="mask"),
    op("Where", value("open"), constant(-inf, name="hidden"), FINITE, name="mask"),
)
"""A mask that may close a row as a whole; `hidden` is captured where its condition says what is closed."""

WEIGHTS = op("Softmax", op("Add", value("scores"), MASK), name="weights")


def _guard(weights: Pattern) -> Pattern:
    """The choice of another value where a weight is no number."""
    return op("Where", op("IsNaN", weights), value("other", computed=False), weights)


GUARDED_WEIGHTS, GUARDED_VALUE = _guard(WEIGHTS), _guard(value("guarded"))
GUARDED_SOFTPLUS = op(
    "Where",
    op("Greater", value("x"), constant(low=LEAST_THRESHOLD)),
    value("x"),
    op("Softplus", value("x"), name="guarded"),
)


def _open_row(chain: Chain, node: Node) -> bool:
    network = chain.network
    for found in matches(network, GUARDED_WEIGHTS, node.outputs[0]):
        open_, scores, zero = (found.values[name] for name in ("open", "scores", "other"))
        if zero in network.constants and not network.constants[zero].any() and _is_bounded(network, scores):
            softmax, mask = (network.producer[found.values[name]] for name in ("weights", "mask"))
            _write_open_row(chain, open_, scores, softmax, mask, hidden="hidden" in found.numbers)
            return True
    return False


def _write_open_row(chain: Chain, open_: str, scores: str, softmax: Node, mask: Node, *, hidden: bool) -> None:
    shape, of_mask = chain.shape(softmax.outputs[0]), chain.shape(open_)
    axis = softmax.integer("axis", -1) % len(shape) - len(shape)
    kept = mask.inputs[2 if hidden else 1]
    if hidden:  # it is true where the row is closed
        open_ = chain.add("Not", open_, suffix="open", dtype=BOOL)
    largest = chain.network.rounding.largest
    least = chain.array(np.array(-largest, np.float32), number(-largest), "least")
    added = chain.add("Where", open_, kept, least, shape=of_mask, suffix="mask")
    weights = chain.add(
        "Softmax", chain.add("Add", scores, added, suffix="sum"), settings=softmax.settings, suffix="soft"
    )
    is_open = chain.add("Cast", open_, settings=(("to", FLOAT),), suffix="number")
    any_shape = tuple(1 if place == len(of_mask) + axis else extent for place, extent in enumerate(of_mask))
    settings = (("axes", (axis,)), ("keepdims", 1))
    chain.add("Mul", weights, chain.add("ReduceMax", is_open, shape=any_shape, settings=settings, suffix="any"))


def without_guards(network: Network) -> Network:
    """Choices that never choose, or between values that are the same fp16 number: the value itself."""
    nodes = tuple(
        replace(node, op_type="Identity", inputs=(kept,)) if (kept := _guarded(network, node)) else node
        for node in network.nodes
    )
    return replace(network, nodes=nodes)


def _guarded(network: Network, node: Node) -> str:
    """The value that a choice never leaves; empty for other nodes."""
    guards = [found.values["guarded"] for found in matches(network, GUARDED_VALUE, node.outputs[0])]
    same = [found.values["guarded"] for found in matches(network, GUARDED_SOFTPLUS, node.outputs[0])]
    return next((name for name in guards if _never_nan(network, name)), next(iter(same), ""))


def _never_nan(network: Network, name: str) -> bool:
    """A Softmax of finite scores, to which at most a constant mask is added that leaves something of every row."""
    softmax = network.producer.get(name)
    if softmax is None or softmax.op_type != "Softmax" or name not in network.values:
        return False
    if _is_bounded(network, softmax.inputs[0]):
        return True
    shape = network.shape(name)
    made = network.producer.get(softmax.inputs[0])
    if made is None or made.op_type in SCORES:
        return made is not None
    masks = [network.constants[operand] for operand in made.inputs if operand in network.constants]
    if made.op_type != "Add" or len(masks) != 1 or not masks[0].ndim:
        return False
    spread = np.broadcast_to(masks[0], shape)
    return bool((spread.max(axis=softmax.integer("axis", -1)) >= SMALLEST_OF_A_ROW).all())


def _is_bounded(network: Network, name: str) -> bool:
    """Finite in the file: scores, finite constants, choices between such and sums of such."""
    constant = network.constants.get(name)
    if constant is not None:
        return constant.dtype.kind != "f" or bool(np.isfinite(constant).all())
    made = network.producer.get(name)
    if made is None:
        return False
    if made.op_type in SCORES:
        return True
    chosen = made.inputs[1:] if made.op_type == "Where" else made.inputs[:1] if made.op_type in MOVES else made.inputs
    return made.op_type in ("Add", "Sub", "Where", *MOVES) and all(_is_bounded(network, other) for other in chosen)


SCORES = frozenset(["MatMul", "Gemm", "Mul", "Div"])
"""Operators that make scores where no mask is added."""
