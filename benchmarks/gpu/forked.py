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

__all__ = ["Forks", "StagedDriver", "forks_of"]

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


class _Events:
    """By events of CUDA, which capture as edges of a graph."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._cuda: Any = importlib.import_module("cuda.bindings.driver")
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
    return _Events(driver) if isinstance(driver, CudaDriver) else _InTurn()


class StagedDriver:
    """A `Driver` that passes everything on but launches that are captured. `groups` names the group of each launch."""

    def __init__(self, driver: Driver, groups: Sequence[str], stages: Stages) -> None:
        self._driver = driver
        self._groups = groups
        self._stages = stages
        self._forks = forks_of(driver)
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
