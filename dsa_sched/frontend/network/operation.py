"""One operator of ours with ONNX axes, and the writer with which a rule makes operators from an ONNX node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from dsa_sched.frontend.network.network import Array, Network, Node, Value
from dsa_sched.frontend.network.terms import Term, from_file
from dsa_sched.frontend.network.traced import TracedArray
from partitioner.ir.graph import Attribute
from partitioner.ir.wants import Wants


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator of ours with ONNX axes. `source` is the ONNX operator type."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    source: str = ""

    def ints(self, name: str) -> tuple[int, ...]:
        value = dict(self.attributes)[name]
        assert isinstance(value, tuple)
        return tuple(int(v) for v in value)

    def integer(self, name: str) -> int:
        value = dict(self.attributes)[name]
        assert isinstance(value, int)
        return value


@dataclass(frozen=True, slots=True)
class Operations:
    """The network in our operators; `constants` and `values` include those that rules made; `terms` says how constants
    that are not in the file follow from it.
    """

    operations: tuple[Operation, ...]
    constants: dict[str, Array]
    values: dict[str, Value]
    terms: dict[str, Term]

    def term(self, name: str) -> Term:
        """Derivation of a constant from the file."""
        return self.terms.get(name, from_file(name))


class Refusal(Exception):
    """The reason why a rule cannot take a node; becomes one line of the ModelError."""


def refusing(reason: str) -> Rule:
    """The rule of operators that reach a rule only where they cannot be compiled."""

    def rule(_writer: Writer, _node: Node) -> None:
        raise Refusal(reason)

    return rule


@dataclass(slots=True)
class Writer:
    """Everything that the rules of one network have made so far."""

    network: Network
    constants: dict[str, Array]
    values: dict[str, Value]
    wants: Wants
    operations: list[Operation] = field(default_factory=list)
    terms: dict[str, Term] = field(default_factory=dict)

    def largest(self, name: str) -> float:
        """The largest number of a value's type on the device."""
        source = onnx.helper.tensor_dtype_to_np_dtype(self.values[name].dtype)
        return float(np.finfo(self.wants.dtype(str(source))).max)

    def add(
        self,
        node: Node,
        kind: str,
        attributes: Mapping[str, Attribute] | None = None,
        *,
        inputs: tuple[str, ...] = (),
        outputs: tuple[str, ...] = (),
        suffix: str = "",
    ) -> None:
        """Append an operation that writes `outputs`: by default those of the node, or a new value with a `suffix`."""
        if not outputs:
            outputs = (f"{node.outputs[0]}::{suffix}",) if suffix else tuple(name for name in node.outputs if name)
        name = f"{node.name}::{suffix}" if suffix else node.name
        self.operations.append(
            Operation(name, kind, inputs or node.inputs[:1], outputs, tuple((attributes or {}).items()), node.op_type)
        )

    def intermediate(self, node: Node, suffix: str, shape: tuple[int, ...]) -> str:
        name = f"{node.outputs[0]}::{suffix}"
        self.values[name] = Value(shape, self.values[node.outputs[0]].dtype)
        return name

    def traced(self, name: str) -> TracedArray:
        """A constant with its derivation."""
        return TracedArray(self.constants[name], self.term(name))

    def store(self, name: str, constant: TracedArray) -> str:
        """Add a constant that the rule makes."""
        return self.constant(name, constant.array, constant.term)

    def constant(self, name: str, array: Array, term: Term | None = None) -> str:
        """Add a constant that the rule makes; without a term, `verify` cannot compare it with the file and says so."""
        self.constants[name] = array
        if term is not None:
            self.terms[name] = term
        self.values[name] = Value(array.shape, onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def term(self, name: str) -> Term:
        """Derivation of a constant from the file."""
        return self.terms.get(name, from_file(name))

    def integers(self, node: Node, position: int, what: str) -> tuple[int, ...]:
        """A constant input as integers. Raises Refusal where it is computed at run time."""
        if node.input(position) not in self.constants:
            raise Refusal(f"{what} is computed at run time; it must be constant")
        return tuple(int(v) for v in self.constants[node.input(position)].reshape(-1))

    def scalar(self, node: Node, position: int, what: str, default: float) -> float:
        """Raises Refusal where it is computed at run time or has more elements."""
        if not node.input(position):
            return default
        array = self.constants.get(node.input(position))
        if array is None or array.size != 1:
            raise Refusal(f"{what} is not one constant number")
        return float(array.reshape(-1)[0])


Rule = Callable[[Writer, Node], None]
