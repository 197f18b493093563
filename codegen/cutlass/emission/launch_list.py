"""Format of `launches.json`, the executable of a GPU artifact: launches, their order, and their data.

    arena        one allocation of `arena_bytes`; tensors are ranges of it
    data         files that are copied into the arena before the first run
    modules      kernels by file: CUDA source, PTX, machine code
    launches     kernel, grid, block, shared memory, parameters; in these, at `relocations`, stand addresses of tensors

The executor of PTX and the Python runner read this and nothing else; the C runner reads the same list as records
(`binary_list.py`). A tensor of role `input` or `output` may be bound to a buffer of the caller instead of its range,
since parameters name tensors and not addresses.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hw_models.errors import TargetError

FORMAT: Literal["dsa-sched-launches/1"] = "dsa-sched-launches/1"
MAX_LIST_BYTES = 256 << 20
MOST_NAME = 1024
Dtype = Literal["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
DTYPES = get_args(Dtype)

Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME, pattern=r"^[^\x00-\x1f\x7f]*$")]
FileName = Annotated[
    str, Field(max_length=200, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)?$")
]
Bytes = Annotated[int, Field(ge=0, le=1 << 46)]
Index = Annotated[int, Field(ge=0, le=1 << 24)]
Grid = tuple[
    Annotated[int, Field(ge=1, le=(1 << 31) - 1)],
    Annotated[int, Field(ge=1, le=65_535)],
    Annotated[int, Field(ge=1, le=65_535)],
]
Block = tuple[
    Annotated[int, Field(ge=1, le=1024)], Annotated[int, Field(ge=1, le=1024)], Annotated[int, Field(ge=1, le=64)]
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class LaunchTensor(_Part):
    """A range of the arena. `shape` and `dtype` are those on the device; `layout` has, for each device axis, the axis
    of the user's ONNX tensor that it holds, or () where that is unknown."""

    name: Name
    role: Literal["input", "output", "value", "constant", "workspace"]
    dtype: Dtype
    shape: tuple[Annotated[int, Field(ge=1, le=1 << 40)], ...]
    layout: tuple[Annotated[int, Field(ge=0, le=64)], ...] = ()
    offset: Bytes
    bytes: Bytes


class DataFile(_Part):
    """Contents of a file, which lie at `offset` of the arena when the first launch starts."""

    file: FileName
    offset: Bytes
    bytes: Bytes


class ModuleEntry(_Part):
    """Files of one compiled source, with paths relative to the folder of `launches.json`."""

    source: FileName
    ptx: FileName
    cubin: FileName


class Relocation(_Part):
    """An address in the parameters: the 8 bytes at `at`, lowest first, hold the address of tensor number `tensor` plus
    `plus` bytes."""

    at: Annotated[int, Field(ge=0, le=4096)]
    tensor: Index
    plus: Bytes = 0


class LaunchEntry(_Part):
    """One launch. `parameters` is the kernel's parameter block in hexadecimal, with zeros where relocations go; `layer`
    is the user's operator, for messages."""

    layer: Name
    module: Index
    kernel: Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z_$][A-Za-z0-9_$]*$")]
    grid: Grid
    block: Block
    shared_bytes: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    parameters: Annotated[str, Field(max_length=2 * 4096, pattern=r"^([0-9a-f]{2})*$")]
    relocations: tuple[Relocation, ...] = ()


class LaunchList(_Part):
    """The whole list of a network, in order. `architecture` is that of the machine code, for example `sm_80`."""

    format: Literal["dsa-sched-launches/1"]
    architecture: Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}a?$")]
    arena_bytes: Bytes
    tensors: tuple[LaunchTensor, ...]
    data: tuple[DataFile, ...]
    modules: tuple[ModuleEntry, ...]
    launches: tuple[LaunchEntry, ...]

    @model_validator(mode="after")
    def _consistent(self) -> LaunchList:
        """Check that every range lies inside the arena and every number refers to an entry of its list."""
        ends = [(what.name, what.offset + what.bytes) for what in self.tensors]
        for name, end in (*ends, *((what.file, what.offset + what.bytes) for what in self.data)):
            if end > self.arena_bytes:
                raise ValueError(f"{name} ends at {end}, beyond the arena of {self.arena_bytes} bytes")
        for launch in self.launches:
            if launch.module >= len(self.modules):
                raise ValueError(f"launch of {launch.layer}: there is no module {launch.module}")
            if launch.block[0] * launch.block[1] * launch.block[2] > 1024:
                raise ValueError(f"launch of {launch.layer}: a block of {launch.block} has more than 1024 threads")
            for relocation in launch.relocations:
                if relocation.tensor >= len(self.tensors):
                    raise ValueError(f"launch of {launch.layer}: there is no tensor {relocation.tensor}")
                if relocation.plus > self.tensors[relocation.tensor].bytes:
                    raise ValueError(f"launch of {launch.layer}: an address beyond its tensor")
                if 2 * (relocation.at + 8) > len(launch.parameters):
                    raise ValueError(f"launch of {launch.layer}: a relocation beyond the parameters")
        return self

    def text(self) -> bytes:
        """The list as JSON; equal lists give equal bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def printable(name: str) -> str:
    """A user's name in the form that a list of launches may hold: without control characters, and not too long. A
    changed name ends in a hash of the original, so that different names stay different."""
    plain = "".join(c if c.isprintable() else "?" for c in name)
    if plain == name and 0 < len(name) <= MOST_NAME:
        return name
    return f"{plain[: MOST_NAME - 13]}#{sha256(name.encode(errors='surrogatepass')).hexdigest()[:12]}"


def read_launch_list(data: bytes) -> LaunchList:
    """Parse a list of launches. Raises TargetError for bytes that are not one."""
    if len(data) > MAX_LIST_BYTES:
        raise TargetError("launches.json", needs=f"at most {MAX_LIST_BYTES} bytes", has=str(len(data)))
    try:
        return LaunchList.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TargetError("launches.json", needs="a list of launches", has=f"{where}: {first['msg']}") from error
