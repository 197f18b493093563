"""A GPU artifact executed without a GPU: its list of launches on the executor of PTX.

    files, inputs by address --every launch, in order--> bytes at the requested addresses

Addresses are offsets in the arena. For each launch, the tensors that its parameters name are separate allocations, so
that a kernel that reads or writes beyond one is caught; unwritten memory is NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from codegen.cutlass.emission.launch_list import read_launch_list
from codegen.cutlass.ptx import (
    GlobalMemory,
    KernelFault,
    Module,
    PtxError,
    PtxLimits,
    Statistics,
    UnsupportedPtx,
    launch,
    parse,
)
from codegen.cutlass.runner.runner import LaunchEntry, LaunchList
from codegen.target import ClusterFiles, Execution
from hw_models.errors import TargetError

Bytes = npt.NDArray[np.uint8]
POISON = 0xFF
MOST_ARENA_BYTES = 8 << 30


def execute_launches(
    files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int
) -> Execution:
    """Execute the launches of an artifact. Raises TargetError naming the operator whose kernel ends in a fault, or what
    is wrong with the files."""
    listed = read_launch_list(files.files[files.executable])
    arena = filled_arena(files, listed, loads)
    modules = [_parsed(_file(files, module.ptx)) for module in listed.modules]
    macs: Counter[str] = Counter()
    for number, entry in enumerate(listed.launches):
        try:
            macs[entry.kernel] += run_entry(listed, entry, modules[entry.module], arena, seed + number).macs
        except (KernelFault, PtxError, UnsupportedPtx) as error:
            raise TargetError(f"operator {entry.layer}", needs="a kernel without faults", has=str(error)) from error
    memory = {}
    for address, size in dumps:
        if address < 0 or address + size > listed.arena_bytes:
            raise TargetError(files.executable, needs=f"addresses below {listed.arena_bytes}", has=f"{address:#x}")
        memory[address, size] = arena[address : address + size].tobytes()
    return Execution(memory, dict(macs), {})


def filled_arena(files: ClusterFiles, listed: LaunchList, loads: Mapping[int, bytes]) -> Bytes:
    """Memory before the first launch: constants, and inputs by address; NaN elsewhere. Raises TargetError."""
    if listed.arena_bytes > MOST_ARENA_BYTES:
        raise TargetError(files.executable, needs=f"an arena of at most {MOST_ARENA_BYTES} bytes to be executed",
                          has=str(listed.arena_bytes))  # fmt: skip
    arena = np.full(listed.arena_bytes, POISON, np.uint8)
    for item in listed.data:
        data = _file(files, item.file)
        if len(data) != item.bytes:
            raise TargetError(item.file, needs=f"{item.bytes} bytes", has=str(len(data)))
        _put(arena, item.offset, data, item.file)
    for address, data in loads.items():
        _put(arena, address, data, f"input at {address:#x}")
    return arena


def run_entry(
    listed: LaunchList, entry: LaunchEntry, module: Module, arena: Bytes, seed: int, limits: PtxLimits | None = None
) -> Statistics:
    """Execute one launch on the arena. Raises TargetError for tensors that overlap, and for everything that `launch`
    refuses."""
    _require_apart(listed, entry)
    memory = GlobalMemory()
    addresses: dict[int, int] = {}
    parameters = bytearray.fromhex(entry.parameters)
    for relocation in entry.relocations:
        tensor = listed.tensors[relocation.tensor]
        if relocation.tensor not in addresses:
            content = arena[tensor.offset : tensor.offset + tensor.bytes]
            addresses[relocation.tensor] = memory.allocate(content, tensor.name)
        address = addresses[relocation.tensor] + relocation.plus
        parameters[relocation.at : relocation.at + 8] = address.to_bytes(8, "little")
    done = launch(
        module, entry.kernel, entry.grid, entry.block, bytes(parameters), memory, seed,
        shared_bytes=entry.shared_bytes, limits=limits,
    )  # fmt: skip
    for number, address in addresses.items():
        tensor = listed.tensors[number]
        if tensor.role != "constant":
            arena[tensor.offset : tensor.offset + tensor.bytes] = memory.load(address, np.uint8, (tensor.bytes,))
    return done


def _require_apart(listed: LaunchList, entry: LaunchEntry) -> None:
    """Check that tensors of one launch share no bytes: here they are separate, while on a GPU a write would change the
    other."""
    numbers = {relocation.tensor for relocation in entry.relocations}
    ranges = sorted((listed.tensors[n].offset, listed.tensors[n].bytes, listed.tensors[n].name) for n in numbers)
    for (low, size, first), (next_low, _, second) in pairwise(ranges):
        if low + size > next_low:
            needs = "tensors that share no memory"
            raise TargetError(f"operator {entry.layer}", needs=needs, has=f"{first} and {second} at {next_low:#x}")


def _put(arena: Bytes, offset: int, data: bytes, what: str) -> None:
    if offset < 0 or offset + len(data) > arena.size:
        raise TargetError(
            what, needs=f"room in an arena of {arena.size} bytes", has=f"{len(data)} bytes at {offset:#x}"
        )
    arena[offset : offset + len(data)] = np.frombuffer(data, np.uint8)


def _file(files: ClusterFiles, name: str) -> bytes:
    try:
        return files.files[name]
    except KeyError:
        raise TargetError(files.executable, needs=f"the file {name}", has="none of that name") from None


def _parsed(ptx: bytes) -> Module:
    try:
        return parse(ptx.decode())
    except (PtxError, UnsupportedPtx, UnicodeDecodeError) as error:
        raise TargetError("a kernel's PTX", needs="text that the executor reads", has=str(error)) from error
