"""Registry of targets: finds the one for a chip's instruction set, and checks it against the protocol of its kind.

    isa --BUILTIN, else an entry point--> object --has it every member of its protocol?--> TileTarget | GroupTarget

Targets are imported when asked for, not before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points

from codegen.target import CAPABILITIES, ELF, EXECUTION_KIND, GroupTarget, Target, TileTarget
from hw_models.errors import TargetError

BUILTIN: Mapping[str, str] = {
    "neuralscale-v1": "codegen.neuralscale.target:TARGET",
    "gemmini-v3": "codegen.gemmini.target:TARGET",
    "sm_80": "codegen.cutlass.target:SM80",
    "sm_90a": "codegen.cutlass.target:SM90A",
}
"""Instruction set -> module and name of its target."""

ENTRY_POINT_GROUP = "dsa_sched.targets"

GROUP_MEMBERS = ("kernels", "emit_plan")
"""Members by which a target is taken for one whose kernels are whole groups."""


def find_target(isa: str) -> Target | None:
    """The target for an instruction set, or None where there is none. Raises TargetError for one that cannot be loaded
    or lacks members of its protocol."""
    if isa in BUILTIN:
        module, _, name = BUILTIN[isa].partition(":")
        return checked_target(getattr(import_module(module), name), isa)
    for point in entry_points(group=ENTRY_POINT_GROUP, name=isa):
        try:
            found = point.load()
        except (ImportError, AttributeError) as error:
            raise TargetError(
                f"target {isa}", needs=f"the object {point.value} of another package", has=str(error)
            ) from error
        return checked_target(found, isa)
    return None


def is_builtin(isa: str) -> bool:
    """Whether the target for an instruction set is part of this package."""
    return isa in BUILTIN


def target_names() -> tuple[str, ...]:
    """Instruction sets for which an installed target can generate code."""
    return tuple(sorted({*BUILTIN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))}))


def checked_target(found: object, isa: str) -> Target:
    """The object as a target of its kind. Raises TargetError naming every member of the protocol that it lacks, or that
    is a method where a value is needed, or the reverse."""
    protocol = GroupTarget if any(hasattr(found, name) for name in GROUP_MEMBERS) else TileTarget
    wrong = [problem for name, value in _members(protocol) if (problem := _problem(found, name, value))]
    if not wrong and isinstance(found, GroupTarget):
        _require_kind(found, isa)
    if not wrong and isinstance(found, protocol):
        return found
    raise TargetError(
        f"target {isa}",
        needs=f"all members of codegen.target.{protocol.__name__}",
        has=f"{type(found).__name__} with {', '.join(wrong)}",
        change="add them; what codegen.target.CAPABILITIES has for targets that can may be left out",
    )


def _require_kind(target: GroupTarget, isa: str) -> None:
    """Raises TargetError for a kind of execution that no manifest can name."""
    if target.execution == ELF or not re.fullmatch(EXECUTION_KIND, target.execution):
        needs = f"an execution of small letters, digits, '-' and '_' that is not {ELF}"
        raise TargetError(f"target {isa}", needs=needs, has=target.execution)


def target_members(protocol: type = TileTarget) -> tuple[str, ...]:
    """Attributes and methods of a kind of target, in the order of `CAPABILITIES`."""
    return tuple(name for name, _ in _members(protocol))


def _members(protocol: type) -> Iterator[tuple[str, bool]]:
    """Each member, with whether it is a value and not a method."""
    for part in CAPABILITIES:
        if part.protocol in protocol.__mro__:
            yield from ((name, isinstance(vars(part.protocol)[name], property)) for name in part.members)


def _problem(found: object, name: str, value: bool) -> str | None:
    """The problem of a member, in words; None where there is none."""
    if not hasattr(found, name):
        return f"no {name}"
    if callable(getattr(found, name)) == value:
        return f"{name} as a {'method, not a value' if value else 'value, not a method'}"
    return None
