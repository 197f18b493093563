"""Which operators are computed, by which kind of tile, and the tile's needs and instructions."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, MAIN, SCRATCHPAD, geometry_of
from codegen.gemmini.kernels.copies import copy_instrs, copy_work, is_joined_by_moving
from codegen.gemmini.kernels.elements import (
    KINDS,
    MOST_REGISTERS,
    MOST_SOURCES,
    chain_of,
    element_stream,
    source_place,
)
from codegen.gemmini.kernels.exponential import softmax_refusal, softmax_streams
from codegen.gemmini.kernels.finish import finish_of, groups_of
from codegen.gemmini.kernels.float_products import float_product_refusal, float_product_streams, is_float_product
from codegen.gemmini.kernels.lines import LINES, line_streams, lines_refusal
from codegen.gemmini.kernels.moves import MOVES, moved_streams
from codegen.gemmini.kernels.pools import pool_instrs, pool_work, pools_moving_out
from codegen.gemmini.kernels.product_tile import ProductTile, product_work
from codegen.gemmini.kernels.products import SUMS_NAME, product_instrs
from codegen.gemmini.kernels.windows import (
    WindowLayer,
    inexact,
    is_depthwise,
    whole_layer_instrs,
    window_streams,
)
from codegen.gemmini.streams.instructions import CORE_CYCLES, core_instr, fence
from hw_models.chip import Chip
from isched.lowering.strided_copies import box_regions
from isched.program.program import Instr
from isched.program.target import PlacedArray
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, full_box
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork

INT8, FLOAT = "int8", "float32"
PRODUCTS = ("conv", "matmul")
LARGEST_UNCUT = 64
"""Most output channels of a group that is not cut, where they are no whole blocks."""

WINDOWS = ("max_pool", "average_pool", "pad")
OPERATORS: Mapping[str, str] = {
    "conv": "On the array: int8 by constant int8 weights, sums in int32 with an int32 bias; groups narrower than the "
    "array are made one, with weights of zero between them. On the core: means, as those with one channel per group.",
    "max_pool": "Over images: int8 on the way out, where windows and steps are square and at most 3; else on the core, "
    "in float32.",
    "average_pool": "On the core, in float32, over images without padding.",
    "pad": "On the core, in float32, with a constant.",
    **dict.fromkeys(MOVES, "On the core, element by element, in float32 or int8; int8 is joined by moving in and out."),
    "softmax": "On the core, in float32, along the last axis.",
    "matmul": "On the array: int8 by int8, of which the second may be computed, sums in int32 with an int32 bias. On "
    "the core: float32, in the order of what is summed.",
    **dict.fromkeys(
        sorted(KINDS),
        "On the core, in float32 for each element, after a product or alone; operands of the result's shape, with one "
        "element, or repeated along some axes.",
    ),
}


def refusal(graph: Graph, op: Op, constants: Constants) -> str | None:
    """Why an operator is not computed, as a sentence; None where it is."""
    if op.is_view:
        return None
    if is_float_product(graph, op):
        return float_product_refusal(graph, op)
    if op.kind in LINES:
        return _line_refusal(graph, op)
    if op.kind in PRODUCTS:
        return _product_refusal(graph, op, constants)
    if op.kind in WINDOWS:
        return _window_refusal(graph, op)
    if op.kind in (*MOVES, "softmax"):
        return _whole_refusal(graph, op)
    if op.kind not in KINDS:
        return f"{op.kind} is not computed by gemmini-v3"
    wanted = _types(op)
    for name, dtype in zip((*op.inputs, *op.outputs), wanted, strict=True):
        if graph.by_name[name].dtype != dtype:
            return f"{name} is {graph.by_name[name].dtype}; here {op.kind} takes {dtype}"
    shape = graph.by_name[op.outputs[0]].shape
    for name in op.inputs:
        own = graph.by_name[name].shape
        if len(own) > len(shape) or any(a not in (1, b) for a, b in zip(reversed(own), reversed(shape), strict=False)):
            return f"{name} has the shape {list(own)}, which is not repeated to that of the result, {list(shape)}"
    return None


def _types(op: Op) -> tuple[str, ...]:
    match op.kind:
        case "widen":
            return (INT8, FLOAT)
        case "narrow":
            return (FLOAT, INT8)
        case "add_scaled":
            return (FLOAT, INT8, FLOAT)
        case _:
            return (FLOAT,) * (len(op.inputs) + 1)


def _window_refusal(graph: Graph, op: Op) -> str | None:
    x = graph.by_name[op.inputs[0]]
    types = (FLOAT, INT8) if op.kind == "max_pool" else (FLOAT,)
    if x.dtype not in types or len(op.inputs) > 1:
        return f"{x.name} is {x.dtype}; here {op.kind} takes one operand of {' or '.join(types)}"
    if op.kind != "pad" and len(x.shape) != 4:
        return f"{x.name} has {len(x.shape)} axes; windows are over images"
    if op.kind == "average_pool" and any(op.ints("pads")):
        return "its windows reach into padding; means of windows inside the image are computed"
    if op.kind == "pad" and min(*op.ints("begins"), *op.ints("ends")) < 0:
        return "it cuts off elements, which is not computed"
    return None


def _whole_refusal(graph: Graph, op: Op) -> str | None:
    types = {graph.by_name[name].dtype for name in (*op.inputs, *op.outputs)}
    known = (FLOAT,) if op.kind == "softmax" else (FLOAT, INT8)
    if len(types) > 1 or not types <= {*known}:
        return f"it has {' and '.join(sorted(types))}; here {op.kind} takes one of {', '.join(known)}"
    return softmax_refusal(graph, op) if op.kind == "softmax" else None


def _line_refusal(graph: Graph, op: Op) -> str | None:
    x = graph.by_name[op.inputs[0]]
    return lines_refusal(graph, op) if x.dtype == FLOAT else f"{x.name} is {x.dtype}; here {op.kind} takes {FLOAT}"


def _product_refusal(graph: Graph, op: Op, constants: Constants) -> str | None:
    x, weights = (graph.by_name[name] for name in op.inputs[:2])
    if x.dtype != INT8 or weights.dtype != INT8:
        return f"a {op.kind} of {x.dtype} and {weights.dtype}; the array multiplies int8 by int8: quantise the network"
    if not weights.constant and op.kind == "conv":
        return f"{weights.name} is computed; convolutions take constant weights"
    if op.kind == "conv" and len(x.shape) != 4:
        return f"{x.name} has {len(x.shape)} axes; convolutions are over images"
    if is_depthwise(graph, op):
        return inexact(graph, constants, op)
    if op.kind == "matmul" and min(len(weights.shape), len(x.shape)) < 2:
        return f"{weights.name} has {len(weights.shape)} axes and {x.name} {len(x.shape)}; both need two"
    result = graph.by_name[op.outputs[0]].shape
    if op.kind == "matmul" and x.shape[:-1] != result[:-1]:
        return f"{x.name} has the shape {list(x.shape)}, which is repeated to that of the result, {list(result)}"
    return None


def fuses(graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
    """Why an operator does not join the layer that makes `operand`; None where it does."""
    if layer[0].kind == "pad":
        return f"{layer[0].name} is alone in its layer"
    if graph.by_name[operand].dtype == INT8:
        return f"{operand} is {INT8}, in which no layer goes on"
    if op.kind not in KINDS:
        return f"{op.kind} is not element-wise"
    made_before = layer[0].kind not in KINDS
    epilogue = layer[1:] if made_before else layer
    held = {layer[0].outputs[0]: SUMS_NAME} if made_before else None
    chain = chain_of(graph, _numbered(graph), (*epilogue, op), held)
    if chain.registers > MOST_REGISTERS or len(chain.sources) >= MOST_SOURCES:
        return f"the loop of {layer[0].name} has no registers left for {op.name}"
    return None


def _numbered(graph: Graph) -> Constants:
    """Constants for counting values: a number of its own for each."""
    names = [tensor.constant for tensor in graph.tensors if tensor.constant]
    return {name: np.full(1, number, np.float32) for number, name in enumerate(names)}


def is_product(graph: Graph, layer: Layer) -> bool:
    """Whether the array computes the layer."""
    anchor = layer.anchor(graph)
    return anchor.kind in PRODUCTS and not is_depthwise(graph, anchor) and not is_float_product(graph, anchor)


def keeps(graph: Graph, constants: Constants, maker: Layer, readers: tuple[Layer, ...], chip: Chip) -> str | None:
    """Why a layer's output does not stay in the scratchpad for these readers; None where it does."""
    made, dim = graph.by_name[maker.output], geometry_of(chip).dim
    if not {(ACCUMULATOR, SCRATCHPAD), (SCRATCHPAD, SCRATCHPAD)} <= {
        (link.source, link.destination) for link in chip.links
    }:
        return "the chip file has no links from the accumulator and the scratchpad through the array to the scratchpad"
    if not is_product(graph, maker) or not finish_of(graph, constants, maker).on_array:
        return f"{maker.output} is finished by the core, which has only the main memory"
    if not _whole_blocks(graph, maker.anchor(graph), dim):
        return (
            f"{maker.output} has {made.shape[-1]} channels, or groups of channels, which are no whole blocks of {dim}"
        )
    for reader in readers:
        if not is_product(graph, reader):
            return f"{reader.name} is no product on the array, so it reads the main memory"
        if groups_of(reader.anchor(graph)) > 1 and not _whole_blocks(graph, reader.anchor(graph), dim):
            return f"{reader.name} has groups of channels that are no whole blocks of {dim}"
        if maker.output == reader.anchor(graph).inputs[1]:
            return f"{reader.name} loads {maker.output} as weights, from the main memory"
        terms = {term.name for term in finish_of(graph, constants, reader).terms}
        if any(maker.output in op.inputs for op in reader.epilogue(graph)) and maker.output not in terms:
            return f"{maker.output} is added by the core, since its scale is no whole number of units of the sums"
    return None


