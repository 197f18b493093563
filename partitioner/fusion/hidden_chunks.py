"""Hidden values that find no room, in chunks: the products around them become several, with partial sums in the same
order.

    x @ A + a -> f -> @ B + b
        --runs in which the target adds up the second product-->
    x @ A[:, run] + a[run] -> f -> @ B[run]    for each run, added in order, then + b

A feed-forward block of a transformer makes four times as many values as it reads and gives. A target that adds up long
products in runs needs only a run of them at a time. With a product for each run, every weight is still read once, and
all rows stay together. The numbers are those of the whole product to the bit: each run is one product there, too, and
their sums are added by the same instruction in the same order, the bias last.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count

import numpy as np
import numpy.typing as npt

from partitioner.ir.access import Access, Linear, View
from partitioner.ir.graph import Axis, Constants, Graph, LoopNest, Op, Tensor, content_hash, multiplied_dtype
from partitioner.ir.target import AddsInRuns

Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """A part of a constant: the elements of `whole` from `low` to `high` along `axis`."""

    whole: str
    axis: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Chunked:
    """A graph with its constants, and by name the new constants as parts of old ones."""

    graph: Graph
    constants: Constants
    parts: Mapping[str, ChunkPart]


@dataclass(frozen=True, slots=True)
class _Block:
    """`ops` from the product that makes hidden values to the last operator on each of them, and the product that reads
    these."""

    ops: tuple[Op, ...]
    product: Op
    runs: tuple[Run, ...]


def in_chunks(graph: Graph, constants: Constants, target: object, room_bytes: int) -> Chunked | None:
    """The graph in which hidden values are in chunks where they, together with the input and output of their block,
    take more than `room_bytes`; None where there are none, and for a target that does not say in which order it adds up
    products."""
    if not isinstance(target, AddsInRuns):
        return None
    blocks = {block.product.name: block for block in _blocks(graph, target, room_bytes)}
    if not blocks:
        return None
    writer = _Writer(dict(graph.by_name), dict(constants), {}, {op.name for op in graph.ops})
    replaced = {op.name for block in blocks.values() for op in block.ops}
    ops: list[Op] = []
    for op in graph.ops:
        if op.name in blocks:
            ops += writer.chunks(blocks[op.name])
        elif op.name not in replaced:
            ops.append(op)
    named = {name for op in (*ops, *graph.prepared, *graph.concluded) for name in (*op.inputs, *op.outputs)}
    named |= {*graph.inputs, *graph.outputs, *graph.raw, *graph.answers}
    tensors = tuple(tensor for name, tensor in writer.tensors.items() if name in named)
    return Chunked(replace(graph, ops=tuple(ops), tensors=tensors), writer.constants, writer.parts)


def _blocks(graph: Graph, target: AddsInRuns, room_bytes: int) -> Iterator[_Block]:
    for op in graph.ops:
        if op.kind != "matmul" or not _by_a_matrix(graph, op):
            continue
        ops = _makers(graph, op.inputs[0])
        if not ops:
            continue
        held = (ops[0].inputs[0], op.inputs[0], op.outputs[0])
        runs = target.product_runs(graph, op)
        if len(runs) > 1 and sum(graph.by_name[name].size_bytes for name in held) > room_bytes:
            yield _Block(ops, op, runs)


def _makers(graph: Graph, name: str) -> tuple[Op, ...]:
    """Operators from a product with a matrix to the value, each the only reader of the one before, and with one
    operand; empty where there is no such chain."""
    found: list[Op] = []
    while True:
        op = graph.producer.get(name)
        if op is None or len(graph.consumers[name]) != 1 or name in graph.outputs:
            return ()
        found.append(op)
        if op.kind == "matmul":
            return tuple(reversed(found)) if _by_a_matrix(graph, op) else ()
        if not _of_each_element(graph, op):
            return ()
        name = op.inputs[0]


def _by_a_matrix(graph: Graph, op: Op) -> bool:
    """Whether an operator is a product with a constant matrix, whose columns are the result's last axis. Products whose
    sums or weights have another type, and are scaled, stay whole."""
    matrix, out = graph.by_name[op.inputs[1]], graph.by_name[op.outputs[0]]
    plain = multiplied_dtype(graph, op) == matrix.dtype == out.dtype
    return plain and bool(matrix.constant) and len(matrix.shape) == 2 and len(out.shape) > 1 and len(op.stages) == 1


def _of_each_element(graph: Graph, op: Op) -> bool:
    """Whether an operator computes each element of its result from the same element of its one operand."""
    if len(op.inputs) != 1 or len(op.outputs) != 1 or len(op.stages) != 1:
        return False
    first, stage = op.inputs[0], op.stages[0]
    shape = graph.by_name[first].shape
    if shape != graph.by_name[op.outputs[0]].shape or any(axis.reduce for axis in stage.domain):
        return False
    own = [read for read in stage.reads if read.tensor == first]
    return bool(own) and all(isinstance(read, Access) and _same_place(read, stage.writes, shape) for read in own)


def _same_place(read: Access, written: Access, shape: tuple[int, ...]) -> bool:
    """Whether one access reads where the other writes; along an axis of one element both always do."""
    axes = zip(read.indices, written.indices, shape, strict=True)
    return all(ours == theirs or extent == 1 for ours, theirs, extent in axes)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Builder that collects tensors, constants, parts and names of operators."""

    tensors: dict[str, Tensor]
    constants: dict[str, npt.NDArray[np.generic]]
    parts: dict[str, ChunkPart]
    op_names: set[str]

    def chunks(self, block: _Block) -> Iterator[Op]:
        first, product = block.ops[0], block.product
        out, bias = product.outputs[0], product.inputs[2:]
        total = ""
        for number, run in enumerate(block.runs):
            names = {name: self._part(name, axis, run, number) for name, axis in _cut(first)}
            for op in block.ops:
                yield self._of_run(op, run, number, names)
            names |= {name: self._part(name, 0, run, number) for name in product.inputs[1:2]}
            last = number == len(block.runs) - 1
            made = self._like(f"{out}::{number}", out)
            yield self._op(_product(product, run, {**names, out: made}), f"{product.name}::{number}")
            if total:
                added = out if last and not bias else self._like(f"{out}::to{number}", out)
                yield self._sum(added, made, total)
            total = added if number else made
        for name in bias:
            yield self._sum(out, total, name)

    def _part(self, name: str, axis: int, run: Run, number: int) -> str:
        whole, known = self.tensors[name], ChunkPart(name, axis, *run)
        if (part := f"{name}::{number}") in self.parts and self.parts[part] == known:
            return part  # of another block by the same matrix
        cut = (slice(None),) * axis + (slice(*run),)
        array = np.ascontiguousarray(self.constants[whole.constant].reshape(whole.shape)[cut])
        key, part = content_hash(array), _unused(part, self.tensors)
        self.constants[key], self.parts[part] = array, known
        self.tensors[part] = replace(whole, name=part, shape=array.shape, constant=key)
        return part

    def _of_run(self, op: Op, run: Run, number: int, names: dict[str, str]) -> Op:
        """The operator for some columns of its result; the name of the result is added to `names`."""
        (name,), (stage,) = op.outputs, op.stages
        whole = self.tensors[name]
        names[name] = _unused(f"{name}::{number}", self.tensors)
        self.tensors[names[name]] = replace(whole, name=names[name], shape=(*whole.shape[:-1], run[1] - run[0]))
        columns = stage.writes.indices[-1]
        cut = {axis for axis, _ in columns.terms} if isinstance(columns, Linear) else set()
        domain = tuple(replace(axis, extent=run[1] - run[0]) if axis.name in cut else axis for axis in stage.domain)
        macs = op.macs * (run[1] - run[0]) // whole.shape[-1]
        changed = _renamed(replace(op, stages=(replace(stage, domain=domain),), macs=macs), names)
        return self._op(changed, f"{op.name}::{number}")

    def _op(self, op: Op, wanted: str) -> Op:
        name = _unused(wanted, self.op_names)
        self.op_names.add(name)
        return replace(op, name=name)

    def _like(self, wanted: str, other: str) -> str:
        """Add a tensor with the properties of another one; return its name, which is `wanted` or close to it."""
        name = wanted if wanted == other else _unused(wanted, self.tensors)
        self.tensors[name] = replace(self.tensors[other], name=name)
        return name

    def _sum(self, out: str, left: str, right: str) -> Op:
        domain = tuple(Axis(f"i{axis}", extent) for axis, extent in enumerate(self.tensors[out].shape))
        every = tuple(Linear(((axis.name, 1),)) for axis in domain)
        reads = tuple(Access(name, every[len(every) - len(self.tensors[name].shape) :]) for name in (left, right))
        stage = LoopNest("T_add", domain, Access(out, every), reads)
        return self._op(Op("", "add", (left, right), (out,), (), (stage,), source="Add"), f"{out}::sum")


