"""Quantisation that an exporter wrote as primitive operators, as the pair of operators that means the same.

    x -> Div(scale) -> Round -> Add(zero) -> Clip -> Sub(zero) -> Mul(scale)   -->   x -> Clip -> Q -> DQ
    weights -> Div(scales) -> Round -> Clip -> Mul(scales)                     -->   int8 weights -> DQ

A chain is taken where one node reads each value inside it, and where it means what the pair means. Bounds narrower than
the integer type are those of a Clip before the pair, which rounds nothing. What differs, be it in ties only, stays in
floating point: Floor(x + 0.5), an odd zero point that is added before Round, a factor that is not the fp32 reciprocal
of the scale. Weights are quantised here by the file's own arithmetic, so that no such difference arises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend.network.constants_at_reading import StoredConstants
from dsa_sched.frontend.network.network import Value, captured_by, opset_of, replace_nodes
from dsa_sched.frontend.quantised.decomposed_integers import (
    Array,
    ChainGrid,
    ChainIntegers,
    Float32s,
    applied,
    axis_of,
    cast_type,
    chain_grid_of,
    integers_after,
    inverse_of,
    scale_of_inverse,
)
from dsa_sched.frontend.quantised.dialects import ALONG_AXES
from dsa_sched.frontend.quantised.grids import GRID_TYPES

MOST_NODES_OF_A_SIDE = 8
"""Nodes before or after Round that are looked through."""

SCALING = frozenset(["Mul", "Div"])
INSIDE = frozenset(["Add", "Sub", "Clip", "Max", "Min", "Cast"])
"""Operators between scaling and rounding."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """The nodes from the one that divides `x` by the scale to the one that multiplies by it."""

    x: str
    nodes: tuple[onnx.NodeProto, ...]

    @property
    def y(self) -> str:
        return str(self.nodes[-1].output[0])


def with_pairs(model: onnx.ModelProto, values: dict[str, Value]) -> onnx.ModelProto:
    """The model, whose nodes have names, with pairs in place of such chains: a copy, or itself where there are none.
    `values` gets the shapes of new values and loses those of values that are gone."""
    if all(node.op_type != "Round" for node in model.graph.node):
        return model
    search = _Search(model, values)
    exchanged: dict[str, list[onnx.NodeProto]] = {}
    gone: set[str] = set()
    for node in model.graph.node:
        chain = search.chain(node) if node.op_type == "Round" else None
        if chain is not None and any(each.name in gone or each.name in exchanged for each in chain.nodes):
            continue  # a factor of two chains
        written = search.written(chain) if chain is not None else None
        if chain is not None and written is not None:
            exchanged[chain.nodes[-1].name] = written
            gone |= {each.name for each in chain.nodes[:-1]}
    if not exchanged:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    nodes = (new for node in model.graph.node if node.name not in gone for new in exchanged.get(node.name, [node]))
    replace_nodes(result, nodes)
    result.graph.initializer.extend(search.stored)
    del result.graph.value_info[:]
    result.graph.value_info.extend(item for item in model.graph.value_info if item.name not in search.forgotten)
    return result


class _Search:
    def __init__(self, model: onnx.ModelProto, values: dict[str, Value]) -> None:
        self.values = values
        self.opset = opset_of(model)
        self.constants = StoredConstants(model)
        self.made = {name: node for node in model.graph.node for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in (*node.input, *captured_by(node)):
                self.readers.setdefault(name, []).append(node)
        self.outputs = {item.name for item in model.graph.output}
        self.taken = {*self.made, *self.readers, *self.outputs, *(tensor.name for tensor in model.graph.initializer)}
        self.taken |= {node.name for node in model.graph.node} | {item.name for item in model.graph.input}
        self.stored: list[onnx.TensorProto] = []
        self.forgotten: set[str] = set()

    # Reading

    def chain(self, rounding: onnx.NodeProto) -> _Chain | None:
        """The chain around a Round."""
        before = [*self._side(rounding, self._maker)]
        after = [*self._side(rounding, self._reader)]
        nodes = (*before[::-1], rounding, *after)
        if not before or not after or before[-1].op_type not in SCALING or after[-1].op_type not in SCALING:
            return None
        start = self._operands(nodes[0])
        chain = _Chain(start[0], nodes) if start is not None else None
        known = [self.values.get(name) for name in (chain.x, chain.y)] if chain else []
        alike = all(value is not None and value.dtype == TensorProto.FLOAT for value in known)
        return chain if chain and alike and len({value.shape for value in known if value is not None}) == 1 else None

    def _side(
        self, node: onnx.NodeProto, step: Callable[[onnx.NodeProto], onnx.NodeProto | None]
    ) -> Iterator[onnx.NodeProto]:
        """The nodes next to a Round on one side, up to one that divides or multiplies."""
        for _ in range(MOST_NODES_OF_A_SIDE):
            found = step(node)
            if found is None or found.domain not in ("", "ai.onnx") or found.op_type not in INSIDE | SCALING:
                return
            yield found
            if found.op_type in SCALING:
                return
            node = found

    def _maker(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        operands = self._operands(node)
        made = self.made.get(operands[0]) if operands is not None else None
        return made if made is not None and self._alone(made) is node else None

    def _reader(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        reader = self._alone(node)
        operands = self._operands(reader) if reader is not None else None
        return reader if operands is not None and operands[0] == node.output[0] else None

    def _alone(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The only node that reads the result of a node."""
        (name, *others), found = node.output, self.readers.get(node.output[0], [])
        return found[0] if len(found) == 1 and name not in self.outputs and not any(others) else None

    def _operands(self, node: onnx.NodeProto) -> tuple[str, tuple[Array | None, ...]] | None:
        """The value that a node changes, and its constants; None where it has two values, or none to change."""
        if not node.input or not node.output:
            return None
        x, rest = node.input[0], list(node.input[1:])
        if node.op_type in ("Add", "Mul", "Max", "Min") and len(rest) == 1 and self._size(rest[0]) > self._size(x):
            x, rest = rest[0], [x]
        rest += [""] * (2 - len(rest)) if node.op_type == "Clip" else []
        arrays = tuple(self._numbers(name) if name else None for name in rest)
        known = all(array is not None or not name for array, name in zip(arrays, rest, strict=True))
        counted = node.op_type in ("Clip", "Cast", "Round") or len(rest) == 1
        return (x, arrays) if known and counted else None

    def _numbers(self, name: str) -> Array | None:
        array = self.constants.get(name)
        return array if array is not None and array.dtype.kind in "fiu" and array.size else None

    def _size(self, name: str) -> float:
        """Elements of a constant, infinitely many of a value."""
        array = self.constants.get(name)
        return np.inf if array is None else array.size

    # Meaning

    def written(self, chain: _Chain) -> list[onnx.NodeProto] | None:
        """The nodes in place of a chain; None where these would mean something else."""
        weights = self.constants.get(chain.x)
        integers = self._integers(chain, weights is not None)
        if integers is None or integers.shift:
            return None
        if weights is not None:
            return self._of_weights(chain, weights, integers)
        scale = self._scale(chain, exact=True)
        grid = chain_grid_of(integers)
        if scale is None or scale.size > 1 or grid is None:
            return None
        step = np.float32(scale.reshape(-1)[0])
        bounds = [None if bound is None else np.float32(bound) * step for bound in (grid.low, grid.high)]
        for bound, wanted in zip(bounds, (grid.low, grid.high), strict=True):
            if bound is not None and np.rint(bound / step) != wanted:
                return None
        return self._of_values(chain, grid, step, bounds)

    def _integers(self, chain: _Chain, constant: bool) -> ChainIntegers | None:
        """What becomes of the rounded number; of a constant, zero points before Round are what they are."""
        state: ChainIntegers | None = ChainIntegers()
        rounded = False
        for node in chain.nodes[1:-1]:
            if state is None:
                return None
            if node.op_type == "Round":
                if state.shift % 2 and not constant:
                    return None  # ties would go to even numbers plus an odd one
                rounded = True
                continue
            if node.op_type == "Cast":
                state = state.cast(cast_type(node)) if rounded else None
                continue
            found = self._operands(node)
            if found is None or any(array is not None and array.size != 1 for array in found[1]):
                return None
            state = integers_after(
                state, node.op_type, [None if a is None else float(a.reshape(-1)[0]) for a in found[1]]
            )
        return state

    def _scale(self, chain: _Chain, exact: bool) -> Float32s | None:
        """The scales at the end of a chain, positive; None where it is to be `exact` and x is divided by others."""
        first, last = (self._factor(node) for node in (chain.nodes[0], chain.nodes[-1]))
        if first is None or last is None or any(array.dtype != np.float32 for array in (first, last)):
            return None
        divides, multiplies = chain.nodes[0].op_type == "Div", chain.nodes[-1].op_type == "Mul"
        scale = last
        if not multiplies:
            scale = first if divides and np.array_equal(inverse_of(first), last) else scale_of_inverse(last)
        if not np.all(np.isfinite(scale) & (scale >= np.finfo(np.float32).tiny)):
            return None
        if not exact:
            return scale
        same_first = np.array_equal(first, scale if divides else inverse_of(scale))
        same_last = np.array_equal(last, scale if multiplies else inverse_of(scale))
        return scale if same_first and same_last else None

    def _factor(self, node: onnx.NodeProto) -> Float32s | None:
        found = self._operands(node)
        array = None if found is None else found[1][0]
        return None if array is None else np.asarray(array if array.size > 1 else array.reshape(()))

    # Writing

    def _of_values(
        self, chain: _Chain, grid: ChainGrid, step: np.float32, bounds: list[np.float32 | None]
    ) -> list[onnx.NodeProto]:
        x, y, shape = chain.x, chain.y, self.values[chain.y].shape
        nodes = []
        rounding = next(node for node in chain.nodes if node.op_type == "Round")
        if any(bound is not None for bound in bounds):
            names = ["" if bound is None else self._store(np.array(bound), f"{y}_bound") for bound in bounds]
            bounded = self._fresh(f"{y}_bounded")
            nodes.append(helper.make_node("Clip", [x, *names], [bounded], name=self._fresh(f"{rounding.name}_bounds")))
            self.values[bounded] = Value(shape, int(TensorProto.FLOAT))
            x = bounded
        scale, zero = self._store(np.array(step), f"{y}_scale"), self._zero(grid.dtype, grid.zero, y)
        integers = self._fresh(f"{y}_integers")
        self.values[integers] = Value(shape, grid.dtype)
        nodes.append(helper.make_node("QuantizeLinear", [x, scale, zero], [integers], name=rounding.name))
        nodes.append(helper.make_node("DequantizeLinear", [integers, scale, zero], [y], name=chain.nodes[-1].name))
        self._forget(chain)
        return nodes

    def _of_weights(self, chain: _Chain, weights: Array, integers: ChainIntegers) -> list[onnx.NodeProto] | None:
        scale, first = self._scale(chain, exact=False), self._factor(chain.nodes[0])
        if scale is None or first is None or None in (axis_of(scale, weights.shape), axis_of(first, weights.shape)):
            return None
        numbers = self._computed(chain, weights)
        if numbers is None or numbers.shape != weights.shape:
            return None
        if not np.isfinite([integers.low, integers.high]).all():  # without bounds, weights are as they are
            least, most = GRID_TYPES[TensorProto.INT8]
            inside = least <= numbers.min() and numbers.max() <= most
            integers = ChainIntegers(least, most) if inside else integers
        grid, axis = chain_grid_of(integers), axis_of(scale, weights.shape)
        if grid is None or axis is None or (scale.size > 1 and self.opset < ALONG_AXES):
            return None
        y, dtype = chain.y, helper.tensor_dtype_to_np_dtype(grid.dtype)
        stored = self._store((numbers + grid.zero).astype(dtype), f"{y}_integers")
        scales = self._store(scale.reshape(-1) if scale.size > 1 else scale.reshape(()), f"{y}_scale")
        zero = np.full(scale.size if scale.size > 1 else (), grid.zero, dtype)
        inputs = [stored, scales, self._store(zero, f"{y}_zero")]
        self._forget(chain)
        node = helper.make_node("DequantizeLinear", inputs, [y], name=chain.nodes[-1].name)
        node.attribute.extend([helper.make_attribute("axis", axis)] if scale.size > 1 else [])
        return [node]

    def _computed(self, chain: _Chain, weights: Array) -> npt.NDArray[np.float64] | None:
        """The integers less zero points that a chain makes of constants, by its own arithmetic."""
        result: Array = np.asarray(weights)
        for node in chain.nodes[:-1]:
            found = self._operands(node)
            if found is None:
                return None
            with np.errstate(all="ignore"):
                result = applied(node, result, found[1])
        numbers = result.astype(np.float64)
        whole = numbers.size and np.isfinite(numbers).all() and np.array_equal(numbers, np.rint(numbers))
        return numbers if whole else None

    def _zero(self, dtype: int, zero: int, y: str) -> str:
        return self._store(np.array(zero, helper.tensor_dtype_to_np_dtype(dtype)), f"{y}_zero")

    def _store(self, array: Array, name: str) -> str:
        self.stored.append(numpy_helper.from_array(np.asarray(array), self._fresh(name)))
        name = self.stored[-1].name
        self.values[name] = Value(array.shape, int(self.stored[-1].data_type))
        return name

    def _fresh(self, stem: str) -> str:
        name, count = stem, 1
        while name in self.taken:
            count += 1
            name = f"{stem}{count}"
        self.taken.add(name)
        return name

    def _forget(self, chain: _Chain) -> None:
        inner = {str(node.output[0]) for node in chain.nodes[:-1]}
        self.forgotten |= inner
        for name in inner:
            self.values.pop(name, None)