def _whole_blocks(graph: Graph, anchor: Op, dim: int) -> bool:
    """Whether the result's channels, in each group, are whole blocks, and so are the operand's where there are
    groups."""
    groups = groups_of(anchor)
    made, read = (graph.by_name[name].shape[-1] // groups for name in (anchor.outputs[0], anchor.inputs[0]))
    return made % dim == 0 and (groups == 1 or read % dim == 0)


def granularity(graph: Graph, layer: Layer, dim: int) -> tuple[int, ...]:
    """Products are cut anywhere but inside blocks of `dim` channels and small groups; what the core computes is not
    cut."""
    shape = graph.by_name[layer.output].shape
    anchor = layer.anchor(graph)
    if pools_moving_out(graph, anchor):
        return (*(1,) * (len(shape) - 1), dim)
    if not is_product(graph, layer):
        return (0,) * len(shape)
    each = shape[-1] // groups_of(anchor)
    return (*(1,) * (len(shape) - 1), each if each <= LARGEST_UNCUT and each % dim else dim)


def work(graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
    if is_product(graph, layer):
        return product_work(graph, layer, box, chip)
    if pools_moving_out(graph, layer.anchor(graph)):
        return pool_work(graph, layer, box, chip)
    if is_joined_by_moving(graph, layer.anchor(graph)):
        return copy_work(graph, layer, chip)
    buffer = TileBuffer("nothing", SCRATCHPAD, "", chip.memory(SCRATCHPAD).alignment_bytes)
    loads = tuple(TileLoad(name, full_box(graph.by_name[name].shape), "nothing") for name in layer.inputs(graph))
    cycles = CORE_CYCLES * max(prod(box_shape(box)), layer.anchor(graph).macs)
    return TileWork((buffer,), (Pass(loads),), "nothing", (("core", cycles),))


def instrs(
    graph: Graph, constants: Constants, layer: Layer, box: Box, offsets_bytes: Mapping[str, int],
    operands: Mapping[str, PlacedArray], result: PlacedArray, chip: Chip, held: frozenset[str],
) -> tuple[Instr, ...]:  # fmt: skip
    """Instructions of a tile, from where its operands lie to where its result goes."""
    if is_product(graph, layer):
        tile = ProductTile(graph, constants, layer, box, offsets_bytes, operands, result, chip, held)
        return product_instrs(tile)
    if pools_moving_out(graph, layer.anchor(graph)):
        return pool_instrs(graph, layer, box, offsets_bytes, operands, result, chip)
    if is_joined_by_moving(graph, layer.anchor(graph)):
        return copy_instrs(graph, layer, offsets_bytes, operands, result, chip)
    kind = layer.anchor(graph).kind
    whole = WindowLayer(graph, constants, layer, operands, result)
    if is_float_product(graph, layer.anchor(graph)):
        return whole_layer_instrs(whole, float_product_streams(whole))
    if kind in LINES:
        return whole_layer_instrs(whole, line_streams(whole))
    if kind in (*WINDOWS, *PRODUCTS):
        return whole_layer_instrs(whole, window_streams(whole))
    if kind in (*MOVES, "softmax"):
        return whole_layer_instrs(whole, softmax_streams(whole) if kind == "softmax" else moved_streams(whole))
    chain = chain_of(graph, constants, (layer.anchor(graph), *layer.epilogue(graph)))
    places = {name: source_place(graph, name, operands[name], box, BASE) for name in chain.sources}
    stream = element_stream(chain, graph, box, places, layer.output, result, BASE)
    reads = [
        region
        for name in chain.sources
        for region in box_regions(
            MAIN,
            operands[name].offset_bytes,
            graph.by_name[name].shape,
            full_box(graph.by_name[name].shape),
            graph.by_name[name].item_bytes,
        )
    ]
    tensor = graph.by_name[layer.output]
    writes = box_regions(MAIN, result.offset_bytes, tensor.shape, box, tensor.item_bytes)
    return (fence(layer.name), core_instr("elements", stream, tuple(reads), writes, layer.name))
