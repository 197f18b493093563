"""Step `streams`: the kernels of branching networks in stages, on several streams of a GPU, as IOS has them.

    sequential, greedy, IOS   stages that were found by a model and packed; here they are run and timed
    torch                     the same stages of PyTorch's kernels on PyTorch's streams, where it is there

Each method becomes one CUDA graph. The values of these programs share no memory, and kernels that need memory of their
own get it apart, so that any order that respects the stages is right: outputs must have the bits of the plain order. On
the executor streams run one after the other, so that the rehearsal shows the order to be right and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.bench import Bench, Item, Row, spread
from benchmarks.gpu.forked import StagedDriver
from benchmarks.gpu.store import Program
from benchmarks.gpu.synthetic import Array, drawn_input
from benchmarks.gpu.torch_streams import torch_staged
from benchmarks.gpu.unfolded import LAUNCHES, Unfolded, unfolded
from codegen.cutlass.runner.runner import Driver, GpuNetwork

__all__ = ["apart", "items", "lines", "wrong"]

ALIGNMENT = 256


def items(bench: Bench) -> Iterator[Item]:
    staged = bench.programs(reuses=False)
    for program in staged:
        for method in program.entry["stages"]:
            yield Item(
                f"{program.key} {method}",
                lambda program=program, method=method: _row(bench, program, method),  # type: ignore[misc]
            )
    for program in staged:
        for method in program.entry["stages"]:
            yield Item(
                f"{program.key} {method} torch",
                lambda program=program, method=method: torch_staged(bench, program, method),  # type: ignore[misc]
            )


def _row(bench: Bench, program: Program, method: str) -> Row:
    stages = program.entry["stages"][method]
    with unfolded(bench.pack, program) as made, bench.driver() as driver:
        listed = apart(made.listed)
        (made.folder / LAUNCHES).write_text(json.dumps(listed))
        tensors = [made.graph.by_name[name] for name in made.graph.inputs]
        inputs = {one.name: drawn_input(1 + k, one.shape, one.dtype) for k, one in enumerate(tensors)}
        plain, _ = _run(made, driver, inputs, bench, timed=False)
        groups = [launch["layer"] for launch in listed["launches"]]
        machine: Any = StagedDriver(driver, groups, stages)
        found, times = _run(made, machine, inputs, bench, timed=True)
    same = all(np.array_equal(found[name].view(np.uint8), plain[name].view(np.uint8)) for name in plain)
    row: Row = {"method": method, "stages": len(stages), "streams": max(map(len, stages)), "same_bits": same}
    return row if bench.rehearse else {**row, **spread(times)}


def _run(
    made: Unfolded, driver: Driver, inputs: Mapping[str, Array], bench: Bench, *, timed: bool
) -> tuple[dict[str, Array], tuple[float, ...]]:
    with GpuNetwork(made.folder, driver) as network:
        network.poison()
        outputs = network.run(inputs)
        return outputs, network.time(bench.repeats, warm_up=bench.warm_up) if timed else ()


def apart(listed: Mapping[str, Any]) -> dict[str, Any]:
    """The list of launches with memory of its own for each group that needs some beside values."""
    tensors, arena = [dict(tensor) for tensor in listed["tensors"]], int(listed["arena_bytes"])
    known: dict[tuple[str, int], int] = {}
    launches = []
    for launch in listed["launches"]:
        relocations = []
        for relocation in launch.get("relocations", ()):
            number = int(relocation["tensor"])
            if tensors[number]["role"] == "workspace":
                key = launch["layer"], number
                if key not in known:
                    known[key] = len(tensors)
                    arena = -(-arena // ALIGNMENT) * ALIGNMENT
                    name = f"workspace of {launch['layer']}"[:1000]
                    tensors.append({**tensors[number], "name": name, "offset": arena})
                    arena += int(tensors[number]["bytes"])
                number = known[key]
            relocations.append({**relocation, "tensor": number})
        launches.append({**launch, "relocations": relocations})
    return {**listed, "tensors": tensors, "arena_bytes": arena, "launches": launches}


def wrong(row: Row) -> str:
    if "error" in row:
        return str(row["error"])
    return "" if row.get("same_bits", True) else "other bits than those of the plain order"


def lines(rows: Sequence[Row]) -> list[str]:
    """Each method beside the sequential one of the same kernels."""
    found = [
        "| program | stages | streams | median ms | sequential over it | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    plain = {row["key"]: row["median_ms"] for row in rows if row.get("method") == "sequential" and "median_ms" in row}
    for row in rows:
        base = plain.get(row["key"].replace(f" {row.get('method')}", " sequential"))
        time = f"{row['median_ms']:.4f}" if "median_ms" in row else "not measured"
        over = f"{base / row['median_ms']:.2f}" if base and "median_ms" in row else ""
        said = wrong(row) or row.get("skipped", "")
        found.append(
            f"| {row['key']} | {row.get('stages', '')} | {row.get('streams', '')} | {time} | {over} | {said} |"
        )
    return found
