"""Constants after a run against the user's file: each is computed anew from the file's initializers, by its term.

    ModelProto + terms  --float64-->  what each constant must be   ==   what lies in memory, to within rounding

This is a second reading: it takes the bytes of the initializers itself and computes terms by its own arithmetic, so
that any error between the file and the machine code shows. Values that nodes make of initializers alone are taken from
the reference's run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.frontend import Model
from dsa_sched.frontend.network.terms import Term
from dsa_sched.verification.evidence import Dump, Feed
from dsa_sched.verification.verdict import ConstantsResult
from partitioner.ir.graph import Tensor

Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]
Leaf = Callable[[str], Array]

ROUNDING_SLACK = 2.0**-8
"""Slack, in half steps of the stored type, for the last bits in which two ways to compute a term may differ."""

RUNTIME_NOISE = 2.0**-22
"""Noise, relative to the largest magnitude, of a value that nodes make of initializers: the runtime adds float32
products in its own order, so small sums of large products differ by a few steps of these.
"""

MOVES = ("reshape", "transpose", "broadcast", "take")


class _Undeclared(Exception):
    """A term names something that the file does not have."""


def compare_constants(model: Model, dump: Dump, exact: Feed) -> ConstantsResult:
    """Compare every constant of the graph as `dump` has it (or as the graph has it, where it lies in no memory) with
    the file. `exact` holds what the file's nodes make of its initializers. Tables of the target, which are not in the
    file, must be as the graph has them; whether their numbers are right shows where the layers that look them up are
    emulated.
    """
    leaves = _Leaves(model.source, exact)
    copied = computed = 0
    undeclared: list[str] = []
    different: list[tuple[str, int, int, str]] = []
    for tensor in model.graph.tensors:
        if not tensor.constant:
            continue
        stored = _stored(tensor, model, dump)
        term = model.terms.get(tensor.name)
        try:
            if term is None:
                raise _Undeclared
            if term.kind == "target":
                expected, copy = model.constants[tensor.constant], False
            else:
                expected, copy = worked_out(term, leaves.value), leaves.copies(term)
        except _Undeclared:
            undeclared.append(tensor.name)
            continue
        copied, computed = copied + copy, computed + (not copy)
        if expected.shape != stored.shape:
            # Scalars and vectors broadcast to what the operator reads.
            expected = np.broadcast_to(expected, stored.shape) if _spreads(expected, stored) else expected
        if expected.shape != stored.shape:
            different.append((tensor.name, stored.size, stored.size, f"which is {list(expected.shape)} by {term}"))
            continue
        noise = 0.0 if not expected.size or leaves.from_file_alone(term) else RUNTIME_NOISE * _magnitude(expected)
        wrong = np.argwhere(_differs(stored, expected, copy, noise))
        if len(wrong):
            first = tuple(int(i) for i in wrong[0])
            has, needs = float(stored[first]), float(expected[first])
            different.append(
                (tensor.name, len(wrong), stored.size, f"first at {list(first)}: {has:.6g}, {needs:.6g} by {term}")
            )
    return ConstantsResult(copied, computed, tuple(undeclared), tuple(different))


def _spreads(expected: Array, stored: Array) -> bool:
    return expected.ndim <= stored.ndim and expected.size == 1


def _stored(tensor: Tensor, model: Model, dump: Dump) -> Array:
    if tensor.name in dump:
        return np.frombuffer(dump[tensor.name], np.dtype(tensor.dtype)).reshape(tensor.shape)
    return model.constants[tensor.constant].reshape(tensor.shape)


def _magnitude(array: Array) -> float:
    """The largest of the finite numbers."""
    finite = np.abs(array[np.isfinite(array)]) if array.dtype.kind == "f" else np.zeros(0)
    return float(finite.max(initial=0.0))


def _differs(stored: Array, expected: Array, copy: bool, noise: float) -> npt.NDArray[np.bool_]:
    """Where a stored constant is not the expected number (known up to `noise`) rounded to nearest; beyond the range the
    largest number is expected. All NaN are alike.
    """
    if stored.dtype.kind != "f":
        return np.asarray(stored != expected)
    bits, largest = f"u{stored.dtype.itemsize}", float(np.finfo(str(stored.dtype)).max)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded: npt.NDArray[np.floating] = expected.astype(stored.dtype)
        beyond = np.isinf(rounded) & ~np.isinf(expected)
        rounded[beyond] = np.copysign(largest, rounded[beyond])
        unlike: npt.NDArray[np.bool_] = np.asarray(stored.view(bits) != rounded.view(bits)) & ~(
            np.isnan(stored) & np.isnan(rounded)
        )
        if copy or not unlike.any():
            return unlike
        exact = np.clip(expected.astype(np.float64), -largest, largest)
        step = np.spacing(np.abs(rounded)).astype(np.float64)
        near = np.abs(stored.astype(np.float64) - exact) <= step / 2 * (1 + ROUNDING_SLACK) + noise
    return np.asarray(unlike & ~near, np.bool_)


class _Leaves:
    """Values of the file by name, each read when it is asked for."""

    def __init__(self, source: onnx.ModelProto, exact: Feed) -> None:
        self._initializers = {tensor.name: tensor for tensor in source.graph.initializer}
        made = {name for node in source.graph.node for name in node.output}
        self._made: Mapping[str, Array] = {name: array for name, array in exact.items() if name in made}

    def value(self, name: str) -> Array:
        if name in self._initializers:
            return initializer(self._initializers[name])
        if name in self._made:
            return np.asarray(self._made[name])
        raise _Undeclared

    def from_file_alone(self, term: Term) -> bool:
        """Whether no node of the file has a part in the numbers."""
        waiting, seen = [term], set[int]()
        while waiting:
            part = waiting.pop()
            if id(part) not in seen:
                seen.add(id(part))
                if part.kind == "file" and part.name not in self._initializers:
                    return False
                waiting += part.operands
        return True

    def copies(self, term: Term) -> bool:
        """Whether the numbers are an initializer's own, at most in another order."""
        if term.kind == "join":
            return all(self.copies(part) for part in term.operands)
        while term.kind in MOVES:
            term = term.operands[0]
        return term.kind == "number" or (term.kind == "file" and term.name in self._initializers)


