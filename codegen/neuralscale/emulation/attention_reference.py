"""Results that the chip must have stored for attention with heads side by side, from its definition and the order
below.

    q, k, v, mask [..] + positions [S, 3] of the output  -->  values there [S]

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
    of a head, plus the mask, minus their largest (plus ln 2 for each doubling of the keys beyond 128); e is raised to
    them. The powers times v are summed in equal runs of at most `_longest_run` keys, which are added in order, and
    multiplied by the refined reciprocal of the powers' sum in pieces."""
    q, k, v, *masks = operands
    heads, groups = int(op.number("heads")), int(op.number("groups"))
    k = chip.mul(k, chip.immediate(op.number("scale")))
    size, width = q.shape[2] // heads, v.shape[2] // groups
    head = points[:, 2] // width
    rows, back = np.unique(np.stack([points[:, 0], points[:, 1], head], 1), axis=0, return_inverse=True)
    powers = np.stack([_powers(q, k, masks, row, size, heads // groups) for row in rows])
    inverse = refined(chip.total(powers))
    back = back.reshape(-1)
    column = head // (heads // groups) * width + points[:, 2] % width
    taken = _summed(powers[back], v[points[:, 0], :, column], _longest_run(size, width))
    return chip.mul(taken, inverse[back])


def _powers(q: Fp16, k: Fp16, masks: Sequence[Fp16], row: Points, size: int, shared: int) -> Fp16:
    """Powers of the scores of one row of a head with all keys, before they are divided by their sum."""
    item, place, head = row
    query = q[item, place, head * size : (head + 1) * size]
    own = head // shared
    keys = k[item, :, own * size : (own + 1) * size]
    scores = chip.dot(np.broadcast_to(query, keys.shape), keys)
    for mask in masks:
        at = (min(place, extent - 1) for place, extent in zip((item, head, place), mask.shape[:3], strict=True))
        scores = chip.add(scores, mask[tuple(at)])
    largest = chip.largest(scores[None], 1)
    doublings = int(np.ceil(np.log2(len(scores) / SUMMED)))
    if doublings > 0:
        largest = chip.add(largest, chip.immediate(doublings * np.log(2)))
    return chip.exp(chip.sub(scores, largest))


def _longest_run(size: int, width: int) -> int:
    """Largest number of keys in a run: 512, or more where k and v of a head fit 131,072 elements, and k fits as many
    next to 128 rows of scores and of results."""
    room = 131_072
    return max(512, min(room // (size + width), (room - 128 * width) // (size + 128)))


def _summed(powers: Fp16, values: Fp16, longest: int) -> Fp16:
    count = -(-powers.shape[1] // longest)
    cuts = [powers.shape[1] * i // count for i in range(count + 1)]
    total = chip.dot(powers[:, : cuts[1]], values[:, : cuts[1]])
    for low, high in pairwise(cuts[1:]):
        total = chip.add(total, chip.dot(powers[:, low:high], values[:, low:high]))
    return total
