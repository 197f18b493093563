"""Why there is no plan, as a value: what planners get in place of a layout or a group, to try something else.

    layout --no room--> Infeasible
    layout --a rule of planning broken: a view cut in two, an output without the axis of the cut--> Forbidden

A broken chip file (ChipError) is neither: no other plan mends it, and it goes through to the user.
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
    """What was tried breaks a rule of planning, which `error` tells."""

    error: PlanError


NoPlan = Infeasible | Forbidden


def unless_forbidden(attempt: Callable[[], Found]) -> Found | Forbidden:
    """What the attempt makes. The one place where a broken rule of planning is taken for an answer."""
    try:
        return attempt()
    except PlanError as error:
        return Forbidden(error)


def planned(found: Found | NoPlan) -> Found:
    """What was found. Raises DoesNotFit or PlanError where nothing was."""
    if isinstance(found, Infeasible):
        raise DoesNotFit(found)
    if isinstance(found, Forbidden):
        raise found.error
    return found


def reason_of(found: NoPlan) -> str:
    """The line that a person reads as the reason of a decision."""
    return reason_text(found) if isinstance(found, Infeasible) else found.error.line
