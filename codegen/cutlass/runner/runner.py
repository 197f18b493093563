"""Runs a compiled network on an NVIDIA GPU: reads `launches.json` and starts its kernels in order.

    python runner.py FOLDER --input x.npz --output y.npz

    with Network(FOLDER) as network:
        outputs = network.run({"x": array})                     # NumPy arrays, copied in and out
        network.bind_dlpack({"x": tensor, "y": out}).run()      # in place, on tensors of PyTorch or CuPy

One file, whatever its length: it needs Python, NumPy and, on a GPU, cuda-bindings 13, and runs from wherever it is
copied. What it reads may come from a stranger, so sizes, numbers and names are checked before they are used; the
kernels themselves are the stranger's code, and what they do on the GPU nothing here can check.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import math
import re
import statistics
import struct
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Annotated, Any, Final, Protocol, get_type_hints

import numpy as np
from numpy.typing import NDArray

FORMAT: Final = "dsa-sched-launches/1"
MAX_LIST_BYTES: Final = 256 << 20
MAX_CODE_BYTES: Final = 256 << 20
MAX_RANK: Final = 16
MAX_OUTSIDE: Final = 4096
"""Largest number of inputs and outputs together."""
MAX_BYTES: Final = 1 << 46
MAX_PARAMETERS: Final = 4096
MAX_NAME: Final = 1024
ALIGNMENT: Final = 16
"""Alignment of the caller's buffers in bytes: the widest access of a kernel."""
DTYPES: Final = ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
ROLES: Final = ("input", "output", "value", "constant", "workspace")
FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)?")
KERNEL_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
HEXADECIMAL: Final = re.compile(r"([0-9a-f]{2})*")
ARCHITECTURE: Final = re.compile(r"sm_([0-9]{1,2})([0-9])(a?)")

Array = NDArray[Any]
Dim3 = tuple[int, int, int]


class RunnerError(Exception):
    """A folder, an array or a GPU that cannot be used; the message says which, what is needed and what there is."""


# ---------------------------------------------------------------------------------------------- the list of launches


Check = Callable[[Any, str], Any]
"""Function of a value of JSON and its path, which returns the value or refuses it."""


def _refuse(who: str, needs: str, has: object) -> RunnerError:
    text = str(has)
    return RunnerError(f"launches.json: {who} needs {needs}, has {text if len(text) <= 80 else text[:80] + '...'}")