def worked_out(term: Term, leaf: Leaf) -> Array:
    """The numbers of a term: in the file's own type while they are only moved, in float64 after any arithmetic."""
    known: dict[int, Array] = {}
    waiting = [term]  # not by recursion: a file may have thousands of factors in a row
    while waiting:
        part = waiting[-1]
        open_ = [operand for operand in part.operands if id(operand) not in known]
        if open_:
            waiting += open_
            continue
        known[id(part)] = _step(part, [known[id(operand)] for operand in part.operands], leaf)
        waiting.pop()
    return known[id(term)]


def _step(term: Term, operands: list[Array], leaf: Leaf) -> Array:
    if term.kind == "number":  # any number: an attribute may be infinite
        return np.array(term.numbers[0])
    if term.kind == "triangle":
        return _triangle(*term.numbers)
    whole = tuple(int(n) for n in term.numbers)
    match term.kind, operands:
        case "file", _:
            return leaf(term.name)
        case "reshape", [array]:
            return array.reshape(whole)
        case "transpose", [array]:
            return array.transpose(whole)
        case "broadcast", [array]:
            return np.broadcast_to(array, whole)
        case "take", [array]:
            return array[np.array(whole, np.int64)]
        case "pad", [array]:
            wide = np.zeros([extent + more for extent, more in zip(array.shape, whole, strict=True)], array.dtype)
            wide[tuple(slice(extent) for extent in array.shape)] = array
            return wide
        case "join", arrays:
            return np.concatenate(arrays, whole[0])
        case "rounded", [array]:
            whole_numbers = np.dtype(term.name).kind == "i"
            with np.errstate(over="ignore"):
                return np.asarray((np.rint(array) if whole_numbers else array).astype(term.name), np.float64)
        case kind, arrays:
            return _arithmetic(kind, [np.asarray(array, np.float64) for array in arrays], whole)


def _triangle(rows: float, columns: float, diagonal: float, upper: float, inside: float, outside: float) -> Array:
    """Element by element, by how far a column lies right of the diagonal."""
    right = np.arange(int(columns))[None, :] - np.arange(int(rows))[:, None] - int(diagonal)
    return np.where(right >= 0 if upper else right <= 0, inside, outside)


def _arithmetic(kind: str, operands: list[Doubles], axes: tuple[int, ...]) -> Array:
    with np.errstate(all="ignore"):
        match kind, operands:
            case "add", [a, b]:
                return np.asarray(a + b)
            case "subtract", [a, b]:
                return np.asarray(a - b)
            case "multiply", [a, b]:
                return np.asarray(a * b)
            case "divide", [a, b]:
                return np.asarray(a / b)
            case "product", [a, b]:
                return np.asarray(a @ b)
            case "least", [a, b]:
                return np.asarray(np.minimum(a, b))
            case "root", [a]:
                return np.asarray(np.sqrt(a))
            case "sum", [a]:
                return np.asarray(a.sum(axis=axes))
    raise AssertionError(kind)


FIELDS: Mapping[int, str] = {
    onnx.TensorProto.FLOAT: "float_data",
    onnx.TensorProto.DOUBLE: "double_data",
    onnx.TensorProto.INT64: "int64_data",
    onnx.TensorProto.UINT32: "uint64_data",
    onnx.TensorProto.UINT64: "uint64_data",
}
"""Field of elements that are not raw bytes, by type; others, also fp16 and bfloat16 as bits, use `int32_data`."""

BITS: Mapping[int, np.dtype[np.generic]] = {
    onnx.TensorProto.FLOAT16: np.dtype("<u2"),
    onnx.TensorProto.BFLOAT16: np.dtype("<u2"),
}


def initializer(tensor: onnx.TensorProto) -> Array:
    """The elements of a tensor that lies in the file itself. bfloat16 comes as float32."""
    kind = tensor.data_type
    stored = BITS.get(kind, np.dtype(helper.tensor_dtype_to_np_dtype(kind)).newbyteorder("<"))
    if tensor.HasField("raw_data"):
        array: Array = np.frombuffer(tensor.raw_data, stored)
    else:
        array = np.array(getattr(tensor, FIELDS.get(kind, "int32_data"))).astype(stored)
    if sys.byteorder == "big":
        array = array.astype(stored.newbyteorder("="))
    if kind == onnx.TensorProto.FLOAT16:
        array = array.view(np.float16)
    elif kind == onnx.TensorProto.BFLOAT16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.reshape(tuple(tensor.dims))
