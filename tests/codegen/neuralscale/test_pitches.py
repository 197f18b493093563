"""Every template, every buffer that it declares strided: with a pitch the same bits, and nothing between the rows."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.neuralscale.target import TARGET
from hw_models.errors import TargetError
from partitioner.ir.regions import Box
from partitioner.ir.target import TileWork
from tests.tile_runs import PATTERN, pitched_variants, run_tile
from tests.tile_samples import SAMPLES, boxes_of, layers_of, sample_chip


@pytest.mark.spread(12)
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.commit
def test_a_pitch_changes_no_bit(name: str) -> None:
    chip = sample_chip(name)
    for graph, constants, layer in layers_of(name, chip):
        for box in boxes_of(graph, layer):
            work = TARGET.work(graph, layer, box, chip)
            variants = pitched_variants(graph, layer, work, box)
            dense, *pitched = run_tile(graph, constants, layer, box, chip, variants)
            assert not (dense == PATTERN).all()
            for pitches, area in zip(variants[1:], pitched, strict=True):
                columns = dense.shape[1]
                np.testing.assert_array_equal(area[:, :columns], dense, err_msg=f"{layer.name} {box} {pitches}")
                assert (area[:, columns:] == PATTERN).all(), (layer.name, box, pitches)


@pytest.mark.parametrize(
    ("name", "box", "buffer"),
    [
        ("conv, residual", ((0, 1), (0, 1), (0, 4), (1, 12)), "output"),
        ("conv, residual", ((0, 1), (0, 1), (0, 4), (1, 12)), "operand0.r"),
        ("matmul", ((0, 1), (0, 5), (0, 10)), "output"),
        ("matmul", ((0, 1), (0, 5), (0, 10)), "rows"),
        ("max_pool", ((1, 2), (0, 1), (0, 3), (2, 7)), "output"),
        ("scale_shift", ((1, 2), (0, 1), (1, 7), (2, 9)), "anchor.x"),
        ("mul by (2, 1, 1, 12)", ((1, 2), (0, 1), (1, 7), (2, 9)), "output"),
    ],
)
def test_pitches_wider_than_a_field(name: str, box: Box, buffer: str) -> None:
    """Row by row, since a stride has 16 bits."""
    chip = sample_chip(name)
    graph, constants, layer = next(layers_of(name, chip))
    dense, far = run_tile(graph, constants, layer, box, chip, [{}, {buffer: 70_000}])
    np.testing.assert_array_equal(far[:, : dense.shape[1]], dense)


@pytest.mark.parametrize(("name", "buffer"), [("conv", "input"), ("matmul", "columns"), ("reduce_max", "input")])
def test_the_matrix_engine_has_no_wider_pitch(name: str, buffer: str) -> None:
    chip = sample_chip(name)
    graph, constants, layer = next(layers_of(name, chip))
    box = next(boxes_of(graph, layer))
    with pytest.raises(TargetError, match="needs extents and strides up to 65535; has 70000"):
        run_tile(graph, constants, layer, box, chip, [{buffer: 70_000}])


def _strided(name: str) -> set[str]:
    chip = sample_chip(name)
    graph, _, layer = next(layers_of(name, chip))
    work: TileWork = TARGET.work(graph, layer, next(boxes_of(graph, layer)), chip)
    return {buffer.name for buffer in work.buffers if buffer.strided}


@pytest.mark.parametrize(
    ("name", "strided"),
    [
        ("conv, residual", {"input", "output", "operand0.r"}),
        *((f"depthwise, {form}", {"input", "output"}) for form in ("each", "blocks", "vector")),
        ("matmul", {"rows", "columns", "output"}),
        ("conv of int8", {"input", "output"}),
        ("matmul of int8", {"rows", "columns", "operand0.r", "output"}),
        ("add_scaled", {"anchor.x", "anchor.y", "output"}),
        ("max_pool", {"input", "output"}),
        ("average_pool", {"input", "output"}),
        ("average_pool of whole images", {"input", "output"}),
        ("add", {"anchor.x", "anchor.y", "operand0.z", "output"}),
        ("mul by (2, 1, 1, 12)", {"anchor.x", "output"}),
        ("concat of axis 3", {"piece0", "piece1", "piece2", "output"}),
        ("slice", {"input", "output"}),
        ("lrn", {"input", "output"}),
        ("resize, nearest", {"input", "output"}),
        ("resize of channels", set()),
        ("reduce_sum", {"input", "output"}),
        ("reduce_sum of rows", set()),
        ("reduce_max", {"input", "output"}),
        ("reduce_max of two runs", {"input"}),
        ("reduce_mean", {"input", "output"}),
        ("softmax", {"input", "output"}),
        ("softmax of axis 0", set()),
        ("normalise", {"input", "output"}),
        ("normalise of rows", {"input", "output"}),
        ("attend, shared heads", {"queries", "keys", "values", "output"}),
    ],
)
def test_which_buffers_may_have_a_pitch(name: str, strided: set[str]) -> None:
    assert _strided(name) == strided


@pytest.mark.parametrize(
    ("buffer", "pitch"),
    [("weights", 64), ("sum", 64), ("other", 64), ("output", 34), ("output", 41), ("input", 22)],
    ids=str,
)
def test_pitches_that_cannot_be(buffer: str, pitch: int) -> None:
    """Buffers that are not strided or not there; rows of 36 and 24 bytes that overlap; half an element."""
    chip = sample_chip("conv")
    ((graph, constants, layer),) = layers_of("conv", chip)
    box = next(boxes_of(graph, layer))
    work = TARGET.work(graph, layer, box, chip)
    offsets = {buffer.name: 0 for buffer in work.buffers}
    with pytest.raises(ValueError, match=f"{layer.name}: {buffer} cannot have a pitch of {pitch} bytes"):
        TARGET.lower(graph, constants, layer, box, work, offsets, chip, {buffer: pitch})
