"""Meaning of an integer input that the model does not declare (`declared_meanings.py`), by what reads it.

ids -> Gather(table of 100 rows)          indices, 0 to 99
ids -> Sub 1 -> Gather(100 rows)          1 to 100: what the arithmetic on the way makes of them is in the table
count -> Div                              from 1 on: a divisor is never 0
mask -> Cast, Not, Where                  0 or 1
lengths -> Less(arange(12), lengths)      lengths, 1 to 12
begin -> TensorScatter(cache of 32 rows, 4 new ones, begin)      0 to 28: the new rows are inside the cache
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from dsa_sched.zoo.meanings.declared_meanings import Indices, Lengths, MaskMeaning, Meaning, Range
from partitioner.ir.operators import Trait, onnx_names

Integers = npt.NDArray[np.int64]
Way = Callable[[Integers], Integers]
"""Function of an input's elements that the nodes between the input and its reader compute."""

MOVES = onnx_names(Trait.VIEW, Trait.MOVES, Trait.SPLITS, Trait.GATHERS)
GATHERS = onnx_names(Trait.GATHERS)
COMPARISONS = onnx_names(Trait.COMPARES) - {"Equal"}
TRUTHS = onnx_names(Trait.LOGIC) | {"Cast", "Where"}
DIVISIONS = ("Div", "Mod")
MOST_NODES = 10_000
"""Largest number of readers that are followed from one input."""

LARGEST_TRIED = 1 << 16
"""Largest element that is tried where arithmetic stands between an input and a table."""

SMALL_DIVISOR = 7
"""Largest divisor that is drawn where nothing else is known; the smallest is 1."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A value that is the function `way` of an input (None: its own elements), and the `node` that reads it."""

    value: str
    node: onnx.NodeProto
    way: Way | None


def inferred_meanings(model: onnx.ModelProto) -> dict[str, Meaning]:
    """Meanings of the integer inputs about which something can be seen."""
    readers, constants, shapes = _seen(model)
    found = {name: _meaning(name, readers, constants, shapes) for name in _integers(model, constants)}
    return {name: meaning for name, meaning in found.items() if meaning is not None}


def inside_caches(model: onnx.ModelProto, said: Mapping[str, Meaning]) -> dict[str, Meaning]:
    """The meanings, with integers that place new rows in a cache no larger than it has room, also where the model says
    what they mean: its words are for any number of new rows."""
    if not any(node.op_type == "TensorScatter" for node in model.graph.node):
        return dict(said)
    readers, constants, shapes = _seen(model)
    result = dict(said)
    for name in _integers(model, constants):
        for seen in _read(name, readers, constants):
            places = _places(seen.node, seen.value, shapes)
            inside = _inside(seen.way or _itself, places) if places else None
            if inside is not None and name in result:
                result[name] = _narrowed(result[name], inside)
    return result


def _narrowed(meaning: Meaning, inside: Range) -> Meaning:
    """A meaning with no integers outside a range, if it is one of integers from one to another and any are left."""
    match meaning:
        case Range(least, most):
            ends = least, most
        case Lengths(most):
            ends = 1, most
        case Indices((below,)):
            ends = 0, below - 1
        case _:
            return meaning
    low, high = max(ends[0], inside.least), min(ends[1], inside.most)
    return Range(low, high) if (low, high) != ends and low <= high else meaning


Readers = Mapping[str, list[onnx.NodeProto]]


def _integers(model: onnx.ModelProto, constants: Mapping[str, onnx.TensorProto]) -> Iterator[str]:
    """The inputs of integers."""
    for item in model.graph.input:
        kind = helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type).kind
        if item.name not in constants and kind in "iu":
            yield item.name


