"""The table of what a target may have: all members of all protocols, each once."""

from __future__ import annotations

from types import ModuleType

import codegen.target
import isched.program.target
import partitioner.ir.kernels
import partitioner.ir.target
from codegen.target import CAPABILITIES, FileLoad, GroupTarget, Measurer, MemoryDump, TileTarget
from codegen.target_registry import target_members

NO_TARGETS = (FileLoad, MemoryDump, Measurer, isched.program.target.PlacedArray)
"""Protocols of what a target is given or gives."""


def protocols(module: ModuleType) -> set[type]:
    own = [value for value in vars(module).values() if isinstance(value, type)]
    return {each for each in own if each.__module__ == module.__name__ and getattr(each, "_is_protocol", False)}


def test_the_table_has_every_protocol_of_a_target() -> None:
    modules = (codegen.target, isched.program.target, partitioner.ir.kernels, partitioner.ir.target)
    known = set().union(*map(protocols, modules))
    assert {part.protocol for part in CAPABILITIES} == known - {*NO_TARGETS}


def test_the_table_has_every_member_once() -> None:
    by_protocol: dict[type, list[str]] = {}
    for part in CAPABILITIES:
        by_protocol.setdefault(part.protocol, []).extend(part.members)
    for protocol, members in by_protocol.items():
        assert members == [name for name in vars(protocol) if not name.startswith("_")], protocol
    every = [name for part in CAPABILITIES for name in part.members]
    assert len(every) == len(set(every))


def test_what_a_kind_must_have_comes_before_what_it_may_have() -> None:
    must = [part.protocol in (*TileTarget.__mro__, *GroupTarget.__mro__) for part in CAPABILITIES]
    assert must == sorted(must, reverse=True)
    assert target_members(TileTarget)[:4] == target_members(GroupTarget)[:4]
    assert target_members(GroupTarget)[-3:] == ("kernels", "execution", "emit_plan")
