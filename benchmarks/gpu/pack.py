"""Builds what a GPU machine is given: `python benchmarks/gpu/pack.py -o build/gpu-pack [--small] [--ptx]`.

    network x batch x level --compile, weights from seeds--> cubins, launches.json, graph, plan, floors, recipes

Everything is compiled here; over there steps need Python and NumPy (`benchmarks/gpu/steps.py`). Weights stay behind:
each is made there from a seed, with the mean and the spread of the network's own. A pack for a GPU has machine code,
one for the rehearsal on the executor (`--ptx`) has PTX. `--small` takes networks and batches that the executor runs in
seconds. Level O3 is packed where it fuses something. With them go the ways of the case study (`study.py`), and
candidates of single groups; not where networks are named.

Equal checkouts make equal packs, byte for byte. A network that does not compile is named in the manifest and on the
screen, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package that is not installed

from benchmarks.gpu.floors import floors_of, is_fused
from benchmarks.gpu.networks import (
    BATCHES,
    LEVELS,
    NETWORKS,
    SMALL_BATCHES,
    SMALL_NETWORKS,
    batches_of,
    loaded,
    name_of,
)
from benchmarks.gpu.packed_weights import Movement, find_movements, to_bytes
from benchmarks.gpu.rate_kernels import packed_rates
from benchmarks.gpu.stage_lists import phase_lists, stage_lists
from benchmarks.gpu.store import PackWriter, checkout_hash
from benchmarks.gpu.study import (
    ORDERED_BATCH,
    SMALL_SUBJECTS,
    SUBJECTS,
    Subject,
    Way,
    candidate_ways,
    studied_model,
    ways,
)
from benchmarks.gpu.synthetic import Array, is_drawn, synthetic
from benchmarks.output import at_least_one
from codegen.cutlass.emission.emit import LAUNCHES, plan_launches
from codegen.cutlass.emission.launch_list import read_launch_list
from codegen.cutlass.kernel.launches import ComputedLaunch, Data
from codegen.cutlass.runner.runner import LaunchList
from codegen.target import GroupTarget
from dsa_sched.frontend import Model
from dsa_sched.pipeline.driver import compile_plan
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.kernel_stages import plan_kernels
from dsa_sched.stages.targets import judge_of, target_of
from hw_models.chip import Chip
from hw_models.errors import TargetError, UserError
from hw_models.loading import load_chip
from partitioner.ir.graph import Constants
from partitioner.planners.levels import planner_or_auto

ROOT = Path(__file__).resolve().parents[2]
CHIPS = ("h200",)
MOST_BYTES = 40 << 20

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What is packed."""

    networks: tuple[str, ...]
    batches: tuple[int, ...]
    chips: tuple[str, ...]
    ptx: bool = False
    small: bool = False
    subjects: tuple[Subject, ...] = ()


def build(folder: Path, wanted: Wanted, progress: Progress) -> tuple[dict[str, Any], int]:
    """Write a pack; its manifest, and the bytes of all of it. Raises UserError."""
    writer = PackWriter(folder)
    programs: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    rates: dict[str, dict[str, Any]] = {}
    study: list[dict[str, Any]] = []
    candidates: list[dict[str, Any]] = []
    for chip_name in wanted.chips:
        chip = load_chip(chip_name)
        target = target_of(chip)
        if not isinstance(target, GroupTarget):
            raise TargetError(f"chip {chip_name}", needs="a GPU", has=f"a chip of kind {chip.kind}")
        rates[chip.name] = packed_rates(chip, writer, ptx=wanted.ptx)
        for network in wanted.networks:
            for batch in batches_of(network, wanted.batches):
                progress(f"{network}, batch {batch}, {chip_name}")
                try:
                    programs += _packed(network, batch, chip, target, writer, wanted.ptx)
                except UserError as error:
                    progress(f"left out: {error}")
                    reason = {"network": network, "batch": batch, "chip": chip_name, "reason": str(error)}
                    left_out.append(reason)
        for subject in wanted.subjects:
            progress(f"study of {subject.name}, {chip_name}")
            study += _studied(subject, chip, target, writer, wanted.ptx)
            candidates += _candidates(subject, chip, target, writer, wanted)
    manifest = {
        "checkout": checkout_hash(ROOT),
        "small": wanted.small,
        "code": "ptx" if wanted.ptx else "cubin",
        "programs": programs,
        "left_out": left_out,
        "rates": rates,
        "study": study,
        "candidates": candidates,
    }
    return manifest, writer.finish(manifest)


