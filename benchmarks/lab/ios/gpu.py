"""A model of a GPU that runs several streams: what kernels of the IOS networks cost there, alone and side by side.

    Network + batch + Gpu --gpu_problem--> Problem (host and GPU in one machine, merging allowed)

It is a roofline with occupancy, from public numbers only; nothing in it is fitted to anybody's results.

* A dense convolution is a matrix product in tiles of 64 x 64 results, each of which keeps one multiprocessor busy; a
  depthwise convolution, pooling or copy has a thread a result, and keeps the GPU busy when threads fill all slots. A
  kernel that has less to do than that reaches that share of the peak of arithmetic only.
* Traffic is what a kernel reads and writes, once, at the bandwidth of the memory, or of the multiprocessors that it
  runs on where these are too few for that.
* Work of a kernel = launch + the longer of arithmetic and traffic; of an operator, the sum over its kernels.
* Shares for `CostTable`, as averages over that time: of the multiprocessors, of the memory's bandwidth, and of the one
  thread on the host that launches. So streams gain where kernels are too small for the GPU, until one is used up.

Left out: caches, waves that are partly full, the tails of kernels, and algorithms other than the implicit product, such
as Winograd's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from benchmarks.lab.ios.network import Kernel, Network, Operator
from benchmarks.lab.ios.tasks import task_graph
from dsa_sched.placement.model.problem import CostTable, Machine, Merged, Problem

__all__ = ["V100", "V100_HALF", "ConvMerging", "Gpu", "gpu_problem", "merged_kernel"]

TILE = 64
"""Results of a matrix product that one multiprocessor makes at a time, in each direction."""

BLOCK = 256
"""Threads of a block of a kernel that has a thread a result."""

NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Gpu:
    """Public numbers of a GPU.

    `flops` is the peak of dense products, `plain_flops` of everything else;
    `l2_bytes_per_second` is what all multiprocessors together read from the cache between them and the memory."""

    name: str
    multiprocessors: int
    threads: int
    flops: float
    plain_flops: float
    bytes_per_second: float
    l2_bytes_per_second: float
    element_bytes: int
    launch_ns: int
    stage_ns: int
    streams: int


V100 = Gpu("V100 SXM2 FP32", 80, 2048, 15.7e12, 15.7e12, 900e9, 3133e9, 4, launch_ns=4000, stage_ns=4000, streams=10)
"""Multiprocessors, threads on each, peak, bandwidth, clock of 1.53 GHz: NVIDIA's V100 data sheet. 2048 bytes a cycle
from the L2 cache: NVIDIA's A100 white paper, beside its own. Launches and barriers of streams: a few microseconds on
any GPU of those years; 4 is a round number."""

V100_HALF = replace(V100, name="V100 SXM2 FP16", flops=125e12, plain_flops=31.4e12, element_bytes=2)
"""Dense products on tensor cores."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of kernels in a row: ns in all, and of it the ns for which each resource is used up by them alone."""

    work_ns: float = 0.0
    used_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __add__(self, other: _Cost) -> _Cost:
        a, b = self.used_ns, other.used_ns
        return _Cost(self.work_ns + other.work_ns, (a[0] + b[0], a[1] + b[1], a[2] + b[2]))

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(min(1.0, used / self.work_ns) for used in self.used_ns)


