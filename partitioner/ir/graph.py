"""The graph: tensors, operators with iteration domains and access maps, constants by content hash.

One `Op` is one node of the user's simplified ONNX file and keeps its name. An operator is its stages: each stage is an
iteration domain with one written and some read accesses, in the order TensorIR computes them (a padded convolution has
two, a softmax four). Names that start with `%` are buffers inside one operator. Nothing here knows of devices or tiles.

Layout: feature maps as the target wants them (`wants.py`), convolution weights (group,) kernel..., input channel,
output channel, matrices row-major. `Tensor.axes[i]` is the axis of the user's ONNX tensor that device axis i holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from hw_models.errors import ModelError
from partitioner.ir.access import Access, View, access_to_json, index_axes
from partitioner.ir.quantisation import Quantisation
from partitioner.ir.text import format_line

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...]
Constants = Mapping[str, npt.NDArray[np.generic]]
"""Content hash -> array in device layout and dtype."""

DTYPE_BYTES = {"float16": 2, "float32": 4, "float64": 8, "int8": 1, "uint8": 1, "int32": 4, "int64": 8, "bool": 1}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value. `shape` is in device order, `dtype` the type on the device, `source_dtype` that in the user's file;
    `quantisation` says how integers represent numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[int, ...]
    source_dtype: str
    constant: str = ""
    quantisation: Quantisation | None = None

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]

    @property
    def item_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def source_shape(self) -> tuple[int, ...]:
        """The shape in the user's ONNX file; where `axes` is empty, the device shape."""
        if not self.axes:
            return self.shape
        shape = [0] * len(self.shape)
        for device_axis, source_axis in enumerate(self.axes):
            shape[source_axis] = self.shape[device_axis]
        return tuple(shape)


