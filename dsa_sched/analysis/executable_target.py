"""Target of an executable that comes without a manifest: the target that reads it and has the ability asked for.

    bytes --each target that can--> made for its instruction set, or for none that it says

Targets are asked in the order of their instruction sets; a program that names no instruction set goes to the first
target that accepts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from codegen.target import Identifies, MadeFor, OtherProgram
from codegen.target_registry import find_target, target_names
from dsa_sched.artifact.kinds import refuse_other_execution
from hw_models.errors import TargetError

Able = TypeVar("Able")


def executable_target(path: Path, executable: bytes, ability: type[Able]) -> tuple[Able, MadeFor | None]:
    """The target that reads the executable, as one with that ability, and what the executable says that it was made
    for.

    Raises TargetError for a file that no such target reads, and for one that was made for another instruction set.
    """
    refuse_other_execution(path)
    able = dict(_able(ability))
    foreign: MadeFor | None = None
    refusals: list[TargetError] = []
    silent: list[Able] = []
    for isa, target in able.items():
        try:
            made_for = target.made_for(executable) if isinstance(target, Identifies) else None
        except TargetError as error:
            refusals.append(error)
            continue
        if made_for is None:
            silent.append(target)
        elif made_for.isa == isa:
            return target, made_for
        else:
            foreign = made_for
    if foreign is not None:
        needs = f"machine code for {' or '.join(able)}"
        raise TargetError(str(path), needs=needs, has=f"{foreign.isa} for {foreign.chip}")
    if silent:
        return silent[0], None
    if refusals:
        told = min(refusals, key=lambda refusal: isinstance(refusal, OtherProgram))
        raise TargetError(str(path), needs=told.needs, has=told.has)
    raise TargetError(str(path), needs=f"a target with {ability.__name__}", has="none")


def _able(ability: type[Able]) -> Iterator[tuple[str, Able]]:
    """Targets with the ability, by instruction set; targets of other packages that cannot be loaded are left out."""
    for isa in target_names():
        try:
            target: object = find_target(isa)
        except TargetError:
            continue
        if isinstance(target, ability):
            yield isa, target
