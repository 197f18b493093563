"""Keys that blocks of rows of a head read, in whole blocks of keys: fewer than all where rows see by their places."""

from __future__ import annotations

from codegen.cutlass.families.attention.attention_operands import AttentionProblem
from codegen.cutlass.families.fused.occupancy import rounded_up

SCORE_OPERATIONS = 4
"""Operations of a score besides products, at least: the largest so far, the distance from it, its power, the sum."""


def row_blocks(problem: AttentionProblem, rows: int) -> int:
    """Blocks of `rows` rows of a head of k and v."""
    return -(-problem.rows * problem.shared // rows)


def seen_keys(problem: AttentionProblem, rows: int, block: int) -> int:
    """Keys of all blocks of `rows` rows of a head of k and v, in whole blocks of `block` keys."""
    if not problem.first_sees:
        return row_blocks(problem, rows) * rounded_up(problem.keys, block)
    found, all_rows = 0, problem.rows * problem.shared
    for first in range(0, all_rows, rows):
        last = min(first + rows, all_rows) - 1
        same = first // problem.rows == last // problem.rows
        farthest = last % problem.rows if same else problem.rows - 1
        found += rounded_up(min(problem.keys, problem.first_sees + farthest), block)
    return found
