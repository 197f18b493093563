"""Plan -> files of a GPU artifact: sources, PTX and machine code of its kernels, constants, and the list of launches.

    step of the plan --its kernel's family--> Launch, ...  --nvcc, kernels that make parameters-->  launches.json

The arena holds the tensors that the driver has placed (`TensorPlaces`), then constants known only to kernels, then
memory that the launches of one layer share. Sources are compiled several at a time.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256

from codegen.cutlass.emission.arena import Arena
from codegen.cutlass.emission.binary_list import BINARY_LIST, binary_list
from codegen.cutlass.emission.launch_list import (
    integers_name,
    launch_list_text,
    printable,
    read_launch_list,
    slice_name,
)
from codegen.cutlass.emission.nvcc import Compiler, NvccError, find_nvcc
from codegen.cutlass.emission.parameter_blocks import ParameterBlock, parameter_blocks
from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.families.words.words import word_launches
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import (
    Address,
    Argument,
    ComputedLaunch,
    Data,
    Launch,
    LayerScratch,
    Source,
    moved,
)
from codegen.cutlass.ptx import Module, PtxError, PtxKernel, parameters, parse
from codegen.cutlass.runner import runner_files
from codegen.cutlass.runner.runner import FORMAT, LaunchEntry, LaunchList, ModuleEntry
from codegen.target import ClusterFiles, TensorPlaces
from hw_models.cache import Cache
from hw_models.chip import Chip
from hw_models.errors import TargetError
from hw_models.routes import main_memory
from partitioner.context.batch_slices import BatchSlice, slice_for
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import read_kernel
from partitioner.ir.plan import Plan
from partitioner.ir.slice_segments import slices_of
from partitioner.ir.steps import RunStep

WORKERS = min(4, os.cpu_count() or 1)
"""Number of compilers that run at a time: each takes up to half a gigabyte."""


@dataclass(frozen=True, slots=True)
class CompiledSource:
    """One source as PTX and machine code; `module` is the parsed PTX."""

    source: Source
    ptx: str
    cubin: bytes
    module: Module


def file_stem(source: Source) -> str:
    """A file name for a source; equal sources have equal names."""
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', source.name)[:80]}_{sha256(source.text.encode()).hexdigest()[:12]}"


def compile_sources(
    sources: Iterable[Source], architecture: str, compiler: Compiler, progress: Callable[[str], None]
) -> dict[Source, CompiledSource]:
    """Compile each source once. Raises NvccError for one that nvcc refuses."""
    distinct = list(dict.fromkeys(sources))

    def compiled(source: Source) -> CompiledSource:
        ptx = compiler.ptx(source.text, architecture, cutlass=source.cutlass, name=source.name)
        cubin = compiler.assembled(ptx, architecture, name=source.name)
        progress(f"compiled kernel {source.name}")
        return CompiledSource(source, ptx, cubin, parse(ptx))

    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(distinct, pool.map(compiled, distinct), strict=True))


LAUNCHES = "launches.json"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A launch and what it computes, by the user's name: a group, or slice number `instance` of one, or an operator on
    integers."""

    group: str
    launch: Launch | ComputedLaunch
    of_integers: bool = False
    instance: int = 0
    slices: int = 1

    @property
    def name(self) -> str:
        """The name in a list of launches."""
        if self.of_integers:
            return integers_name(self.group)
        return slice_name(self.group, self.instance, self.slices) if self.slices > 1 else printable(self.group)


def emit_launches(
    plan: Plan, graph: Graph, constants: Constants, places: TensorPlaces, chip: Chip, progress: Progress
) -> ClusterFiles:
    """The files of a plan's launches. Raises TargetError where nvcc is missing, refuses a kernel, or a plan names a
    kernel that no family makes."""
    asked = plan_launches(plan, graph, constants, chip, places)
    computed = [each.launch for each in asked if isinstance(each.launch, ComputedLaunch)]
    try:
        compiler = find_nvcc(Cache.of_user("nvcc").folder)
        compiled = compile_sources(
            [each.launch.source for each in asked], chip.isa.removeprefix("sm_"), compiler, progress
        )
    except (NvccError, PtxError) as error:
        raise TargetError(f"kernels of {graph.name}", needs="nvcc to compile them", has=str(error)) from error
    blocks = parameter_blocks(computed, {source: each.module for source, each in compiled.items()})
    arena = Arena(graph, places)
    entries = tuple(_entries(asked, compiled, blocks, arena))
    content = arena.finished(constants)
    _require_room(graph, chip, content.size_bytes)
    listed = LaunchList(
        format=FORMAT,
        architecture=chip.isa,
        arena_bytes=content.size_bytes,
        tensors=content.tensors,
        data=content.data,
        modules=tuple(ModuleEntry(**_paths(source)) for source in compiled),
        launches=entries,
    )
    kernels = {name: data for each in compiled.values() for name, data in _kernel_files(each)}
    text = launch_list_text(listed)
    read_launch_list(text)  # a list that no runner would take is refused here
    lists = {LAUNCHES: text, BINARY_LIST: binary_list(listed)}
    return ClusterFiles(0, LAUNCHES, {**lists, **content.files, **kernels, **runner_files()})


def _require_room(graph: Graph, chip: Chip, size_bytes: int) -> None:
    """Raises TargetError for an arena that the main memory cannot hold: padded maps and weights are added to the
    tensors that the driver has placed."""
    memory = chip.memory(main_memory(chip))
    if size_bytes > memory.size_bytes:
        raise TargetError(f"{graph.name} in {memory.name}", needs=f"{size_bytes} bytes with padded maps and weights",
                          has=f"{memory.size_bytes} bytes", change="compile for a smaller batch")  # fmt: skip


