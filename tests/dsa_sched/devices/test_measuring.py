"""From a scenario to results: measured problems, DUET with compilers in the loop, runs on several devices at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import sleep

import numpy as np
import pytest

from dsa_sched.devices.device import Array, CompiledPart, Device, Refused, drawn_feeds
from dsa_sched.devices.measuring import Profiler, fitted, measured_handing_over
from dsa_sched.devices.onnxruntime_device import OnnxruntimeCpu
from dsa_sched.devices.opening import open_devices
from dsa_sched.io.cost_cache import CostCache
from dsa_sched.placement.methods.registry import Outcome, Search, find_method
from dsa_sched.placement.model.from_onnx import TaskPart, task_model_of
from dsa_sched.placement.model.problem import NOT_ACCEPTED
from dsa_sched.placement.model.scenario import parse_scenario
from dsa_sched.placement.schedule.schedule import TaskPlacement
from dsa_sched.placing.place import place
from hw_models.cache import Cache
from hw_models.errors import PlacementError
from tests.placement_models import two_towers

HEAD = "schema_version: 1\nname: s\ndescription: d\ndevices:\n"
LINKS = "links:\n  - {between: [a, b], latency_us: 1, gigabytes_per_second: 1, measured: true}\n"
CPU = "  - {kind: onnxruntime, name: %s}\n"
CHIP = "  - {kind: chip, name: %s, chip: stcp920, level: O3}\n"
HOST = "  - {kind: host, name: %s}\n"
TVM = "  - {kind: tvm, name: %s}\n"
NUMBERS = "  - {kind: roofline, name: %s, roofline: {flops_per_second: 1e9, bytes_per_second: 1e9}}\n"


def profiler(devices: str, cache: CostCache | None = None) -> Profiler:
    scenario = parse_scenario(HEAD + devices + LINKS, "s.yaml")
    return Profiler(task_model_of(two_towers()), scenario, open_devices(scenario), cache=cache)


@dataclass
class FakeDevice:
    """Runs by onnxruntime, says what it was asked, takes `ns` a layer, refuses layers by name."""

    name: str
    ns: int = 1000
    refuses: str = "nothing"
    simulated: bool = True
    own_thread: bool = True
    launch_ns: int = 0
    time_source: str = "its word"
    late_seconds: float = 0.0
    known_as: str = ""
    asked: list[str] = field(default_factory=list)

    @property
    def identity(self) -> str:
        return self.known_as or f"fake {self.ns} {self.refuses}"

    def accepts(self, part: TaskPart) -> str | None:
        return f"no {self.refuses} here" if self.refuses in part.task else None

    def compile(self, part: TaskPart) -> CompiledPart:
        if self.refuses in {node.name for node in part.model.graph.node}:
            raise Refused(f"cannot compile {self.refuses}")
        return OnnxruntimeCpu("inner").compile(part)

    def profile(self, compiled: CompiledPart) -> int:
        self.asked.append(compiled.part.task)
        return self.ns * len(compiled.part.work)

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        sleep(self.late_seconds)
        return OnnxruntimeCpu("inner").run(compiled, feeds)


def fakes(first: Device, second: Device, cache: CostCache | None = None) -> Profiler:
    return replace(profiler(CPU % "a" + CPU % "b"), devices=(first, second), cache=cache)


def duet_of(lab: Profiler, *, confirm: bool = True) -> Outcome:
    """The placement of DUET and of large parts, compared by runs where devices are real."""
    found = place(lab.problem(), {"duet": find_method("duet")}, Search()).best
    return lab.confirmed(found) if confirm else found


def run_and_compare(lab: Profiler, placement: TaskPlacement | None = None) -> None:
    """A placement by DUET, or the one given for single tasks: results are those of the model as a whole."""
    if placement is None:
        outcome = duet_of(lab)
        problem, placement = outcome.problem, outcome.placement
    else:
        problem = lab.problem()
    feeds = drawn_feeds(lab.tasks.whole)
    cpu = OnnxruntimeCpu("cpu")
    expected = cpu.run(cpu.compile(lab.tasks.whole), feeds)
    tolerance = 2e-2 if any(device.kind == "chip" for device in lab.scenario.devices) else 1e-5
    with lab.executor(problem, placement) as workers:
        for _ in range(3):
            found = workers.run(feeds)
            used = [lab.devices[machine] for machine in placement.machine]
            assert found.accounted == any(device is not None and device.simulated for device in used)
            assert found.makespan_ns > 0
            for name, array in expected.items():
                np.testing.assert_allclose(found.outputs[name], array, atol=tolerance * np.abs(array).max())


def spread(lab: Profiler) -> TaskPlacement:
    """Every other task on the other device, wherever it is accepted."""
    problem = lab.problem()
    machine = tuple(accepted[number % len(accepted)] for number, accepted in enumerate(problem.accepted))
    return TaskPlacement(machine, (0,) * len(machine), tuple(range(len(machine))))


@pytest.mark.parametrize(
    "devices",
    [CPU % "a" + CPU % "b", CPU % "a" + TVM % "b", CPU % "a" + NUMBERS % "b", HOST % "a" + CPU % "b"],
    ids=["two onnxruntimes", "onnxruntime and TVM", "onnxruntime and numbers", "a host that computes nothing"],
)
def test_results_do_not_depend_on_the_devices(devices: str) -> None:
    lab = profiler(devices)
    run_and_compare(lab, spread(lab))
    run_and_compare(lab)


def test_a_processor_and_a_chip_share_a_network() -> None:
    lab = profiler(CPU % "a" + CHIP % "b")
    run_and_compare(lab, spread(lab))


def test_prices_are_kept_by_content(tmp_path: Path) -> None:
    cache = CostCache(Cache(tmp_path))
    first = fakes(FakeDevice("a"), FakeDevice("b", 500), cache)
    prices = first.problem().work_ns.tolist()
    again = fakes(FakeDevice("a"), FakeDevice("c", 500), cache)
    assert again.problem().work_ns.tolist() == prices
    assert [device.asked for device in again.devices if isinstance(device, FakeDevice)] == [[], []]
    other = FakeDevice("a", 700)
    fakes(other, FakeDevice("b", 500), cache).problem()
    structures = {first.part(task).structure for task in first.tasks.graph.tasks if not task.is_end}
    assert len(other.asked) == len(structures)


def test_refusals_are_not_kept(tmp_path: Path) -> None:
    """A compiler that has learnt what it refused before is asked again."""
    cache = CostCache(Cache(tmp_path))
    lab = fakes(FakeDevice("a"), FakeDevice("b", refuses="stem.relu"), cache)
    number = lab.tasks.graph.number["stem"]
    assert lab.problem().work_ns[number].tolist() == [1000, NOT_ACCEPTED]
    assert lab.refusals["stem", "b"] == "cannot compile stem.relu"
    mended = FakeDevice("b", known_as="fake 1000 stem.relu")
    assert fakes(FakeDevice("a"), mended, cache).problem().work_ns[number].tolist() == [1000, 1000]
    assert mended.asked == ["stem"]


def test_groups_are_compiled_as_one() -> None:
    lab = fakes(FakeDevice("a"), FakeDevice("b"))
    inner = tuple(range(1, len(lab.tasks.graph.tasks) - 1))
    problem = lab.problem([(0,), inner, (inner[-1] + 1,)])
    assert problem.work_ns.tolist()[1] == [1000 * len(inner)] * 2
    assert problem.graph.tasks[1].name == "stem (+6)"


def test_refusals_are_said_and_worked_around() -> None:
    lab = fakes(FakeDevice("a", refuses="left0"), FakeDevice("b", 5000, refuses="head"))
    problem = lab.problem()
    number = problem.graph.number
    assert problem.work_ns[number["left0"]].tolist() == [NOT_ACCEPTED, 5000]
    assert lab.refusals["left0", "a"] == "no left0 here"
    outcome = duet_of(lab)
    where = {
        node: run.machine
        for run in outcome.schedule.runs
        for node in outcome.problem.graph.tasks[outcome.problem.graph.number[run.task]].nodes
    }
    assert (where["left0"], where["head"]) == ("b", "a")
    run_and_compare(lab)


def test_a_task_that_no_device_accepts() -> None:
    lab = fakes(FakeDevice("a", refuses="join"), FakeDevice("b", refuses="join"))
    for ask in (lab.problem, lambda: duet_of(lab)):
        with pytest.raises(
            PlacementError, match="task join: needs a device that accepts it; has a: no join here; b: no"
        ):
            ask()


def test_every_method_places_measured_problems() -> None:
    lab = fakes(FakeDevice("a"), FakeDevice("b"))
    problem = lab.problem()
    alone = find_method("single")(problem, Search()).makespan_ns
    assert find_method("heft")(problem, Search()).makespan_ns <= alone
    assert duet_of(lab).makespan_ns <= alone


def test_copies_are_timed_where_links_ask_for_it() -> None:
    found = measured_handing_over()
    assert {(r.latency_ns, r.bytes_per_second) for r in profiler(CPU % "a" + CPU % "b").problem().costs.routes} == {
        (found.latency_ns, found.bytes_per_second)
    }
    simulated = profiler(CPU % "a" + NUMBERS % "b").problem().costs.routes
    assert {(route.latency_ns, route.bytes_per_second) for route in simulated} == {(1000, 10**9)}


@pytest.mark.parametrize(
    ("times", "latency", "bandwidth"),
    [([2000, 11_000, 101_000], 1000, 10**9), ([1000, 10_000, 100_000], 0, 10**9), ([500, 500, 500], 500, None)],
)
def test_a_line_through_timed_copies(times: list[int], latency: int, bandwidth: int | None) -> None:
    found = fitted((1000, 10_000, 100_000), times)
    assert found.latency_ns == pytest.approx(latency, abs=1)
    assert bandwidth is None or found.bytes_per_second == pytest.approx(bandwidth, rel=1e-6)
    assert found.bytes_per_second >= 1


def test_prices_that_do_not_hold_in_a_run_are_found_out() -> None:
    """b says that it is faster than a, and is not: run for real, a alone wins over both. Believed, both work."""
    late = FakeDevice("b", 600_000, refuses="head", simulated=False, own_thread=False, late_seconds=0.02)
    lab = fakes(FakeDevice("a", 1_000_000, simulated=False, own_thread=False), late)
    believed = duet_of(lab, confirm=False)
    assert {run.machine for run in believed.schedule.runs} == {"a", "b"}
    found = duet_of(lab)
    assert {run.machine for run in found.schedule.runs} == {"a"}
    assert found.decisions[-1].verdict == "falls back to a"


@pytest.mark.parametrize("confirm", [False, True])
def test_devices_that_fail_during_a_run_are_named(confirm: bool) -> None:
    broken = FakeDevice("b", 10)
    lab = fakes(FakeDevice("a", 1000), broken)
    outcome = duet_of(lab, confirm=confirm)

    def out_of_paper(_compiled: CompiledPart, _feeds: Mapping[str, Array]) -> dict[str, Array]:
        raise RuntimeError("out of paper")

    broken.run = out_of_paper  # type: ignore[method-assign, assignment]
    said = r"task .* on device b: needs a run to its end; has RuntimeError"
    with lab.executor(outcome.problem, outcome.placement) as workers, pytest.raises(PlacementError, match=said):
        workers.run(drawn_feeds(lab.tasks.whole))


def test_processor_time_leaves_other_work_out() -> None:
    """What is left of a run has every task, and is no shorter than the longest of them."""
    lab = profiler(CPU % "a" + CPU % "b")
    problem, placement = lab.problem(), spread(lab)
    with lab.executor(problem, placement) as workers:
        found = workers.run(drawn_feeds(lab.tasks.whole))
        assert workers.undisturbed_ns(found) >= max(found.worked_ns.values())
        assert found.worked_ns.keys() == {task.name for task in problem.graph.tasks if not task.is_end}
