"""Rules that make each ONNX operator on integers out of words.

    rule(maker, node, output)  -->  maker.roots[output]

Rules raise Unprepared for nodes that cannot be made this way; these are refused later.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.frontend.integers.words import (
    BOOL,
    GATHERS,
    PLACES,
    WIDE,
    Rule,
    Unprepared,
    WordMaker,
    linear_places,
)
from dsa_sched.frontend.network.constant_folding import runtime_session
from dsa_sched.frontend.network.network import FLOATING, Network, Node, node_proto
from partitioner.ir.graph import Attribute
from partitioner.ir.operators import Trait, onnx_names

Words = npt.NDArray[np.int64]

BINARY: Mapping[str, str] = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "Min": "min",
    "Max": "max",
    "Equal": "equal",
    "Less": "less",
    "Greater": "greater",
    "LessOrEqual": "less_equal",
    "GreaterOrEqual": "greater_equal",
}
UNARY: Mapping[str, str] = {"Not": "not", "Neg": "neg", "Abs": "abs"}
REDUCED: Mapping[str, str] = {
    "ReduceSum": "sum",
    "ReduceMax": "greatest",
    "ReduceMin": "least",
    "ArgMax": "place_of_greatest",
    "ArgMin": "place_of_least",
}


def _same(maker: WordMaker, node: Node, output: str) -> None:
    if output != node.outputs[0]:
        raise Unprepared
    maker.roots[output] = maker.word(node.inputs[0])


def _cast(maker: WordMaker, node: Node, output: str) -> None:
    to = node.integer("to", 0)
    if maker.dtype(node.inputs[0]) in FLOATING and to in WIDE:
        maker.roots[output] = maker.of_numbers(node.inputs[0], "whole", f"{output}::whole")
        return
    word = maker.word(node.inputs[0])
    if to == BOOL and maker.dtype(node.inputs[0]) != BOOL:
        word = maker.function(node, "truth", (word,), maker.shape(output))
    elif to not in (BOOL, *WIDE) and maker.dtype(node.inputs[0]) not in (to, BOOL):
        raise Unprepared  # what does not fit wraps around
    maker.roots[output] = word


def _moved(maker: WordMaker, node: Node, output: str) -> None:
    """Make words by moving those of the first operand as the node moves its places."""
    places = _evaluated(maker.network, node, output)
    maker.roots[output] = maker.taken(node, maker.word(node.inputs[0]), places)


def _evaluated(network: Network, node: Node, output: str) -> Words:
    """Words that result when the node is evaluated on the linear places of its first operand."""
    if any(name and name not in network.constants for name in node.inputs[1:]):
        raise Unprepared
    if prod(network.shape(node.inputs[0])) > MOST_PLACES:
        raise Unprepared
    named = {name: network.constants[name] for name in node.inputs[1:] if name}
    named[node.inputs[0]] = linear_places(network.shape(node.inputs[0]))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in named.items()
    ]
    graph = helper.make_graph([node_proto(node)], "places", inputs, [onnx.ValueInfoProto(name=output)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", network.opset)], ir_version=8)
    try:
        (found,) = runtime_session(model).run([output], named)
    except Exception as error:  # onnxruntime raises several unrelated classes
        raise Unprepared from error
    return np.asarray(found, np.int64)


def _gather(maker: WordMaker, node: Node, output: str) -> None:
    """Gather by constant indices as a move; by computed ones, one word at a time."""
    if node.inputs[0] in maker.able and node.inputs[1] in maker.network.constants:
        _moved(maker, node, output)
        return
    rows, index = maker.rows(node)
    source, shape = maker.word(node.inputs[0]), maker.shape(output)
    width = prod(maker.shape(node.inputs[0])) // rows
    if width > 1:
        taken = prod(shape) // width
        index = maker.from_the_front(node, index, (taken,), rows)
        index = maker.taken(node, index, np.repeat(np.arange(taken), width))
        scaled = maker.function(node, "mul", (index, maker.constant(node, np.array(width))), (taken * width,))
        ends = maker.constant(node, np.tile(np.arange(width), taken))
        index = maker.function(node, "add", (scaled, ends), (taken * width,))
    maker.roots[output] = maker.fresh(node, "take", (source, index), shape)


def _binary(maker: WordMaker, node: Node, output: str) -> None:
    shape, function = maker.shape(output), BINARY[node.op_type]
    words = [maker.spread(node, name, shape) for name in node.inputs]
    total = words[0]
    for word in words[1:]:
        total = maker.function(node, function, (total, word), shape)
    maker.roots[output] = total


def _modulo(maker: WordMaker, node: Node, output: str) -> None:
    shape = maker.shape(output)
    words = tuple(maker.spread(node, name, shape) for name in node.inputs)
    maker.roots[output] = maker.function(node, "remainder" if node.integer("fmod", 0) else "mod", words, shape)


def _unary(maker: WordMaker, node: Node, output: str) -> None:
    word = maker.word(node.inputs[0])
    maker.roots[output] = maker.function(node, UNARY[node.op_type], (word,), maker.shape(output))


def _where(maker: WordMaker, node: Node, output: str) -> None:
    shape = maker.shape(output)
    words = tuple(maker.spread(node, name, shape) for name in node.inputs)
    maker.roots[output] = maker.function(node, "where", words, shape)


def _clip(maker: WordMaker, node: Node, output: str) -> None:
    shape, word = maker.shape(output), maker.word(node.inputs[0])
    for position, function in ((1, "max"), (2, "min")):
        if node.input(position):
            word = maker.function(node, function, (word, maker.word(node.inputs[position])), shape)
    maker.roots[output] = word


def _triangle(maker: WordMaker, node: Node, output: str) -> None:
    shape = maker.shape(output)
    diagonal = maker.network.constants.get(node.input(1), np.array(0)) if node.input(1) else np.array(0)
    if node.input(1) and node.input(1) not in maker.network.constants:
        raise Unprepared
    ones, first = np.ones(shape, np.int64), int(np.asarray(diagonal).reshape(-1)[0])
    kept = np.triu(ones, first) if node.integer("upper", 1) else np.tril(ones, first)
    words = (maker.word(node.inputs[0]), maker.constant(node, kept))
    maker.roots[output] = maker.function(node, "mul", words, shape)


def _running_sum(maker: WordMaker, node: Node, output: str) -> None:
    axis = maker.network.constants.get(node.inputs[1])
    if axis is None:
        raise Unprepared
    shape = maker.shape(output)
    place = int(axis.reshape(-1)[0]) % len(shape)
    flags = {name: node.integer(name, 0) for name in ("exclusive", "reverse")}
    word = maker.word(node.inputs[0])
    maker.roots[output] = maker.fresh(node, "cumsum", (word,), shape, {**_lines(shape, place, place + 1), **flags})


def _lines(shape: tuple[int, ...], first: int, last: int) -> dict[str, Attribute]:
    """Axes from `first` to before `last` as one that lines lie along."""
    return {"outer": prod(shape[:first]), "count": prod(shape[first:last]), "inner": prod(shape[last:])}


def _reduce(maker: WordMaker, node: Node, output: str) -> None:
    shape = maker.shape(node.inputs[0])
    if node.op_type in ("ArgMax", "ArgMin"):
        axes: tuple[int, ...] = (node.integer("axis", 0),)
    elif node.input(1):
        if node.inputs[1] not in maker.network.constants:
            raise Unprepared
        axes = tuple(int(v) for v in maker.network.constants[node.inputs[1]].reshape(-1))
    else:
        axes = node.integers("axes", ())
    if not axes and node.integer("noop_with_empty_axes", 0):
        maker.roots[output] = maker.word(node.inputs[0])
        return
    along = sorted(axis % len(shape) for axis in axes) or list(range(len(shape)))
    if along != list(range(along[0], along[-1] + 1)):
        raise Unprepared
    given = {**_lines(shape, along[0], along[-1] + 1), "last": node.integer("select_last_index", 0)}
    block = maker.block(node)
    if block is not None:
        maker.roots[output] = _place_by_blocks(maker, node, output, block)
        return
    word, function = maker.word(node.inputs[0]), REDUCED[node.op_type]
    maker.roots[output] = maker.fresh(node, "reduce", (word,), maker.shape(output), {"function": function, **given})


def _place_by_blocks(maker: WordMaker, node: Node, output: str, block: int) -> str:
    """The place of the extreme of each line of computed numbers: that of its block among the blocks' extremes, which
    the network finds, and its place in this block."""
    *outer, extent = maker.shape(node.inputs[0])
    lines, last, function = prod(outer), node.integer("select_last_index", 0), REDUCED[node.op_type]

    def best(words: str, count: int) -> str:
        given: dict[str, Attribute] = {"function": function, "outer": lines, "count": count, "inner": 1, "last": last}
        return maker.fresh(node, "reduce", (words,), (lines,), given)

    extremes = maker.ordered(maker.best_of_blocks(node.inputs[0], PLACES[node.op_type], block))
    chosen = best(extremes, extent // block)
    first = maker.function(node, "mul", (chosen, maker.constant(node, np.array(block))), (lines,))
    spread = maker.taken(node, first, np.repeat(np.arange(lines), block))
    steps = (np.arange(lines)[:, None] * extent + np.arange(block)).reshape(-1)
    places = maker.function(node, "add", (spread, maker.constant(node, steps)), (lines * block,))
    inside = best(maker.ordered_at(node, node.inputs[0], places, lines), block)
    return maker.function(node, "add", (first, inside), maker.shape(output))


def _concat(maker: WordMaker, node: Node, output: str) -> None:
    shape = maker.shape(output)
    axis = node.integer("axis", 0) % len(shape)
    words = tuple(maker.word(name) for name in node.inputs if 0 not in maker.shape(name))
    maker.roots[output] = maker.fresh(node, "join", words, shape, {"outer": prod(shape[:axis])})


MOST_PLACES = 1 << 26
"""Of a value whose elements are followed one by one: its shape comes from a stranger's file."""
NOT_EVALUATED = frozenset(["DepthToSpace", "SpaceToDepth"])
"""Operators that onnxruntime, which says where elements go, has for floating-point numbers alone."""

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(sorted(onnx_names(Trait.VIEW)), _same),
    **dict.fromkeys(sorted(onnx_names(Trait.MOVES, Trait.SPLITS) - NOT_EVALUATED), _moved),
    **dict.fromkeys(sorted(GATHERS), _gather),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(REDUCED, _reduce),
    "Mod": _modulo,
    "Where": _where,
    "Cast": _cast,
    "Clip": _clip,
    "Trilu": _triangle,
    "CumSum": _running_sum,
    "Concat": _concat,
}
