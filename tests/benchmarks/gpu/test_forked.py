"""Stages on streams: what is captured waits for what it must, and for nothing more."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu.forked import EventForks, StagedDriver
from codegen.cutlass.runner.runner import RunnerError

GROUPS = ("a", "b", "b", "c", "d")
STAGES = [[["a"]], [["b", "c"], ["d"]]]


class Streams:
    """A driver and a module of CUDA's that only note, for each launch, all launches that it waits for."""

    def __init__(self) -> None:
        self.before: dict[int, set[str]] = {}
        self.events: list[set[str]] = []
        self.waits: dict[str, set[str]] = {}
        self.count = 0
        self.CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=SimpleNamespace(value=2))

    def stream(self) -> int:
        self.count += 1
        return self.count

    def launch(self, function: Any, *_others: Any) -> None:
        before = self.before.setdefault(_others[-1], set())
        self.waits[function] = set(before)
        before.add(function)

    def capture(self, body: Callable[[int], None]) -> object:
        body(0)
        return self.waits

    def cuEventCreate(self, _flags: int) -> tuple[int, int]:
        self.events.append(set())
        return 0, len(self.events) - 1

    def cuEventRecord(self, event: int, stream: int) -> tuple[int]:
        self.events[event] = set(self.before.get(stream, set()))
        return (0,)

    def cuStreamWaitEvent(self, stream: int, event: int, _flags: int) -> tuple[int]:
        self.before.setdefault(stream, set()).update(self.events[event])
        return (0,)


def captured(stages: list[list[list[str]]]) -> tuple[dict[str, set[str]], set[str]]:
    """What each launch waits for, and what the main stream has waited for at the end."""
    streams: Any = Streams()
    staged = StagedDriver(streams, GROUPS, stages, EventForks(streams, streams))

    def body(stream: int) -> None:
        for number, group in enumerate(GROUPS):
            staged.launch(f"{group}{number}", (1, 1, 1), (1, 1, 1), 0, b"", stream)

    found: Any = staged.capture(body)
    return found, streams.before[0]


def test_a_stage_waits_for_the_one_before_and_streams_for_nothing_of_each_other() -> None:
    waits, last = captured(STAGES)
    assert waits == {"a0": set(), "b1": {"a0"}, "b2": {"a0", "b1"}, "c3": {"a0", "b1", "b2"}, "d4": {"a0"}}
    assert last == set(waits)


def test_every_launch_is_behind_all_stages_before() -> None:
    waits, _ = captured([[["a"], ["d"]], [["b"], ["c"]]])
    assert all(waits[launch] >= {"a0", "d4"} for launch in ("b1", "b2", "c3"))
    assert waits["c3"] == {"a0", "d4"}


@pytest.mark.parametrize("stages", [[[["a"]], [["b", "c"]]], [[["a"]], [["b", "c"], ["d", "a"]]], [[["e"]], *STAGES]])
def test_stages_of_other_groups_are_refused(stages: list[list[list[str]]]) -> None:
    with pytest.raises(RunnerError, match="need every group of the network once"):
        captured(stages)
