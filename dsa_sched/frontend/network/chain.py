"""Nodes that replace one node: how a decomposition writes them.

rule(chain, node)  -->  chain.nodes, the last of them with the node's own name and output, values and constants
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from dsa_sched.frontend.network.network import Array, Network, Node, Setting, Value
from dsa_sched.frontend.network.terms import Term, number
from dsa_sched.frontend.network.traced import TracedArray

Shape = tuple[int, ...]
Settings = tuple[tuple[str, Setting], ...]

BY_ROW = (0, 2, 1, 3)
"""The permutation between (item, head, row, element) and (item, row, head, element)."""


@dataclass
class Chain:
    """The nodes that replace one, and the values and constants that they bring. Their names begin with the
    node's name, and contain the `tag` where another chain may replace what this one writes.
    """

    network: Network
    node: Node
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    terms: dict[str, Term] = field(default_factory=dict)
    tag: str = ""
    dtype: int | None = None
    """Element type of new values; that of the node's result by default."""

    @property
    def stem(self) -> str:
        """Prefix of the names of new values: the node's first output that has a name."""
        return next(filter(None, self.node.outputs))

    def shape(self, name: str) -> Shape:
        return self.values[name].shape if name in self.values else self.network.shape(name)

    def computed(self, name: str) -> bool:
        """Whether it is no constant."""
        return name not in self.constants and name not in self.network.constants

    def number(self, value: float) -> str:
        return self.array(np.array(value), number(value))

    def store(self, constant: TracedArray, suffix: str = "") -> str:
        """Add a constant."""
        return self.array(constant.array, constant.term, suffix)

    def array(self, value: Array, term: Term | None, suffix: str = "") -> str:
        """Add a constant, numbered unless a suffix names it, and how it follows from the file; without that, `verify`
        cannot compare it and says so.
        """
        name = f"{self.stem}::{self.tag}{suffix or f'constant{len(self.constants)}'}"
        self.constants[name] = value
        if term is not None:
            self.terms[name] = term
        self.values[name] = Value(value.shape, onnx.helper.np_dtype_to_tensor_dtype(value.dtype))
        return name

    def add(
        self,
        op_type: str,
        *inputs: str,
        shape: Shape | None = None,
        settings: Settings = (),
        output: str = "",
        suffix: str = "",
        dtype: int | None = None,
    ) -> str:
        """One more node, numbered unless a suffix names it; its result has the broadcast shape of its operands unless
        `shape` is given.
        """
        suffix = f"{self.tag}{suffix or len(self.nodes)}"
        output = output or f"{self.stem}::{suffix}"
        name = f"{self.node.name}::{suffix}"
        if shape is None:
            shape = np.broadcast_shapes(*(self.shape(i) for i in inputs))
        self.values[output] = Value(shape, dtype or self.dtype or self.network.values[self.stem].dtype)
        self.nodes.append(Node(name, op_type, inputs, (output,), settings))
        return output

    def reshaped(self, x: str, *shape: int) -> str:
        """The value in another shape: a constant at compile time, else by a node; itself where it has the shape."""
        if self.shape(x) == shape:
            return x
        known = self.traced(x)
        if known is None:
            return self.add("Flatten", x, shape=shape)  # any view is a Flatten, Reshape or Squeeze; the shape decides
        return self.store(known.reshape(*shape))

    def transposed(self, x: str, *perm: int) -> str:
        """Its axes in another order; a constant's at compile time."""
        if perm == tuple(range(len(perm))):
            return x
        known = self.traced(x)
        if known is None:
            before = self.shape(x)
            return self.add("Transpose", x, shape=tuple(before[axis] for axis in perm), settings=(("perm", perm),))
        return self.store(known.transpose(*perm))

    def reduced(self, op_type: str, x: str, axes: Shape, output: str = "", suffix: str = "") -> str:
        """A reduction over these axes, which stay with one element."""
        kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(self.shape(x)))
        settings = (("axes", axes), ("keepdims", 1))
        return self.add(op_type, x, shape=kept, settings=settings, output=output, suffix=suffix)

    def part(self, x: str, axis: int, start: int, end: int, suffix: str = "") -> str:
        """Elements from `start` to `end` along one axis."""
        shape = self.shape(x)
        settings = (("axes", (axis,)), ("ends", (end,)), ("starts", (start,)))
        wanted = (*shape[:axis], end - start, *shape[axis + 1 :])
        return self.add("Slice", x, shape=wanted, settings=settings, suffix=suffix)

    def concatenated(self, *pieces: str, axis: int, suffix: str = "") -> str:
        """Values after each other along one axis."""
        shape = self.shape(pieces[0])
        total = sum(self.shape(piece)[axis] for piece in pieces)
        wanted = (*shape[:axis], total, *shape[axis + 1 :])
        return self.add("Concat", *pieces, shape=wanted, settings=(("axis", axis),), suffix=suffix)

    def split_heads(self, x: str, heads: int) -> str:
        """[item, row, head * element] as [item, head, row, element]."""
        items, rows, width = self.shape(x)
        x = self.add("Reshape", x, shape=(items, rows, heads, width // heads))
        return self.add("Transpose", x, shape=(items, heads, rows, width // heads), settings=(("perm", BY_ROW),))

    def join_heads(self, x: str) -> str:
        """[item, head, row, element] as [item, row, head * element]."""
        items, heads, rows, width = self.shape(x)
        x = self.add("Transpose", x, shape=(items, rows, heads, width), settings=(("perm", BY_ROW),))
        return self.add("Reshape", x, shape=(items, rows, heads * width))

    def summed(self, x: str, *axes: int) -> str:
        """Sum over these axes, without them; for a constant, at compile time."""
        if not axes:
            return x
        kept = tuple(extent for axis, extent in enumerate(self.shape(x)) if axis not in axes)
        known = self.traced(x)
        if known is None:
            return self.reshaped(self.reduced("ReduceSum", x, axes), *kept)
        return self.store(known.sum(axes))

    def sliced(self, x: str, axis: int, start: int, step: int, count: int) -> str:
        """`count` elements along one axis; for the first axis of a constant, at compile time."""
        shape, known = self.shape(x), self.traced(x)
        if known is not None and axis == 0:
            return self.store(known.take(range(start, start + step * count, step)))
        bounds = (start, start + step * (count - 1) + 1, axis, step)
        names = [self.array(np.array([value], np.int64), number(float(value))) for value in bounds]
        return self.add("Slice", x, *names, shape=(*shape[:axis], count, *shape[axis + 1 :]))

    def traced(self, name: str) -> TracedArray | None:
        """A constant with its derivation; None for computed values, and for constants without one."""
        if name in self.constants:
            return TracedArray(self.constants[name], self.terms[name]) if name in self.terms else None
        return self.network.traced(name) if name in self.network.constants else None

    def finished(self) -> tuple[Node, ...]:
        """The nodes, the last of them under the name and with the output of the node that was, unless it has a name of
        its own for one of the outputs.
        """
        if self.nodes[-1].outputs[0] in self.node.outputs:
            return tuple(self.nodes)
        return (*self.nodes[:-1], replace(self.nodes[-1], name=self.node.name, outputs=self.node.outputs[:1]))


Rule = Callable[[Chain, Node], bool]
"""Writes the nodes, the result last; returns False where it cannot, and what it wrote is thrown away."""
