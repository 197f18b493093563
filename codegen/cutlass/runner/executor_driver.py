"""The executor of PTX in place of a GPU: a driver for `runner.py` that needs NumPy and no CUDA.

    Network(folder, ExecutorDriver()).run(inputs)
    python -m codegen.cutlass.runner.executor_driver FOLDER --input x.npz --output y.npz

It loads the PTX where a GPU loads the machine code. Streams run their work at once; times come from this machine's
clock and say nothing about a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from codegen.cutlass.ptx import GlobalMemory, Module, PtxError, PtxLimits, launch, parse
from codegen.cutlass.runner.runner import Dim3, RunnerError, main

DEVICE = (1 << 20, 0)
"""A kind of device that DLPack does not have: tensors of others do not lie in the executor's memory."""


@dataclass(frozen=True)
class Function:
    """A kernel of a module; `shared_bytes` is the most dynamic shared memory that it may be launched with."""

    module: Module
    kernel: str
    shared_bytes: int


Start = Callable[[], None]


@contextmanager
def _as_runner_error(who: str = "") -> Iterator[None]:
    """Turn an error of the executor into one of the runner."""
    try:
        yield
    except (PtxError, UnicodeDecodeError) as error:
        raise RunnerError(f"{who}{error}") from error


@dataclass(frozen=True)
class Recording:
    """The launches given to a captured stream."""

    starts: list[Start] = field(default_factory=list)


class ExecutorDriver:
    """A `Driver` whose device is the executor. `seed` determines the order of thread blocks. Impossible requests and
    faults of kernels raise RunnerError."""

    def __init__(self, seed: int = 0, limits: PtxLimits | None = None) -> None:
        self._limits = limits or PtxLimits()
        self._memory = GlobalMemory(self._limits)
        self._seed = seed
        self._streams = 0
        self._recordings: dict[int, Recording] = {}

    @property
    def loads(self) -> str:
        return "ptx"

    @property
    def device(self) -> tuple[int, int]:
        return DEVICE

    @property
    def identity(self) -> str:
        return "executor of PTX"

    def check(self, architecture: str) -> None:
        """Accept every architecture: each runs as far as its opcodes are known."""

    def enter(self) -> None:
        """Do nothing: every thread has the executor."""

    def allocate(self, size_bytes: int) -> int:
        with _as_runner_error():
            return self._memory.allocate(size_bytes)

    def free(self, address: int) -> None:
        """Do nothing: memory is freed with the driver."""

    def fill(self, address: int, byte: int, size_bytes: int, stream: int) -> None:
        self.copy_in(address, np.full(size_bytes, byte, np.uint8), stream)

    def copy_in(self, address: int, data: NDArray[np.uint8], stream: int) -> None:
        if stream in self._recordings:
            raise RunnerError("copies in graphs are not supported")
        with _as_runner_error():
            self._memory.store(address, data)

    def copy_out(self, data: NDArray[np.uint8], address: int, stream: int) -> None:
        if stream in self._recordings:
            raise RunnerError("copies in graphs are not supported")
        with _as_runner_error():
            data[...] = self._memory.load(address, np.uint8, data.shape)

    def load(self, image: bytes) -> object:
        with _as_runner_error("PTX: "):
            return parse(image.decode("ascii"))

    def unload(self, module: object) -> None:
        """Do nothing: modules are freed with the driver."""

    def function(self, module: object, kernel: str, shared_bytes: int) -> object:
        assert isinstance(module, Module)
        if kernel not in module.kernels:
            raise RunnerError(f"the module has no kernel {kernel}")
        return Function(module, kernel, shared_bytes)

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared_bytes: int, parameters: bytes, stream: int
    ) -> None:
        assert isinstance(function, Function)
        if shared_bytes > function.shared_bytes:
            raise RunnerError(f"{shared_bytes} bytes of dynamic shared memory, {function.shared_bytes} were asked for")

        def start() -> None:
            with _as_runner_error():
                launch(
                    function.module, function.kernel, grid, block, parameters, self._memory, self._seed,
                    shared_bytes=shared_bytes, limits=self._limits,
                )  # fmt: skip

        if stream in self._recordings:
            self._recordings[stream].starts.append(start)
        else:
            start()

    def stream(self) -> int:
        self._streams += 1
        return self._streams

    def synchronize(self, stream: int) -> None:
        """Do nothing: all work is done."""

    def capture(self, body: Callable[[int], None]) -> object:
        stream = self.stream()
        recording = self._recordings[stream] = Recording()
        try:
            body(stream)
        finally:
            del self._recordings[stream]
        return recording

    def replay(self, graph: object, stream: int) -> None:
        assert isinstance(graph, Recording)
        assert stream not in self._recordings
        for start in graph.starts:
            start()

    def discard(self, graph: object) -> None:
        """Do nothing: graphs are freed with the driver."""

    def times(self, repeats: int, before: Start, body: Start, stream: int) -> tuple[float, ...]:
        """Times by the clock of this machine."""
        self.synchronize(stream)
        found = []
        for _ in range(repeats):
            before()
            start = time.perf_counter()
            body()
            found.append(1e3 * (time.perf_counter() - start))
        return tuple(found)

    def close(self) -> None:
        """Do nothing: no resources are held outside of Python."""


if __name__ == "__main__":
    raise SystemExit(main(driver=ExecutorDriver()))