def _kernel_cost(gpu: Gpu, kernel: Kernel, batch: int, shapes: Network) -> _Cost:
    made = batch * prod(kernel.output_shape)
    dense = kernel.kind == "conv" and kernel.groups == 1
    if dense:
        channels = kernel.output_shape[0]
        blocks = -(-made // channels // TILE) * -(-channels // TILE)
        busy = min(1.0, blocks / gpu.multiprocessors)
    else:
        blocks = -(-made // BLOCK)
        busy = min(1.0, made / (gpu.multiprocessors * gpu.threads))
    arithmetic_ns = _operations(kernel, batch) / (gpu.flops if dense else gpu.plain_flops) / busy * NANOSECONDS
    traffic_bytes = gpu.element_bytes * (made + kernel.weights + batch * _read(kernel, shapes))
    reachable = min(1.0, blocks / gpu.multiprocessors) * gpu.l2_bytes_per_second
    traffic_ns = traffic_bytes / min(gpu.bytes_per_second, reachable) * NANOSECONDS
    body_ns = max(arithmetic_ns, traffic_ns)
    memory_ns = traffic_bytes / gpu.bytes_per_second * NANOSECONDS
    return _Cost(gpu.launch_ns + body_ns, (busy * body_ns, memory_ns, float(gpu.launch_ns)))


def _operations(kernel: Kernel, batch: int) -> int:
    """Multiplications and additions; one for each element that pooling looks at, or that is copied."""
    if kernel.kind == "conv":
        return 2 * batch * kernel.macs
    return batch * prod(kernel.output_shape) * prod(kernel.kernel)


def _read(kernel: Kernel, shapes: Network) -> int:
    """Elements of the slices that a kernel reads, of one image."""
    parts = (part for term in kernel.inputs for part in term)
    return sum((part.last - part.first) * prod(shapes.shape[part.node][1:]) for part in parts)


def _operator_cost(gpu: Gpu, operator: Operator, batch: int, network: Network) -> _Cost:
    return sum((_kernel_cost(gpu, kernel, batch, network) for kernel in operator.kernels), _Cost())


def gpu_problem(network: Network, batch: int = 1, gpu: Gpu = V100) -> Problem:
    """The network on the GPU, whose memory its inputs are in and its outputs stay in."""
    graph = task_graph(network, batch, gpu.element_bytes)
    costs = [_Cost(), *(_operator_cost(gpu, operator, batch, network) for operator in network.operators), _Cost()]
    table = CostTable(
        (Machine(gpu.name, gpu.streams, gpu.stage_ns),),
        (),
        tuple((round(cost.work_ns),) for cost in costs),
        tuple((cost.shares if cost.work_ns else (0.0, 0.0, 0.0),) for cost in costs),
        f"a model of {gpu.name}: roofline with occupancy, not measured",
    )
    return Problem(graph, table, ConvMerging(network, batch, gpu))


@dataclass(frozen=True)
class ConvMerging:
    """The paper's rule of merging, priced by the model: what runs is one larger convolution."""

    network: Network
    batch: int
    gpu: Gpu

    def merged(self, tasks: tuple[int, ...]) -> Merged | None:
        """Task n is operator n - 1; both ends merge with nothing."""
        if min(tasks) < 1 or max(tasks) > len(self.network.operators):
            return None
        kernel = merged_kernel([self.network.operators[task - 1] for task in tasks])
        if kernel is None:
            return None
        cost = _kernel_cost(self.gpu, kernel, self.batch, self.network)
        macs, constants = self.batch * kernel.macs, self.gpu.element_bytes * kernel.weights
        return Merged((round(cost.work_ns),), (cost.shares,), macs, constants)


def merged_kernel(operators: Sequence[Operator]) -> Kernel | None:
    """One convolution that makes the channels of all, one behind the other; None where the rule does not allow it.

    Dense convolutions of one and the same single input, with one resolution, stride and activation. Its window and
    padding are as large as the largest of theirs; smaller windows lie in the middle of it, among zeros.
    """
    kernels = [kernel for operator in operators for kernel in operator.kernels]
    if len(kernels) != len(operators) or len({_family(kernel) for kernel in kernels}) != 1:
        return None
    first = kernels[0]
    if first.kind != "conv" or first.groups != 1 or len(first.inputs) != 1 or len(first.inputs[0]) != 1:
        return None
    channels = sum(kernel.output_shape[0] for kernel in kernels)
    return replace(
        first,
        output_shape=(channels, *first.output_shape[1:]),
        kernel=_largest(kernel.kernel for kernel in kernels),
        padding=_largest(kernel.padding for kernel in kernels),
    )


def _family(kernel: Kernel) -> tuple[object, ...]:
    """What merged convolutions must have in common. The window less twice its padding says where its middle is."""
    middle = tuple(size - 2 * pad for size, pad in zip(kernel.kernel, kernel.padding, strict=True))
    return kernel.kind, kernel.inputs, kernel.output_shape[1:], kernel.stride, kernel.groups, kernel.relu, middle


def _largest(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    firsts, seconds = zip(*pairs, strict=True)
    return max(firsts), max(seconds)
