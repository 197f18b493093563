"""Steps of a plan: an instance that runs, a view that renames, a move that brings a value to the cores of a reader.

    RunStep | ViewStep | MoveStep  <-->  one line of the plan's text, which begins with the step's kind

All kinds name their group and instance, a `box`, and the memory (`scope`) in which that box then lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from partitioner.ir.regions import Box
from partitioner.ir.text import Fields, Json, as_int, as_ints, as_list, as_names, format_line

MoveKind: TypeAlias = Literal["concat", "copy", "redistribute", "split"]
"""Reason of a move: the value is gathered from several instances, lies in a shared memory or on other cores, or is a
part of the output of one instance. All kinds do the same."""

MOVES: Final[tuple[MoveKind, ...]] = get_args(MoveKind)


@dataclass(frozen=True, slots=True)
class Binding:
    """Pieces of each output axis over cores; piece i (row-major) runs on `cores[i]`. Without `cores` the hardware
    places the pieces, which are then the grid of a kernel that computes a whole group."""

    pieces: tuple[int, ...]
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunStep:
    """Execution of an instance. `box` is its part of the group's output, which is kept in `scope` until its last reader
    has run; further outputs of the group lie in the scopes that `exports` names."""

    kind: ClassVar[Literal["run"]] = "run"

    group: str
    instance: int
    box: Box
    scope: str
    binding: Binding
    exports: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ViewStep:
    """Another name for all bytes of a value; no core does anything."""

    kind: ClassVar[Literal["view"]] = "view"
    instance: ClassVar[Literal[0]] = 0

    group: str
    box: Box
    scope: str


@dataclass(frozen=True, slots=True)
class MoveStep:
    """Move of `box` of `tensor` into the local memories (`scope`) of the cores of a later run step: that of `group` and
    `instance`, with its binding. Each core gets what it will read; inputs that no such step brings are read from where
    they lie, tile by tile."""

    kind: MoveKind
    group: str
    instance: int
    box: Box
    scope: str
    binding: Binding
    tensor: str


Step: TypeAlias = RunStep | ViewStep | MoveStep


def format_step(step: Step) -> str:
    """The line of a step. A view, which no core runs, is printed with one piece on core 0."""
    what = (("group", step.group), ("instance", step.instance), ("box", step.box), ("scope", step.scope))
    bound = _unbound(step.box) if isinstance(step, ViewStep) else step.binding
    rest: tuple[tuple[str, object], ...] = ()
    match step:
        case MoveStep():
            rest = (("tensor", step.tensor),)
        case RunStep(exports=(_, *_)):
            rest = (("exports", step.exports),)
        case _:
            pass
    return format_line(step.kind, *what, ("pieces", bound.pieces), ("cores", bound.cores), *rest)


def scopes_of(step: Step) -> tuple[str, ...]:
    """The memories that a step names: its own, then those of further outputs."""
    return (step.scope, *(scope for _, scope in step.exports)) if isinstance(step, RunStep) else (step.scope,)


def parse_step(kind: Literal["run", "view"] | MoveKind, fields: Fields) -> Step:
    """The step of a line, the converse of `format_step`. Raises KeyError for a missing field, TypeError or ValueError
    for one that such a step cannot have."""
    box = tuple((as_int(low), as_int(high)) for low, high in (as_list(pair) for pair in as_list(fields["box"])))
    binding = Binding(as_ints(fields["pieces"]), as_ints(fields["cores"]))
    group, instance, scope = str(fields["group"]), as_int(fields["instance"]), str(fields["scope"])
    foreign = {"tensor", "exports"} - ({"exports"} if kind == "run" else {"tensor"} if kind in MOVES else set())
    if odd := sorted(foreign & fields.keys()):
        raise ValueError(f"a {kind} has no {odd[0]}")
    if kind == "run":
        exports = tuple((str(name), str(there)) for name, there in (as_names(item) for item in _exports(fields)))
        return RunStep(group, instance, box, scope, binding, exports)
    if kind == "view":
        if instance != ViewStep.instance or binding != _unbound(box):
            raise ValueError("a view has instance 0, and one piece on core 0")
        return ViewStep(group, box, scope)
    return MoveStep(kind, group, instance, box, scope, binding, str(fields["tensor"]))


def _exports(fields: Fields) -> list[Json]:
    return as_list(fields["exports"]) if "exports" in fields else []


def _unbound(box: Box) -> Binding:
    return Binding((1,) * len(box), (0,))
