"""The one shape of an error that a user can cause: who, what is needed, what there is, what to change.

Every stage raises only these classes for wrong input, so that the command line can print one clear message and exit 1
without a traceback. They live in the lowest package because every package uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hw_models.infeasible import (
    GraphSubject,
    HeldRole,
    Infeasible,
    InstanceSubject,
    LayerSubject,
    ProgramSubject,
    SlotSubject,
    Subject,
    ValueSubject,
)

Found = TypeVar("Found")

SHOWN_PROBLEMS = 40
SHOWN_HOLDERS = 8


class UserError(Exception):
    """A problem in what the user gave: a file, a field, an operator, an option.

    `who` names the user's own thing (file and line, operator, tensor, option), never a lowered one. `needs` says what
    is needed, `has` what there is, `change` what to do about it; each is a clause without a full stop, or empty.
    """

    def __init__(self, who: str, *, needs: str = "", has: str = "", change: str = "") -> None:
        super().__init__(who, needs, has, change)
        self.who = who
        self.needs = needs
        self.has = has
        self.change = change

    def __reduce__(self) -> tuple[Callable[..., UserError], tuple[object, ...]]:
        """Pickle an error by its fields: the constructors take most of them by keyword, which pickling between
        processes does not support by itself."""
        return _remade, (type(self), self.args, self.__dict__)

    @property
    def line(self) -> str:
        """The four parts alone, without the lines that a subclass adds below them."""
        parts = (f"needs {self.needs}" if self.needs else "", f"has {self.has}" if self.has else "", self.change)
        said = "; ".join(part for part in parts if part)
        return f"{self.who}: {said}" if said else self.who

    def __str__(self) -> str:
        return self.line


def _remade(kind: type[UserError], args: tuple[object, ...], fields: dict[str, object]) -> UserError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One finding in a user's file: line (from 1, 0 when unknown), field path, what is wrong, what is allowed."""

    line: int
    field: str
    wrong: str
    allowed: str = ""

    def text(self, file: str, sort: str = "") -> str:
        """The finding in one line; `sort` (`warning`) stands before the field."""
        place = f"{file}:{self.line}" if self.line else file
        field = f"{self.field}: " if self.field else ""
        allowed = f"; {self.allowed}" if self.allowed else ""
        return f"{place}: {f'{sort}: ' if sort else ''}{field}{self.wrong}{allowed}"


class FileError(UserError):
    """`problems` holds every finding of a file, in the order of its lines; the message shows the first of them."""

    def __init__(
        self, who: str, *, needs: str = "", has: str = "", change: str = "", problems: tuple[FileProblem, ...] = ()
    ) -> None:
        super().__init__(who, needs=needs, has=has, change=change)
        self.problems = problems

    def __str__(self) -> str:
        if not self.problems:
            return super().__str__()
        if len(self.problems) == 1:
            return self.problems[0].text(self.who)
        lines = [f"{self.who}: {len(self.problems)} problems"]
        lines += [f"  {problem.text(self.who)}" for problem in self.problems[:SHOWN_PROBLEMS]]
        if len(self.problems) > SHOWN_PROBLEMS:
            lines.append(f"  and {len(self.problems) - SHOWN_PROBLEMS} more")
        return "\n".join(lines)


class ChipError(FileError):
    """A chip file that cannot be used, or a question about a part that the chip does not have."""


class ModelError(UserError):
    """A model file, an operator of it or an option about it that cannot be compiled."""


class PlacementError(FileError):
    """A scenario file, a task graph or a device that tasks cannot be placed on."""


class JobFileError(FileError):
    """The file of a sweep or a suite, or a place where it cannot be carried out."""


class CountersError(FileError):
    """A file of measured cycles that cannot be used, or a chip whose numbers cannot be fitted to them."""


class PlanError(UserError):
    """A plan that the chip or the rules of planning do not allow."""


