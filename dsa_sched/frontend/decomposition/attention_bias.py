"""The mask of an attention as numbers: what it adds to its scores, and which of its rows see anything.

    truth value, constant      -->  0 where it holds, else minus infinity
    truth value, computed      -->  (truth - 1) * 2^15
    number                     -->  itself
    is_causal, windows         -->  0 for what a row sees by its place, else minus infinity

By ONNX's definition, a row that sees nothing gives zeros. Where there may be one, its scores are kept finite, and its
results are multiplied by `seen`, 1 for each row that sees something, else 0. Attention that was found in pieces without
such a guard is `unguarded`: it is NaN where the file is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import add, mul

import numpy as np
import onnx

from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import Array, Node
from dsa_sched.frontend.network.terms import Term, number, triangle

UNGUARDED = "unguarded"
BOOL, FLOAT = int(onnx.TensorProto.BOOL), int(onnx.TensorProto.FLOAT)


@dataclass(frozen=True, slots=True)
class Bias:
    """Names of the value added to the scores and of the factor of the results, empty for none; and whether scores
    must be kept finite after the sum.
    """

    added: str = ""
    seen: str = ""
    held: bool = False


def bias_of(chain: Chain, node: Node, scores: Shape) -> Bias | None:
    """None for a mask that does not spread over the scores."""
    mask, window = node.input(3), _window(node, *scores[-2:])
    if mask and not spreads(chain.shape(mask), scores):
        return None
    guarded = not node.integer(UNGUARDED, 0)
    constant = chain.network.constants.get(mask) if mask else None
    if not mask or constant is not None:
        return _constant(chain, mask, window, guarded=guarded)
    if chain.network.values[mask].dtype == BOOL:
        return _truth(chain, mask, window, guarded=guarded)
    return _number(chain, mask, window, guarded=guarded)


@dataclass(frozen=True, slots=True)
class _Window:
    """Columns that a row of scores sees by its place: whether each one is `kept`, and the diagonals at which kept ones
    end, each with whether they lie on and above it.
    """

    kept: Array
    ends: tuple[tuple[int, bool], ...]

    @property
    def extents(self) -> tuple[int, int]:
        rows, columns = self.kept.shape
        return rows, columns

    def hiding(self) -> tuple[Array, Term]:
        """Numbers added to the scores."""
        terms = [triangle(*self.extents, end, upper, 0.0, -inf) for end, upper in self.ends]
        return np.where(self.kept, np.float32(0), np.float32(-inf)), reduce(add, terms)

    def truth(self) -> tuple[Array, Term]:
        """1 for what a row sees, else 0."""
        terms = [triangle(*self.extents, end, upper, 1.0, 0.0) for end, upper in self.ends]
        return self.kept.astype(np.float32), reduce(mul, terms)


def _window(node: Node, rows: int, columns: int) -> _Window | None:
    """The window that is_causal and the widths to the left and the right leave; None where it hides nothing."""
    left, right = (node.integer(f"{side}_window_size", -1) for side in ("left", "right"))
    right = 0 if node.integer("is_causal", 0) else right
    place = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    ends = (*(((right, False),) if right >= 0 else ()), *(((-left, True),) if left >= 0 else ()))
    kept = (place <= (right if right >= 0 else columns)) & (place >= (-left if left >= 0 else -rows))
    return _Window(kept, ends) if ends else None


def spreads(mask: Shape, scores: Shape) -> bool:
    """Whether the mask can be added to the scores, which stay as many."""
    aligned = zip(mask[::-1], scores[::-1], strict=False)
    return len(mask) <= len(scores) and all(own in (1, extent) for own, extent in aligned)


def _constant(chain: Chain, mask: str, window: _Window | None, *, guarded: bool) -> Bias:
    """Rows that see nothing are known: they are left as they are, and their results become zeros."""
    sums: list[tuple[Array, Term]] = [window.hiding()] if window is not None else []
    if mask:
        array, term = chain.network.constants[mask], chain.network.term(mask)
        sums.append(hiding(array, term, kept=True) if array.dtype == np.bool_ else (array, term))
    if not sums:
        return Bias()
    total, said = sums[0]
    for array, term in sums[1:]:
        total, said = np.add(total, array, dtype=np.float64), said + term
    sees = np.asarray(total, np.float64) > -inf
    seen = sees.any(-1, keepdims=True) if sees.ndim else sees
    if seen.all() or not guarded:
        return Bias(mask if total is chain.network.constants.get(mask) else chain.array(total, said))
    left = np.asarray(np.where(seen, total, 0.0))
    return Bias(chain.array(left, None), chain.array(np.asarray(seen, np.float32), None))


def _truth(chain: Chain, mask: str, window: _Window | None, *, guarded: bool) -> Bias:
    truth = chain.add("Cast", mask, settings=(("to", FLOAT),))
    if window is not None:
        truth = chain.add("Mul", truth, chain.array(*window.truth()))
    if not guarded:
        return Bias(_far_below(chain, truth))
    far_below = chain.network.rounding.largest_power  # less a score of at most as much: in the range, and hidden
    added = chain.add("Mul", chain.add("Sub", truth, chain.number(1.0)), chain.number(far_below))
    return Bias(added, _largest_of_a_row(chain, truth))


def _far_below(chain: Chain, truth: str) -> str:
    """Zero for 1, minus infinity for 0."""
    sign = chain.add("Sub", truth, chain.number(0.5))
    return chain.add("Min", chain.add("Mul", sign, chain.number(inf)), chain.number(0.0))


def added_mask(chain: Chain, mask: str) -> str:
    """The mask alone as numbers to add; empty for none."""
    constant = chain.network.constants.get(mask)
    if not mask or (constant is not None and constant.dtype != np.bool_):
        return mask
    if constant is not None:
        return chain.array(*hiding(constant, chain.network.term(mask), kept=True))
    if chain.network.values[mask].dtype != BOOL:
        return mask
    return _far_below(chain, chain.add("Cast", mask, settings=(("to", FLOAT),)))


def _number(chain: Chain, mask: str, window: _Window | None, *, guarded: bool) -> Bias:
    """Bias of a computed mask. Half of a finite number is above the negative of the largest number; half of minus
    infinity is not.
    """
    added = mask if window is None else chain.add("Add", mask, chain.array(*window.hiding()))
    if not guarded:
        return Bias(added)
    half = chain.add("Mul", _largest_of_a_row(chain, added), chain.number(0.5))
    largest = chain.network.rounding.largest
    above = chain.add("Add", chain.add("Max", half, chain.number(-largest)), chain.number(largest))
    return Bias(added, chain.add("Min", above, chain.number(1.0)), held=True)


def _largest_of_a_row(chain: Chain, name: str) -> str:
    shape = chain.shape(name)
    settings = (("axes", (len(shape) - 1,)), ("keepdims", 1))
    return chain.add("ReduceMax", name, shape=(*shape[:-1], 1), settings=settings)


def hiding(truth: Array, term: Term, *, kept: bool, fill: float = -inf) -> tuple[Array, Term]:
    """The number to add for each truth value: zero where it is `kept`, else `fill`; and how it follows."""
    array = np.where(truth == kept, np.float32(0), np.float32(fill))
    if fill == -inf:
        sign = term - number(0.5) if kept else number(0.5) - term
        return array, (sign * number(inf)).least(number(0))
    return array, (number(1) - term if kept else term) * number(fill)
