"""What a target that has kernels for them is given: attention of heads side by side, norms along lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from partitioner.ir.regions import input_boxes
from partitioner.ir.wants import Wants, floats_as
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.test_operators import Build, load
from tests.dsa_sched.frontend.test_wants import attention, norm

KERNELS = Wants(floats_as("float32"), "channels_last", norms_of_lines=True, attention_width=8)


def kinds(build: Build, folder: Path, wants: Wants = KERNELS, opset: int = 24) -> Counter[str]:
    """What there is of each kind, after every layer was found right."""
    model, inputs = load(build, folder, opset, wants)
    errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert set(model.graph.outputs) <= set(errors)
    assert max(errors.values()) < 1e-4, errors
    return Counter(op.kind for op in model.graph.ops)


def encoder(b: ModelBuilder, rows: int = 6, heads: int = 3, size: int = 4, *, kept: str = "") -> str:
    """Attention of a layer as exporters write it, from x to the product behind the joined heads."""
    x, width = b.input(2, rows, heads * size), heads * size
    split = b.constant(np.array([2, rows, heads, size]), dtype=np.int64)

    def part() -> str:
        made = b.node("MatMul", x, b.weights(width, width))
        return b.node("Transpose", b.node("Reshape", made, split), perm=[0, 2, 1, 3])

    q, k, v = part(), part(), part()
    scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = b.node("Add", b.node("Mul", scores, b.constant(0.5)), b.input(2, 1, 1, rows))
    taken = b.node("MatMul", b.node("Softmax", scores, axis=-1), v)
    turned = b.node("Transpose", taken, perm=[0, 2, 1, 3])
    shape = b.constant(np.array([2, rows, width]), dtype=np.int64)
    if kept == "joined":
        return b.node("Reshape", turned, shape)
    if kept == "by head":
        return b.node("Add", taken, b.node("Relu", taken))
    return b.node("MatMul", b.node("Reshape", turned, shape), b.weights(width, width))


def test_splitting_and_joining_heads_moves_nothing(tmp_path: Path) -> None:
    assert kinds(encoder, tmp_path, opset=17) == {"matmul": 4, "attend": 1}


def test_joined_heads_may_be_an_output(tmp_path: Path) -> None:
    assert kinds(lambda b: encoder(b, kept="joined"), tmp_path, opset=17) == {"matmul": 3, "attend": 1}


def test_heads_that_stay_apart_are_turned_once(tmp_path: Path) -> None:
    found = kinds(lambda b: encoder(b, kept="by head"), tmp_path, opset=17)
    assert found["attend"] == found["transpose"] == 1


@pytest.mark.parametrize(
    "build",
    [
        attention((2, 3, 5, 4), (2, 3, 7, 4)),
        attention((2, 4, 5, 4), (2, 2, 7, 4), "numbers", scale=0.3),
        attention((2, 2, 6, 4), (2, 2, 6, 4), "truth", is_causal=1),
        attention((2, 5, 12), (2, 7, 6), q_num_heads=4, kv_num_heads=2),
        attention((2, 5, 12), (2, 7, 12), "numbers", q_num_heads=3, kv_num_heads=3),
    ],
)
def test_attention_of_a_file_is_one_operator(build: Build, tmp_path: Path) -> None:
    assert kinds(build, tmp_path)["attend"] == 1


def test_later_keys_may_be_hidden_by_their_places(tmp_path: Path) -> None:
    """Where a target says so, and nothing else hides any: then there is no mask."""
    by_place = replace(KERNELS, attention_by_place=True)

    def operator(wants: Wants, *mask: int, **settings: int) -> tuple[int, int]:
        """Operands of the operator, and what the first row sees."""

        def build(b: ModelBuilder) -> str:
            operands = [b.input(2, 3, 5, 4), b.input(2, 3, 7, 4), b.input(2, 3, 7, 4)]
            return b.node("Attention", *operands, *([b.weights(*mask)] if mask else []), attributes=settings)

        model, inputs = load(build, tmp_path, 24, wants)
        assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < 1e-4
        (op,) = [op for op in model.graph.ops if op.kind == "attend"]
        return len(op.inputs), int(str(dict(op.attributes).get("first_sees", 0)))

    assert operator(by_place, is_causal=1) == (3, 1)
    assert operator(KERNELS, is_causal=1) == (4, 0)
    assert operator(by_place, 5, 7, is_causal=1) == (4, 0)
    assert operator(by_place, is_causal=0) == (3, 0)


def test_rows_that_a_constant_hides_are_zeros(tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        truth = np.array([[True, False, True], [False, False, False]])
        operands = (b.input(1, 2, 2, 4), b.input(1, 2, 3, 4), b.input(1, 2, 3, 4), b.constant(truth, dtype=np.bool_))
        return b.node("Attention", *operands)

    assert kinds(build, tmp_path)["attend"] == 1


def test_a_mask_that_is_computed_is_an_operand_and_rows_that_see_nothing_are_zeros(tmp_path: Path) -> None:
    halves = replace(KERNELS, stored=floats_as("float16"))
    model, inputs = load(attention((2, 2, 6, 4), (2, 2, 6, 4), "computed"), tmp_path, 24, halves)
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < 1e-3
    (op,) = (op for op in model.graph.ops if op.kind == "attend")
    assert model.graph.by_name[op.inputs[3]].shape == (1, 1, 6, 6)
    assert [reader.kind for reader in model.graph.consumers[op.outputs[0]]] == ["mul"]


@pytest.mark.parametrize(
    "build",
    [
        attention((2, 2, 6, 4), (2, 2, 6, 4), softcap=2.0),
        attention((1, 2, 3, 9), (1, 2, 6, 9)),
    ],
    ids=["a cap", "rows of 9 elements"],
)
def test_what_the_operator_cannot_say_is_taken_apart(build: Build, tmp_path: Path) -> None:
    found = kinds(build, tmp_path)
    assert "attend" not in found
    assert found["softmax"] == 1


@pytest.mark.parametrize(
    ("perms", "left"),
    [
        ([(0, 2, 1, 3), (0, 2, 1, 3)], 0),
        ([(0, 2, 3, 1), (0, 3, 1, 2)], 0),
        ([(0, 2, 3, 1), (0, 2, 1, 3)], 1),
        ([(0, 2, 1, 3), (0, 3, 1, 2), (0, 1, 3, 2)], 1),
    ],
)
def test_transposes_of_transposes_are_one(perms: list[tuple[int, ...]], left: int, tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        x = b.node("Relu", b.input(2, 3, 4, 5))
        for perm in perms:
            x = b.node("Transpose", x, perm=list(perm))
        return b.node("Relu", x)

    assert kinds(build, tmp_path, opset=17)["transpose"] == left


def test_heads_too_large_for_the_memory_before_the_cores_are_taken_apart(tmp_path: Path) -> None:
    build = attention((1, 2, 3, 8), (1, 2, 6, 8))
    assert kinds(build, tmp_path, replace(KERNELS, attention_elements=96))["attend"] == 1
    assert "attend" not in kinds(build, tmp_path, replace(KERNELS, attention_elements=95))


def test_nobody_else_is_given_the_operators(tmp_path: Path) -> None:
    wants = replace(KERNELS, attention_width=0, norms_of_lines=False)
    assert "attend" not in kinds(encoder, tmp_path, wants, opset=17)
    assert "normalise" not in kinds(norm("LayerNormalization"), tmp_path, wants)


def test_columns_of_a_head_read_the_columns_of_their_heads(tmp_path: Path) -> None:
    model, _ = load(attention((2, 5, 16), (2, 7, 8), "numbers", q_num_heads=4, kv_num_heads=2), tmp_path, 24, KERNELS)
    (op,) = (op for op in model.graph.ops if op.kind == "attend")
    boxes = input_boxes(model.graph, op, {op.outputs[0]: ((1, 2), (2, 4), (8, 12))})
    q, k, v, mask = (boxes[name] for name in op.inputs)
    assert q == ((1, 2), (2, 4), (8, 12))
    assert k == v == ((1, 2), (0, 7), (4, 8))
    assert mask == ((0, 1), (0, 1), (2, 4), (0, 7))


@pytest.mark.parametrize("axis", [-1, 1])
def test_norms_along_lines_are_one_operator_with_scale_and_bias_behind(axis: int, tmp_path: Path) -> None:
    assert kinds(norm("LayerNormalization", axis), tmp_path) == {"normalise": 1, "mul": 1, "add": 1}
    assert kinds(norm("RMSNormalization", axis), tmp_path) == {"normalise": 1, "mul": 1}


def test_an_instance_norm_is_one_along_the_axes_of_an_image(tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        x = b.node("Conv", b.input(2, 3, 6, 5), b.weights(4, 3, 1, 1))
        return b.node("InstanceNormalization", x, b.weights(4), b.weights(4))

    assert kinds(build, tmp_path) == {"conv": 1, "normalise": 1, "scale_shift": 1}


def test_a_norm_whose_deviation_is_read_is_taken_apart(tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        x = b.input(2, 8)
        y, _, deviation = "y", "mean", "deviation"
        b.node("LayerNormalization", x, b.weights(8), outputs=[y, "mean", deviation])
        return b.node("Mul", y, deviation)

    assert "normalise" not in kinds(build, tmp_path)
