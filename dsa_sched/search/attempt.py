"""What becomes of one candidate under a limit: its program, timed by the cycle model, or why there is none.

    candidate, cycles of the best so far --floor below these? lower, schedule, time--> Attempt

An attempt under a higher limit, made before the candidate's turn, tells all that one under a lower limit would tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from codegen.target import TileTarget
from dsa_sched.search.candidates import Candidate, SearchState
from dsa_sched.search.floors import has_region, memory_floor_cycles
from dsa_sched.search.segments import MOST_TIMES, layer_cycles_of
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.tile_stages import Planned, lower_below, verified
from hw_models.errors import PlanError
from isched.program.program import Program
from partitioner.memory.memory_plan_types import Layout
from partitioner.planners.levels import Images


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate as far as it came under the limit of that moment: whether there is a region for constants that arrive
    ahead, the cycles that the bytes of a shared memory take, why there is no program, or else its cycles (endless where
    they reach the limit), those of each layer, and its number of instructions. `made` is the program with its layout,
    where it is faster than the best.
    """

    has_region: bool = True
    floor_cycles: float = 0.0
    refused: PlanError | None = None
    cycles: float = inf
    made: tuple[Layout, Program] | None = None
    layer_cycles: tuple[float, ...] = ()
    instructions: int = 0


def attempted(
    state: SearchState[TileTarget], candidate: Candidate, options: CompileOptions, best_cycles: float
) -> Attempt:
    """The program of a candidate, unless it is ruled out without one. Raises PlanError where it cannot be laid out."""
    ctx, own = state.context, candidate.config.of(options)
    if candidate.config.ahead and not has_region(candidate.plan, ctx):
        return Attempt(has_region=False)
    floor = memory_floor_cycles(candidate.plan, ctx, own, best_cycles, candidate.plain)
    if floor >= best_cycles:
        return Attempt(floor_cycles=floor)
    planned = Planned(state.model, ctx, candidate.plan)
    try:
        found = lower_below(planned, own, _quiet, limit_of(candidate, options, best_cycles))
        if found is None:
            return Attempt(floor_cycles=floor)
        lowered, run = found
        if run.cycles < best_cycles:
            verified(planned, lowered, _quiet)
    except PlanError as error:
        return Attempt(floor_cycles=floor, refused=error.with_traceback(None))  # its frames hold the program
    return Attempt(
        floor_cycles=floor,
        cycles=run.cycles,
        made=(lowered.layout, lowered.program) if run.cycles < best_cycles else None,
        layer_cycles=layer_cycles_of(run, ctx) if is_timed_by_layer(candidate, options) else (),
        instructions=sum(len(stream.instrs) for stream in lowered.program.streams),
    )


def _quiet(_step: str) -> None:
    """Steps of one candidate are not reported."""


def limit_of(candidate: Candidate, options: CompileOptions, best_cycles: float) -> float:
    """Cycles at which a program is no longer timed. Whole plans have more of them: their parts may be faster."""
    return best_cycles * (MOST_TIMES if candidate.config.is_whole and not options.is_hasty else 1.0)


def is_timed_by_layer(candidate: Candidate, options: CompileOptions) -> bool:
    """Whether parts of the plan may become segments."""
    whole = candidate.config.is_whole and not options.is_hasty
    return whole or isinstance(candidate.config.planner, Images)