def _number(least: int, most: int) -> Check:
    def check(value: Any, who: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise _refuse(who, f"a whole number from {least} to {most}", value)
        return value

    return check


def _name(pattern: re.Pattern[str], most: int) -> Check:
    def check(value: Any, who: str) -> str:
        if not isinstance(value, str) or len(value) > most or not pattern.fullmatch(value):
            raise _refuse(who, f"a name of at most {most} characters that fits {pattern.pattern}", repr(value))
        return value

    return check


def _one_of(choices: tuple[str, ...]) -> Check:
    def check(value: Any, who: str) -> str:
        if value not in choices:
            raise _refuse(who, f"one of {', '.join(choices)}", repr(value))
        return str(value)

    return check


def _each(item: Check, least: int = 0, most: int = 1 << 24) -> Check:
    def check(value: Any, who: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise _refuse(who, f"a list of {least} to {most}", len(value) if isinstance(value, list) else value)
        return tuple(item(one, f"{who}[{number}]") for number, one in enumerate(value))

    return check


def _extents(*most: int) -> Check:
    def check(value: Any, who: str) -> tuple[int, ...]:
        numbers = _each(_number(1, max(most)), len(most), len(most))(value, who)
        return tuple(_number(1, limit)(number, who) for limit, number in zip(most, numbers, strict=True))

    return check


def _record(kind: type[Any]) -> Check:
    """An object with exactly the keys of a record, since an unknown key might change the meaning of the known ones;
    keys with a default may be missing. Each field's annotation has its check."""
    checks = {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}
    required = {field.name for field in fields(kind) if field.default is MISSING}

    def check(value: Any, who: str) -> Any:
        if not isinstance(value, dict):
            raise _refuse(who, "an object", type(value).__name__)
        if not required <= set(value) <= set(checks):
            raise _refuse(who, f"the keys {', '.join(sorted(required))}", ", ".join(sorted(value)) or "none")
        return kind(**{key: checks[key](one, f"{who}.{key}") for key, one in value.items()})

    return check


Place = Annotated[int, _number(0, MAX_BYTES)]
Index = Annotated[int, _number(0, 1 << 24)]
FileName = Annotated[str, _name(FILE_NAME, 200)]
Label = Annotated[str, _name(PRINTABLE, MAX_NAME)]


@dataclass(frozen=True, kw_only=True)
class LaunchTensor:
    """A range of the arena. `shape` and `dtype` are those on the device; `layout` has, for each device axis, the axis
    of the user's ONNX tensor that it holds, or () where that is unknown."""

    name: Label
    role: Annotated[str, _one_of(ROLES)]
    dtype: Annotated[str, _one_of(DTYPES)]
    shape: Annotated[tuple[int, ...], _each(_number(1, 1 << 40), most=MAX_RANK)]
    layout: Annotated[tuple[int, ...], _each(_number(0, 64), most=64)] = ()
    offset: Place
    bytes: Place

    @property
    def is_outside(self) -> bool:
        """Whether it is an input or output of the network."""
        return self.role in ("input", "output")

    @property
    def used_bytes(self) -> int:
        """Bytes of the elements; the range may be longer."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """Contents of a file, which lie at `offset` of the arena when the first launch starts."""

    file: FileName
    offset: Place
    bytes: Place


@dataclass(frozen=True, kw_only=True)
class ModuleEntry:
    """Files of one compiled source, with paths relative to the folder of `launches.json`."""

    source: FileName
    ptx: FileName
    cubin: FileName


@dataclass(frozen=True, kw_only=True)
class Relocation:
    """An address in the parameters: the 8 bytes at `at`, lowest first, hold the address of tensor number `tensor` plus
    `plus` bytes."""

    at: Annotated[int, _number(0, MAX_PARAMETERS)]
    tensor: Index
    plus: Place = 0


@dataclass(frozen=True, kw_only=True)
class LaunchEntry:
    """One launch. `parameters` is the kernel's parameter block in hexadecimal, with zeros where relocations go; `layer`
    is the user's operator, for messages."""

    layer: Label
    module: Index
    kernel: Annotated[str, _name(KERNEL_NAME, 256)]
    grid: Annotated[Dim3, _extents((1 << 31) - 1, 65_535, 65_535)]
    block: Annotated[Dim3, _extents(1024, 1024, 64)]
    shared_bytes: Annotated[int, _number(0, 1 << 20)] = 0
    parameters: Annotated[str, _name(HEXADECIMAL, 2 * MAX_PARAMETERS)]
    relocations: Annotated[tuple[Relocation, ...], _each(_record(Relocation))] = ()


@dataclass(frozen=True, kw_only=True)
class LaunchList:
    """Contents of `launches.json`. `architecture` is that of the machine code, for example `sm_80`."""

    format: Annotated[str, _one_of((FORMAT,))]
    architecture: Annotated[str, _name(ARCHITECTURE, 8)]
    arena_bytes: Place
    tensors: Annotated[tuple[LaunchTensor, ...], _each(_record(LaunchTensor))]
    data: Annotated[tuple[DataFile, ...], _each(_record(DataFile))]
    modules: Annotated[tuple[ModuleEntry, ...], _each(_record(ModuleEntry))]
    launches: Annotated[tuple[LaunchEntry, ...], _each(_record(LaunchEntry))]


def _check_tensors(listed: LaunchList) -> None:
    """Check that ranges lie inside the arena, and that inputs and outputs fit theirs and differ in name."""
    ranges = ((one.name, one.offset + one.bytes) for one in listed.tensors)
    for name, end in (*ranges, *((one.file, one.offset + one.bytes) for one in listed.data)):
        if end > listed.arena_bytes:
            raise _refuse(name, f"an end inside the arena of {listed.arena_bytes} bytes", end)
    outside = [one for one in listed.tensors if one.is_outside]
    for one in outside:
        if len(one.layout) not in (0, len(one.shape)):
            raise _refuse(f"{one.role} {one.name}", "a layout of the shape's rank", one.layout)
        if one.used_bytes > one.bytes:
            raise _refuse(f"{one.role} {one.name}", f"{one.used_bytes} bytes for {one}", one.bytes)
    names = [one.name for one in outside]
    if len(names) > MAX_OUTSIDE:
        raise _refuse("tensors", f"at most {MAX_OUTSIDE} inputs and outputs", len(names))
    if len(names) != len(set(names)):
        raise _refuse("tensors", "names of inputs and outputs that differ", ", ".join(sorted(names)))


def _check_launch(launch: LaunchEntry, listed: LaunchList) -> None:
    """Check the numbers of a launch that refer to other entries of the list."""
    who = f"launch of {launch.layer}"
    if launch.module >= len(listed.modules):
        raise _refuse(who, f"a module below {len(listed.modules)}", launch.module)
    if math.prod(launch.block) > 1024:
        raise _refuse(who, "at most 1024 threads per block", math.prod(launch.block))
    for one in launch.relocations:
        if one.tensor >= len(listed.tensors):
            raise _refuse(who, f"tensors below {len(listed.tensors)} in relocations", one.tensor)
        if one.plus > listed.tensors[one.tensor].bytes:
            raise _refuse(who, f"addresses inside a tensor of {listed.tensors[one.tensor].bytes} bytes", one.plus)
        if 2 * (one.at + 8) > len(launch.parameters):
            raise _refuse(who, f"addresses inside {len(launch.parameters) // 2} bytes of parameters", one.at)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON whose keys are unique, since readers do not agree which of two values of one key counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"a key twice: {next(key for key in keys if keys.count(key) > 1)}")
    return found


def parse_launches(data: bytes) -> LaunchList:
    """The list of launches in the bytes of a `launches.json`. Raises RunnerError for bytes that are not one."""
    if len(data) > MAX_LIST_BYTES:
        raise _refuse("the list", f"at most {MAX_LIST_BYTES} bytes", len(data))
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise RunnerError(f"launches.json: is not JSON: {error}") from error
    # the format first, so that a later one is reported as such and not by its keys
    if isinstance(value, dict) and value.get("format") != FORMAT:
        raise _refuse("format", FORMAT, value.get("format"))
    listed: LaunchList = _record(LaunchList)(value, "the list")
    _check_tensors(listed)
    for launch in listed.launches:
        _check_launch(launch, listed)
    return listed


def _file(folder: Path, name: str, most: int) -> Path:
    """A file of the folder itself, of at most `most` bytes; links that lead out of the folder are refused."""
    path = (folder / name).resolve()
    if not path.is_file():
        raise RunnerError(f"{folder / name}: is not a file")
    if not path.is_relative_to(folder.resolve()):
        raise RunnerError(f"{folder / name}: leads out of the folder")
    if path.stat().st_size > most:
        raise RunnerError(f"{folder / name}: needs at most {most} bytes, has {path.stat().st_size}")
    return path


def _check_machine_code(image: bytes, name: str) -> None:
    """Check that all parts of a cubin, which is ELF, lie inside the file: the driver is not told its length."""
    if len(image) < 64 or image[:5] != b"\x7fELF\x02":
        raise RunnerError(f"{name}: is not machine code of a GPU")
    program, sections = struct.unpack_from("<QQ", image, 32)
    program_size, programs, section_size, count = struct.unpack_from("<HHHH", image, 54)
    ends = [program + program_size * programs, sections + section_size * count]
    if max(ends) <= len(image) and section_size >= 64:
        for k in range(count):
            kind, _, _, offset, size = struct.unpack_from("<IQQQQ", image, sections + k * section_size + 4)
            ends.append(0 if kind == 8 else offset + size)  # 8: occupies nothing in the file
    if max(ends) > len(image):
        raise RunnerError(f"{name}: is cut off: needs {max(ends)} bytes, has {len(image)}")


# ------------------------------------------------------------------------------------------------------- the machine


class Driver(Protocol):
    """Operations of a machine that a network needs. Addresses and streams are numbers; modules, functions and graphs
    are objects of the driver's choice. Copies and launches run in the order of their stream."""

    @property
    def loads(self) -> str:
        """The file of a module that it takes: `cubin` or `ptx`."""

    @property
    def device(self) -> tuple[int, int]:
        """Kind and number of the device, in DLPack's terms."""

    @property
    def identity(self) -> str:
        """Name of the device and version of its driver: times of one do not apply to another."""

    def check(self, architecture: str) -> None:
        """Raises RunnerError where machine code of `architecture` does not run."""

    def enter(self) -> None:
        """Make the device that of the calling thread."""

    def allocate(self, size_bytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def fill(self, address: int, byte: int, size_bytes: int, stream: int) -> None: ...
    def copy_in(self, address: int, data: NDArray[np.uint8], stream: int) -> None: ...
    def copy_out(self, data: NDArray[np.uint8], address: int, stream: int) -> None: ...
    def load(self, image: bytes) -> object: ...
    def unload(self, module: object) -> None: ...

    def function(self, module: object, kernel: str, shared_bytes: int) -> object:
        """A kernel that may be launched with at most `shared_bytes` bytes of dynamic shared memory."""

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared_bytes: int, parameters: bytes, stream: int
    ) -> None: ...

    def stream(self) -> int:
        """A new stream, which is freed with the driver."""

    def synchronize(self, stream: int) -> None: ...

    def capture(self, body: Callable[[int], None]) -> object:
        """A graph of the launches of `body` on the stream that it is given; nothing is run."""

    def replay(self, graph: object, stream: int) -> None: ...
    def discard(self, graph: object) -> None: ...

    def times(
        self, repeats: int, before: Callable[[], None], body: Callable[[], None], stream: int
    ) -> tuple[float, ...]:
        """Milliseconds from the start to the end of `body` on the stream, by events, `repeats` times; `before` runs
        each time and is not counted."""

    def close(self) -> None: ...


class CudaDriver:
    """A GPU by cuda-bindings, in its primary context, which PyTorch and CuPy use, too. Refusals of CUDA raise
    RunnerError."""

    def __init__(self, device: int = 0) -> None:
        try:
            self._cuda: Any = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise RunnerError("needs cuda-bindings: pip install 'cuda-bindings>=13,<14'") from error
        self._streams: list[int] = []
        self._private: int | None = None
        self._number = device
        self._context: Any = None
        try:
            self._call("cuInit", 0)
        except RuntimeError as error:  # the library is found at the first call
            raise RunnerError(f"needs an NVIDIA driver: {error}") from error
        count = self._call("cuDeviceGetCount")
        if not 0 <= device < count:
            raise RunnerError(f"device {device}: needs one of {count}, counted from 0")
        self._device = self._call("cuDeviceGet", device)
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self.enter()

    def _call(self, name: str, *arguments: Any) -> Any:
        """The result of a function of the driver. Raises RunnerError with CUDA's own words."""
        error, *results = getattr(self._cuda, name)(*arguments)
        if int(error) != 0:
            _, text = self._cuda.cuGetErrorString(error)
            raise RunnerError(f"{name}: {error.name}: {text.decode(errors='replace') if text else 'no description'}")
        return results[0] if len(results) == 1 else None

    @property
    def loads(self) -> str:
        return "cubin"

    @property
    def device(self) -> tuple[int, int]:
        return (2, self._number)

    @property
    def identity(self) -> str:
        name = self._call("cuDeviceGetName", 256, self._device)
        text = bytes(name).split(b"\0")[0].decode(errors="replace")
        return f"{text}, CUDA driver {self._call('cuDriverGetVersion')}"

    def check(self, architecture: str) -> None:
        names = self._cuda.CUdevice_attribute
        major, minor = (
            self._call("cuDeviceGetAttribute", getattr(names, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"),
                       self._device)
            for part in ("MAJOR", "MINOR")
        )  # fmt: skip
        found = ARCHITECTURE.fullmatch(architecture)
        if found is None:
            raise RunnerError(f"launches.json: architecture {architecture} is not known")
        runs = int(found[2]) == minor if found[3] else int(found[2]) <= minor
        if int(found[1]) != major or not runs:
            raise RunnerError(
                f"launches.json: machine code for {architecture}, device {self._number} is sm_{major}{minor}"
            )

    def enter(self) -> None:
        self._call("cuCtxSetCurrent", self._context)

    def allocate(self, size_bytes: int) -> int:
        return int(self._call("cuMemAlloc", size_bytes))

    def free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def fill(self, address: int, byte: int, size_bytes: int, stream: int) -> None:
        self._call("cuMemsetD8Async", address, byte, size_bytes, stream)

    def copy_in(self, address: int, data: NDArray[np.uint8], stream: int) -> None:
        self._call("cuMemcpyHtoDAsync", address, data.ctypes.data, data.nbytes, stream)

    def copy_out(self, data: NDArray[np.uint8], address: int, stream: int) -> None:
        self._call("cuMemcpyDtoHAsync", data.ctypes.data, address, data.nbytes, stream)

    def load(self, image: bytes) -> object:
        return self._call("cuModuleLoadData", image)

    def unload(self, module: object) -> None:
        self._call("cuModuleUnload", module)

    def function(self, module: object, kernel: str, shared_bytes: int) -> object:
        function = self._call("cuModuleGetFunction", module, kernel.encode())
        if shared_bytes:
            # needed where static and dynamic shared memory together exceed 48 KiB, and harmless elsewhere
            most = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, most, shared_bytes)
        return function

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared_bytes: int, parameters: bytes, stream: int
    ) -> None:
        block_of_bytes = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        size = ctypes.c_size_t(len(parameters))
        # CU_LAUNCH_PARAM_BUFFER_POINTER is 1, CU_LAUNCH_PARAM_BUFFER_SIZE 2, CU_LAUNCH_PARAM_END 0
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(block_of_bytes), 2, ctypes.addressof(size), 0)
        self._call(
            "cuLaunchKernel", function, *grid, *block, shared_bytes, stream, None, ctypes.addressof(extra)
        )  # fmt: skip

    def stream(self) -> int:
        flag = self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        self._streams.append(int(self._call("cuStreamCreate", flag)))
        return self._streams[-1]

    def synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", stream)

    def capture(self, body: Callable[[int], None]) -> object:
        if self._private is None:
            self._private = self.stream()
        stream = self._private
        mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", stream, mode)
        try:
            body(stream)
        except BaseException:
            with suppress(RunnerError):
                self._call("cuGraphDestroy", self._call("cuStreamEndCapture", stream))
            raise
        graph = self._call("cuStreamEndCapture", stream)
        try:
            return self._call("cuGraphInstantiate", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)

    def replay(self, graph: object, stream: int) -> None:
        self._call("cuGraphLaunch", graph, stream)

    def discard(self, graph: object) -> None:
        self._call("cuGraphExecDestroy", graph)

    def times(
        self, repeats: int, before: Callable[[], None], body: Callable[[], None], stream: int
    ) -> tuple[float, ...]:
        events = [self._call("cuEventCreate", 0) for _ in range(2 * repeats)]
        try:
            for start, end in zip(events[::2], events[1::2], strict=True):
                before()
                self._call("cuEventRecord", start, stream)
                body()
                self._call("cuEventRecord", end, stream)
            self.synchronize(stream)
            return tuple(
                float(self._call("cuEventElapsedTime", start, end))
                for start, end in zip(events[::2], events[1::2], strict=True)
            )
        finally:
            for event in events:
                self._call("cuEventDestroy", event)

    def close(self) -> None:
        if self._context is not None:
            with ExitStack() as all_of_it:
                all_of_it.callback(self._call, "cuDevicePrimaryCtxRelease", self._device)
                for stream in self._streams:
                    all_of_it.callback(self._call, "cuStreamDestroy", stream)
                self._streams, self._private = [], None
                self._context = None


