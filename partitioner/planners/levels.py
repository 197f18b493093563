"""Levels of optimisation: planners as data, each with its name and its options.

    "O3", spill "auto"  --planner_of-->  O3(spill="auto")  --make_plan (registry.py)-->  Plan
    "auto"              --planner_or_auto-->  Auto()       --dsa_sched/search/-->        one of these values

The fields of a planner's class are its options and are defined nowhere else. The command line reads names, choices and
help from here, so nothing heavy is loaded; `registry.py` runs the planners. Targets whose kernels are whole groups have
planners of their own under some of the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from hw_models.errors import ModelError
from partitioner.memory.spill_policies import POLICIES

NO_SPILLS = "none"
"""Name for no spilling; also the default of the vendor's compiler, whose automatic spilling must be asked for."""

AUTO_SPILL = "auto"
SPILLS = (NO_SPILLS, *POLICIES, AUTO_SPILL)
SPILL_HELP = (
    "which values of a group go to the staging memory where not all fit on the cores, instead of a finer cut. "
    "auto: by cost, where the cost model finds it faster."
)


@dataclass(frozen=True, slots=True)
class O0:
    """Planner of level O0: the kernels that TVM would make."""

    name: ClassVar[str] = "O0"
    summary: ClassVar[str] = "one kernel per layer, every output in the main memory"


@dataclass(frozen=True, slots=True)
class O1:
    """Planner of level O1: as O0, with less traffic to the main memory."""

    name: ClassVar[str] = "O1"
    summary: ClassVar[str] = "outputs in the staging memory while they are needed, as far as they fit"


@dataclass(frozen=True, slots=True)
class O2:
    """Planner of level O2: as O1, with values that their readers find on their own cores."""

    name: ClassVar[str] = "O2"
    summary: ClassVar[str] = "outputs in the cores' own memories where readers find them there, else as O1"


@dataclass(frozen=True, slots=True)
class O3:
    """Planner of level O3, the whole method. `spill`, one of `SPILLS`, says how values of a group are chosen that leave
    the cores where they do not all fit: by a policy's name, none, or automatically. Raises ModelError for any other
    value."""

    name: ClassVar[str] = "O3"
    summary: ClassVar[str] = "groups of layers cut into instances, ordered so that data stay close"

    spill: str = NO_SPILLS

    def __post_init__(self) -> None:
        if self.spill not in SPILLS:
            raise ModelError("--spill", needs=f"one of {', '.join(SPILLS)}", has=self.spill)


@dataclass(frozen=True, slots=True)
class Streamed:
    """Planner of level streamed: as O2, for networks whose constants are a large part of what moves. With `chunks`, it
    is given the graph in which hidden values without room on the cores are computed in chunks; level auto finds it."""

    name: ClassVar[str] = "streamed"
    summary: ClassVar[str] = "as O2, cut so that constants stream once through all cores while these compute"

    chunks: bool = False


@dataclass(frozen=True, slots=True)
class Astitch:
    """Planner of level astitch: compute-bound layers stay alone."""

    name: ClassVar[str] = "astitch"
    summary: ClassVar[str] = "memory-bound layers stitched into one kernel, values between kernels in the main memory"


@dataclass(frozen=True, slots=True)
class ImageGroup:
    """Layers, by name, that are one group; `images` of each of its instances add up to the batch. `inner` are cut
    points of other axes of the group's output, along which the instances of each part of the images are also cut."""

    layers: tuple[str, ...]
    images: tuple[int, ...]
    inner: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Images:
    """Planner of groups that O3 made for another batch, in instances of given images; level auto finds it."""

    name: ClassVar[str] = "images"
    summary: ClassVar[str] = "groups of O3 for another batch, in instances of given images"

    groups: tuple[ImageGroup, ...]


WholePlanner: TypeAlias = O0 | O1 | O2 | O3 | Streamed | Astitch | Images
"""Planners that use one method for the whole network."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The layers from the one named `first` to the one before the next segment, as in that planner's plan of the whole
    network."""

    planner: WholePlanner
    first: str


@dataclass(frozen=True, slots=True)
class Segments:
    """Planner of a network whose `parts` are planned by different planners; level auto finds it."""

    name: ClassVar[str] = "segments"
    summary: ClassVar[str] = "parts of the network as different levels have them"

    parts: tuple[Segment, ...]


Planner: TypeAlias = WholePlanner | Segments


@dataclass(frozen=True, slots=True)
class Auto:
    """Search for the planner whose program is the fastest by the cycle model (`dsa_sched/search/`); it is not itself a
    planner."""

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "the fastest of what these make, by the cycle model"


