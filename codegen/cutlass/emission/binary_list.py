"""`launches.bin`: the list of launches as records that the C runner reads in place, instead of `launches.json`.

    LaunchList --> header | outside | tensors | data | modules | kernels | launches | relocations | names | parameters

`runner/launch_list.h` describes the records, and `runner/launch_list.c` checks them. Numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from codegen.cutlass.runner.runner import DTYPES, MAX_RANK, LaunchList, LaunchTensor
from hw_models.errors import TargetError

BINARY_LIST = "launches.bin"
MAGIC = b"dsalist\n"
VERSION = 1

HEADER = Struct("<8s2I2Q8s10I")
OUTSIDE = Struct(f"<6I{2 * MAX_RANK}Q")
TENSOR = Struct("<2Q")
DATA = Struct("<2Q2I")
MODULE = Struct("<2I")
KERNEL = Struct("<4I")
LAUNCH = Struct("<14I")
RELOCATION = Struct("<Q2I")


class _Names:
    """Section of names with a zero after each; equal names stand there once."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        """Offset of a name, which is added if it is new."""
        if name not in self._places:
            self._places[name] = len(self.content)
            self.content += name.encode() + b"\0"
        return self._places[name]


def binary_list(listed: LaunchList) -> bytes:
    """The file's bytes; equal lists give equal bytes. Raises TargetError for an input or output of too many axes."""
    names = _Names()
    inputs, outputs = ([k for k, one in enumerate(listed.tensors) if one.role == role] for role in ("input", "output"))
    kernels = _kernels(listed)
    numbers = {key: number for number, key in enumerate(kernels)}
    tables = (
        [_outside(k, listed.tensors[k], names) for k in (*inputs, *outputs)],
        [TENSOR.pack(one.offset, one.bytes) for one in listed.tensors],
        [DATA.pack(one.offset, one.bytes, names.place(one.file), 0) for one in listed.data],
        [MODULE.pack(names.place(one.cubin), 0) for one in listed.modules],
        [
            KERNEL.pack(module, *map(names.place, (kernel, layer)), most)
            for (module, kernel), (layer, most) in kernels.items()
        ],
        list(_launches(listed, numbers, names)),
        [RELOCATION.pack(one.plus, one.at, one.tensor) for launch in listed.launches for one in launch.relocations],
    )
    parameters = b"".join(bytes.fromhex(launch.parameters) for launch in listed.launches)
    body = b"".join((*(record for table in tables for record in table), names.content, parameters))
    header = HEADER.pack(
        MAGIC, VERSION, HEADER.size, HEADER.size + len(body), listed.arena_bytes, listed.architecture.encode(),
        len(inputs), len(outputs), *map(len, tables[1:]), len(names.content), len(parameters),
    )  # fmt: skip
    return header + body


def _outside(number: int, tensor: LaunchTensor, names: _Names) -> bytes:
    rank, axes = len(tensor.shape), tensor.layout
    if rank > MAX_RANK:
        raise TargetError(f"{tensor.role} {tensor.name}", needs=f"at most {MAX_RANK} axes", has=str(rank))
    extents = (*tensor.shape, *(0,) * (MAX_RANK - rank), *axes, *(0,) * (MAX_RANK - len(axes)))
    return OUTSIDE.pack(number, names.place(tensor.name), DTYPES.index(tensor.dtype), rank, bool(axes), 0, *extents)


def _kernels(listed: LaunchList) -> dict[tuple[int, str], tuple[str, int]]:
    """By module and kernel: the layer of the first launch, and the most dynamic shared memory of all launches."""
    found: dict[tuple[int, str], tuple[str, int]] = {}
    for launch in listed.launches:
        layer, most = found.get((launch.module, launch.kernel), (launch.layer, 0))
        found[launch.module, launch.kernel] = (layer, max(most, launch.shared_bytes))
    return found


def _launches(listed: LaunchList, kernels: dict[tuple[int, str], int], names: _Names) -> Iterator[bytes]:
    parameters = relocations = 0
    for one in listed.launches:
        size = len(one.parameters) // 2
        yield LAUNCH.pack(
            names.place(one.layer), kernels[one.module, one.kernel], *one.grid, *one.block, one.shared_bytes,
            parameters, size, relocations, len(one.relocations), 0,
        )  # fmt: skip
        parameters += size
        relocations += len(one.relocations)
