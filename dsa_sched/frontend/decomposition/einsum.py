"""Einsum as a product of matrices, or of elements where nothing is summed up.

    btgi,gih->btgh    x --Transpose--> [g, b*t, i]   MatMul   [g, i, h] --> [g, b*t, h] --Transpose--> [b, t, g, h]

Labels that only one operand has, and the result does not, are summed up first. Labels of both operands and of the
result are matrices side by side; labels of both operands alone are multiplied and summed up; the others are rows of the
first operand and columns of the second. Of the orders that give the result, the one that transposes the fewest elements
is taken. A label that an operand has twice is its diagonal. More than two operands are taken two at a time, from the
left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import prod

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import FLOATING, Node
from dsa_sched.frontend.network.operation import Refusal, Writer

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand, one label for each of its axes."""

    name: str
    labels: Labels


def einsum(chain: Chain, node: Node) -> bool:
    """A rule of the decomposition."""
    try:
        terms, result = _parsed(node.text("equation", ""), [chain.shape(name) for name in node.inputs])
    except ValueError:
        return False
    if chain.network.values[node.outputs[0]].dtype not in FLOATING:
        return False
    operands = [_Term(name, labels) for name, labels in zip(node.inputs, terms, strict=True)]
    extents = _extents(chain, operands)
    operands = [_plain(chain, operand, extents) for operand in operands]
    total = operands[0] if len(operands) > 1 else _without_foreign(chain, operands[0], result)
    for place, operand in enumerate(operands[1:], 2):
        later = {label for other in operands[place:] for label in other.labels}
        wanted = result if place == len(operands) else _wanted(total, operand, {*later, *result})
        total = _pair(chain, total, operand, wanted)
    _finish(chain, total, result, chain.shape(node.outputs[0]))
    return True


def refuse_einsum(_writer: Writer, node: Node) -> None:
    """Raises Refusal for nodes that the decomposition leaves."""
    raise Refusal(f"equation {node.text('equation', '')!r} does not fit the operands")