@dataclass(frozen=True, slots=True)
class LayerKernels:
    """For targets whose kernels are whole groups: the fastest kernel of each layer."""

    name: ClassVar[str] = "O0"
    summary: ClassVar[str] = "one kernel per layer"


@dataclass(frozen=True, slots=True)
class FusedKernels:
    """For targets whose kernels are whole groups: the least costly of all ways to merge layers."""

    name: ClassVar[str] = "O3"
    summary: ClassVar[str] = (
        "one kernel for several layers where that is fastest, by the sum of the floors of all kernels"
    )


@dataclass(frozen=True, slots=True)
class FastestKernels:
    """For targets whose kernels are whole groups: the cover of `FusedKernels`, which also reports what O0 would
    take."""

    name: ClassVar[str] = Auto.name
    summary: ClassVar[str] = "the fastest of O0 and all covers, by the floors of their kernels"


KernelPlanner: TypeAlias = LayerKernels | FusedKernels | FastestKernels

PLANNERS: Mapping[str, type[O0 | O1 | O2 | O3 | Streamed | Astitch]] = MappingProxyType(
    {kind.name: kind for kind in (O0, O1, O2, O3, Streamed, Astitch)}
)
KERNEL_PLANNERS: Mapping[str, type[KernelPlanner]] = MappingProxyType(
    {kind.name: kind for kind in (LayerKernels, FusedKernels, FastestKernels)}
)
LEVELS = tuple(PLANNERS)

SEGMENTS, IMAGES = Segments.name, Images.name
"""Levels that users cannot select: their plans need the parts or groups that level auto has found."""

AUTO = Auto.name
LEVEL_CHOICES = (*LEVELS, AUTO)
DEFAULT_LEVEL = AUTO
"""Default level: on the command line, in Python, and for chips that tasks are placed on."""

NORMAL_EFFORT = "normal"
EFFORTS: Mapping[str, int] = MappingProxyType({"fast": 4, NORMAL_EFFORT: 14, "high": 48})
"""Largest number of plans that become programs judged by the cycle model at level auto, by the name of the effort."""


def level_help() -> str:
    """Help for all levels, in one line."""
    return "; ".join(f"{kind.name}: {kind.summary}" for kind in (*PLANNERS.values(), Auto))


def planner_text(planner: Planner) -> str:
    """Name of a planner with its options, for decisions and progress."""
    match planner:
        case O3(spill) if spill != NO_SPILLS:
            return f"{O3.name} with spills"
        case Streamed(chunks=True):
            return f"{Streamed.name}, hidden values in chunks"
        case Images(groups):
            return f"groups of up to {max(max(group.images) for group in groups)} images per instance"
        case Segments(parts):
            return f"{len(parts)} segments of {', '.join(sorted({planner_text(part.planner) for part in parts}))}"
    return planner.name


def planner_of(level: str, spill: str = NO_SPILLS) -> WholePlanner:
    """The planner with the name that users give it. Raises ModelError for an unknown name, for an unknown policy of
    spilling, and for a policy given to a planner that does not spill."""
    if level not in PLANNERS:
        needs = f"one of {', '.join(LEVEL_CHOICES)}"
        if level in (AUTO, SEGMENTS, IMAGES):
            needs = f"a planner: {', '.join(LEVELS)}"
        raise ModelError("--level", needs=needs, has=level)
    if level == O3.name:
        return O3(spill)
    _refuse_spill(spill, level, "a level that makes groups of several layers")
    return PLANNERS[level]()


def planner_or_auto(level: str, spill: str = NO_SPILLS) -> WholePlanner | Auto:
    """The planner with a given name, or the search for the fastest planner, which tries spills by itself."""
    if level != AUTO:
        return planner_of(level, spill)
    _refuse_spill(spill, level, "a level that does not try spills by itself")
    return Auto()


def _refuse_spill(spill: str, level: str, needs: str) -> None:
    if spill != NO_SPILLS:
        O3(spill)  # report an unknown policy first
        raise ModelError("--spill", needs=f"{needs}: {O3.name}", has=level)


def kernel_planner_of(target: str, asked: Planner | Auto) -> KernelPlanner:
    """The planner of the same name for a target (named) whose kernels are whole groups. Raises ModelError where there
    is none, and for spills, which such a target does not have."""
    who = f"for {target}, whose kernels are whole groups of layers"
    if asked.name not in KERNEL_PLANNERS:
        raise ModelError("--level", needs=f"{' or '.join(KERNEL_PLANNERS)} {who}", has=asked.name)
    if isinstance(asked, O3) and asked.spill != NO_SPILLS:
        raise ModelError("--spill", needs=f"{NO_SPILLS} {who}", has=asked.spill)
    return KERNEL_PLANNERS[asked.name]()
