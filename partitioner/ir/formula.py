"""A function of one operand as steps: what `formula` computes, element by element, without rounding between its steps.

    "square, add 1e-10, log"  <-->  (("square", 0.0), ("add", 1e-10), ("log", 0.0))

A target computes all steps in more precision than fp16, or looks the whole function up in one table. So intermediate
values may leave the range of fp16.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Name = Literal["square", "abs", "neg", "sqrt", "reciprocal", "log", "power", "add", "mul", "max", "min"]
Step = tuple[str, float]
"""Operation on the running value, and its number (0 where it takes none)."""

STEPS: tuple[str, ...] = get_args(Name)
WITH_NUMBER = ("power", "add", "mul", "max", "min")


def formula_text(steps: Iterable[Step]) -> str:
    """The steps as an attribute of the operator."""
    return ", ".join(f"{name} {number!r}" if name in WITH_NUMBER else name for name, number in steps)


def steps_of(text: str) -> tuple[Step, ...]:
    """The steps of a text, the converse of `formula_text`. Raises ValueError for a step that does not exist."""
    return tuple(_step(part) for part in text.split(", "))


def _step(text: str) -> Step:
    name, _, number = text.partition(" ")
    if name not in STEPS or bool(number) != (name in WITH_NUMBER):
        raise ValueError(f"step {text} of a formula; there are {', '.join(STEPS)}")
    return name, float(number or 0)
