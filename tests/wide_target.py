"""A target of somebody else's: singles instead of halves, sums in an order that it does not promise, a whole Gelu.

    ONNX -> Graph of float32, Gelu whole -> tiles -> JSON -> numpy     judged by a bound

`TARGET` is right. `PROMISES` says that it is exact, which it is not; `CARELESS` sums in halves, which its bound does
not allow. `chip_text(isa)` is a chip for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import erf
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.judgement import EXACT, Array, Bound, Doubles, Judgement, Sampled, rounded_sum_error
from codegen.target import ClusterFiles, Execution
from hw_models.chip import Chip
from isched.program.program import Instr, Program, Region
from isched.program.target import DENSE, MemoryCopy
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer, layer_boxes
from partitioner.ir.regions import Box, box_shape, box_size
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork
from partitioner.ir.wants import Wants, floats_as

__all__ = ["CARELESS", "PROMISES", "TARGET", "WideTarget", "chip_text"]

Singles = npt.NDArray[np.float32]
ITEM_BYTES = 4
KINDS = ("relu", "add", "gelu", "matmul", "view")

CHIP = """
schema_version: 1
name: wide
description: two cores with a vector engine each, in single precision
isa: {isa}
clock_hz: 1000000
clusters: 1
cores_per_cluster: 2
memories:
  - {{name: main, scope: cluster, size_bytes: 1048576, alignment_bytes: 4, read_by: [mover], written_by: [mover]}}
  - name: shared
    scope: cluster
    size_bytes: 65536
    alignment_bytes: 4
    read_by: [mover, loader]
    written_by: [mover, loader]
  - name: local
    scope: core
    size_bytes: 16384
    alignment_bytes: 4
    read_by: [loader, compute]
    written_by: [loader, compute]
engines:
  - {{kind: scalar, name: control}}
  - kind: vector
    name: compute
    lanes: 4
    rates: [{{dtype: float32, per_unit_per_cycle: 1}}]
    start_latency_cycles: 1
    max_stride_bytes: 65535
    max_extent: 65535
  - {{kind: transfer, name: loader, max_stride_bytes: 65535, max_extent: 65535}}
  - {{kind: dma, name: mover}}
  - {{kind: sync, name: sync, groups: 1}}
links:
{links}
dma:
  engine: mover
  engines_per_cluster: 1
  channels_per_engine: 1
  max_descriptors: 64
  max_linear_bytes: 65536
  max_row_bytes: 65535
  max_rows: 65535
  max_stride_bytes: 65535
  gather: true
  scatter: true
assumed:
  launch_cycles: 0
  matrix_tile_cycles: 0
  vector_pass_cycles: 0
  dma_descriptor_cycles: 0
  sync_cycles: 0
  scalar_instruction_cycles: 1
  queue_depth: 1
"""
LINK = """
  - name: {source}_to_{destination}
    source: {source}
    destination: {destination}
    engine: {engine}
    bandwidth_bytes_per_cycle: 8
    latency_cycles: 2
    shared_by: cluster
    max_stride_bytes: 65535
    dense_side: none
"""
WAYS = (
    ("main", "shared", "mover"),
    ("shared", "main", "mover"),
    ("shared", "local", "loader"),
    ("local", "shared", "loader"),
)


def chip_text(isa: str) -> str:
    """The chip file for one of the targets here."""
    links = "".join(LINK.format(source=a, destination=b, engine=engine) for a, b, engine in WAYS)
    return CHIP.format(isa=isa, links=links)


def gelu(x: Doubles) -> Doubles:
    return np.asarray(x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))) / 2)


def operand(sampled: Sampled, array: Array, shape: tuple[int, ...]) -> Doubles:
    """An element-wise operand's elements at the sampled positions."""
    spread = np.broadcast_to(array, shape)
    return np.asarray(spread[tuple(sampled.points.T)], np.float64)


