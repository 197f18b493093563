"""What a target wants of a graph is what the frontend gives: types, order of axes, operators that stay whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.generic import NEUTRAL
from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import load_model
from dsa_sched.frontend.network.refusals import Judge
from hw_models.errors import ModelError, TargetError
from partitioner.ir.access import Access
from partitioner.ir.regions import input_boxes
from partitioner.ir.wants import Wants, floats_as
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.test_operators import CASES, Build, feature_map, load

PLAIN = Wants(floats_as("float32"), "channels_first")
NORMS = frozenset(["LayerNormalization", "RMSNormalization"])
CURVES = frozenset(["Gelu", "Elu", "Selu", "Celu", "Swish", "Softsign"])
WHOLE = Wants(floats_as("float32"), "channels_last", NORMS | CURVES)


@pytest.mark.parametrize("name", CASES)
def test_singles_with_channels_first_are_as_right_as_halves_with_channels_last(name: str, tmp_path: Path) -> None:
    model, inputs = load(CASES[name], tmp_path, wants=PLAIN)
    assert {tensor.dtype for tensor in model.graph.tensors if "float" in tensor.source_dtype} <= {"float32"}
    errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert set(model.graph.outputs) <= set(errors)
    assert max(errors.values()) < 1e-5, errors


def test_feature_maps_lie_as_wanted(tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        x = b.node("Conv", b.input(1, 3, 9, 8), b.weights(6, 3, 3, 3), b.weights(6))
        return b.node("LRN", b.node("MaxPool", x, kernel_shape=[2, 2]), size=3)

    last, _ = load(build, tmp_path)
    first, _ = load(build, tmp_path, wants=PLAIN)
    assert {tensor.axes for tensor in last.graph.tensors if not tensor.constant} == {(0, 2, 3, 1)}
    assert {tensor.axes for tensor in first.graph.tensors if not tensor.constant} == {(0, 1, 2, 3)}
    conv, _, lrn = first.graph.ops
    bias = next(read for read in conv.stages[-1].reads if isinstance(read, Access) and read.tensor == conv.inputs[2])
    channel = conv.stages[-1].writes.indices[1]
    assert bias.indices == (channel,)
    # One result reads its neighbours along the channels and nothing beside it.
    box = ((0, 1), (3, 4), (2, 3), (1, 2))
    assert input_boxes(first.graph, lrn, {lrn.outputs[0]: box})[lrn.inputs[0]] == ((0, 1), (2, 5), (2, 3), (1, 2))


def norm(op_type: str, axis: int = -1, shape: tuple[int, ...] = (2, 5, 8)) -> Build:
    def build(b: ModelBuilder) -> str:
        wide = shape[axis % len(shape) :]
        vectors = [b.weights(*wide) for _ in range(2 if op_type == "LayerNormalization" else 1)]
        return b.node(op_type, b.input(*shape), *vectors, axis=axis)

    return build


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (norm("LayerNormalization"), "layer_norm"),
        (norm("LayerNormalization", 1), "layer_norm"),
        (norm("RMSNormalization"), "rms_norm"),
        (lambda b: b.node("LayerNormalization", feature_map(b), b.weights(5), axis=-1), "layer_norm"),
        (lambda b: b.node("LayerNormalization", feature_map(b), b.input(5), b.input(6, 1), axis=-1), "layer_norm"),
        (lambda b: b.node("Gelu", b.input(3, 7)), "gelu"),
        (lambda b: b.node("Gelu", b.input(3, 7), approximate="tanh"), "gelu"),
        (lambda b: b.node("Elu", b.input(3, 7), alpha=0.7), "elu"),
        (lambda b: b.node("Selu", b.input(3, 7)), "selu"),
        (lambda b: b.node("Celu", b.input(3, 7), alpha=0.7), "celu"),
        (lambda b: b.node("Softsign", b.input(3, 7)), "softsign"),
    ],
)
def test_an_operator_that_is_wanted_whole_stays_one(build: Build, kind: str, tmp_path: Path) -> None:
    model, inputs = load(build, tmp_path, 23, WHOLE)
    assert model.graph.ops[-1].kind == kind
    assert len([op for op in model.graph.ops if op.kind not in ("conv", "relu", "view")]) == 1
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < 1e-5


def test_nobody_who_wants_nothing_whole_is_given_something_else_than_before(tmp_path: Path) -> None:
    model, _ = load(norm("LayerNormalization"), tmp_path, 23)
    assert "layer_norm" not in {op.kind for op in model.graph.ops}
    plain = replace(TARGET.wants, whole=frozenset(), windows="any", words=False, full_operand=False, longest_window=0)
    plain = replace(plain, attention_width=0, attention_rows=1)
    assert replace(plain, norms_of_lines=False, int8=False, in_place=False) == NEUTRAL


def test_a_layer_reads_whole_lines_of_a_norm(tmp_path: Path) -> None:
    model, _ = load(norm("LayerNormalization"), tmp_path, 23, WHOLE)
    (op,) = model.graph.ops
    boxes = input_boxes(model.graph, op, {op.outputs[0]: ((0, 1), (2, 3), (4, 5))})
    assert [boxes[name] for name in op.inputs] == [((0, 1), (2, 3), (0, 8)), *[((0, 1), (0, 1), (4, 5))] * 2]


def test_a_whole_norm_gives_out_no_statistics(tmp_path: Path) -> None:
    builder = ModelBuilder(opset=23)
    builder.node("LayerNormalization", builder.input(2, 8), builder.weights(8), outputs=["y", "mean"], name="norm")
    path = builder.save(tmp_path, "y", "mean")
    assert load_model(path).graph.outputs == ("y", "mean")
    with pytest.raises(ModelError, match=r"LayerNormalization norm .*: its mean and deviation are read too"):
        load_model(path, judge=Judge(WHOLE))


def test_what_cannot_stay_whole_is_told_to_the_target(tmp_path: Path) -> None:
    builder = ModelBuilder()
    path = builder.save(tmp_path, builder.node("Relu", builder.input(2, 3)))
    softmax = Wants(floats_as("float32"), "channels_last", frozenset(["Softmax", "Relu"]))  # which always do
    assert load_model(path, judge=Judge(softmax)).graph.ops[0].kind == "relu"
    with pytest.raises(
        TargetError, match=r"a target's wants: needs operators that can stay whole.*has Einsum, Hardmax"
    ):
        load_model(path, judge=Judge(Wants(floats_as("float32"), "channels_last", frozenset(["Hardmax", "Einsum"]))))


def test_types_that_no_graph_has_are_refused() -> None:
    with pytest.raises(TargetError, match=r"a target's wants, float16: needs to be stored as one of .*has float8"):
        Wants(floats_as("float8"), "channels_last")
    with pytest.raises(TargetError, match=r"a target's wants, bfloat16: needs .*has bfloat16"):
        Wants(tuple((name, name) for name in ("float16", "float32", "float64")), "channels_last")


def test_constants_have_the_type_in_which_their_operator_computes(tmp_path: Path) -> None:
    """Those that a rewrite makes are worked out in float64, whatever the network is in."""
    builder = ModelBuilder()
    x = builder.node("Conv", builder.input(1, 3, 6, 5), builder.weights(4, 3, 1, 1))
    scale, shift, mean, spread = (builder.constant(abs(builder.random.standard_normal(4)) + 1) for _ in range(4))
    path = builder.save(tmp_path, builder.node("BatchNormalization", x, scale, shift, mean, spread))
    as_is = Wants((("bfloat16", "float32"),), "channels_last")
    graph = load_model(path, judge=Judge(as_is)).graph
    assert [op.kind for op in graph.ops] == ["conv"]
    assert {tensor.dtype for tensor in graph.tensors} == {"float32"}


def test_bounds_of_a_clip_are_those_of_the_type(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Clip", builder.input(2, 3), "", builder.constant(1e6))
    path = builder.save(tmp_path, y)
    (halves,), (singles,) = load_model(path).graph.ops, load_model(path, judge=Judge(PLAIN)).graph.ops
    assert (halves.number("min"), halves.number("max")) == (-65504.0, 65504.0)
    assert singles.number("max") == 1e6
    assert singles.number("min") == -3.4028234663852886e38


ATTENDS = Wants(floats_as("float32"), "channels_last", frozenset(["Attention", "RotaryEmbedding"]))


def attention(q: tuple[int, ...], k: tuple[int, ...], *mask: str, **settings: float) -> Build:
    """`mask` names a constant: numbers, truth values, or a computed one."""

    def build(b: ModelBuilder) -> str:
        rows, columns = q[-2], k[-2]
        truth = b.random.random((rows, columns)) < 0.7
        given = {
            "numbers": lambda: b.weights(rows, columns),
            "truth": lambda: b.constant(truth, dtype=np.bool_),
            "computed": lambda: b.node("Greater", b.input(1, 1, rows, columns), b.constant(-0.5)),
        }
        operands = (b.input(*q), b.input(*k), b.input(*k), *(given[name]() for name in mask))
        return b.node("Attention", *operands, attributes=settings)

    return build


@pytest.mark.parametrize(
    "build",
    [
        attention((2, 3, 5, 4), (2, 3, 7, 4)),
        attention((2, 4, 5, 4), (2, 2, 7, 4), "numbers", scale=0.3),
        attention((2, 2, 6, 4), (2, 2, 6, 4), "truth", is_causal=1),
        attention((2, 2, 6, 4), (2, 2, 6, 4), softcap=2.0),
        attention((2, 5, 12), (2, 7, 6), q_num_heads=4, kv_num_heads=2),
    ],
)
def test_attention_that_is_wanted_whole_has_one_form(build: Build, tmp_path: Path) -> None:
    """Operands by head, a scale, and a mask that is added."""
    model, inputs = load(build, tmp_path, 24, ATTENDS)
    (op,) = (op for op in model.graph.ops if op.kind not in ("view", "transpose"))
    assert op.kind == "attention"
    assert {len(model.graph.by_name[name].shape) for name in (*op.inputs[:3], *op.outputs)} == {4}
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < 1e-5


def test_a_row_of_attention_reads_its_head_alone(tmp_path: Path) -> None:
    model, _ = load(attention((2, 4, 5, 4), (2, 2, 7, 4), "numbers"), tmp_path, 24, ATTENDS)
    (op,) = model.graph.ops
    boxes = input_boxes(model.graph, op, {op.outputs[0]: ((0, 1), (3, 4), (2, 3), (1, 2))})
    q, k, v, mask = (boxes[name] for name in op.inputs)
    assert q == ((0, 1), (3, 4), (2, 3), (0, 4))
    assert k == ((0, 1), (1, 2), (0, 7), (0, 4))
    assert v == ((0, 1), (1, 2), (0, 7), (1, 2))
    assert mask[-2:] == ((2, 3), (0, 7))


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((2, 3, 5, 8), {}),
        ((2, 3, 5, 8), {"interleaved": 1, "rotary_embedding_dim": 4}),
        ((2, 5, 24), {"num_heads": 3}),
    ],
)
def test_rotary_embeddings_stay_whole(shape: tuple[int, ...], settings: dict[str, int], tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        half = settings.get("rotary_embedding_dim", 8) // 2
        return b.node(
            "RotaryEmbedding", b.input(*shape), b.weights(2, 5, half), b.weights(2, 5, half), attributes=settings
        )

    model, inputs = load(build, tmp_path, 24, ATTENDS)
    assert [op.kind for op in model.graph.ops if op.kind not in ("view", "transpose")] == ["rotary_embedding"]
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < 1e-5


@pytest.mark.parametrize("wants", [NEUTRAL, ATTENDS])
def test_attention_with_more_than_a_mask_is_refused(wants: Wants, tmp_path: Path) -> None:
    def past(b: ModelBuilder) -> str:
        operands = [b.input(1, 2, 5, 4) for _ in range(3)]
        kept = [b.input(1, 2, 3, 4) for _ in range(2)]
        outputs = ["y", "keys", "values", "scores"]
        return b.node("Attention", *operands, "", *kept, outputs=outputs, name="cached")

    reason = "scores as an output, and lengths next to past keys, are not taken; heads of q, k and v must divide"
    with pytest.raises(ModelError, match=f"Attention cached .*: {reason}"):
        load(past, tmp_path, 24, wants)
    with pytest.raises(ModelError, match=r"Attention attention0 .*a mask must spread over the scores"):
        load(lambda b: b.node("Attention", *(b.input(1, 2, 5, 4) for _ in range(3)), b.weights(5, 7)), tmp_path, 24)


@pytest.mark.parametrize("wants", [NEUTRAL, ATTENDS])
def test_rotary_tables_of_other_rows_are_refused(wants: Wants, tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        tables = (b.weights(2, 7, 4), b.weights(2, 7, 4))
        return b.node("RotaryEmbedding", b.input(2, 3, 5, 8), *tables, name="turns")

    with pytest.raises(ModelError, match=r"RotaryEmbedding turns .*: .*tables \[batch, rows, half\]"):
        load(build, tmp_path, 24, wants)


def test_what_onnx_cannot_say_as_one_attention_is_taken_apart_for_all(tmp_path: Path) -> None:
    """Scores that become a finite number by a computed condition: rows that are hidden as a whole depend on it."""

    def build(b: ModelBuilder) -> str:
        q, k, v, x = (b.input(1, 2, 6, 4) for _ in range(4))
        scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
        hidden = b.node("Greater", b.node("MatMul", x, b.node("Transpose", x, perm=[0, 1, 3, 2])), b.constant(0.5))
        weights = b.node("Softmax", b.node("Where", hidden, b.constant(-1e4), scores), axis=-1)
        return b.node("MatMul", weights, v)

    halves = replace(ATTENDS, stored=floats_as("float16"))
    model, inputs = load(build, tmp_path, 17, halves)
    assert "attention" not in {op.kind for op in model.graph.ops}
    assert [each.label for each in model.found] == ["attention"]
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < 1e-3
