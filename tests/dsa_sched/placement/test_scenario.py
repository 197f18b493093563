"""Scenario files: what they say, and every way in which they can be wrong, by line and field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsa_sched.placement.methods.registry import Search, find_method
from dsa_sched.placement.model.pricing import chip_roofline, priced, require_homes, roofline_group_ns, roofline_ns
from dsa_sched.placement.model.problem import NOT_ACCEPTED
from dsa_sched.placement.model.scenario import Roofline, parse_scenario, read_scenario
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph, TaskValue
from hw_models.errors import PlacementError
from hw_models.loading import load_chip

SAMPLES = sorted((Path(__file__).resolve().parents[3] / "samples" / "scenarios").glob("*.yaml"))

HEAD = "schema_version: 1\nname: s\ndescription: two devices\n"
A = "  - {kind: roofline, name: a, streams: 2, roofline: {flops_per_second: 2e9, bytes_per_second: 1e9}}\n"
B = "  - {kind: roofline, name: b, roofline: {flops_per_second: 4e9, bytes_per_second: 1e9, launch_us: 1}}\n"
LINK = "links:\n  - {between: [a, b], latency_us: 0.5, gigabytes_per_second: 2}\n"
GOOD = HEAD + "devices:\n" + A + B + LINK


def two_tasks() -> TaskGraph:
    """1,000 then 2,000 multiply-accumulates; values of 400, 800 and 40 bytes."""
    tasks = (Task(INPUTS), Task("t", ("t",), 1000, 100), Task("u", ("u",), 2000), Task(OUTPUTS))
    values = (
        TaskValue("x", INPUTS, ("t",), 400),
        TaskValue("y", "t", ("u",), 800),
        TaskValue("z", "u", (OUTPUTS,), 40),
    )
    return TaskGraph("two", tasks, values)


def test_samples_exist() -> None:
    assert {path.stem for path in SAMPLES} >= {"cpu_gpu", "cpu_stcp920", "four_clusters", "big_little"}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_can_be_priced(path: Path) -> None:
    problem = priced(two_tasks(), read_scenario(path))
    outcome = find_method("single")(problem, Search())
    assert outcome.makespan_ns > 0
    assert path.read_text().startswith("# "), "a header says where the numbers come from"


def test_fields_become_machines_routes_and_prices() -> None:
    problem = priced(two_tasks(), parse_scenario(GOOD, "s.yaml"))
    assert [(m.name, m.streams) for m in problem.machines] == [("a", 2), ("b", 1)]
    assert {(r.source, r.target, r.latency_ns, r.bytes_per_second, r.wire) for r in problem.costs.routes} == {
        ("a", "b", 500, 2_000_000_000, "a to b"),
        ("b", "a", 500, 2_000_000_000, "b to a"),
    }
    # t moves 1,300 bytes at 1 byte a ns; u computes 4,000 operations at 2 or 4 a ns, and b takes 1 us to start
    assert problem.work_ns.tolist() == [[0, NOT_ACCEPTED], [1300, 2300], [2000, 2000], [0, NOT_ACCEPTED]]
    assert problem.costs.shares[1][0] == pytest.approx((1000 / 1300, 1.0))
    assert problem.costs.shares[2][0] == pytest.approx((1.0, 840 / 2000))


def test_a_named_wire_is_one_for_all() -> None:
    text = GOOD.replace("gigabytes_per_second: 2", "gigabytes_per_second: 2, wire: bus")
    assert {route.wire for route in parse_scenario(text, "s.yaml").routes()} == {"bus"}


def test_small_tasks_do_not_fill_a_device() -> None:
    """80 KB of output at 160 KB to fill it: half the rate, and half of the device left for others."""
    whole = Roofline(flops_per_second=1e9, bytes_per_second=1e12)
    half = whole.model_copy(update={"full_bytes": 160_000})
    assert roofline_ns(10**6, 0, 80_000, whole) == (2_000_000, (1.0, 4e-5))
    assert roofline_ns(10**6, 0, 80_000, half) == (4_000_000, (0.5, 2e-5))


def test_chips_have_rooflines() -> None:
    """One of four clusters: 32 TFLOP/s, and its main memory, which carries twice the elements of single precision."""
    chip = load_chip("stcp920")
    found = chip_roofline(chip)
    assert found.flops_per_second == pytest.approx(32.768e12)
    assert found.bytes_per_second == pytest.approx(2 * 1e9 * chip.link("DDR", "LLB").bandwidth_bytes_per_cycle)
    assert (found.launch_us, chip_roofline(chip, launch_us=5).launch_us) == (20, 5)


def test_gpus_have_rooflines() -> None:
    """312 TFLOP/s, 1,555 GB/s, which carry twice the elements of single precision, and the launch of a kernel."""
    found = chip_roofline(load_chip("a100"), launch_us=5)
    assert found.flops_per_second == pytest.approx(312e12, rel=1e-3)
    assert found.bytes_per_second == pytest.approx(2 * 1555e9, rel=1e-3)
    assert found.launch_us == 7


def test_layers_that_run_as_one_task_are_launched_once() -> None:
    rate = Roofline(flops_per_second=1e9, bytes_per_second=1e9, launch_us=10)
    one, both = roofline_group_ns([(10**6, 0, 0)], rate), roofline_group_ns([(10**6, 0, 0), (0, 10**6, 0)], rate)
    assert one == roofline_ns(10**6, 0, 0, rate)
    assert both[0] == 10_000 + 2_000_000 + 1_000_000
    assert roofline_group_ns([], rate) == (0, (0.0, 0.0))


def test_tasks_that_no_device_accepts_are_named() -> None:
    graph = two_tasks()
    work = [(NOT_ACCEPTED, NOT_ACCEPTED) if task.name == "u" else (1, 1) for task in graph.tasks]
    refusals = {("u", name): f"not on {name}" for name in "ab"}
    with pytest.raises(PlacementError, match=r"task u: needs a device that accepts it; has a: not on a; b: not on b"):
        require_homes(graph, work, refusals)


def test_chip_files_are_found_beside_the_scenario(tmp_path: Path) -> None:
    chip = (Path(__file__).resolve().parents[3] / "hw_models" / "chips" / "stcp920.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(chip)
    (tmp_path / "s.yaml").write_text(HEAD + "devices:\n  - {kind: chip, name: npu, chip: ./mine.yaml}\n")
    (device,) = read_scenario(tmp_path / "s.yaml").devices
    assert device.kind == "chip"
    assert load_chip(device.chip).clusters == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "s.yaml: the file is empty"),
        ("a: [", "s.yaml:1: not valid YAML"),
        ("a: &x 1", "s.yaml:1: a: anchors and aliases (&name, *name) are not used in scenario files"),
        ("a: !!python/object:os.system {}", "s.yaml:1"),
        ("[" * 200, "s.yaml"),
        (GOOD.replace("name: s\n", ""), "name: missing; add this field"),
        (GOOD.replace("schema_version: 1", "schema_version: 2"), "schema_version: 2 should be 1"),
        (GOOD.replace("name: a,", "name: a, stream: 3,"), "devices[0].stream: unknown field; did you mean 'streams'?"),
        (GOOD.replace("kind: roofline, name: a", "kind: rooflin, name: a"), "did you mean 'roofline'?"),
        (GOOD.replace("kind: roofline, name: a", "name: a"), "s.yaml:5: devices[0]: a group of fields needs the field"),
        (GOOD.replace("2e9", "-2e9"), "devices[0].roofline.flops_per_second: -2000000000.0 should be greater than"),
        (GOOD.replace("2e9", "1e-300"), "devices[0].roofline.flops_per_second: 1e-300 should be greater than"),
        (GOOD.replace("gigabytes_per_second: 2", "gigabytes_per_second: 1e-9"), "gigabytes_per_second: 1e-09 should"),
        (GOOD.replace("2e9", ".inf"), "devices[0].roofline.flops_per_second"),
        (GOOD.replace("2e9", "fast"), "s.yaml:5: devices[0].roofline.flops_per_second: 'fast' should be a"),
        (GOOD.replace("streams: 2", "streams: 1000000"), "devices[0].streams: 1000000 should be less than"),
        (GOOD.replace("name: b", "name: a"), "s.yaml:6: devices[1].name: 'a' is device 0 too; give each its own name"),
        (GOOD.replace("[a, b]", "[a, c]"), "s.yaml:8: links[0].between: no device c; devices: a, b"),
        (GOOD.replace("[a, b]", "[a, a]"), "links[0].between: a device twice"),
        (GOOD + LINK.removeprefix("links:\n"), "s.yaml:9: links[1].between: a and b are joined by link 0 too"),
        (GOOD.removesuffix(LINK), "links: no link between a and b; one link for any two devices"),
        (GOOD.replace("kind: roofline, name: b", "kind: host, name: b"), "roofline: unknown field; known fields: kind"),
        (HEAD + "devices:\n" + A + "  - {kind: host, name: b}\n" + LINK, "a host after other devices; make it"),
        (HEAD + "devices:\n  - {kind: chip, name: n, chip: stcp92}\n", "devices[0].chip: chip 'stcp92': needs"),
        (HEAD + "devices:\n  - {kind: chip, name: n, chip: stcp920, cluster: 4}\n", "no cluster 4; 0 to 3"),
        (HEAD + "devices:\n  - {kind: tvm, name: n, mcpu: 'c; rm -rf x'}\n", "devices[0].mcpu"),
        (HEAD + "devices: []\n", "s.yaml:4: devices: a list should have at least 1 item"),
        (GOOD.replace("[a, b]", f"[{', '.join('a' * 1000)}]"), "a list should have at most"),
    ],
)  # fmt: skip
def test_wrong_files_say_what_and_where(text: str, said: str) -> None:
    with pytest.raises(PlacementError, match=re.escape(said)):
        parse_scenario(text, "s.yaml")


def test_all_problems_are_said_at_once() -> None:
    text = GOOD.replace("2e9", "fast").replace("[a, b]", "7")
    with pytest.raises(PlacementError, match=r"s\.yaml: 2 problems"):
        parse_scenario(text, "s.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="needs a scenario file; has no such file"):
        read_scenario(tmp_path / "none.yaml")
    with pytest.raises(PlacementError, match="has a folder"):
        read_scenario(tmp_path)
    (tmp_path / "big.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(PlacementError, match="at most 1 MiB"):
        read_scenario(tmp_path / "big.yaml")


def test_a_device_without_a_roofline_cannot_be_priced() -> None:
    scenario = parse_scenario(HEAD + "devices:\n  - {kind: onnxruntime, name: cpu}\n", "s.yaml")
    with pytest.raises(PlacementError, match="device cpu: needs a roofline"):
        priced(two_tasks(), scenario)


def test_a_list_is_not_too_short_for_what_in_it_is_wrong() -> None:
    with pytest.raises(PlacementError) as told:
        parse_scenario(GOOD.replace("kind: roofline", "kind: rooflin"), "s.yaml")
    assert len(told.value.problems) == 2