def numbers(sampled: Sampled) -> tuple[Doubles, Doubles, int, Doubles]:
    """Of a layer without an epilogue, at the sampled positions: results, the sums of the absolute values of what
    is added, how many these are, and how far the results may be off for the errors of the operands."""
    graph, op = sampled.graph, sampled.layer.anchor(sampled.graph)
    shape = graph.by_name[sampled.layer.output].shape
    read = [sampled.read(name).astype(np.float64) for name in op.inputs]
    off = [sampled.errors(name) for name in op.inputs]
    if op.kind == "matmul":
        lines, columns = tuple(sampled.points.T[:-1]), sampled.points.T[-1]
        x, e, w = read[0][lines], off[0][lines], read[1].T[columns]
        bias = read[2][columns] if len(read) > 2 else np.zeros(len(columns))
        magnitudes = (np.abs(x) * np.abs(w)).sum(1) + np.abs(bias)
        return (x * w).sum(1) + bias, magnitudes, x.shape[1] + 1, (e * np.abs(w)).sum(1)
    values, errors = ([operand(sampled, array, shape) for array in arrays] for arrays in (read, off))
    match op.kind:
        case "add":
            return values[0] + values[1], np.abs(values[0]) + np.abs(values[1]), 1, errors[0] + errors[1]
        case "gelu":
            return gelu(values[0]), np.zeros(len(values[0])), 0, errors[0] * 1.13  # the steepest slope
        case _:
            return np.maximum(values[0], 0), np.zeros(len(values[0])), 0, errors[0]


def allowed(sampled: Sampled) -> Doubles:
    values, magnitudes, terms, off = numbers(sampled)
    return rounded_sum_error(values, magnitudes + off, terms, stored="float32", summed="float32") + off


