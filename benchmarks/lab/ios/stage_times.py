"""Stages of IOS timed where they run: a cost source for `dsa_sched.placement.ios.search.search_stages`.

Stage --a thread a group, its tasks one after the other--> nanoseconds on the wall, threads started and awaited
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial

from dsa_sched.devices.cuda_device import BoundPart, CudaGpu, bound
from dsa_sched.devices.device import Device, Refused, drawn_feeds, shortest_ns
from dsa_sched.devices.onnxruntime_device import SessionPart
from dsa_sched.placement.ios.costs import StreamStage
from dsa_sched.placement.model.from_onnx import TaskModel
from hw_models.errors import PlacementError

__all__ = ["StageTimes"]

Run = Callable[[], object]


@dataclass
class StageTimes:
    """Times of stages of a model's tasks on a device that exists, each the shortest of several runs; on drawn inputs,
    which lie on a GPU already, as outputs stay there.

    What a stage takes does not depend on what comes before it, so each is timed once. Merged stages have no model that
    could run. Raises PlacementError for a device of which time does not pass on the wall, for tasks that it refuses,
    and for merged stages.
    """

    model: TaskModel
    device: Device
    streams: int
    times: dict[frozenset[tuple[int, ...]], int] = field(default_factory=dict)
    _runs: dict[int, Run] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.device.simulated:
            raise PlacementError(f"device {self.device.name}", needs="time that passes on the wall", has="a simulator")
        self._threads = ThreadPoolExecutor(self.streams)

    def stage_ns(self, stage: StreamStage) -> float:
        """Of a stage with at most as many groups as there are streams."""
        if stage.merged and len(stage.tasks) > 1:
            raise PlacementError("merged operators", needs="a model of the merged operator to time", has="none")
        if len(stage.groups) > self.streams:
            raise PlacementError("a stage", needs=f"at most {self.streams} groups", has=str(len(stage.groups)))
        key = frozenset(stage.groups)
        if key not in self.times:
            groups = [[self._run(task) for task in group] for group in stage.groups]
            self.times[key] = shortest_ns(partial(self._side_by_side, groups))
        return self.times[key]

    def _side_by_side(self, groups: Sequence[Sequence[Run]]) -> None:
        """The first group here, the others in threads of their own."""
        others = [self._threads.submit(_in_order, group) for group in groups[1:]]
        _in_order(groups[0])
        wait(others)
        for other in others:
            other.result()

    def _run(self, number: int) -> Run:
        """What runs a task on inputs that are drawn once."""
        if number not in self._runs:
            task = self.model.graph.tasks[number]
            part = self.model.part(task)
            try:
                compiled = self.device.compile(part)
            except Refused as error:
                who = f"task {task.name} on device {self.device.name}"
                raise PlacementError(who, needs="a device that accepts it", has=str(error)) from error
            if isinstance(self.device, CudaGpu) and isinstance(compiled, SessionPart):
                compiled = bound(compiled, "cuda", self.device.index)
            if isinstance(compiled, BoundPart):
                self._runs[number] = compiled.again
            else:
                self._runs[number] = partial(self.device.run, compiled, drawn_feeds(part))
        return self._runs[number]

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def _in_order(runs: Sequence[Run]) -> None:
    for run in runs:
        run()