def _seen(
    model: onnx.ModelProto,
) -> tuple[Readers, Mapping[str, onnx.TensorProto], Mapping[str, tuple[int, ...]]]:
    """Nodes by the values that they read, constants, and shapes."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None:
                constants[node.output[0]] = value
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in dict.fromkeys(node.input):
            readers.setdefault(name, []).append(node)
    shapes = _given_shapes(model)
    constants |= _of_shapes(model, constants, shapes)
    return readers, constants, {name: tuple(tensor.dims) for name, tensor in constants.items()} | shapes


def _of_shapes(
    model: onnx.ModelProto,
    constants: Mapping[str, onnx.TensorProto],
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, onnx.TensorProto]:
    """Numbers of rows that the model takes from shapes which are known, as one number each."""
    found: dict[str, onnx.TensorProto] = {}
    for node in model.graph.node:
        if node.op_type == "Shape" and node.input[0] in shapes:
            bounds = {attribute.name: attribute.i for attribute in node.attribute}
            dims = shapes[node.input[0]][bounds.get("start", 0) : bounds.get("end")]
            found[node.output[0]] = numpy_helper.from_array(np.array(dims, np.int64))
        elif node.op_type in ("Squeeze", "Cast", "Reshape", "Identity") and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in found and node.input[1] in constants:
            taken = numpy_helper.to_array(found[node.input[0]])[numpy_helper.to_array(constants[node.input[1]])]
            found[node.output[0]] = numpy_helper.from_array(np.asarray(taken))
    return found


def _given_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Static shapes of inputs and of computed values, as the file or shape inference has them."""
    read = [node.input[0] for node in model.graph.node if node.op_type in GATHERS]
    read += [name for node in model.graph.node if node.op_type == "TensorScatter" for name in node.input[:2]]
    known = {tensor.name for tensor in model.graph.initializer} | {item.name for item in model.graph.input}
    computed = any(name not in known for name in read)
    items = [*model.graph.input, *model.graph.value_info, *(_inferred_values(model) if computed else ())]
    found = {}
    for item in items:
        dims = item.type.tensor_type.shape.dim
        if dims and all(dim.HasField("dim_value") for dim in dims):
            found[item.name] = tuple(int(dim.dim_value) for dim in dims)
    return found


def _inferred_values(model: onnx.ModelProto) -> tuple[onnx.ValueInfoProto, ...]:
    """Values by shape inference; large initializers appear only as values of their shape."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.initializer[:]
    for tensor in model.graph.initializer:
        if np.prod(tensor.dims, dtype=np.int64) <= MOST_NODES:
            bare.graph.initializer.append(tensor)
        elif tensor.name not in {item.name for item in model.graph.input}:
            bare.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    try:
        return tuple(onnx.shape_inference.infer_shapes(bare).graph.value_info)
    except (onnx.shape_inference.InferenceError, ValueError):
        return ()


def _meaning(
    name: str,
    readers: Mapping[str, list[onnx.NodeProto]],
    constants: Mapping[str, onnx.TensorProto],
    shapes: Mapping[str, tuple[int, ...]],
) -> Meaning | None:
    rows, held, lengths, truths, divides = [], list[Range](), list[int](), False, False
    for seen in _read(name, readers, constants):
        node, value = seen.node, seen.value
        if node.op_type in GATHERS and node.input[1] == value and node.input[0] in shapes:
            extent = _extent(node, shapes[node.input[0]])
            if seen.way is None:
                rows.append(extent)
            elif (inside := _inside(seen.way, extent)) is not None:
                held.append(inside)
        elif node.op_type in COMPARISONS:
            lengths += [_largest(constants[other]) for other in node.input if other in constants]
        elif (places := _places(node, value, shapes)) and (inside := _inside(seen.way or _itself, places)) is not None:
            held.append(inside)
        elif node.op_type in DIVISIONS and len(node.input) == 2 and node.input[1] == value:
            divides = True
        truths |= node.op_type in TRUTHS
    if rows or held:
        least = max([0, *(int(each.least) for each in held), *([1] if divides else [])])
        most = min([*(extent - 1 for extent in rows), *(int(each.most) for each in held)])
        return Indices((most + 1,)) if least == 0 else Range(least, max(least, most))
    if divides:
        return Lengths(SMALL_DIVISOR)
    if lengths and max(lengths) > 1:
        return Lengths(max(lengths) + 1)
    return MaskMeaning() if truths else None


def _places(node: onnx.NodeProto, value: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Number of places that a value may name: those at which new rows fit into a cache, or the rows of rotary tables;
    0 where it names none."""
    named = [*node.input, *[""] * 4]
    if node.op_type == "TensorScatter" and named[2] == value and {named[0], named[1]} <= shapes.keys():
        axis = next((a.i for a in node.attribute if a.name == "axis"), -2)
        return shapes[named[0]][axis] - shapes[named[1]][axis] + 1
    if node.op_type == "RotaryEmbedding" and named[3] == value and named[1] in shapes:
        return shapes[named[1]][0]
    return 0


