"""The mask of an attention as numbers: what it adds to its scores, and which of its rows see anything.

    truth value, constant      -->  0 where it holds, else minus infinity
    truth value, computed      -->  (truth - 1) * 2^15
    number                     -->  itself
    is_causal, windows         -->  0 for what a row sees by its place, else minus infinity

By ONNX's definition, a row that sees nothing gives zeros. Where there may be one, its scores are kept finite, and its
results are multiplied by `seen`, 1 for each row that sees something, else 0. Attention that a file spells out without
such a guard is `unguarded`: it is NaN where the file is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import add, mul

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.terms import Term, number, triangle
from dsa_sched.frontend.network.traced import TracedArray

UNGUARDED = "unguarded"
PAST = "past"
"""Setting: the number of keys that come before the one of the first row."""
HELD = "held"
"""Setting of attention to keys that are not joined: scores must be kept finite after the sum with a mask."""
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

    kept: npt.NDArray[np.bool_]
    ends: tuple[tuple[int, bool], ...]

    def hiding(self) -> TracedArray:
        """Numbers added to the scores."""
        array = np.where(self.kept, np.float32(0), np.float32(-inf))
        return TracedArray(array, reduce(add, self._triangles(0.0, -inf)))

    def truth(self) -> TracedArray:
        """1 for what a row sees, else 0."""
        return TracedArray(self.kept.astype(np.float32), reduce(mul, self._triangles(1.0, 0.0)))

    def _triangles(self, inside: float, outside: float) -> list[Term]:
        rows, columns = self.kept.shape
        return [triangle(rows, columns, end, upper, inside, outside) for end, upper in self.ends]


def _window(node: Node, rows: int, columns: int) -> _Window | None:
    """The window that is_causal and the widths to the left and the right leave; None where it hides nothing."""
    left, right = (node.integer(f"{side}_window_size", -1) for side in ("left", "right"))
    right, past = 0 if node.integer("is_causal", 0) else right, node.integer(PAST, 0)
    place = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    ends = (*(((past + right, False),) if right >= 0 else ()), *(((past - left, True),) if left >= 0 else ()))
    kept = (place <= (past + right if right >= 0 else columns)) & (place >= (past - left if left >= 0 else -rows))
    return _Window(kept, ends) if ends else None


def spreads(mask: Shape, scores: Shape) -> bool:
    """Whether the mask can be added to the scores, which stay as many."""
    aligned = zip(mask[::-1], scores[::-1], strict=False)
    return len(mask) <= len(scores) and all(own in (1, extent) for own, extent in aligned)


def _constant(chain: Chain, mask: str, window: _Window | None, *, guarded: bool) -> Bias:
    """Rows that see nothing are known: they are left as they are, and their results become zeros."""
    sums = [window.hiding()] if window is not None else []
    if mask:
        given = chain.network.traced(mask)
        sums.append(hiding(given, kept=True) if given.array.dtype == np.bool_ else given)
    if not sums:
        return Bias()
    total = reduce(add, sums)
    sees = total.float64 > -inf
    seen = sees.any(-1, keepdims=True) if sees.ndim else sees
    if seen.all() or not guarded:
        return Bias(mask if total.array is chain.network.constants.get(mask) else chain.store(total))
    kept = np.asarray(np.where(seen, total.array, 0.0))
    return Bias(chain.array(kept, None), chain.array(np.asarray(seen, np.float32), None))


def part_bias(chain: Chain, mask: str) -> Bias:
    """Bias of the mask of a part of all keys, truth values or numbers: a row that sees none of the part may see others,
    so that its scores stay far below."""
    constant = chain.constants.get(mask, chain.network.constants.get(mask))
    if constant is not None:
        far_below = chain.network.rounding.largest_power
        shown = constant if constant.dtype == np.bool_ else constant.astype(np.float64) > -inf
        numbers = 0.0 if constant.dtype == np.bool_ else constant
        added = np.asarray(np.where(shown, numbers, -far_below), np.float32)
        seen = np.asarray(shown.any(-1, keepdims=True), np.float32)
        return Bias(chain.array(added, None), chain.array(seen, None))
    kind = chain.values.get(mask) or chain.network.values[mask]
    rule = _truth if kind.dtype == BOOL else _number
    return rule(chain, mask, None, guarded=True)


def _truth(chain: Chain, mask: str, window: _Window | None, *, guarded: bool) -> Bias:
    truth = chain.add("Cast", mask, settings=(("to", FLOAT),))
    if window is not None:
        truth = chain.add("Mul", truth, chain.store(window.truth()))
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
        return chain.store(hiding(chain.network.traced(mask), kept=True))
    if chain.network.values[mask].dtype != BOOL:
        return mask
    return _far_below(chain, chain.add("Cast", mask, settings=(("to", FLOAT),)))


def _number(chain: Chain, mask: str, window: _Window | None, *, guarded: bool) -> Bias:
    """Bias of a computed mask. Half of a finite number is above the negative of the largest number; half of minus
    infinity is not.
    """
    added = mask if window is None else chain.add("Add", mask, chain.store(window.hiding()))
    if not guarded:
        return Bias(added)
    half = chain.add("Mul", _largest_of_a_row(chain, added), chain.number(0.5))
    largest = chain.network.rounding.largest
    above = chain.add("Add", chain.add("Max", half, chain.number(-largest)), chain.number(largest))
    return Bias(added, chain.add("Min", above, chain.number(1.0)), held=True)


def _largest_of_a_row(chain: Chain, name: str) -> str:
    return chain.reduced("ReduceMax", name, (len(chain.shape(name)) - 1,))


def hiding(truth: TracedArray, *, kept: bool) -> TracedArray:
    """The number to add for each truth value: zero where it is `kept`, else minus infinity."""
    array, term = np.where(truth.array == kept, np.float32(0), np.float32(-inf)), truth.term
    sign = term - number(0.5) if kept else number(0.5) - term
    return TracedArray(array, (sign * number(inf)).least(number(0)))
