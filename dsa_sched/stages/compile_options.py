"""Options of a compilation, as one value.

Nothing heavy is loaded with them: that is all that commands and the build cache need to find what was made before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hw_models.errors import ModelError
from isched.program.shared_constants import NOT_SHARED, SharedConstants
from partitioner.planners.levels import EFFORTS, NORMAL_EFFORT, Auto, Planner

PerPass: TypeAlias = int | Literal["auto"] | None

AUTO_PLANNER = Auto()
"""Default planner everywhere: on the command line, in Python, and for chips on which tasks are placed."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a compilation.

    `planner` makes the plan, or level auto searches for the one that does; `effort` says how many plans are tried at
    level auto, and how many orders of instructions wherever they are ordered. `batch` replaces the leading dimension of
    every input; `clusters` of the chip divide it, and each runs its share in passes of `per_pass` items: a number,
    "auto" for the best one, or None for the whole share (at level auto, for the best one). `isolated` gives every layer
    its own copies of its inputs, so that it can be judged by itself. `schedule` orders instructions so that engines
    work at the same time (see `isched.scheduling.schedule`); None does so only at level auto, where the target can.
    With `constants_ahead`, such a program has its constants as early as the staging memory has room for them. With
    `keep_values`, nothing in the main memory is overwritten once it is written. `force_groups` are groups that a target
    of whole groups makes whatever they cost, as `A,B,C` or `A,B,C:FAMILY`, `slices` the number of slices of the batch
    in which it computes some groups (None where that is fastest, 1 for none); with `tune`, candidates of each group are
    timed on the device. Machine code has loops, and one text for all cores, where the target can, unless `roll` is
    False; with True it must. Inputs among the `bindings` are constants with these elements; `state` are outputs with
    the inputs whose next values they are, besides those that names tell. Level auto uses up to `jobs` processes (None
    for all cores of the machine), which changes nothing but the time that it takes. Constants that are `shared` with
    other programs lie where these have them, and in no executable; weights of the extents in `packed` (depth and
    columns) stay int8, as theirs do. Raises ModelError for an unknown effort and for less than one process or slice.
    """

    planner: Planner | Auto = AUTO_PLANNER
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    clusters: int = 1
    per_pass: PerPass = None
    isolated: bool = False
    schedule: bool | None = None
    keep_values: bool = False
    effort: str = NORMAL_EFFORT
    constants_ahead: bool = False
    force_groups: tuple[str, ...] = ()
    slices: int | None = None
    tune: bool = False
    roll: bool | None = None
    bindings: tuple[tuple[str, tuple[int | float, ...]], ...] = ()
    jobs: int | None = None
    state: tuple[tuple[str, str], ...] = ()
    shared: SharedConstants = NOT_SHARED
    packed: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise ModelError("--effort", needs=f"one of {', '.join(EFFORTS)}", has=self.effort)
        if self.jobs is not None and self.jobs < 1:
            raise ModelError("--jobs", needs="at least one process", has=str(self.jobs))
        if self.slices is not None and self.slices < 1:
            raise ModelError("--slices", needs="at least one slice", has=str(self.slices))

    @property
    def is_further(self) -> bool:
        """Whether another size of the network was compiled before, with a search of its own."""
        return bool(self.shared.places)

    @property
    def most_plans(self) -> int:
        """Largest number of plans that level auto makes programs of; for a further size of a network, half of it."""
        return EFFORTS[self.effort] // (2 if self.is_further else 1)

    @property
    def is_hasty(self) -> bool:
        """Whether less is tried than at normal effort."""
        return EFFORTS[self.effort] < EFFORTS[NORMAL_EFFORT]

    @property
    def is_thorough(self) -> bool:
        """Whether more is tried than at normal effort."""
        return EFFORTS[self.effort] > EFFORTS[NORMAL_EFFORT]
