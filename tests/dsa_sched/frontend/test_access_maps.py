"""Access maps of every operator: what lies outside the inferred boxes has no influence, and their faces do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsa_sched.frontend import Model
from dsa_sched.frontend.graph.access_maps import Signature, stages_of
from partitioner.ir.access import Access, Grouped, Linear
from partitioner.ir.graph import Graph, LoopNest, Op
from partitioner.ir.regions import Box, box_size, input_boxes
from tests.dsa_sched.frontend.numpy_graph import Doubles, evaluate
from tests.dsa_sched.frontend.test_operators import CASES, load

BOXES_AN_OP = 4
INEXACT_KINDS = frozenset(["view", "gather", "take", "resize", "lrn"])


def values_of(model: Model, inputs: dict[str, np.ndarray]) -> dict[str, Doubles]:
    graph, values = model.graph, dict[str, Doubles]()
    for tensor in graph.tensors:
        if tensor.constant:
            values[tensor.name] = np.asarray(model.constants[tensor.constant], np.float64)
        elif tensor.name in inputs:
            values[tensor.name] = np.asarray(inputs[tensor.name], np.float64).transpose(tensor.axes)
    for op in graph.ops:
        results = evaluate(graph, op, [values[name] for name in op.inputs])
        values.update(zip(op.outputs, results, strict=True))
    return values


def random_box(random: np.random.Generator, shape: tuple[int, ...]) -> Box:
    box = []
    for extent in shape:
        low = int(random.integers(0, extent))
        box.append((low, int(random.integers(low, extent)) + 1))
    return tuple(box)


def inside(box: Box) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


def result(graph: Graph, op: Op, values: dict[str, Doubles], changed: dict[str, Doubles], box: Box) -> Doubles:
    with np.errstate(invalid="ignore"):
        operands = [changed.get(name, values[name]) for name in op.inputs]
        return evaluate(graph, op, operands)[0][inside(box)]


def poisoned(array: Doubles, box: Box, keep: bool) -> Doubles:
    """NaN outside the box (`keep`) or inside it."""
    copy = array.copy() if not keep else np.full_like(array, np.nan)
    copy[inside(box)] = array[inside(box)] if keep else np.nan
    return copy


def faces(box: Box) -> list[Box]:
    found = []
    for axis, (low, high) in enumerate(box):
        found += [(*box[:axis], edge, *box[axis + 1 :]) for edge in ((low, low + 1), (high - 1, high))]
    return found


def is_exact(op: Op) -> bool:
    """Every face of the boxes matters: no rounding up to whole axes and no gaps between the taps of a window."""
    attributes = dict(op.attributes)
    if op.kind in INEXACT_KINDS or attributes.get("groups", 1) != 1:
        return False
    if "kernel" not in attributes:
        return True
    dense = all(stride <= kernel for stride, kernel in zip(op.ints("strides"), op.ints("kernel"), strict=True))
    return dense and set(op.ints("dilations")) == {1}


@pytest.mark.parametrize("name", CASES)
def test_boxes_hold_all_that_matters_and_no_more(name: str, tmp_path: Path) -> None:
    model, inputs = load(CASES[name], tmp_path)
    graph, values = model.graph, values_of(model, inputs)
    random = np.random.default_rng(1)
    floating = {tensor.name for tensor in graph.tensors if tensor.dtype == "float16"}
    for op in graph.ops:
        for _ in range(BOXES_AN_OP):
            output = op.outputs[0]
            box = random_box(random, graph.by_name[output].shape)
            clean = values[output][inside(box)]
            boxes = input_boxes(graph, op, {output: box})
            operands = [operand for operand in dict.fromkeys(op.inputs) if operand in floating]
            outside = {operand: poisoned(values[operand], boxes[operand], keep=True) for operand in operands}
            assert np.array_equal(result(graph, op, values, outside, box), clean), f"{op.name} reads more for {box}"
            for operand in operands if is_exact(op) else ():
                for face in faces(boxes[operand]) if box_size(boxes[operand]) else ():
                    changed = {operand: poisoned(values[operand], face, keep=False)}
                    seen = result(graph, op, values, changed, box)
                    assert not np.array_equal(seen, clean), f"{op.name}: {face} of {operand} is not read for {box}"


def test_a_convolution_reads_as_its_documentation_says(tmp_path: Path) -> None:
    model, _ = load(CASES["Conv uneven"], tmp_path)
    pad, compute = model.graph.ops[0].stages
    assert [axis.name for axis in pad.domain] == ["n", "y", "x", "c"]
    assert [(axis.name, axis.reduce) for axis in compute.domain] == [
        *((name, False) for name in ("n", "y", "x", "f")),
        *((name, True) for name in ("ry", "rx", "rc")),
    ]
    assert [str(index) for index in pad.reads[0].indices] == ["n", "y + -2", "x", "c"]  # type: ignore[union-attr]
    data, weights, bias = compute.reads
    assert isinstance(data, Access)
    assert isinstance(weights, Access)
    assert isinstance(bias, Access)
    assert data.tensor == "%pad_temp"
    assert [str(index) for index in data.indices] == ["n", "2*y + ry", "x + 2*rx", "rc"]
    assert [str(index) for index in weights.indices] == ["ry", "rx", "rc", "f"]
    assert [str(index) for index in bias.indices] == ["f"]


def test_grouped_channels(tmp_path: Path) -> None:
    model, _ = load(CASES["Conv grouped"], tmp_path)
    data, weights, _ = model.graph.ops[0].stages[-1].reads
    assert isinstance(data, Access)
    assert isinstance(weights, Access)
    assert data.indices[3] == Grouped("f", 2, 3, "rc")
    assert [str(index) for index in weights.indices] == ["1*(f//2)", "ry", "rx", "rc", ":"]


def test_a_depthwise_convolution_is_linear(tmp_path: Path) -> None:
    model, _ = load(CASES["Conv depthwise"], tmp_path)
    data, weights, _ = model.graph.ops[0].stages[-1].reads
    assert isinstance(data, Access)
    assert isinstance(weights, Access)
    assert [str(index) for index in (data.indices[3], weights.indices[0])] == ["f + rc", "f"]


def test_signatures_are_imported_once() -> None:
    signature = Signature("Relu", (), ((2, 3),), ((2, 3),))
    assert stages_of(signature) is stages_of(Signature("Relu", (), ((2, 3),), ((2, 3),)))


def test_a_padding_of_nothing_is_no_stage() -> None:
    window = (("kernel_shape", (2, 2)), ("strides", (2, 2)))
    stages = stages_of(Signature("MaxPool", window, ((1, 3, 4, 4),), ((1, 3, 2, 2),)))
    assert [stage.name for stage in stages] == ["pool_max"]
    assert isinstance(stages[0], LoopNest)
    assert stages[0].reads[0].tensor == "0"


def test_a_padding_at_the_end_only_is_kept() -> None:
    window = (("kernel_shape", (2, 2)), ("pads", (0, 0, 1, 1)))
    pad, _ = stages_of(Signature("MaxPool", window, ((1, 3, 4, 4),), ((1, 3, 4, 4),)))
    assert pad.writes.indices == pad.reads[0].indices  # type: ignore[union-attr]
    assert [axis.extent for axis in pad.domain] == [1, 3, 5, 5]
    assert all(isinstance(index, Linear) for index in pad.writes.indices)
