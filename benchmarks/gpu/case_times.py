"""Step `case-study`: the subjects of the case study by every way to compute them, beside PyTorch.

    default, layers, pairs, ours, forced ...    launches as packed, one CUDA graph     floor: kernels and launches
    torch, torch.compile                        cuDNN and generated kernels, in a CUDA graph

At the smallest batch of a subject each way's outputs are judged first, group by group, within the bound of float64. A
way whose kernels are those of another is not measured again. Rows come in the order of their worth: the subjects of
the published comparison, ResNet-50, MobileNet-v2, blocks; large batches first; what PyTorch compiles after that, groups
that are forced last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.bench import Bench, Item, Row
from benchmarks.gpu.network_times import COMPILED, measured_program, measured_torch
from benchmarks.gpu.right import SEED, first_wrong, stepped
from benchmarks.gpu.store import Program
from benchmarks.gpu.synthetic import drawn_input
from benchmarks.gpu.unfolded import unfolded

__all__ = ["TORCH", "items", "lines", "wrong"]

TORCH = ("torch", *COMPILED)
FIRST = ("resnet18_tailor", "resnet50", "mobilenet_v2", "tailor_3x3")
LAYERS = "layers"


def items(bench: Bench) -> Iterator[Item]:
    programs = sorted(bench.here(bench.pack.studied), key=_worth)
    least = {program.network: program.batch for program in programs}  # the last of each
    forced = [program for program in programs if program.level.startswith("forced")]
    plain = [_packed(bench, program) for program in programs if program.level == LAYERS]
    for program in programs:
        if program not in forced:
            yield _own(bench, program, least)
    for what in TORCH:
        for program in plain:
            yield Item(
                f"{program.network} x{program.batch} {program.chip} {what}",
                lambda program=program, what=what: measured_torch(bench, program, what),  # type: ignore[misc]
            )
    for program in forced:
        yield _own(bench, program, least)


def _worth(program: Program) -> tuple[int, int]:
    return FIRST.index(program.network) if program.network in FIRST else len(FIRST), -program.batch


def _own(bench: Bench, program: Program, least: Mapping[str, int]) -> Item:
    return Item(program.key, lambda: _row(bench, program, program.batch == least[program.network]))


def _packed(bench: Bench, program: Program) -> Program:
    """The program whose kernels are the same and which is packed."""
    if not program.same:
        return program
    key = (program.network, program.batch, program.chip, program.same)
    return next(each for each in bench.pack.studied if (each.network, each.batch, each.chip, each.level) == key)


def _row(bench: Bench, program: Program, judged: bool) -> Row:
    head = {"network": program.network, "batch": program.batch, "chip": program.chip, "what": program.level}
    if program.same:
        return {**head, "same": program.same}
    row: Row = {}
    if judged:
        with unfolded(bench.pack, program) as made, bench.driver() as driver:
            tensors = [made.graph.by_name[name] for name in made.graph.inputs]
            inputs = {one.name: drawn_input(SEED + k, one.shape, one.dtype) for k, one in enumerate(tensors)}
            found, _ = stepped(made, driver, inputs)
        row = {"samples": sum(each.samples for each in found.values()), "wrong": first_wrong(found)}
    return {**row, **measured_program(bench, program)}


def wrong(row: Row) -> str:
    return str(row.get("error", "") or row.get("wrong", ""))


def lines(rows: Sequence[Row]) -> list[str]:
    """One line a subject, batch and way: its time, its floor, and how many times as long one kernel a layer takes."""
    found = ["| subject | batch | way | ms | floor ms | over floor | layers over it | by floors |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    known: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        if "what" in row:
            known.setdefault((row["network"], row["batch"], row["chip"]), {})[row["what"]] = row
    for (network, batch, chip), by_way in known.items():
        for way in by_way:
            row = by_way.get(by_way[way].get("same", ""), by_way[way])
            layers = by_way.get(LAYERS, {})
            layers = by_way.get(layers.get("same", ""), layers)
            found.append(
                f"| {network} ({chip}) | {batch} | {way} | {_number(row, 'median_ms')} | {_number(row, 'floor_ms')} | "
                f"{_ratio(row, 'median_ms', row, 'floor_ms')} | {_ratio(layers, 'median_ms', row, 'median_ms')} | "
                f"{_ratio(layers, 'floor_ms', row, 'floor_ms')} |"
            )
    said = {row["key"]: wrong(row) or str(row.get("skipped", "")) for row in rows}
    return [*found, "", *(f"{key}: {why}" for key, why in said.items() if why)]


def _number(row: Row, name: str) -> str:
    return f"{row[name]:.4f}" if name in row else "not measured" if name == "median_ms" else ""


def _ratio(row: Any, name: str, other: Any, by: str) -> str:
    return f"{row[name] / other[by]:.2f}" if name in row and other.get(by) else ""
