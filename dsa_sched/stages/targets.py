"""Choice of the target that compiles for a chip, and checks that it can do what the options ask for.

chip --target_of--> the code generator        --planning_target--> that, or a planner by costs alone
options, target --require_able--> nothing, or one sentence that names what the target lacks
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from codegen.generic import GenericTarget, generic_target
from codegen.target import Calibrates, GroupTarget, Measures, NamesMemories, NeedsParts, Rolls, Tabulates, Target
from codegen.target_registry import ENTRY_POINT_GROUP, find_target, target_members, target_names
from dsa_sched.frontend.network.refusals import Judge, Packs
from dsa_sched.stages.compilation import CompileOptions
from hw_models.chip import Chip
from hw_models.errors import TargetError
from hw_models.routes import main_memory
from isched.program.target import MovesOperands, Schedulable, Timeable
from partitioner.ir.graph import DTYPE_BYTES, Graph, Op
from partitioner.ir.target import AcceptingTarget, KeepsSome, PacksWeights, PlanTarget, WeightPacking, WeightUse
from partitioner.ir.wants import Wants
from partitioner.planners.levels import O0, O3, Auto
from partitioner.planners.registry import require_planner, unsupported_ops

Tiled = TypeVar("Tiled", bound=PlanTarget)


def target_of(chip: Chip) -> Target:
    """The chip's code generator. Raises TargetError if there is none (it says which instruction sets have one and how
    to add one), or if the generator lacks something (it says what).
    """
    target = generator_of(chip)
    if target is None:
        works = "--print graph and --print plan work" if chip.kind == "cores" else "--print graph works"
        close = difflib.get_close_matches(chip.isa, target_names(), 1)
        guess = f"did you mean {close[0]!r}? Otherwise " if close else ""
        raise TargetError(
            f"chip {chip.name}",
            needs=f"a code generator for {chip.isa}",
            has=", ".join(target_names()),
            change=(
                f"{guess}install a package with an entry point {chip.isa!r} in the group {ENTRY_POINT_GROUP!r} that "
                f"names an object with {', '.join(target_members())} (or, where kernels are whole groups of layers, "
                f"with those of codegen.target.{GroupTarget.__name__}); {works} without one"
            ),
        )
    if problems := target.unsuited(chip):
        who = f"chip {chip.name}: no machine code for {chip.isa} can be made"
        works = "; plans can be made (explain, sweep)" if _can_be_planned_for(chip, target) else ""
        raise TargetError(who, change="\n  ".join(("", *problems)).strip() + works)
    return target


def _can_be_planned_for(chip: Chip, target: Target) -> bool:
    """Whether tiles can be planned for a chip that this code generator makes no machine code for."""
    if not isinstance(target, NeedsParts):
        return False
    try:
        planning_target(chip)
    except TargetError:
        return False
    return True


def planning_target(chip: Chip) -> Target | GenericTarget:
    """The chip's code generator, or, where there is none or the chip lacks parts that it plans with, one that plans by
    the chip's costs alone. Raises TargetError for a code generator that lacks members, and for a chip that cannot be
    planned for."""
    target = generator_of(chip)
    if target is None or (isinstance(target, NeedsParts) and target.lacking(chip)):
        return generic_target(chip)
    return target


def generator_of(chip: Chip) -> Target | None:
    """The code generator of the chip's instruction set, with the chip's names of memories; None where there is none."""
    target = find_target(chip.isa)
    return target.named_for(chip) if isinstance(target, NamesMemories) else target


def has_code(chip: Chip) -> bool:
    """Whether machine code can be made for a chip; where it cannot, plans perhaps can."""
    try:
        target_of(chip)
    except TargetError:
        return False
    return True


def able_to(chip: Chip) -> tuple[str, str]:
    """What can be made for a chip, in words, and why not more; the reason is empty where it is everything."""
    try:
        target_of(chip)
    except TargetError as error:
        reason = str(error)
    else:
        return "plans and machine code", ""
    try:
        planning_target(chip)
    except TargetError as error:
        return "neither plans nor machine code", f"{reason}\n  {error}" if chip.kind == "cores" else reason
    return "plans only, no machine code", reason


def judge_of(chip: Chip, target: AcceptingTarget, packed: Collection[tuple[int, int]] = ()) -> Judge:
    """The `Judge` that `load_model` asks: how the target wants the graph, and what of it the chip cannot compute, so
    that this and what the frontend cannot read are reported together. Weights of the extents that are `packed` (depth
    and columns) stay int8 whatever it costs, as another size of the network has them.
    """
    judge = reader_of(chip, target)
    if packed and judge.packing is not None:
        judge = replace(judge, packing=partial(_packs, own=judge.packing, packed=packed))
    return replace(judge, refuses=lambda graph, made: unsupported_ops(graph, made, chip, target))


def _packs(use: WeightUse, own: Packs, packed: Collection[tuple[int, int]]) -> WeightPacking:
    found = own(use)
    if found.packed or (use.depth, use.columns) not in packed:
        return found
    return WeightPacking(True, f"another size of the network has them so; at this one: {found.reason}")


def reader_of(chip: Chip, target: AcceptingTarget) -> Judge:
    """Like `judge_of` without refusals, for a graph that is only to be shown, or that the compiler judges later."""

    def table_for(graph: Graph, op: Op) -> npt.NDArray[np.generic] | None:
        return target.table_for(graph, op, chip) if isinstance(target, Tabulates) else None

    packing = partial(target.packs_weights, chip=chip) if isinstance(target, PacksWeights) else None
    return Judge(_with_room(target.wants, chip), table_for=table_for, packing=packing)


def _with_room(wants: Wants, chip: Chip) -> Wants:
    """What a target wants, on a chip where half of each memory between the main one and the cores has room for the keys
    and values of a head, and of which a matrix engine multiplies blocks of its own width."""
    if wants.group_channels:
        wants = replace(wants, group_channels=chip.matrix.array_channels)
    if not wants.attention_width:
        return wants
    main, item_bytes = main_memory(chip), DTYPE_BYTES[wants.rounding.dtype]
    sizes = [memory.size_bytes for memory in chip.memories if memory.scope != "core" and memory.name != main]
    return replace(wants, attention_elements=min(sizes) // 2 // item_bytes) if sizes else wants


def require_able(options: CompileOptions, target: Target) -> None:
    """Check the options before any work. Raises ModelError for a planner or a way of spilling that such a target does
    not have, and TargetError for a schedule or loops that it cannot have.
    """
    require_planner(target, options.planner)
    require_groups(options, target)
    if isinstance(target, MovesOperands) and not isinstance(options.planner, levels_of(target)):
        *others, last = (kind.name for kind in levels_of(target))
        names = f"{', '.join(others)} or {last}"
        has = f"{target.name}, whose tiles move their operands themselves"
        raise TargetError("--level", needs=f"{names} for this target", has=has)
    if options.schedule:
        _require_instructions(
            "--schedule", target, "leave it out: the compiler of such kernels orders their instructions"
        )
        _require("--schedule", target, "whose programs the cycle model can time and reorder", Timeable, Schedulable)
    if options.roll:
        _require_instructions("--roll", target, "leave it out")
        _require("--roll", target, "whose machine code may have loops", Rolls)
    if options.shared:
        _require_instructions("--sizes", target, "compile each size by itself")


def levels_of(target: AcceptingTarget) -> tuple[type[O0] | type[O3] | type[Auto], ...]:
    """The levels of a target whose tiles move their operands."""
    return (O0, O3, Auto) if isinstance(target, KeepsSome) else (O0, Auto)


def require_groups(options: CompileOptions, target: AcceptingTarget) -> None:
    """Raises TargetError for requested groups or slices if the target has no kernels of whole groups, and for requested
    times of kernels if it cannot take any.
    """
    if options.force_groups and not isinstance(target, GroupTarget):
        raise TargetError("--force-group", needs="a target whose kernels are whole groups of layers", has=target.name)
    if options.slices is not None and not isinstance(target, GroupTarget):
        raise TargetError("--slices", needs="a target whose kernels are whole groups of layers", has=target.name)
    if options.tune and not isinstance(target, Measures):
        raise TargetError("--tune", needs="a target whose kernels can be timed on their device", has=target.name)


def with_defaults(options: CompileOptions, target: AcceptingTarget) -> CompileOptions:
    """The options with open choices decided: level auto orders instructions where the target can, and is level O0 for a
    target between whose layers nothing stays in a core."""
    if isinstance(target, MovesOperands) and not isinstance(target, KeepsSome) and isinstance(options.planner, Auto):
        options = replace(options, planner=O0())
    if options.schedule is not None:
        return options
    able = isinstance(target, Timeable) and isinstance(target, Schedulable)
    return replace(options, schedule=isinstance(options.planner, Auto) and able)


def require_tiles(target: Tiled | GroupTarget, who: str) -> Tiled:
    """The target as one whose plans the cost model counts in cycles. Raises TargetError for one of whole groups."""
    if isinstance(target, GroupTarget):
        raise TargetError(
            who, needs="a target of in-order cores, whose cycles the cost model counts", has=_whole(target)
        )
    return target


def require_timeable(target: Target, who: str) -> Timeable:
    """The target as one that the cycle model can time. Raises TargetError naming what it lacks."""
    _require_instructions(who, target, "`dsa-sched explain` prints a lower bound of the time of each kernel")
    _require(who, target, "whose programs the cycle model can time", Timeable)
    assert isinstance(target, Timeable)
    return target


def require_benchmarks(target: Target, who: str) -> Calibrates:
    """The target as one that has micro-benchmarks for its chips. Raises TargetError naming what it lacks."""
    require_timeable(target, who)
    _require(who, target, "that has micro-benchmarks for its chips", Calibrates)
    assert isinstance(target, Calibrates)
    return target


def _require_instructions(who: str, target: Target, change: str) -> None:
    """Raises TargetError for a target of whole groups, which lowers nothing."""
    if isinstance(target, GroupTarget):
        needs = "a target that lowers plans to instructions"
        raise TargetError(who, needs=needs, has=_whole(target), change=change)


def _require(who: str, target: Target, what: str, *abilities: type) -> None:
    names = tuple(dict.fromkeys(name for ability in abilities for name in target_members(ability)))
    lacks = [name for name in names if not hasattr(target, name)]
    if lacks:
        raise TargetError(who, needs=f"a target {what}", has=f"{target.name}, which lacks {', '.join(lacks)}")


def _whole(target: Target) -> str:
    return f"{target.name}, whose kernels are whole groups of layers"
