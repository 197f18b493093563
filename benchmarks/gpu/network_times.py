"""Step `networks`: whole networks as one CUDA graph each, beside PyTorch on the same graph, weights and types.

    ours            launches as packed                          floor: kernels and launches one after the other
    torch           PyTorch's own kernels, channels last, float16, in a CUDA graph; and without one
    torch.compile   the same compiled by it, in a CUDA graph

Our rows come first, then PyTorch's, then the compiled ones, which take a minute or more each before they run: what time
is left for decides how many there are. Where there is no PyTorch the rows say so.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.gpu.bench import ROTATED_BYTES, Bench, Item, Row, repeated, spread
from benchmarks.gpu.store import Program
from benchmarks.gpu.synthetic import drawn_input, prepared_values
from benchmarks.gpu.torch_network import TorchNetwork
from benchmarks.gpu.torch_operators import Unknown
from benchmarks.gpu.unfolded import Unfolded, unfolded
from codegen.cutlass.runner.runner import GpuNetwork

__all__ = [
    "COMPILED",
    "captured_times",
    "drawn_tensors",
    "items",
    "lines",
    "measured_program",
    "measured_torch",
    "torch_with_gpu",
]

COMPILED = {"torch.compile": "default", "max-autotune": "max-autotune-no-cudagraphs"}
"""Modes of torch.compile by what their rows are called; the CUDA graph is ours."""
FIRST_COMPILED = (32, 1, 8, 128)
"""Batches in the order in which they are given to torch.compile."""


def items(bench: Bench) -> Iterator[Item]:
    programs = bench.programs()
    for program in programs:
        yield Item(program.key, lambda program=program: measured_program(bench, program))  # type: ignore[misc]
    plain = [program for program in programs if program.level == "O0"]
    for program in plain:
        yield Item(f"{_of(program)} torch", lambda program=program: measured_torch(bench, program, "torch"))  # type: ignore[misc]
    order = {batch: place for place, batch in enumerate(FIRST_COMPILED)}
    for what in COMPILED:
        for program in sorted(plain, key=lambda program: order.get(program.batch, len(order))):
            yield Item(f"{_of(program)} {what}", partial(measured_torch, bench, program, what))


def _of(program: Program) -> str:
    return f"{program.network} x{program.batch} {program.chip}"


def _head(program: Program, what: str) -> Row:
    return {"network": program.network, "batch": program.batch, "chip": program.chip, "what": what}


def _floor_ms(program: Program) -> float:
    kernels = program.kernels.values()
    return sum(float(kernel["launch_ms"]) + float(kernel["floor_ms"]) for kernel in kernels)


def measured_program(bench: Bench, program: Program) -> Row:
    """Our launches as one CUDA graph."""
    with unfolded(bench.pack, program) as made, bench.driver() as driver, GpuNetwork(made.folder, driver) as network:
        times = bench.times(network)
        row: Row = {**_head(program, program.level), "launches": len(network.launches), "floor_ms": _floor_ms(program)}
    return row if bench.rehearse else {**row, **spread(times)}


def measured_torch(bench: Bench, program: Program, what: str) -> Row:
    """The program's graph in PyTorch; `what` is torch or one of `COMPILED`."""
    torch = torch_with_gpu(bench)
    if torch is None:
        return {"skipped": "the rehearsal has no GPU" if bench.rehearse else "PyTorch with a GPU is not there"}
    with unfolded(bench.pack, program) as made:
        try:
            network = TorchNetwork(torch, made.graph, made.constants, "cuda", torch.float16)
            with torch.inference_mode():
                inputs = drawn_tensors(made, network)
                if what == "torch":
                    found = _captured(torch, network, inputs, bench.repeats)
                else:
                    found = _compiled(torch, network, inputs, bench.repeats, COMPILED[what])
                return {**_head(program, what), **found}
        except Unknown as error:
            return {"skipped": str(error)}


def torch_with_gpu(bench: Bench) -> Any:
    """The module, or None where it cannot be used."""
    if bench.rehearse or not bench.torch:
        return None
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cudnn.benchmark = True
    return torch