def _parsed(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Labels], Labels]:
    """Labels of each operand and of the result; those of `...` are numbers counted from the last axis that it stands
    for. Raises ValueError where the equation does not fit.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(shapes):
        raise ValueError(equation)
    terms = [
        _labels(text, len(shape) - len(text.replace("...", ""))) for text, shape in zip(texts, shapes, strict=True)
    ]
    if any(len(term) != len(shape) for term, shape in zip(terms, shapes, strict=True)):
        raise ValueError(equation)
    open_ = sorted({label for term in terms for label in term if label.isdigit()}, key=int, reverse=True)
    if arrow:
        result = _labels(right, len(open_))
    else:
        count = [label for term in terms for label in term if not label.isdigit()]
        result = (*open_, *sorted(label for label in set(count) if count.count(label) == 1))
    known = {label for term in terms for label in term}
    if len(set(result)) != len(result) or not known.issuperset(result):
        raise ValueError(equation)
    return terms, result


def _labels(text: str, more: int) -> Labels:
    before, dots, after = text.partition("...")
    if not dots:
        return tuple(before)
    return (*before, *(str(number) for number in reversed(range(more))), *after)


def _extents(chain: Chain, operands: Sequence[_Term]) -> dict[str, int]:
    """Extent of each label; an operand with one element there is repeated."""
    found: dict[str, int] = {}
    for operand in operands:
        for label, extent in zip(operand.labels, chain.shape(operand.name), strict=True):
            found[label] = max(found.get(label, 1), extent)
    return found


def _plain(chain: Chain, operand: _Term, extents: Mapping[str, int]) -> _Term:
    """The operand without repeated axes, and with each label once."""
    shape = chain.shape(operand.name)
    kept = [place for place, label in enumerate(operand.labels) if shape[place] == extents[label]]
    x = chain.reshaped(operand.name, *(shape[place] for place in kept))
    labels = tuple(operand.labels[place] for place in kept)
    while twice := [label for label in labels if labels.count(label) > 1]:
        x, labels = _diagonal(chain, x, labels, twice[0])
    return _Term(x, labels)


def _diagonal(chain: Chain, x: str, labels: Labels, label: str) -> tuple[str, Labels]:
    """Replace two axes of one label by their diagonal, in place of the first."""
    first, second = [place for place, other in enumerate(labels) if other == label][:2]
    rest = [place for place in range(len(labels)) if place not in (first, second)]
    x = chain.transposed(x, first, second, *rest)
    extent, *others = chain.shape(x)[0], *chain.shape(x)[2:]
    x = chain.reshaped(x, extent * extent, *others)
    x = chain.sliced(x, 0, 0, extent + 1, extent)
    return x, (label, *(labels[place] for place in rest))


def _without_foreign(chain: Chain, operand: _Term, wanted: Sequence[str] | set[str]) -> _Term:
    """Summed up along the labels that are not wanted."""
    axes = tuple(place for place, label in enumerate(operand.labels) if label not in wanted)
    return _Term(chain.summed(operand.name, *axes), tuple(label for label in operand.labels if label in wanted))


def _wanted(left: _Term, right: _Term, later: set[str]) -> Labels:
    return tuple(label for label in dict.fromkeys((*left.labels, *right.labels)) if label in later)


def _pair(chain: Chain, left: _Term, right: _Term, result: Labels) -> _Term:
    """The product of two operands, its labels those of the result in any order."""
    left = _without_foreign(chain, left, {*right.labels, *result})
    right = _without_foreign(chain, right, {*left.labels, *result})
    extents = _extents(chain, (left, right))
    if not [label for label in left.labels if label in right.labels and label not in result]:
        return _elements(chain, left, right, result, extents)
    least = min(_ways(left, right, result), key=lambda way: way.transposed(chain, extents, result))
    return least.product(chain, extents)


def _elements(chain: Chain, left: _Term, right: _Term, result: Labels, extents: Mapping[str, int]) -> _Term:
    """Product element by element: operands in the order of the result, with one element along axes that they lack."""
    labels = tuple(label for label in result if label in {*left.labels, *right.labels})
    names = []
    for operand in (left, right):
        own = [label for label in labels if label in operand.labels]
        x = chain.transposed(operand.name, *(operand.labels.index(label) for label in own))
        names.append(chain.reshaped(x, *(extents[label] if label in operand.labels else 1 for label in labels)))
    return _Term(chain.add("Mul", *names), labels)


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to write a product of matrices: labels of matrices side by side, rows, columns, and those summed."""

    left: _Term
    right: _Term
    outer: Labels
    rows: Labels
    columns: Labels
    summed: Labels

    @property
    def labels(self) -> Labels:
        return (*self.outer, *self.rows, *self.columns)

    def orders(self) -> tuple[Labels, Labels]:
        """Labels in the order in which the two operands are read."""
        outer = [tuple(label for label in self.outer if label in term.labels) for term in (self.left, self.right)]
        return (*outer[0], *self.rows, *self.summed), (*outer[1], *self.summed, *self.columns)

    def transposed(self, chain: Chain, extents: Mapping[str, int], result: Labels) -> tuple[int, int]:
        """Number of elements that are transposed at run time, and number of matrices."""
        count = 0
        for term, order in zip((self.left, self.right), self.orders(), strict=True):
            if chain.computed(term.name) and order != term.labels:
                count += prod(chain.shape(term.name))
        if self.labels != tuple(label for label in result if label in self.labels):
            count += prod(extents[label] for label in self.labels)
        return count, prod(extents[label] for label in self.outer)

    def product(self, chain: Chain, extents: Mapping[str, int]) -> _Term:
        names = []
        ends = ((self.rows, self.summed), (self.summed, self.columns))
        for term, order, pair in zip((self.left, self.right), self.orders(), ends, strict=True):
            x = chain.transposed(term.name, *(term.labels.index(label) for label in order))
            outer = tuple(extents[label] if label in term.labels else 1 for label in self.outer)
            matrix = tuple(prod(extents[label] for label in part) for part in pair)
            flat = not any(label in term.labels for label in self.outer)
            names.append(chain.reshaped(x, *(() if flat else outer), *matrix))
        outer = tuple(extents[label] for label in self.outer)
        shape = (*outer, *(prod(extents[label] for label in part) for part in (self.rows, self.columns)))
        y = chain.add("MatMul", *names, shape=shape)
        return _Term(chain.reshaped(y, *(extents[label] for label in self.labels)), self.labels)


def _ways(left: _Term, right: _Term, result: Labels) -> Iterator[_Way]:
    """Either operand first, and the first labels of the result as matrices side by side even where only one operand has
    them, which meet the other one's matrix again and again."""
    both = {label for label in left.labels if label in right.labels}
    summed = tuple(label for label in left.labels if label in both and label not in result)
    outer = tuple(label for label in result if label in both)
    for a, b in ((left, right), (right, left)):
        rows = tuple(label for label in result if label in a.labels and label not in both)
        columns = tuple(label for label in result if label in b.labels and label not in both)
        yield _Way(a, b, outer, rows, columns, summed)
        lone = _before(result, {*rows, *columns[-1:]}, columns)
        if lone and len(lone) == len(columns) - 1:
            wide = tuple(label for label in result if label in {*outer, *lone})
            yield _Way(a, b, wide, rows, columns[-1:], summed)


def _before(labels: Labels, ends: set[str], counted: Labels) -> Labels:
    """The counted labels before the first of `ends`."""
    return tuple(label for label in takewhile(lambda label: label not in ends, labels) if label in counted)


def _finish(chain: Chain, total: _Term, result: Labels, shape: tuple[int, ...]) -> None:
    """The value in the order of the result, by a node at least."""
    present = tuple(label for label in result if label in total.labels)
    x = chain.transposed(total.name, *(total.labels.index(label) for label in present))
    x = chain.reshaped(x, *shape)
    if not chain.nodes or chain.nodes[-1].outputs != (x,):
        chain.add("Identity", x)
