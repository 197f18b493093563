"""Patterns of nodes as values, and the rules that put one operator in the place of what a pattern matches.

    X, C = value("x"), number(name="c")
    op("Mul", X, op("Sigmoid", op("Mul", X, C)))        matches x * Sigmoid(x * 0.5), in any order of the factors

A pattern says how a value is made; matching starts at the value and goes up. A name that occurs twice stands for one
value, or one number. What a pattern captured, `Captured`, is what a rule writes the operator of; a rule whose further
conditions do not hold writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.network.queries import is_computed

COMMUTATIVE = frozenset(["Add", "Mul", "Max", "Min"])


@dataclass(frozen=True, slots=True)
class ValuePattern:
    """Any value, captured as `name`; no constant if it has to be `computed`."""

    name: str
    computed: bool


@dataclass(frozen=True, slots=True)
class NumberPattern:
    """A constant of one number from `low` to `high`, captured as `name` if it has one."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OpPattern:
    """The result of a node of one of these types; operands after those listed may be anything. Two operands of a
    commutative operator are in any order. A number among the operands adds no axes to the others.
    """

    op_types: tuple[str, ...]
    operands: tuple[Pattern, ...]
    name: str


@dataclass(frozen=True, slots=True)
class EitherPattern:
    """What one of these matches, the first ones first."""

    patterns: tuple[Pattern, ...]


Pattern = ValuePattern | NumberPattern | OpPattern | EitherPattern


def value(name: str, *, computed: bool = True) -> Pattern:
    return ValuePattern(name, computed)


def number(exactly: float | None = None, *, name: str = "", low: float = -inf, high: float = inf) -> Pattern:
    return NumberPattern(name, *((low, high) if exactly is None else (exactly, exactly)))


def op(op_types: str, *operands: Pattern, name: str = "") -> Pattern:
    """The result of a node of a type, or of one of several: `"ReduceSum|ReduceMean"`."""
    return OpPattern(tuple(op_types.split("|")), operands, name)


def either(*patterns: Pattern) -> Pattern:
    return EitherPattern(patterns)


@dataclass(frozen=True, slots=True)
class Captured:
    """Values and numbers by the names in a pattern, and the nodes that it matched, the last of the network first."""

    values: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def with_value(self, name: str, found: str) -> Iterator[Captured]:
        """Nothing where the name stands for another value."""
        if self.values.get(name, found) == found:
            yield replace(self, values={**self.values, name: found}) if name else self

    def with_number(self, name: str, found: float) -> Iterator[Captured]:
        """Nothing where the name stands for another number."""
        if self.numbers.get(name, found) == found:
            yield replace(self, numbers={**self.numbers, name: found}) if name else self

    def is_closed(self, network: Network) -> bool:
        """Whether only nodes of the match read what its nodes make, except for the last one."""
        names = {node.name for node in self.nodes}
        made = [output for node in self.nodes[1:] for output in node.outputs]
        read = all(reader.name in names for output in made for reader in network.readers.get(output, ()))
        return read and not set(made) & set(network.outputs)


def matches(network: Network, pattern: Pattern, name: str, found: Captured | None = None) -> Iterator[Captured]:
    """All ways in which a pattern matches a value, with what was captured before."""
    found = found or Captured()
    match pattern:
        case ValuePattern():
            if is_computed(network, name) or (not pattern.computed and network.known_shape(name) is not None):
                yield from found.with_value(pattern.name, name)
        case NumberPattern():
            constant = network.constants.get(name)
            if constant is not None and constant.size == 1 and constant.dtype.kind in "fViu":
                number = float(constant.reshape(-1)[0])
                if pattern.low <= number <= pattern.high:
                    yield from found.with_number(pattern.name, number)
        case EitherPattern():
            for each in pattern.patterns:
                yield from matches(network, each, name, found)
        case OpPattern():
            node = network.producer.get(name)
            if node is None or node.op_type not in pattern.op_types or len(node.inputs) < len(pattern.operands):
                return
            commutes = node.op_type in COMMUTATIVE
            if commutes and len(node.inputs) > len(pattern.operands):
                return
            swapped = (node.inputs[::-1],) if commutes else ()
            for inputs in (node.inputs, *swapped):
                if _adds_no_axes(network, pattern, inputs, name):
                    for last in found.with_value(pattern.name, name):
                        nodes = last.nodes if node in last.nodes else (*last.nodes, node)
                        yield from _all_match(network, pattern.operands, inputs, replace(last, nodes=nodes))


def _adds_no_axes(network: Network, pattern: OpPattern, inputs: Sequence[str], result: str) -> bool:
    pairs = list(zip(pattern.operands, inputs, strict=False))
    others = [name for operand, name in pairs if not isinstance(operand, NumberPattern)]
    same = all(network.known_shape(name) == network.known_shape(result) for name in others)
    return same or len(others) == len(pairs)


def _all_match(
    network: Network, patterns: Sequence[Pattern], names: Sequence[str], found: Captured
) -> Iterator[Captured]:
    if not patterns:
        yield found
        return
    for first in matches(network, patterns[0], names[0], found):
        yield from _all_match(network, patterns[1:], names[1:], first)


@dataclass(frozen=True, slots=True)
class Match:
    """The node that ends an operator, and the function that writes the operator in its place, its result last."""

    end: Node
    write: Callable[[Chain], object]


@dataclass(frozen=True, slots=True)
class PatternRule:
    """A pattern, and the function that writes an operator in place of a match, or nothing if it is none."""

    pattern: Pattern
    write: Callable[[Chain, Captured], None]


def matches_of(rules: Iterable[PatternRule], network: Network) -> Iterator[Match]:
    """Every match of the rules."""
    for node in network.nodes:
        for rule in rules if node.outputs[0] in network.values else ():
            for found in matches(network, rule.pattern, node.outputs[0]):
                yield Match(node, lambda chain, rule=rule, found=found: rule.write(chain, found))  # type: ignore[misc]


def replaced(network: Network, found: Iterable[Match]) -> tuple[Network, frozenset[str]]:
    """The network with the first match exchanged that each last node has, and the names of the last nodes. Nodes
    before the last one are left to be pruned.
    """
    draft, ends = Draft(network, tag="found"), set[str]()
    for match in found:
        chain = draft.chain(match.end)
        if match.end.name not in ends:
            match.write(chain)
        if chain.nodes:
            ends.add(match.end.name)
            draft.put(chain)
    return (draft.finished().pruned() if ends else network), frozenset(ends)
