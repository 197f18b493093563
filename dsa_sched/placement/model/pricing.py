"""Times of tasks on the devices of a scenario, computed from the devices' best rates.

    TaskGraph + Scenario --roofline--> Problem

Times are equally optimistic for all devices; those of what is compiled replace them (`dsa_sched.devices`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsa_sched.placement.model.problem import NOT_ACCEPTED, CostTable, Problem, verify_problem
from dsa_sched.placement.model.scenario import ChipDevice, Device, HostDevice, Roofline, Scenario
from dsa_sched.placement.model.task_graph import TaskGraph, task_bytes
from hw_models.chip import Chip
from hw_models.errors import PlacementError
from hw_models.loading import load_chip
from hw_models.routes import main_memory

SINGLE_BYTES, CHIP_BYTES = 4, 2
"""Bytes of an element in a network and on a chip: chips compute in fp16."""

MOST_NAMED = 8
"""Largest number of tasks that a message names."""


def priced(graph: TaskGraph, scenario: Scenario) -> Problem:
    """Problem with the time of every task on every device by its roofline.

    Raises PlacementError for a device without a roofline, and for tasks if none computes.
    """
    rooflines = [roofline_of(device) for device in scenario.devices]
    rows = [[_price(graph, number, roofline) for roofline in rooflines] for number in range(len(graph.tasks))]
    work = tuple(
        (0, *(NOT_ACCEPTED for _ in row[1:])) if task.is_end else tuple(ns for ns, _ in row)
        for task, row in zip(graph.tasks, rows, strict=True)
    )
    require_homes(graph, work, {})
    contended = any(machine.streams > 1 for machine in scenario.machines())
    shares = tuple(tuple(part for _, part in row) for row in rows) if contended else ()
    problem = Problem(graph, CostTable(scenario.machines(), scenario.routes(), work, shares, "rooflines"))
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
        change = "give it one in the scenario, or time it with --measure"
        raise PlacementError(f"device {device.name}", needs="a roofline", has="none", change=change)
    return device.roofline


def chip_launch_us(chip: Chip) -> float:
    """Launch of a program in the chip file, which the cycle model and the cost model count; 0 for a GPU, whose file has
    that of a kernel."""
    return 0.0 if chip.kind == "gpu" else 1e6 * chip.assumed.launch_cycles / chip.clock_hz


def chip_roofline(chip: Chip, launch_us: float | None = None) -> Roofline:
    """Roofline of one cluster: all its cores' products, its main memory, and a launch: the chip file's, unless another
    is given. A GPU also launches one kernel. Elements have half the bytes there.
    """
    macs = _macs_per_cycle(chip) * chip.cores_per_cluster
    traffic = _main_memory_bytes_per_cycle(chip) * SINGLE_BYTES / CHIP_BYTES
    launch = chip_launch_us(chip) if launch_us is None else launch_us
    kernel = chip.simt.launch_us if chip.kind == "gpu" else 0.0
    return Roofline(
        flops_per_second=2 * macs * chip.clock_hz, bytes_per_second=traffic * chip.clock_hz, launch_us=launch + kernel
    )


def _macs_per_cycle(chip: Chip) -> int:
    """Products of one core in fp16."""
    if chip.kind == "gpu":
        return max(rate.macs_per_cycle for rate in chip.tensor.rates if rate.dtype == "float16")
    return chip.matrix.macs_per_cycle("float16")


def _main_memory_bytes_per_cycle(chip: Chip) -> float:
    """Bandwidth of the fastest path out of the main memory; where no link leaves it, its own."""
    main = main_memory(chip)
    links = [link.bandwidth_bytes_per_cycle for link in chip.links if link.source == main]
    return float(max(links, default=chip.memory(main).bandwidth_bytes_per_cycle or 1.0))


def roofline_group_ns(work: Sequence[tuple[int, int, int]], roofline: Roofline) -> tuple[int, tuple[float, float]]:
    """Time of layers that run as one task, one after the other with a single launch, and the mean of their shares.
    `work` has operations, bytes read and bytes written of each layer.
    """
    rows = [roofline_ns(*each, roofline) for each in work]
    launch_ns = round(roofline.launch_us * 1e3)
    whole = sum(ns for ns, _ in rows)
    if not whole:
        return 0, (0.0, 0.0)
    compute, traffic = (sum(ns * shares[kind] for ns, shares in rows) / whole for kind in (0, 1))
    return max(1, whole - launch_ns * (len(rows) - 1)), (compute, traffic)


def roofline_ns(macs: int, read_bytes: int, written_bytes: int, roofline: Roofline) -> tuple[int, tuple[float, float]]:
    """Time of a task alone, and the shares of work rate and bandwidth that it takes meanwhile."""
    fill = min(1.0, written_bytes / roofline.full_bytes) if roofline.full_bytes and written_bytes else 1.0
    at_full_rate = 2 * macs / roofline.flops_per_second
    traffic = (read_bytes + written_bytes) / roofline.bytes_per_second
    seconds = roofline.launch_us * 1e-6 + max(at_full_rate / fill, traffic)
    if not seconds:
        return 0, (0.0, 0.0)
    return max(1, round(seconds * 1e9)), (min(1.0, at_full_rate / seconds), min(1.0, traffic / seconds))
