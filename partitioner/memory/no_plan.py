"""The reason why there is no plan, as a value: planners get it instead of a layout or a group, and try something else.

    layout --no room--> Infeasible
    layout --a rule of planning broken: a view cut in two, an output without the axis of the cut--> Forbidden

A broken chip file (ChipError) is neither: no other plan can mend it, so it goes through to the user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hw_models.errors import DoesNotFit, PlanError, reason_text
from hw_models.infeasible import Infeasible

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A rule of planning that an attempt breaks; `error` describes it."""

    error: PlanError


NoPlan = Infeasible | Forbidden


def catch_forbidden(attempt: Callable[[], Found]) -> Found | Forbidden:
    """The result of the attempt, or Forbidden. This is the only place where a broken rule of planning becomes an
    answer."""
    try:
        return attempt()
    except PlanError as error:
        return Forbidden(error)


def require_plan(found: Found | NoPlan) -> Found:
    """The result itself. Raises DoesNotFit or PlanError where there is none."""
    if isinstance(found, Infeasible):
        raise DoesNotFit(found)
    if isinstance(found, Forbidden):
        raise found.error
    return found


def reason_of(found: NoPlan) -> str:
    """The line that a person reads as the reason for a decision."""
    return reason_text(found) if isinstance(found, Infeasible) else found.error.line
