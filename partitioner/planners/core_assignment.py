"""Which piece runs on which core: the assignment that leaves most bytes where they are.

gain[piece][core] in bytes --> a core for each piece, no core twice, the most bytes in all
"""

from __future__ import annotations

from collections.abc import Sequence


def assign(gain: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """A core for each piece, all different, with the greatest sum of `gain[piece][core]`; the first cores in order
    where nothing else decides (Kuhn's method, cubic in the number of cores)."""
    if all(row[number] == max(row) for number, row in enumerate(gain)):
        return tuple(range(len(gain)))
    cores = len(gain[0])
    return _heaviest_matching(
        [[value * (cores + 1) + (i == j) for j, value in enumerate(row)] for i, row in enumerate(gain)]
    )


def _heaviest_matching(gain: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """For each row a column of its own, with the greatest sum; there are at least as many columns as rows."""
    rows, columns = len(gain), len(gain[0])
    infinite = 1 << 62
    of_row, of_column = [0] * (rows + 1), [0] * (columns + 1)  # potentials
    owner = [0] * (columns + 1)
    for row in range(1, rows + 1):
        owner[0], column = row, 0
        least, way, used = [infinite] * (columns + 1), [0] * (columns + 1), [False] * (columns + 1)
        while owner[column]:
            used[column] = True
            current, delta, following = owner[column], infinite, 0
            for j in range(1, columns + 1):
                if used[j]:
                    continue
                slack = -gain[current - 1][j - 1] - of_row[current] - of_column[j]
                if slack < least[j]:
                    least[j], way[j] = slack, column
                if least[j] < delta:
                    delta, following = least[j], j
            for j in range(columns + 1):
                if used[j]:
                    of_row[owner[j]] += delta
                    of_column[j] -= delta
                else:
                    least[j] -= delta
            column = following
        while column:
            owner[column], column = owner[way[column]], way[column]
    result = [0] * rows
    for j in range(1, columns + 1):
        if owner[j]:
            result[owner[j] - 1] = j - 1
    return tuple(result)
