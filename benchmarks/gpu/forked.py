"""Launches of a network in stages on several streams, in one graph: a driver between the runner and the machine.

    Network(folder, StagedDriver(driver, groups, stages)).time()

When the runner captures its launches, they are taken down, and captured on the machine in the order of the stages: the
streams of a stage fork from the main one and join it again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from codegen.cutlass.runner.runner import CudaDriver, Dim3, Driver, RunnerError

__all__ = ["EventForks", "Forks", "GroupDriver", "StagedDriver", "forks_of"]

Stages = Sequence[Sequence[Sequence[str]]]
"""Stages, each with its streams, each with its groups in order."""
Start = Callable[[int], None]


class Forks(Protocol):
    """How streams of a machine part and meet."""

    def fork(self, stream: int, count: int) -> list[int]:
        """So many streams that wait for what `stream` was given; the first is `stream`."""

    def join(self, stream: int, others: Sequence[int]) -> None:
        """`stream` waits for what the others were given."""


class _InTurn:
    """A machine without streams: everything in one."""

    def fork(self, stream: int, count: int) -> list[int]:
        return [stream] * count

    def join(self, stream: int, others: Sequence[int]) -> None:
        """All is in order."""


class EventForks:
    """By events of CUDA, which capture as edges of a graph. `cuda` is cuda-bindings' module of the driver."""

    def __init__(self, driver: Driver, cuda: Any) -> None:
        self._driver = driver
        self._cuda = cuda
        self._streams: list[int] = []

    def fork(self, stream: int, count: int) -> list[int]:
        while len(self._streams) < count - 1:
            self._streams.append(self._driver.stream())
        others = self._streams[: count - 1]
        if others:
            event = self._recorded(stream)
            for other in others:
                self._call("cuStreamWaitEvent", other, event, 0)
        return [stream, *others]

    def join(self, stream: int, others: Sequence[int]) -> None:
        for other in others:
            if other != stream:
                self._call("cuStreamWaitEvent", stream, self._recorded(other), 0)

    def _recorded(self, stream: int) -> Any:
        event = self._call("cuEventCreate", self._cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
        self._call("cuEventRecord", event, stream)
        return event

    def _call(self, name: str, *arguments: Any) -> Any:
        error, *results = getattr(self._cuda, name)(*arguments)
        if int(error) != 0:
            raise RunnerError(f"{name}: {error.name}")
        return results[0] if results else None


def forks_of(driver: Driver) -> Forks:
    if isinstance(driver, CudaDriver):
        return EventForks(driver, importlib.import_module("cuda.bindings.driver"))
    return _InTurn()


class StagedDriver:
    """A `Driver` that passes everything on but launches that are captured. `groups` names the group of each launch."""

    def __init__(self, driver: Driver, groups: Sequence[str], stages: Stages, forks: Forks | None = None) -> None:
        self._driver = driver
        self._groups = groups
        self._stages = stages
        self._forks = forks or forks_of(driver)
        self._taken: list[Start] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared_bytes: int, parameters: bytes, stream: int
    ) -> None:
        """Launch, or take down."""
        if self._taken is None:
            self._driver.launch(function, grid, block, shared_bytes, parameters, stream)
            return
        self._taken.append(lambda other: self._driver.launch(function, grid, block, shared_bytes, parameters, other))

    def capture(self, body: Callable[[int], None]) -> object:
        """A graph of the same launches in stages. Raises RunnerError for stages that are not of these groups."""
        self._taken = []
        try:
            body(0)
            starts = self._by_group(self._taken)
        finally:
            self._taken = None
        return self._driver.capture(lambda stream: self._start(starts, stream))

    def _by_group(self, taken: Sequence[Start]) -> Mapping[str, list[Start]]:
        found: dict[str, list[Start]] = {}
        for group, start in zip(self._groups, taken, strict=True):
            found.setdefault(group, []).append(start)
        staged = [group for stage in self._stages for lane in stage for group in lane]
        if sorted(staged) != sorted(found):
            raise RunnerError("stages: need every group of the network once")
        return found

    def _start(self, starts: Mapping[str, Sequence[Start]], stream: int) -> None:
        for stage in self._stages:
            lanes = self._forks.fork(stream, len(stage))
            for lane, groups in zip(lanes, stage, strict=True):
                for group in groups:
                    for start in starts[group]:
                        start(lane)
            self._forks.join(stream, lanes)


class GroupDriver:
    """A `Driver` that passes everything on, and starts again the launches of a group that it has seen in a graph.
    `groups` names the group of each launch."""

    def __init__(self, driver: Driver, groups: Sequence[str]) -> None:
        self._driver = driver
        self._groups = groups
        self._seen: dict[str, list[Start]] = {}
        self._count: int | None = None
        self.arena = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def allocate(self, size_bytes: int) -> int:
        found = self._driver.allocate(size_bytes)
        self.arena = self.arena or found  # the first memory that the runner asks for
        return found

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared_bytes: int, parameters: bytes, stream: int
    ) -> None:
        """Launch, and keep it."""
        self._driver.launch(function, grid, block, shared_bytes, parameters, stream)
        if self._count is not None:
            starts = self._seen.setdefault(self._groups[self._count], [])
            starts.append(lambda other: self._driver.launch(function, grid, block, shared_bytes, parameters, other))
            self._count += 1

    def capture(self, body: Callable[[int], None]) -> object:
        """A graph, whose launches are kept by group."""
        self._seen, self._count = {}, 0
        try:
            return self._driver.capture(body)
        finally:
            self._count = None

    def start(self, group: str, stream: int) -> None:
        for launch in self._seen[group]:
            launch(stream)