def _packed(
    network: str, batch: int, chip: Chip, target: GroupTarget, writer: PackWriter, ptx: bool
) -> Iterator[dict[str, Any]]:
    """The entries of one network and batch: O0, O0 without shared memory of values where it has branches, O3."""
    model, recipes = _with_drawn_weights(loaded(network, batch, judge_of(chip, target)))
    made = {"network": name_of(network), "batch": batch, "chip": chip.name}
    for level in LEVELS:
        planned = plan_kernels(model, chip, target, CompileOptions(planner_or_auto(level), batch))
        if level != "O0" and not is_fused(planned.plan, model.graph):
            continue
        kernels = floors_of(planned.plan, model.graph, target, chip)
        done = compile_plan(planned, CompileOptions(planner_or_auto(level), batch))
        entry = {**made, "level": level, "reuses": True, "kernels": kernels}
        yield {**entry, **_objects(done, model, recipes, writer, ptx)}
        stages = stage_lists(planned.plan, model.graph, kernels) if level == "O0" else {}
        if stages:
            kept = compile_plan(planned, CompileOptions(planner_or_auto(level), batch, keep_values=True))
            paths = phase_lists(planned.plan, model.graph, kernels)
            apart = {**entry, "reuses": False, "stages": stages, "phases": paths}
            yield {**apart, **_objects(kept, model, recipes, writer, ptx)}


def _studied(
    subject: Subject, chip: Chip, target: GroupTarget, writer: PackWriter, ptx: bool
) -> Iterator[dict[str, Any]]:
    """Every way of every batch; one whose kernels are those of a way before it is only named. Raises UserError."""
    for batch in subject.batches:
        model, recipes = _with_drawn_weights(studied_model(subject.name, batch, chip, target))
        packed: dict[tuple[str, ...], str] = {}
        for way in ways(model, subject, batch, chip, target):
            kernels = tuple(group.kernel for group in way.planned.plan.groups)
            entry = _study_entry(subject.name, batch, chip, target, way)
            if kernels in packed:
                yield {**entry, "same": packed[kernels]}
                continue
            packed[kernels] = way.name
            done = compile_plan(way.planned, CompileOptions(planner_or_auto(way.planned.plan.level), batch))
            yield {**entry, **_objects(done, model, recipes, writer, ptx)}


def _candidates(
    subject: Subject, chip: Chip, target: GroupTarget, writer: PackWriter, wanted: Wanted
) -> Iterator[dict[str, Any]]:
    """Of blocks of few layers."""
    batch = min(subject.batches) if wanted.small else ORDERED_BATCH
    if batch not in subject.batches:
        return
    model, recipes = _with_drawn_weights(studied_model(subject.name, batch, chip, target))
    for way in candidate_ways(model, chip, target, *((2,) if wanted.small else ())):
        done = compile_plan(way.planned, CompileOptions(planner_or_auto(way.planned.plan.level), batch))
        entry = _study_entry(subject.name, batch, chip, target, way)
        yield {**entry, **_objects(done, model, recipes, writer, wanted.ptx)}


def _study_entry(subject: str, batch: int, chip: Chip, target: GroupTarget, way: Way) -> dict[str, Any]:
    kernels = floors_of(way.planned.plan, way.planned.model.graph, target, way.planned.context.chip)
    return {
        "network": subject,
        "batch": batch,
        "chip": chip.name,
        "level": way.name,
        "reuses": True,
        "group": way.group,
        "kernels": kernels,
    }


def _with_drawn_weights(model: Model) -> tuple[Model, dict[str, dict[str, Any]]]:
    recipes, constants = synthetic(model.constants)
    return replace(model, constants=constants), recipes


