"""Step `rates`: what this GPU reaches of what the chip file says, by the plainest kernels there are (`rates.cu`).

    main memory, L2    bytes a second of copies, read and written together
    mma, wgmma         multiply-accumulates a second, operands in registers or shared memory
    launch             from one empty kernel to the next in a CUDA graph

Each kernel's result is checked. The last column of the table is the line of the chip file that these figures would
make, at the file's clock; nobody writes it there but a person.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.gpu.bench import Bench, Item, Row, spread
from benchmarks.gpu.synthetic import Array
from codegen.cutlass.runner.runner import Driver, RunnerError

__all__ = ["items", "lines"]

THREADS = 256
WARP, GROUP = 32, 128
MMA_MACS, WGMMA_MACS = 16 * 8 * 16, 64 * 128 * 16
SUMS = 8
"""Independent ones of a warp in `rates.cu`."""
LAUNCHES = 200


Found = tuple[int, tuple[float, ...]]
"""What was done, and the milliseconds that it took each time."""


@dataclass(frozen=True)
class Shape:
    """How large the experiments are, by blocks of threads."""

    blocks: int
    main_bytes: int
    cache_bytes: int
    cache_passes: int
    steps: int


FULL = Shape(132 * 8, 1 << 30, 8 << 20, 200, 16_000)
SMALL = Shape(2, 1 << 13, 1 << 12, 2, 3)


def items(bench: Bench) -> Iterator[Item]:
    for chip, entry in bench.pack.manifest["rates"].items():
        if bench.chip not in (None, chip):
            continue
        for name in entry["kernels"]:
            yield Item(f"{name} {chip}", lambda chip=chip, name=name: _row(bench, chip, name))  # type: ignore[misc]


def _row(bench: Bench, chip: str, name: str) -> Row:
    entry, shape = bench.pack.manifest["rates"][chip], SMALL if bench.rehearse else FULL
    with bench.driver() as driver:
        driver.check(entry["architecture"])
        driver.enter()
        module = driver.load(bench.pack.object(entry["module"]))
        amount, times = EXPERIMENTS[name](driver, module, shape, 2 if bench.rehearse else 10)
        driver.unload(module)
    row: Row = {"what": name, "chip": chip, "amount": amount}
    row |= {"file": entry["kernels"][name], "clock_hz": entry["clock_hz"]}
    return row if bench.rehearse else {**row, **spread(times), "per_second": amount / (1e-3 * min(times))}


def _started(driver: Driver, module: object, kernel: str, blocks: int, parameters: bytes, stream: int) -> None:
    threads = GROUP if kernel == "wgmma" else THREADS
    driver.launch(driver.function(module, kernel, 0), (blocks, 1, 1), (threads, 1, 1), 0, parameters, stream)


def _copied(size_bytes: int, passes: int, driver: Driver, module: object, shape: Shape, repeats: int) -> Found:
    x, y, stream = driver.allocate(size_bytes), driver.allocate(size_bytes), driver.stream()
    given = np.arange(size_bytes // 4, dtype=np.uint32)
    driver.copy_in(x, given.view(np.uint8), stream)
    parameters = struct.pack("<QQii", x, y, size_bytes // 16, passes)

    def run() -> None:
        _started(driver, module, "copied", shape.blocks, parameters, stream)

    times = _timed(driver, run, repeats, stream)
    _same(_read(driver, y, size_bytes, stream).view(np.uint32), given, "copied")
    driver.free(x)
    driver.free(y)
    return 2 * size_bytes * passes, times


def _multiplied(kernel: str, driver: Driver, module: object, shape: Shape, repeats: int) -> Found:
    threads = shape.blocks * (GROUP if kernel == "wgmma" else THREADS)
    y, stream = driver.allocate(4 * threads), driver.stream()
    parameters = struct.pack("<Qi", y, shape.steps)

    def run() -> None:
        _started(driver, module, kernel, shape.blocks, parameters, stream)

    times = _timed(driver, run, repeats, stream)
    summed = 64 if kernel == "wgmma" else 32  # elements that a thread adds up at the end
    wanted = np.full(threads, 16.0 * shape.steps * summed, np.float32)
    _same(_read(driver, y, 4 * threads, stream).view(np.float32), wanted, kernel)
    driver.free(y)
    if kernel == "wgmma":
        return threads // GROUP * shape.steps * WGMMA_MACS, times
    return threads // WARP * shape.steps * SUMS * MMA_MACS, times


def _launched(driver: Driver, module: object, shape: Shape, repeats: int) -> Found:
    del shape
    stream, count = driver.stream(), LAUNCHES if repeats > 2 else 2

    def body(private: int) -> None:
        for _ in range(count):
            _started(driver, module, "nothing", 1, b"", private)

    graph = driver.capture(body)
    times = _timed(driver, lambda: driver.replay(graph, stream), repeats, stream)
    driver.discard(graph)
    return count, times


def _timed(driver: Driver, run: Callable[[], None], repeats: int, stream: int) -> tuple[float, ...]:
    run()
    return driver.times(repeats, lambda: None, run, stream)


def _read(driver: Driver, address: int, size_bytes: int, stream: int) -> Array:
    found = np.empty(size_bytes, np.uint8)
    driver.copy_out(found, address, stream)
    driver.synchronize(stream)
    return found


def _same(found: Array, wanted: Array, kernel: str) -> None:
    if not np.array_equal(found, wanted):
        raise RunnerError(f"kernel {kernel}: its result is not what it must be, so its time says nothing")


Experiment = Callable[[Driver, object, Shape, int], Found]

EXPERIMENTS: dict[str, Experiment] = {
    "main memory": lambda driver, module, shape, n: _copied(shape.main_bytes, 1, driver, module, shape, n),
    "L2": lambda driver, module, shape, n: _copied(shape.cache_bytes, shape.cache_passes, driver, module, shape, n),
    "mma": lambda driver, module, shape, n: _multiplied("mma", driver, module, shape, n),
    "wgmma": lambda driver, module, shape, n: _multiplied("wgmma", driver, module, shape, n),
    "launch": _launched,
}
"""What is done by name: bytes, multiply-accumulates or launches, and the milliseconds that they took."""


def lines(rows: Sequence[Row]) -> list[str]:
    found = ["| rate | measured | chip file | would be |", "| --- | --- | --- | --- |"]
    for row in rows:
        if "error" in row or "per_second" not in row:
            found.append(f"| {row['key']} | {row.get('error', 'not measured')} | | |")
            continue
        if row["what"] == "launch":
            microseconds = 1e6 / row["per_second"]
            found.append(f"| {row['key']} | {microseconds:.2f} us | {row['file']} us | launch_us: {microseconds:.2f} |")
        else:
            unit = "MAC/s" if "mma" in row["what"] else "B/s"
            cycle = row["per_second"] / row["clock_hz"]
            measured = f"{row['per_second']:.4g} {unit}"
            found.append(f"| {row['key']} | {measured} | {row['file']} a cycle | {cycle:.1f} a cycle |")
    return found
