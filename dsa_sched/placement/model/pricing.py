"""Times of tasks on the devices of a scenario, computed from the devices' best rates.

    TaskGraph + Scenario --roofline--> Problem

Times are equally optimistic for all devices; measured times replace them (`dsa_sched.devices`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dsa_sched.placement.model.problem import NOT_ACCEPTED, CostTable, Problem, verify_problem
from dsa_sched.placement.model.scenario import ChipDevice, Device, HostDevice, Roofline, Scenario
from dsa_sched.placement.model.task_graph import Task, TaskGraph, task_bytes
from hw_models.chip import Chip
from hw_models.errors import PlacementError
from hw_models.loading import load_chip
from hw_models.routes import main_memory

SINGLE_BYTES, CHIP_BYTES = 4, 2
"""Bytes of an element in a network and on a chip: chips compute in fp16."""

Accepts = Callable[[Task, Device], str | None]
"""Function that returns the reason why a device cannot run a task; None where it can."""

MOST_NAMED = 8
"""Largest number of tasks that a message names."""


def priced(graph: TaskGraph, scenario: Scenario, accepts: Accepts = lambda _task, _device: None) -> Problem:
    """Problem with the time of every task on every device by its roofline.

    Raises PlacementError for a device without a roofline, and as `require_homes` does.
    """
    rooflines = [roofline_of(device) for device in scenario.devices]
    refusals = {
        (task.name, device.name): reason
        for task in graph.tasks
        for device in scenario.devices
        if not task.is_end and (reason := accepts(task, device)) is not None
    }
    work, shares = [], []
    for number, task in enumerate(graph.tasks):
        rows = [
            _price(graph, number, None if (task.name, device.name) in refusals else roofline)
            for device, roofline in zip(scenario.devices, rooflines, strict=True)
        ]
        work.append((0, *(NOT_ACCEPTED for _ in rows[1:])) if task.is_end else tuple(row[0] for row in rows))
        shares.append(tuple(row[1] for row in rows))
    require_homes(graph, work, refusals)
    contended = any(machine.streams > 1 for machine in scenario.machines())
    costs = CostTable(
        scenario.machines(), scenario.routes(), tuple(work), tuple(shares) if contended else (), "rooflines"
    )
    problem = Problem(graph, costs)
    verify_problem(problem)
    return problem


def require_homes(graph: TaskGraph, work: Sequence[Sequence[int]], refusals: Mapping[tuple[str, str], str]) -> None:
    """A device for every task. `refusals` are reasons by task and device.

    Raises PlacementError that names the tasks that no device accepts, and for the first of them each device's reason.
    """
    rows = zip(graph.tasks, work, strict=True)
    homeless = [task.name for task, row in rows if all(ns == NOT_ACCEPTED for ns in row)]
    if homeless:
        reasons = [f"{device}: {reason}" for (task, device), reason in refusals.items() if task == homeless[0]]
        named, more = ", ".join(homeless[:MOST_NAMED]), len(homeless) - MOST_NAMED
        several = len(homeless) > 1
        raise PlacementError(
            f"task{'s' * several} {named}" + (f" and {more} more" if more > 0 else ""),
            needs=f"a device that accepts {'them' if several else 'it'}",
            has=(f"for {homeless[0]} " if several else "") + ("; ".join(reasons) or "none"),
            change="add a device that does",
        )


def _price(graph: TaskGraph, number: int, roofline: Roofline | None) -> tuple[int, tuple[float, float]]:
    """Price of a task on a device; not accepted if the device has no roofline."""
    task = graph.tasks[number]
    if roofline is None or task.is_end:
        return NOT_ACCEPTED, (0.0, 0.0)
    return roofline_ns(task.macs, *task_bytes(graph, number), roofline)


def roofline_of(device: Device) -> Roofline | None:
    """Best rates of a device; None for a host that computes nothing. Raises PlacementError where unknown."""
    if isinstance(device, HostDevice):
        return None
    if isinstance(device, ChipDevice):
        return chip_roofline(load_chip(device.chip), device.launch_us)
    if device.roofline is None:
        change = "give it a roofline, or measure it"
        raise PlacementError(f"device {device.name}", needs="a roofline for analytic prices", has="none", change=change)
    return device.roofline


def chip_roofline(chip: Chip, launch_us: float = 0) -> Roofline:
    """Roofline of one cluster: all its cores' products, and its main memory. Elements have half the bytes there."""
    macs = chip.matrix.macs_per_cycle("float16") * chip.cores_per_cluster
    traffic = _main_memory_bytes_per_cycle(chip) * SINGLE_BYTES / CHIP_BYTES
    return Roofline(
        flops_per_second=2 * macs * chip.clock_hz, bytes_per_second=traffic * chip.clock_hz, launch_us=launch_us
    )


def _main_memory_bytes_per_cycle(chip: Chip) -> float:
    """Bandwidth of the fastest path out of the main memory."""
    links = [link for link in chip.links if link.source == main_memory(chip)]
    return float(max(link.bandwidth_bytes_per_cycle for link in links)) if links else 1.0


def roofline_ns(macs: int, read_bytes: int, written_bytes: int, roofline: Roofline) -> tuple[int, tuple[float, float]]:
    """Time of a task alone, and the shares of work rate and bandwidth that it takes meanwhile."""
    fill = min(1.0, written_bytes / roofline.full_bytes) if roofline.full_bytes and written_bytes else 1.0
    at_full_rate = 2 * macs / roofline.flops_per_second
    traffic = (read_bytes + written_bytes) / roofline.bytes_per_second
    seconds = roofline.launch_us * 1e-6 + max(at_full_rate / fill, traffic)
    if not seconds:
        return 0, (0.0, 0.0)
    return max(1, round(seconds * 1e9)), (min(1.0, at_full_rate / seconds), min(1.0, traffic / seconds))
