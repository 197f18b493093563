"""The part of a manifest that says what an artifact was made of and how, so that all that is said later of the network
is said of this very artifact.

    options, choices, decisions, figures --gather_artifact, build--> manifest.origin, manifest.figures
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsa_sched.artifact.whole_folder import Entry

CHIP_FILE = "chip.json"
"""The whole description of the chip, in the form of a chip file."""


class OptionsEntry(Entry):
    """Options of the compilation as they were asked for, named as on the command line. In an artifact of several sizes,
    `packed` has depth and columns of weights that stay int8 because another size has them so."""

    level: str
    spill: str
    effort: str
    batch: int | None
    shapes: dict[str, tuple[int, ...]]
    bind: dict[str, tuple[int | float, ...]]
    clusters: int
    per_pass: int | Literal["auto"] | None
    schedule: bool | None
    keep_values: bool
    roll: bool | None
    force_group: tuple[str, ...]
    tune: bool
    state_pairs: Annotated[dict[str, str], Field(default_factory=dict)]
    """Inputs by the outputs that are said to be their next values. Absent in older manifests, and where there are
    none."""
    packed: tuple[tuple[int, int], ...] = ()
    slices: int | None = None


class ChosenEntry(Entry):
    """Choices that the compiler made for the program of one pass: whether instructions are ordered by the cycle model,
    and how the memories are laid out (see `LayoutOptions`)."""

    schedule: bool
    constants_ahead: bool
    rounds_ahead: bool
    buffers_apart: bool


class DecisionEntry(Entry):
    """A decision of the frontend; those of the planner are in the plan."""

    subject: str
    verdict: str
    reason: str


class OriginEntry(Entry):
    """The options, the compiler's choices, and all that it had to say. Of the model, the name is recorded if it is a
    network of the zoo; a file is known by its SHA-256 alone: equal input gives equal bytes, whatever it is called."""

    network: str
    options: OptionsEntry
    chosen: ChosenEntry
    decisions: tuple[DecisionEntry, ...]
    warnings: tuple[str, ...]


class FiguresEntry(Entry):
    """A run of the whole artifact by the cycle model. `instructions` are those of one pass of each program; `cycles`
    include launches; bytes are those that are read from the
    main memory and written to it, in all passes on all clusters. `floor_cycles` is the least time of the same passes
    for any plan, and `floor` the engine or memory that sets it; `binds` is what most of the critical path waits for or
    works on, and `binds_share` its share of the path, from 0 to 1."""

    instructions: Annotated[int, Field(ge=0)]
    cycles: Annotated[float, Field(ge=0)]
    main_read_bytes: Annotated[int, Field(ge=0)]
    main_written_bytes: Annotated[int, Field(ge=0)]
    floor_cycles: Annotated[float, Field(ge=0)]
    floor: str
    binds: str
    binds_share: float