# ------------------------------------------------------------------------------------------------------- the network


class BoundNetwork:
    """A network with its inputs and outputs at fixed addresses. The buffers live as long as this object."""

    def __init__(
        self, network: GpuNetwork, launches: tuple[tuple[LaunchEntry, bytes], ...], keeps: tuple[object, ...]
    ) -> None:
        self._network = network
        self._launches = launches
        self._keeps = keeps
        self._graph: object = None

    def run(self, stream: int = 0) -> None:
        """Start the kernels on a stream (0: the default one) and do not wait. All bindings of a network share its
        memory for values: runs must be ordered, by one stream or by events."""
        self._network._start(self, stream)

    def close(self) -> None:
        """Give the graph back, if there is one; closing the network does that, too."""
        self._network._forget(self)


class GpuNetwork:
    """A compiled network in the memory of a device. Only one thread at a time may use it."""

    def __init__(
        self, folder: str | Path, driver: Driver | None = None, *, graph: bool = True, check: bool = False
    ) -> None:
        """Load a network. `graph`: run by one launch of a CUDA graph. `check`: wait after each launch, so that an error
        names its layer; this excludes `graph`. Raises RunnerError."""
        self._list = parse_launches(_file(Path(folder), "launches.json", MAX_LIST_BYTES).read_bytes())
        self._files = Path(folder)
        self.inputs: Mapping[str, LaunchTensor] = self._outside("input")
        """Inputs by name, in the order of the list."""
        self.outputs: Mapping[str, LaunchTensor] = self._outside("output")
        """Outputs by name, in the order of the list."""
        self._driver: Driver = driver if driver is not None else CudaDriver()
        self._owned = driver is None
        self._graph, self._check = graph and not check, check
        self._modules: dict[int, object] = {}
        self._functions: dict[tuple[int, str], object] = {}
        self._graphs: list[object] = []
        self._arena: int | None = None
        self._bound: tuple[tuple[int, ...], BoundNetwork] | None = None
        try:
            self._driver.check(self._list.architecture)
            self._load()
        except BaseException:
            with suppress(RunnerError):
                self.close()
            raise

    def _load(self) -> None:
        self._driver.enter()
        self._stream = self._driver.stream()
        self._arena = self._driver.allocate(max(self._list.arena_bytes, 1))
        self._load_data()
        most: dict[tuple[int, str], int] = {}
        for launch in self._list.launches:
            key = (launch.module, launch.kernel)
            most[key] = max(most.get(key, 0), launch.shared_bytes)
        for launch in self._list.launches:
            key = (launch.module, launch.kernel)
            if key in self._functions:
                continue
            with _naming_layer(replace(launch, shared_bytes=most[key])):
                if launch.module not in self._modules:
                    self._modules[launch.module] = self._driver.load(self._image(launch.module))
                self._functions[key] = self._driver.function(self._modules[launch.module], launch.kernel, most[key])
        self._fixed = _fixed(self._list)
        self._home = self._bind({})

    def _load_data(self) -> None:
        assert self._arena is not None
        for one in self._list.data:
            path = _file(self._files, one.file, MAX_BYTES)
            if path.stat().st_size != one.bytes:
                raise RunnerError(f"{self._files / one.file}: needs {one.bytes} bytes, has {path.stat().st_size}")
            if one.bytes:
                self._driver.copy_in(self._arena + one.offset, np.fromfile(path, np.uint8), self._stream)
                self._driver.synchronize(self._stream)

    def _image(self, module: int) -> bytes:
        files = self._list.modules[module]
        if self._driver.loads == "ptx":
            return _file(self._files, files.ptx, MAX_CODE_BYTES).read_bytes()
        image = _file(self._files, files.cubin, MAX_CODE_BYTES).read_bytes()
        _check_machine_code(image, files.cubin)
        return image

    @property
    def launches(self) -> tuple[LaunchEntry, ...]:
        """The launches in order of execution."""
        return self._list.launches

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs for inputs, in device shape and type. Raises RunnerError for missing, unknown and unfit inputs."""
        self._enter()
        self._all_there("inputs", self.inputs, inputs)
        for name, tensor in self.inputs.items():
            self._copy_in(tensor, np.asarray(inputs[name]))
        self._start(self._home, self._stream)
        outputs = {name: np.empty(tensor.shape, tensor.dtype) for name, tensor in self.outputs.items()}
        for name, array in outputs.items():
            flat = array.reshape(-1).view(np.uint8)
            self._driver.copy_out(flat, self._address(self.outputs[name]), self._stream)
        self._driver.synchronize(self._stream)
        return outputs

    def run_pointers(self, stream: int, pointers: Mapping[str, int]) -> None:
        """Start the network on a stream with inputs and outputs in place at device addresses, and do not wait; tensors
        that are not named stay in the network's own memory. Raises RunnerError."""
        self._enter()
        key = tuple(pointers.get(name, 0) for name in (*self.inputs, *self.outputs))
        if self._bound is None or self._bound[0] != key:
            self._forget(self._bound[1] if self._bound else None)
            self._bound = (key, self._bind(dict(pointers)))
        self._start(self._bound[1], stream)

    def bind_dlpack(self, tensors: Mapping[str, Any]) -> BoundNetwork:
        """Bind inputs and outputs in place to tensors of PyTorch, CuPy or any other library with DLPack; an address may
        stand for a tensor. Nothing waits for work on the tensors: order the streams yourself. Raises RunnerError."""
        self._enter()
        pointers, keeps = {}, []
        for name, one in tensors.items():
            pointers[name] = one if isinstance(one, int) else 0
            if not isinstance(one, int):
                wanted = self._known(name)
                pointers[name], capsule = _dlpack_address(one, wanted, self._driver.device)
                keeps.append((one, capsule))
        return self._bind(pointers, tuple(keeps))

    def poison(self) -> None:
        """Fill the memory with bytes 0xff, which are NaN in every float type, and load the constants again, so that
        missing writes of a run show in its results."""
        self._enter()
        assert self._arena is not None
        self._driver.fill(self._arena, 0xFF, max(self._list.arena_bytes, 1), self._stream)
        self._load_data()

    def time(
        self, repeats: int = 100, *, warm_up: int = 3, inner: int = 1, rotated_bytes: int = 0
    ) -> tuple[float, ...]:
        """Milliseconds of each of `repeats` runs in a row, on the current contents of memory. `inner`: each time is
        that of so many runs in one CUDA graph, divided by `inner`, so that starting a graph does not count.
        `rotated_bytes`: these runs take turns among copies of the inputs, as many as have so many bytes together, so
        that no cache has them from the run before."""
        self._enter()
        with self._in_a_row(inner, rotated_bytes) as timed:
            for _ in range(warm_up):
                self._start(timed, self._stream)
            times = self._driver.times(repeats, lambda: None, lambda: self._start(timed, self._stream), self._stream)
        return tuple(time / inner for time in times)

    @contextmanager
    def _in_a_row(self, count: int, rotated_bytes: int) -> Iterator[BoundNetwork]:
        """`count` runs as one. Inputs that share memory with other values are not copied."""
        if count == 1:
            yield self._home
            return
        copied = {name: self._content(one) for name, one in self.inputs.items() if name not in self._fixed}
        size = sum(len(content) for content in copied.values())
        copies = min(count, -(-rotated_bytes // size)) if size else 0
        memory = self._driver.allocate(copies * size) if copies else 0
        timed = None
        try:
            runs = [self._copied(copied, memory + number * size) for number in range(copies)] or [self._home]
            launches = (launch for number in range(count) for launch in runs[number % len(runs)]._launches)
            timed = BoundNetwork(self, tuple(launches), ())
            yield timed
        finally:
            self._forget(timed)
            if copies:
                self._driver.synchronize(self._stream)
                self._driver.free(memory)

    def _copied(self, contents: Mapping[str, NDArray[np.uint8]], place: int) -> BoundNetwork:
        """The network with these inputs, one after the other from `place` on."""
        pointers = {}
        for name, content in contents.items():
            self._driver.copy_in(place, content, self._stream)
            pointers[name], place = place, place + len(content)
        return self._bind(pointers)

    def _content(self, tensor: LaunchTensor) -> NDArray[np.uint8]:
        """Bytes of a tensor's memory, as many as keep what lies behind it aligned."""
        found = np.zeros(-(-tensor.used_bytes // ALIGNMENT) * ALIGNMENT, np.uint8)
        self._driver.copy_out(found[: tensor.used_bytes], self._address(tensor), self._stream)
        self._driver.synchronize(self._stream)
        return found

    def time_launches(
        self, repeats: int = 20, *, inner: int = 1, flush_bytes: int = 0, numbers: Iterable[int] | None = None
    ) -> tuple[tuple[float, ...], ...]:
        """Milliseconds of each launch alone, or of those with these `numbers`, `repeats` times each: the time of
        `inner` launches in a row, divided by `inner`, which hides the cost of starting one. Before each time
        `flush_bytes` of other memory are written, so that caches are cold."""
        self._enter()
        flushed = self._driver.allocate(flush_bytes) if flush_bytes else 0
        try:
            return tuple(
                self._time_launch(number, repeats, inner, flushed, flush_bytes)
                for number in (range(len(self._list.launches)) if numbers is None else numbers)
            )
        finally:
            if flush_bytes:
                self._driver.free(flushed)

    def _time_launch(self, number: int, repeats: int, inner: int, flushed: int, size: int) -> tuple[float, ...]:
        launches = self._home._launches[number : number + 1] * inner
        once = BoundNetwork(self, launches, ())

        def before() -> None:
            if size:
                self._driver.fill(flushed, 0, size, self._stream)

        try:
            self._start(once, self._stream)
            times = self._driver.times(repeats, before, lambda: self._start(once, self._stream), self._stream)
        finally:
            self._forget(once)
        return tuple(time / inner for time in times)

    def close(self) -> None:
        """Give memory, kernels and graphs back, all of it even where CUDA refuses a part. Raises RunnerError then."""
        with ExitStack() as all_of_it:
            if self._owned:
                all_of_it.callback(self._driver.close)
            if self._arena is not None:
                self._driver.enter()
                all_of_it.callback(self._driver.free, self._arena)
                for module in self._modules.values():
                    all_of_it.callback(self._driver.unload, module)
                for graph in self._graphs:
                    all_of_it.callback(self._driver.discard, graph)
            self._graphs, self._modules, self._arena, self._bound = [], {}, None, None

    def __enter__(self) -> GpuNetwork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except RunnerError:
            if error is None:  # after a fault CUDA refuses everything: the fault is what counts
                raise

    def _enter(self) -> None:
        if self._arena is None:
            raise RunnerError("the network is closed")
        self._driver.enter()

    def _outside(self, role: str) -> Mapping[str, LaunchTensor]:
        return MappingProxyType({one.name: one for one in self._list.tensors if one.role == role})

    def _known(self, name: str) -> LaunchTensor:
        tensor = self.inputs.get(name) or self.outputs.get(name)
        if tensor is None:
            raise RunnerError(f"{name}: no such input or output; there are {', '.join((*self.inputs, *self.outputs))}")
        return tensor

    def _all_there(self, what: str, wanted: Mapping[str, LaunchTensor], given: Mapping[str, Array]) -> None:
        if set(wanted) != set(given):
            raise RunnerError(f"{what}: needs {', '.join(wanted) or 'none'}, has {', '.join(given) or 'none'}")

    def _copy_in(self, tensor: LaunchTensor, array: Array) -> None:
        if array.dtype != np.dtype(tensor.dtype) or array.shape != tensor.shape:
            raise RunnerError(f"input {tensor.name}: needs {tensor}, has {array.dtype} {array.shape}")
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._driver.copy_in(self._address(tensor), flat, self._stream)

    def _address(self, tensor: LaunchTensor) -> int:
        assert self._arena is not None
        return self._arena + tensor.offset

    def _bind(self, pointers: dict[str, int], keeps: tuple[object, ...] = ()) -> BoundNetwork:
        for name, pointer in pointers.items():
            if self._known(name).name in self._fixed:
                raise RunnerError(
                    f"{name}: shares memory with {self._fixed[name]}: copy it, it cannot be bound in place"
                )
            if pointer <= 0 or pointer % ALIGNMENT:
                raise RunnerError(f"{name}: needs an address aligned to {ALIGNMENT} bytes, has {pointer:#x}")
        places = [
            pointers.get(one.name, self._address(one)) if one.is_outside else self._address(one)
            for one in self._list.tensors
        ]
        launches = []
        for launch in self._list.launches:
            parameters = bytearray.fromhex(launch.parameters)
            for one in launch.relocations:
                struct.pack_into("<Q", parameters, one.at, places[one.tensor] + one.plus)
            launches.append((launch, bytes(parameters)))
        return BoundNetwork(self, tuple(launches), keeps)

    def _start(self, binding: BoundNetwork, stream: int) -> None:
        self._enter()
        if not self._graph:
            self._launch_all(binding, stream)
            return
        if binding._graph is None:
            binding._graph = self._driver.capture(lambda private: self._launch_all(binding, private))
            self._graphs.append(binding._graph)
        self._driver.replay(binding._graph, stream)

    def _launch_all(self, binding: BoundNetwork, stream: int) -> None:
        for launch, parameters in binding._launches:
            function = self._functions[launch.module, launch.kernel]
            with _naming_layer(launch):
                self._driver.launch(function, launch.grid, launch.block, launch.shared_bytes, parameters, stream)
                if self._check:
                    self._driver.synchronize(stream)

    def _forget(self, binding: BoundNetwork | None) -> None:
        """Give a graph back. It may still be running: CUDA keeps it until then."""
        if binding is not None and binding._graph is not None:
            self._graphs.remove(binding._graph)
            self._driver.discard(binding._graph)
            binding._graph = None


def _fixed(listed: LaunchList) -> dict[str, str]:
    """Inputs and outputs that cannot be bound to the caller's buffers, each with the reason: another tensor of a kernel
    shares memory with it, or it is an output that no kernel names. The kernels would not see the buffer."""
    named = {one.tensor for launch in listed.launches for one in launch.relocations}
    found = {}
    for number, one in enumerate(listed.tensors):
        if one.is_outside:
            others = (listed.tensors[other] for other in sorted(named - {number}))
            end = one.offset + one.bytes
            sharing = next((o.name for o in others if o.offset < end and one.offset < o.offset + o.bytes), None)
            if sharing is not None or (one.role == "output" and number not in named):
                found[one.name] = sharing or "what is loaded"
    return found


@contextmanager
def _naming_layer(launch: LaunchEntry) -> Iterator[None]:
    """Put the user's layer in front of the message of an error in its launch."""
    try:
        yield
    except RunnerError as error:
        shape = f"grid {launch.grid}, block {launch.block}, {launch.shared_bytes} bytes of shared memory"
        raise RunnerError(f"layer {launch.layer}: kernel {launch.kernel} ({shape}): {error}") from error


# ------------------------------------------------------------------------------------------------------------ DLPack


class _DlTensor(ctypes.Structure):
    """DLTensor of DLPack 0.x, at the start of a capsule named `dltensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DLPACK_KINDS: Final = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}


def _dlpack_address(tensor: Any, wanted: LaunchTensor, device: tuple[int, int]) -> tuple[int, object]:
    """The address of a tensor's elements, and the capsule that keeps them alive: it is not consumed, so its own
    destructor gives it back."""
    if not hasattr(tensor, "__dlpack__"):
        raise RunnerError(f"{wanted.name}: needs a tensor that supports DLPack, has {type(tensor).__name__}")
    kind, number = (int(part) for part in tensor.__dlpack_device__())
    if (kind, number) != device:
        raise RunnerError(f"{wanted.name}: needs device {device} of DLPack, has {(kind, number)}")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        capsule = tensor.__dlpack__(stream=-1)
        found = _DlTensor.from_address(get(capsule, b"dltensor"))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise RunnerError(f"{wanted.name}: the tensor does not share its memory: {error}") from error
    rank = found.rank
    shape = tuple(found.shape[axis] for axis in range(rank))
    dtype = "bool" if found.code == 6 else f"{DLPACK_KINDS.get(found.code, 'unknown')}{found.bits}"
    if found.lanes != 1 or (dtype, shape) != (wanted.dtype, wanted.shape):
        raise RunnerError(f"{wanted.name}: needs {wanted}, has {dtype} {shape}")
    step = 1
    for axis in reversed(range(rank)):
        if found.strides and shape[axis] > 1 and found.strides[axis] != step:
            raise RunnerError(f"{wanted.name}: needs contiguous elements, last axis fastest, has other strides")
        step *= shape[axis]
    return (found.data or 0) + found.byte_offset, capsule


# ------------------------------------------------------------------------------------------------------ command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="runner.py",
        description="Runs a compiled network on an NVIDIA GPU. Without --output and --time it lists what the network "
        "takes and gives.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder that has launches.json")
    parser.add_argument(
        "--input",
        type=Path,
        metavar="X.npz",
        help="arrays by name of input, in device shape and type; default: random ones",
    )
    parser.add_argument("--output", type=Path, metavar="Y.npz", help="file for the arrays by name of output")
    parser.add_argument("--time", type=int, metavar="N", help="time N runs, after the first")
    parser.add_argument("--launches", action="store_true", help="with --time: also each launch alone")
    parser.add_argument("--device", type=int, default=0, metavar="K", help="number of the GPU (default 0)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of random inputs (default 0)")
    parser.add_argument("--no-graph", action="store_true", help="launch kernels one by one instead of as a CUDA graph")
    parser.add_argument("--check", action="store_true", help="wait after each launch, so that an error names its layer")
    return parser


def _read_inputs(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise RunnerError(f"{path}: is not a file of arrays (npz): {error}") from error


def _write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as numpy.savez does, which keeps some names for itself."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _random_inputs(network: GpuNetwork, seed: int) -> dict[str, Array]:
    """Random inputs: normal floats, and zeros in all other types, such as indices."""
    draw = np.random.default_rng(seed)
    return {
        name: draw.standard_normal(one.shape, np.float32).astype(one.dtype)
        if one.dtype.startswith("float")
        else np.zeros(one.shape, one.dtype)
        for name, one in network.inputs.items()
    }


def _spread(milliseconds: tuple[float, ...]) -> str:
    return f"median {statistics.median(milliseconds):.4f} ms, {min(milliseconds):.4f} to {max(milliseconds):.4f}"


def _report(network: GpuNetwork, options: argparse.Namespace) -> Iterator[str]:
    """Carry out the options, and yield lines for a reader."""
    for what, tensors in (("input ", network.inputs), ("output", network.outputs)):
        for tensor in tensors.values():
            yield f"{what} {tensor.name}: {tensor}, axes of the model's tensor {tensor.layout or 'unknown'}"
    if options.output is None and options.time is None:
        return
    outputs = network.run(_read_inputs(options.input) if options.input else _random_inputs(network, options.seed))
    if options.output is not None:
        _write_arrays(options.output, outputs)
        yield f"wrote {options.output}"
    if options.time is not None:
        yield f"{len(network.launches)} launches, {options.time} runs: {_spread(network.time(options.time))}"
        if options.launches:
            for launch, times in zip(network.launches, network.time_launches(options.time), strict=True):
                yield f"  {launch.layer} ({launch.kernel}): {_spread(times)}"


def main(arguments: list[str] | None = None, driver: Driver | None = None) -> int:
    """The command line; returns 1 after a message for the user. `driver` replaces the GPU."""
    options = _parser().parse_args(arguments)
    if options.time is not None and options.time < 1:
        print("error: --time: needs at least 1", file=sys.stderr)
        return 1
    try:
        machine: Driver = driver if driver is not None else CudaDriver(options.device)
        with GpuNetwork(options.folder, machine, graph=not options.no_graph, check=options.check) as network:
            for line in _report(network, options):
                print(line)
        if driver is None:
            machine.close()
    except (RunnerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
