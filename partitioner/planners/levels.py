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
class Streamed:
    """As O2, for layers whose constants are much of what moves. With `chunks`, it is given the graph in which hidden
    values without room on the cores are computed in chunks: what level auto finds."""

    name: ClassVar[str] = "streamed"
    summary: ClassVar[str] = "as O2, cut such that constants stream once through all cores while these compute"

    chunks: bool = False


@dataclass(frozen=True, slots=True)
class Astitch:
    """Compute-bound layers stay alone."""

    name: ClassVar[str] = "astitch"
    summary: ClassVar[str] = "memory-bound layers stitched into one kernel, what is between kernels in the main memory"


@dataclass(frozen=True, slots=True)
class ImageGroup:
    """Layers, by name, that are one group; `images` of each of its instances, which are all of the batch. `inner` are
    cut points of other axes of the group's output, which each instance of so many images is cut along besides."""

    layers: tuple[str, ...]
    images: tuple[int, ...]
    inner: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Images:
    """Groups as O3 has them for another batch, in instances of given images: what level auto finds."""

    name: ClassVar[str] = "images"
    summary: ClassVar[str] = "groups of O3 for another batch, in instances of given images"

    groups: tuple[ImageGroup, ...]


WholePlanner: TypeAlias = O0 | O1 | O2 | O3 | Streamed | Astitch | Images
"""Planners that have one method for the whole network."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The layers from the one named `first` to the one before the next segment, as that planner's plan of the whole
    network has them."""

    planner: WholePlanner
    first: str


@dataclass(frozen=True, slots=True)
class Segments:
    """Parts of the network as different planners have them: what level auto finds, with `parts` that say which."""

    name: ClassVar[str] = "segments"
    summary: ClassVar[str] = "parts of the network as different levels have them"

    parts: tuple[Segment, ...]


Planner: TypeAlias = WholePlanner | Segments


@dataclass(frozen=True, slots=True)
class Auto:
    """No planner: the search for the one whose program is the fastest by the cycle model (`dsa_sched/search/`)."""

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "the fastest of what these make, by the cycle model"


@dataclass(frozen=True, slots=True)
class LayerKernels:
    """For targets whose kernels are whole groups: the fastest kernel of each layer."""

    name: ClassVar[str] = "O0"
    summary: ClassVar[str] = "one kernel a layer"


@dataclass(frozen=True, slots=True)
class FusedKernels:
    """For targets whose kernels are whole groups: of all ways to merge layers the one of least cost."""

    name: ClassVar[str] = "O3"
    summary: ClassVar[str] = (
        "one kernel for several layers where that is fastest, by the floors of all kernels one after the other"
    )


@dataclass(frozen=True, slots=True)
class FastestKernels:
    """For targets whose kernels are whole groups: the same, and it says what O0 would take."""

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
"""Levels that no user can name: their plans need the parts or groups that level auto has found."""

AUTO = Auto.name
LEVEL_CHOICES = (*LEVELS, AUTO)
DEFAULT_LEVEL = AUTO
"""Where nobody says another one: on the command line, in Python, and for chips that tasks are placed on."""

NORMAL_EFFORT = "normal"
EFFORTS: Mapping[str, int] = MappingProxyType({"fast": 1, NORMAL_EFFORT: 14, "high": 48})
"""Names of efforts, and how many plans at level auto become programs that the cycle model judges, at most. Effort below
the normal one also orders the instructions of a scheduled program in one way only."""


def level_help() -> str:
    """What each level does, in a line."""
    return "; ".join(f"{kind.name}: {kind.summary}" for kind in (*PLANNERS.values(), Auto))


def planner_text(planner: Planner) -> str:
    """A planner with its options, as decisions and progress name it."""
    match planner:
        case O3(spill) if spill != NO_SPILLS:
            return f"{O3.name} with spills"
        case Streamed(chunks=True):
            return f"{Streamed.name}, hidden values in chunks"
        case Images(groups):
            return f"groups of up to {max(max(group.images) for group in groups)} images an instance"
        case Segments(parts):
            return f"{len(parts)} segments of {', '.join(sorted({planner_text(part.planner) for part in parts}))}"
    return planner.name


def planner_of(level: str, spill: str = NO_SPILLS) -> WholePlanner:
    """A planner by the name that users give it. Raises ModelError for a name of none, a policy of spilling that there
    is not, and one for a planner that has none."""
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
    """The same, or the search for the fastest planner, which tries spills by itself."""
    if level != AUTO:
        return planner_of(level, spill)
    _refuse_spill(spill, level, "a level that does not try spills by itself")
    return Auto()


def _refuse_spill(spill: str, level: str, needs: str) -> None:
    if spill != NO_SPILLS:
        O3(spill)  # a value that there is not is told first
        raise ModelError("--spill", needs=f"{needs}: {O3.name}", has=level)


def kernel_planner_of(target: str, asked: Planner | Auto) -> KernelPlanner:
    """The planner of the same name for a target (named) whose kernels are whole groups. Raises ModelError where there
    is none, and for spills, which such a target has not."""
    who = f"for {target}, whose kernels are whole groups of layers"
    if asked.name not in KERNEL_PLANNERS:
        raise ModelError("--level", needs=f"{' or '.join(KERNEL_PLANNERS)} {who}", has=asked.name)
    if isinstance(asked, O3) and asked.spill != NO_SPILLS:
        raise ModelError("--spill", needs=f"{NO_SPILLS} {who}", has=asked.spill)
    return KERNEL_PLANNERS[asked.name]()
