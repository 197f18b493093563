"""What holds for every template: loaded buffers are only read, all accesses stay inside, every kind is here.

A lowering may let a loaded buffer be the tensor itself, where it lies in L1; a template that wrote into one would
destroy what another layer still reads.
"""

from __future__ import annotations

import pytest

from codegen.neuralscale.instructions.depthwise_forms import DepthwiseForm, depthwise_form
from codegen.neuralscale.kernels.dispatch import TEMPLATES
from codegen.neuralscale.target import TARGET
from isched.program.program import Region
from tests.tile_samples import SAMPLES, boxes_of, layers_of, sample_chip

SPACING_BYTES = 1 << 22


@pytest.mark.commit
def test_every_kind_has_a_sample() -> None:
    kinds = {op.kind for name in SAMPLES for graph, _, _ in layers_of(name, sample_chip(name)) for op in graph.ops}
    assert kinds == set(TEMPLATES)
    for form in DepthwiseForm:
        name = f"depthwise, {form.value}"
        ((graph, _, layer),) = layers_of(name, sample_chip(name))
        assert depthwise_form(graph, layer.anchor(graph), sample_chip(name)) is form
        if form is not DepthwiseForm.VECTOR:
            name = f"depthwise of int8, {form.value}"
            ((graph, _, layer),) = layers_of(name, sample_chip(name))
            assert depthwise_form(graph, layer.anchor(graph), sample_chip(name)) is form


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.commit
def test_loaded_buffers_are_only_read_and_no_buffer_is_left(name: str) -> None:
    chip = sample_chip(name)
    for graph, constants, layer in layers_of(name, chip):
        for box in boxes_of(graph, layer):
            work = TARGET.work(graph, layer, box, chip)
            # Far apart, so that a region tells which buffer it belongs to.
            offsets = {buffer.name: position * SPACING_BYTES for position, buffer in enumerate(work.buffers)}
            loaded = {load.buffer for step in work.passes for load in step.loads}
            used: set[str] = set()
            for instr in (i for step in TARGET.lower(graph, constants, layer, box, work, offsets, chip) for i in step):
                for region in (*instr.reads, *instr.writes):
                    buffer = work.buffers[region.offset_bytes // SPACING_BYTES]
                    assert region.memory == buffer.memory
                    assert region.end_bytes <= offsets[buffer.name] + buffer.size_bytes, (instr, buffer)
                    used.add(buffer.name)
                assert not loaded & {_owner(region, offsets) for region in instr.writes}, instr
            # A division by an immediate needs no scratch, and `work` does not look that far.
            assert used | {"scratch"} == set(offsets) | {"scratch"}


def _owner(region: Region, offsets: dict[str, int]) -> str:
    return next(
        name for name, offset in offsets.items() if offset == region.offset_bytes // SPACING_BYTES * SPACING_BYTES
    )
