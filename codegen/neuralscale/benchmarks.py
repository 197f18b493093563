"""The micro-benchmarks of a chip of the family: drafts with their machine code.

Chip --drafts--> BenchmarkDraft, ... --machine code--> Benchmark, ...
"""

from __future__ import annotations

from codegen.neuralscale.calibration.drafts import BARRIER, BenchmarkDraft
from codegen.neuralscale.calibration.engines import matrix_drafts, scalar_drafts, vector_drafts
from codegen.neuralscale.calibration.moves import dma_drafts, transfer_drafts
from codegen.neuralscale.calibration.places import OperandPlaces
from codegen.neuralscale.calibration.together import together_drafts
from codegen.neuralscale.emit.emit import emit_image
from codegen.neuralscale.executable import files_of
from codegen.target import Benchmark, ClusterFiles
from hw_models.chip import Chip
from isched.program.program import Program, Stream
from partitioner.ir.graph import Graph

DRAFTS = (scalar_drafts, matrix_drafts, vector_drafts, transfer_drafts, dma_drafts, together_drafts)
"""What is measured, in this order."""


def benchmarks(chip: Chip) -> tuple[Benchmark, ...]:
    """Programs for the chip. What the chip file does not have, such as a link between cores, is not measured."""
    places = OperandPlaces(chip)
    return tuple(_made(draft, chip) for drafts in DRAFTS for draft in drafts(places))


def _made(draft: BenchmarkDraft, chip: Chip) -> Benchmark:
    """The benchmark with its machine code. It does not name the chip, because numbers that do not change the programs
    change the chip's hash."""
    clusters = range(chip.clusters if draft.every_cluster else 1)
    files = tuple(_files(draft, chip, cluster) for cluster in clusters)
    return Benchmark(draft.name, draft.measures, files, draft.isolates, ("cycles", *draft.counters))


def _files(draft: BenchmarkDraft, chip: Chip, cluster: int) -> ClusterFiles:
    streams = tuple(Stream(core, instrs) for core, instrs in enumerate(draft.streams))
    program = Program(draft.name, chip.name, cluster, BARRIER, (), streams)
    return files_of(program, emit_image(program, Graph(draft.name, (), (), (), ()), {}, draft.code), None)
