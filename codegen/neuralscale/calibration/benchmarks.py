"""The micro-benchmarks of a chip of the family, in order of what they measure."""

from __future__ import annotations

from codegen.neuralscale.calibration.drafts import made
from codegen.neuralscale.calibration.engines import matrix_drafts, scalar_drafts, vector_drafts
from codegen.neuralscale.calibration.moves import dma_drafts, transfer_drafts
from codegen.neuralscale.calibration.places import Places
from codegen.neuralscale.calibration.together import together_drafts
from codegen.target import Benchmark
from hw_models.chip import Chip

DRAFTS = (scalar_drafts, matrix_drafts, vector_drafts, transfer_drafts, dma_drafts, together_drafts)


def benchmarks(chip: Chip) -> tuple[Benchmark, ...]:
    """Programs for the chip. What the chip file does not have, such as a link between cores, is not measured."""
    places = Places(chip)
    return tuple(made(draft, chip) for drafts in DRAFTS for draft in drafts(places))
