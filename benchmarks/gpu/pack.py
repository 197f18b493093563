"""Builds what a GPU machine is given: `python benchmarks/gpu/pack.py -o build/gpu-pack [--small] [--ptx]`.

    network x batch x level --compile, weights from seeds--> cubins, launches.json, graph, plan, floors, recipes

Everything is compiled here; over there steps need Python and NumPy (`benchmarks/gpu/steps.py`). Weights stay behind:
each is made there from a seed, with the mean and the spread of the network's own. A pack for a GPU has machine code,
one for the rehearsal on the executor (`--ptx`) has PTX. `--small` takes networks and batches that the executor runs in
seconds. Level O3 is packed where it fuses something. With them go the ways of the case study (`study.py`), and
candidates of single groups of blocks; not where networks are named.

Each network with a batch is a part, and so are each subject of the study with a batch and the candidates of a block;
`--processes` parts are made at a time. Equal checkouts make equal packs, byte for byte. A network that does not compile
is named in the manifest and on the screen, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package that is not installed

from benchmarks.chosen_kernels import Remembering
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
MOST_PROCESSES = 4
"""Unless more are asked for: each takes up to a gigabyte, and up to four compilers."""
PROGRAMS, STUDY, CANDIDATES = "programs", "study", "candidates"
"""Lists of the manifest."""

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


@dataclass(frozen=True)
class Part:
    """A network, or a subject of the study, with a batch for a chip: `kind` is the list of the manifest that its
    entries go to."""

    kind: str
    name: str
    batch: int
    chip: str

    def __str__(self) -> str:
        what = {PROGRAMS: "", STUDY: "study of ", CANDIDATES: "candidates of "}[self.kind]
        return f"{what}{self.name}, batch {self.batch}, {self.chip}"


@dataclass(frozen=True)
class Made:
    """The entries of a part, the bytes of each object that they name, and why they are not all: "" where they are."""

    entries: list[dict[str, Any]]
    written: Mapping[str, int]
    left_out: str = ""


def parts_of(wanted: Wanted) -> tuple[Part, ...]:
    """What is packed, in the order of the manifest."""
    found = [
        Part(PROGRAMS, network, batch, chip)
        for chip in wanted.chips
        for network in wanted.networks
        for batch in batches_of(network, wanted.batches)
    ]
    for chip in wanted.chips:
        for subject in wanted.subjects:
            found += [Part(STUDY, subject.name, batch, chip) for batch in subject.batches]
            ordered = min(subject.batches) if wanted.small else ORDERED_BATCH
            if ordered in subject.batches and not subject.whole:
                found.append(Part(CANDIDATES, subject.name, ordered, chip))
    return tuple(found)


def build(folder: Path, wanted: Wanted, progress: Progress, processes: int = 1) -> tuple[dict[str, Any], int]:
    """Write a pack; its manifest, and the bytes of all of it. Raises UserError."""
    writer = PackWriter.begun(folder)
    rates = {}
    for name in wanted.chips:
        chip = load_chip(name)
        if not isinstance(target_of(chip), GroupTarget):
            raise TargetError(f"chip {name}", needs="a GPU", has=f"a chip of kind {chip.kind}")
        rates[chip.name] = packed_rates(chip, writer, ptx=wanted.ptx)
    lists: dict[str, list[dict[str, Any]]] = {PROGRAMS: [], STUDY: [], CANDIDATES: [], "left_out": []}
    parts = parts_of(wanted)
    for part, made in zip(parts, _all_made(partial(_made, folder, wanted), parts, processes), strict=True):
        progress(str(part))
        writer.written.update(made.written)
        lists[part.kind] += made.entries
        if made.left_out:
            progress(f"left out: {made.left_out}")
            reason = {"network": part.name, "batch": part.batch, "chip": part.chip, "reason": made.left_out}
            lists["left_out"].append(reason)
    manifest = {
        "checkout": checkout_hash(ROOT),
        "small": wanted.small,
        "code": "ptx" if wanted.ptx else "cubin",
        "rates": rates,
        **lists,
    }
    return manifest, writer.finish(manifest)


def _all_made(made: Callable[[Part], Made], parts: Sequence[Part], processes: int) -> Iterator[Made]:
    """In the order of the parts."""
    if processes == 1 or len(parts) < 2:
        yield from map(made, parts)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(made, parts)


def _made(folder: Path, wanted: Wanted, part: Part) -> Made:
    """Raises UserError for a subject of the study that does not compile."""
    writer, chip = PackWriter(folder), load_chip(part.chip)
    target = Remembering(target_of(chip).name)
    entries: list[dict[str, Any]] = []
    left_out = ""
    if part.kind == PROGRAMS:
        try:
            entries += _packed(part.name, part.batch, chip, target, writer, wanted.ptx)
        except UserError as error:
            left_out = str(error)
    else:
        subject = next(subject for subject in wanted.subjects if subject.name == part.name)
        if part.kind == STUDY:
            entries += _studied(subject, part.batch, chip, target, writer, wanted.ptx)
        else:
            entries += _candidates(subject, part.batch, chip, target, writer, wanted)
    return Made(entries, writer.written, left_out)


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
    subject: Subject, batch: int, chip: Chip, target: GroupTarget, writer: PackWriter, ptx: bool
) -> Iterator[dict[str, Any]]:
    """Every way of a batch; one whose kernels are those of a way before it is only named. Raises UserError."""
    model, recipes = _with_drawn_weights(studied_model(subject.name, batch, chip, target))
    packed: dict[tuple[tuple[str, int], ...], str] = {}
    for way in ways(model, subject, batch, chip, target):
        entry = _study_entry(subject.name, batch, chip, target, way)
        if way.kernels in packed:
            yield {**entry, "same": packed[way.kernels]}
            continue
        packed[way.kernels] = way.name
        done = compile_plan(way.planned, CompileOptions(planner_or_auto(way.planned.plan.level), batch))
        yield {**entry, **_objects(done, model, recipes, writer, ptx)}


def _candidates(
    subject: Subject, batch: int, chip: Chip, target: GroupTarget, writer: PackWriter, wanted: Wanted
) -> Iterator[dict[str, Any]]:
    """Of a block of few layers. Raises UserError."""
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
    parser.add_argument(
        "--processes",
        type=at_least_one,
        default=min(MOST_PROCESSES, os.cpu_count() or 1),
        metavar="N",
        help="parts that are made at a time (default %(default)s)",
    )
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
        said = partial(print, flush=True)
        manifest, size = build(options.output, wanted, said, options.processes)
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