@dataclass(frozen=True, slots=True)
class Axis:
    """One iteration axis, 0 <= value < extent; `reduce` marks an axis that is summed (or maximised) over."""

    name: str
    extent: int
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class LoopNest:
    """One loop nest: for every point of `domain`, `writes` is computed from `reads`."""

    name: str
    domain: tuple[Axis, ...]
    writes: Access
    reads: tuple[Access | View, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One node: `kind` is the compiler's name (conv, matmul, add, ...), `source` the ONNX operator type."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    stages: tuple[LoopNest, ...] = ()
    macs: int = 0
    source: str = ""

    @property
    def is_view(self) -> bool:
        """True when the operator only gives the bytes of its first input another name: nothing is computed."""
        return self.kind == "view"

    def attribute(self, name: str) -> Attribute:
        """The value of an attribute. Raises KeyError where the operator has none of that name."""
        for own, value in self.attributes:
            if own == name:
                return value
        raise KeyError(name)

    def ints(self, name: str) -> tuple[int, ...]:
        """An attribute that is a tuple of integers. Raises KeyError or TypeError."""
        value = self.attribute(name)
        if not isinstance(value, tuple):
            raise TypeError(f"{self.name}: attribute {name} is not a list")
        return tuple(int(v) for v in value)

    def number(self, name: str) -> float:
        """An attribute that is a number. Raises KeyError or TypeError."""
        value = self.attribute(name)
        if isinstance(value, (str, tuple)):
            raise TypeError(f"{self.name}: attribute {name} is not a number")
        return value

    @property
    def domain(self) -> tuple[Axis, ...]:
        """Iteration domain of the stage that does most of the work."""
        return max(self.stages, key=lambda stage: prod(axis.extent for axis in stage.domain)).domain


@dataclass(frozen=True)
class Graph:
    """Operators in topological order. `tensors` holds every value, constants too (their data are in a `Constants`).

    `prepared` are operators on integers, and lookups by them, that are done in the main memory before all others, in
    order, each on whole values: their results are `inputs` of the planned part, as are the values `fed` to the network.
    They read `raw`, further inputs that nothing else reads, constants, and each other's results. `concluded` are such
    operators on computed values, done after all others: they read `outputs` of the planned part, inputs, prepared
    integers, and each other's results. One kind, `assign`, writes rows into an input, whose next value it leaves in its
    place (`in_place`). Where results of any of these leave the network, `answers` are the results for the user, in the
    order of the file; else it is empty, and the results are the `outputs`."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    prepared: tuple[Op, ...] = ()
    raw: tuple[str, ...] = ()
    concluded: tuple[Op, ...] = ()
    answers: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """Results for the user."""
        return self.answers or self.outputs

    @cached_property
    def in_place(self) -> dict[str, str]:
        """Inputs by the results that are their next values, written in their place by concluded operators `assign`."""
        return {op.outputs[0]: op.inputs[0] for op in self.concluded if op.kind == "assign"}

    @cached_property
    def fed(self) -> tuple[str, ...]:
        """Values that come from outside."""
        made = {output for op in self.prepared for output in op.outputs}
        return (*(name for name in self.inputs if name not in made), *self.raw)

    def __hash__(self) -> int:
        """Hash of the names alone, so that results about a graph can be remembered by it."""
        return hash((self.name, self.inputs, self.outputs, len(self.ops)))

    @cached_property
    def by_name(self) -> dict[str, Tensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def op_by_name(self) -> dict[str, Op]:
        return {op.name: op for op in self.ops}

    @cached_property
    def producer(self) -> dict[str, Op]:
        """Tensor name -> the op that writes it (graph inputs and constants have none)."""
        return {output: op for op in self.ops for output in op.outputs}

    @cached_property
    def consumers(self) -> dict[str, tuple[Op, ...]]:
        """Tensor name -> ops that read it, in graph order, each once."""
        result: dict[str, list[Op]] = {tensor.name: [] for tensor in self.tensors}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                result[name].append(op)
        return {name: tuple(ops) for name, ops in result.items()}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the text form; constants enter by their own hashes."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def __str__(self) -> str:
        return _format_graph(self)


def _format_graph(graph: Graph) -> str:
    """The text form, with one tensor, operator or stage per line."""
    header = (("name", graph.name), ("inputs", graph.inputs), ("outputs", graph.outputs))
    further = (("raw", graph.raw), ("answers", graph.answers))
    lines = [format_line("graph", *header, *((name, names) for name, names in further if names))]
    for t in graph.tensors:
        extra: list[tuple[str, object]] = [("constant", t.constant)] if t.constant else []
        extra += [("quantisation", t.quantisation.json())] if t.quantisation else []
        lines.append(
            "  "
            + format_line(
                "tensor",
                ("name", t.name),
                ("dtype", t.dtype),
                ("shape", t.shape),
                ("axes", t.axes),
                ("source_dtype", t.source_dtype),
                *extra,
            )
        )
    lines += ["  " + _format_op("prepared", op) for op in graph.prepared]
    for op in graph.ops:
        lines.append("  " + _format_op("op", op))
        for s in op.stages:
            domain = " ".join(f"{'+' if a.reduce else ''}{a.name}:{a.extent}" for a in s.domain)
            lines.append(
                "    "
                + format_line(
                    "stage",
                    ("name", s.name),
                    ("domain", domain),
                    ("writes", access_to_json(s.writes)),
                    ("reads", [access_to_json(r) for r in s.reads]),
                )
            )
    lines += ["  " + _format_op("concluded", op) for op in graph.concluded]
    return "\n".join(lines) + "\n"


def _format_op(tag: str, op: Op) -> str:
    return format_line(
        tag,
        ("name", op.name),
        ("kind", op.kind),
        ("inputs", op.inputs),
        ("outputs", op.outputs),
        ("attributes", dict(op.attributes)),
        ("macs", op.macs),
        ("source", op.source),
    )


def channel_axis(tensor: Tensor, kind: str) -> int:
    """The device axis of the channels of a result of this kind: ONNX axis 1 of feature maps, the last axis of
    others."""
    return tensor.axes.index(1) if kind == "conv" and tensor.axes else len(tensor.shape) - 1


def multiplied_dtype(graph: Graph, op: Op) -> str:
    """The type of the numbers that a sum of products multiplies, that of its first operand: its result may be wider."""
    return graph.by_name[op.inputs[0]].dtype


def content_hash(array: npt.NDArray[np.generic]) -> str:
    """SHA-256 over dtype, shape and bytes (C order)."""
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    return digest.hexdigest()


def verify_graph(graph: Graph) -> None:
    """Names unique and defined before use, shapes positive, every op has stages. Raises ModelError naming the op."""
    defined = set(graph.fed) | {t.name for t in graph.tensors if t.constant}
    if len(graph.by_name) != len(graph.tensors) or len(graph.op_by_name) != len(graph.ops):
        raise ModelError(who=f"graph {graph.name}", needs="unique names of tensors and operators")
    for tensor in graph.tensors:
        if any(extent < 1 for extent in tensor.shape) or tensor.dtype not in DTYPE_BYTES:
            raise ModelError(who=f"tensor {tensor.name}", needs="positive extents and a known dtype", has=str(tensor))
        if tensor.quantisation and (problem := tensor.quantisation.problem(tensor.shape, tensor.dtype)):
            has = f"{tensor.dtype} {list(tensor.shape)}, {tensor.quantisation}"
            raise ModelError(who=f"tensor {tensor.name}", needs=problem, has=has)
    for op in graph.prepared:
        _verify_operands(graph, op, defined)
        defined.update(op.outputs)
    planned = defined - set(graph.raw)
    for op in graph.ops:
        _verify_operands(graph, op, planned)
        if not op.stages or not op.outputs:
            raise ModelError(who=f"operator {op.name}", needs="at least one stage and one output")
        _verify_stages(graph, op)
        planned.update(op.outputs)
    if missing := [name for name in graph.outputs if name not in planned]:
        raise ModelError(who=f"graph {graph.name}", needs="outputs that some operator writes", has=", ".join(missing))
    defined.update(graph.outputs)
    for op in graph.concluded:
        _verify_operands(graph, op, defined)
        defined.update(op.outputs)
    _verify_in_place(graph)
    if missing := [name for name in graph.answers if name not in defined]:
        raise ModelError(who=f"graph {graph.name}", needs="answers that some operator leaves", has=", ".join(missing))


def _verify_in_place(graph: Graph) -> None:
    """Inputs that are written are fed, in the order of the file, written once, and no other concluded operator or
    result has them."""
    for result, name in graph.in_place.items():
        own, written = graph.by_name[result], graph.by_name[name]
        others = [op.name for op in graph.concluded if name in op.inputs and op.outputs[0] != result]
        same = (own.shape, own.dtype, own.axes) == (written.shape, written.dtype, written.axes)
        if name not in graph.fed or not same or others or name in (*graph.outputs, *graph.answers):
            needs = "an input of its shape and order, which nothing else reads after the layers"
            raise ModelError(who=f"result {result}", needs=needs, has=name)


def _verify_operands(graph: Graph, op: Op, defined: set[str]) -> None:
    if missing := [name for name in op.inputs if name not in defined]:
        raise ModelError(who=f"operator {op.name}", needs="inputs that are defined before it", has=", ".join(missing))
    if unknown := [name for name in op.outputs if name not in graph.by_name or name in defined]:
        raise ModelError(who=f"operator {op.name}", needs="outputs written once", has=", ".join(unknown))


def _verify_stages(graph: Graph, op: Op) -> None:
    known = set(op.inputs)
    for stage in op.stages:
        axes = {axis.name for axis in stage.domain}
        for access in stage.reads:
            if access.tensor not in known:
                raise ModelError(
                    who=f"operator {op.name}, stage {stage.name}",
                    needs="reads of its inputs or earlier stages",
                    has=access.tensor,
                )
            if isinstance(access, Access) and access.tensor in graph.by_name:
                rank = len(graph.by_name[access.tensor].shape)
                if len(access.indices) != rank:
                    raise ModelError(
                        who=f"operator {op.name}, stage {stage.name}",
                        needs=f"{rank} indices of {access.tensor}",
                        has=str(len(access.indices)),
                    )
        accesses = [stage.writes, *(read for read in stage.reads if isinstance(read, Access))]
        used = {name for access in accesses for index in access.indices for name in index_axes(index)}
        if unknown := sorted(used - axes):
            raise ModelError(
                who=f"operator {op.name}, stage {stage.name}", needs="axes of its domain", has=", ".join(unknown)
            )
        known.add(stage.writes.tensor)
    if missing := [name for name in op.outputs if name not in known]:
        raise ModelError(who=f"operator {op.name}", needs="a stage that writes each output", has=", ".join(missing))
