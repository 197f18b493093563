"""Results that the chip must have stored for attention with heads side by side, from its definition and the order
below.

    q, parts of k, v and mask [..] + positions [S, 3] of the output  -->  values there [S]

The reference shares nothing with the template: it computes each row of each head by itself, in the slow arithmetic of
`arithmetic.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.arithmetic import Fp16
from codegen.neuralscale.emulation.curves_reference import refined
from partitioner.ir.graph import Op

Points = npt.NDArray[np.int64]
SUMMED = 128


def attended(op: Op, operands: Sequence[Fp16], points: Points) -> Fp16:
    """Attention at the points. k is multiplied by the scale. Scores are products of the matrix engine over the elements
    of a head, plus the mask, minus their largest (plus ln 2 for each doubling of all keys beyond 128); e is raised to
    them. Keys are taken in runs of at most `_longest_run` keys. Powers of a
    run times v, and their sums in pieces, are added to those of the runs before, which are first multiplied by e to the
    power of what the largest grew by. The refined reciprocal of the sum multiplies the result."""
    heads, groups, parts = (int(op.number(name)) for name in ("heads", "groups", "parts"))
    q, each = _side_by_side(operands[0]), (len(operands) - 1) // parts
    size, shared = q.shape[2] // heads, heads // groups
    keys_and_values = [operands[first : first + each] for first in range(1, len(operands), each)]
    keys = [_side_by_side(part[0]) for part in keys_and_values]
    values = [_side_by_side(part[1]) for part in keys_and_values]
    width = values[0].shape[2] // groups
    head = points[:, 2] // width
    rows, back = np.unique(np.stack([points[:, 0], points[:, 1], head], 1), axis=0, return_inverse=True)
    back, column = back.reshape(-1), head // shared * width + points[:, 2] % width
    doublings = int(np.ceil(np.log2(sum(k.shape[1] for k in keys) / SUMMED)))
    longest = _longest_run(size, width, parts)
    several = parts > 1 or keys[0].shape[1] > longest
    before: tuple[Fp16, Fp16, Fp16] | None = None
    for k, v, (_, _, *masks) in zip(keys, values, keys_and_values, strict=True):
        scaled = chip.mul(k, chip.immediate(op.number("scale")))
        scores = np.stack([_scores(q, scaled, masks, row, size, shared) for row in rows])
        for low, high in _runs(scores.shape[1], longest):
            top = chip.largest(scores[:, low:high], 1)
            if doublings > 0:
                top = chip.add(top, chip.immediate(doublings * np.log(2)))
            if several:
                bound = np.full_like(top, -65504.0) if before is None else before[0]
                top = chip.largest(np.stack([top, bound]), 0)
            powers = chip.exp(chip.sub(scores[:, low:high], top[:, None]))
            total, result = chip.total(powers), chip.dot(powers[back], v[points[:, 0], low:high, column])
            if before is not None:
                factor = chip.exp(chip.sub(before[0], top))
                total = chip.add(chip.mul(before[1], factor), total)
                result = chip.add(chip.mul(before[2], factor[back]), result)
            before = top, total, result
    return chip.mul(result, refined(total)[back])


def _side_by_side(operand: Fp16) -> Fp16:
    """q, k or v [item, row, column], of which heads may be an axis of their own, the second."""
    if operand.ndim == 3:
        return operand
    items, _, rows, _ = operand.shape
    return operand.transpose(0, 2, 1, 3).reshape(items, rows, -1)


def _scores(q: Fp16, k: Fp16, masks: Sequence[Fp16], row: Points, size: int, shared: int) -> Fp16:
    """Scores of one row of a head with all keys of a part; k is scaled."""
    item, place, head = row
    query = q[item, place, head * size : (head + 1) * size]
    own = head // shared
    keys = k[item, :, own * size : (own + 1) * size]
    scores = chip.dot(np.broadcast_to(query, keys.shape), keys)
    for mask in masks:
        at = (min(place, extent - 1) for place, extent in zip((item, head, place), mask.shape[:3], strict=True))
        scores = chip.add(scores, mask[tuple(at)])
    return scores


def _longest_run(size: int, width: int, parts: int) -> int:
    """Largest number of keys in a run: k and v of a head fit 131,072 elements, and k fits as many next to 128 rows of
    scores and of results, but for up to 512 keys of a single part."""
    room = 131_072
    fitting = room // (size + width)
    longest = min(fitting, (room - 128 * width) // (size + 128))
    return max(longest, min(512, fitting)) if parts == 1 else longest


def _runs(keys: int, longest: int) -> list[tuple[int, int]]:
    count = -(-keys // longest)
    return list(pairwise(keys * i // count for i in range(count + 1)))
