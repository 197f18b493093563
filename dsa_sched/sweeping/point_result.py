"""What is found out about a point: the figures of what was compiled, or why nothing was.

    Point --result_of--> PointResult        (in a process of this machine, or of another one)

Where the chip has no code generator, figures are those of a plan by the cost model, which is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsa_sched.sweeping.fault import FAULT, error_text, fault_text
from dsa_sched.sweeping.points import Point, digest_of
from hw_models.capacity import area_mm2, energy_pj, main_bytes_per_second, on_chip_bytes
from hw_models.chip import Chip
from hw_models.errors import ModelError, UserError
from hw_models.routes import main_memory

if TYPE_CHECKING:
    from dsa_sched.analysis.explanation_data import Explanation
    from dsa_sched.analysis.kernel_explanation import KernelExplanation
    from dsa_sched.artifact.format import Artifact

COMPILED, PLANNED, REFUSED = "compiled", "planned", "refused"
"""Status of a point: compiled and timed; planned alone, for a chip without machine code; refused with a reason. A
fourth one is `FAULT`."""


@dataclass(frozen=True, slots=True)
class PointFigures:
    """Figures of a point. `planner` is the level that was taken; `estimated` says that no machine code was timed.
    Counts and cycles are those of one pass of one cluster, which has `pass_items`; bytes, multiply-accumulates and
    energy are those of one item. `bound_by` is what binds most of the time after the launch, `bound_share` its share.
    `peak_bytes` are by memory, `moved_bytes` by way. The memory on the chip, the rate of the main memory and the area
    are those of the clusters that the run uses. What a kind of chip or its file does not tell is absent."""

    planner: str
    estimated: bool
    pass_items: int
    seconds_per_item: float
    items_per_second: float
    cycles: float | None
    instructions: int | None
    groups: int
    instances: int | None
    bound_by: str
    bound_share: float
    macs: float | None
    main_bytes: float | None
    on_chip_bytes: int
    main_bytes_per_second: float | None
    area_mm2: float | None
    energy_uj: float | None
    peak_bytes: Mapping[str, int]
    moved_bytes: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class PointResult:
    """The result of a point: its status, the reason where there are no figures, and the figures."""

    status: str
    reason: str
    figures: PointFigures | None


def result_of(point: Point, use_cache: bool) -> PointResult:
    """Compile and time a point, in this process. Raises KeyboardInterrupt where Ctrl-C ended a search, whose result is
    not that of the point."""
    try:
        return _made(point, use_cache)
    except UserError as error:
        return PointResult(REFUSED, point.network.named(error_text(error)), None)
    except Exception as error:  # a fault of the compiler, or too little memory: other points go on
        return PointResult(FAULT, point.network.named(fault_text(error)), None)


def _made(point: Point, use_cache: bool) -> PointResult:
    from dsa_sched.analysis.explanation import explain_model
    from dsa_sched.builds.explained_build import told
    from dsa_sched.stages.targets import has_code

    chip, options = point.changed_chip(), point.compile_options()
    if not has_code(chip):
        found = told(explain_model(point.network.source, chip, options, lambda _step: None), chip, None).explanation
        return PointResult(PLANNED, "", figures_of(found, chip, options.clusters, None))
    made = compiled_point(point, use_cache)
    return PointResult(COMPILED, "", figures_of(made.explanation, chip, options.clusters, made.instructions))


@dataclass(frozen=True, slots=True)
class CompiledPoint:
    """An artifact of a point, what is said of it, and the number of its instructions where it has any."""

    artifact: Artifact
    explanation: Explanation | KernelExplanation
    instructions: int | None


def compiled_point(point: Point, use_cache: bool) -> CompiledPoint:
    """Compile a point, or find it in the user's build cache. Raises ModelError where its file is not what it was, what
    `build` raises, and KeyboardInterrupt where Ctrl-C ended a search, whose result is not that of the point."""
    from dsa_sched.builds.build import build
    from dsa_sched.builds.build_cache import user_cache
    from dsa_sched.builds.explained_build import told_of_artifact

    if digest_of(point.network.source) != point.network.digest:
        needs = "the file as it was when its points were listed"
        raise ModelError(f"model {point.network.source}", needs=needs, has="another one")
    cache = user_cache() if use_cache else None
    made = build(point.network.source, point.changed_chip(), point.compile_options(), cache=cache)
    if made.parts is not None and any(part.interrupted for part in made.parts):
        raise KeyboardInterrupt
    found = told_of_artifact(made.artifact, cache, None).explanation
    figures = made.artifact.manifest.figures
    return CompiledPoint(made.artifact, found, figures.instructions if figures is not None else None)


def figures_of(
    found: Explanation | KernelExplanation, chip: Chip, clusters: int, instructions: int | None
) -> PointFigures:
    """The figures of an explanation of what was compiled for this many clusters of a chip."""
    from dsa_sched.analysis.explanation_data import Explanation
    from dsa_sched.analysis.run_summary import LAUNCH, run_summary

    run = run_summary(found, chip)
    items = max(1, found.batch_per_cluster)
    used = clusters if chip.kind == "cores" else chip.clusters
    causes = {cause: seconds for cause, seconds in run.causes.items() if cause != LAUNCH}
    total = sum(causes.values())
    seconds = run.seconds_per_item
    if isinstance(found, Explanation) and run.estimated:  # of one cluster, and without the launch
        launch = chip.assumed_part.launch_cycles if chip.assumed_part is not None else 0.0
        seconds = (found.serial_cycles + launch) / chip.clock_hz / (items * clusters)
    bound_by = max(causes, key=lambda cause: causes[cause], default="")
    tiles = found if isinstance(found, Explanation) else None
    macs = sum(group.macs for group in tiles.groups) / items if tiles else None
    moved = {way: size / items for way, size in tiles.moved_bytes.items()} if tiles else {}
    main = main_memory(chip)
    energy = energy_pj(chip, macs, moved) if macs is not None else None
    return PointFigures(
        planner=found.level,
        estimated=run.estimated,
        pass_items=found.batch_per_cluster,
        seconds_per_item=seconds,
        items_per_second=1 / seconds if seconds else 0.0,
        cycles=tiles.measured.cycles if tiles and tiles.measured else None,
        instructions=instructions or None,
        groups=len(found.groups),
        instances=tiles.instances if tiles else None,
        bound_by=bound_by,
        bound_share=causes[bound_by] / total if total else 0.0,
        macs=macs,
        main_bytes=sum(size for way, size in moved.items() if main in way.split("->")) if tiles else None,
        on_chip_bytes=on_chip_bytes(chip, used),
        main_bytes_per_second=main_bytes_per_second(chip, used),
        area_mm2=area_mm2(chip, used),
        energy_uj=energy / 1e6 if energy is not None else None,
        peak_bytes=dict(tiles.peak_bytes) if tiles else {},
        moved_bytes=moved,
    )
