"""Levels of optimisation: planners as data, each with its name and its options.

    "O3", spill "auto"  --planner_of-->  O3(spill="auto")  --plan_with (registry.py)-->  Plan

The command line reads names, choices and help from here, so nothing heavy is loaded; `registry.py` carries them out.
Targets whose kernels are whole groups have planners of their own under some of the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from hw_models.errors import ModelError
from partitioner.memory.spill_policies import POLICIES

__all__ = [
    "AUTO_SPILL",
    "KERNEL_PLANNERS",
    "LEVELS",
    "NO_SPILLS",
    "O0",
    "O1",
    "O2",
    "O3",
    "PLANNERS",
    "SPILLS",
    "SPILL_HELP",
    "Astitch",
    "FusedKernels",
    "KernelPlanner",
    "LayerKernels",
    "Planner",
    "kernel_planner_of",
    "known_level",
    "level_help",
    "planner_of",
]

NO_SPILLS = "none"
"""The choice of the vendor's compiler too, whose automatic spilling is off unless asked for."""

AUTO_SPILL = "auto"
SPILLS = (NO_SPILLS, *POLICIES, AUTO_SPILL)
SPILL_HELP = (
    "which values of a group go to the staging memory where not all fit on the cores, instead of a finer cut. "
    "auto: by cost, where the cost model finds it faster."
)


@dataclass(frozen=True, slots=True)
class O0:
    """What TVM would make."""

    name: ClassVar[str] = "O0"
    summary: ClassVar[str] = "one kernel a layer, every output in the main memory"


@dataclass(frozen=True, slots=True)
class O1:
    """As O0, with less traffic to the main memory."""

    name: ClassVar[str] = "O1"
    summary: ClassVar[str] = "outputs in the staging memory while they are needed, as far as they fit"


@dataclass(frozen=True, slots=True)
class O2:
    """As O1, with values that their readers find on their own cores."""

    name: ClassVar[str] = "O2"
    summary: ClassVar[str] = "outputs in the cores' own memories where readers find them there, else as O1"


@dataclass(frozen=True, slots=True)
class O3:
    """The whole method. `spill` says which values of a group leave the cores where they do not all fit; of `SPILLS`, by
    a policy's name, none, or automatically. Raises ModelError for another one."""

    name: ClassVar[str] = "O3"
    summary: ClassVar[str] = "groups of layers cut into instances, ordered so that data stay close"

    spill: str = NO_SPILLS

    def __post_init__(self) -> None:
        if self.spill not in SPILLS:
            raise ModelError("--spill", needs=f"one of {', '.join(SPILLS)}", has=self.spill)


@dataclass(frozen=True, slots=True)
class Astitch:
    """Compute-bound layers stay alone."""

    name: ClassVar[str] = "astitch"
    summary: ClassVar[str] = "memory-bound layers stitched into one kernel, what is between kernels in the main memory"


@dataclass(frozen=True, slots=True)
class LayerKernels:
    """For targets whose kernels are whole groups: the fastest kernel of each layer."""

    name: ClassVar[str] = "O0"
    summary: ClassVar[str] = "one kernel a layer"


@dataclass(frozen=True, slots=True)
class FusedKernels:
    """For targets whose kernels are whole groups: layers merged where one kernel for them is no slower."""

    name: ClassVar[str] = "O3"
    summary: ClassVar[str] = "one kernel for several layers where the target has one that takes no longer"


Planner: TypeAlias = O0 | O1 | O2 | O3 | Astitch
KernelPlanner: TypeAlias = LayerKernels | FusedKernels

PLANNERS: Mapping[str, type[Planner]] = MappingProxyType({kind.name: kind for kind in (O0, O1, O2, O3, Astitch)})
KERNEL_PLANNERS: Mapping[str, type[KernelPlanner]] = MappingProxyType(
    {kind.name: kind for kind in (LayerKernels, FusedKernels)}
)
LEVELS = tuple(PLANNERS)


def level_help() -> str:
    """What each level does, in a line."""
    return "; ".join(f"{name}: {kind.summary}" for name, kind in PLANNERS.items())


def known_level(level: str) -> type[Planner]:
    """The planner of that name. Raises ModelError for a name of none."""
    if level not in PLANNERS:
        raise ModelError("--level", needs=f"one of {', '.join(LEVELS)}", has=level)
    return PLANNERS[level]


def planner_of(level: str, spill: str = NO_SPILLS) -> Planner:
    """A planner by its name, with its options. Raises ModelError for a name of none, a value that there is not, and an
    option that planners of this name do not have."""
    kind = known_level(level)
    if kind is O3:
        return O3(spill)
    if spill != NO_SPILLS:
        O3(spill)  # a value that there is not is told first
        raise ModelError("--spill", needs=f"a level that makes groups of several layers: {O3.name}", has=level)
    return kind()


def kernel_planner_of(target: str, level: str, spill: str = NO_SPILLS) -> KernelPlanner:
    """The same for a target (named) whose kernels are whole groups. Raises ModelError."""
    known_level(level)
    who = f"for {target}, whose kernels are whole groups of layers"
    if level not in KERNEL_PLANNERS:
        raise ModelError("--level", needs=f"{' or '.join(KERNEL_PLANNERS)} {who}", has=level)
    if spill != NO_SPILLS:
        raise ModelError("--spill", needs=f"{NO_SPILLS} {who}", has=spill)
    return KERNEL_PLANNERS[level]()