class DoesNotFit(PlanError):
    """A demand that finds no room, for a person to read: the message of an `Infeasible`, with its largest holders below
    the line. Planners return the value; this error is raised where nothing is left to try."""

    def __init__(self, infeasible: Infeasible) -> None:
        super().__init__(
            subject_text(infeasible.subject),
            needs=f"{size_text(infeasible.demand_bytes)} of {place_text(infeasible)}",
            has=f"{size_text(infeasible.room_bytes)} ({size_text(infeasible.missing_bytes)} too few)",
            change="change one of: " + ", ".join(_levers(infeasible)) if infeasible.levers else "",
        )
        self.infeasible = infeasible

    def __str__(self) -> str:
        return "\n".join((self.line, *_held(self.infeasible)))


def required(found: Found | Infeasible) -> Found:
    """The result itself. Raises DoesNotFit where there is none."""
    if isinstance(found, Infeasible):
        raise DoesNotFit(found)
    return found


def reason_text(infeasible: Infeasible) -> str:
    """The line that a person reads as the reason for a decision."""
    return DoesNotFit(infeasible).line


def subject_text(subject: Subject) -> str:
    """The owner of the demand, in words."""
    match subject:
        case LayerSubject(name, smallest_tile):
            return f"layer {name} (smallest tile)" if smallest_tile else f"layer {name}"
        case ValueSubject(name, role):
            return f"value {_role(name, role)}"
        case SlotSubject(name, slot):
            return f"value {name} in slot {slot}"
        case InstanceSubject(name):
            return f"instance {name}"
        case GraphSubject(name, largest_tensor):
            return f"graph {name} (largest tensor {largest_tensor})"
        case ProgramSubject(name):
            return f"program {name}"


def place_text(infeasible: Infeasible) -> str:
    """The memory, and the part of it, in words."""
    return f"{infeasible.memory} ({infeasible.part} buffer)" if infeasible.part else infeasible.memory


def _levers(infeasible: Infeasible) -> list[str]:
    return [lever.value.format(memory=infeasible.memory) for lever in infeasible.levers]


def _role(name: str, role: HeldRole) -> str:
    return f"{name}.{role.value}" if role.value else name


def _held(infeasible: Infeasible) -> list[str]:
    """The table of holders, with one line for all that it leaves out."""
    holders = sorted(infeasible.holders, key=lambda h: (-h.size_bytes, _role(h.name, h.role)))
    if not holders:
        return []
    shown, rest = holders[:SHOWN_HOLDERS], holders[SHOWN_HOLDERS:]
    rows = [(_role(h.name, h.role), size_text(h.size_bytes), f"from {h.since} to {h.until}") for h in shown]
    if rest:
        rows.append((f"{len(rest)} more", size_text(sum(h.size_bytes for h in rest)), ""))
    names, sizes = (max(len(row[column]) for row in rows) for column in (0, 1))
    total = size_text(sum(holder.size_bytes for holder in holders))
    lines = [f"  {name:<{names}}  {size:>{sizes}}  {span}".rstrip() for name, size, span in rows]
    return [f"  held in {place_text(infeasible)} at that moment: {total}", *lines]


class TargetError(UserError):
    """A code generator, runner or machine program that cannot do what was asked."""


def ratio_text(ours: float, theirs: float, unit: str, digits: int = 2) -> str:
    """How `ours` compares with `theirs`: `3.00 times fewer cycles`, `as many cycles` or `1.79 times as many cycles`."""
    fewer, more = (f"{large / max(1.0, small):.{digits}f}" for large, small in ((theirs, ours), (ours, theirs)))
    if float(fewer) > 1:
        return f"{fewer} times fewer {unit}"
    return f"{more} times as many {unit}" if float(more) > 1 else f"as many {unit}"


def size_text(size_bytes: int) -> str:
    """Bytes for a reader: exact below 1 KiB or for a whole number of units, else with two decimals (`1.61 MiB`)."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(size_bytes) >= unit:
            whole, rest = divmod(size_bytes, unit)
            return f"{whole} {name}" if rest == 0 else f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} bytes"