@dataclass(frozen=True)
class WideTarget:
    """Kernels in numpy; `summed` is the type in which products are added up."""

    name: str = "wide-v1"
    judgement: Judgement = field(default_factory=lambda: Bound(allowed))
    summed: str = "float32"
    barrier: str = "barrier"
    data_base_bytes: int = 0
    wants: Wants = field(default_factory=lambda: Wants(floats_as("float32"), "channels_first", frozenset({"Gelu"})))

    def unsuited(self, chip: Chip) -> tuple[str, ...]:
        del chip
        return ()

    def operators(self) -> tuple[tuple[str, str], ...]:
        return tuple((kind, "in singles") for kind in KINDS)

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        del constants, chip
        if others := [name for name in (*op.inputs, *op.outputs) if graph.by_name[name].dtype != "float32"]:
            return f"{others[0]} is {graph.by_name[others[0]].dtype}, not float32"
        return None if op.kind in KINDS else f"{op.kind} is too much for a toy"

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        del graph, layer, op, operand
        return "a toy fuses nothing"

    def granularity(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        return (1,) * len(graph.by_name[layer.output].shape)

    def whole_axes(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        del graph, layer
        return ()

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        del chip
        boxes = layer_boxes(graph, layer, box)
        names = layer.inputs(graph)
        sizes = {name: ITEM_BYTES * box_size(boxes[name]) for name in names} | {"output": ITEM_BYTES * box_size(box)}
        buffers = tuple(TileBuffer(name, "local", "", size) for name, size in sizes.items())
        loads = tuple(TileLoad(name, boxes[name], name) for name in names)
        return TileWork(buffers, (Pass(loads),), "output", (("compute", sum(sizes.values()) / 16),))

    def lower(
        self,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        box: Box,
        work: TileWork,
        offsets_bytes: Mapping[str, int],
        chip: Chip,
        pitches_bytes: Mapping[str, int] = DENSE,
    ) -> tuple[tuple[Instr, ...], ...]:
        del constants, chip, pitches_bytes
        op = layer.anchor(graph)
        sizes = {buffer.name: buffer.size_bytes for buffer in work.buffers}
        reads = tuple(Region("local", offsets_bytes[name], sizes[name]) for name in op.inputs)
        write = Region("local", offsets_bytes["output"], sizes["output"])
        columns = (("columns", box_shape(box)[-1]),) if op.kind == "matmul" else ()
        return ((Instr("compute", op.kind, columns, reads, (write,), sizes["output"] / 16, layer.name),),)

    def copy(self, copies: tuple[MemoryCopy, ...], source: str, chip: Chip) -> tuple[Instr, ...]:
        def engine(copy: MemoryCopy) -> str:
            same = copy.source.memory == copy.destination.memory
            return "compute" if same else chip.link(copy.source.memory, copy.destination.memory).engine

        return tuple(Instr(engine(c), "copy", (), (c.source,), (c.destination,), 1.0, source) for c in copies)

    def broadcast(self, instr: Instr, cores: tuple[int, ...]) -> Instr:
        del cores
        return instr

    def synchronise(self, source: str) -> Instr:
        return Instr("sync", "barrier", source=source)

    def address(self, memory: str, offset_bytes: int) -> int:
        del memory
        return offset_bytes

    def emit(self, program: Program, graph: Graph, constants: Constants, chip: Chip) -> ClusterFiles:
        del chip

        def words(region: Region) -> list[int | str]:
            return [region.memory, region.offset_bytes, region.row_bytes, region.rows, region.stride_bytes]

        streams = [
            [[i.opcode, list(i.operands), [words(r) for r in i.reads], [words(w) for w in i.writes]] for i in s.instrs]
            for s in program.streams
        ]
        data = {
            str(p.offset_bytes): constants[graph.by_name[p.tensor].constant].tobytes().hex()
            for p in program.placements
            if p.kind == "constant"
        }
        code = json.dumps({"streams": streams, "data": data}).encode()
        return ClusterFiles(len(streams), "program.json", {"program.json": code}, program.cluster)

    def emulate(self, sampled: Sampled) -> Array:
        found = numbers(replace(sampled, errors=lambda name: np.zeros(sampled.graph.by_name[name].shape)))[0]
        return found.astype(np.float32) if self.judgement == EXACT else found

    def run(
        self, files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int
    ) -> Execution:
        program = json.loads(files.files[files.executable])
        common = {"main": np.zeros(1 << 20, np.uint8), "shared": np.zeros(1 << 16, np.uint8)}
        memories = [common | {"local": np.zeros(1 << 14, np.uint8)} for _ in program["streams"]]
        for address, data in [*loads.items(), *((int(a), bytes.fromhex(d)) for a, d in program["data"].items())]:
            common["main"][address : address + len(data)] = np.frombuffer(data, np.uint8)
        random = np.random.default_rng(seed)
        epochs = [_split(stream) for stream in program["streams"]]
        for number in range(len(epochs[0])):
            for memory, of_core in zip(memories, epochs, strict=True):
                for instr in of_core[number]:
                    self._step(memory, random, *instr)
        return Execution({(a, n): common["main"][a : a + n].tobytes() for a, n in dumps}, {}, {})

    def _step(
        self,
        memory: dict[str, npt.NDArray[np.uint8]],
        random: np.random.Generator,
        opcode: str,
        operands: list[tuple[str, int]],
        reads: list[Any],
        writes: list[Any],
    ) -> None:
        bytes_ = [memory[region[0]][_cells(*region[1:])] for region in reads]
        if opcode == "copy":
            result = bytes_[0]
        else:
            result = self._compute(opcode, dict(operands), random, [data.view(np.float32) for data in bytes_])
        memory[writes[0][0]][_cells(*writes[0][1:])] = result

    def _compute(
        self, kind: str, operands: dict[str, int], random: np.random.Generator, read: list[Singles]
    ) -> npt.NDArray[np.uint8]:
        match kind:
            case "relu":
                found = np.maximum(read[0], 0)
            case "add":
                found = read[0] + read[1]
            case "gelu":
                found = gelu(read[0].astype(np.float64)).astype(np.float32)
            case _:
                found = self._product(read[0], read[1].reshape(-1, operands["columns"]), random)
                found = (found + read[2] if len(read) > 2 else found).reshape(-1)
        return np.ascontiguousarray(found, np.float32).view(np.uint8)

    def _product(self, x: Singles, w: Singles, random: np.random.Generator) -> Singles:
        """Sums of products in an order of the moment."""
        order = random.permutation(len(w))
        products = x.reshape(-1, len(w))[:, order, None] * w[order]
        return np.add.accumulate(products, axis=1, dtype=np.dtype(self.summed))[:, -1].astype(np.float32)


def _split(stream: list[Any]) -> list[list[Any]]:
    epochs: list[list[Any]] = [[]]
    for instr in stream:
        if instr[0] == "barrier":
            epochs.append([])
        else:
            epochs[-1].append(instr)
    return epochs


def _cells(offset: int, row_bytes: int, rows: int, stride: int) -> npt.NDArray[np.int64]:
    return np.asarray((offset + np.arange(rows)[:, None] * stride + np.arange(row_bytes)).reshape(-1), np.int64)


TARGET = WideTarget()
PROMISES = WideTarget("promises-v1", EXACT)
CARELESS = WideTarget("careless-v1", summed="float16")