def _objects(
    done: Compilation, model: Model, recipes: Mapping[str, dict[str, Any]], writer: PackWriter, ptx: bool
) -> dict[str, Any]:
    files = done.files.files
    listed = read_launch_list(files[LAUNCHES])
    kind = "ptx" if ptx else "cubin"
    modules = {(path := getattr(module, kind)): writer.add(files[path]) for module in listed.modules}
    recipe_text = _json({key: recipe for key, recipe in recipes.items() if key in _used(model)})
    return {
        "architecture": listed.architecture,
        "launches": writer.add(files[LAUNCHES]),
        "graph": writer.add(str(model.graph).encode()),
        "plan": writer.add(str(done.plan).encode()),
        "constants": writer.add(recipe_text),
        "packed": _packed_tensors(done, listed, model, recipes, writer),
        "modules": modules,
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _used(model: Model) -> frozenset[str]:
    return frozenset(tensor.constant for tensor in model.graph.tensors if tensor.constant)


def _packed_tensors(
    done: Compilation, listed: LaunchList, model: Model, recipes: Mapping[str, dict[str, Any]], writer: PackWriter
) -> list[dict[str, Any]]:
    """Constants that only kernels know: where each lies, and how it follows from the network's."""
    packings = _packings(done, model)
    contents = packings(model.constants)
    if not contents:
        return []
    movable = [key for key in sorted(_used(model)) if is_drawn(recipes[key])]
    files = done.files.files
    found = []
    for content, how in zip(contents, find_movements(packings, model.constants, movable), strict=True):
        offset = _offset(listed, files, content)
        if isinstance(how, Movement):
            found.append({"offset": offset, "dtype": how.dtype, "places": writer.add(to_bytes(how.places))})
        else:
            found.append({"offset": offset, "content": writer.add(how)})
    return found


def _packings(done: Compilation, model: Model) -> Callable[[Mapping[str, Array]], Sequence[bytes]]:
    def packings(constants: Constants) -> list[bytes]:
        found = []
        for asked in plan_launches(done.plan, model.graph, constants, done.chip):
            launch = asked.launch
            named = launch.places if isinstance(launch, ComputedLaunch) else launch.arguments
            found += [what.content for what in named if isinstance(what, Data)]
        return found

    return packings


def _offset(listed: LaunchList, files: Mapping[str, bytes], content: bytes) -> int:
    """Where in the arena the packed bytes lie. Raises TargetError where they are not as emitted."""
    for tensor in listed.tensors:
        if tensor.role != "constant" or tensor.bytes != len(content):
            continue
        for data in listed.data:
            first = tensor.offset - data.offset
            if (
                first >= 0
                and first + tensor.bytes <= data.bytes
                and (np.frombuffer(files[data.file], np.uint8, tensor.bytes, first).tobytes() == content)
            ):
                return tensor.offset
    raise TargetError(LAUNCHES, needs="the weights that its kernels were given", has="others")


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the pack for a GPU machine.")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="of the pack")
    parser.add_argument("--small", action="store_true", help="networks and batches for the executor")
    parser.add_argument("--ptx", action="store_true", help="PTX for the rehearsal in place of machine code")
    parser.add_argument("--network", action="append", metavar="NAME", help="of the zoo, or a file; may be repeated")
    parser.add_argument("--batch", action="append", type=at_least_one, metavar="N", help="may be repeated")
    parser.add_argument("--chip", action="append", metavar="CHIP", help=f"may be repeated (default {CHIPS[0]})")
    options = parser.parse_args()
    wanted = Wanted(
        tuple(options.network or (SMALL_NETWORKS if options.small else NETWORKS)),
        tuple(options.batch or (SMALL_BATCHES if options.small else BATCHES)),
        tuple(options.chip or CHIPS),
        options.ptx,
        options.small,
        () if options.network else SMALL_SUBJECTS if options.small else SUBJECTS,
    )
    try:
        manifest, size = build(options.output, wanted, lambda said: print(said, flush=True))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(manifest['programs'])} programs, {size / 2**20:.1f} MiB in {options.output}")
    if size > MOST_BYTES:
        print(f"error: {options.output}: needs at most {MOST_BYTES >> 20} MiB to travel", file=sys.stderr)
        return 1
    return 1 if manifest["left_out"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
