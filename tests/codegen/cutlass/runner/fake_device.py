"""A GPU for the fake libcuda: memory and kernels are those of the executor of PTX.

For processes of their own, since the library stays loaded under the name of the real one.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.cutlass.ptx import GlobalMemory, PtxError, launch, parse

__all__ = ["DeviceTensor", "FakeDevice"]

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_size_t)
STORE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)
LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t
)
LAUNCH_FAILED = 719


class Functions(ctypes.Structure):
    """`struct device` of fake_cuda.c."""

    _fields_ = (("allocate", ALLOCATE), ("store", STORE), ("load", LOAD), ("launch", LAUNCH))


class FakeDevice:
    """Executes what is launched through `library`, a libcuda.so.1 made of fake_cuda.c; kernels are those of `ptx`."""

    def __init__(self, library: Path, ptx: str) -> None:
        self.memory = GlobalMemory()
        self.faults: list[str] = []
        self._module = parse(ptx)
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._functions = Functions(
            ALLOCATE(self.memory.allocate), STORE(self._store), LOAD(self._load), LAUNCH(self._launch)
        )
        self._library.fake_cuda_device(ctypes.byref(self._functions))

    def live(self, contexts: int = 0) -> int:
        """Objects that nobody gave back."""
        return int(self._library.fake_cuda_live(contexts))

    def allocate(self, array: NDArray[Any]) -> int:
        """A buffer of the caller's."""
        return self.memory.allocate(array)

    def _store(self, to: int, start: int, size: int) -> int:
        self.memory.store(to, np.frombuffer(ctypes.string_at(start, size), np.uint8))
        return 0

    def _load(self, to: int, start: int, size: int) -> int:
        data = self.memory.load(start, np.uint8, (size,)).tobytes()
        ctypes.memmove(to, data, size)
        return 0

    def _launch(self, kernel: bytes, sizes: Any, shared_bytes: int, parameters: int, size: int) -> int:
        grid, block = tuple(sizes[:3]), tuple(sizes[3:6])
        data = ctypes.string_at(parameters, size) if size else b""
        try:
            launch(self._module, kernel.decode(), grid, block, data, self.memory, shared_bytes=shared_bytes)
        except PtxError as error:
            self.faults.append(str(error))
            return LAUNCH_FAILED
        return 0


class _DlTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DeviceTensor:
    """A tensor at an address of a device that speaks DLPack, as those of PyTorch do."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        *,
        kind: tuple[int, int] = (2, 16),
        strides: tuple[int, ...] | None = None,
        device: tuple[int, int] = (2, 0),
        offset: int = 0,
    ) -> None:
        """`kind`: DLPack's code (2: float) and bits."""
        self._device = device
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self._tensor = _DlTensor(address, device, len(shape), *kind, 1, self._shape, self._strides, offset)
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, stream: int | None = None) -> object:
        self.streams.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._tensor), b"dltensor", None)