def drawn_tensors(made: Unfolded, network: TorchNetwork) -> list[Any]:
    """Inputs as those of our own runs."""
    graph = made.graph
    tensors = [graph.by_name[name] for name in graph.fed]
    fed = {one.name: drawn_input(1 + k, one.shape, one.dtype) for k, one in enumerate(tensors)}
    values = {**fed, **prepared_values(graph, made.constants, fed)}
    return [network.tensor(values[name]) for name in graph.inputs]


def _captured(torch: Any, network: TorchNetwork, inputs: list[Any], repeats: int) -> Row:
    eager = _timed(torch, lambda: network(*inputs), repeats)
    return {**spread(captured_times(torch, network, inputs, repeats)), "without_graph": spread(eager)}


def _compiled(torch: Any, network: TorchNetwork, inputs: list[Any], repeats: int, mode: str) -> Row:
    begin = time.monotonic()
    torch.compiler.reset()
    compiled = torch.compile(lambda *given: network(*given), dynamic=False, mode=mode)
    compiled(*inputs)
    seconds = time.monotonic() - begin
    return {**spread(captured_times(torch, compiled, inputs, repeats)), "compile_seconds": seconds}


def captured_times(torch: Any, run: Callable[..., Any], inputs: Sequence[Any], repeats: int) -> list[float]:
    """Milliseconds of one run of many in a CUDA graph, which take turns among copies of the inputs."""
    once = _timed(torch, _graph_of(torch, [partial(run, *inputs)]).replay, 3)
    inner = repeated(min(once), 1)
    size = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
    count = min(inner, -(-ROTATED_BYTES // size))
    copies = [inputs, *([tensor.clone() for tensor in inputs] for _ in range(count - 1))]
    runs = [partial(run, *copies[number % count]) for number in range(inner)]
    return [each / inner for each in _timed(torch, _graph_of(torch, runs).replay, repeats)]


def _graph_of(torch: Any, runs: Sequence[Callable[[], Any]]) -> Any:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            runs[0]()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in runs:
            run()
    return graph


def _timed(torch: Any, run: Callable[[], Any], repeats: int) -> list[float]:
    """Milliseconds by events."""
    for _ in range(3):
        run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * repeats)]
    for start, end in zip(events[::2], events[1::2], strict=True):
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [float(start.elapsed_time(end)) for start, end in zip(events[::2], events[1::2], strict=True)]


def lines(rows: Sequence[Row]) -> list[str]:
    """One line a network and batch; below what is missing, with the reason."""
    headings = ("network", "batch", "floor ms", "ours O0", "ours O3", "torch", "without graph", *COMPILED,
                "fastest of PyTorch over ours")  # fmt: skip
    found = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    by_network: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        if "what" in row:
            by_network.setdefault((row["network"], row["batch"], row["chip"]), {})[row["what"]] = row
    for (network, batch, chip), ways in by_network.items():
        eager = ways.get("torch", {}).get("without_graph", {})
        cells = [_cell(ways.get(what, {})) for what in ("O0", "O3", "torch")]
        floor = min((way["floor_ms"] for way in ways.values() if "floor_ms" in way), default=0.0)
        found.append(
            f"| {network} ({chip}) | {batch} | {floor:.4f} | {' | '.join(cells)} | {_cell(eager)} | "
            f"{' | '.join(_cell(ways.get(what, {})) for what in COMPILED)} | {_ratio(ways)} |"
        )
    said = {row["key"]: row.get("error") or row.get("skipped") for row in rows}
    return [*found, "", *(f"{key}: {why}" for key, why in said.items() if why)]


def _cell(row: Row) -> str:
    if "median_ms" not in row:
        return "not measured"
    low, high = row["quartiles_ms"]
    return f"{row['median_ms']:.4f} ({low:.4f} to {high:.4f})"


def _ratio(ways: dict[str, Row]) -> str:
    """The fastest of PyTorch's over the faster of ours."""
    ours = [ways[what]["median_ms"] for what in ("O0", "O3") if "median_ms" in ways.get(what, {})]
    theirs = [ways[what]["median_ms"] for what in ("torch", *COMPILED) if "median_ms" in ways.get(what, {})]
    return f"{min(theirs) / min(ours):.2f}" if ours and theirs else ""
