"""Interface of a device: it says which parts of a network it accepts, compiles them, times them and runs them.

Part --compile--> Compiled --profile--> nanoseconds; Compiled + feeds --run--> values
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from time import perf_counter_ns, thread_time_ns
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from onnx import helper

from dsa_sched.placement.model.from_onnx import TaskPart

Array = npt.NDArray[Any]

FEWEST_RUNS, MOST_RUNS, ENOUGH_NS = 3, 40, 100_000_000
"""Fewest and most runs of a part that is timed, and the total time in ns after which it ends between them."""


class Refused(Exception):
    """Raised for a part that a device cannot run; the message says why."""


class CompiledPart(Protocol):
    """A part as its device runs it."""

    @property
    def part(self) -> TaskPart: ...


class Device(Protocol):
    """One device. Its methods may be called from any thread, one at a time; `run` from as many as it has streams.

    A `simulated` device does not take real time: `profile` gives its time, `run` only computes.
    """

    @property
    def name(self) -> str: ...

    @property
    def simulated(self) -> bool: ...

    @property
    def own_thread(self) -> bool:
        """Whether all work of a run is done in the thread that calls it."""

    @property
    def identity(self) -> str:
        """Text with everything that decides how long a part takes on it: settings, versions, the machine. Equal text
        means equal times.
        """

    @property
    def time_source(self) -> str:
        """Source of the times that `profile` returns, in words."""

    @property
    def launch_ns(self) -> int:
        """The host's time to start a part, which `profile` leaves out."""

    def accepts(self, part: TaskPart) -> str | None:
        """Why it cannot run a part, as far as that shows without compiling it; None where nothing speaks against it."""

    def compile(self, part: TaskPart) -> CompiledPart:
        """Raises Refused for a part that it cannot run."""

    def profile(self, compiled: CompiledPart) -> int:
        """Nanoseconds of one run, with nothing running next to it."""

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The part's outputs, in arrays that are not changed afterwards."""


def host_machine() -> str:
    """Text about how fast the host's processor is, as far as it tells: times are kept by it."""
    from llvmlite.binding import get_host_cpu_name

    return f"{platform.node()}, {os.cpu_count()} x {get_host_cpu_name()}"


def drawn_feeds(part: TaskPart, seed: int = 0) -> dict[str, Array]:
    """Inputs of a part to time it with: floats are drawn; all else is 0, which is an index anywhere."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for item in part.model.graph.input:
        shape = tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
        is_float = np.issubdtype(dtype, np.floating)
        feeds[item.name] = rng.standard_normal(shape).astype(dtype) if is_float else np.zeros(shape, dtype)
    return feeds


def shortest_ns(run: Callable[[], object], *, one_thread: bool = False) -> int:
    """The shortest of several runs: other work on the machine can only add to it.

    What runs in the calling thread alone is timed by the thread's own clock, to which it does not add at all.
    """
    clock = thread_time_ns if one_thread else perf_counter_ns
    run()
    taken: list[int] = []
    while len(taken) < FEWEST_RUNS or (sum(taken) < ENOUGH_NS and len(taken) < MOST_RUNS):
        start = clock()
        run()
        taken.append(clock() - start)
    return min(taken)
