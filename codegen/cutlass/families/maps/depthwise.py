"""Depthwise convolutions of rows and images: a thread computes a strip of neighbours along a row, in eight channels.

    n y x c: sum over taps of in[n, y.., x.., c] w[tap, c]    strip=4: four x of eight c, each input read once for all

The source has the layer's extents as constants (`sources/depthwise.cu`), so a shape has a kernel of its own, which all
numbers of images share. Long strips save loads and conversions, short ones leave more threads; where the main memory
binds all of them, the one is taken that puts most cores to work, then the one that needs the CUDA cores least.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.cutlass.kernel.epilogues import chain_of
from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import cache_floor, lanes_floor, launch_seconds, main_floor, window_bytes
from codegen.cutlass.kernel.launches import Address, Data, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel, KernelFloor

THREADS = 128
WIDTH = 8
"""Channels of a thread: 16 bytes."""
HALF_BYTES = 2
STRIPS = (1, 2, 4, 7, 8)
NEAR = 4
"""Most neighbouring threads that differ in channels alone: they read 64 bytes together. With more of them a block would
have fewer rows, and would read more of each again that another block has read."""
MOST_TAPS = 63
"""Of a row: all are unrolled."""
MOST_COLUMNS = 256
"""From the first to the last that a strip reads."""
MOST_UNROLLED = 1024
"""Multiply-adds of a thread up to which rows of the window are unrolled too."""
MOST_ELEMENTS = 1 << 30
"""Of an image, which is indexed by 32 bits."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """A spatial axis: extents of input and output, and how the window lies along it."""

    extent: int
    made: int
    taps: int
    stride: int
    pad: int
    dilation: int

    def inside(self, first: int, last: int) -> int:
        """Elements of the input between those that outputs `first` to `last` read first and last."""
        start = first * self.stride - self.pad
        end = last * self.stride - self.pad + (self.taps - 1) * self.dilation
        return max(0, min(end, self.extent - 1) - max(start, 0) + 1)

    @property
    def reach(self) -> int:
        """Elements from the first that a window may begin at to the last of the last strip's window, at least."""
        return max(self.extent, (self.made + max(STRIPS)) * self.stride + self.taps * self.dilation) + self.pad

    def span(self, strip: int) -> int:
        """Elements from the first to the last that a strip reads, those between too."""
        return (strip - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    def taps_inside(self) -> int:
        """Taps that lie inside, of all outputs together."""
        starts = (at * self.stride - self.pad for at in range(self.made))
        return sum(0 <= start + tap * self.dilation < self.extent for start in starts for tap in range(self.taps))

    def columns(self, strip: int) -> int:
        """Elements that so many neighbouring outputs read, each once."""
        return len({at * self.stride + tap * self.dilation for at in range(strip) for tap in range(self.taps)})


@dataclass(frozen=True, slots=True)
class _Problem:
    images: int
    channels: int
    y: _Axis
    x: _Axis

    @property
    def near(self) -> int:
        vectors = self.channels // WIDTH
        return max(count for count in range(1, NEAR + 1) if vectors % count == 0)

    @property
    def taps(self) -> int:
        return self.y.taps * self.x.taps

    @property
    def strips(self) -> tuple[int, ...]:
        """Lengths of strips of which rows fill half of one at least."""
        return tuple(
            strip for strip in STRIPS if (strip == 1 or strip < 2 * self.x.made) and self.x.span(strip) <= MOST_COLUMNS
        )

    def across(self, strip: int) -> int:
        """Strips of a row."""
        return -(-self.x.made // strip)

    def threads(self, strip: int) -> int:
        return self.images * self.channels // WIDTH * self.y.made * self.across(strip)

    def blocks(self, strip: int) -> int:
        return -(-self.threads(strip) // THREADS)

    def unrolled(self, strip: int) -> bool:
        return strip * self.taps * WIDTH <= MOST_UNROLLED

    def row_operations(self, strip: int) -> int:
        """Operations of a thread for a row of the window: multiply-adds, and each input and weight made a float."""
        return WIDTH * (strip * self.x.taps + self.x.columns(strip) + self.x.taps)

    def rows(self, strip: int) -> int:
        """Rows of the window that threads of all rows of the output compute, one of each; outside ones where they are
        unrolled."""
        return self.y.made * self.y.taps if self.unrolled(strip) else self.y.taps_inside()

    def read_bytes(self, strip: int) -> int:
        """Bytes that blocks read, each what its threads read once: whole rows of some channels, or a part of one."""
        near, across = self.near, self.across(strip)
        lines = max(1, THREADS // (near * across))
        rows = sum(self.y.inside(first, min(first + lines, self.y.made) - 1) for first in range(0, self.y.made, lines))
        inputs = self.images * rows * self.x.inside(0, self.x.made - 1) * self.channels
        return HALF_BYTES * (inputs + self.blocks(strip) * self.taps * WIDTH * near)


def depthwise_problem(work: KernelWork) -> _Problem | None:
    """The layer as a problem of the template; None for one that it does not compute."""
    op = work.anchor
    if len(work.layers) > 1 or op.kind != "conv":
        return None
    given, made = work.shape(op.inputs[0]), work.shape(op.outputs[0])
    groups, kernel = int(op.number("groups")), op.ints("kernel")
    if not groups == given[-1] == made[-1] or groups % WIDTH or len(kernel) > 2 or max(kernel) > MOST_TAPS:
        return None
    axes = tuple(
        _Axis(extent, out, taps, stride, pad, dilation if taps > 1 else 1)
        for extent, out, taps, stride, pad, dilation in zip(
            given[1:-1], made[1:-1], kernel, op.ints("strides"), op.ints("pads"), op.ints("dilations"), strict=False
        )
    )
    problem = _Problem(given[0], groups, axes[0] if len(axes) == 2 else _Axis(1, 1, 1, 1, 0, 1), axes[-1])
    few = problem.y.reach * problem.x.reach * groups <= MOST_ELEMENTS
    return problem if few and problem.strips else None


@dataclass(frozen=True, slots=True)
class DepthwiseFamily:
    """The family of `sources/depthwise.cu`."""

    name: str

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        problem = depthwise_problem(work)
        if problem is None:
            return ()
        cores = work.chip.cores_per_cluster
        made = ((strip, _lanes(work, problem, strip)) for strip in problem.strips)
        return tuple(
            Kernel(
                self.name,
                (("strip", strip), ("vector", WIDTH)),
                resources=(("threads", THREADS),),
                launch_seconds=launch_seconds(work.chip),
                floors=(
                    main_floor(work.chip, window_bytes(work)),
                    cache_floor(work.chip, problem.read_bytes(strip)),
                    lanes,
                ),
                blocks=(problem.blocks(strip),),
            )
            for strip, lanes in sorted(made, key=lambda each: (-min(cores, problem.blocks(each[0])), each[1].seconds))
        )

    def launches(self, work: KernelWork, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        """The one launch of the kernel. Raises TargetError for parameters that are not offered."""
        problem, strip = depthwise_problem(work), parameters.get("strip")
        if problem is None or strip not in problem.strips or parameters.get("vector") != WIDTH:
            offered = f"strips of {', '.join(map(str, problem.strips))}" if problem else "a depthwise convolution"
            raise TargetError(f"kernel {self.name} for {work.layer.name}", needs=offered, has=f"strip={strip}")
        op, ops = work.anchor, [work.graph.op_by_name[name] for name in work.layer.ops]
        biased = len(op.inputs) > 2
        chain = chain_of(work.graph, ops[1:], op.outputs[0])
        name = "_".join(dict.fromkeys((self.name, *(each.kind for each in ops))))[:100]
        text = (
            source_text("common.cuh", "wide_access.cuh")
            + _head(problem, int(strip), len(work.shape(op.outputs[0])))
            + filled(
                "depthwise.cu",
                NAME=name,
                PARAMETERS=", const half* __restrict__ bias" * biased + chain.declarations,
                START=BIAS if biased else ZERO,
                AT="image, row, column, channel" if len(op.ints("kernel")) == 2 else "image, column, channel",
                EPILOGUE=chain.statements,
            )
        )
        arguments = (
            Address(work.output, written=True),
            problem.threads(int(strip)),
            Address(op.inputs[0]),
            _by_tap(work, constants),
            *((Address(op.inputs[2]),) if biased else ()),
            *chain.arguments,
        )
        return (Launch(Source(name, text), name, (problem.blocks(int(strip)), 1, 1), (THREADS, 1, 1), arguments),)


BIAS = """load(sum[0], bias + channel);
#pragma unroll
  for (int s = 1; s < S; ++s) EACH sum[s][k] = sum[0][k];"""
ZERO = """#pragma unroll
  for (int s = 0; s < S; ++s) EACH sum[s][k] = 0.f;"""


def _lanes(work: KernelWork, problem: _Problem, strip: int) -> KernelFloor:
    """Each warp counts as many rows of the window as one does on average, the busiest thread all of them."""
    each, warps = problem.row_operations(strip), THREADS // work.chip.simt.warp_threads
    warp_operations = warps * each * problem.rows(strip) // problem.y.made
    return lanes_floor(work.chip, warp_operations, each * problem.y.taps, problem.blocks(strip))


def _by_tap(work: KernelWork, constants: Constants) -> Data:
    """Weights as (tap, channel)."""
    name = work.anchor.inputs[1]
    weights = constants[work.graph.by_name[name].constant].reshape(work.shape(work.anchor.outputs[0])[-1], -1)
    return Data(f"{name} by tap", weights.T.tobytes())


def _head(problem: _Problem, strip: int, rank: int) -> str:
    """The constants of the source."""
    numbers = {
        "RANK": rank,
        "V": WIDTH,
        "S": strip,
        "THREADS": THREADS,
        "NEAR": problem.near,
        "CHANNELS": problem.channels,
        "HEIGHT": problem.y.extent,
        "WIDTH": problem.x.extent,
        "OUT_HEIGHT": problem.y.made,
        "OUT_WIDTH": problem.x.made,
        "TAPS_Y": problem.y.taps,
        "TAPS_X": problem.x.taps,
        "STRIDE_Y": problem.y.stride,
        "STRIDE_X": problem.x.stride,
        "PAD_Y": problem.y.pad,
        "PAD_X": problem.x.pad,
        "DILATION_Y": problem.y.dilation,
        "DILATION_X": problem.x.dilation,
        "UNROLLED": int(problem.unrolled(strip)),
    }
    return "constexpr int " + ", ".join(f"{name} = {value}" for name, value in numbers.items()) + ";\n"


DEPTHWISE = DepthwiseFamily("depthwise")