def _itself(elements: Integers) -> Integers:
    return elements


def _read(
    name: str, readers: Mapping[str, list[onnx.NodeProto]], constants: Mapping[str, onnx.TensorProto]
) -> Iterator[_Seen]:
    """Nodes that read a value, or one that only moves it, changes its type or is computed from it and a constant."""
    open_: list[tuple[str, Way | None]] = [(name, None)]
    seen = {name}
    while open_ and len(seen) < MOST_NODES:
        value, way = open_.pop()
        for node in readers.get(value, ()):
            yield _Seen(value, node, way)
            moved = (node.op_type in MOVES and node.input[0] == value) or node.op_type == "Cast"
            step = None if moved else _step(node, value, constants)
            if moved or step is not None:
                fresh = [output for output in node.output if output not in seen]
                seen.update(fresh)
                open_ += [(output, way if step is None else _after(way, step)) for output in fresh]


def _after(way: Way | None, step: Way) -> Way:
    return step if way is None else lambda elements: step(way(elements))


def _step(node: onnx.NodeProto, value: str, constants: Mapping[str, onnx.TensorProto]) -> Way | None:
    """Function that a node computes from the elements of an integer value and one constant number; for a quotient by an
    unknown number, the dividend: no quotient of integers is larger.
    """
    kind, others = node.op_type, [other for other in node.input if other != value]
    if kind == "Neg":
        return lambda elements: -elements
    if kind == "Abs":
        return np.abs
    if kind == "Div" and node.input[0] == value and others and others[0] not in constants:
        return lambda elements: elements
    numbers = [_one_number(constants[other]) for other in others if other in constants]
    if len(others) != 1 or len(numbers) != 1 or numbers[0] is None:
        return None
    number, first = numbers[0], node.input[0] == value
    ways: dict[str, Way] = {
        "Add": lambda elements: elements + number,
        "Mul": lambda elements: elements * number,
        "Sub": lambda elements: elements - number if first else number - elements,
        "Max": lambda elements: np.maximum(elements, number),
        "Min": lambda elements: np.minimum(elements, number),
    }
    if first and number:
        ways["Mod"] = lambda elements: elements % number
        ways["Div"] = lambda elements: np.trunc(elements / number).astype(np.int64)
    return ways.get(kind)


def _one_number(tensor: onnx.TensorProto) -> int | None:
    array = numpy_helper.to_array(tensor)
    return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None


def _inside(way: Way, extent: int) -> Range | None:
    """The first run of elements that the way maps to indices of `extent` rows."""
    elements = np.arange(LARGEST_TRIED, dtype=np.int64)
    made = way(elements)
    good = (made >= 0) & (made < extent)
    if not good.any():
        return None
    first = int(np.argmax(good))
    beyond = np.flatnonzero(~good[first:])
    return Range(first, first + int(beyond[0]) - 1 if len(beyond) else LARGEST_TRIED - 1)


def _extent(node: onnx.NodeProto, table: tuple[int, ...]) -> int:
    """Rows among which every index of a gather may choose."""
    if node.op_type == "GatherND":
        return min(table)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    return table[axis]


def _largest(tensor: onnx.TensorProto) -> int:
    array = numpy_helper.to_array(tensor)
    return int(array.max()) if array.size and array.dtype.kind in "iu" and np.abs(array).max() < 1 << 31 else 0
