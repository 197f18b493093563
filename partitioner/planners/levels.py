"""Levels of optimisation: planners as data, each with its name and its options.

    "O3", spill "auto"  --planner_of-->  O3(spill="auto")  --make_plan (registry.py)-->  Plan

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
    "AUTO",
    "AUTO_SPILL",
    "DEFAULT_LEVEL",
    "EFFORTS",
    "IMAGES",
    "KERNEL_PLANNERS",
    "LEVELS",
    "LEVEL_CHOICES",
    "NORMAL_EFFORT",
    "NO_SPILLS",
    "O0",
    "O1",
    "O2",
    "O3",
    "PLANNERS",
    "SEGMENTS",
    "SPILLS",
    "SPILL_HELP",
    "Astitch",
    "FastestKernels",
    "FusedKernels",
    "ImageGroup",
    "Images",
    "KernelPlanner",
    "LayerKernels",
    "Planner",
    "Segment",
    "Segments",
    "Streamed",
    "kernel_planner_of",
    "level_help",
    "planner_of",
    "require_known",
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
class Streamed:
    """As O2, for layers whose constants are much of what moves."""

    name: ClassVar[str] = "streamed"
    summary: ClassVar[str] = "as O2, cut such that constants stream once through all cores while these compute"


@dataclass(frozen=True, slots=True)
class Astitch:
    """Compute-bound layers stay alone."""

    name: ClassVar[str] = "astitch"
    summary: ClassVar[str] = "memory-bound layers stitched into one kernel, what is between kernels in the main memory"


@dataclass(frozen=True, slots=True)
class Segment:
    """Layers from the one named `first` to that before the next segment, as a plan of that level for the whole network
    has them."""

    level: str
    spill: str
    first: str


@dataclass(frozen=True, slots=True)
class Segments:
    """Parts of the network as different levels have them: what level auto finds, with `parts` that say which, and the
    groups of those of level `IMAGES`."""

    name: ClassVar[str] = "segments"
    summary: ClassVar[str] = "parts of the network as different levels have them"

    parts: tuple[Segment, ...]
    image_groups: tuple[ImageGroup, ...] = ()


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

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "the fastest of O0 and all covers, by the floors of their kernels"


Planner: TypeAlias = O0 | O1 | O2 | O3 | Streamed | Astitch | Segments | Images
KernelPlanner: TypeAlias = LayerKernels | FusedKernels | FastestKernels

PLANNERS: Mapping[str, type[O0 | O1 | O2 | O3 | Streamed | Astitch]] = MappingProxyType(
    {kind.name: kind for kind in (O0, O1, O2, O3, Streamed, Astitch)}
)
KERNEL_PLANNERS: Mapping[str, type[KernelPlanner]] = MappingProxyType(
    {kind.name: kind for kind in (LayerKernels, FusedKernels, FastestKernels)}
)
LEVELS = tuple(PLANNERS)

SEGMENTS = Segments.name
"""No choice of a user's: a plan of it needs the parts that level auto has found."""

IMAGES = Images.name
"""No choice of a user's either: a plan of it needs the groups."""

AUTO = FastestKernels.name
"""No planner of its own: the fastest of what the levels make, as the cycle model judges their programs."""
AUTO_SUMMARY = "the fastest of what these make, by the cycle model"
LEVEL_CHOICES = (*LEVELS, AUTO)
DEFAULT_LEVEL = AUTO
"""Where nobody says another one: on the command line, in Python, and for chips that tasks are placed on."""

NORMAL_EFFORT = "normal"
EFFORTS: Mapping[str, int] = MappingProxyType({"fast": 1, NORMAL_EFFORT: 14, "high": 48})
"""At level auto: how many plans at most become programs that the cycle model judges."""


def level_help() -> str:
    """What each level does, in a line."""
    return "; ".join([*(f"{name}: {kind.summary}" for name, kind in PLANNERS.items()), f"{AUTO}: {AUTO_SUMMARY}"])


def require_known(level: str, effort: str = NORMAL_EFFORT) -> None:
    """Raises ModelError for the name of no level, and of no effort."""
    if level not in (*LEVEL_CHOICES, SEGMENTS, IMAGES):
        raise ModelError("--level", needs=f"one of {', '.join(LEVEL_CHOICES)}", has=level)
    if effort not in EFFORTS:
        raise ModelError("--effort", needs=f"one of {', '.join(EFFORTS)}", has=effort)


def planner_of(
    level: str,
    spill: str = NO_SPILLS,
    segments: tuple[Segment, ...] = (),
    image_groups: tuple[ImageGroup, ...] = (),
) -> Planner:
    """A planner by its name, with its options. Raises ModelError for a name of none, a value that there is not, and an
    option that planners of this name do not have."""
    require_known(level)
    if level == SEGMENTS and segments:
        return Segments(segments, image_groups)
    if level == IMAGES and image_groups:
        return Images(image_groups)
    if level in (AUTO, SEGMENTS, IMAGES):
        raise ModelError("--level", needs=f"a planner: {', '.join(LEVELS)}", has=level)
    if level == O3.name:
        return O3(spill)
    if spill != NO_SPILLS:
        O3(spill)  # a value that there is not is told first
        raise ModelError("--spill", needs=f"a level that makes groups of several layers: {O3.name}", has=level)
    return PLANNERS[level]()


def kernel_planner_of(target: str, level: str, spill: str = NO_SPILLS) -> KernelPlanner:
    """The same for a target (named) whose kernels are whole groups. Raises ModelError."""
    require_known(level)
    who = f"for {target}, whose kernels are whole groups of layers"
    if level not in KERNEL_PLANNERS:
        raise ModelError("--level", needs=f"{' or '.join(KERNEL_PLANNERS)} {who}", has=level)
    if spill != NO_SPILLS:
        raise ModelError("--spill", needs=f"{NO_SPILLS} {who}", has=spill)
    return KERNEL_PLANNERS[level]()