def _cut(op: Op) -> tuple[tuple[str, int], ...]:
    """Constants of a product, each with the axis that is the result's last one."""
    return ((op.inputs[1], 1), *((name, 0) for name in op.inputs[2:]))


def _unused(wanted: str, used: Container[str]) -> str:
    """A name that is not in use: the user's names may look like the compiler's."""
    tries = (f"{wanted}.{number}" for number in count(1))
    return next(name for name in chain((wanted,), tries) if name not in used)


def _product(op: Op, run: Run, names: Mapping[str, str]) -> Op:
    """One run of a product, without its bias."""
    (stage,) = op.stages
    (length,) = (axis.extent for axis in stage.domain if axis.reduce)
    domain = tuple(replace(axis, extent=run[1] - run[0]) if axis.reduce else axis for axis in stage.domain)
    reads = tuple(read for read in stage.reads if read.tensor in op.inputs[:2])
    macs = op.macs * (run[1] - run[0]) // length
    changed = replace(op, inputs=op.inputs[:2], stages=(replace(stage, domain=domain, reads=reads),), macs=macs)
    return _renamed(changed, names)


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    """The operator on tensors of other names."""

    def access(old: Access) -> Access:
        return replace(old, tensor=names.get(old.tensor, old.tensor))

    def read(old: Access | View) -> Access | View:
        return replace(old, tensor=names.get(old.tensor, old.tensor))

    stages = tuple(
        replace(stage, writes=access(stage.writes), reads=tuple(map(read, stage.reads))) for stage in op.stages
    )
    inputs, outputs = (tuple(names.get(each, each) for each in part) for part in (op.inputs, op.outputs))
    return replace(op, inputs=inputs, outputs=outputs, stages=stages)