def _entries(
    asked: tuple[LaunchRequest, ...],
    compiled: Mapping[Source, CompiledSource],
    blocks: Mapping[ComputedLaunch, ParameterBlock],
    arena: Arena,
) -> Iterator[LaunchEntry]:
    modules = {source: number for number, source in enumerate(compiled)}
    for each in asked:
        launch = each.launch
        if isinstance(launch, ComputedLaunch):
            made = blocks[launch]
            grid, block, shared_bytes = made.grid, (made.threads, 1, 1), made.shared_bytes
            content = made.parameters
            places = [arena.relocation(mark.at, launch.places[mark.place], mark.plus_bytes) for mark in made.marks]
        else:
            kernel = compiled[launch.source].module.kernels[launch.kernel]
            grid, block, shared_bytes = launch.grid, launch.block, launch.shared_bytes
            content = _parameter_block(launch, kernel)
            places = [
                arena.relocation(parameter.offset_bytes, argument)
                for parameter, argument in zip(kernel.parameters, launch.arguments, strict=True)
                if isinstance(argument, Address | LayerScratch | Data)
            ]
        yield LaunchEntry(
            layer=each.name,
            module=modules[launch.source],
            kernel=launch.kernel,
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            parameters=content.hex(),
            relocations=tuple(places),
        )


def _parameter_block(launch: Launch, kernel: PtxKernel) -> bytes:
    """The parameters of a kernel of our own, as its PTX declares them, with zeros for addresses."""

    def value(argument: Argument) -> int | float | bytes:
        match argument:
            case Address() | LayerScratch() | Data():
                return 0
            case tuple():
                return struct.pack(f"<{len(argument)}i", *argument)
        return argument

    try:
        return parameters(kernel, *map(value, launch.arguments))
    except PtxError as error:
        needs = "arguments that fit its parameters"
        raise TargetError(f"kernel {launch.kernel}", needs=needs, has=error.reason) from error


def _kernel_files(compiled: CompiledSource) -> Iterator[tuple[str, bytes]]:
    paths = _paths(compiled.source)
    yield paths["source"], compiled.source.text.encode()
    yield paths["ptx"], compiled.ptx.encode()
    yield paths["cubin"], compiled.cubin


def _paths(source: Source) -> dict[str, str]:
    return {
        kind: f"kernels/{file_stem(source)}.{ending}"
        for kind, ending in (("source", "cu"), ("ptx", "ptx"), ("cubin", "cubin"))
    }


def plan_launches(
    plan: Plan, graph: Graph, constants: Constants, chip: Chip, places: TensorPlaces | None = None
) -> tuple[LaunchRequest, ...]:
    """The launches of operators on integers before the plan's steps, of these, in order, and of integers after them.
    Slices of the batch are at their offsets in whole values, but in `places` that have room for one slice, where all
    are. Raises TargetError for kernels that no family makes, and PlanError for slices that the graph cannot have."""
    return (
        *_of_integers(graph, graph.prepared),
        *_asked(plan, graph, constants, chip, places),
        *_of_integers(graph, graph.concluded),
    )


def _of_integers(graph: Graph, ops: tuple[Op, ...]) -> Iterator[LaunchRequest]:
    for op in ops:
        for launch in word_launches(graph, op):
            yield LaunchRequest(op.name, launch, of_integers=True)


def _asked(
    plan: Plan, graph: Graph, constants: Constants, chip: Chip, places: TensorPlaces | None
) -> Iterator[LaunchRequest]:
    parts: dict[int, BatchSlice] = {}
    made: dict[str, tuple[Launch | ComputedLaunch, ...]] = {}
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        if not isinstance(step, RunStep):
            continue
        count = slices_of(group)
        if count > 1 and count not in parts:
            parts[count] = slice_for(plan, graph, count)
        part = parts.get(count)
        if group.name not in made:
            template, chosen = read_kernel(group.kernel)
            family = FAMILIES.get(template)
            if family is None:
                raise TargetError(f"group {group.name}", needs=f"a kernel of {', '.join(FAMILIES)}", has=template)
            work = KernelWork(part.graph if part else graph, group.layers, chip)
            made[group.name] = family.launches(work, chosen, constants)
        for launch in made[group.name]:
            if part is not None:
                launch = _for_slice(launch, part, step.instance, graph, places)
            yield LaunchRequest(group.name, launch, instance=step.instance, slices=count)


def _for_slice(
    launch: Launch | ComputedLaunch, part: BatchSlice, instance: int, graph: Graph, places: TensorPlaces | None
) -> Launch | ComputedLaunch:
    """The launch of the first slice for another one: the addresses of values that are cut are further on, but those of
    values of which one slice is stored."""

    def at_slice(argument: Argument) -> Argument:
        if not isinstance(argument, Address) or argument.tensor not in part.values:
            return argument
        if places is not None:
            stored = places.written(argument.tensor).size_bytes
            if stored < graph.by_name[argument.tensor].size_bytes:
                return argument
        return moved(argument, part.offset_bytes(argument.tensor, instance))

    if isinstance(launch, Launch):
        return replace(launch, arguments=tuple(map(at_slice, launch.arguments)))
    found = tuple(place for place in map(at_slice, launch.places) if isinstance(place, Address | LayerScratch | Data))
    return replace(launch, places=found)
