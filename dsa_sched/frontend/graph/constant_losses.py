"""Losses of constants in the type in which they are stored, as sentences for the user.

array of the file + dtype  -->  "Conv_3: 2 of 9 elements of w become zero in fp16, ..."

A mask of attention loses nothing: large negative numbers that are added before a Softmax make zeros of it, whichever
they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.network.operation import Operation
from dsa_sched.frontend.network.terms import Term
from partitioner.ir.operators import REARRANGING, kind_names

Array = npt.NDArray[np.generic]

CARRIES_MASKS = kind_names(*REARRANGING) | {"add", "max", "min", "mul", "scale_shift", "sub"}
"""Kinds whose result is a masked score if an operand is one."""

READS_MASKS = frozenset(["attend", "attention", "softmax"])
"""Kinds that make zeros of masked scores."""

BOUNDS = frozenset(["max", "min"])
"""Kinds that choose one of two numbers."""

NAMED = 3
"""Number of constants that are named where many lose a few small elements."""

MOST_OPERATORS = 64
"""Largest number of operators that are followed from one constant."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Losses of one constant of an operator. Of `elements`, `saturated` are beyond the range, `zeroed` become zero
    though they are not, `infinite` and `nan` are so in the file; `largest_zeroed` is the largest that becomes zero;
    `kept` says whether other elements do not.
    """

    operator: str
    constant: str
    dtype: str
    elements: int
    saturated: int
    zeroed: int
    infinite: int
    nan: int
    largest_zeroed: float
    kept: bool

    @classmethod
    def of(cls, operator: str, constant: str, array: Array, stored: Array, saturated: int) -> Loss:
        """Loss of a constant: `stored` is the array in the device's type; `saturated` elements are at its
        range's end.
        """
        if array.dtype.kind not in "fV":
            return cls(operator, constant, str(stored.dtype), array.size, 0, 0, 0, 0, 0.0, True)
        numbers = array.astype(np.float64)
        zeroed = (numbers != 0) & (stored.astype(np.float64) == 0)
        return cls(
            operator,
            constant,
            str(stored.dtype).replace("float", "fp"),
            array.size,
            saturated,
            int(zeroed.sum()),
            int(np.isinf(numbers).sum()),
            int(np.isnan(numbers).sum()),
            float(np.abs(numbers[zeroed]).max(initial=0.0)),
            bool((stored.astype(np.float64) != 0).any()),
        )

    @property
    def only_small_lost(self) -> bool:
        """Whether only elements are lost that are as good as zero next to others."""
        return self.zeroed > 0 and self.kept and not (self.saturated or self.infinite or self.nan)


def loss_sentences(
    losses: Sequence[Loss], masks: frozenset[str], bounds: frozenset[str], largest: float
) -> tuple[str, ...]:
    """A sentence for each way in which a constant loses what counts, and one for all that lose a few small elements.
    For `masks` only NaN is reported; for `bounds` infinities are not.
    """
    said: list[str] = []
    for loss in losses:
        who = f"{loss.operator}: {{}} of {loss.elements} elements of {loss.constant}"
        mask = loss.constant in masks
        if loss.saturated and not mask:
            said.append(f"{who.format(loss.saturated)} saturate at {largest:g} in {loss.dtype}")
        if loss.infinite and not mask and loss.constant not in bounds:
            said.append(f"{who.format(loss.infinite)} are infinite: products with them are infinite or NaN")
        if loss.nan:
            said.append(f"{who.format(loss.nan)} are not numbers (NaN)")
        if loss.zeroed and not loss.only_small_lost and not mask:
            said.append(
                f"{who.format(loss.zeroed)} become zero in {loss.dtype}, the largest is {loss.largest_zeroed:.3g}"
            )
    small = [loss for loss in losses if loss.only_small_lost]
    if small:
        named = ", ".join(
            f"{loss.operator} ({loss.constant}, {loss.zeroed} of {loss.elements})" for loss in small[:NAMED]
        )
        more = f" and {len(small) - NAMED} more" if len(small) > NAMED else ""
        largest_zeroed = max(loss.largest_zeroed for loss in small)
        said.append(
            f"elements that become zero in {small[0].dtype} next to larger ones, the largest {largest_zeroed:.3g}: "
            f"{named}{more}"
        )
    return tuple(said)


def chosen_by_rules(array: Array, term: Term) -> bool:
    """Whether a constant is a rule's own: made of nothing in the file, of infinities and of powers of two alone, by
    which it chooses or scales exactly."""
    if array.dtype.kind not in "fV" or _reads_file(term):
        return False
    numbers = np.abs(array.astype(np.float64))
    finite = numbers[np.isfinite(numbers) & (numbers != 0)]
    return not np.isnan(numbers).any() and bool((np.frexp(finite)[0] == 0.5).all())


def _reads_file(term: Term) -> bool:
    open_, seen = [term], {id(term)}
    while open_:
        part = open_.pop()
        if part.kind == "file":
            return True
        fresh = [operand for operand in part.operands if id(operand) not in seen]
        seen.update(map(id, fresh))
        open_ += fresh
    return False


def masking_constants(
    operations: Sequence[Operation], constants: frozenset[str], outputs: frozenset[str]
) -> frozenset[str]:
    """Constants that only ever reach a Softmax, by operators that add, choose or move scores."""
    readers: dict[str, list[Operation]] = {}
    for operation in operations:
        for name in dict.fromkeys(operation.inputs):
            readers.setdefault(name, []).append(operation)
    return frozenset(name for name in constants if name in readers and _masks(name, readers, outputs))


def bounding_constants(operations: Sequence[Operation], constants: frozenset[str]) -> frozenset[str]:
    """Constants that are only ever the larger or smaller of two, so that an infinity of them changes nothing."""
    kinds: dict[str, set[str]] = {}
    for operation in operations:
        for name in operation.inputs:
            kinds.setdefault(name, set()).add(operation.kind)
    return frozenset(name for name in constants if kinds.get(name) and kinds[name] <= BOUNDS)


def _masks(name: str, readers: dict[str, list[Operation]], outputs: frozenset[str]) -> bool:
    open_, seen = [name], {name}
    while open_:
        value = open_.pop()
        if value in outputs or value not in readers or len(seen) > MOST_OPERATORS:
            return False
        for operation in readers[value]:
            if operation.kind in READS_MASKS:
                continue
            if operation.kind not in CARRIES_MASKS:
                return False
            fresh = [output for output in operation.outputs if output not in seen]
            seen.update(fresh)
            open_ += fresh
    return True
