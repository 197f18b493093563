"""Decisions of a plan as lines for a reader: grouped by subject, equal ones once, and many of a kind as one.

    435 decisions --equal ones--> 192, each with how often --of a kind--> an example of each, and what it stands for

Two are of one kind when they differ only in names and numbers. The JSON form and `full` leave nothing out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from partitioner.ir.decisions import Decision

FEW = 3
"""Largest number of decisions of a kind that are shown one by one."""

NAMED = 8
"""Largest number of further ones of a kind that are named."""

OPERATOR_VERDICTS = ("fused", "own kernel")
"""Verdicts of `partitioner.ir.layers` about every element-wise operator; these come last."""

# Names mostly have one of these characters in them, numbers a digit; a unit belongs to its number.
_VARYING = re.compile(r"\S*[\d/_]\S*(?: (?:KiB|MiB|GiB|bytes)\b\S*)?")


def decision_lines(decisions: Iterable[Decision], full: bool = False) -> Iterator[str]:
    """The lines: first those under their subjects, then a paragraph for each kind that has many."""
    times = Counter(sorted(decisions, key=lambda decision: decision.verdict in OPERATOR_VERDICTS))
    kinds: dict[tuple[str, str], list[Decision]] = {}
    for decision in times:
        kinds.setdefault(_kind(decision), []).append(decision)
    many = [] if full else [found for found in kinds.values() if len(found) > FEW]
    folded = {decision for found in many for decision in found}
    by_subject: dict[str, list[str]] = {}
    for decision, count in times.items():
        if decision not in folded:
            by_subject.setdefault(decision.subject, []).append(_text(decision, count))
    for subject, texts in by_subject.items():
        yield from (f"  {subject}: {texts[0]}",) if len(texts) == 1 else (f"  {subject}", *(f"    {t}" for t in texts))
    for found in many:
        yield from _folded(found, times)


def _kind(decision: Decision) -> tuple[str, str]:
    return _VARYING.sub("#", decision.verdict), _VARYING.sub("#", decision.reason)


def _text(decision: Decision, count: int) -> str:
    return f"{decision.verdict}: {decision.reason}" + (f" (x {count})" if count > 1 else "")


def _folded(found: list[Decision], times: Counter[Decision]) -> Iterator[str]:
    first, *others = found
    subjects = list(dict.fromkeys(other.subject for other in others))
    more = f" and {len(subjects) - NAMED} more" if len(subjects) > NAMED else ""
    yield f"  {first.subject}: {_text(first, times[first])}"
    yield f"    and {len(others)} like this: {', '.join(subjects[:NAMED])}{more}"
