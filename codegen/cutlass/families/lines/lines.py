"""Kernels over whole lines: softmax, norms, reductions along axes, and pools whose window is the whole map.

    elements of a line are neighbours in memory (softmax of the last axis)    8 or 32 threads per line, or a block
    lines lie across memory (a mean over the pixels, NHWC)                    8 channels per thread; 1 to 512 of them

The threads that share a line are a team; in a step, each of them reads up to 8 neighbours. A line that takes more than
one pass is held in registers where it is short enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.cutlass.families.lines.line_operators import LINES, LineOperator, affine, line_axes
from codegen.cutlass.families.lines.line_shapes import AxisRun, LineShape, line_shape
from codegen.cutlass.kernel.epilogues import chain_of, dims
from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import lanes_floor, launch_seconds, main_floor, stored_bytes
from codegen.cutlass.kernel.launches import Address, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants, Op
from partitioner.ir.kernels import Kernel

BLOCK, WARP, FLOAT = 256, 32, 4
ROW_TEAMS: tuple[int, ...] = (8, 32, 128, 512)
COLUMN_TEAMS: tuple[int, ...] = (1, 8, 32)
"""Threads per line that lies across memory: a block works on 256, 32 or 8 sets of neighbouring lines at a time."""
LONG_COLUMN_TEAMS: Mapping[int, int] = {128: 4, 256: 4, 512: 2}
"""Threads per line that lies across memory, is read once and has as many steps: sets of neighbouring lines of a block.
Two sets are 32 bytes, below which what is fetched would be in part of other blocks' lines."""
MOST_HELD = 32
"""Largest number of elements that a thread holds."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """A layer with the shape of its lines and the code of its operator; methods give numbers for a size of team."""

    work: KernelWork
    shape: LineShape
    operator: LineOperator

    @property
    def chain(self) -> tuple[Op, ...]:
        """Element-wise operators after the line operator."""
        work = self.work
        return (*affine(work.anchor), *(work.graph.op_by_name[name] for name in work.layer.ops[1:]))

    @property
    def vector(self) -> int:
        """Elements that are read at a time. It is 1 also where elements that are stored together may cross the end of
        the last axis, so that they need different elements of an operand of the chain."""
        last = self.work.shape(self.work.output)[-1]
        stored_at_once = not (self.operator.reduces and self.shape.rows)
        broken = stored_at_once and last % 8 and any(len(op.inputs) > 1 for op in self.chain)
        return 1 if broken else self.shape.vector

    @property
    def teams(self) -> tuple[int, ...]:
        """Numbers of threads per line, the preferred one first: it is taken where floors are equal, as they are where
        the main memory binds. Except for the smallest, a team has fewer than twice as many threads as a line has
        steps."""
        choices = ROW_TEAMS if self.shape.rows else COLUMN_TEAMS
        steps, _ = self.shape.counts(self.vector)
        offered = [team for team in choices if team < 2 * steps or team == min(choices)]
        if not self.shape.rows and self.operator.passes == 1:
            offered += [team for team in LONG_COLUMN_TEAMS if team <= steps]
        return tuple(sorted(offered, key=self._order))

    def _order(self, team: int) -> tuple[bool, int, int]:
        """Sort key of preference: first teams that read lines once, then those that put most threads to work, up to
        what the chip has room for, then those that leave the fewest threads of a warp idle."""
        chip = self.work.chip
        steps, count = self.shape.counts(self.vector)
        room = chip.cores_per_cluster * chip.simt.threads_per_core
        again = self.operator.passes > 1 and not self.held(team)
        return again, -min(count * min(team, steps), room), self.blocks(team) * self.warp_steps(team)

    def threads(self, team: int) -> int:
        """Threads of a block."""
        if team <= WARP:
            return BLOCK
        return team if self.shape.rows else team * LONG_COLUMN_TEAMS[team]

    def blocks(self, team: int) -> int:
        _, count = self.shape.counts(self.vector)
        return -(-count // (self.threads(team) // team))

    def steps(self, team: int) -> int:
        """Steps of the busiest thread."""
        steps, _ = self.shape.counts(self.vector)
        return -(-steps // team)

    def warp_steps(self, team: int) -> int:
        """Steps of all working warps of a block."""
        steps, count = self.shape.counts(self.vector)
        here = min(count, self.threads(team) // team)
        together = min(team, WARP) if self.shape.rows else max(1, WARP * team // self.threads(team))
        return -(-steps // together) * -(-here // (WARP // together))

    def shared_bytes(self, team: int) -> int:
        """Bytes in which the warps of a block leave their partial results of the same lines."""
        warps, of_lines = (
            self.threads(team) // WARP,
            1 if self.shape.rows else self.vector * (self.threads(team) // team),
        )
        return FLOAT * warps * of_lines if team > (WARP if self.shape.rows else 1) else 0

    def held(self, team: int) -> int:
        """Steps of a line that a thread holds, a power of two; 0 where it reads them again in each pass."""
        steps = self.steps(team)
        if self.operator.passes == 1 or steps * self.vector > MOST_HELD:
            return 0
        return 1 << (steps - 1).bit_length()


@dataclass(frozen=True, slots=True)
class LineFamily:
    """A family of line kernels, with `operators` by kind."""

    name: str
    operators: Mapping[str, LineOperator]

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        if len(work.layers) > 1 or work.anchor.kind not in self.operators:
            return ()
        problem = self._problem(work)
        return tuple(self._candidate(problem, team) for team in problem.teams) if problem else ()

    def _problem(self, work: KernelWork) -> _Problem | None:
        axes = line_axes(work.graph, work.anchor)
        if axes is None:
            return None
        return _Problem(work, line_shape(work.shape(work.anchor.inputs[0]), axes), self.operators[work.anchor.kind])

    def _candidate(self, problem: _Problem, team: int) -> Kernel:
        """The kernel of a team. Its floor counts at least one operation per element and pass."""
        chip, work = problem.work.chip, problem.work
        each = problem.vector * problem.operator.passes
        return Kernel(
            self.name,
            (("threads", team), ("vector", problem.vector)),
            resources=(("shared_bytes", problem.shared_bytes(team)), ("threads", problem.threads(team))),
            launch_seconds=launch_seconds(chip),
            floors=(
                main_floor(chip, stored_bytes(work)),
                lanes_floor(chip, problem.warp_steps(team) * each, problem.steps(team) * each, problem.blocks(team)),
            ),
            blocks=(problem.blocks(team),),
        )

    def launches(self, work: KernelWork, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        """The one launch of the kernel. Raises TargetError for parameters that are not offered."""
        del constants
        problem = self._problem(work)
        team, vector = parameters.get("threads"), parameters.get("vector")
        if problem is None or not isinstance(team, int) or team not in problem.teams or vector != problem.vector:
            offered = (
                [f"threads={choice}, vector={problem.vector}" for choice in problem.teams] if problem else ["none"]
            )
            raise TargetError(f"kernel {self.name} for {work.layer.name}", needs=" or ".join(offered),
                              has=f"threads={team}, vector={vector}")  # fmt: skip
        chain = chain_of(work.graph, problem.chain, work.anchor.outputs[0])
        name = "_".join(dict.fromkeys(work.graph.op_by_name[op].kind for op in work.layer.ops))[:100]
        text = _head(problem, team) + filled(
            "lines.cu",
            NAME=name,
            PARAMETERS=chain.declarations,
            EPILOGUE=chain.statements,
            BODY=problem.operator.statements(work.anchor),
        )
        shape = problem.shape
        steps, count = shape.counts(problem.vector)
        arguments = (
            Address(work.output, written=True),
            Address(work.anchor.inputs[0]),
            (count, steps, *_axes(shape.kept), *_axes(shape.along)),
            dims(work.shape(work.output)),
            *chain.arguments,
        )
        grid, block = (problem.blocks(team), 1, 1), (problem.threads(team), 1, 1)
        return (Launch(Source(name, text), name, grid, block, arguments),)


def _head(problem: _Problem, team: int) -> str:
    """Definitions that the sources of all line kernels need, followed by these sources."""
    shape = problem.shape
    numbers = {
        "RANK": len(problem.work.shape(problem.work.output)),
        "V": problem.vector,
        "THREADS": problem.threads(team),
        "T": team,
        "HELD": problem.held(team),
        "KEPT": len(shape.kept),
        "ALONG": len(shape.along),
    }
    given = "constexpr int " + ", ".join(f"{name} = {value}" for name, value in numbers.items()) + ";\n"
    order = source_text("line_rows.cuh" if shape.rows else "line_columns.cuh")
    step = f"constexpr int ALONG_STEP = {problem.vector if shape.rows else 1};\n"
    return source_text("common.cuh") + given + step + source_text("lines.cuh") + order


def _axes(runs: tuple[AxisRun, ...]) -> tuple[int, ...]:
    """Extents and strides of runs of axes, each as a struct `Dims` of the CUDA sources."""
    return (*dims(tuple(run.extent for run in runs)), *dims(tuple(run.stride for run in runs)))


LINE_FAMILY = LineFamily("lines", LINES)
